"""A peer that sends its next message when it has an answer: it is awaited without a turn of the loop, within bounds."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextvars import ContextVar, copy_context

import pytest

from mcplumb.errors import McplumbError
from mcplumb.transports.fd_connection import StreamConnection, WatchedSource
from mcplumb.wire.messages import Notification, RequestId
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import turns
from tests.transports.ends import Item

pytestmark = leaves_nothing


pytestmark = pytest.mark.tricks

#: More messages than are read before the loop turns.
MANY = 100
#: That many are.
AT_ONCE = 16


def pipe() -> tuple[int, int]:
    return os.pipe()


def socket_pair() -> tuple[int, int]:
    one, other = socket.socketpair()
    return one.detach(), other.detach()


@pytest.fixture(params=[pipe, socket_pair], ids=["pipe", "socket"])
def ends(request: pytest.FixtureRequest) -> tuple[int, int]:
    make: Callable[[], tuple[int, int]] = request.param
    return make()


def line(number: int) -> bytes:
    return b'{"jsonrpc":"2.0","method":"%d"}\n' % number


class Pair:
    """A receiver, and a peer that sends it ``count`` messages, each when the one before has been received.

    Nothing here gives the loop anything to do before all have come, unless ``then`` does.
    """

    def __init__(self, ends: tuple[int, int], then: Callable[[int], object] = lambda number: None) -> None:
        self.is_silent = False
        self.copies = 1
        self.received_in: list[int] = []
        self.names: list[int] = []
        self.ended_clean: bool | None = None
        self.waits = 0
        self._loop = asyncio.get_running_loop()
        self._turn = 0
        self._last = 0
        self._then = then
        read_fd, self.fd = ends
        self.connection = StreamConnection(read_fd, os.open(os.devnull, os.O_WRONLY))
        self.connection.start(self)
        assert isinstance(self.connection._source, WatchedSource)
        self.source = self.connection._source
        self._count()

    async def send(self, count: int) -> None:
        """Send so many messages, and wait until they or the end have come."""
        await turns()  # until the loop has nothing else to do
        self._done = self._loop.create_future()
        self._last += count
        self._send()
        await self._done

    def close(self) -> None:
        self.connection.abort()
        os.close(self.fd)

    def _send(self) -> None:
        os.write(self.fd, line(len(self.names)) * self.copies)

    def received(self, item: Item) -> None:
        assert isinstance(item, Notification)
        self.names.append(int(item.method))
        self.received_in.append(self._turn)
        number = len(self.names)
        if number >= self._last:
            self.ended(clean=False)
        elif not self.is_silent and number % self.copies == 0:
            self._send()
        self._then(number)

    def ended(self, *, clean: bool) -> None:
        self.ended_clean = clean
        if not self._done.done():
            self._done.set_result(None)

    def hung_up(self) -> None:
        """Nothing to do."""

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        raise AssertionError(f"{request_id!r} failed: {error}")

    def broke(self, error: OSError) -> None:
        raise error

    def _count(self) -> None:
        """Count the turns of the loop, and how often the source waits for more."""
        ahead = self.source._poll_ahead
        assert ahead is not None
        select, poll = self._loop._selector.select, ahead._poll  # type: ignore[attr-defined]

        def counted_select(timeout: float | None = None) -> object:
            self._turn += 1
            return select(timeout)

        def counted_poll(timeout: float, most: int) -> object:
            self.waits += 1
            return poll(timeout, most)

        self._loop._selector.select = counted_select  # type: ignore[attr-defined]
        ahead._poll = counted_poll


async def test_more_is_read_without_a_turn_of_the_loop_but_not_for_ever(ends: tuple[int, int]) -> None:
    pair = Pair(ends)
    await pair.send(MANY)
    assert pair.names == list(range(MANY))
    assert max(map(pair.received_in.count, pair.received_in)) == AT_ONCE
    assert len(set(pair.received_in)) <= MANY / AT_ONCE + 2
    pair.close()


async def test_what_follows_from_a_message_comes_before_the_next_message(ends: tuple[int, int]) -> None:
    def then(number: int) -> None:
        seen.append(f"message {number}")
        if number % 3 == 0:
            asyncio.get_running_loop().call_soon(seen.append, f"consequence of {number}")

    seen: list[str] = []
    pair = Pair(ends, then)
    await pair.send(MANY)
    await turns(1)
    for number in range(3, MANY, 3):
        assert seen[seen.index(f"message {number}") + 1] == f"consequence of {number}"
    assert len(set(pair.received_in)) < MANY, "where nothing follows, more is read at once"
    pair.close()


async def test_one_among_many_is_waited_for_less_and_less_often(ends: tuple[int, int]) -> None:
    def tell(number: int) -> None:
        if number % 2:  # somebody else has something to do
            os.write(other, b".")

    reads, other = os.pipe()
    told: list[bytes] = []
    loop = asyncio.get_running_loop()
    loop.add_reader(reads, lambda: told.append(os.read(reads, 1)))
    pair = Pair(ends, tell)
    await pair.send(1000)
    await turns()
    assert len(told) == 500
    assert pair.waits < 100
    # When it has the loop for itself again, that is noticed before long.
    pair._then = lambda number: None
    await pair.send(2 * MANY)
    assert len(set(pair.received_in[-MANY:])) < MANY / 4
    assert pair.names == list(range(1000 + 2 * MANY))
    pair.close()
    loop.remove_reader(reads)
    os.close(reads)
    os.close(other)


async def test_two_that_take_turns_are_read_without_a_turn_of_the_loop(ends: tuple[int, int]) -> None:
    # As in a bridge: a message to one is followed by a message to the other.
    other = Pair(os.pipe(), lambda number: pair._send() if number < MANY else None)
    pair = Pair(ends, lambda number: other._send())
    pair.is_silent = other.is_silent = True
    for each in (pair, other):
        each._last = MANY
        each._done = asyncio.get_running_loop().create_future()
    await turns()
    before = pair._turn
    pair._send()
    await other._done
    assert pair.names == other.names == list(range(MANY))
    assert pair._turn - before <= 2 * MANY / AT_ONCE + 2
    pair.close()
    other.close()


async def test_each_of_two_is_received_with_its_own_context_variables(ends: tuple[int, int]) -> None:
    def see(number: int) -> None:
        seen.append(name.get())
        if number < MANY:
            pair._send()

    def answer(_: int) -> None:
        seen.append(name.get())
        other._send()

    def made(called: str, ends: tuple[int, int], then: Callable[[int], object]) -> Pair:
        name.set(called)
        return Pair(ends, then)

    name: ContextVar[str] = ContextVar("name")
    seen: list[str] = []
    other = copy_context().run(made, "other", os.pipe(), see)
    pair = copy_context().run(made, "one", ends, answer)
    pair.is_silent = other.is_silent = True
    for each in (pair, other):
        each._last = MANY
        each._done = asyncio.get_running_loop().create_future()
    await turns()
    pair._send()
    await other._done
    assert seen == ["one", "other"] * MANY
    pair.close()
    other.close()


async def test_several_messages_at_once_count_as_that_many(ends: tuple[int, int]) -> None:
    pair = Pair(ends)
    pair.copies = 4
    await pair.send(MANY)
    assert len(pair.names) == MANY
    assert max(map(pair.received_in.count, pair.received_in)) == AT_ONCE
    pair.close()


async def test_a_line_may_come_in_pieces(ends: tuple[int, int]) -> None:
    pair = Pair(ends)
    pair._last = 1
    pair._done = asyncio.get_running_loop().create_future()
    await turns()
    for byte in line(7):
        os.write(pair.fd, bytes([byte]))
        await turns(2)
    assert pair.names == [7]
    pair.close()


@pytest.mark.parametrize("how", ["pause", "abort"])
async def test_nothing_is_read_that_nobody_wants_any_more(ends: tuple[int, int], how: str) -> None:
    def stop(number: int) -> None:
        if number == 5:
            pair.connection.abort() if how == "abort" else pair.connection.pause()
            pair.ended(clean=False)

    pair = Pair(ends, stop)
    await pair.send(MANY)
    await turns()
    assert len(pair.names) == 5
    pair.close()


async def test_a_pause_that_is_over_at_once_loses_nothing(ends: tuple[int, int]) -> None:
    def blink(number: int) -> None:
        if number % 5 == 0:
            pair.connection.pause()
            pair.connection.resume()

    pair = Pair(ends, blink)
    await pair.send(MANY)
    assert pair.names == list(range(MANY))
    pair.close()


async def test_the_end_may_be_all_that_there_is_more(ends: tuple[int, int]) -> None:
    def leave(number: int) -> None:
        if number == 5:
            os.close(pair.fd)
            pair.is_silent = True
            pair._last = MANY * MANY

    pair = Pair(ends, leave)
    await pair.send(MANY)
    assert (len(pair.names), pair.ended_clean) == (6, True)
    pair.connection.abort()


async def test_a_peer_that_is_known_to_be_gone_is_read_only_as_far_as_it_came(ends: tuple[int, int]) -> None:
    pair = Pair(ends, lambda number: pair.connection.finish() if number == 1 else None)
    await pair.send(MANY)
    # One was there when that was known, and another came while that one was received.
    assert (pair.names, pair.ended_clean) == ([0, 1], True)
    pair.close()


async def test_a_receiver_that_raises_loses_nothing(ends: tuple[int, int]) -> None:
    def fail(number: int) -> None:
        if number == 5:
            raise ValueError("no")

    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    pair = Pair(ends, fail)
    await pair.send(MANY)
    assert pair.names == list(range(MANY))
    assert len(errors) == 1
    pair.close()
