"""Find violations of the protocol's rules in a session, record by record.

`Findings` is fed with the steps of a transcript. Each finding names its rule, the records, and what to do; repetitions
of a finding are counted, and so are all of a rule after the first ones. Nothing is reported that may be right: where
messages can cross, or where the recording does not show enough, there is no finding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

from mcplumb.errors import DecodeError
from mcplumb.protocol.http_headers import check_headers, status_of
from mcplumb.recording.recording_format import Http, Record, Side
from mcplumb.revisions import Revision, find_revision
from mcplumb.tap.conversation import Conversation, ListedTools, Subscription
from mcplumb.tap.declared_capabilities import declared_in, missing_of_client, missing_of_server
from mcplumb.tap.finding_rules import NEED_ALL_RECORDS, RULES, Severity
from mcplumb.tap.finding_words import change_of, short, words_of
from mcplumb.tap.payload_members import id_of, members, text_of, value_of
from mcplumb.tap.transcript import HANGING, SLOW, Call, Said, Step, Transcript
from mcplumb.types.meta import CLIENT_CAPABILITIES, LOG_LEVEL, PROTOCOL_VERSION, SUBSCRIPTION_ID
from mcplumb.types.method_table import METHODS
from mcplumb.types.payload_decoder import read
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import PARSE_ERROR, Error, Notification, Request, RequestId, Result

__all__ = ["Finding", "Findings"]

#: Seconds in which a message may cross the cancellation of its request.
_CROSSING = 0.1
#: Seconds in which a server should exit after the end of its input.
_EXIT = 5.0
#: Bytes from which on other implementations give up on a line.
_LONG_LINE = 10 * 1024 * 1024
#: The most findings of one rule that are listed separately; the rest are counted as one.
_MAX_ALIKE = 20
#: The most records that a finding names; all are counted.
_MAX_LINES = 20

_FILTER_OF = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}
_UPDATED = "notifications/resources/updated"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Finding(msgspec.Struct, kw_only=True):
    """A violation of a rule, and where it is."""

    rule: str
    requirement: str
    severity: Severity
    title: str
    #: What happened, in a sentence.
    message: str
    #: The records, by number; the first ones, if there are many.
    lines: list[int]
    #: The time of the first.
    t: float
    count: int
    why: str
    advice: str


class Findings:
    """Collects findings from the steps of a transcript."""

    def __init__(self, transcript: Transcript, *, slow: float = SLOW, hanging: float = HANGING) -> None:
        self.found: list[Finding] = []
        self._transcript = transcript
        self._slow = slow
        self._hanging = hanging
        self._by_key: dict[tuple[str, str], Finding] = {}
        #: How many findings there are of each rule.
        self._alike: Counter[str] = Counter()
        self._changed: list[Finding] = []
        self._conversations: dict[str, Conversation] = {}
        self._reported_hanging: set[int] = set()
        self._crossed: set[int] = set()
        self._end_of_input: float | None = None
        self._has_signalled = False
        #: Whether the client takes no more answers.
        self._has_client_left = False
        self._bad_lines: dict[Side, int] = {"client": 0, "server": 0}
        self._posted: dict[int, list[Said]] = {}
        #: The records of bodies over HTTP that broke off, by exchange.
        self._torn: dict[int, int] = {}

    def feed(self, step: Step) -> list[Finding]:
        """Check a step, and return the findings that are new or were counted again."""
        self._changed = []
        record = step.record
        if record.event is not None:
            self._check_event(step)
        elif record.sender is not None:
            self._check_line(step, record.sender)
        self._check_hanging(record.t)
        return self._changed

    def check_time(self, t: float) -> list[Finding]:
        """Report requests that hang at this time: at the end of a recording, or while a running session is silent."""
        self._changed = []
        self._check_hanging(t)
        return self._changed

    def _check_hanging(self, t: float) -> None:
        for call in self._transcript.hanging_calls(t, self._hanging):
            self._report_hanging(call)

    def _report_hanging(self, call: Call) -> None:
        if id(call) not in self._reported_hanging:
            self._reported_hanging.add(id(call))
            self._report(
                "hanging-call", f"{words_of(call)} has had no answer for {self._hanging:g} seconds.", call.number
            )

    def _report(self, rule: str, message: str, *lines: int, same: str = "") -> None:
        """Report a finding, or count it if it is one of the same kind."""
        if rule in NEED_ALL_RECORDS and self._transcript.lost:
            return
        key = (rule, same or message)
        found = self._by_key.get(key)
        if found is None and self._alike[rule] >= _MAX_ALIKE:
            key, message = (rule, ""), "There are more of this kind."
            found = self._by_key.get(key)
        if found is None:
            self._alike[rule] += 1
            made = RULES[rule]
            found = self._by_key[key] = Finding(
                rule=rule,
                requirement=made.requirement,
                severity=made.severity,
                title=made.title,
                message=message,
                lines=[],
                t=self._transcript.now,
                count=0,
                why=made.why,
                advice=made.advice,
            )
            self.found.append(found)
        found.count += 1
        if len(found.lines) < _MAX_LINES:
            found.lines += [line for line in lines if line not in found.lines]
        if not any(each is found for each in self._changed):
            self._changed.append(found)

    # Lines

    def _check_line(self, step: Step, sender: Side) -> None:
        record, number = step.record, step.number
        http = record.http
        if http is not None:
            self._check_http(step, http, sender)
        if record.torn:
            if http is not None:
                self._torn[http.exchange] = number  # a finding if it was not the client that ended it
            elif (record.line or b"").strip():
                self._report("torn-end", f"The {sender}'s stream ended within a line.", number)
            return
        if record.base64 is not None and (http is None or step.said):
            self._report("not-utf8", f"The {sender} sent a line that is not UTF-8.", number, same=sender)
        if record.sent_size > _LONG_LINE:
            size = record.sent_size >> 20
            self._report("long-line", f"The {sender} sent a line of {size} MiB.", number, same=sender)
        conversation = self._conversations.setdefault(step.scope, Conversation())
        if step.is_batch:
            self._check_batch(step, conversation, sender)
        for said in step.said:
            match said.message:
                case BadMessage():
                    if record.base64 is None:
                        self._check_bad(step, said.message, sender)
                case Request():
                    self._check_request(step, said, said.message, conversation, sender)
                case Notification():
                    self._check_notification(step, said, said.message, conversation, sender)
                case Result() | Error():
                    self._check_response(step, said, said.message, conversation, sender)

    def _check_bad(self, step: Step, bad: BadMessage, sender: Side) -> None:
        self._bad_lines[sender] += 1
        line = (step.record.line or b"").strip()
        if bad.code == PARSE_ERROR or not line.startswith((b"{", b"[")):
            if step.record.http is not None:
                self._report("bad-body", f"The {sender} sent {short(bad.quoted)}.", step.number, same=sender)
                return
            if line in (b"{", b"["):
                self._report(
                    "split-message", f"The {sender} wrote JSON on several lines.", step.number, same=f"split {sender}"
                )
                return
            rule = "stray-output" if sender == "server" else "stray-input"
            self._report(rule, f"The {sender} wrote {short(bad.quoted)}.", step.number, same=sender)
        elif " id " in bad.reason:
            self._report("bad-id", f"In a message of the {sender}: {bad.reason}", step.number)
        else:
            self._report("bad-message", f"In a message of the {sender}: {bad.reason}", step.number)

    def _check_batch(self, step: Step, conversation: Conversation, sender: Side) -> None:
        revision = conversation.modern or (step.said[0].revision if step.said else None)
        if revision is not None and not revision.has_batches:
            self._report("batch", f"The {sender} sent a batch, and revision {revision} has none.", step.number)

    # Requests

    def _check_request(
        self, step: Step, said: Said, request: Request, conversation: Conversation, sender: Side
    ) -> None:
        call = said.call
        if call is None:
            return
        params = members(request.params)
        reused = conversation.note_id(call, is_retry="inputResponses" in params or "requestState" in params)
        # Over HTTP, a request that was refused may be sent again.
        if reused is not None and said.duplicate is None and step.record.http is None:
            self._report("reused-id", f"{words_of(call)} has the id of {reused}.", step.number)
        if said.same_token is not None:
            self._report(
                "duplicate-token",
                f"{words_of(call)} has the progress token of {words_of(said.same_token)}, which is still open.",
                said.same_token.number,
                step.number,
            )
        if said.duplicate is not None:
            self._report(
                "duplicate-id",
                f"{words_of(call)} has the id of {words_of(said.duplicate)}, which is still open.",
                said.duplicate.number,
                step.number,
            )
        if sender == "server":
            self._check_server_request(step, said, request, call, conversation)
            return
        meta = members(params.get("_meta"))
        version = text_of(meta.get(PROTOCOL_VERSION))
        if version is not None or request.method == "server/discover":
            self._check_modern_request(step, call, conversation, meta, version)
        elif request.method != "initialize":
            self._check_legacy_request(step, call, conversation, has_http=step.record.http is not None)
        if request.method == "initialize" and conversation.initialize is not None and version is None:
            self._report("second-initialize", "The client initialized the session again.", step.number)
        if request.method == "initialize":
            conversation.client_capabilities = declared_in(params.get("capabilities"))
        revision = said.revision
        if request.method != "initialize":
            self._check_method(step, request.method, revision, sender)
        self._check_params(step, request, revision)
        self._check_capability(step, request.method, revision, conversation, sender)
        if (cursor := text_of(params.get("cursor"))) is not None:
            conversation.cursors[call.number] = cursor
        self._check_tool_call(step, call, params, conversation)
        if request.method == "subscriptions/listen":
            wanted = members(params.get("notifications"))
            conversation.subscriptions[request.id] = Subscription(call, wanted)
        self._check_retry(step, call, params, conversation)

    def _check_modern_request(
        self, step: Step, call: Call, conversation: Conversation, meta: dict[str, Any], version: str | None
    ) -> None:
        missing = [key for key in (PROTOCOL_VERSION, CLIENT_CAPABILITIES) if key not in meta]
        if missing and call.revision != "" and (version is None or _is_modern(version)):
            self._report(
                "missing-metadata",
                f"{words_of(call)} has no {' and no '.join(missing)}.",
                step.number,
                same=str(missing),
            )
        revision = find_revision(version)
        if revision is not None and revision.is_modern:
            conversation.modern = revision
        conversation.note_log_level(text_of(meta.get(LOG_LEVEL)))

    def _check_legacy_request(self, step: Step, call: Call, conversation: Conversation, *, has_http: bool) -> None:
        if conversation.initialize is not None:
            self._check_version_header(step, call)
            if not conversation.is_initialized and call.method != "ping" and not has_http:
                self._report(
                    "not-initialized",
                    f"The client sent {call.method} before notifications/initialized.",
                    conversation.initialize.number,
                    step.number,
                    same="client",
                )
        elif conversation.modern is not None:
            self._report("missing-metadata", f"{words_of(call)} has no metadata.", step.number, same="none")
        elif not has_http and call.method != "ping":
            self._report("before-initialize", f"{words_of(call)} came before the session was initialized.", step.number)

    def _check_version_header(self, step: Step, call: Call) -> None:
        http, revision = step.record.http, find_revision(call.revision)
        if http is None or http.headers is None or revision is None or not revision.has_version_header:
            return
        # HTTP+SSE is older than the header.
        if http.header("mcp-protocol-version") is None and not step.scope.startswith("endpoint"):
            self._report(
                "missing-version-header",
                f"{words_of(call)} has no header MCP-Protocol-Version.",
                step.number,
                same="all",
            )

    def _check_server_request(
        self, step: Step, said: Said, request: Request, call: Call, conversation: Conversation
    ) -> None:
        if conversation.initialize is None and conversation.modern is not None:
            self._report("server-request", f"The server sent the request {call.method}.", step.number)
            return
        self._check_method(step, call.method, said.revision, "server")
        handshake = conversation.initialize
        if handshake is not None and not conversation.is_initialized and call.method != "ping" and not step.record.http:
            self._report(
                "not-initialized",
                f"The server sent {call.method} before notifications/initialized.",
                handshake.number,
                step.number,
                same="server",
            )
        declared = conversation.client_capabilities
        if declared is not None and (missing := missing_of_client(call.method, request.params, declared)):
            self._report(
                "undeclared-input",
                f"The server sent {call.method}, and the client has not declared {missing!r}.",
                step.number,
            )

    def _check_method(self, step: Step, name: str, revision: Revision | None, sender: Side) -> None:
        method = METHODS.get(name)
        if method is None or revision is None or method.sent_by(sender, revision):
            return
        if method.in_revision(revision):
            message = f"The {sender} sent {name}, which only the other side may send."
        else:
            message = f"The {sender} sent {name}, which revision {revision} does not have."
        self._report("wrong-era", message, step.number)

    def _check_params(self, step: Step, message: Request | Notification, revision: Revision | None) -> None:
        method = METHODS.get(message.method)
        if method is not None and revision is not None and _is_whole(step.record):
            self._check_shape(step, method.params, message.params, f"params of {message.method}")

    def _check_shape(self, step: Step, kind: Any, payload: Any, what: str) -> None:
        try:
            read(kind, payload, what=what)
        except DecodeError as error:
            self._report("bad-payload", str(error), step.number)

    def _check_capability(
        self, step: Step, method: str, revision: Revision | None, conversation: Conversation, sender: Side
    ) -> None:
        declared = conversation.capabilities
        if declared is not None and (missing := missing_of_server(method, declared, revision)):
            self._report(
                "undeclared-capability",
                f"The {sender} sent {method}, and the server has not declared {missing!r}.",
                step.number,
            )

    def _check_tool_call(self, step: Step, call: Call, params: dict[str, Any], conversation: Conversation) -> None:
        tools = conversation.tools
        if call.method == "tools/call" and tools.is_complete and tools.is_fresh and call.name not in tools.known:
            self._report(
                "unlisted-tool",
                f"The client called the tool {short(repr(call.name))}, which the list of tools does not have.",
                step.number,
            )
        if call.method == "tools/list" and "cursor" not in params:
            tools.page = set()

    def _check_retry(self, step: Step, call: Call, params: dict[str, Any], conversation: Conversation) -> None:
        state = text_of(params.get("requestState"))
        if state is None or step.record.masked:
            return
        asked = conversation.states.get(state)
        if step.scope.startswith("exchange"):
            return  # over HTTP, the question was in another exchange
        if asked is None:
            self._report(
                "changed-state", f"{words_of(call)} has a requestState that the server has not sent.", step.number
            )
        elif missing := asked - set(members(params.get("inputResponses"))):
            self._report(
                "unanswered-input", f"{words_of(call)} does not answer {', '.join(sorted(missing))}.", step.number
            )

    # Notifications

    def _check_notification(
        self, step: Step, said: Said, message: Notification, conversation: Conversation, sender: Side
    ) -> None:
        name, number = message.method, step.number
        params = members(message.params)
        revision = said.revision if conversation.initialize is not None else conversation.modern
        if name == "notifications/initialized" and conversation.initialize is not None:
            conversation.is_initialized = True
        if name == "notifications/cancelled":
            self._check_cancellation(step, said, params, conversation, sender)
        elif name == "notifications/progress":
            self._check_progress(step, said, params)
        self._check_method(step, name, revision, sender)
        self._check_params(step, message, revision)
        if name == "notifications/tools/list_changed":
            conversation.tools.is_fresh = False
        if sender == "server" and conversation.initialize is not None:
            self._check_capability(step, name, revision, conversation, sender)
        elif sender == "server" and conversation.modern is not None:
            self._check_subscription(number, name, params, conversation, has_http=step.record.http is not None)
            wanted = conversation.wanted_instead(text_of(params.get("level")))
            if name == "notifications/message" and wanted is not None:
                self._report(
                    "unrequested-log", f"The server sent a log message, and requests have asked for {wanted}.", number
                )

    def _check_cancellation(
        self, step: Step, said: Said, params: dict[str, Any], conversation: Conversation, sender: Side
    ) -> None:
        id_ = id_of(params.get("requestId"))
        call = said.call
        if call is not None and call.method == "initialize":
            self._report("initialize-cancelled", f"The {sender} cancelled initialize.", call.number, step.number)
        modern = conversation.initialize is None and conversation.modern is not None
        if sender == "server" and modern and call is None and ("client", id_) in conversation.seen_ids:
            self._report("server-cancels", f"The server cancelled the request {id_!r}.", step.number)
        elif call is None and id_ is not None and (sender, id_) not in conversation.seen_ids and not step.scope:
            self._report("cancels-nothing", f"The {sender} cancelled the request {id_!r}.", step.number)

    def _check_progress(self, step: Step, said: Said, params: dict[str, Any]) -> None:
        call, number = said.call, step.number
        token = id_of(params.get("progressToken"))
        if call is None:
            if not step.scope:
                self._report("unknown-progress", f"There was progress for the token {token!r}.", number)
            return
        if call.state == "cancelled":
            self._report_after_cancellation(step, call, "progress")
        elif call.state in ("answered", "failed") and not step.scope:
            self._report(
                "late-progress", f"{words_of(call)} got progress after its answer.", call.answer or call.number, number
            )
        elif said.progress_before is not None and (call.progress or 0) <= said.progress_before:
            self._report(
                "progress-not-growing",
                f"The progress of {words_of(call)} went from {said.progress_before:g} to {call.progress or 0:g}.",
                number,
                same=str(call.number),
            )

    def _report_after_cancellation(self, step: Step, call: Call, what: str) -> None:
        since = step.record.t - (call.cancelled or 0.0)
        has_crossed = id(call) not in self._crossed and since <= _CROSSING
        self._crossed.add(id(call))
        if not has_crossed:
            self._report(
                "after-cancellation",
                f"{words_of(call)} got {what} {since:.2g} seconds after its cancellation.",
                call.cancellation or call.number,
                step.number,
                same=str(call.number),
            )

    def _check_subscription(
        self, number: int, name: str, params: dict[str, Any], conversation: Conversation, *, has_http: bool
    ) -> None:
        if name not in _FILTER_OF and name not in (_UPDATED, _ACKNOWLEDGED):
            return
        id_ = id_of(members(params.get("_meta")).get(SUBSCRIPTION_ID))
        subscription = None if id_ is None else conversation.subscriptions.get(id_)
        if subscription is None:
            if not has_http or id_ is None:
                said = "without the id of a subscription" if id_ is None else f"for the subscription {id_!r}"
                self._report("unknown-subscription", f"The server sent {name} {said}.", number)
            return
        if name == _ACKNOWLEDGED:
            subscription.is_acknowledged = True
            return
        if not subscription.is_acknowledged:
            self._report(
                "not-acknowledged",
                f"The server sent {name} before the acknowledgement.",
                subscription.call.number,
                number,
            )
            subscription.is_acknowledged = True
        uri = text_of(params.get("uri"))
        if name == _UPDATED:
            # A server may announce a part of a resource.
            is_wanted = uri is None or any(uri.startswith(each) for each in subscription.uris)
        else:
            is_wanted = _FILTER_OF[name] in subscription.filter
        if not is_wanted:
            what = f"{name} for {uri}" if name == _UPDATED else name
            self._report(
                "not-subscribed",
                f"The server sent {what}, which the filter does not include.",
                subscription.call.number,
                number,
            )

    # Responses

    def _check_response(
        self, step: Step, said: Said, response: Result | Error, conversation: Conversation, sender: Side
    ) -> None:
        if sender == "client" and conversation.initialize is None and conversation.modern is not None:
            self._report(
                "client-response", f"The client sent a response, to the id {short(repr(response.id))}.", step.number
            )
            return
        call = said.call
        if said.stray:
            self._check_stray(step, said, response, conversation, sender)
            return
        if call is None:
            return
        if call.is_slow(step.record.t, self._slow) and not call.notes:
            self._report("slow-call", f"{words_of(call)} took {call.seconds:.1f} seconds.", call.number, step.number)
        if isinstance(response, Error):
            return
        result = members(response.result)
        if sender == "client":
            return
        self._learn(step, call, result, conversation)
        cursor = conversation.cursors.pop(call.number, None)
        if cursor is not None and cursor == text_of(result.get("nextCursor")):
            self._report(
                "repeated-cursor", f"The next page of {words_of(call)} is the same page.", call.number, step.number
            )
        revision = find_revision(call.revision)
        if revision is None or not _is_whole(step.record):
            return
        result_type = text_of(result.get("resultType"))
        if revision.has_result_types and "resultType" not in result:
            self._report(
                "missing-result-type",
                f"The result of {words_of(call)} has no resultType.",
                step.number,
                same=call.method,
            )
        elif revision.has_result_types and result_type not in ("complete", "input_required"):
            self._report(
                "unknown-result-type",
                f"The result of {words_of(call)} has the resultType {short(repr(result_type))}.",
                step.number,
            )
        method = METHODS.get(call.method)
        if call.needs_input and revision.has_input_required:
            self._check_input_required(step, call, result, conversation)
        elif method is not None and method.result is not None and result_type in (None, "complete"):
            self._check_shape(step, method.result, response.result, f"result of {call.method}")
            self._check_tool_result(step, call, result, conversation)

    def _check_stray(
        self, step: Step, said: Said, response: Result | Error, conversation: Conversation, sender: Side
    ) -> None:
        id_, number, call = response.id, step.number, said.call
        if said.stray == "cancelled" and call is not None:
            self._report_after_cancellation(step, call, "a response")
        elif said.stray == "answered" and call is not None:
            http = step.record.http
            if http is None or http.event_id is None:  # else it may be an event that is sent again
                self._report(
                    "answered-twice", f"{words_of(call)} was answered again.", call.answer or call.number, number
                )
        elif id_ is UNSET:
            revision = said.revision or conversation.modern
            if revision is not None and not revision.has_idless_errors and sender == "server":
                self._report("idless-error", f"The server sent an error without an id in {revision}.", number)
        else:
            other: RequestId = str(id_) if isinstance(id_, int) else int(id_) if _is_number(id_) else ""
            asker: Side = "client" if sender == "server" else "server"
            if other != "" and (asker, other) in conversation.seen_ids:
                self._report(
                    "changed-id",
                    f"The {sender} sent an answer with the id {id_!r}, and the request had {other!r}.",
                    number,
                )
            elif self._knows_requests(step):
                self._report(
                    "answers-nothing",
                    f"The {sender} sent an answer with the id {short(repr(id_))}, which no request had.",
                    number,
                )

    def _knows_requests(self, step: Step) -> bool:
        """Return whether all requests that an answer may belong to are known.

        A session over HTTP may have begun before its recording. But a response to a POST answers what was posted; one
        with an error status is understood by that status.
        """
        http = step.record.http
        if http is None or not step.scope.startswith(("session", "exchange")):
            return True
        if self._transcript.request_head(http.exchange) is None or (http.status or 200) >= 400:
            return False
        return any(call.exchange == http.exchange for call in self._transcript.open_calls())

    def _learn(self, step: Step, call: Call, result: dict[str, Any], conversation: Conversation) -> None:
        if call.method == "initialize":
            conversation.initialize, conversation.modern = call, None
            conversation.is_initialized = False
            conversation.capabilities = declared_in(result.get("capabilities"))
            version = text_of(result.get("protocolVersion"))
            revision = find_revision(version)
            if version is not None and (revision is None or not revision.has_handshake):
                which = "which is not known" if revision is None else "which has no handshake"
                self._report(
                    "unknown-revision",
                    f"The server agreed on revision {short(repr(version))}, {which}.",
                    call.number,
                    step.number,
                )
        elif call.method == "server/discover":
            conversation.capabilities = declared_in(result.get("capabilities"))
        elif call.method == "tools/list":
            self._learn_tools(step, result, conversation.tools)

    def _learn_tools(self, step: Step, result: dict[str, Any], tools: ListedTools) -> None:
        listed = value_of(result.get("tools"))
        for tool in listed if isinstance(listed, list) else ():
            name = tool.get("name") if isinstance(tool, dict) else None
            if not isinstance(name, str):
                continue
            definition = msgspec.json.encode(tool, order="deterministic")
            known = tools.known.get(name)
            if name in tools.page:
                self._report("duplicate-tool", f"The tool {short(repr(name))} is listed twice.", step.number)
            elif known is not None and known[1] != definition and tools.is_fresh:
                self._report(
                    "tool-changed", f"The tool {short(repr(name))} {change_of(known[1], tool)}.", known[0], step.number
                )
            tools.page.add(name)
            tools.known[name] = (step.number, definition)
            (tools.structured.add if tool.get("outputSchema") is not None else tools.structured.discard)(name)
            schema = tool.get("inputSchema")
            if not isinstance(schema, dict) or schema.get("type") != "object":
                self._report(
                    "bad-tool-schema",
                    f"The inputSchema of the tool {short(repr(name))} is not that of an object.",
                    step.number,
                )
        if "nextCursor" not in result or value_of(result.get("nextCursor")) is None:
            tools.is_complete = tools.is_fresh = True
            tools.known = {name: known for name, known in tools.known.items() if name in tools.page}

    def _check_tool_result(self, step: Step, call: Call, result: dict[str, Any], conversation: Conversation) -> None:
        if call.method != "tools/call" or call.is_tool_error:
            return
        if call.name in conversation.tools.structured and "structuredContent" not in result:
            self._report(
                "missing-structured-content",
                f"The result of {words_of(call)} has no structuredContent.",
                step.number,
                same=call.name,
            )

    def _check_input_required(self, step: Step, call: Call, result: dict[str, Any], conversation: Conversation) -> None:
        known = METHODS.get(call.method)
        asked = members(result.get("inputRequests"))
        state = text_of(result.get("requestState"))
        if known is not None and not known.may_need_input:
            self._report("bad-input-required", f"The server asked for input to answer {call.method}.", step.number)
        elif not asked and state is None:
            self._report("bad-input-required", f"The result of {words_of(call)} asks for nothing.", step.number)
        if state is not None:
            conversation.states[state] = set(asked)
        conversation.asking_ids.add(call.id)
        for key, raw in asked.items():
            question, declared = members(raw), call.capabilities
            method = text_of(question.get("method")) or ""
            if declared is not None and (missing := missing_of_client(method, question.get("params"), declared)):
                self._report(
                    "undeclared-input",
                    f"The question {short(repr(key))} needs {missing!r}, which the client has not declared.",
                    call.number,
                    step.number,
                )

    # HTTP

    def _check_http(self, step: Step, http: Http, sender: Side) -> None:
        if sender == "client":
            if http.headers is None:
                return
            self._posted[http.exchange] = step.said
            for said in step.said:
                message, revision = said.message, said.revision
                if isinstance(message, Request) and revision is not None and revision.has_mirrored_headers:
                    error = check_headers(_header_of(http), message, None)
                    if error is not None:
                        self._report("header-mismatch", error.message, step.number)
            return
        if http.status is None:
            return
        posted = self._posted.pop(http.exchange, [])
        kind = (http.header("content-type") or "").partition(";")[0].strip().lower()
        if http.status == 401 and http.header("www-authenticate") is None:
            self._report("missing-challenge", "The server answered 401 without a WWW-Authenticate header.", step.number)
        if len(posted) == 1 and isinstance(posted[0].message, Notification) and http.status in (200, 204):
            self._report(
                "notification-status",
                f"The server answered a notification with {http.status}.",
                step.number,
                same=str(http.status),
            )
        has_request = any(isinstance(said.message, Request) for said in posted)
        if has_request and http.status == 200 and kind not in ("application/json", "text/event-stream"):
            self._report(
                "wrong-content-type",
                f"The server answered a request with the content type {short(repr(kind))}.",
                step.number,
                same=kind,
            )
        for said in step.said:
            revision = find_revision(said.call.revision) if said.call is not None else None
            if isinstance(said.message, Error) and revision is not None and revision.is_modern:
                wanted = status_of(said.message.error)
                if wanted not in (http.status, 200):
                    self._report(
                        "wrong-status",
                        f"The server sent error {said.message.error.code} with status {http.status}, not {wanted}.",
                        step.number,
                    )

    # Events

    def _check_event(self, step: Step) -> None:
        record = step.record
        match record.event:
            case "end_of_input" if record.sender == "client":
                self._end_of_input = record.t
            case "signal":
                self._has_signalled = True
            case "closed_pipe" if record.sender == "client":
                self._has_client_left = True
            case "end_of_stream" | "disconnected" if record.http is not None:
                torn = self._torn.pop(record.http.exchange, None)
                if torn is not None and record.sender == "server":
                    self._report("torn-end", "The server's response broke off.", torn, step.number)
            case "disconnected":
                self._conversations.clear()
            case "lost":
                self._report(
                    "lost-records", f"Records are missing: {record.reason or 'no reason is known'}", step.number
                )
            case "exit":
                self._check_exit(step, record)

    def _check_exit(self, step: Step, record: Record) -> None:
        end = self._end_of_input
        lost = [item for item in step.items if isinstance(item, Call) and not item.is_lasting]
        for call in lost:
            rule = "unanswered" if end is not None else "lost-request"
            if call.sender == "client" and not self._has_signalled and not self._has_client_left:
                self._report(rule, f"{words_of(call)} has no answer.", call.number, step.number)
        if self._has_signalled:
            return
        if end is None and not self._has_client_left and (record.signal is not None or record.code not in (0, None)):
            how = f"by {record.signal}" if record.signal is not None else f"with code {record.code}"
            self._report("crash", f"The server ended {how}, while its input was still open.", step.number)
        elif end is not None and record.t - end > _EXIT:
            self._report(
                "ignores-end-of-input",
                f"The server ran on for {record.t - end:.1f} seconds after the end of its input.",
                step.number,
            )


def _is_modern(version: str) -> bool:
    revision = find_revision(version)
    return revision is not None and revision.is_modern


def _is_whole(record: Record) -> bool:
    """Return whether a line was recorded as it was sent."""
    return record.cut is None and not record.masked


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) < 19


def _header_of(http: Http) -> Callable[[str], str | None]:
    return lambda name: http.header(name.lower())
