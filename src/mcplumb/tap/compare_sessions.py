"""Compare a server in two sessions: its identity, capabilities, tools and other lists, and its answers.

Answers are compared for equal requests, in their order. What differs in every session is left out: ids, metadata, and
how long a result may be cached.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from mcplumb.recording.recording_format import Record
from mcplumb.tap.payload_members import members, value_of
from mcplumb.tap.transcript import Call, Transcript
from mcplumb.wire.messages import Error, Request, Result

__all__ = ["Answer", "Difference", "Snapshot", "compare", "differences", "take_snapshot", "without_volatile"]

#: The lists of a server: the method, the key of the list, and the key that identifies an entry.
_LISTS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}
_IDENTITY = ("initialize", "server/discover")
#: Members of params and results that differ from session to session.
_VOLATILE = frozenset(("_meta", "resultType", "ttlMs", "cacheScope", "requestState"))
_MISSING = object()
_LONGEST_VALUE = 120
_MAX_PLACES = 20


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between two sessions."""

    #: ``server``, ``tools``, ``prompts``, ``resources``, ``resourceTemplates`` or ``answer``.
    kind: str
    name: str
    change: str
    #: The records in the two sessions.
    lines: tuple[int | None, int | None] = (None, None)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a client, and its answer without the parts that differ between any two sessions."""

    line: int
    method: str
    name: str
    #: The params as they were sent.
    params: Any
    #: The result or the error; None if there was none.
    outcome: Any
    #: Whether secrets were masked in it.
    is_masked: bool = False

    @property
    def key(self) -> bytes:
        """The key by which to find the same request in another session."""
        return msgspec.json.encode((self.method, without_volatile(self.params)), order="deterministic")


class Snapshot:
    """The server as one session shows it."""

    def __init__(self) -> None:
        self.identity: dict[str, Any] = {}
        self.identity_line: int | None = None
        #: By kind and name: the entry, and its line.
        self.lists: dict[str, dict[str, tuple[int, Any]]] = {}
        self.answers: list[Answer] = []


def take_snapshot(records: Iterable[tuple[int, Record]]) -> Snapshot:
    """Return the server as the records of a session show it."""
    snapshot = Snapshot()
    transcript = Transcript()
    asked: dict[int, tuple[Call, Any, bool]] = {}
    for number, record in records:
        step = transcript.feed(number, record)
        for said in step.said:
            call = said.call
            if isinstance(said.message, Request) and call is not None and call.sender == "client":
                asked[id(call)] = (call, _plain(said.message.params), record.masked)
            elif isinstance(said.message, Result | Error) and call is not None and id(call) in asked and not said.stray:
                _, params, was_masked = asked.pop(id(call))
                is_masked = was_masked or record.masked or record.cut is not None
                _learn(snapshot, call, params, said.message, number, is_masked=is_masked)
    for call, params, is_masked in asked.values():
        snapshot.answers.append(
            Answer(
                line=call.number, method=call.method, name=call.name, params=params, outcome=None, is_masked=is_masked
            )
        )
    snapshot.answers.sort(key=lambda answer: answer.line)
    return snapshot


def _learn(
    snapshot: Snapshot, call: Call, params: Any, message: Result | Error, number: int, *, is_masked: bool
) -> None:
    if isinstance(message, Error):
        outcome: Any = {"error": {"code": message.error.code, "message": message.error.message}}
    else:
        outcome = without_volatile(_plain(message.result))
        if call.method in _IDENTITY and isinstance(outcome, dict):
            info = value_of(members(members(message.result).get("_meta")).get("io.modelcontextprotocol/serverInfo"))
            snapshot.identity = {**({"serverInfo": info} if info is not None else {}), **outcome}
            snapshot.identity_line = number
        elif call.method in _LISTS and isinstance(outcome, dict):
            key, named_by = _LISTS[call.method]
            entries = snapshot.lists.setdefault(key, {})
            listed = outcome.get(key)
            for entry in listed if isinstance(listed, list) else ():
                if isinstance(entry, dict):
                    entries[str(entry.get(named_by))] = (number, without_volatile(entry))
    snapshot.answers.append(
        Answer(
            line=call.number, method=call.method, name=call.name, params=params, outcome=outcome, is_masked=is_masked
        )
    )


def compare(old: Snapshot, new: Snapshot) -> list[Difference]:
    """Return the differences between two sessions."""
    lines = (old.identity_line, new.identity_line)
    found = [
        Difference(kind="server", name=place, change=change, lines=lines)
        for place, change in differences(old.identity, new.identity)
    ]
    for kind in [*old.lists, *(kind for kind in new.lists if kind not in old.lists)]:
        found += _compare_lists(kind, old.lists.get(kind), new.lists.get(kind))
    return [*found, *_compare_answers(old.answers, new.answers)]


def _compare_lists(
    kind: str, old: dict[str, tuple[int, Any]] | None, new: dict[str, tuple[int, Any]] | None
) -> Iterator[Difference]:
    if old is None or new is None:
        return  # only one of the sessions has asked for it
    for name, (line, entry) in old.items():
        if name not in new:
            yield Difference(kind=kind, name=name, change="removed", lines=(line, None))
            continue
        places = list(differences(entry, new[name][1]))
        for place, change in places:
            yield Difference(kind=kind, name=f"{name} {place}".strip(), change=change, lines=(line, new[name][0]))
    for name, (line, _) in new.items():
        if name not in old:
            yield Difference(kind=kind, name=name, change="added", lines=(None, line))


def _compare_answers(old: list[Answer], new: list[Answer]) -> Iterator[Difference]:
    by_key: dict[bytes, list[Answer]] = {}
    for answer in new:
        by_key.setdefault(answer.key, []).append(answer)
    for answer in old:
        if answer.method in _LISTS or answer.method in _IDENTITY or answer.is_masked:
            continue
        others = by_key.get(answer.key)
        if not others:
            continue
        other = others.pop(0)
        if other.is_masked:
            continue
        for place, change in differences(answer.outcome, other.outcome):
            yield Difference(
                kind="answer",
                name=f"{answer.method} {answer.name} {place}".replace("  ", " ").strip(),
                change=change,
                lines=(answer.line, other.line),
            )


def differences(old: Any, new: Any) -> Iterator[tuple[str, str]]:
    """Yield where and how two JSON values differ, up to a limit."""
    for count, found in enumerate(_walk(old, new, "")):
        if count == _MAX_PLACES:
            yield "", "more differences"
            return
        yield found


def _walk(old: Any, new: Any, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _walk(old.get(key, _MISSING), new.get(key, _MISSING), f"{place}.{key}" if place else str(key))
    elif isinstance(old, list) and isinstance(new, list):
        for at in range(max(len(old), len(new))):
            one = old[at] if at < len(old) else _MISSING
            other = new[at] if at < len(new) else _MISSING
            yield from _walk(one, other, f"{place}[{at}]")
    elif old is _MISSING:
        yield place, f"added: {_shown(new)}"
    elif new is _MISSING:
        yield place, f"removed: {_shown(old)}"
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield place, f"{_shown(old)} became {_shown(new)}"


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def without_volatile(value: Any) -> Any:
    """Return an object without the members that differ between any two sessions."""
    if isinstance(value, dict):
        return {key: inner for key, inner in value.items() if key not in _VOLATILE}
    return value


def _plain(raw: Any) -> Any:
    return None if isinstance(raw, msgspec.UnsetType) else value_of(raw)
