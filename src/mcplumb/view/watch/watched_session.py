"""A session that a page shows: its recording as read so far, with transcript and findings."""

from __future__ import annotations

import re
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from mcplumb.errors import McplumbError
from mcplumb.limits import MAX_WATCHED_RECORDS
from mcplumb.recording.recording_format import Record, RecordingReader
from mcplumb.recording.recordings_folder import is_live
from mcplumb.tap.findings import Finding, Findings
from mcplumb.tap.payload_members import members
from mcplumb.tap.transcript import Call, Event, Transcript
from mcplumb.types.payload_decoder import UNREADABLE
from mcplumb.view.watch.line_index import LineIndex
from mcplumb.view.watch.session_rows import Row, row_of
from mcplumb.wire.messages import Request

__all__ = ["RowsPage", "WatchedSession"]

#: Records that are read before others get their turn.
_AT_ONCE = 5000
#: Bytes of a call's arguments that its row shows.
_LONGEST_ARGUMENTS = 120
#: Records that a search finds at most.
_MOST_FOUND = 100_000
_decode_record = msgspec.json.Decoder(Record).decode
#: An escape in JSON that does not stand for ASCII, or an escaped backslash, which begins none.
_ESCAPE = re.compile(r"\\\\|\\u(?!00[0-7])([0-9A-Fa-f]{4})")


class RowsPage(msgspec.Struct, kw_only=True):
    """Rows that are new or have changed, and where the next request continues."""

    rows: list[Row]
    next: int
    #: Whether there is more to ask for now.
    more: bool
    #: Seconds since the start: of the last record, or until now if it is live.
    now: float
    live: bool
    info: dict[str, Any]
    findings: int


