"""A client that a test plays, message by message, against a server in the same event loop."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
import pytest

from mcplumb.errors import McplumbError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.revisions import LATEST, LATEST_LEGACY, LEGACY, REVISIONS, Revision
from mcplumb.server.server import Server
from mcplumb.transports import stdio
from mcplumb.transports.connection import Connection
from mcplumb.transports.fd_connection import StreamConnection
from mcplumb.transports.memory import memory_pair
from mcplumb.transports.stdio import Stdio
from mcplumb.types.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, RequestId, Result
from tests.kit.loop import Watched, turns
from tests.kit.results import text_of

T = TypeVar("T")

#: A message as it is on the wire. Tests take them apart, and a failure to do so is a failure of the test.
Plain: TypeAlias = dict[str, Any]
Id: TypeAlias = int | str

ALL_REVISIONS = list(REVISIONS)
ONE_OF_EACH_ERA = [LATEST, LATEST_LEGACY]
WITH_BATCHES = next(revision for revision in LEGACY if revision.has_batches)

#: A client that can do everything.
ABLE: Plain = {"roots": {}, "sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}}


def plain(message: Any) -> Plain:
    """A message as plain data, as it is on the wire."""
    written: Plain = msgspec.json.decode(msgspec.json.encode(message))
    return written


def modern_meta(capabilities: Plain | None = None) -> Plain:
    """What every modern request carries."""
    return {
        PROTOCOL_VERSION: str(LATEST),
        CLIENT_CAPABILITIES: capabilities or {},
        CLIENT_INFO: {"name": "peer", "version": "1"},
    }


def lines(*requests: Plain) -> bytes:
    """Modern requests as they are on a pipe: each is a method and params; the ids are 0, 1, 2, …"""
    written = [
        {"jsonrpc": "2.0", "id": number, **request, "params": {**request.get("params", {}), "_meta": modern_meta()}}
        for number, request in enumerate(requests)
    ]
    return b"".join(json.dumps(each).encode() + b"\n" for each in written)


def make_server(**options: Any) -> Server:
    """A server that does not wait for what a test leaves unfinished."""
    return Server("test", **{"finish_within": 0, "stop_within": 0, **options})


class Peer(Watched):
    """The client's end of a connection to a server."""

    def __init__(self, connection: Connection, revision: Revision, capabilities: Plain) -> None:
        super().__init__()
        self.connection = connection
        self.revision = revision
        self.capabilities = capabilities
        #: Everything that came; a batch is a list under the key ``batch``.
        self.seen: list[Plain] = []
        #: The part of it that nobody has taken yet.
        self.inbox: list[Plain] = []
        self.has_ended = False
        self.errors: list[OSError] = []
        #: What the server's side came to; set by ``raw_client``.
        self.serving: asyncio.Task[None]
        self.socket: socket.socket | None = None
        self._ids = itertools.count(1)

    # As a receiver

    def received(self, item: Message | BadMessage | Batch) -> None:
        message = {"batch": [plain(each) for each in item.items]} if isinstance(item, Batch) else plain(item)
        self.seen.append(message)
        self.inbox.append(message)
        self._changed.set()

    def ended(self, *, clean: bool) -> None:
        self.has_ended = clean
        self._changed.set()

    def hung_up(self) -> None:
        """Nothing to do."""

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        raise AssertionError(f"{request_id!r} failed: {error}")

    def broke(self, error: OSError) -> None:
        self.errors.append(error)
        self._changed.set()

    # What is sent

    def meta(self, **more: Any) -> Plain:
        """What this client's requests carry in ``_meta``."""
        return modern_meta(self.capabilities) | more if self.revision.is_modern else more

    def message(
        self, method: str, params: Plain | None = None, *, request_id: Id | None = None, meta: Plain | None = None
    ) -> Request:
        """A request of this client's era."""
        metadata = self.meta(**(meta or {}))
        whole = {**(params or {}), **({"_meta": metadata} if metadata else {})}
        return Request(next(self._ids) if request_id is None else request_id, method, whole)

    def post(self, method: str, params: Plain | None = None, **options: Any) -> Id:
        """Send a request, and leave it to the test to wait for what comes."""
        request = self.message(method, params, **options)
        self.connection.send(request)
        return request.id

    def post_call(self, tool: str, arguments: Plain | None = None, **options: Any) -> Id:
        """Send a call of a tool, and leave it to the test to wait for what comes."""
        return self.post("tools/call", {"name": tool, "arguments": arguments or {}}, **options)

    def notify(self, method: str, params: Plain | None = None) -> None:
        self.connection.send(Notification(method, msgspec.UNSET if params is None else params))

    def cancel(self, request_id: Any) -> None:
        self.notify("notifications/cancelled", {"requestId": request_id})

    def reply(self, question: Plain, result: Any) -> None:
        """Answer a request of the server's."""
        self.connection.send(Result(question["id"], result))

    def refuse(self, question: Plain, code: int, message: str, data: Any = msgspec.UNSET) -> None:
        self.connection.send(Error(question["id"], ErrorDetail(code, message, data)))

    def send_line(self, line: bytes) -> None:
        """Send a line that need not be a message."""
        self.connection.send(cast("Message", msgspec.Raw(line)))

    def send_raw(self, data: bytes) -> None:
        """Send bytes that need not even be a line; over a socket only."""
        assert self.socket is not None
        self.socket.sendall(data)

    # What comes

    async def take(self, matches: Callable[[Plain], object]) -> Plain:
        """Take the first message of this kind out of the inbox, now or when it comes."""

        def find() -> list[Plain]:
            return [message for message in self.inbox if matches(message)][:1]

        (found,) = await self.until(find)
        self.inbox.remove(found)
        return found

    async def answer(self, request_id: Id) -> Plain:
        """The response to a request."""
        return await self.take(
            lambda message: (
                "method" not in message and message.get("id") == request_id and type(message["id"]) is type(request_id)
            )
        )

    async def notification(self, method: str) -> Plain:
        """The params of a notification, which may have none."""
        message = await self.take(lambda each: each.get("method") == method and "id" not in each)
        params: Plain = message.get("params", {})
        return params

    async def question(self, method: str | None = None) -> Plain:
        """A request of the server's."""
        return await self.take(lambda each: "id" in each and "method" in each and method in (None, each["method"]))

    async def batch(self) -> list[Plain]:
        """The messages of a batch, by their ids."""
        items: list[Plain] = (await self.take(lambda each: "batch" in each))["batch"]
        return sorted(items, key=lambda each: str(each.get("id")))

    async def request(self, method: str, params: Plain | None = None, **options: Any) -> Plain:
        """The response to a request that is sent now."""
        return await self.answer(self.post(method, params, **options))

    async def result(self, method: str, params: Plain | None = None, **options: Any) -> Plain:
        """The result of a request that is sent now; an error fails the test."""
        response = await self.request(method, params, **options)
        assert "result" in response, response
        result: Plain = response["result"]
        return result

    async def error(self, method: str, params: Plain | None = None, **options: Any) -> Plain:
        """The error that answers a request that is sent now; a result fails the test."""
        response = await self.request(method, params, **options)
        assert "error" in response, response
        error: Plain = response["error"]
        return error

    async def call(self, tool: str, arguments: Plain | None = None, **options: Any) -> Plain:
        """The result of a tool."""
        return await self.result("tools/call", {"name": tool, "arguments": arguments or {}}, **options)

    async def text(self, tool: str, arguments: Plain | None = None, **options: Any) -> str:
        """The text that a tool gives."""
        return text_of(await self.call(tool, arguments, **options))

    async def settled(self) -> None:
        """Wait until the server has dealt with all that it was sent, and this client has read what came of it."""
        for _ in range(2):
            await turns()
            await self.request("tools/list")

    # Beginning and end

    async def initialize(self, **params: Any) -> Plain:
        """Open a legacy session."""
        opened = await self.result(
            "initialize",
            {
                "protocolVersion": str(self.revision),
                "capabilities": self.capabilities,
                "clientInfo": {"name": "peer", "version": "1"},
                **params,
            },
        )
        self.notify("notifications/initialized")
        return opened

    async def served(self) -> None:
        """Wait until the server is through with this connection."""
        await asyncio.shield(self.serving)


