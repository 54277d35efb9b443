"""A legacy client over Streamable HTTP that is written by hand, so that it can lose connections and resume streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


class Peer:
    """One client. Nothing is retried, and nothing is checked that a test may want to break."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str | None = None) -> None:
        self.http = session
        self.url = url
        self.headers = dict(HEADERS)
        if token is not None:
            self.headers["Authorization"] = f"Bearer {token}"
        self._ids = 0

    async def post(self, message: Any, url: str | None = None) -> aiohttp.ClientResponse:
        return await self.http.post(url or self.url, json=message, headers=self.headers)

    def request(self, method: str, params: Any = None, **more: Any) -> dict[str, Any]:
        self._ids += 1
        return {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params or {}, **more}

    async def ask(self, method: str, params: Any = None) -> Any:
        async with await self.post(self.request(method, params)) as response:
            assert response.status == 200, await response.text()
            if response.content_type == "application/json":
                return await response.json()
            async for _, data in events(response):
                if data and ("result" in data or "error" in data):
                    return data
        raise AssertionError("The stream has ended without an answer.")

    async def call(self, tool: str, **arguments: Any) -> Any:
        answer = await self.ask("tools/call", {"name": tool, "arguments": arguments})
        return answer["result"]["content"][0]["text"]

    async def open(self, revision: str = "2025-11-25", **capabilities: Any) -> None:
        params = {
            "protocolVersion": revision,
            "capabilities": capabilities,
            "clientInfo": {"name": "t", "version": "1"},
        }
        async with await self.post(self.request("initialize", params)) as response:
            assert response.status == 200, await response.text()
            self.headers["Mcp-Session-Id"] = response.headers["Mcp-Session-Id"]
            self.headers["MCP-Protocol-Version"] = revision
        async with await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}) as response:
            assert response.status == 202

    async def get(self, last: str | None = None, url: str | None = None) -> aiohttp.ClientResponse:
        headers = {**self.headers, **({} if last is None else {"Last-Event-ID": last})}
        return await self.http.get(url or self.url, headers=headers)


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str | None, Any]]:
    """The id and the message of each event."""
    event_id, data = None, ""
    async for line in response.content:
        text = line.decode().rstrip("\r\n")
        if text.startswith("id:"):
            event_id = text[3:].strip()
        elif text.startswith("data:"):
            data += text[5:].strip()
        elif not text and (event_id or data):
            yield event_id, json.loads(data) if data else None
            event_id, data = None, ""