class WatchedSession:
    """One session. Its methods read files, so call them in a thread, one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reader = RecordingReader(path)
        self.header = self._reader.header
        self.transcript = Transcript(self.header)
        self._findings = Findings(self.transcript)
        self._index = LineIndex(path)
        #: The places of the rows that were added or have changed, in that order.
        self._changes: list[int] = []
        #: The place of each item among the rows, by the id of the object.
        self._places: dict[int, int] = {}
        #: The beginning of the arguments of calls, by the place of their row: a transcript keeps no payloads.
        self._arguments: dict[int, str] = {}
        #: The records with the answers to ``tools/list``.
        self.tool_lists: list[int] = []
        self.is_live = is_live(path)
        self._is_read = False
        #: The number of the last record that was read.
        self._last = 0
        self._started = _epoch(self.header.started)
        self._ended: float | None = None

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    @property
    def changes(self) -> int:
        """The number of changes of rows so far. A page that has requested all of them is up to date."""
        return len(self._changes)

    @property
    def now(self) -> float:
        """The seconds since the start: until now if the session is live, else until the last record."""
        if self.is_live and self._started is not None:
            return max(self.transcript.now, time.time() - self._started)
        return self.transcript.now

    def read_more(self) -> bool:
        """Read new records, or some of them; return whether anything has changed."""
        self._check_file()
        before = (len(self._changes), self.is_live, len(self._findings.found))
        self._is_read = True
        # The first line is the header.
        records = () if self._last > MAX_WATCHED_RECORDS + 1 else self._reader.records()
        for count, (number, record) in enumerate(records, 1):
            self._last = number
            if number > MAX_WATCHED_RECORDS + 1:
                break
            self._feed(number, record)
            if count >= _AT_ONCE:
                self._is_read = False
                break
        if self._is_read:
            was_live, self.is_live = self.is_live, is_live(self.path)
            if was_live and not self.is_live:
                self._is_read = False  # what was written between the two looks
            self._findings.check_time(self.now)
        return before != (len(self._changes), self.is_live, len(self._findings.found))

    def _check_file(self) -> None:
        """Raise `McplumbError` if the file has become that of another session: its lines are not those of this one."""
        if self._reader.is_replaced():
            raise McplumbError(f"The recording {self.path} was begun anew: choose it again in the list of sessions.")

    def _feed(self, number: int, record: Record) -> None:
        step = self.transcript.feed(number, record)
        self._findings.feed(step)
        known = len(self._places)
        items = self.transcript.items
        for place in range(known, len(items)):
            self._places[id(items[place])] = place
        for said in step.said:
            if isinstance(said.message, Request) and said.call is not None:
                arguments = members(said.message.params).get("arguments")
                if arguments is not None:
                    text = bytes(arguments)[:_LONGEST_ARGUMENTS].decode("utf-8", "replace")
                    self._arguments[self._places[id(said.call)]] = _without_escapes(text)
        for item in step.items:
            self._changes.append(self._places[id(item)])
            if isinstance(item, Event) and item.event in ("exit", "disconnected"):
                self._ended = item.t
            elif isinstance(item, Call) and item.method == "tools/list" and item.answer == number:
                self.tool_lists.append(number)

    def rows(self, start: int, most: int) -> RowsPage:
        """Return the rows of the changes from ``start`` on, each once, in its current state."""
        if not self._is_read and start + most >= len(self._changes):
            self.read_more()
        stop = min(len(self._changes), start + most)
        items = self.transcript.items
        places = sorted(set(self._changes[start:stop]))
        transcript = self.transcript
        return RowsPage(
            rows=[
                row_of(place, items[place], arguments=self._arguments.get(place, ""), ended=self._ended)
                for place in places
            ],
            next=max(start, stop),
            more=stop < len(self._changes) or not self._is_read,
            now=round(self.now, 6),
            live=self.is_live,
            info={
                "client": transcript.client,
                "server": transcript.server,
                "revisions": transcript.revisions,
                "messages": transcript.messages,
                "lost": transcript.lost,
                "skipped": self._reader.skipped,
                "cut": MAX_WATCHED_RECORDS if self._last > MAX_WATCHED_RECORDS + 1 else None,
            },
            findings=sum(finding.count for finding in self._findings.found),
        )

    def findings(self) -> list[Finding]:
        """Return the findings so far."""
        return self._findings.found

    def record(self, number: int) -> Record | None:
        """Return the record with this number. Where the file is damaged, it is the event that its row shows."""
        self._check_file()
        line = self._index.line(number)
        try:
            if line is not None:
                return _decode_record(line)
        except UNREADABLE:
            pass
        events = (item for item in self.transcript.items if isinstance(item, Event) and item.number == number)
        event = next(events, None)
        return None if event is None else Record(t=event.t, event=event.event, reason=event.summary)

    def call_of(self, number: int) -> Call | None:
        """Return the call whose request or answer is in this record."""
        # A batch has several: the first one is as good as the others.
        return next((call for call in self.transcript.calls() if number in (call.number, call.answer)), None)

    def search(self, text: str) -> list[int]:
        """Return the numbers of the records that contain a text, ignoring case."""
        self._check_file()
        wanted = text.casefold()
        # The text of a message is JSON, in which a quote has a backslash.
        in_json = msgspec.json.encode(text).decode()[1:-1].casefold()
        found: list[int] = []
        for number, line in self._index.lines():
            if number > MAX_WATCHED_RECORDS + 1:
                break  # no page shows them
            try:
                record = _decode_record(line) if number > 1 else None
            except UNREADABLE:
                record = None
            if record is None:
                continue
            raw = _text_of(record)
            has_it = wanted in (folded := raw.casefold()) or in_json in folded
            if has_it or ("\\u" in raw and in_json in _without_escapes(raw).casefold()):
                found.append(number)
                if len(found) >= _MOST_FOUND:
                    break
        return found


def _without_escapes(text: str) -> str:
    """Return JSON in which what is not ASCII is not escaped, however it was written."""
    if "\\u" not in text:
        return text
    text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else match[0], text)
    # The halves of a pair belong together.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _text_of(record: Record) -> str:
    if record.stderr is not None:
        return record.stderr
    if record.event is not None:
        words = record.event.replace("_", " ")
        return f"{record.event} {words} {record.signal or ''} {record.reason or ''}"
    if record.text is not None:
        return record.text
    return (record.line or b"").decode("utf-8", "replace")


def _epoch(started: str) -> float | None:
    try:
        return datetime.fromisoformat(started).timestamp()
    except ValueError:
        return None
