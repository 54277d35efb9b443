"""The contract of a connection, the same for every kind: pipes, sockets, readers in threads, and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import EncodeError
from mcplumb.limits import Limits
from mcplumb.transports.connection import Connection, Stats
from mcplumb.transports.line_connection import HIGH_WATER, LineConnection, Source
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import (
    INVALID_REQUEST,
    Error,
    ErrorDetail,
    Message,
    Notification,
    Request,
    Result,
    encode_line,
)
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import run, turns
from tests.kit.products import examples
from tests.transports.ends import PAIRS, Item, Maker, Recorder, pipe_pair

pytestmark = leaves_nothing


HUNDRED = [f"n{number}" for number in range(100)]


@pytest.fixture(params=PAIRS.values(), ids=list(PAIRS))
def pair(request: pytest.FixtureRequest) -> Maker:
    make: Maker = request.param
    return make


def started(make: Maker) -> tuple[Connection, Recorder, Connection, Recorder]:
    near, far = make()
    near_side, far_side = Recorder(), Recorder()
    near.start(near_side)
    far.start(far_side)
    return near, near_side, far, far_side


def send_all(connection: Connection, names: list[str]) -> None:
    for name in names:
        connection.send(Notification(name))


def clog(connection: Connection) -> int:
    """Send more than fits anywhere on the way; the number of messages."""
    text = "x" * 10_000
    count = 5 * HIGH_WATER // len(text)
    for _ in range(count):
        connection.send(Notification("n", {"text": text}))
    assert connection.is_clogged
    return count


def written(items: Sequence[Item]) -> list[bytes]:
    """The lines of messages: those that came have raw payloads, which cannot be compared."""
    return [encode_line(item) for item in items if not isinstance(item, BadMessage | Batch)]


class IdleSource(Source):
    """Brings what the test hands to it."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class ListSink:
    """Keeps what is written; the first write may fail."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.written: list[bytes] = []

    def write(self, pieces: Sequence[bytes | bytearray | memoryview]) -> int:
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        self.written += map(bytes, pieces)
        return sum(map(len, pieces))

    def watch(self, then: Callable[[], None]) -> None: ...

    def unwatch(self) -> None: ...

    def close(self) -> None: ...


# --- Messages ---


@pytest.mark.req("FRM-1")
async def test_every_kind_of_message_arrives_in_order(pair: Maker) -> None:
    messages: list[Message] = [
        Request(1, "a", {"x": "a\nb\r\nc"}),
        Notification("b"),
        Result("é", {"ok": True}),
        Error(3, ErrorDetail(-32600, "No.")),
    ] * 500

    near, near_side, far, far_side = started(pair)
    for sender, side in ((near, far_side), (far, near_side)):
        for message in messages:
            sender.send(message)
        await side.until_count(len(messages))
        assert written(side.items) == written(messages)
    assert near.stats == far.stats
    assert near.stats.messages_in == near.stats.messages_out == len(messages)
    assert near.stats.bytes_in == near.stats.bytes_out > len(messages)
    await near.close()
    await far.close()


async def test_a_batch_arrives_as_one(pair: Maker) -> None:
    near, _, far, far_side = started(pair)
    near.send_batch([Notification("a"), Request(1, "b")])
    await far_side.until_count(1)
    assert far_side.items == [Batch((Notification("a"), Request(1, "b")))]
    assert near.stats.messages_out == far.stats.messages_in == 1
    near.abort()
    far.abort()


@pytest.mark.req("FRM-5")
async def test_a_large_message_arrives_whole(pair: Maker) -> None:
    near, near_side, far, far_side = started(pair)
    text = "0123456789" * 500_000
    for sender, side in ((near, far_side), (far, near_side)):
        send_all(sender, ["before"])
        sender.send(Request(1, "large", {"text": text}))
        send_all(sender, ["after"])
        assert sender.stats.messages_out == 3
        await side.until_count(3)
        assert side.names == ["before", "large", "after"]
        assert sender.stats.messages_out == 3
        large = side.items[1]
        assert isinstance(large, Request)
        assert bytes(large.params) == b'{"text":"%b"}' % text.encode()
    await far.close()
    await near.close()


@pytest.mark.req("FRM-5")
async def test_an_over_long_message_costs_no_other(pair: Maker) -> None:
    near, far = pair(limits=Limits(max_line=1000))
    near_side = Recorder()
    near.start(near_side)
    far.start(Recorder())
    for length in (100, 1000, 3_000_000, 100):
        far.send(Request(length, "n" * length))
    await near_side.until_count(4)
    first, second, third, fourth = near_side.items
    assert isinstance(first, Request)
    assert isinstance(fourth, Request)
    for item, length in ((second, 1000), (third, 3_000_000)):
        assert isinstance(item, BadMessage)
        assert item.reason == "A line is longer than the limit of 1000 bytes, and was skipped."
        assert (item.code, item.id) == (INVALID_REQUEST, length)
        assert item.quoted.startswith("'{")
        assert item.quoted.endswith("nnn…'")
    assert near.stats.messages_in == near.stats.bad_lines == 2
    near.abort()
    far.abort()


async def test_thousands_can_be_sent_at_once(pair: Maker) -> None:
    near, _, far, far_side = started(pair)
    send_all(near, HUNDRED * 50)
    await far_side.until_count(5000)
    assert far_side.names == HUNDRED * 50
    far.abort()
    near.abort()


async def test_what_is_sent_before_the_start_is_not_lost(pair: Maker) -> None:
    near, far = pair()
    near.pause()
    near.resume()
    send_all(near, HUNDRED)
    far_side = Recorder()
    far.start(far_side)
    await turns()
    assert far_side.items == []
    near.start(Recorder())
    await far_side.until_count(100)
    assert far_side.names == HUNDRED
    near.abort()
    far.abort()


async def test_nothing_is_received_within_a_send(pair: Maker) -> None:
    near, near_side, far, far_side = started(pair)
    sending = False
    enough = asyncio.Event()

    def answer(item: Item) -> None:
        nonlocal sending
        assert not sending
        sending = True
        near.send(Notification("again"))
        far.send(Notification("again"))
        sending = False
        if len(near_side.items) + len(far_side.items) > 200:
            enough.set()
            near.abort()
            far.abort()

    near_side.on_item = far_side.on_item = answer
    near.send(Notification("first"))
    await enough.wait()
    await turns()
    assert not near_side.ends
    assert not far_side.ends


async def test_what_cannot_be_written_as_json_is_refused_and_nothing_else_is_harmed(pair: Maker) -> None:
    near, _, far, far_side = started(pair)
    with pytest.raises(EncodeError):
        near.send(Notification("bad", {"text": "\ud800"}))
    with pytest.raises(EncodeError):
        near.send_batch([])
    assert near.stats == Stats()
    near.send(Notification("good"))
    await far_side.until_count(1)
    assert far_side.names == ["good"]
    near.abort()
    near.send(Notification("bad", {"text": "\ud800"}))
    near.send_batch([])
    far.abort()


async def test_nothing_is_written_when_a_trace_has_closed_the_connection() -> None:
    near, far = pipe_pair(trace=lambda direction, line: near.abort())
    near.start(Recorder())
    await turns()
    near.send(Notification("x"))
    assert near.stats.messages_out == 0
    await turns()
    far.abort()


def test_every_line_is_traced() -> None:
    seen: list[tuple[str, bytes]] = []

    async def main() -> None:
        near, far = pipe_pair(limits=Limits(max_line=40), trace=lambda *line: seen.append(line))
        near_side = Recorder()
        near.start(near_side)
        far.start(Recorder())
        far.send(Notification("in"))
        far.send(Notification("n" * 100))
        await near_side.until_count(2)
        near.send(Notification("out"))
        near.send_batch([Notification("x")])
        assert near.stats.bad_lines == near.stats.messages_in == 1
        far.abort()
        near.abort()

    run(main())
    assert seen == [
        ("in", b'{"jsonrpc":"2.0","method":"in"}'),
        ("in", (b'{"jsonrpc":"2.0","method":"' + b"n" * 100)[:40]),
        ("out", b'{"jsonrpc":"2.0","method":"out"}'),
        ("out", b'[{"jsonrpc":"2.0","method":"x"}]'),
    ]


# --- Back pressure ---


async def test_a_clogged_connection_drains_when_the_peer_reads_again(pair: Maker) -> None:
    near, _, far, far_side = started(pair)
    await near.drained()
    far.pause()
    count = clog(near)
    waiting = [asyncio.create_task(near.drained()) for _ in range(3)]
    await turns()
    assert near.is_clogged
    assert not any(task.done() for task in waiting)
    far.resume()
    await asyncio.gather(*waiting)
    assert not near.is_clogged
    await far_side.until_count(count)
    assert far.stats.bytes_in == near.stats.bytes_out
    await near.close()
    await far.close()


async def test_those_who_waited_do_not_all_send_at_once(pair: Maker) -> None:
    near, _, far, far_side = started(pair)
    far.pause()
    count = clog(near)
    sent = 0

    async def produce() -> None:
        nonlocal sent
        await near.drained()
        assert not near.is_clogged
        near.send(Notification("n", {"text": "x" * HIGH_WATER}))
        sent += 1
        assert near.is_clogged

    producers = [asyncio.create_task(produce()) for _ in range(5)]
    far.resume()
    await asyncio.gather(*producers)
    await far_side.until_count(count + sent)
    near.abort()
    far.abort()


async def test_waiting_can_be_given_up(pair: Maker) -> None:
    near, _, far, far_side = started(pair)
    far.pause()
    count = clog(near)
    quitter, patient = asyncio.create_task(near.drained()), asyncio.create_task(near.drained())
    await turns()
    quitter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await quitter
    last_minute = asyncio.create_task(near.drained())
    await turns()
    assert near.is_clogged
    assert not patient.done()
    far.resume()
    await patient
    last_minute.cancel()
    await asyncio.wait([last_minute])
    await far_side.until_count(count)
    near.abort()
    far.abort()


async def test_one_who_gives_up_when_the_connection_drains_harms_nobody(pair: Maker) -> None:
    near, _, far, _ = started(pair)
    far.pause()
    clog(near)
    quitter, patient = asyncio.create_task(near.drained()), asyncio.create_task(near.drained())
    await turns()
    quitter.cancel()
    near.abort()
    await patient
    assert quitter.cancelled() or await asyncio.wait([quitter])
    far.abort()


@pytest.mark.parametrize("how", ["close", "abort", "break"])
async def test_nobody_waits_for_a_connection_that_is_gone(pair: Maker, how: str) -> None:
    near, near_side, far, _ = started(pair)
    far.pause()
    clog(near)
    waiting = asyncio.create_task(near.drained())
    await turns()
    assert not waiting.done()
    if how == "close":
        closing = asyncio.create_task(near.close())
        await waiting
        far.abort()
        await closing
    elif how == "abort":
        near.abort()
        await waiting
    else:
        far.abort()
        await waiting
        await near_side.until(lambda: near_side.errors)
    assert not near.is_clogged
    near.abort()
    far.abort()


# --- Pausing ---


async def test_a_pause_within_a_message_holds_back_the_very_next(pair: Maker) -> None:
    near, _, far, far_side = started(pair)

    def stop_at_third(item: Item) -> None:
        if len(far_side.items) % 3 == 0:
            far.pause()

    far_side.on_item = stop_at_third
    send_all(near, HUNDRED)
    await near.close()
    for count in range(3, 100, 3):
        await far_side.until_count(count)
        await turns(5)
        assert far_side.names == HUNDRED[:count]
        far.resume()
    await far_side.until_end()
    assert far_side.names == HUNDRED
    assert far_side.ends == [True]
    far.resume()
    await turns()
    assert far_side.ends == [True]
    await far.close()


async def test_pausing_and_resuming_within_a_message_changes_nothing(pair: Maker) -> None:
    near, _, far, far_side = started(pair)

    def blink(item: Item) -> None:
        far.pause()
        far.resume()
        far.pause()
        far.pause()
        far.resume()
        far.resume()

    far_side.on_item = blink
    for _ in range(3):
        send_all(near, HUNDRED)
        await turns(3)
    await far_side.until_count(300)
    await near.close()
    await far_side.until_end()
    assert far_side.names == HUNDRED * 3
    far.abort()


async def test_pausing_outside_of_a_message_stops_the_reading(pair: Maker) -> None:
    near, _, far, far_side = started(pair)
    far.pause()
    send_all(near, HUNDRED)
    await near.close()
    await turns()
    assert far_side.items == []
    far.resume()
    far.pause()
    await turns()
    assert far_side.items == []
    far.resume()
    await far_side.until_end()
    assert far_side.names == HUNDRED
    await far.close()


async def test_a_peer_that_leaves_is_noticed_while_nothing_is_read(pair: Maker) -> None:
    near, _, far, far_side = started(pair)
    await turns()
    far.pause()
    send_all(near, HUNDRED)
    await near.close()
    if pair is not PAIRS["thread"]:  # nobody hangs up a file
        await far_side.until(lambda: far_side.hang_ups)
    far.resume()
    far.pause()
    await turns()
    assert far_side.items == []
    far.resume()
    await far_side.until_end()
    assert far_side.names == HUNDRED
    assert far_side.hang_ups <= 1
    await far.close()


async def test_a_peer_that_leaves_while_it_is_read_has_not_hung_up(pair: Maker) -> None:
    near, _, far, far_side = started(pair)
    send_all(near, HUNDRED)
    await near.close()
    await far_side.until_end()
    far.pause()
    await turns()
    assert far_side.hang_ups == 0
    await far.close()


async def test_a_pause_in_the_torn_last_message_holds_back_the_end(pair: Maker) -> None:
    near, _, far, far_side = started(pair)
    far.pause()
    clog(near)
    await turns()
    near.abort()
    far_side.on_item = lambda item: far.pause() if isinstance(item, BadMessage) else None
    far.resume()
    await far_side.until(lambda: far.stats.bad_lines)
    await turns()
    assert far_side.ends == []
    assert isinstance(far_side.items[-1], BadMessage)
    far.resume()
    await far_side.until_end()
    assert far_side.ends == [False]
    far.abort()


# --- Ends ---


@pytest.mark.req("FRM-6")
async def test_a_close_lets_everything_arrive_and_then_the_end(pair: Maker) -> None:
    near, near_side, far, far_side = started(pair)
    send_all(near, HUNDRED)
    await near.close()
    await near.close()
    await far_side.until_end()
    assert far_side.names == HUNDRED
    assert far_side.ends == [True]
    assert near_side.ends == []
    await far.close()
    await turns()
    assert near_side.ends == near_side.errors == far_side.errors == []


@pytest.mark.req("FRM-6")
async def test_an_abort_in_the_middle_of_a_message_is_no_clean_end(pair: Maker) -> None:
    near, _, far, far_side = started(pair)
    far.pause()
    near.send(Notification("n", {"text": "x" * 5 * HIGH_WATER}))
    await turns()
    near.abort()
    near.abort()
    far.resume()
    await far_side.until_end()
    assert far_side.ends == [False]
    (torn,) = far_side.items
    assert isinstance(torn, BadMessage)
    assert far.stats.bad_lines == 1
    await near.close()
    far.abort()
    await far.close()


async def test_both_ends_can_close_at_once(pair: Maker) -> None:
    near, near_side, far, far_side = started(pair)
    send_all(near, HUNDRED)
    send_all(far, HUNDRED)
    await asyncio.gather(near.close(), far.close(), near.close(), far.close())
    for side in (near_side, far_side):
        assert side.ends == side.errors == []


async def test_what_was_never_started_can_be_closed(pair: Maker) -> None:
    near, far = pair()
    send_all(near, HUNDRED)
    far_side = Recorder()
    far.start(far_side)
    await near.close()
    near.start(Recorder())
    await far_side.until_end()
    assert far_side.names == HUNDRED
    far.abort()
    near, far = pair()
    near.abort()
    near.resume()
    far.abort()


async def test_a_half_closed_connection_can_still_be_written_to(pair: Maker) -> None:
    near, near_side, far, far_side = started(pair)
    send_all(near, ["question"])
    await far_side.until_count(1)
    closing = asyncio.create_task(far.close())
    await near_side.until_end()
    await closing
    assert near_side.ends == [True]
    assert near_side.errors == []
    send_all(near, ["late"])
    near.abort()


async def test_a_close_waits_for_a_slow_peer(pair: Maker) -> None:
    near, _, far, far_side = started(pair)
    far.pause()
    count = clog(near)
    closing = [asyncio.create_task(near.close()) for _ in range(3)]
    await turns()
    assert not any(task.done() for task in closing)
    send_all(near, ["too late"])
    far.resume()
    await asyncio.gather(*closing)
    await far_side.until_end()
    assert len(far_side.items) == count
    assert far_side.ends == [True]
    far.abort()


@pytest.mark.parametrize("how", ["cancel", "abort", "peer"])
async def test_a_close_that_waits_can_be_cut_short(pair: Maker, how: str) -> None:
    near, near_side, far, far_side = started(pair)
    far.pause()
    clog(near)
    first, second = (asyncio.create_task(near.close()) for _ in range(2))
    await turns()
    assert not first.done()
    assert not second.done()
    if how == "cancel":
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
    elif how == "abort":
        near.abort()
        await first
    else:
        far.abort()
        await first
    await second
    assert near_side.errors == near_side.ends == []
    if how != "peer":
        far.resume()
        await far_side.until_end()
    far.abort()


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_nothing_is_received_after_the_end_that_a_message_asked_for(pair: Maker, how: str) -> None:
    near, _, far, far_side = started(pair)
    closing: list[asyncio.Task[None]] = []

    def stop(item: Item) -> None:
        if len(far_side.items) == 3:
            far.send(Notification("last words"))
            if how == "abort":
                far.abort()
            else:
                closing.append(asyncio.create_task(far.close()))
                far.pause()

    far_side.on_item = stop
    send_all(near, HUNDRED)
    await far_side.until_count(3)
    await turns()
    assert far_side.names == HUNDRED[:3]
    await asyncio.gather(*closing)
    far.pause()
    far.resume()
    await turns()
    assert far_side.names == HUNDRED[:3]
    assert far_side.ends == far_side.errors == []
    near.abort()


async def test_a_close_may_begin_within_a_message(pair: Maker) -> None:
    # As in a task that is started eagerly.
    near, near_side, far, far_side = started(pair)

    def stop(item: Item) -> None:
        far.send(Notification("last words"))
        closing = far.close().__await__()
        with pytest.raises(StopIteration):
            next(closing)

    far_side.on_item = stop
    send_all(near, HUNDRED)
    await near_side.until_end()
    assert near_side.names == ["last words"]
    assert far_side.names == HUNDRED[:1]
    near.abort()


@pytest.mark.parametrize("how", ["ended", "broke"])
async def test_an_abort_may_be_the_answer_to_an_end(pair: Maker, how: str) -> None:
    near, far = pair()

    class Hasty(Recorder):
        def ended(self, *, clean: bool) -> None:
            super().ended(clean=clean)
            far.send(Notification("a last word"))
            far.abort()

        def hung_up(self) -> None:
            """Nothing to do."""

        def broke(self, error: OSError) -> None:
            super().broke(error)
            far.abort()

    hasty = Hasty()
    near.start(Recorder())
    far.start(hasty)
    if how == "broke":
        far.pause()
        near.abort()
        while not hasty.errors:
            far.send(Notification("n"))
            await asyncio.sleep(0)
    else:
        await near.close()
        await hasty.until_end()
    await turns()
    assert len(hasty.ends) + len(hasty.errors) == 1
    await far.close()


STEPS = st.lists(st.sampled_from(["send", "send many", "send large", "pause", "resume", "turn", "turns"]), max_size=30)


@pytest.mark.parametrize("kind", ["pipe", "socket", "memory"])
@given(steps=STEPS, is_aborted=st.booleans())
@examples(50)
def test_whatever_happens_on_the_way_all_arrives_in_order(kind: str, steps: list[str], is_aborted: bool) -> None:
    async def main() -> None:
        near, _, far, far_side = started(PAIRS[kind])
        sent: list[str] = []

        def send(*names: str) -> None:
            send_all(near, [*names])
            sent.extend(names)

        far_side.on_item = lambda item: far.pause() if len(far_side.items) % 7 == 0 else None
        for step in steps:
            match step:
                case "send":
                    send(f"n{len(sent)}")
                case "send many":
                    send(*HUNDRED)
                case "send large":
                    send("x" * 300_000)
                case "pause":
                    far.pause()
                case "resume":
                    far.resume()
                case _:
                    await turns(1 if step == "turn" else 10)
        if is_aborted:
            far.abort()
            near.abort()
            assert far_side.names == sent[: len(far_side.items)]
            return
        closing = asyncio.create_task(near.close())
        while not far_side.ends:
            far.resume()
            await asyncio.sleep(0)
        await closing
        assert far_side.names == sent
        assert far_side.ends == [True]
        await far.close()

    run(main())


async def test_a_broken_connection_is_told_once_and_swallows_the_rest(pair: Maker) -> None:
    near, near_side, far, _ = started(pair)
    far.abort()
    while not near_side.errors:
        near.send(Notification("anybody?"))
        assert len(near_side.errors) == 0, "told from within a send"
        await asyncio.sleep(0)
    sent = near.stats.messages_out
    send_all(near, HUNDRED)
    clogged = near.is_clogged
    await near.drained()
    await turns()
    (error,) = near_side.errors
    assert isinstance(error, BrokenPipeError | ConnectionResetError)
    assert near.stats.messages_out == sent
    assert not clogged
    await near.close()


async def test_a_receiver_that_raises_loses_no_other_message(pair: Maker) -> None:
    near, _, far, far_side = started(pair)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["exception"]))
    error = LookupError("a fault in the receiver")

    def fail(item: Item) -> None:
        far.send(Notification("sent all the same"))
        if len(far_side.items) in (2, 50, 100):
            raise error

    far_side.on_item = fail
    send_all(near, HUNDRED)
    await far_side.until_count(100)
    await turns()
    assert far_side.names == HUNDRED
    assert complaints == [error] * 3
    await far.close()
    await near.close()
    assert far.stats.messages_out == 100


# --- Following ---


async def bridged(make: Maker) -> tuple[Connection, Recorder, LineConnection, LineConnection, Connection, Recorder]:
    """Two connections, of which the second sends what the first receives."""
    source, near = make()
    onward, sink = make()
    assert isinstance(near, LineConnection)
    assert isinstance(onward, LineConnection)

    def pass_on(item: Item) -> None:
        assert isinstance(item, Notification)
        onward.send(item)

    source_side, sink_side = Recorder(), Recorder()
    source.start(source_side)
    near.start(Recorder(pass_on))
    onward.start(Recorder())
    sink.start(sink_side)
    await turns()
    return source, source_side, near, onward, sink, sink_side


async def close_all(*connections: Connection) -> None:
    for connection in connections:
        await connection.close()


async def test_what_others_send_during_a_delivery_is_written_with_it(pair: Maker) -> None:
    source, _, near, onward, sink, sink_side = await bridged(pair)
    send_all(source, HUNDRED)
    await sink_side.until_count(100)
    assert sink_side.names == HUNDRED
    # At other times it is written as usual.
    onward.send(Notification("later"))
    await sink_side.until_count(101)
    await close_all(source, near, onward, sink)


async def test_what_others_send_does_not_wait_for_a_peer_that_does_not_read(pair: Maker) -> None:
    source, source_side, near, onward, sink, sink_side = await bridged(pair)
    source.pause()
    count = clog(near)
    await turns()
    assert near.is_clogged
    send_all(source, HUNDRED)
    await sink_side.until_count(100)
    source.resume()
    await source_side.until_count(count)
    assert sink_side.names == HUNDRED
    await close_all(source, near, onward, sink)


async def test_what_others_send_is_written_if_the_delivering_connection_is_aborted(pair: Maker) -> None:
    source, near = pair()
    onward, sink = pair()
    assert isinstance(near, LineConnection)
    assert isinstance(onward, LineConnection)
    sink_side = Recorder()

    def pass_on(item: Item) -> None:
        onward.send(Notification("last"))
        near.abort()

    source.start(Recorder())
    near.start(Recorder(pass_on))
    onward.start(Recorder())
    sink.start(sink_side)
    source.send(Notification("first"))
    await sink_side.until_count(1)
    onward.send(Notification("more"))
    await sink_side.until_count(2)
    assert sink_side.names == ["last", "more"]
    await close_all(source, near, onward, sink)


@pytest.mark.parametrize("error", [MemoryError(), BrokenPipeError()], ids=lambda error: type(error).__name__)
async def test_a_connection_that_fails_to_write_holds_up_no_other(error: BaseException) -> None:
    """What is sent on several connections during one delivery is written when that ends, on each of them."""

    class FailingRecorder(Recorder):
        def broke(self, error: OSError) -> None:
            raise RuntimeError("This receiver fails.")

    class Forwarder(Recorder):
        def received(self, item: Item) -> None:
            for each in (failing, sound):
                each.send(Notification("n"))

    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    source, sink = IdleSource(), ListSink()
    delivering = LineConnection(source, ListSink())
    failing, sound = LineConnection(IdleSource(), ListSink(error)), LineConnection(IdleSource(), sink)
    failing.start(FailingRecorder())
    sound.start(Recorder())
    delivering.start(Forwarder())
    await turns(5)
    asyncio.get_running_loop().call_soon(source._arrived, b'{"jsonrpc":"2.0","method":"x"}\n')
    await turns(5)
    sound.send(Notification("later"))
    await turns(5)
    assert len(sink.written) == 2
    assert len(failures) == 1
    for each in (delivering, failing, sound):
        each.abort()
    asyncio.get_running_loop().set_exception_handler(None)


# --- Passing on alone ---


async def passing(make: Maker, pass_on: Callable[[LineConnection, Item], None]) -> tuple[Any, ...]:
    """As `bridged`, with a function that is called with the second connection and what the first receives."""
    source, near = make()
    onward, sink = make()
    assert isinstance(near, LineConnection)
    assert isinstance(onward, LineConnection)
    onward_side, sink_side = Recorder(), Recorder()
    source.start(Recorder())
    near.start(Recorder(lambda item: pass_on(onward, item)))
    onward.start(onward_side)
    await turns()
    return source, near, onward, onward_side, sink, sink_side


def send_alone(onward: LineConnection, item: Item) -> None:
    assert isinstance(item, Notification)
    onward.send_alone(item)


async def test_what_is_passed_on_alone_arrives_in_order(pair: Maker) -> None:
    source, near, onward, _, sink, sink_side = await passing(pair, send_alone)
    sink.start(sink_side)
    source.send(Notification("first"))
    await sink_side.until_count(1)
    send_all(source, HUNDRED)  # which come together
    await sink_side.until_count(101)
    source.send(Notification("large", {"text": "x" * 200_000}))
    source.send(Notification("last"))
    await sink_side.until_count(103)
    onward.send_alone(Notification("later"))  # not within a delivery
    await sink_side.until_count(104)
    assert sink_side.names == ["first", *HUNDRED, "large", "last", "later"]
    assert onward.stats.messages_out == 104
    assert onward.stats.bytes_out == sink.stats.bytes_in
    await close_all(source, near, onward, sink)


async def test_it_is_written_within_the_delivery_and_behind_what_was_queued() -> None:
    seen: list[int] = []

    def both(onward: LineConnection, item: Item) -> None:
        if len(seen) % 2:
            onward.send(Notification("before"))
        send_alone(onward, item)
        seen.append(onward.stats.bytes_out)

    source, near, onward, _, sink, sink_side = await passing(pipe_pair, both)
    sink.start(sink_side)
    for number in range(4):
        source.send(Notification(f"n{number}"))
        await sink_side.until_count([1, 3, 4, 6][number])
    assert sink_side.names == ["n0", "before", "n1", "n2", "before", "n3"]
    sizes = [len(encode_line(Notification(name))) + 1 for name in ("n0", "before", "n1", "n2")]
    # The first line of a connection is looked at more closely. What comes alone is written at once, and what comes
    # behind something that is queued is written with it.
    assert seen[:3] == [0, sizes[0], sum(sizes)]
    await close_all(source, near, onward, sink)


async def test_what_a_full_pipe_does_not_take_follows_when_it_is_read() -> None:
    source, near, onward, _, sink, sink_side = await passing(pipe_pair, send_alone)
    text = "x" * 10_000
    for number in range(100):
        source.send(Notification(f"n{number}", {"text": text}))
        await turns(3)
    sink.start(sink_side)
    await sink_side.until_count(100)
    assert sink_side.names == HUNDRED
    assert onward.stats.messages_out == 100
    await close_all(source, near, onward, sink)


async def test_a_pipe_that_nobody_reads_is_reported_as_ever() -> None:
    source, near, onward, onward_side, sink, _ = await passing(pipe_pair, send_alone)
    sink.abort()
    await onward_side.until_end()
    source.send(Notification("lost"))
    await onward_side.until(lambda: onward_side.errors)
    source.send(Notification("dropped"))
    await turns()
    assert len(onward_side.errors) == 1
    await close_all(source, near, onward)


async def test_a_line_within_a_message_stays_one_line() -> None:
    def with_breaks(onward: LineConnection, item: Item) -> None:
        assert isinstance(item, Notification)
        onward.send_alone(Notification(item.method, msgspec.Raw(b'{\r\n"a":\n1}')))

    source, near, onward, _, sink, sink_side = await passing(pipe_pair, with_breaks)
    sink.start(sink_side)
    source.send(Notification("n"))
    await sink_side.until_count(1)
    assert written(sink_side.items) == [b'{"jsonrpc":"2.0","method":"n","params":{  "a": 1}}']
    await close_all(source, near, onward, sink)


async def test_what_is_passed_on_alone_is_traced() -> None:
    traced: list[bytes] = []

    def trace(direction: str, line: bytes) -> None:
        traced.append(bytes(line))

    source, near = pipe_pair()
    onward, sink = pipe_pair(trace=trace)
    assert isinstance(onward, LineConnection)
    source.start(Recorder())
    near.start(Recorder(lambda item: send_alone(onward, item)))
    onward.start(Recorder())
    sink_side = Recorder()
    sink.start(sink_side)
    source.send(Notification("n"))
    await sink_side.until_count(1)
    assert traced == [b'{"jsonrpc":"2.0","method":"n"}']
    await close_all(source, near, onward, sink)
