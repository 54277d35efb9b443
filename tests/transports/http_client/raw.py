"""HTTP servers by hand, byte for byte: what the tests of the client talk to. And what those tests share."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeAlias

import msgspec

from mcplumb.errors import McplumbError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.http_client.connection_pool import ConnectionPool
from mcplumb.transports.http_client.http_connection import HttpConnection
from mcplumb.transports.http_client.streamable_http import ParamsOf
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.messages import Error, Notification, Request, RequestId, Result
from tests.kit.loop import Watched
from tests.transports.ends import Recorder

LEGACY = "2025-11-25"
MODERN = "2026-07-28"


class Asked:
    """One request that came."""

    def __init__(self, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> None:
        self.method = method
        self.target = target
        self.fields = headers
        self.headers = {name.lower(): value for name, value in headers}
        self.body = body

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def rpc(self) -> str:
        """The method of the message in it; empty if there is none."""
        return str(self.json.get("method", "")) if self.body[:1] == b"{" else ""


class Reply:
    """What a script does with a request: it writes bytes."""

    def __init__(self, writer: asyncio.StreamWriter, request_id: Any) -> None:
        self._writer = writer
        self._id = request_id
        self.is_open = True

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send(self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> None:
        """A whole response."""
        lines = [f"HTTP/1.1 {status} Said"] + [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
        if body:
            lines.append(f"Content-Type: {kind}")
        lines.append(f"Content-Length: {len(body)}")
        await self.raw("\r\n".join([*lines, "", ""]).encode() + body)

    async def result(self, result: Any = None, **headers: str) -> None:
        """The result of what was asked, as JSON."""
        await self.send(200, answer(self._id, result), **headers)

    async def error(self, status: int, code: int = -32600, request_id: Any = ..., **headers: str) -> None:
        answered = self._id if request_id is ... else request_id
        said = {"jsonrpc": "2.0", "id": answered, "error": {"code": code, "message": "No."}}
        await self.send(status, msgspec.json.encode(said), **headers)

    async def stream(self, *events: bytes, **headers: str) -> None:
        """The beginning of a stream, and these events."""
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked"]
        lines += [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
        await self.raw("\r\n".join([*lines, "", ""]).encode())
        await self.events(*events)

    async def events(self, *events: bytes) -> None:
        for event in events:
            await self.raw(b"%x\r\n%b\r\n" % (len(event), event))

    async def end(self) -> None:
        """The orderly end of a stream."""
        await self.raw(b"0\r\n\r\n")

    def cut(self) -> None:
        """The end of the connection."""
        self.is_open = False
        self._writer.close()

    def reset(self) -> None:
        """Abort the connection, without sending what is left."""
        self.is_open = False
        self._writer.transport.abort()


Script: TypeAlias = Callable[[Asked, Reply], Awaitable[None]]


class RawServer(Watched):
    """Runs a script for each request."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.asked: list[Asked] = []
        #: Connections that came, and those of them that are gone.
        self.came = self.gone = 0
        self.port = 0
        self.scheme = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/mcp"

    def of(self, rpc: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.rpc == rpc]

    @property
    def order(self) -> list[str]:
        """What was asked: the methods of messages, and those of HTTP where there was none."""
        return [asked.rpc or asked.method for asked in self.asked]

    async def open(self, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]
        self.scheme = "http" if tls is None else "https"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.came += 1
        try:
            while (asked := await read_request(reader)) is not None:
                self.asked.append(asked)
                self._changed.set()
                reply = Reply(writer, asked.json.get("id") if asked.body and asked.body[:1] == b"{" else None)
                await self._script(asked, reply)
                if not reply.is_open:
                    return
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            return
        finally:
            self._tasks.discard(task)
            self.gone += 1
            self._changed.set()
            writer.transport.abort()


async def read_request(reader: asyncio.StreamReader) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return Asked(method, target, headers, await reader.readexactly(length))


def answer(request_id: Any, result: Any = None) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "result": {} if result is None else result})


def event(data: bytes, *, event_id: str | None = None, retry: int | None = None, name: str | None = None) -> bytes:
    lines = [b"event: " + name.encode()] if name is not None else []
    lines += [b"id: " + event_id.encode()] if event_id is not None else []
    lines += [b"retry: %d" % retry] if retry is not None else []
    return b"\n".join([*lines, b"data: " + data, b"", b""])


def note(method: str, **params: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params})


def ask(request_id: RequestId, method: str = "ping", **params: Any) -> Request:
    """A modern request."""
    return Request(request_id, method, {**params, "_meta": {"io.modelcontextprotocol/protocolVersion": MODERN}})


def cancel(request_id: RequestId) -> Notification:
    return Notification("notifications/cancelled", {"requestId": request_id})


class Heard(Recorder):
    """A receiver that keeps all, failures too."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[RequestId, McplumbError] = {}
        #: The names of what was called, in order.
        self.order: list[str] = []

    @property
    def results(self) -> dict[RequestId, Any]:
        return {item.id: msgspec.json.decode(item.result) for item in self.items if isinstance(item, Result)}

    @property
    def refusals(self) -> dict[Any, int]:
        return {item.id: item.error.code for item in self.items if isinstance(item, Error)}

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        self.order.append("failed")
        self.failures[request_id] = error
        self._changed.set()

    def ended(self, *, clean: bool) -> None:
        self.order.append("ended")
        super().ended(clean=clean)

    def broke(self, error: OSError) -> None:
        self.order.append("broke")
        super().broke(error)

    async def until_result(self, request_id: RequestId) -> Any:
        await self.until(lambda: request_id in self.results)
        return self.results[request_id]

    async def until_failure(self, request_id: RequestId) -> McplumbError:
        await self.until(lambda: request_id in self.failures)
        return self.failures[request_id]


@contextmanager
def crowded() -> Iterator[str]:
    """The address of a server that has more callers than it takes in: nobody else gets a connection to it."""
    with ExitStack() as sockets:
        full = sockets.enter_context(socket.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(8):
            caller = sockets.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        yield f"http://127.0.0.1:{full.getsockname()[1]}/"


class World:
    """A server by hand, a connection to it, and what that received."""

    def __init__(self, server: RawServer, pool: ConnectionPool, connection: HttpConnection, heard: Heard) -> None:
        self.server = server
        self.pool = pool
        self.connection = connection
        self.heard = heard

    async def initialize(self) -> None:
        """Open a legacy session."""
        self.connection.send(Request(0, "initialize", {"protocolVersion": LEGACY}))
        await self.heard.until_result(0)
        self.connection.send(Notification("notifications/initialized"))


@asynccontextmanager
async def world(
    script: Script,
    *,
    limits: Limits = DEFAULT_LIMITS,
    http_sse: bool | None = None,
    params_of: ParamsOf | None = None,
    trace: Trace | None = None,
) -> AsyncIterator[World]:
    server = RawServer(script)
    await server.open()
    pool = ConnectionPool(server.url)
    connection = HttpConnection(pool, limits=limits, http_sse=http_sse, params_of=params_of, trace=trace)
    heard = Heard()
    connection.start(heard)
    try:
        yield World(server, pool, connection, heard)
    finally:
        connection.abort()
        await connection.gone()
        await pool.close()
        await server.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def session(asked: Asked, reply: Reply) -> None:
    """A script: a legacy server without a stream of its own, which answers everything with ``{}``."""
    if asked.rpc == "initialize":
        await reply.result({"protocolVersion": LEGACY}, Mcp_Session_Id="s1")
    elif asked.method == "POST":
        await (reply.result() if "id" in asked.json and asked.rpc else reply.send(202))
    else:
        await reply.send(405)