@asynccontextmanager
async def raw_client(
    server: Server,
    revision: Revision = LATEST,
    *,
    capabilities: Plain | None = None,
    limits: Limits = DEFAULT_LIMITS,
    opens: bool = True,
) -> AsyncIterator[Peer]:
    """A client of this revision, connected in memory, with its session open if it needs one."""
    ours, theirs = memory_pair(limits=limits)
    peer = Peer(ours, revision, capabilities or {})
    async with _served(server, peer, theirs):
        if opens and not revision.is_modern:
            await peer.initialize()
            peer.seen.clear()
        yield peer


@asynccontextmanager
async def piped_client(
    server: Server, revision: Revision = LATEST, *, capabilities: Plain | None = None
) -> AsyncIterator[tuple[Peer, Callable[[], Awaitable[None]]]]:
    """A raw client over a socket, and a function that ends the client's output while it still listens."""
    ours, theirs = socket.socketpair()
    end = ours.dup()
    peer = Peer(StreamConnection(fd := ours.detach(), fd), revision, capabilities or {})

    peer.socket = end

    async def hang_up() -> None:
        await turns()
        end.shutdown(socket.SHUT_WR)

    with end:
        async with _served(server, peer, StreamConnection(fd := theirs.detach(), fd)):
            if not revision.is_modern:
                await peer.initialize()
                peer.seen.clear()
            yield peer, hang_up


