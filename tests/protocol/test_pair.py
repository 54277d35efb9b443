"""Two sides of a connection, run against each other over a lossless pipe in every order that hypothesis finds.

The invariants: every request ends exactly once; nothing is sent for a request after it was answered or cancelled; no id
is live twice; a subscription delivers only after its acknowledgement, and only what it asked for.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mcplumb.errors import Closed
from mcplumb.protocol.in_flight import OUTGOING, Incoming, IncomingRequest, Outgoing, OutgoingRequest
from mcplumb.protocol.progress import ProgressMeter
from mcplumb.protocol.subscription_state import (
    LIST_CHANGED,
    TOPICS,
    Change,
    Listener,
    ListTopic,
    Publisher,
    Subscription,
    topics_of,
)
from mcplumb.types.meta import SUBSCRIPTION_ID
from mcplumb.types.notification_params import ProgressParams, SubscriptionFilter
from mcplumb.wire.message_decoder import decode_line
from mcplumb.wire.messages import Error, Message, Notification, Request, RequestId, Result, encode_line
from tests.kit.products import examples

URIS = ["a:1", "a:2"]
GONE = Closed("The server died.")
CHANGES: dict[str, ListTopic] = {method: topic for topic, method in LIST_CHANGED.items()}


def data_of(message: Request | Notification) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.json.decode(message.params)
    return data


class Pipe:
    """Carries messages one way, in order, as the bytes that they are on a wire."""

    def __init__(self) -> None:
        self.lines: deque[bytes] = deque()

    def write(self, message: Message | None) -> None:
        if message is not None:
            self.lines.append(encode_line(message))

    def read(self) -> Message:
        message = decode_line(self.lines.popleft())
        assert isinstance(message, Request | Notification | Result | Error)
        return message


class Pair(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.now = 0.0
        self.next_id = 1
        self.deaths = 1
        self.calls: list[OutgoingRequest] = []
        self.ends: dict[int, int] = {}
        self.listener = Listener()
        self.subscriptions: dict[int, Subscription] = {}
        self.acknowledged: set[int] = set()
        self.connect()

    def connect(self) -> None:
        """A new connection: a fresh server, and what the client carries over."""
        self.to_server, self.to_client = Pipe(), Pipe()
        self.outgoing = Outgoing(max_in_flight=100, first_id=self.next_id)
        self.incoming: Incoming[IncomingRequest] = Incoming(max_in_flight=100)
        self.publisher = Publisher(TOPICS)
        self.works: list[tuple[IncomingRequest, ProgressMeter]] = []
        self.silenced: set[RequestId] = set()

    def end(self, call: OutgoingRequest) -> None:
        self.ends[call.id] = self.ends.get(call.id, 0) + 1

    def send(self, message: Message | None, request_id: RequestId) -> None:
        """The server writes something for a request."""
        if message is not None:
            assert request_id not in self.silenced, f"{message} was sent for a request that was cancelled"
            self.to_client.write(message)

    # --- what a client does

    @rule(timeout=st.floats(0.1, 5), longest=st.none() | st.floats(0.1, 10))
    def call(self, timeout: float, longest: float | None) -> None:
        call = self.outgoing.open("tools/call", self.now, timeout=timeout, max_timeout=longest)
        assert call.id not in self.ends
        self.next_id = self.outgoing.next_id
        self.calls.append(call)
        self.to_server.write(Request(call.id, call.method, {"_meta": {"progressToken": call.id}}))

    @rule(tools=st.booleans(), prompts=st.booleans(), uris=st.lists(st.sampled_from(URIS), max_size=2))
    def listen(self, tools: bool, prompts: bool, uris: list[str]) -> None:
        wanted = SubscriptionFilter(tools_list_changed=tools, prompts_list_changed=prompts, resource_subscriptions=uris)
        self.open_listen(wanted)

    def open_listen(self, wanted: SubscriptionFilter) -> None:
        call = self.outgoing.open("subscriptions/listen", self.now, timeout=None)
        self.next_id = self.outgoing.next_id
        self.calls.append(call)
        self.subscriptions[call.id] = self.listener.open(call.id, wanted)
        self.to_server.write(Request(call.id, call.method, {"notifications": wanted}))

    @precondition(lambda self: any(call.state == "open" for call in self.calls))
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from([call for call in self.calls if call.state == "open"]))
        if call.id in self.subscriptions:
            assert self.listener.close(self.subscriptions[call.id])
        note = self.outgoing.cancel(call, "enough")
        assert note is not None
        self.to_server.write(note)
        self.end(call)

    @rule(named=st.none() | st.integers(-5, 60) | st.text(max_size=2) | st.floats(allow_nan=False) | st.booleans())
    def cancel_nonsense(self, named: Any) -> None:
        if not (type(named) is int and any(call.id == named and call.state == "open" for call in self.calls)):
            self.to_server.write(Notification("notifications/cancelled", {"requestId": named}))

    @rule(seconds=st.floats(0.1, 3))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for call, note in self.outgoing.expire(self.now):
            assert call.deadline is not None
            assert call.deadline <= self.now
            self.to_server.write(note)
            self.end(call)
        assert self.outgoing.deadline is None or self.outgoing.deadline > self.now

    @precondition(lambda self: self.to_client.lines)
    @rule(count=st.integers(1, 8))
    def client_reads(self, count: int) -> None:
        for _ in range(min(count, len(self.to_client.lines))):
            self.client_reads_one()

    def client_reads_one(self) -> None:
        message = self.to_client.read()
        if isinstance(message, Result | Error):
            call = self.outgoing.answer(message)
            if call is not None:
                self.end(call)
                if call.id in self.subscriptions:
                    assert self.listener.ended(call.id) is self.subscriptions[call.id]
            return
        assert isinstance(message, Notification), "a modern server sends no requests"
        params = data_of(message)
        if message.method == "notifications/cancelled":
            ended = self.outgoing.end(params["requestId"])
            if ended is not None:
                assert self.listener.ended(ended.id) is self.subscriptions[ended.id]
                self.end(ended)
            return
        if message.method == "notifications/progress":
            advanced = self.outgoing.advance(params["progressToken"], params["progress"], self.now)
            if advanced is not None and advanced.deadline is not None and advanced.latest is not None:
                assert advanced.deadline <= advanced.latest
            return
        named = params["_meta"][SUBSCRIPTION_ID]
        if message.method == "notifications/subscriptions/acknowledged":
            honoured = msgspec.convert(params["notifications"], SubscriptionFilter)
            opened = self.listener.acknowledged(named, honoured)
            if opened is not None:
                assert named not in self.acknowledged
                self.acknowledged.add(named)
            return
        topic = CHANGES.get(message.method)
        change = Change("updates", params["uri"]) if topic is None else Change(topic)
        subscription = self.listener.changed(named, change)
        if subscription is not None:
            assert named in self.acknowledged
            assert change.topic in topics_of(subscription.wanted)

    # --- what a server does

    @precondition(lambda self: self.to_server.lines)
    @rule(count=st.integers(1, 8))
    def server_reads(self, count: int) -> None:
        for _ in range(min(count, len(self.to_server.lines))):
            self.server_reads_one()

    def server_reads_one(self) -> None:
        message = self.to_server.read()
        assert not isinstance(message, Result | Error), "a modern client sends no responses"
        if isinstance(message, Notification):
            work = self.incoming.cancel(data_of(message)["requestId"])
            if work is not None:
                self.silenced.add(work.id)
                self.publisher.cancel(work.id)
            return
        live = [work.id for work, _ in self.works if work.is_running]
        accepted = IncomingRequest(message.id, message)
        assert self.incoming.accept(accepted), "this client never uses an id twice"
        assert accepted.id not in live
        self.works.append((accepted, ProgressMeter(burst=2, rate=1)))
        if message.method == "subscriptions/listen":
            wanted = msgspec.convert(data_of(message)["notifications"], SubscriptionFilter)
            acknowledgement = self.publisher.open(accepted.id, wanted)
            assert isinstance(acknowledgement, Notification)
            self.send(self.incoming.notify(accepted, acknowledgement), accepted.id)

    @precondition(lambda self: self.works)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """Also for requests that were answered or cancelled: the machine has to keep them quiet."""
        work, meter = data.draw(st.sampled_from(self.works))
        if work.method == "subscriptions/listen":
            ended = self.publisher.end(work.id)
            self.send(ended if ended is not None and self.incoming.answer(work) else None, work.id)
            return
        last = meter.last()
        if last is not None:
            self.send(self.incoming.notify(work, Notification("notifications/progress", last)), work.id)
        if self.incoming.answer(work):
            self.send(Result(work.id, {"resultType": "complete"}), work.id)

    @precondition(lambda self: self.works)
    @rule(data=st.data(), progress=st.floats(0, 10))
    def progress(self, data: st.DataObject, progress: float) -> None:
        work, meter = data.draw(st.sampled_from(self.works))
        passed = meter.offer(ProgressParams(work.id, progress), self.now)
        if passed is not None:
            self.send(self.incoming.notify(work, Notification("notifications/progress", passed)), work.id)

    @rule(topic=st.sampled_from(["tools", "prompts", "resources"]))
    def list_changes(self, topic: ListTopic) -> None:
        for note in self.publisher.list_changed(topic):
            named = note.params["_meta"][SUBSCRIPTION_ID]
            assert topic in topics_of(self.subscriptions[named].wanted), "only what was asked for is sent"
            self.send(note, named)

    @rule(uri=st.sampled_from(URIS))
    def resource_changes(self, uri: str) -> None:
        for note in self.publisher.resource_updated(uri):
            self.send(note, note.params["_meta"][SUBSCRIPTION_ID])

    @precondition(lambda self: self.subscriptions)
    @rule(method=st.sampled_from(sorted(CHANGES)), data=st.data())
    def a_change_out_of_turn(self, method: str, data: st.DataObject) -> None:
        """From a server that breaks the rules: not acknowledged yet, not asked for, or over."""
        named = data.draw(st.sampled_from(sorted(self.subscriptions)))
        self.to_client.write(Notification(method, {"_meta": {SUBSCRIPTION_ID: named}}))

    @precondition(lambda self: self.ends)
    @rule(data=st.data())
    def an_answer_out_of_turn(self, data: st.DataObject) -> None:
        """From a server that breaks the rules: an answer to a request that has ended."""
        self.to_client.write(Result(data.draw(st.sampled_from(sorted(self.ends))), {"resultType": "complete"}))

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def a_cancellation_by_the_server(self, data: st.DataObject) -> None:
        """It may end a subscription so; for any other request, it breaks the rules."""
        call = data.draw(st.sampled_from(self.calls))
        self.to_client.write(Notification("notifications/cancelled", {"requestId": call.id}))

    # --- what happens to both

    @precondition(lambda self: len(self.calls) > 4 * self.deaths)
    @rule()
    def the_server_dies(self) -> None:
        """Not too often: most of what can go wrong needs some steps in one life."""
        self.deaths += 1
        for work in self.incoming.close():
            assert not work.is_running
        lost = []
        for call in self.outgoing.close(GONE):
            self.end(call)
            subscription = self.listener.failed(call.id)
            if subscription is not None:
                lost.append(subscription.wanted)
        self.connect()
        for wanted in lost:
            self.open_listen(wanted)

    @invariant()
    def every_request_ends_at_most_once(self) -> None:
        for call in getattr(self, "calls", ()):
            assert self.ends.get(call.id, 0) == (call.state in OUTGOING.final)

    @invariant()
    def no_subscription_is_forgotten(self) -> None:
        if hasattr(self, "listener"):
            open_listens = [call for call in self.calls if call.id in self.subscriptions and call.state == "open"]
            assert len(self.listener) == len(open_listens)

    def teardown(self) -> None:
        if not hasattr(self, "calls"):
            return
        while self.to_server.lines or self.to_client.lines:
            if self.to_server.lines:
                self.server_reads_one()
            else:
                self.client_reads_one()
        self.now += 1000
        self.wait(0.1)
        for call in self.outgoing.close(GONE):
            self.end(call)
        assert all(self.ends[call.id] == 1 for call in self.calls)
        assert len(self.outgoing) == 0


TestPair = Pair.TestCase
TestPair.settings = examples(200, stateful_step_count=70)
