"""Decode JSON into typed payloads.

``read`` is the general entry point: it accepts unknown content blocks and explains errors. ``DECODERS`` are the bare
``msgspec`` decoders, for code that must be fast and handles ``UNREADABLE`` itself.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any, TypeVar

import msgspec

from mcplumb.errors import DecodeError, ProtocolError
from mcplumb.types.base import COMPLETE, INPUT_REQUIRED, Payload

__all__ = ["DECODERS", "UNREADABLE", "read", "read_result_type", "undecoded"]


T = TypeVar("T")

#: The exceptions that a decoder raises for JSON that it cannot read.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Decoders(dict[Any, msgspec.json.Decoder[Any]]):
    def __missing__(self, kind: Any) -> msgspec.json.Decoder[Any]:
        decoder = self[kind] = msgspec.json.Decoder(kind)
        return decoder


#: The decoder of each payload type, created on first use.
DECODERS = _Decoders()

#: What an undecoded field is if its key is absent.
_ABSENT = {"meta": msgspec.Raw(b"null"), "arguments": msgspec.Raw(b"{}"), "input_responses": msgspec.UNSET}

_KNOWN_BLOCKS = frozenset({"text", "image", "audio", "resource_link", "resource", "tool_use", "tool_result"})
_MAX_REASON = 300
_JSON = (msgspec.Raw, bytes)


@cache
def undecoded(kind: type[Payload], *fields: str) -> Any:
    """Return a variant of a payload type that keeps these fields as JSON, in `msgspec.Raw`.

    For servers: the arguments of a tool are decoded once, to what its function takes; metadata and answers are decoded
    only where they matter.
    """
    keys = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    return msgspec.defstruct(
        f"Undecoded{kind.__name__}",
        [
            (name, msgspec.Raw | msgspec.UnsetType, msgspec.field(default=_ABSENT[name], name=keys[name]))
            for name in fields
        ],
        bases=(kind,),
        frozen=True,
        kw_only=True,
    )


def read(kind: type[T], payload: Any, *, what: str = "payload") -> T:
    """Return the payload as a ``kind``, or raise a DecodeError that calls it ``what`` and gives the path of the fault.

    ``payload`` is JSON (``msgspec.Raw`` or bytes), or plain data decoded from it, which is not changed. An absent
    payload (``UNSET``) is read as an empty object. Content blocks of unknown types become ``UnknownContent``. The
    nesting depth is not limited here: the message decoder does that.
    """
    if payload is msgspec.UNSET:
        payload = b"{}"
    is_json = isinstance(payload, _JSON)
    try:
        if is_json:
            payload_read: T = DECODERS[kind].decode(payload)
            return payload_read
        return msgspec.convert(payload, kind)
    except msgspec.ValidationError as error:
        if not _is_unknown_tag(error):
            raise _unreadable(what, error) from error
        first = error
    except UNREADABLE as error:
        raise _unreadable(what, error) from error
    # A content block of an unknown type is the only fault that is tolerated.
    try:
        return msgspec.convert(_with_unknown_blocks(DECODERS[Any].decode(payload) if is_json else payload), kind)
    except UNREADABLE:
        raise _unreadable(what, first) from first


def read_result_type(result: Any, known: Collection[str] = (COMPLETE, INPUT_REQUIRED)) -> str:
    """Return the ``resultType`` of a result, *complete* if absent; raise ProtocolError if it is not ``known``."""
    found = read(_ResultType, result, what="result").result_type
    if found not in known:
        raise ProtocolError(f"The peer sent a result of the unknown type {found[:80]!a}; known: {', '.join(known)}.")
    return found


class _ResultType(Payload, frozen=True):
    result_type: str = COMPLETE


def _is_unknown_tag(error: msgspec.ValidationError) -> bool:
    # Reading a second time takes many times the memory of the JSON, so it happens only for this fault.
    text = str(error)
    return text.startswith("Invalid value ") and text.endswith(".type`")


def _unreadable(what: str, error: Exception) -> DecodeError:
    if isinstance(error, RecursionError):
        return DecodeError(f"The {what} cannot be read: it is nested too deeply.")
    # msgspec may quote names of any length from the input.
    reason = str(error).rstrip(".")
    if len(reason) > _MAX_REASON:
        reason = f"{reason[:_MAX_REASON]}…"
    return DecodeError(f"The {what} cannot be read: {reason}.")


def _with_unknown_blocks(data: Any) -> Any:
    """Return a copy of the data in which ``UnknownContent`` replaces each content block of an unknown type."""
    if not isinstance(data, dict):
        return data
    copy = dict(data)
    for key, value in data.items():
        if key == "content":
            copy[key] = [_block(item) for item in value] if isinstance(value, list) else _block(value)
        elif key == "messages" and isinstance(value, list):
            copy[key] = [_with_unknown_blocks(message) for message in value]
        elif key == "inputRequests" and isinstance(value, dict):
            copy[key] = {name: _with_unknown_blocks(request) for name, request in value.items()}
        elif key == "params":
            copy[key] = _with_unknown_blocks(value)
    return copy


def _block(data: Any) -> Any:
    kind = data.get("type") if isinstance(data, dict) else None
    if isinstance(kind, str) and kind not in _KNOWN_BLOCKS:
        return {"type": "mcplumb/unknown", "kind": kind, "data": data}
    return _with_unknown_blocks(data)
