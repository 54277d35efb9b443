"""An HTTP server that does to its clients what a test tells it to, in raw bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, Self, TypeAlias

from tests.process.harness import MODERN, Message


class Seen(NamedTuple):
    """A request that came."""

    method: str
    path: str
    #: Names in small letters.
    fields: dict[str, str]
    body: bytes

    @property
    def message(self) -> Message:
        message: Message = json.loads(self.body or b"{}")
        return message

    @property
    def asks(self) -> str:
        """The method of its message."""
        return str(self.message.get("method", ""))


#: As a piece of an answer, this closes the connection.
END = b""
#: What to write in answer to a request, piece by piece, for as long as the client reads.
Script: TypeAlias = Callable[[Seen], Iterable[bytes]]

DISCOVERED: dict[str, Any] = {
    "resultType": "complete",
    "supportedVersions": [MODERN],
    "capabilities": {"tools": {}},
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "hostile", "version": "1"}},
}


def response(status: str = "200 OK", body: bytes = b"", **fields: str) -> bytes:
    """A whole response. An underscore in the name of a field is a hyphen."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def begun(content_type: str, *more: str) -> bytes:
    """The head of a response that ends with its connection."""
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {content_type}", "Connection: close", *more, "", ""]
    return "\r\n".join(lines).encode("latin-1")


def result(seen: Seen, value: object) -> bytes:
    """A good answer."""
    body = json.dumps({"jsonrpc": "2.0", "id": seen.message["id"], "result": value}).encode()
    return response(body=body, Content_Type="application/json")


class Hostile:
    """The server, in this event loop. ``seen`` has all requests that came."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.seen: list[Seen] = []
        #: Connections that came, whether or not with a request.
        self.visits = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._visited, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def _first(self, seen: Seen) -> Iterable[bytes]:
        """What comes before the script: here a good answer to the first question of a modern client."""
        return [result(seen, DISCOVERED)] if seen.asks == "server/discover" else []

    def _visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # Whoever leaves is not missed.
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    self.seen.append(seen := await _request(reader))
                    for piece in self._first(seen) or self._script(seen):
                        if piece == END:
                            return
                        writer.write(piece)
                        await writer.drain()
        finally:
            writer.transport.abort()


async def _request(reader: asyncio.StreamReader) -> Seen:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Seen(method, path, fields, await reader.readexactly(int(fields.get("content-length", 0))))


class Undiscovered(Hostile):
    """A hostile server that does not answer ``server/discover`` by itself: the script gets all requests."""

    def _first(self, seen: Seen) -> Iterable[bytes]:
        return []
