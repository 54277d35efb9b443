"""The transcript of a session: requests joined with their answers, progress and cancellations, record by record.

Feed it the records of a recording, in order, while the session runs or afterwards. It keeps a short summary of each
message and the number of its record, never the payloads, so it stays small for long sessions.

Over a byte stream, an id belongs to the one who sent the request. Over HTTP, several clients share a recording: there
an id belongs to an exchange, or to the session that the exchange belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

import msgspec

from mcplumb.recording.recording_format import Header, Http, Record, Side
from mcplumb.revisions import Revision, find_revision
from mcplumb.tap.declared_capabilities import declared_in
from mcplumb.tap.payload_members import id_of, members, number_of, text_of, value_of
from mcplumb.types.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROGRESS_TOKEN, PROTOCOL_VERSION, SERVER_INFO
from mcplumb.types.method_table import METHODS
from mcplumb.wire.lines import BYTE_ORDER_MARK
from mcplumb.wire.message_decoder import BadMessage, Batch, decode_line, identify
from mcplumb.wire.messages import Error, Message, Notification, Request, RequestId, Result

__all__ = [
    "HANGING",
    "SLOW",
    "Bad",
    "Call",
    "CallState",
    "Event",
    "Identity",
    "Item",
    "Note",
    "Said",
    "Stderr",
    "Step",
    "Stray",
    "Transcript",
]

#: Seconds after which an answer is slow, and after which a request without an answer hangs.
SLOW = 10.0
HANGING = 60.0
#: The most messages of a batch that are looked at, and the most records that one call remembers.
_MAX_BATCH = 10_000
_MAX_NOTES = 1000
#: Calls that have ended and are remembered, so that what comes too late can be joined with them.
_MAX_ENDED = 10_000
_LONGEST_NAME = 200
#: The first HTTP status that is a refusal, or leads elsewhere.
_REFUSED = 300

CallState: TypeAlias = Literal["open", "answered", "failed", "cancelled", "lost"]


class Note(msgspec.Struct, kw_only=True):
    """A notification. Progress, logs and other messages that belong to a call are also in its ``notes``."""

    kind: Literal["notification"] = "notification"
    number: int
    t: float
    sender: Side
    method: str
    #: The record of the request that it belongs to.
    call: int | None = None
    #: Of progress: how far, of how much, and in words. Of a log message: its level and beginning. Of others: the name.
    summary: str = ""
    exchange: int | None = None


class Call(msgspec.Struct, kw_only=True):
    """A request and its outcome."""

    kind: Literal["call"] = "call"
    #: The record of the request.
    number: int
    t: float
    sender: Side
    id: RequestId
    method: str
    #: The tool, resource or prompt that it names.
    name: str = ""
    state: CallState = "open"
    #: The record and the time of the answer.
    answer: int | None = None
    answered: float | None = None
    #: Of an error response.
    code: int | None = None
    #: The message of an error response, or the beginning of the text of a failed tool.
    error: str = ""
    #: Whether the result says that the tool failed.
    is_tool_error: bool = False
    #: Whether the result asks for input.
    needs_input: bool = False
    #: The record and the time of its cancellation.
    cancellation: int | None = None
    cancelled: float | None = None
    #: The records of notifications that belong to it, at most 1,000.
    notes: list[int] = msgspec.field(default_factory=list)
    #: The time of the last message that belongs to it.
    last: float = 0.0
    progress: float | None = None
    total: float | None = None
    progress_token: RequestId | None = None
    revision: str | None = None
    #: The names of the client's capabilities and of their parts, if the request has them.
    capabilities: list[str] | None = None
    size: int = 0
    answer_size: int = 0
    exchange: int | None = None
    is_batched: bool = False

    @property
    def seconds(self) -> float | None:
        """The seconds until the answer; None if there is none."""
        return None if self.answered is None else round(self.answered - self.t, 6)

    @property
    def is_lasting(self) -> bool:
        """Whether it is a subscription, which is meant to stay open."""
        return self.method == "subscriptions/listen"

    def is_slow(self, now: float, limit: float = SLOW) -> bool:
        """Return whether it takes, or took, longer than ``limit`` seconds."""
        end = self.answered if self.answered is not None else self.cancelled if self.cancelled is not None else now
        return not self.is_lasting and end - self.t > limit

    def is_hanging(self, now: float, limit: float = HANGING) -> bool:
        """Return whether it is open, and nothing has arrived for it within ``limit`` seconds."""
        return self.state == "open" and not self.is_lasting and now - self.last > limit


class Stray(msgspec.Struct, kw_only=True):
    """A response that answers no open request."""

    kind: Literal["stray"] = "stray"
    number: int
    t: float
    sender: Side
    id: RequestId | None
    exchange: int | None = None


class Bad(msgspec.Struct, kw_only=True):
    """A line that is not a message."""

    kind: Literal["bad"] = "bad"
    number: int
    t: float
    sender: Side
    reason: str
    quoted: str = ""
    exchange: int | None = None


class Stderr(msgspec.Struct, kw_only=True):
    """A line of the server's stderr."""

    kind: Literal["stderr"] = "stderr"
    number: int
    t: float
    text: str


