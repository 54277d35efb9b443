"""The four JSON-RPC message types, their error codes, and their encoding.

In a received message, the payload (``params``, ``result``, ``data``) is a ``msgspec.Raw``: bytes that were checked to
be JSON but not decoded, because only a higher layer knows their type. In a message to be sent, the payload may be
anything that ``msgspec`` can encode; a ``Raw`` is written unchanged and must be JSON. ``UNSET`` means that the key is
absent. NaN and the infinities, which JSON lacks, are written as ``null``.
"""

# The annotations here are types, not texts: msgspec would have to compile each text when a server starts.
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
#: A request id as msgspec checks it.
BoundedId: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | str

if TYPE_CHECKING:
    _Payload: TypeAlias = Any
else:
    # Decoding a message leaves its payload undecoded.
    _Payload = msgspec.Raw | msgspec.UnsetType


# Requests and results forbid unknown keys when msgspec decodes them directly: the decoder's hot path relies on that to
# identify a line. A message with unknown keys is still accepted, on a slower path.
@final
class Request(msgspec.Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0", forbid_unknown_fields=True):
    """A request: the peer answers it with a result or an error of the same id."""

    id: BoundedId
    method: str
    params: _Payload = UNSET


class Notification(msgspec.Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A notification: a message without an answer."""

    method: str
    params: _Payload = UNSET


class Result(msgspec.Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0", forbid_unknown_fields=True):
    """A successful response to a request."""

    id: BoundedId
    result: _Payload


class ErrorDetail(msgspec.Struct, frozen=True, gc=False):
    """The ``error`` member of an error response."""

    code: int
    message: str
    data: _Payload = UNSET


class Error(msgspec.Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """An error response to a request; its id is ``UNSET`` if the request's id could not be read."""

    id: BoundedId | msgspec.UnsetType
    error: ErrorDetail


Response: TypeAlias = Result | Error
Message: TypeAlias = Request | Notification | Result | Error

_encode = msgspec.json.Encoder().encode

# As integers, because that is the fastest way to search for a byte.
_NEWLINE = ord("\n")
_RETURN = ord("\r")

# What msgspec raises for a value that it cannot write. ValueError includes lone surrogates and too long integers.
_CANNOT_ENCODE = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError, MemoryError)


def encode_line(message: Message | msgspec.Raw) -> bytes:
    """Return the message as one line, without its newline; raise `EncodeError` if it cannot be written as JSON.

    A batch is passed as the ``Raw`` JSON that `encode_batch` returned.
    """
    try:
        line = _encode(message)
        return _without_line_breaks(line) if _NEWLINE in line or _RETURN in line else line
    except _CANNOT_ENCODE as error:
        raise _encode_error(message, error) from error


def encode_batch(messages: Sequence[Message]) -> bytes:
    """Return the messages as one JSON array on one line. Only revision 2025-03-26 has batches; none may be empty."""
    if not messages:
        raise EncodeError("An empty batch cannot be sent: give it at least one message.")
    return b"[%b]" % b",".join(map(encode_line, messages))


def _without_line_breaks(data: bytes) -> bytes:
    # msgspec writes neither byte, and JSON forbids them within strings, so they are white space in a Raw payload. A
    # bare \r is replaced as well, because readers in text mode end a line there.
    return data.replace(b"\n", b" ").replace(b"\r", b" ")


def _encode_error(message: Message | msgspec.Raw, error: Exception) -> EncodeError:
    if isinstance(error, RecursionError):
        why = "it is nested too deeply, or contains itself"
    elif isinstance(error, MemoryError):
        why = "there is not enough memory for it"
    elif isinstance(error, UnicodeEncodeError):
        why = "a text in it has a lone surrogate, which UTF-8 cannot carry"
    else:
        why = str(error).rstrip(".")
    return EncodeError(f"The {_describe(message)} cannot be written as JSON: {why}.")


def _describe(message: Message | msgspec.Raw) -> str:
    if isinstance(message, Request | Notification):
        return f"{type(message).__name__.lower()} {message.method[:80]!a}"
    if isinstance(message, Result):
        return f"result for the request {ascii(message.id)[:80]}"
    return f"error {message.error.code}" if isinstance(message, Error) else "batch"
