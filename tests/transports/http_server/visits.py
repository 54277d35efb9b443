"""A legacy client by hand: raw HTTP over sockets, and what its answers say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from mcplumb import HttpOptions, Server
from mcplumb.transports.address import HttpAddress
from mcplumb.transports.connection import Serve
from mcplumb.transports.http_server.asgi_app import HttpApp
from mcplumb.transports.http_server.uvicorn_server import HttpListener
from mcplumb.wire.server_sent_events import Event, EventDecoder
from tests.kit.loop import PATIENCE

LATEST = "2025-11-25"


class Answer:
    """One HTTP response, read as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = EventDecoder(1_000_000)
        self._events: list[Event] = []
        self.status = 0
        self.headers: dict[str, str] = {}

    async def head(self) -> Answer:
        """Read the status and the headers."""
        async with asyncio.timeout(PATIENCE):
            lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        self.status = int(lines[0].split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        return self

    @property
    def is_stream(self) -> bool:
        """Whether it is one of events."""
        return self.headers.get("content-type") == "text/event-stream"

    async def chunk(self) -> bytes:
        """The next part of the body; nothing at its end."""
        async with asyncio.timeout(PATIENCE):
            if "content-length" in self.headers:
                return await self._reader.readexactly(int(self.headers.pop("content-length")))
            if "transfer-encoding" not in self.headers:
                return b""
            size = int(await self._reader.readline(), 16)
            return (await self._reader.readexactly(size + 2))[:-2]

    async def body(self) -> bytes:
        """All of the body that has not been read."""
        parts = []
        while part := await self.chunk():
            parts.append(part)
        return b"".join(parts)

    async def json(self) -> Any:
        """The body as JSON."""
        assert self.headers["content-type"] == "application/json"
        return msgspec.json.decode(await self.body())

    async def event(self) -> Event | None:
        """The next event; None at the end of the stream."""
        assert self.is_stream, (self.status, self.headers)
        while not self._events:
            part = await self.chunk()
            if not part:
                assert self._decoder.end()
                return None
            for event in self._decoder.feed(part):
                assert isinstance(event, Event)
                self._events.append(event)
        return self._events.pop(0)

    async def message(self) -> Any:
        """The message in the next event that has one; None at the end of the stream."""
        while (event := await self.event()) is not None:
            if event.data:
                return msgspec.json.decode(event.data)
        return None

    async def messages(self) -> list[Any]:
        """All messages until the end of the stream."""
        found = []
        while (message := await self.message()) is not None:
            found.append(message)
        return found

    @property
    def retry(self) -> int | None:
        """How long the stream asked to wait, in milliseconds."""
        return self._decoder.retry

    def leave(self) -> None:
        """Close the connection, whatever is on it."""
        self._writer.transport.abort()


class Site:
    """A server that is being served."""

    #: What serves it, if `serving` does.
    listener: HttpListener

    def __init__(self, address: HttpAddress, app: HttpApp) -> None:
        self.address = address
        self.app = app
        self._open: list[Answer] = []

    async def ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """Send a request on a connection of its own, and read the head of the answer."""
        return await (await self.begin(method, path, headers, body)).head()

    async def begin(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> Answer:
        """Send a request on a connection of its own."""
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port, limit=2**24)
        fields = {"Host": f"{self.address.host}:{self.address.port}", "Content-Length": str(len(body)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        answer = Answer(reader, writer)
        self._open.append(answer)
        return answer

    def leave(self) -> None:
        """Close all connections."""
        for answer in self._open:
            answer.leave()


@asynccontextmanager
async def serving(server: Server, *, serve: Serve | None = None, **options: Any) -> AsyncIterator[Site]:
    """Serve over HTTP, at a port that the system chooses."""
    app = server.asgi(HttpOptions(**options), serve=serve)
    listener = await HttpListener.open(app, HttpAddress("http", "127.0.0.1", 0, "/mcp"))
    site = Site(listener.address, app)
    site.listener = listener
    try:
        yield site
    finally:
        await listener.close()
        site.leave()


class Visitor:
    """One legacy client of Streamable HTTP."""

    def __init__(self, site: Site, **headers: str) -> None:
        self.site = site
        self.headers = dict(headers)
        self._last_id = 0

    async def open(self, revision: str = LATEST, **capabilities: Any) -> Any:
        """Open a session; gives the result."""
        answer = await self.initialize(revision, capabilities)
        assert answer.status == 200
        self.headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        result = (await answer.json())["result"]
        self.headers["MCP-Protocol-Version"] = result["protocolVersion"]
        assert (await self.notify("notifications/initialized")).status == 202
        return result

    async def initialize(self, revision: str = LATEST, capabilities: Any = None) -> Answer:
        """Ask for a session."""
        params = {
            "protocolVersion": revision,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "visitor", "version": "1"},
        }
        return await self.request("initialize", params)

    async def request(self, method: str, params: Any = None, *, request_id: int | str | None = None) -> Answer:
        """Post a request."""
        if request_id is None:
            self._last_id += 1
            request_id = self._last_id
        message = {"jsonrpc": "2.0", "id": request_id, "method": method}
        return await self.post(message if params is None else {**message, "params": params})

    async def call(self, tool: str, *, token: int | None = None, request_id: Any = None, **arguments: Any) -> Answer:
        """Post a call of a tool."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return await self.request("tools/call", params, request_id=request_id)

    async def begin_call(self, tool: str, request_id: Any, **arguments: Any) -> Answer:
        """Post a call of a tool, and do not wait for the head of the answer."""
        params = {"name": tool, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
        return await self._begin(message)

    async def notify(self, method: str, params: Any = None) -> Answer:
        """Post a notification."""
        message = {"jsonrpc": "2.0", "method": method}
        return await self.post(message if params is None else {**message, "params": params})

    async def reply(self, request: Any, result: Any) -> Answer:
        """Post the answer to a request of the server's."""
        return await self.post({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def post(self, message: Any) -> Answer:
        """Post anything."""
        return await (await self._begin(message)).head()

    async def _begin(self, message: Any) -> Answer:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self.headers,
        }
        body = message if isinstance(message, bytes) else msgspec.json.encode(message)
        return await self.site.begin("POST", "/mcp", headers, body)

    async def listen(self, last_event_id: str | None = None) -> Answer:
        """Ask for a stream."""
        headers = {"Accept": "text/event-stream", **self.headers}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        return await self.site.ask("GET", "/mcp", headers)

    async def delete(self) -> Answer:
        """End the session."""
        return await self.site.ask("DELETE", "/mcp", self.headers)
