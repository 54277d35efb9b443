"""The record of a session that replicas share: what each message changes, and what a copy needs to know."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcplumb.limits import Limits
from mcplumb.protocol.session_record import (
    SessionRecord,
    encoded,
    everything_for,
    hears,
    read_change,
    setup,
    updated,
    write_change,
)
from mcplumb.protocol.subscription_state import Change
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Notification, Request, Result

NEW = SessionRecord(identity=None, initialize=b'{"protocolVersion":"1"}')
INITIALIZED = Notification("notifications/initialized")


def request(method: str, **params: Any) -> Request:
    return Request(1, method, msgspec.Raw(msgspec.json.encode(params)))


def after(record: SessionRecord, *messages: Any, position: int = 5, limits: Limits | None = None) -> SessionRecord:
    for message in messages:
        record = updated(record, message, position=position, limits=limits or Limits())
    return record


def test_what_messages_change() -> None:
    record = after(
        NEW, INITIALIZED, request("logging/setLevel", level="debug"), request("resources/subscribe", uri="a")
    )
    assert (record.ready_at, record.log_level, record.subscribed) == (5, b'{"level":"debug"}', {"a": 5})
    again = after(record, INITIALIZED, request("resources/subscribe", uri="a"), position=9)
    assert again == record
    batch = Batch((request("resources/unsubscribe", uri="a"), request("resources/subscribe", uri="b"), INITIALIZED))
    assert after(record, batch, position=7).subscribed == {"b": 7}
    fresh = after(record, request("initialize", protocolVersion="2"))
    assert fresh == SessionRecord(identity=None, initialize=b'{"protocolVersion":"2"}')


@pytest.mark.parametrize(
    "message",
    [
        request("tools/call", name="x"),
        request("resources/subscribe"),
        request("resources/subscribe", uri=3),
        request("resources/subscribe", uri="x" * 11),
        request("resources/unsubscribe", uri="unknown"),
        Request(1, "resources/unsubscribe"),
        Result(1, {}),
        BadMessage("no message", -32600),
    ],
)
def test_what_changes_nothing(message: Any) -> None:
    assert after(NEW, message, limits=Limits(max_uri=10)) is NEW


def test_no_more_resources_than_allowed() -> None:
    limits = Limits(max_subscribed_resources=2)
    record = after(NEW, *(request("resources/subscribe", uri=uri) for uri in "abc"), limits=limits)
    assert list(record.subscribed) == ["a", "b"]


def test_a_copy_gets_what_it_does_not_know() -> None:
    record = after(
        NEW, INITIALIZED, request("logging/setLevel", level="debug"), request("resources/subscribe", uri="a")
    )
    methods = ["notifications/initialized", "logging/setLevel", "resources/subscribe"]
    assert [message.method for message in setup(record)] == methods  # type: ignore[union-attr]
    assert setup(record, record) == []
    later = after(record, request("resources/unsubscribe", uri="a"), request("resources/subscribe", uri="b"))
    rest = setup(later, record)
    assert [(each.method, each.params) for each in rest if isinstance(each, Request)] == [
        ("resources/subscribe", {"uri": "b"}),
        ("resources/unsubscribe", {"uri": "a"}),
    ]
    assert len({each.id for each in rest if isinstance(each, Request)}) == 2


def test_which_changes_a_client_hears_of() -> None:
    record = after(NEW, INITIALIZED, request("resources/subscribe", uri="a"), position=5)
    update, tools = Change("updates", "a"), Change("tools")
    assert [hears(record, update, at) for at in (4, 5, 6)] == [False, False, True]
    assert [hears(record, tools, at) for at in (5, 6)] == [False, True]
    assert not hears(record, Change("updates", "b"), 6)
    assert not hears(NEW, tools, 6)
    assert everything_for(record) == [Change("tools"), Change("prompts"), Change("resources"), update]
    assert everything_for(NEW) == []


@pytest.mark.parametrize("change", [Change("tools"), Change("updates", "a\n\u2028")])
def test_a_change_travels(change: Change) -> None:
    assert read_change(write_change(change)) == change
    assert b"\n" not in encoded(change)


@pytest.mark.parametrize("body", [b"", b"{}", b"\xff", b'{"topic": "weather"}'])
def test_a_change_of_another_version(body: bytes) -> None:
    assert read_change(body) is None
