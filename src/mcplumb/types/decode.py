"""Decode raw JSON into typed payloads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

import msgspec

from mcplumb.errors import DecodeError, ProtocolError
from mcplumb.types.base import COMPLETE, INPUT_REQUIRED, Payload

__all__ = ["DECODERS", "UNREADABLE", "read", "read_result_type"]


# What reads each type of payload, where nothing has to be forgiven.


#: What a decoder raises.
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Decoders(dict[Any, msgspec.json.Decoder[Any]]):
    def __missing__(self, kind: Any) -> msgspec.json.Decoder[Any]:
        decoder = self[kind] = msgspec.json.Decoder(kind)
        return decoder


#: By the type. Each is made when it is first asked for.
DECODERS = _Decoders()


# Reading payloads: raw JSON to a typed payload, or a sentence that says why not.


T = TypeVar("T")

_KNOWN = frozenset({"text", "image", "audio", "resource_link", "resource", "tool_use", "tool_result"})
_LONGEST_REASON = 300
_JSON = (msgspec.Raw, bytes)


def read(kind: type[T], payload: Any, *, what: str = "payload") -> T:
    """The payload as a ``kind``; a DecodeError that calls it ``what`` and names the place where it is wrong.

    ``payload`` is JSON (``msgspec.Raw`` or bytes) or what was decoded from it; it is not changed. An absent one
    (``UNSET``) is read as an empty object. Content blocks of a type that is not known become ``UnknownContent``.
    JSON that did not come out of a decoded message may be nested deeper than a small stack can take.
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
        if not _is_about_a_type(error):
            raise _unreadable(what, error) from error
        first = error
    except UNREADABLE as error:
        raise _unreadable(what, error) from error
    # A block of a new type is the one mistake that is forgiven.
    try:
        return msgspec.convert(_with_unknown_blocks(DECODERS[Any].decode(payload) if is_json else payload), kind)
    except UNREADABLE:
        raise _unreadable(what, first) from first


def read_result_type(result: Any, known: Collection[str] = (COMPLETE, INPUT_REQUIRED)) -> str:
    """The ``resultType`` of a result: *complete* if it has none, a ProtocolError if it is none of the ``known``."""
    found = read(_Typed, result, what="result").result_type
    if found not in known:
        raise ProtocolError(f"The peer sent a result of the unknown type {found[:80]!a}; known: {', '.join(known)}.")
    return found


class _Typed(Payload, frozen=True):
    result_type: str = COMPLETE


def _is_about_a_type(error: msgspec.ValidationError) -> bool:
    # Reading a second time takes many times the memory of the JSON. Only this one mistake is worth it.
    text = str(error)
    return text.startswith("Invalid value ") and text.endswith(".type`")


def _unreadable(what: str, error: Exception) -> DecodeError:
    if isinstance(error, RecursionError):
        return DecodeError(f"The {what} cannot be read: it is nested too deeply.")
    # msgspec may quote a name from the input, of any length.
    reason = str(error).rstrip(".")
    if len(reason) > _LONGEST_REASON:
        reason = f"{reason[:_LONGEST_REASON]}…"
    return DecodeError(f"The {what} cannot be read: {reason}.")


def _with_unknown_blocks(data: Any) -> Any:
    """A copy in which each content block of a new type is written as an ``UnknownContent``."""
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
    if isinstance(kind, str) and kind not in _KNOWN:
        return {"type": "mcplumb/unknown", "kind": kind, "data": data}
    return _with_unknown_blocks(data)
