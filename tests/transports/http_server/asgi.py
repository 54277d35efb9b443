"""What an ASGI server gives to an application, by hand."""

from __future__ import annotations

import asyncio
from typing import Any

from mcplumb.transports.http_server.asgi_request import HttpRequest


class Asgi:
    """One request. ``events`` come in, and then nothing until ``left``; ``sent`` goes out, while ``gate`` is open."""

    def __init__(self, *events: Any, **scope: Any) -> None:
        self.scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": [], **scope}
        self.events = list(events)
        self.sent: list[Any] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.left = asyncio.Event()
        self._has_sent = asyncio.Event()
        #: Raised instead of sending.
        self.error: Exception | None = None
        self.request = HttpRequest(self.scope, self._receive, self._send)

    async def _receive(self) -> Any:
        if not self.events:
            await self.left.wait()
        return self.events.pop(0) if self.events else {"type": "http.disconnect"}

    def come(self, event: Any) -> None:
        """One more event, for somebody who waits for it."""
        self.events.append(event)
        self.left.set()

    async def _send(self, event: Any) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.sent.append(event)
        self._has_sent.set()

    async def sends(self) -> None:
        """Wait until something is sent."""
        self._has_sent.clear()
        async with asyncio.timeout(60):
            await self._has_sent.wait()

    @property
    def body(self) -> bytes:
        """What was sent of the body."""
        return b"".join(event["body"] for event in self.sent if event["type"] == "http.response.body")


def part(data: bytes, *, more: bool = False) -> dict[str, Any]:
    """Some of the body of a request."""
    return {"type": "http.request", "body": data, "more_body": more}


def asking(**headers: str) -> Asgi:
    """A request with these headers, which came over the loopback interface."""
    fields = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    return Asgi(headers=fields, server=("127.0.0.1", 80))


async def turn(times: int = 10) -> None:
    """Let the event loop do what it has to do."""
    for _ in range(times):
        await asyncio.sleep(0)
