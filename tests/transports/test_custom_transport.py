"""Connections over carriers: what they have beyond the kit, which they pass."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcplumb import Server, connect
from mcplumb.errors import ConnectError
from mcplumb.limits import Limits
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.testing import Check, Pair, checks
from mcplumb.transports import CarrierConnection, Connection
from mcplumb.wire.message_decoder import BadMessage
from mcplumb.wire.messages import Notification
from tests.kit.loop import Watched, run, turns
from tests.transports.ends import Recorder

#: Messages that fit between two carriers.
ROOM = 10


class Mailbox(Watched):
    """What is on its way to one of two carriers: a few messages, until one of them is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.items: deque[bytes] = deque()
        self.is_open = True

    def change(self) -> None:
        self._changed.set()

    def close(self) -> None:
        self.is_open = False
        self._changed.set()


class Messenger:
    """A carrier in memory. ``log`` has what was called."""

    def __init__(self, inbox: Mailbox, outbox: Mailbox) -> None:
        self.inbox = inbox
        self.outbox = outbox
        self.log: list[str] = []

    async def send(self, message: bytes) -> None:
        await self.outbox.until(lambda: len(self.outbox.items) < ROOM or not self.outbox.is_open)
        if not self.outbox.is_open:
            raise BrokenPipeError("Nobody is there.")
        self.outbox.items.append(message)
        self.outbox.change()

    async def receive(self) -> bytes:
        await self.inbox.until(lambda: self.inbox.items or not self.inbox.is_open)
        self.inbox.change()
        return self.inbox.items.popleft() if self.inbox.items else b""

    async def close(self) -> None:
        self.log.append("close")
        self.inbox.close()
        self.outbox.close()

    def abort(self) -> None:
        self.log.append("abort")
        self.inbox.close()
        self.outbox.close()


def messengers() -> tuple[Messenger, Messenger]:
    one, other = Mailbox(), Mailbox()
    return Messenger(one, other), Messenger(other, one)


@asynccontextmanager
async def messenger_pair() -> AsyncIterator[Pair]:
    first, second = messengers()

    def spoil() -> None:
        second.inbox.items.append(b"no message")
        second.inbox.change()

    yield Pair(CarrierConnection(first), CarrierConnection(second), spoil)


@pytest.mark.req("STR-5")
@pytest.mark.parametrize("check", checks(), ids=str)
def test_the_kit(check: Check) -> None:
    asyncio.run(check(messenger_pair))


@pytest.mark.req("STR-5")
async def test_a_client_and_a_server_over_carriers() -> None:
    server = Server("greeter")

    @server.tool
    async def greet(name: str) -> str:
        return f"Hello, {name}."

    serving: list[asyncio.Task[None]] = []

    async def open_connection() -> Connection:
        ours, theirs = messengers()
        serving.append(asyncio.create_task(server.serve_connection(CarrierConnection(theirs))))
        return CarrierConnection(ours)

    async with connect(open_connection) as client:
        assert (await client.call_tool("greet", {"name": "Ada"})).content
        server.stop()
        assert [tool.name for tool in await client.list_tools()] == ["greet"]
        assert len(serving) == 2
    await asyncio.gather(*serving)


async def test_a_client_releases_a_lost_carrier_before_it_opens_the_next_one() -> None:
    server = Server("greeter")
    carriers: list[Messenger] = []
    logs_at_opening: list[list[str]] = []
    serving: list[asyncio.Task[None]] = []

    async def open_connection() -> Connection:
        logs_at_opening.extend(carrier.log.copy() for carrier in carriers)
        ours, theirs = messengers()
        carriers.append(ours)
        serving.append(asyncio.create_task(server.serve_connection(CarrierConnection(theirs))))
        return CarrierConnection(ours)

    async with connect(open_connection, restart=RestartPolicy(first_wait=0.01, jitter=0)) as client:
        server.stop()
        await serving[0]
        await client.ping()
    await asyncio.gather(*serving)
    assert logs_at_opening == [["abort"]]
    assert [carrier.log for carrier in carriers] == [["abort"], ["close"]]


async def test_a_server_that_cannot_be_reached() -> None:
    async def open_connection() -> Connection:
        raise ConnectionRefusedError("Nobody is there.")

    with pytest.raises(ConnectError, match=r"could not be opened: Nobody is there\."):
        await connect(open_connection)


async def test_line_ends_within_a_message_are_blanks() -> None:
    ours, theirs = messengers()
    connection, side = CarrierConnection(ours), Recorder()
    connection.start(side)
    await theirs.send(b'{\n"jsonrpc": "2.0",\n\r "method": "a"}')
    await side.until_count(1)
    assert side.names == ["a"]
    await connection.close()


