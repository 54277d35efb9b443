"""A peer that sends its next message as soon as it has an answer: it is read before the loop turns, within bounds."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from mcpipe.transports.stream import StreamConnection
from tests.transports.ends import Item, Recorder, nothing_left, run, turns

#: More messages than are read before the loop turns.
MANY = 100


@pytest.fixture(autouse=True)
def _no_leak() -> Iterator[None]:
    with nothing_left():
        yield


def line(name: str) -> bytes:
    return b'{"jsonrpc":"2.0","method":"%b"}\n' % name.encode()


def pipe() -> tuple[int, int]:
    return os.pipe()


def socket_pair() -> tuple[int, int]:
    one, other = socket.socketpair()
    return one.detach(), other.detach()


@pytest.fixture(params=[pipe, socket_pair], ids=["pipe", "socket"])
def ends(request: pytest.FixtureRequest) -> tuple[int, int]:
    make: Callable[[], tuple[int, int]] = request.param
    return make()


class Quick:
    """A peer on the other end of a descriptor that sends its next message while the last one is received.

    So it looks to whoever reads when both share a core.
    """

    def __init__(self, read_fd: int, write_fd: int, then: Callable[[int], object] = lambda number: None) -> None:
        self.fd = write_fd
        self.sent = 0
        self.then = then
        self.side = Recorder(self.next)
        self.connection = StreamConnection(read_fd, os.open(os.devnull, os.O_WRONLY))
        self.connection.start(self.side)

    def send(self, count: int = 1) -> None:
        self.sent += 1
        os.write(self.fd, line(f"n{self.sent}") * count)

    def next(self, _: Item) -> None:
        if self.sent < MANY:
            self.send()
        self.then(len(self.side.items))

    async def close(self) -> None:
        os.close(self.fd)
        await self.side.until_end()
        assert self.side.ends == [True]
        self.connection.abort()


async def turn() -> None:
    """One turn of the loop, which has looked at the descriptors."""
    await asyncio.sleep(0)


def test_more_is_read_without_a_turn_of_the_loop_but_not_for_ever(ends: tuple[int, int]) -> None:
    async def main() -> None:
        quick = Quick(*ends)
        quick.send()
        counts = []
        while len(quick.side.items) < MANY:
            counts.append(len(quick.side.items))
            await turn()
        steps = [after - before for before, after in pairwise(counts)]
        assert max(steps) == 16, "others have to get their turn"
        assert quick.side.names == [f"n{number}" for number in range(1, MANY + 1)]
        await quick.close()

    run(main)


def test_one_who_does_not_send_at_once_is_asked_less_and_less_often(ends: tuple[int, int]) -> None:
    async def main() -> None:
        quick = Quick(*ends)
        source = quick.connection._source
        probes = 0
        probe = source._probe  # type: ignore[attr-defined]

        def counted(timeout: int) -> object:
            nonlocal probes
            probes += 1
            return probe(timeout)

        source._probe = counted  # type: ignore[attr-defined]
        quick.sent = MANY
        for number in range(1, 1001):
            quick.send()
            await quick.side.until_count(number)
        assert 15 < probes < 40
        # As soon as it has changed its ways, that is noticed before long.
        quick.sent = 0
        quick.send()
        await quick.side.until_count(1000 + MANY)
        assert probes > 60
        await quick.close()

    run(main)


def test_who_sends_many_at_once_is_not_asked_for_more(ends: tuple[int, int]) -> None:
    async def main() -> None:
        quick = Quick(*ends)
        quick.sent = MANY
        source = quick.connection._source
        source._probe = None  # type: ignore[attr-defined]
        for number in range(1, 11):
            quick.send(2)
            await quick.side.until_count(2 * number)
        os.write(quick.fd, b"  ")
        await turns()
        os.write(quick.fd, b"\n\n")
        await turns()
        await quick.close()

    run(main)


@pytest.mark.parametrize("how", ["pause", "abort", "blink"])
def test_nothing_is_read_that_nobody_wants_any_more(ends: tuple[int, int], how: str) -> None:
    async def main() -> None:
        def stop(number: int) -> None:
            if number == 5:
                quick.connection.abort() if how == "abort" else quick.connection.pause()
                if how == "blink":
                    quick.connection.resume()

        quick = Quick(*ends, stop)
        quick.send()
        await quick.side.until_count(5)
        if how == "blink":
            await quick.side.until_count(MANY)
        else:
            await turns()
            assert len(quick.side.items) == 5
        quick.connection.abort()
        os.close(quick.fd)

    run(main)


def test_the_end_may_be_what_there_is_more(ends: tuple[int, int]) -> None:
    async def main() -> None:
        def leave(number: int) -> None:
            if number == 5:
                quick.sent = MANY
                os.close(quick.fd)

        quick = Quick(*ends, leave)
        quick.send()
        await quick.side.until_end()
        assert (len(quick.side.items), quick.side.ends) == (6, [True])
        quick.connection.abort()

    run(main)


def test_one_that_is_known_to_be_gone_is_read_only_as_far_as_it_came(ends: tuple[int, int]) -> None:
    async def main() -> None:
        quick = Quick(*ends, lambda number: quick.connection.finish() if number == 1 else None)
        quick.send()
        await quick.side.until_end()
        # One was there when it was known, and another came while that was received.
        assert quick.side.names == ["n1", "n2"]
        assert quick.side.ends == [True]
        quick.connection.abort()
        os.close(quick.fd)

    run(main)


def test_a_receiver_that_raises_loses_nothing(ends: tuple[int, int]) -> None:
    async def main() -> None:
        def fail(number: int) -> None:
            if number == 5:
                raise ValueError("no")

        loop = asyncio.get_running_loop()
        errors: list[object] = []
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        quick = Quick(*ends, fail)
        quick.send()
        await quick.side.until_count(MANY)
        assert len(errors) == 1
        await quick.close()

    run(main)
