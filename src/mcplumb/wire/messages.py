"""The four JSON-RPC messages, and how they are written.

A message that came from the wire has its payload (``params``, ``result``, ``data``) as ``msgspec.Raw``: bytes that were
checked to be JSON but not decoded, because only a higher layer knows their type. A message to be written may have
anything there that ``msgspec`` can encode; a ``Raw`` is written as it is, and has to be JSON. ``UNSET`` means that the
key is absent. NaN and the infinities, which JSON does not have, are written as ``null``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, final

import msgspec
from msgspec import UNSET

from mcplumb.errors import EncodeError

__all__ = [
    "HEADER_MISMATCH",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "MISSING_CAPABILITY",
    "PARSE_ERROR",
    "UNSUPPORTED_VERSION",
    "URL_ELICITATION_REQUIRED",
    "BoundedId",
    "Error",
    "ErrorDetail",
    "Message",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "Result",
    "encode_batch",
    "encode_line",
]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022
URL_ELICITATION_REQUIRED = -32042

#: A string or an integer of at most 64 bits. ``1`` and ``"1"`` are different ids.
RequestId: TypeAlias = int | str
#: The same, as msgspec has to check it.
BoundedId: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | str

if TYPE_CHECKING:
    _Payload: TypeAlias = Any
else:
    # What msgspec makes of a payload when it decodes a message: nothing yet.
    _Payload = msgspec.Raw | msgspec.UnsetType


# Requests and results forbid unknown keys when msgspec decodes them directly. That is for the decoder's hot path, which
# proves from it what a line is; a message with unknown keys is still accepted, on a slower path.
@final
class Request(msgspec.Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0", forbid_unknown_fields=True):
    """Asks for an answer with the same id."""

    id: BoundedId
    method: str
    params: _Payload = UNSET


class Notification(msgspec.Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """Tells something and wants no answer."""

    method: str
    params: _Payload = UNSET


class Result(msgspec.Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0", forbid_unknown_fields=True):
    """The good answer to a request."""

    id: BoundedId
    result: _Payload


class ErrorDetail(msgspec.Struct, frozen=True, gc=False):
    """What an error answer says."""

    code: int
    message: str
    data: _Payload = UNSET


class Error(msgspec.Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """The bad answer to a request; without an id (``UNSET``) when the request's id could not be read."""

    id: BoundedId | msgspec.UnsetType
    error: ErrorDetail


Response: TypeAlias = Result | Error
Message: TypeAlias = Request | Notification | Result | Error

_encode = msgspec.json.Encoder().encode

# As numbers: that is the fastest way to look for a byte.
_NEWLINE = ord("\n")
_RETURN = ord("\r")

# What msgspec raises for a value that it cannot write: ValueError has lone surrogates and endless digits below it.
_CANNOT_ENCODE = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError, MemoryError)


def encode_line(message: Message | msgspec.Raw) -> bytes:
    """The message as one line, without its newline; `EncodeError` if something in it cannot be written as JSON.

    Several messages come as the JSON that `encode_batch` has made of them.
    """
    try:
        line = _encode(message)
        return _without_line_ends(line) if _NEWLINE in line or _RETURN in line else line
    except _CANNOT_ENCODE as error:
        raise _refusal(message, error) from error


def encode_batch(messages: Sequence[Message]) -> bytes:
    """The messages as one line with one JSON array in it; only 2025-03-26 has that, and it may not be empty."""
    if not messages:
        raise EncodeError("An empty batch cannot be sent: give it at least one message.")
    return b"[%b]" % b",".join(map(encode_line, messages))


def _without_line_ends(data: bytes) -> bytes:
    # msgspec writes neither byte, and within a text JSON forbids them: here they are white space from a Raw payload.
    # A bare \r goes too, because readers in text mode end a line there.
    return data.replace(b"\n", b" ").replace(b"\r", b" ")


def _refusal(message: Message | msgspec.Raw, error: Exception) -> EncodeError:
    if isinstance(error, RecursionError):
        why = "it is nested too deeply, or contains itself"
    elif isinstance(error, MemoryError):
        why = "there is not enough memory for it"
    elif isinstance(error, UnicodeEncodeError):
        why = "a text in it has a lone surrogate, which UTF-8 cannot carry"
    else:
        why = str(error).rstrip(".")
    return EncodeError(f"The {_named(message)} cannot be written as JSON: {why}.")


def _named(message: Message | msgspec.Raw) -> str:
    if isinstance(message, Request | Notification):
        return f"{type(message).__name__.lower()} {message.method[:80]!a}"
    if isinstance(message, Result):
        return f"result for the request {ascii(message.id)[:80]}"
    return f"error {message.error.code}" if isinstance(message, Error) else "batch"
