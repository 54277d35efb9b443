"""Events that are kept for clients that come back."""

from __future__ import annotations

import pytest

from mcplumb.transports.http_server.event_streams import EventStore, Replay
from mcplumb.wire.server_sent_events import Event, EventDecoder

pytestmark = pytest.mark.req("HTP-6")


def make(max_events: int = 100, max_bytes: int = 10_000) -> EventStore:
    return EventStore(max_events=max_events, max_bytes=max_bytes)


def read(*events: bytes) -> list[Event]:
    """The events as a client gets them."""
    found = []
    for event in EventDecoder(100_000).feed(b"".join(events)):
        assert isinstance(event, Event)
        found.append(event)
    return found


def id_of(event: bytes) -> str:
    (only,) = read(event)
    assert only.id is not None
    return only.id


def after(store: EventStore, event_id: str) -> Replay:
    replay = store.after(event_id)
    assert replay is not None
    return replay


def test_an_event_carries_its_message_and_an_id() -> None:
    store = make()
    (event,) = read(store.add(store.open(), b'{"a":1}'))
    assert event.data == b'{"a":1}'
    assert event.event == "message"
    assert event.id


def test_ids_are_there_once_in_a_session() -> None:
    store = make()
    first, second = store.open(), store.open()
    events = [store.add(first, b"1"), store.mark(first), store.add(second, b"2"), store.mark(second)]
    assert len({id_of(event) for event in events}) == 4


def test_only_what_came_later_on_the_same_stream_is_replayed() -> None:
    store = make()
    first, second = store.open(), store.open()
    start = store.add(first, b"1")
    other = store.add(second, b"2")
    later = [store.add(first, b"3"), store.add(first, b"4")]
    assert after(store, id_of(start)) == Replay(first, later, is_over=False)
    assert after(store, id_of(later[0])) == Replay(first, later[1:], is_over=False)
    assert after(store, id_of(later[1])) == Replay(first, [], is_over=False)
    assert after(store, id_of(other)) == Replay(second, [], is_over=False)


def test_a_mark_is_a_place_to_come_back_to() -> None:
    store = make()
    stream = store.open()
    mark = store.mark(stream)
    assert read(mark)[0].data == b""
    event = store.add(stream, b"1")
    assert after(store, id_of(mark)).events == [event]


def test_a_stream_that_is_over_is_replayed_and_says_so() -> None:
    store = make()
    stream = store.open()
    first, second = store.add(stream, b"1"), store.add(stream, b"2")
    store.close(stream)
    assert after(store, id_of(first)) == Replay(stream, [second], is_over=True)
    assert after(store, id_of(second)) == Replay(stream, [], is_over=True)


def test_a_stream_that_is_over_and_said_nothing_is_forgotten() -> None:
    store = make()
    stream = store.open()
    mark = store.mark(stream)
    store.close(stream)
    assert store.after(id_of(mark)) is None


def test_the_oldest_is_given_up_whichever_stream_it_is_of() -> None:
    store = make(max_events=2)
    first, second = store.open(), store.open()
    mark = store.mark(first)
    events = [store.add(first, b"1"), store.add(second, b"2"), store.add(first, b"3")]
    assert store.after(id_of(mark)) is None
    assert after(store, id_of(events[0])).events == [events[2]]
    assert after(store, id_of(events[1])).events == []


def test_what_others_say_does_not_spoil_a_silent_stream() -> None:
    store = make(max_events=2)
    silent, loud = store.open(), store.open()
    mark = store.mark(silent)
    for _ in range(10):
        store.add(loud, b"...")
    assert after(store, id_of(mark)).events == []


def test_bytes_are_bounded() -> None:
    store = make(max_bytes=1000)
    stream = store.open()
    mark = store.mark(stream)
    events = [store.add(stream, b"x" * 200) for _ in range(20)]
    assert store.after(id_of(mark)) is None
    kept = store.since(stream, 0)
    assert kept == events[-len(kept) :]
    assert 600 < sum(map(len, kept)) <= 1000


def test_an_event_that_is_too_large_is_not_kept_and_those_before_it_are() -> None:
    store = make(max_bytes=1000)
    stream, other = store.open(), store.open()
    kept = store.add(other, b"kept")
    small = store.add(stream, b"small")
    large = store.add(stream, b"x" * 2000)
    assert len(read(large)[0].data) == 2000
    assert store.after(id_of(small)) is None
    assert after(store, id_of(large)).events == []
    assert store.since(other, 0) == [kept]
    for _ in range(100):
        store.add(stream, b"more")
    assert store.after(id_of(small)) is None
    assert store.since(other, 0) == []


def test_a_finished_stream_is_forgotten_with_its_last_event() -> None:
    store = make(max_events=1)
    stream = store.open()
    event = store.add(stream, b"1")
    store.close(stream)
    assert after(store, id_of(event)).is_over
    store.add(store.open(), b"2")
    assert store.after(id_of(event)) is None


def test_events_since_a_number() -> None:
    store = make()
    stream = store.open()
    store.add(stream, b"1")
    latest = store.latest
    later = store.add(stream, b"2")
    assert store.since(stream, latest) == [later]


@pytest.mark.parametrize(
    "event_id",
    [
        "",
        "-",
        "1",
        "1-",
        "-1",
        "1-99",
        "9-1",
        "1-1-1",
        "a-1",
        "1-b",
        "٣-1",
        "1 -1",
        "+1-1",
        "1-" + "0" * 50,
        "x" * 9999,
    ],
)
def test_ids_that_are_none_of_ours(event_id: str) -> None:
    store = make()
    store.add(store.open(), b"1")
    assert store.after(event_id) is None
