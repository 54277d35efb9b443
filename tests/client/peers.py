"""Servers that a test plays, message by message, on the other end of a connection in memory."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from mcplumb.client.client import Client
from mcplumb.client.connector import connect
from mcplumb.errors import McplumbError
from mcplumb.revisions import LATEST
from mcplumb.transports.connection import Connection
from mcplumb.types.meta import SERVER_INFO, SUBSCRIPTION_ID
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, RequestId, Result
from tests.kit.loop import run

T = TypeVar("T")
Play = Callable[["Peer"], Awaitable[None]]

CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
}


#: Loops that run the first step of a task at once, where Python has them, and those that do not.
LOOPS = [False, True] if sys.version_info >= (3, 12) else [False]


def skip(seconds: float) -> None:
    """Let so much time pass at once, for everything that waits in the event loop."""
    loop = asyncio.get_running_loop()
    real_time = partial(type(loop).time, loop)
    ahead = loop.time() - real_time() + seconds
    vars(loop)["time"] = lambda: real_time() + ahead


def plain(message: Any) -> dict[str, Any]:
    """A message as plain data, as it is on the wire."""
    written: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(message))
    return written


class Peer:
    """Plays one server: ``play`` takes what the client sends, and answers as it likes.

    A connection is served until the client ends it. What went wrong in the play is raised by ``check``. A play that
    still waits for a message when the client has closed the connection is cancelled by the client after a while,
    which is an error, too, unless ``may_be_cancelled``.
    """

    connection: Connection

    def __init__(self, *plays: Play, may_be_cancelled: bool = False) -> None:
        #: One play for each connection, the last one for all that follow.
        self._plays = list(plays)
        self.connections = 0
        self.failure: BaseException | None = None
        self._may_be_cancelled = may_be_cancelled
        self._cancelled: str | None = None
        #: Everything that the client has sent on the current connection.
        self.seen: list[dict[str, Any]] = []
        self._inbox: asyncio.Queue[Message | BadMessage | Batch] = asyncio.Queue()
        self._ended = asyncio.Event()

    async def serve_connection(self, connection: Connection) -> None:
        self.connections += 1
        self.connection = connection
        self.seen = []
        self._inbox = asyncio.Queue()
        self._ended = asyncio.Event()
        connection.start(self)
        try:
            await self._plays.pop(0)(self) if len(self._plays) > 1 else await self._plays[0](self)
            await self._ended.wait()
        except asyncio.CancelledError:
            self._cancelled = f"connection {self.connections}, which has seen {self.seen}"
            raise
        except Exception as error:
            self.failure = error
            raise
        finally:
            await connection.close()

    def check(self) -> None:
        """Raise what went wrong in the play, or that it did not end by itself."""
        self.check_failure()
        if self._cancelled is not None and not self._may_be_cancelled:
            raise AssertionError(f"The play still waited when the client closed {self._cancelled}")

    def check_failure(self) -> None:
        """Raise what went wrong in the play."""
        if self.failure is not None:
            raise self.failure

    # As a receiver

    def received(self, item: Message | BadMessage | Batch) -> None:
        self.seen.append({"batch": [plain(each) for each in item.items]} if isinstance(item, Batch) else plain(item))
        self._inbox.put_nowait(item)

    def ended(self, *, clean: bool) -> None:
        self._ended.set()

    def hung_up(self) -> None:
        """Nothing to do."""

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        raise AssertionError(f"{request_id!r} failed: {error}")

    def broke(self, error: OSError) -> None:
        self._ended.set()

    # As a server

    async def next(self) -> dict[str, Any]:
        """The next message from the client."""
        await self._inbox.get()
        return self.seen[-1 - self._inbox.qsize()]

    async def expect(self, method: str) -> dict[str, Any]:
        """The next message, which has to be of this method."""
        message = await self.next()
        assert message.get("method") == method, message
        return message

    async def expect_answer(self, request_id: int | str) -> dict[str, Any]:
        """The next message, which has to be the answer to a request of the peer's."""
        message = await self.next()
        assert message.get("id") == request_id, message
        assert "method" not in message, message
        return message

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        await self._ended.wait()

    async def leave(self) -> None:
        """Close the connection."""
        await self.connection.close()
        self._ended.set()

    def send(self, message: Message) -> None:
        self.connection.send(message)

    def answer(self, request: dict[str, Any], result: Any) -> None:
        self.send(Result(request["id"], result))

    def refuse(self, request: dict[str, Any], code: int, message: str = "No.", data: Any = UNSET) -> None:
        self.send(Error(request["id"], ErrorDetail(code, message, data)))

    def notify(self, method: str, **params: Any) -> None:
        self.send(Notification(method, params))

    def ask(self, request_id: int | str, method: str, **params: Any) -> None:
        self.send(Request(request_id, method, params))

    def tell(self, subscription: int | str, method: str, **params: Any) -> None:
        """A notification that belongs to a subscription."""
        self.notify(method, _meta={SUBSCRIPTION_ID: subscription}, **params)

    async def discover(self, **result: Any) -> dict[str, Any]:
        """Answer the question with which a modern connection begins."""
        request = await self.expect("server/discover")
        self.answer(request, discovered(**result))
        return request

    async def initialize(self, revision: str, **result: Any) -> dict[str, Any]:
        """Make the handshake of a legacy connection."""
        request = await self.expect("initialize")
        self.answer(request, initialized(revision, **result))
        await self.expect("notifications/initialized")
        return request