class Event(msgspec.Struct, kw_only=True):
    """Something that happened: an end, an exit, a signal, lost records, or an HTTP message without a body."""

    kind: Literal["event"] = "event"
    number: int
    t: float
    event: str
    sender: Side | None = None
    summary: str = ""
    exchange: int | None = None


Item: TypeAlias = Call | Note | Stray | Bad | Stderr | Event


class Said(msgspec.Struct, kw_only=True):
    """One message of a record, decoded, with the call that it opens, belongs to or ends."""

    message: Message | BadMessage
    call: Call | None = None
    item: Item | None = None
    #: For a response: why it answers no open request.
    stray: Literal["", "unknown", "answered", "cancelled"] = ""
    #: For a request: the open request whose id it has, too.
    duplicate: Call | None = None
    #: For a request: the open request whose progress token it has, too.
    same_token: Call | None = None
    #: For progress: the value before.
    progress_before: float | None = None
    #: The revision that applies to it, as far as it is known.
    revision: Revision | None = None


class Step(msgspec.Struct, kw_only=True):
    """The additions of one record to a transcript."""

    number: int
    record: Record
    said: list[Said]
    #: The items that are new or have changed.
    items: list[Item]
    is_batch: bool = False
    #: The conversation over HTTP: its session, or its exchange; empty over a byte stream.
    scope: str = ""


class Identity(msgspec.Struct, kw_only=True):
    """One side of the session, as far as the transcript shows it."""

    name: str = ""
    version: str = ""


class _Scope:
    """The requests of one conversation, by sender and id."""

    __slots__ = ("by_token", "ended", "open", "revision")

    def __init__(self) -> None:
        self.open: dict[tuple[Side, RequestId], Call] = {}
        self.ended: dict[tuple[Side, RequestId], Call] = {}
        self.by_token: dict[tuple[Side, RequestId], Call] = {}
        #: The revision that ``initialize`` agreed on.
        self.revision: Revision | None = None


