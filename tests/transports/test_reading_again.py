"""A peer that sends its next message as soon as it has an answer: it is read before the loop turns, within bounds."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator

import pytest

from mcpipe.transports.stream import StreamConnection, WatchedSource
from mcpipe.wire.messages import Notification
from tests.transports.ends import Item, nothing_left, run, turns

#: More messages than are read before the loop turns.
MANY = 100
#: That many are.
AT_ONCE = 16


@pytest.fixture(autouse=True)
def _no_leak() -> Iterator[None]:
    with nothing_left():
        yield


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
    """A peer that sends its next message while the last one is received, and the receiver that it sends them to.

    So it looks to a receiver that shares a core with its peer. Nothing but ``then`` gives the loop anything to do.
    """

    def __init__(self, read_fd: int, write_fd: int, then: Callable[[int], object] = lambda number: None) -> None:
        self.fd = write_fd
        self.then = then
        self.left = MANY
        self.names: list[str] = []
        #: At which turn of the loop each of them came.
        self.turns: list[int] = []
        self.probes = 0
        self.turn = 0
        self.quiet = asyncio.get_running_loop().create_future()
        self.ended_clean: bool | None = None
        self.connection = StreamConnection(read_fd, os.open(os.devnull, os.O_WRONLY))
        self.connection.start(self)
        assert isinstance(self.connection._source, WatchedSource)
        self._count_turns()
        self._count_probes(self.connection._source)

    def send(self, count: int = 1) -> None:
        """The next message, which is the last but ``left``, in ``count`` copies."""
        self.left -= 1
        os.write(self.fd, b'{"jsonrpc":"2.0","method":"%d"}\n' % self.left * count)

    async def all(self) -> None:
        """Wait until all have come, or the end."""
        await self.quiet

    async def one(self) -> None:
        """Send one message and no other, and wait until it has come."""
        self.left = 1
        self.quiet = asyncio.get_running_loop().create_future()
        self.send()
        await self.quiet

    def received(self, item: Item) -> None:
        assert isinstance(item, Notification)
        self.names.append(item.method)
        self.turns.append(self.turn)
        if self.left:
            self.send()
        elif not self.quiet.done():
            self.quiet.set_result(None)
        self.then(len(self.names))

    def ended(self, *, clean: bool) -> None:
        self.ended_clean = clean
        if not self.quiet.done():
            self.quiet.set_result(None)

    def hung_up(self) -> None:
        """Nothing to do."""

    def broke(self, error: OSError) -> None:
        raise error

    def _count_turns(self) -> None:
        loop = asyncio.get_running_loop()
        select = loop._selector.select  # type: ignore[attr-defined]

        def counted(timeout: float | None = None) -> object:
            self.turn += 1
            return select(timeout)

        loop._selector.select = counted  # type: ignore[attr-defined]

    def _count_probes(self, source: WatchedSource) -> None:
        probe = source._probe

        def counted(timeout: int) -> object:
            self.probes += 1
            return probe(timeout)

        source._probe = counted


IN_ORDER = [str(number) for number in reversed(range(MANY))]


def test_more_is_read_without_a_turn_of_the_loop_but_not_for_ever(ends: tuple[int, int]) -> None:
    async def main() -> None:
        quick = Quick(*ends)
        quick.send()
        await quick.all()
        assert quick.names == IN_ORDER
        assert max(map(quick.turns.count, quick.turns)) == AT_ONCE
        assert len(set(quick.turns)) <= MANY / AT_ONCE + 2
        quick.connection.abort()
        os.close(quick.fd)

    run(main)


def test_what_follows_from_a_message_comes_before_the_next_message(ends: tuple[int, int]) -> None:
    async def main() -> None:
        seen: list[tuple[str, int]] = []
        loop = asyncio.get_running_loop()

        def then(number: int) -> None:
            seen.append(("message", number))
            if number % 3 == 0:
                loop.call_soon(seen.append, ("follows", number))

        quick = Quick(*ends, then)
        quick.send()
        await quick.all()
        await turns(1)
        for place, (what, number) in enumerate(seen):
            if what == "message" and number % 3 == 0:
                assert seen[place + 1] == ("follows", number)
        assert len(set(quick.turns)) < MANY, "where nothing follows, more is read at once"
        quick.connection.abort()
        os.close(quick.fd)

    run(main)


def test_a_loop_that_does_not_tell_what_it_is_about_to_do_has_to_turn(ends: tuple[int, int]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        agenda = vars(loop).pop("_ready")
        try:
            quick = Quick(*ends)
        finally:
            vars(loop)["_ready"] = agenda
        quick.send()
        await quick.all()
        assert quick.names == IN_ORDER
        assert len(set(quick.turns)) == MANY
        assert quick.probes == 0
        quick.connection.abort()
        os.close(quick.fd)

    class Secretive(asyncio.SelectorEventLoop):
        """Does not tell while a connection is made: there, it only takes its time."""

        _agenda: list[Callable[[], object]]

        def call_soon(self, *args: object, **options: object) -> asyncio.Handle:  # type: ignore[override]
            return super().call_soon(*args, **options)  # type: ignore[arg-type]

    run(main)


def test_a_peer_that_does_not_send_at_once_is_asked_less_and_less_often(ends: tuple[int, int]) -> None:
    async def main() -> None:
        quick = Quick(*ends)
        quick.then = lambda _: None
        for _ in range(1000):
            # Whoever waits for the message is told by a timer, so that the loop has nothing to do at first.
            await slowly(quick)
        assert 15 < quick.probes < 40
        # As soon as it has changed its ways, that is noticed before long.
        quick.left, quick.quiet = MANY, asyncio.get_running_loop().create_future()
        quick.send()
        await quick.all()
        assert len(set(quick.turns[1000:])) < MANY
        quick.connection.abort()
        os.close(quick.fd)

    run(main)
