"""What a message is of which only the head can be read, because the rest is too long, too deep, or no JSON."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from mcplumb.wire.messages import BoundedId, RequestId

__all__ = ["end_of_text", "look_at"]

_decode_text = msgspec.json.Decoder(str).decode
_decode_id = msgspec.json.Decoder(BoundedId).decode


def look_at(head: bytes) -> tuple[RequestId | UnsetType, Literal["request", "response"] | None]:
    """The id and the kind of the message that begins like this, as far as its simple members tell.

    A member is simple if its value is a text, a number or a word. With the first that is not, the walk ends.
    """
    id_: RequestId | UnsetType = UNSET
    has_id = has_method = False
    try:
        at = _expect(head, 0, b"{")
        while True:
            start = _after_space(head, at)
            end = end_of_text(head, _expect(head, start, b'"') - 1)
            key = _decode_text(head[start:end])
            if key in ("result", "error"):
                return (UNSET if has_method else id_), "response"
            has_method |= key == "method"
            value = _after_space(head, _expect(head, end, b":"))
            after = _end_of_simple(head, value)
            if key == "id":
                id_ = UNSET if has_id else _id_in(head[value:after])
                has_id = True
            at = _expect(head, after, b",")
    except ValueError:
        # The head ends, a value is not simple, or this is no JSON.
        return id_, "request" if has_method else None


def end_of_text(data: bytes, start: int) -> int:
    """The place after the JSON text whose first quote is at ``start``; ValueError if it does not end."""
    at = start + 1
    while True:
        quote = data.index(b'"', at)
        before = data[at:quote]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return quote + 1
        at = quote + 1


def _end_of_simple(head: bytes, at: int) -> int:
    """The place after the simple value at ``at``."""
    if head[at : at + 1] == b'"':
        return end_of_text(head, at)
    end = at
    while head[end : end + 1].isalnum() or head[end : end + 1] in (b"-", b"+", b"."):
        end += 1
    if end == len(head):
        raise ValueError("the value may go on")
    return end


def _expect(head: bytes, at: int, byte: bytes) -> int:
    """The place after ``byte``, which has to be there, after white space or not; ValueError if it is not."""
    at = _after_space(head, at)
    if head[at : at + 1] != byte:
        raise ValueError(byte)
    return at + 1


def _after_space(head: bytes, at: int) -> int:
    while head[at : at + 1].isspace():
        at += 1
    return at


def _id_in(value: bytes) -> RequestId | UnsetType:
    try:
        id_: RequestId = _decode_id(value)
    except ValueError:
        return UNSET
    return id_
