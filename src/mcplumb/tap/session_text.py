"""A session as text: one line for each item of its transcript, and a paragraph for each finding."""

from __future__ import annotations

import shlex

from mcplumb.recording.recording_format import Header
from mcplumb.tap.findings import Finding
from mcplumb.tap.transcript import Bad, Call, Event, Item, Note, Stderr, Stray, Transcript

__all__ = ["answer_line", "counted", "finding_lines", "item_line", "target_text", "title_lines"]

_ARROWS = {"client": "-->", "server": "<--"}
_NAME_WIDTH = 44
_LONGEST = 400


def title_lines(header: Header, transcript: Transcript) -> list[str]:
    """Return the title lines of a session: when and by what it was recorded, and its two sides."""
    lines = [f"{header.id}  {header.started[:19].replace('T', ' ')} UTC, {header.transport}, recorded by a {header.by}"]
    if target := target_text(header):
        lines.append(f"server: {target}")
    if header.host is not None:
        lines.append(f"host: {header.host.program or 'unknown'} (process {header.host.pid})")
    names = [f"{one.name} {one.version}".strip() or "unknown" for one in (transcript.client, transcript.server)]
    if names != ["unknown", "unknown"]:
        lines.append(f"{names[0]} with {names[1]}, {', '.join(transcript.revisions) or 'revision unknown'}")
    return lines


def target_text(header: Header) -> str:
    """Return the command or the address of the server."""
    if header.target.url is not None:
        return header.target.url
    return shlex.join(header.target.command or ())


def item_line(item: Item, *, joins: bool = True) -> str:
    """Return the line of an item; ``joins`` is whether the line of a call has its answer, too."""
    return f"{item.number:>6} {item.t:>10.3f}  {_words(item, joins=joins)}"


def answer_line(call: Call) -> str:
    """Return a separate line for the answer to a call."""
    number, t = call.answer or call.cancellation or call.number, call.last
    arrow = _ARROWS["server" if call.sender == "client" else "client"]
    return f"{number:>6} {t:>10.3f}  {arrow} answer to {call.number}: {_outcome(call)}"


def _words(item: Item, *, joins: bool) -> str:
    match item:
        case Call():
            name = f"{item.method} {item.name}".strip()
            begin = f"{_ARROWS[item.sender]} {name}"
            return f"{begin:<{_NAME_WIDTH}}  {_outcome(item)}".rstrip() if joins else begin
        case Note():
            of = f" (of {item.call})" if item.call is not None else ""
            return f"{_ARROWS[item.sender]} {item.method}{of}  {item.summary[:_LONGEST]}".rstrip()
        case Stray():
            return f"{_ARROWS[item.sender]} an answer to nothing: id {item.id!r}"
        case Bad():
            return f"{_ARROWS[item.sender]} no message: {item.quoted}"
        case Stderr():
            return f"  | {item.text[:_LONGEST]}"
        case Event():
            who = f" {item.sender}" if item.sender is not None else ""
            return f"  *{who} {item.event.replace('_', ' ')}  {item.summary}".rstrip()


def _outcome(call: Call) -> str:
    match call.state:
        case "open":
            return "no answer yet" if not call.is_lasting else "is open"
        case "lost":
            return "never answered"
        case "cancelled":
            return f"cancelled after {_seconds((call.cancelled or call.t) - call.t)}"
        case "failed":
            code = "" if call.code is None else f" {call.code}"
            what = f"error{code}: {call.error}"
        case _:
            what = (
                f"the tool failed: {call.error}" if call.is_tool_error else "asks for input" if call.needs_input else ""
            )
    words = [_seconds(call.seconds or 0.0), counted(len(call.notes), "notification") if call.notes else "", what]
    return ", ".join(word for word in words if word)


def counted(count: int, noun: str) -> str:
    """Return a number of things in words: ``1 finding``, ``2 findings``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def finding_lines(finding: Finding) -> list[str]:
    """Return a finding as a paragraph."""
    where = ", ".join(map(str, finding.lines))
    more = f", {finding.count} times" if finding.count > 1 else ""
    s = "s" if len(finding.lines) > 1 else ""
    return [
        f"{finding.severity} {finding.requirement}: {finding.title} (line{s} {where}{more})",
        f"  {finding.message}",
        f"  {finding.why}",
        f"  To do: {finding.advice}",
    ]
