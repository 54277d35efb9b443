"""Errors for requests that ended without a result: the exception to raise, and its sentence."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from mcplumb.errors import (
    Closed,
    DecodeError,
    HttpError,
    McplumbError,
    ProtocolError,
    RemoteError,
    RequestCancelled,
    RequestLost,
    RequestTimeout,
)
from mcplumb.protocol.in_flight import OutgoingRequest
from mcplumb.types.payload_decoder import read
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import Error, Result

__all__ = ["Response", "describe", "failure"]

#: How a request ended: with a response, a malformed one, or none (then the state of the request says why).
Response: TypeAlias = Result | Error | BadMessage | None

_LONGEST_NAME = 100


def failure(request: OutgoingRequest, response: Response, what: str, peer: str) -> McplumbError:
    """Return the error for a request that ended with anything but a result. ``peer`` is "server" or "client"."""
    if isinstance(response, Error):
        detail = response.error
        return RemoteError(detail.code, detail.message, _data_of(detail.data), request=what)
    if isinstance(response, BadMessage):
        return ProtocolError(f"The {peer}'s answer to {what} cannot be read. {response.reason}")
    if request.state == "expired":
        return RequestTimeout(f"{what} {_reason_of_timeout(request)}")
    if request.state == "failed" and not isinstance(request.cause, RequestLost):
        return _refused(request, what, peer)
    if request.state == "lost" and peer == "client":
        return Closed(f"{what} was not answered. {request.cause}")
    if request.state in ("failed", "lost"):
        lost = RequestLost(
            f"The connection ended before {what} was answered: whether it took effect is unknown. {request.cause}"
        )
        lost.__cause__ = request.cause
        lost.deadline = request.deadline
        return lost
    return RequestCancelled(f"{what} was given up before it was answered, because the client was closed.")


def _refused(request: OutgoingRequest, what: str, peer: str) -> McplumbError:
    """Return the error for a request that did not reach the peer, or that the peer's HTTP endpoint refused."""
    cause = request.cause
    if isinstance(cause, HttpError):
        error: McplumbError = HttpError(
            cause.status, f"{what} was refused. {cause}", www_authenticate=cause.www_authenticate
        )
    elif isinstance(cause, Closed):
        error = Closed(f"{what} was not sent. {cause}")
    else:
        error = ProtocolError(f"The {peer}'s answer to {what} cannot be used. {cause}")
    error.__cause__ = cause
    return error


def describe(method: str, params: Any) -> str:
    """Name a request in an error message: its method, and the tool, prompt or resource that it is about."""
    subject = params.get("name", params.get("uri")) if isinstance(params, dict) else None
    return f"{method} {subject[:_LONGEST_NAME]!r}" if isinstance(subject, str) else method


def _data_of(raw: msgspec.Raw | UnsetType) -> Any:
    """Return the data of an error; as text if it cannot be decoded, because the error is worth reporting anyway."""
    if raw is UNSET:
        return None
    try:
        return read(object, raw)
    except DecodeError:
        return bytes(raw).decode(errors="replace")


def _reason_of_timeout(request: OutgoingRequest) -> str:
    longer = "timeout"
    if request.timeout is None or (request.progress is not None and request.deadline == request.latest):
        what, longer = "was not done within its max_timeout", "max_timeout"
    elif request.progress is not None:
        what = f"made no progress for {request.timeout:g} s"
    else:
        what = f"was not answered in time ({request.timeout:g} s)"
    return f"{what}, and has been cancelled. If it needs longer, give it a longer {longer}."
