"""A server as they were before the modern era, by hand: two tools, and an error for what it does not know.

Asked for the revision that its argument names, it exits.
"""

from __future__ import annotations

import json
import sys

KNOWN = ["2025-06-18", "2025-03-26"]
TOOLS = [
    {"name": "first", "description": "The first.", "inputSchema": {"type": "object"}, "x-unknown": 1},
    {"name": "second", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
]


def answer(method: str, params: dict[str, object]) -> dict[str, object] | None:
    if method == "initialize":
        asked = params.get("protocolVersion")
        if asked in sys.argv[1:]:
            sys.exit(1)
        version = asked if asked in KNOWN else KNOWN[0]
        info = {"name": "old", "version": "0.1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "ping":
        return {}
    if method == "tools/list":
        at = int(str(params.get("cursor", 0)))
        page: dict[str, object] = {"tools": TOOLS[at : at + 1]}
        return page if at + 1 == len(TOOLS) else {**page, "nextCursor": str(at + 1)}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    reply = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