async def test_limits_hold() -> None:
    ours, theirs = messengers()
    connection, side = CarrierConnection(ours, limits=Limits(max_line=20)), Recorder()
    connection.start(side)
    await theirs.send(b"x" * 100)
    await side.until_count(1)
    assert isinstance(side.items[0], BadMessage)
    connection.abort()


class Failing(Messenger):
    """A carrier that fails with an error of its own."""

    async def send(self, message: bytes) -> None:
        raise LookupError("The cable is cut.")

    async def receive(self) -> bytes:
        raise LookupError("The cable is cut.")

    async def close(self) -> None:
        await super().close()
        raise ConnectionResetError("It was closed already.")


async def test_any_error_of_a_carrier_is_an_end() -> None:
    carrier = Failing(Mailbox(), Mailbox())
    connection, side = CarrierConnection(carrier), Recorder()
    connection.start(side)
    await side.until_end()
    assert side.ends == [False]
    connection.send(Notification("a"))
    await side.until(lambda: side.errors)
    (error,) = side.errors
    assert str(error) == "LookupError: The cable is cut."
    assert isinstance(error.__cause__, LookupError)
    await connection.close()
    connection.abort()
    assert carrier.log == ["close"]


async def test_the_end_is_told_during_a_pause() -> None:
    ours, theirs = messengers()
    connection, side = CarrierConnection(ours), Recorder()
    connection.start(side)
    connection.pause()
    await theirs.close()
    await side.until(lambda: side.hang_ups)
    await turns()
    assert side.ends == []
    connection.resume()
    await side.until_end()
    assert (side.ends, side.hang_ups) == ([True], 1)
    await connection.close()


async def test_a_receiver_that_raises_loses_no_other_message() -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["exception"]))
    ours, theirs = messengers()
    error = LookupError("a fault in the receiver")
    connection, side = CarrierConnection(ours), Recorder()

    def fail(_: object) -> None:
        if len(side.items) == 2:
            raise error

    side.on_item = fail
    connection.start(side)
    for name in ("a", "b", "c"):
        await theirs.send(b'{"jsonrpc":"2.0","method":"%b"}' % name.encode())
    await side.until_count(3)
    assert (side.names, complaints) == (["a", "b", "c"], [error])
    await connection.close()


class Lingering(Messenger):
    """A carrier that takes its time to close."""

    def __init__(self) -> None:
        super().__init__(Mailbox(), Mailbox())
        self.may_close = asyncio.Event()

    async def close(self) -> None:
        self.log.append("closing")
        await self.may_close.wait()
        await super().close()


@pytest.mark.parametrize("how", ["patience", "abort", "cancel"])
async def test_a_carrier_that_takes_its_time_to_close(how: str) -> None:
    carrier = Lingering()
    connection = CarrierConnection(carrier)
    connection.start(Recorder())
    one, other = asyncio.create_task(connection.close()), asyncio.create_task(connection.close())
    await turns()
    assert not one.done()
    assert not other.done()
    if how == "patience":
        carrier.may_close.set()
    elif how == "abort":
        connection.abort()
    else:
        one.cancel()
    await asyncio.wait([one, other])
    assert one.cancelled() == (how == "cancel")
    await other
    await connection.close()
    connection.abort()
    assert carrier.log == ["closing", "close" if how == "patience" else "abort"]


class Jammed(Messenger):
    """A carrier that cannot be closed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(Mailbox(), Mailbox())
        self.error = error

    async def close(self) -> None:
        self.log.append("closing")
        raise self.error


@pytest.mark.parametrize("error", [OSError("gone"), RuntimeError("of some library")])
def test_a_carrier_that_cannot_be_closed_counts_as_closed(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        carrier = Jammed(error)
        connection = CarrierConnection(carrier)
        connection.start(Recorder())
        await connection.close()
        await connection.close()
        connection.abort()
        assert carrier.log == ["closing"]

    with caplog.at_level(logging.DEBUG, "mcplumb"):
        run(main())
    assert str(error) in caplog.text


def test_the_loop_may_be_gone_before_the_connection() -> None:
    carrier: Messenger | None = None
    connection: CarrierConnection | None = None

    async def main() -> None:
        nonlocal carrier, connection
        carrier, _ = messengers()
        connection = CarrierConnection(carrier)
        connection.start(Recorder())
        for _ in range(2 * ROOM):
            connection.send(Notification("a"))
        await turns()

    asyncio.run(main())
    assert connection is not None
    assert carrier is not None
    connection.abort()
    assert carrier.log == ["abort"]
