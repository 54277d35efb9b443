"""What a line is, decided a second time: slowly, with the standard library, and with nothing shared with mcplumb.

It knows every rule of the decoder but two that are about resources (nesting depth, the size of the envelope).
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, NamedTuple

from msgspec import UNSET

from mcplumb.limits import MAX_DEPTH
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import PARSE_ERROR, Error, Message, Notification, Request

__all__ = ["Verdict", "agrees", "begins_like_a_response", "judge", "seen", "shown_keys"]


class Verdict(NamedTuple):
    """A kind of message, ``bad`` with its code, or ``too deep`` for the oracle; the id is None where there is none."""

    kind: str
    id: int | str | None = None
    method: str | None = None
    code: int = 0
    is_response: bool = False
    #: A key is in the envelope twice: the decoder may then hold an id for unreadable that is not.
    repeats: bool = False
    #: It is no JSON, but shows a result or an error: the decoder may hold it for a response, and trust its id.
    may_be_response: bool = False


_OUTCOMES = {"result", "error"}


class _Object(list[tuple[str, Any]]):
    """The members of a JSON object, in order, equal keys included."""


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _check_texts(value: object) -> None:
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, list):
        for item in value:
            if isinstance(value, _Object):
                _check_texts(item[0])
                _check_texts(item[1])
            else:
                _check_texts(item)


class _Number(NamedTuple):
    text: str


def judge(line: bytes) -> Verdict:
    """What ``line`` is, where batches are not allowed."""
    try:
        value = json.loads(
            line.decode(),
            object_pairs_hook=_Object,
            parse_constant=_refuse_constant,
            parse_int=_Number,
            parse_float=_Number,
        )
        _check_texts(value)
    except ValueError:
        return Verdict("bad", code=-32700, may_be_response=not _OUTCOMES.isdisjoint(shown_keys(line)))
    except RecursionError:
        return Verdict("too deep")
    if _depth(value) > MAX_DEPTH:
        return Verdict("too deep")
    if not isinstance(value, _Object):
        return Verdict("bad", code=-32600)
    return _judge_members(value)


def _depth(value: object) -> int:
    """How deep arrays and objects are nested."""
    depth = 0
    level = [value]
    while containers := [item for item in level if isinstance(item, list)]:
        depth += 1
        level = [part[1] if isinstance(item, _Object) else part for item in containers for part in item]
    return depth


def _judge_members(members: _Object) -> Verdict:
    keys = [key for key, _ in members]
    found = dict(members)
    is_response = "result" in found or "error" in found
    id_, id_is_fine = _read_id(found)
    bad = Verdict("bad", id_, code=-32600, is_response=is_response)
    if len(found) != len(keys):
        return bad._replace(id=id_ if keys.count("id") == 1 else None, repeats=True)
    if found.get("jsonrpc") != "2.0" or not id_is_fine or _has_wrong_kind(found):
        return bad
    if "method" in found:
        method = found["method"]
        if not isinstance(method, str) or ("id" in found and id_ is None):
            return bad
        if not isinstance(found.get("params", _Object()), _Object):
            return bad
        return Verdict("request" if "id" in found else "notification", id_, method)
    if "result" in found:
        return bad if id_ is None else Verdict("result", id_)
    return Verdict("error", id_) if _is_error(found["error"]) else bad


def _has_wrong_kind(found: dict[str, Any]) -> bool:
    return ("method" in found) + ("result" in found) + ("error" in found) != 1


def _read_id(found: dict[str, Any]) -> tuple[int | str | None, bool]:
    """The id, None where it is absent or null, and whether it is any of those."""
    id_ = found.get("id")
    if isinstance(id_, _Number):
        digits = id_.text.removeprefix("-")
        if digits.isdigit() and len(digits) < 20 and -(2**63) <= int(id_.text) < 2**63:
            return int(id_.text), True
        return None, False
    if isinstance(id_, str):
        return id_, True
    return None, id_ is None


def _is_error(error: object) -> bool:
    """Within an error a key may stand twice, but each of its values has to be right."""
    if not isinstance(error, _Object):
        return False
    codes = [value for key, value in error if key == "code"]
    messages = [value for key, value in error if key == "message"]
    return bool(codes and messages) and all(map(_is_code, codes)) and all(isinstance(text, str) for text in messages)


def _is_code(code: object) -> bool:
    return isinstance(code, _Number) and code.text.removeprefix("-").isdigit() and len(code.text) < 4000


def seen(message: Message | BadMessage) -> Verdict:
    """What the decoder said, in the oracle's words."""
    id_ = None if isinstance(message, Notification) or message.id is UNSET else message.id
    if isinstance(message, BadMessage):
        return Verdict("bad", id_, code=message.code, is_response=message.is_response)
    if isinstance(message, Request | Notification):
        return Verdict(type(message).__name__.lower(), id_, message.method)
    return Verdict("error" if isinstance(message, Error) else "result", id_)


def agrees(message: Message | BadMessage, verdict: Verdict) -> bool:
    """Whether decoder and oracle say the same; ids of different JSON types are different."""
    if verdict.kind == "too deep":
        return True
    said = seen(message)
    if verdict.code == PARSE_ERROR:
        # Of what is no JSON, the decoder looks at the head, to leave unanswered what might be a response.
        return said.code == PARSE_ERROR and (said.is_response or said.id is None)
    if verdict.repeats:
        verdict = verdict._replace(id=None if said.id is None else verdict.id, repeats=False)
    if verdict.may_be_response:
        verdict = verdict._replace(may_be_response=False)
        if said.is_response:
            verdict = verdict._replace(is_response=True, id=said.id)
    return said == verdict and type(said.id) is type(verdict.id)


def begins_like_a_response(head: bytes) -> bool:
    """Whether a result or an error is shown, and no method before it."""
    kinds = [key for key in shown_keys(head) if key == "method" or key in _OUTCOMES]
    return bool(kinds) and kinds[0] in _OUTCOMES


def shown_keys(head: bytes) -> list[str]:
    """The keys of an object that are there in full in its first bytes, ``head``, without those of objects inside it."""
    keys = []
    depth = at = 0
    is_key = False
    while at < len(head):
        start, letter = at, head[at : at + 1]
        at += 1
        if letter == b'"':
            while head[at : at + 1] not in (b'"', b""):
                at += 2 if head[at : at + 1] == b"\\" else 1
            at += 1
            if is_key and at <= len(head):
                with suppress(ValueError):
                    keys.append(json.loads(head[start:at].decode()))
            is_key = False
        elif letter in (b"{", b"["):
            depth += 1
            is_key = depth == 1
        elif letter in (b"}", b"]"):
            depth -= 1
        elif letter == b",":
            is_key = depth == 1
    return keys