def discovered(**result: Any) -> dict[str, Any]:
    return {
        "resultType": "complete",
        "supportedVersions": [str(LATEST)],
        "capabilities": CAPABILITIES,
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {SERVER_INFO: {"name": "peer", "version": "1"}},
        **result,
    }


def initialized(revision: str, **result: Any) -> dict[str, Any]:
    return {
        "protocolVersion": revision,
        "capabilities": CAPABILITIES,
        "serverInfo": {"name": "peer", "version": "1"},
        **result,
    }


def modern(play: Play, *, may_be_cancelled: bool = False) -> Peer:
    """A peer that has been discovered when the play begins."""

    async def whole(peer: Peer) -> None:
        await peer.discover()
        await play(peer)

    return Peer(whole, may_be_cancelled=may_be_cancelled)


def legacy(play: Play, revision: str = "2025-11-25") -> Peer:
    """A peer that has been initialized when the play begins."""

    async def whole(peer: Peer) -> None:
        await peer.initialize(revision)
        await play(peer)

    return Peer(whole)


async def nothing(peer: Peer) -> None:
    """The play of a server that only listens."""


def talk(peer: Peer, body: Callable[[Client], Awaitable[T]], *, eager: bool = False, **options: Any) -> T:
    """Connect to a peer and let the body talk to it; fails if either side does."""
    # Otherwise the client may ask which tools there are, and most peers do not play that.
    options = {"check_output": False, **options}

    async def main() -> T:
        async with connect(peer, **options) as client:
            return await body(client)

    try:
        result = run(main(), eager=eager)
    except BaseException:
        peer.check_failure()
        raise
    peer.check()
    return result


def talk_legacy(play: Play, body: Callable[[Client], Awaitable[T]], revision: str = "2025-11-25", **options: Any) -> T:
    """Let the body talk to a peer in a legacy session of this revision."""
    return talk(legacy(play, revision), body, revisions=[revision], **options)


def talk_in(era: str, play: Play, body: Callable[[Client], Awaitable[T]], **options: Any) -> T:
    """Let the body talk to a peer in either era."""
    return talk(modern(play), body, **options) if era == "modern" else talk_legacy(play, body, **options)


COMPLETE = {"resultType": "complete"}
TEXT = {"content": [{"type": "text", "text": "done"}]}
