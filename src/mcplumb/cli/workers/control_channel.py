"""The socket between a worker and its supervisor: what they tell each other, and what a worker does about it.

Each message is MessagePack, after four bytes with its length. The end of the stream means that the other process is
gone: a worker without a supervisor stops.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec

from mcplumb.server.address_host import AddressHost
from mcplumb.server.server import Server
from mcplumb.telemetry.metric_families import Family, text_of

__all__ = ["Channel", "Inherited", "Message", "WorkerEnd", "framed", "worker_channel"]

_logger = logging.getLogger("mcplumb.workers")

_LENGTH_BYTES = 4
#: Seconds for the supervisor to collect what all workers count.
_COLLECT_WITHIN = 3.0


class Inherited(msgspec.Struct, frozen=True):
    """The descriptors that a worker gets from its supervisor, as its command line names them."""

    control: int
    #: Those that listen, for each HTTP address.
    listening: tuple[tuple[int, ...], ...]


class Message(msgspec.Struct, omit_defaults=True):
    """What one process tells the other. Each kind of message has one of these fields, or two."""

    #: From the supervisor, first: the keys with which questions are sealed.
    state_keys: list[bytes] | None = None
    #: From the supervisor: accept no more connections, finish, and exit.
    drain: bool = False
    #: From the worker: it accepts connections, and stops within this many seconds on request.
    ready: float | None = None
    #: From the worker: why it cannot start.
    failed: str | None = None
    #: A question for what is counted, by its number, and the answer.
    asked: int | None = None
    answered: int | None = None
    families: list[Family] | None = None


def framed(message: Message) -> bytes:
    """Return a message as it is sent."""
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(_LENGTH_BYTES) + data


class Channel:
    """One end of the socket, in a running event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, connected: socket.socket) -> Channel:
        """Return a channel on a connected socket, which it closes."""
        return cls(*await asyncio.open_connection(sock=connected))

    def send(self, message: Message) -> None:
        """Send a message. One to a process that is gone is lost."""
        if not self._writer.is_closing():
            self._writer.write(framed(message))

    async def receive(self) -> AsyncIterator[Message]:
        """Return the messages of the other process, until it is gone."""
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES))
                yield msgspec.msgpack.decode(await self._reader.readexactly(length), type=Message)

    def close(self) -> None:
        """Close it, after what was sent."""
        self._writer.close()


@asynccontextmanager
async def worker_channel(inherited: Inherited, server: Server) -> AsyncIterator[WorkerEnd]:
    """Obey the supervisor while the block runs."""
    channel = await Channel.open(socket.socket(fileno=inherited.control))
    end = WorkerEnd(channel, server)
    listening = asyncio.create_task(end.listen())
    try:
        await end.has_keys.wait()
        yield end
        end.send_counts()  # the last ones, which the supervisor keeps
    finally:
        listening.cancel()
        await asyncio.wait((listening,))
        channel.close()


class WorkerEnd:
    """What a worker does about the messages of its supervisor."""

    #: Accepts the connections.
    host: AddressHost

    def __init__(self, channel: Channel, server: Server) -> None:
        self._channel = channel
        self._server = server
        self._is_ready = asyncio.Event()
        self._numbers = itertools.count(1)
        self._texts: dict[int, asyncio.Future[bytes]] = {}
        self._draining: asyncio.Task[None] | None = None
        self.has_keys = asyncio.Event()
        if server._has_metrics:
            server.metrics.collect = self._collect

    def ready(self, _: str) -> None:
        """Tell the supervisor that connections are accepted. Called for each address, when all of them are open."""
        if not self._is_ready.is_set():
            self._is_ready.set()
            self._channel.send(Message(ready=self._server.stop_within))

    def send_counts(self) -> None:
        """Tell the supervisor what was counted so far, if anything is."""
        if self._server._has_metrics:
            self._channel.send(Message(families=self._server.metrics.registry.snapshot()))

    async def listen(self) -> None:
        """Act on each message; stop the server when the supervisor is gone."""
        async for message in self._channel.receive():
            if message.state_keys is not None:
                self._server._offer_state_keys(message.state_keys)
                self.has_keys.set()
            if message.drain and self._draining is None:
                self._draining = asyncio.create_task(self._drain())
            if message.asked is not None:
                families = self._server.metrics.registry.snapshot() if self._server._has_metrics else []
                self._channel.send(Message(answered=message.asked, families=families))
            if message.answered is not None:
                waiting = self._texts.pop(message.answered, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(text_of(message.families or []))
        self.has_keys.set()
        _logger.warning("The supervisor of this worker is gone: the worker stops.")
        self._server.stop()

    async def _drain(self) -> None:
        await self._is_ready.wait()
        await self.host.drain()

    async def _collect(self) -> bytes:
        """Return what all workers count together; of this one alone, if the supervisor does not answer in time."""
        number = next(self._numbers)
        answer = self._texts[number] = asyncio.get_running_loop().create_future()
        self._channel.send(Message(asked=number))
        try:
            return await asyncio.wait_for(answer, _COLLECT_WITHIN)
        except TimeoutError:
            _logger.warning("The supervisor does not answer: /metrics has the numbers of one worker only.")
            return text_of(self._server.metrics.registry.snapshot())
        finally:
            self._texts.pop(number, None)
