"""An HTTP request as an ASGI server would bring it; a test decides when its client reads, and when it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from mcplumb.transports.http_server.request import HttpRequest
from mcplumb.wire.server_sent_events import Event, EventDecoder


class Staged:
    """One request, and what it was answered with. Made in a running event loop."""

    def __init__(self, *, method: str = "POST", query: str = "", root_path: str = "", **headers: str) -> None:
        fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope: dict[str, Any] = {"type": "http", "method": method, "path": f"{root_path}/mcp", "root_path": root_path}
        scope |= {"headers": fields, "query_string": query.encode()}
        self.request = HttpRequest(scope, self._receive, self._send)
        self._body: bytes | None = None
        self._left = asyncio.Event()
        #: Clear it, and the client reads nothing.
        self.reads = asyncio.Event()
        self.reads.set()
        #: Set when the head of the answer has come.
        self.answered = asyncio.Event()
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.data = b""
        self.is_complete = False

    def bring(self, body: bytes) -> Staged:
        """Give the request a body."""
        self._body = body
        return self

    def leave(self) -> None:
        """The client goes away."""
        self._left.set()

    @property
    def events(self) -> list[Event]:
        """What was read of a stream."""
        events = EventDecoder(10_000_000).feed(self.data)
        return [event for event in events if isinstance(event, Event)]

    async def _receive(self) -> MutableMapping[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: MutableMapping[str, Any]) -> None:
        await self.reads.wait()
        if event["type"] == "http.response.start":
            self.status = event["status"]
            self.answered.set()
            self.headers = {name.decode(): value.decode() for name, value in event["headers"]}
        else:
            self.data += event["body"]
            self.is_complete = not event["more_body"]