@asynccontextmanager
async def _served(server: Server, peer: Peer, theirs: Connection) -> AsyncIterator[None]:
    peer.serving = asyncio.create_task(server.serve_connection(theirs))
    peer.connection.start(peer)
    try:
        yield
    finally:
        peer.connection.abort()
        await asyncio.wait({peer.serving})
    await peer.serving


class Streams:
    """The other ends of standard input and output, and what the process has of them."""

    def __init__(self, to: int, from_: int) -> None:
        self._to = os.fdopen(to, "wb", buffering=0)
        self._from = from_
        os.set_blocking(from_, False)

    def feed(self, data: bytes) -> None:
        self._to.write(data)

    def end(self) -> None:
        """There is no more input."""
        self._to.close()

    def messages(self) -> list[Plain]:
        """Everything that was written so far."""
        data = b""
        with suppress(BlockingIOError):
            while chunk := os.read(self._from, 65536):
                data += chunk
        return [json.loads(line) for line in data.splitlines()]

    def close(self) -> None:
        self.end()
        os.close(self._from)


@contextmanager
def standard_streams() -> Iterator[Streams]:
    """Pipes in place of standard input and output, given back in the end even by who keeps them for good."""
    taken: list[Stdio] = []

    def take() -> Stdio:
        taken.append(stdio.Stdio())
        return taken[-1]

    saved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in range(2)]
    (inner_input, outer_input), (outer_output, inner_output) = os.pipe(), os.pipe()
    streams = Streams(outer_input, outer_output)
    for inner, fd in ((inner_input, 0), (inner_output, 1)):
        os.dup2(inner, fd)
        os.close(inner)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stdio, "take_stdio", take)
            yield streams
    finally:
        for each in taken:
            each.restore()
        for fd, own in enumerate(saved):
            os.dup2(own, fd)
            os.close(own)
        streams.close()


def methods_in(messages: Sequence[Plain]) -> list[str]:
    """The methods of all requests and notifications among these."""
    return [message["method"] for message in messages if "method" in message]


def progress_in(messages: Sequence[Plain]) -> list[float]:
    """The values of all progress among these, in the order they came."""
    return [each["params"]["progress"] for each in messages if each.get("method") == "notifications/progress"]