class Transcript:
    """The messages and events of a session, in order. ``items`` holds everything; a call is where its request is."""

    def __init__(self, header: Header | None = None) -> None:
        self.header = header
        self.items: list[Item] = []
        self.client = Identity()
        self.server = Identity()
        #: The revisions that were used, in order of their first use.
        self.revisions: list[str] = []
        #: The time of the last record.
        self.now = 0.0
        self.messages = 0
        #: The records that are missing, each report of lost bytes counted as one.
        self.lost = 0
        self.has_ended = False
        self._scopes: dict[str, _Scope] = {}
        self._scope_of_exchange: dict[int, str] = {}
        self._requests_of_exchange: dict[int, Http] = {}
        #: The exchanges over HTTP that are about something else than messages.
        self._other_exchanges: set[int] = set()
        self._open: dict[int, Call] = {}

    def open_calls(self) -> list[Call]:
        """Return the requests that have no answer yet, in order."""
        return list(self._open.values())

    def hanging_calls(self, t: float, limit: float = HANGING) -> list[Call]:
        """Return the open requests for which nothing has arrived in the ``limit`` seconds before ``t``."""
        found = []
        for call in self._open.values():
            if call.t + limit > t:
                break  # they are in the order of their times
            if call.is_hanging(t, limit):
                found.append(call)
        return found

    def calls(self) -> Iterator[Call]:
        """Yield all requests."""
        return (item for item in self.items if isinstance(item, Call))

    def request_head(self, exchange: int) -> Http | None:
        """Return the head of the HTTP request of an exchange that is open."""
        return self._requests_of_exchange.get(exchange)

    def feed(self, number: int, record: Record) -> Step:
        """Add the record with this number, and return its step: what it adds or changes."""
        self.now = max(self.now, record.t)
        step = Step(number=number, record=record, said=[], items=[])
        exchange = record.http.exchange if record.http is not None else None
        if exchange is not None:
            step.scope = self._find_scope(exchange, record)
        elif record.connection is not None:
            step.scope = f"connection {record.connection}"
        if record.event is not None:
            self._add_event(step, exchange)
        elif record.stderr is not None:
            self._add(step, Stderr(number=number, t=record.t, text=record.stderr))
        elif record.sender is not None:
            line = record.line
            if line is None or not self._is_message(record):
                self._add_head(step, record.sender)
            elif line.strip():
                self._add_line(step, record.sender, line.removeprefix(BYTE_ORDER_MARK))
            if exchange is not None and record.sender == "server":
                self._end_refused(step, exchange)
        return step

    # Records

    def _add(self, step: Step, item: Item) -> None:
        self.items.append(item)
        step.items.append(item)

    def _add_event(self, step: Step, exchange: int | None) -> None:
        record = step.record
        words = [record.signal or "", "" if record.code is None else f"code {record.code}"]
        if record.event == "lost":
            self.lost += record.records or 1
        if record.records is not None:
            words.append(f"{record.records} record{'' if record.records == 1 else 's'}")
        if record.byte_count is not None:
            words.append(f"{record.byte_count} bytes")
        words.append(record.reason or "")
        self._add(
            step,
            Event(
                number=step.number,
                t=record.t,
                event=record.event or "",
                sender=record.sender,
                summary=", ".join(filter(None, words)),
                exchange=exchange,
            ),
        )
        if record.event in ("exit", "disconnected"):
            self.has_ended = self.has_ended or exchange is None
            for call in self.open_calls():
                if exchange is None or call.exchange == exchange:
                    self._end(call, "lost", step)
            if exchange is None:
                # A connection that follows begins anew.
                self._scopes.clear()
        elif record.event == "end_of_stream" and exchange is not None:
            self._end_exchange(step, exchange)

    def _end_refused(self, step: Step, exchange: int) -> None:
        """End the calls of an exchange whose response broke off, or is an HTTP status instead of an answer."""
        record = step.record
        status = 0 if record.http is None else record.http.status or 0
        if not record.torn and status < _REFUSED:
            return
        for call in self.open_calls():
            if call.exchange == exchange and record.torn:
                self._end(call, "lost", step)
            elif call.exchange == exchange:
                call.answer, call.answered, call.last = step.number, record.t, record.t
                call.error = f"HTTP {status}"
                self._end(call, "failed", step)

    def _end_exchange(self, step: Step, exchange: int) -> None:
        self._requests_of_exchange.pop(exchange, None)
        scope = self._scope_of_exchange.pop(exchange, None)
        for call in self.open_calls():
            # A modern request is over when its stream is; a legacy one may be answered on another stream.
            revision = find_revision(call.revision)
            if call.exchange == exchange and revision is not None and revision.is_modern:
                if step.record.sender == "client":
                    call.cancellation, call.cancelled = step.number, step.record.t
                    self._end(call, "cancelled", step)
                else:
                    self._end(call, "lost", step)
        known = self._scopes.get(scope) if scope == f"exchange {exchange}" else None
        if known is not None and not known.open:
            del self._scopes[scope or ""]  # nothing belongs to it any more

    def forget(self, exchange: int) -> None:
        """Forget an HTTP exchange that is complete. A reader that needs its head must have asked for it before."""
        self._requests_of_exchange.pop(exchange, None)
        self._other_exchanges.discard(exchange)
        scope = self._scope_of_exchange.pop(exchange, None)
        if scope == f"exchange {exchange}" and scope in self._scopes and not self._scopes[scope].open:
            del self._scopes[scope]

    def _add_head(self, step: Step, sender: Side) -> None:
        record, http = step.record, step.record.http
        if http is None:
            return
        if http.method is not None:
            summary = f"{http.method} {http.path or ''}".strip()
        elif http.status is not None:
            summary = f"{http.status}"
        else:
            summary = f"event {http.event}" if http.event else "event"
        self._add(
            step,
            Event(number=step.number, t=record.t, event="http", sender=sender, summary=summary, exchange=http.exchange),
        )

    def _is_message(self, record: Record) -> bool:
        """Return whether a record has, or should have, a message; over HTTP some have none."""
        http = record.http
        if http is None:
            return True
        if http.event not in (None, "message") or record.torn or not record.line:
            return False
        if record.base64 is not None and http.header("content-encoding") is not None:
            return False  # it is compressed, and cannot be read
        if http.method is not None:
            is_message = self._is_posted_message(http, record.line)
            if not is_message:
                self._other_exchanges.add(http.exchange)
            return is_message
        if http.status is not None:
            # An error page is no message, nor is what the server says about a sign-in.
            request = self._requests_of_exchange.get(http.exchange)
            is_other = http.exchange in self._other_exchanges or (request is not None and request.method != "POST")
            return "json" in (http.header("content-type") or "") and not is_other
        return True

    def _is_posted_message(self, http: Http, body: bytes) -> bool:
        """Return whether the body of a request is, or should be, a message; those of a sign-in are none."""
        if http.method != "POST" or "json" not in (http.header("content-type") or "json"):
            return False
        target = None if self.header is None else self.header.target.url
        is_endpoint = target is not None and _parts(http.path or "").path == _parts(target).path
        return is_endpoint or not body.startswith(b"{") or b'"jsonrpc"' in body or b'"method"' in body

    def _add_line(self, step: Step, sender: Side, line: bytes) -> None:
        record = step.record
        if record.cut is not None:
            self._add_cut(step, sender, line)
            return
        decoded = decode_line(line, batches=True, max_batch=_MAX_BATCH)
        step.is_batch = isinstance(decoded, Batch)
        for message in decoded.items if isinstance(decoded, Batch) else (decoded,):
            self.messages += 1
            self._add_message(step, sender, message, record.sent_size)

    def _add_cut(self, step: Step, sender: Side, line: bytes) -> None:
        """Add a line of which only the beginning was recorded."""
        id_, kind = identify(line[:1024])
        self.messages += 1
        if kind == "response" and not isinstance(id_, msgspec.UnsetType):
            self._add_message(step, sender, Result(id_, msgspec.Raw(b"{}")), step.record.sent_size)
        elif kind == "request" and not isinstance(id_, msgspec.UnsetType):
            self._add_message(step, sender, Request(id_, _method_in(line)), step.record.sent_size)
        elif kind == "request":
            self._add_message(step, sender, Notification(_method_in(line)), step.record.sent_size)

    # Messages

    def _add_message(self, step: Step, sender: Side, message: Message | BadMessage, size: int) -> None:
        scope = self._scopes.setdefault(step.scope, _Scope())
        said = Said(message=message, revision=scope.revision)
        step.said.append(said)
        match message:
            case Request():
                self._add_request(step, said, message, sender, scope, size)
            case Notification():
                self._add_notification(step, said, message, sender, scope)
            case Result() | Error():
                self._add_response(step, said, message, sender, scope, size)
            case BadMessage():
                bad = Bad(
                    number=step.number,
                    t=step.record.t,
                    sender=sender,
                    reason=message.reason,
                    quoted=message.quoted,
                    exchange=_exchange(step),
                )
                said.item = bad
                self._add(step, bad)
                self._end_by_bad(step, said, message, sender, scope)

    def _end_by_bad(self, step: Step, said: Said, bad: BadMessage, sender: Side, scope: _Scope) -> None:
        """A malformed response ends the call that it names."""
        if bad.is_response and not isinstance(bad.id, msgspec.UnsetType):
            call = scope.open.get((_other(sender), bad.id))
            if call is not None:
                said.call = call
                call.answer, call.answered, call.error = step.number, step.record.t, bad.reason
                self._end(call, "failed", step)

    def _add_request(self, step: Step, said: Said, request: Request, sender: Side, scope: _Scope, size: int) -> None:
        params = members(request.params)
        meta = members(params.get("_meta"))
        version = text_of(meta.get(PROTOCOL_VERSION))
        if version is None and scope.revision is None and step.record.http is not None and sender == "client":
            # A server without sessions learns the revision from a header.
            version = step.record.http.header("mcp-protocol-version") if request.method != "initialize" else None
        revision = find_revision(version) if version is not None else scope.revision
        call = Call(
            number=step.number,
            t=step.record.t,
            last=step.record.t,
            sender=sender,
            id=request.id,
            method=request.method,
            name=_name_in(request.method, params),
            revision=None if revision is None else revision.name,
            size=size,
            exchange=_exchange(step),
            is_batched=step.is_batch,
        )
        said.call, said.item, said.revision = call, call, revision
        said.duplicate = scope.open.get((sender, request.id))
        if revision is not None and request.method != "server/discover":
            self._learn_revision(revision)
        token = id_of(meta.get(PROGRESS_TOKEN))
        if token is not None:
            call.progress_token = token
            before = scope.by_token.get((sender, token))
            said.same_token = before if before is not None and before.state == "open" else None
            scope.by_token[sender, token] = call
        if CLIENT_CAPABILITIES in meta:
            call.capabilities = sorted(declared_in(meta[CLIENT_CAPABILITIES]))
        _identify(self.client, meta.get(CLIENT_INFO))
        if request.method == "initialize":
            _identify(self.client, params.get("clientInfo"))
        if said.duplicate is None:
            scope.open[sender, request.id] = call
            self._open[id(call)] = call
        scope.ended.pop((sender, request.id), None)
        self._add(step, call)

    def _add_notification(self, step: Step, said: Said, message: Notification, sender: Side, scope: _Scope) -> None:
        params = members(message.params)
        note = Note(
            number=step.number,
            t=step.record.t,
            sender=sender,
            method=message.method,
            summary=_summary(message.method, params),
            exchange=_exchange(step),
        )
        said.item = note
        self._add(step, note)
        if message.method == "notifications/cancelled":
            call = _cancelled_call(scope, sender, id_of(params.get("requestId")))
            if call is not None:
                said.call, note.call = call, call.number
                if call.state == "open":
                    call.cancellation, call.cancelled = step.number, step.record.t
                    self._end(call, "cancelled", step, scope)
        elif message.method == "notifications/progress":
            token = id_of(params.get(PROGRESS_TOKEN))
            call = None if token is None else scope.by_token.get((_other(sender), token))
            if call is not None:
                self._note(step, said, note, call)
                said.progress_before = call.progress
                call.progress, call.total = number_of(params.get("progress")), number_of(params.get("total"))
        else:
            self._join_stream(step, said, note)

    def _join_stream(self, step: Step, said: Said, note: Note) -> None:
        """Assign the server's messages on the stream of a modern HTTP request to that request."""
        exchange = _exchange(step)
        if exchange is None or note.sender == "client":
            return
        for call in self._open.values():
            if call.exchange == exchange:
                self._note(step, said, note, call)
                return

    def _note(self, step: Step, said: Said, note: Note, call: Call) -> None:
        said.call, note.call = call, call.number
        call.last = step.record.t
        if len(call.notes) < _MAX_NOTES:
            call.notes.append(step.number)
        step.items.append(call)

    def _add_response(
        self, step: Step, said: Said, response: Result | Error, sender: Side, scope: _Scope, size: int
    ) -> None:
        if isinstance(response.id, msgspec.UnsetType):
            said.stray = "unknown"
            stray = Stray(number=step.number, t=step.record.t, sender=sender, id=None, exchange=_exchange(step))
            said.item = stray
            self._add(step, stray)
            return
        key = (_other(sender), response.id)
        call = scope.open.get(key)
        where: _Scope | None = scope
        if call is None and _is_bare(step.record):
            call, where = self._open_elsewhere(key), None
        if call is None and (ended := scope.ended.get(key)) is not None and ended.state != "lost":
            said.call = ended
            said.stray = "cancelled" if ended.state == "cancelled" else "answered"
            if ended.state == "cancelled" and ended.answer is None:
                ended.answer, ended.answered = step.number, step.record.t
                step.items.append(ended)
                said.item = ended
                return
        if call is None:
            said.stray = said.stray or "unknown"
            said.item = Stray(
                number=step.number, t=step.record.t, sender=sender, id=response.id, exchange=_exchange(step)
            )
            self._add(step, said.item)
            return
        said.call, said.item = call, call
        said.revision = find_revision(call.revision) or scope.revision
        call.answer, call.answered, call.last, call.answer_size = step.number, step.record.t, step.record.t, size
        if isinstance(response, Error):
            call.code, call.error = response.error.code, response.error.message[:_LONGEST_NAME]
            self._end(call, "failed", step, where)
            return
        self._read_result(call, response, scope)
        self._end(call, "answered", step, where)

    def _open_elsewhere(self, key: tuple[Side, RequestId]) -> Call | None:
        """Return the one open request with this id: a server's own recording does not name the sessions of clients."""
        found = [call for scope in self._scopes.values() if (call := scope.open.get(key)) is not None]
        return found[0] if len(found) == 1 else None

    def _read_result(self, call: Call, response: Result, scope: _Scope) -> None:
        result = members(response.result)
        call.needs_input = text_of(result.get("resultType")) == "input_required"
        call.is_tool_error = value_of(result.get("isError")) is True
        if call.is_tool_error:
            call.error = _first_text(result.get("content"))
        _identify(self.server, members(result.get("_meta")).get(SERVER_INFO))
        if call.method == "initialize":
            _identify(self.server, result.get("serverInfo"))
            revision = find_revision(text_of(result.get("protocolVersion")))
            if revision is not None and revision.has_handshake:
                scope.revision = revision
                call.revision = scope.revision.name
                self._learn_revision(scope.revision)
        elif call.method == "server/discover":
            _identify(self.server, result.get("serverInfo"))
            if (revision := find_revision(call.revision)) is not None:
                self._learn_revision(revision)

    def _end(self, call: Call, state: CallState, step: Step, scope: _Scope | None = None) -> None:
        call.state = state
        self._open.pop(id(call), None)
        key_of_call = (call.sender, call.id)
        for each in (scope,) if scope is not None else tuple(self._scopes.values()):
            if each.open.get(key_of_call) is call:
                del each.open[key_of_call]
                each.ended[key_of_call] = call
                if len(each.ended) > _MAX_ENDED:
                    oldest = each.ended.pop(next(iter(each.ended)))
                    if oldest.progress_token is not None:
                        each.by_token.pop((oldest.sender, oldest.progress_token), None)
        if not any(item is call for item in step.items):
            step.items.append(call)

    def _learn_revision(self, revision: Revision) -> None:
        if revision.name not in self.revisions:
            self.revisions.append(revision.name)

    # Conversations over HTTP

    def _find_scope(self, exchange: int, record: Record) -> str:
        """Return the conversation of a record: the session that its exchange belongs to, else the exchange itself."""
        http = record.http
        if http is None:
            return ""
        if http.method is not None:
            self._requests_of_exchange[exchange] = http
        session = http.header("mcp-session-id") or ""
        scope = f"session {session}" if session else ""
        if not scope and http.method is not None and http.path is not None and _parts(http.path).query:
            # The endpoint of a session over HTTP+SSE.
            scope = f"endpoint {http.path}"
        if not scope and http.event == "endpoint" and record.text:
            parts = _parts(record.text)
            scope = f"endpoint {parts.path}?{parts.query}"
        before = self._scope_of_exchange.get(exchange)
        if scope and before != scope:
            self._scope_of_exchange[exchange] = scope
            if before is not None and before in self._scopes and scope not in self._scopes:
                # The answer to initialize names the session.
                self._scopes[scope] = self._scopes.pop(before)
            return scope
        if before is None:
            before = self._scope_of_exchange[exchange] = f"exchange {exchange}"
        return before


