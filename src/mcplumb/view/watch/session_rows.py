"""The rows of the page's list of messages, made from the items of a transcript."""

from __future__ import annotations

from typing import Literal

import msgspec

from mcplumb.tap.transcript import Bad, Call, Event, Item, Note, Stderr, Stray
from mcplumb.wire.messages import RequestId

__all__ = ["Row", "row_of"]

#: Characters of a text that a row carries; the message itself has all of it.
_LONGEST = 200

_Kind = Literal["call", "notification", "stray", "bad", "stderr", "event"]


class Row(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One row. Absent members are omitted, because there are many rows."""

    #: Its place among the rows of the session.
    index: int
    #: The number of its record.
    n: int
    kind: _Kind
    t: float
    sender: str = ""
    #: The method, or the name of the event.
    method: str = ""
    id: RequestId | None = None
    #: The tool, resource or prompt.
    name: str = ""
    #: The beginning of its arguments.
    args: str = ""
    #: Of a call: open, answered, failed, cancelled or lost.
    state: str = ""
    #: The record of the answer, and the time when the call ended.
    answer: int | None = None
    end: float | None = None
    code: int | None = None
    #: An error, a progress, a line of stderr: whatever there is to read.
    text: str = ""
    is_tool_error: bool = msgspec.field(default=False, name="toolError")
    needs_input: bool = msgspec.field(default=False, name="needsInput")
    #: The record of the request that it belongs to, or of its cancellation.
    call: int | None = None
    cancellation: int | None = None
    size: int = 0
    answer_size: int = msgspec.field(default=0, name="answerSize")
    notes: int = 0
    exchange: int | None = None


def row_of(index: int, item: Item, *, arguments: str = "", ended: float | None = None) -> Row:
    """Return the row of an item; ``ended`` is when the session ended, for calls that were lost."""
    row = Row(index=index, n=item.number, kind=item.kind, t=item.t, args=arguments)
    match item:
        case Call():
            row.sender, row.method, row.name, row.id = item.sender, item.method, item.name, item.id
            row.state, row.answer, row.code, row.text = item.state, item.answer, item.code, item.error[:_LONGEST]
            row.end = item.cancelled if item.cancelled is not None else item.answered
            if item.state == "lost" and row.end is None:
                row.end = item.last if ended is None else ended
            row.is_tool_error, row.needs_input = item.is_tool_error, item.needs_input
            row.cancellation, row.exchange = item.cancellation, item.exchange
            row.size, row.answer_size, row.notes = item.size, item.answer_size, len(item.notes)
        case Note():
            row.sender, row.method, row.text = item.sender, item.method, item.summary[:_LONGEST]
            row.call, row.exchange = item.call, item.exchange
        case Stray():
            row.sender, row.id, row.exchange = item.sender, item.id, item.exchange
            row.text = "answers no open request"
        case Bad():
            row.sender, row.text, row.exchange = item.sender, f"{item.reason} {item.quoted}"[:_LONGEST], item.exchange
        case Stderr():
            row.sender, row.text = "server", item.text[:_LONGEST]
        case Event():
            row.sender, row.method, row.text = item.sender or "", item.event, item.summary[:_LONGEST]
            row.exchange = item.exchange
    return row
