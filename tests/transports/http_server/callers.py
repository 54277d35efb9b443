"""A modern client by hand, over raw HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from mcplumb.revisions import LATEST
from tests.transports.http_server.visits import Answer, Site

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META = {VERSION: LATEST.name, CAPABILITIES: {}}

_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Caller:
    """One modern client. ``headers`` go with each request; those that are None do not."""

    def __init__(self, site: Site, path: str = "/mcp", **headers: str | None) -> None:
        self.site = site
        self.path = path
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    async def call(self, tool: str, *, meta: Any = None, headers: Any = None, **arguments: Any) -> Answer:
        """Call a tool, and read the head of the answer."""
        params = {"name": tool, "arguments": arguments}
        return await self.request("tools/call", params, meta=meta, headers=headers)

    async def begin_call(self, tool: str, *, meta: Any = None, **arguments: Any) -> Answer:
        """Call a tool, and read nothing yet."""
        return await self._begin("tools/call", {"name": tool, "arguments": arguments}, 1, meta, {})

    async def request(
        self, method: str, params: Any = None, *, request_id: Any = 1, meta: Any = None, headers: Any = None
    ) -> Answer:
        """Post a request with all that belongs to it, and read the head of the answer."""
        return await (await self._begin(method, params or {}, request_id, meta, headers or {})).head()

    async def notify(self, method: str, params: Any = None) -> Answer:
        """Post a notification."""
        return await self.post({"jsonrpc": "2.0", "method": method, "params": params or {}}, {"Mcp-Method": method})

    async def post(self, message: Any, headers: Any = None) -> Answer:
        """Post anything."""
        return await (await self._post(message, headers or {})).head()

    async def _begin(self, method: str, params: Any, request_id: Any, meta: Any, headers: Any) -> Answer:
        params = {**params, "_meta": {**META, **(meta or {})}}
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        named = {"Mcp-Name": params[_NAMED[method]]} if method in _NAMED else {}
        return await self._post(message, {"Mcp-Method": method, **named, **headers})

    async def _post(self, message: Any, headers: Any) -> Answer:
        fields = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": LATEST.name,
            **self.headers,
            **headers,
        }
        body = message if isinstance(message, bytes) else msgspec.json.encode(message)
        sent = {name: value for name, value in fields.items() if value is not None}
        return await self.site.begin("POST", self.path, sent, body)


async def error_of(answer: Answer) -> tuple[int, int, Any]:
    """The status, the code of the JSON-RPC error, and the id that came with it."""
    message = await answer.json()
    return answer.status, message["error"]["code"], message.get("id")


def written_call(tool: str, *, meta: Any = None, extra: str = "", **arguments: Any) -> bytes:
    """A call of a tool as it goes over the wire, with ``extra`` lines in its head."""
    params = {"name": tool, "arguments": arguments, "_meta": {**META, **(meta or {})}}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    head = (
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"MCP-Protocol-Version: {LATEST.name}\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
        f"Content-Length: {len(body)}\r\n{extra}\r\n"
    )
    return head.encode() + body