def _other(side: Side) -> Side:
    return "server" if side == "client" else "client"


def _parts(address: str) -> SplitResult:
    """Return the parts of an address, all empty if it is none: what a peer sends may be anything."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _is_bare(record: Record) -> bool:
    """Return whether a record names an HTTP exchange and has no details of it."""
    http = record.http
    return http is not None and http.headers is None and http.event is None and http.event_id is None


def _exchange(step: Step) -> int | None:
    return None if step.record.http is None else step.record.http.exchange


def _cancelled_call(scope: _Scope, sender: Side, id_: RequestId | None) -> Call | None:
    """Return the call that a cancellation names: one of its sender, or a subscription that the server ends."""
    if id_ is None:
        return None
    for side in (sender, _other(sender)):
        call = scope.open.get((side, id_)) or scope.ended.get((side, id_))
        if call is not None and (side == sender or call.is_lasting):
            return call
    return None


def _identify(identity: Identity, raw: Any) -> None:
    if raw is not None and not identity.name:
        info = members(raw)
        identity.name = (text_of(info.get("name")) or "")[:_LONGEST_NAME]
        identity.version = (text_of(info.get("version")) or "")[:_LONGEST_NAME]


def _name_in(method: str, params: dict[str, Any]) -> str:
    known = METHODS.get(method)
    key = known.named_by if known is not None and known.named_by is not None else "uri" if "uri" in params else "name"
    return (text_of(params.get(key)) or "")[:_LONGEST_NAME]


def _summary(method: str, params: dict[str, Any]) -> str:
    if method == "notifications/progress":
        progress, total, words = (
            value_of(params.get("progress")),
            value_of(params.get("total")),
            text_of(params.get("message")),
        )
        how_far = f"{progress}" if total is None else f"{progress} of {total}"
        return f"{how_far}: {words[:_LONGEST_NAME]}" if words else how_far
    if method == "notifications/message":
        data = value_of(params.get("data"))
        text = data if isinstance(data, str) else bytes(params.get("data", b"")).decode("utf-8", "replace")
        return f"{text_of(params.get('level')) or ''}: {text[:_LONGEST_NAME]}"
    if method == "notifications/cancelled":
        return f"{value_of(params.get('requestId'))} {text_of(params.get('reason')) or ''}".strip()[:_LONGEST_NAME]
    return (text_of(params.get("uri")) or "")[:_LONGEST_NAME]


def _first_text(content: Any) -> str:
    blocks = value_of(content)
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            text: str = block["text"]
            return text[:_LONGEST_NAME]
    return ""


def _method_in(line: bytes) -> str:
    """Return the method in the first bytes of a message."""
    _, _, rest = line.partition(b'"method"')
    _, _, rest = rest[:_LONGEST_NAME].partition(b'"')
    return rest.partition(b'"')[0].decode("utf-8", "replace")
