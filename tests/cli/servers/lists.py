"""A server whose lists are what its argument says: how they should not be."""

from __future__ import annotations

import json
import sys
from typing import Any

MODE = sys.argv[1]
OBJECT = {"type": "object"}
BROKEN: dict[str, Any] = {
    "tools": [
        {"name": "number", "description": 5, "inputSchema": OBJECT},
        {"name": "bare", "title": None},
        {"name": "text", "inputSchema": {"type": "string"}, "outputSchema": []},
        {"inputSchema": {"type": "object", "properties": [], "required": "x"}},
        {"name": "good", "inputSchema": OBJECT},
        {"name": "good", "inputSchema": OBJECT},
    ],
    "resources": [{"uri": "a://b", "mimeType": 7}],
    "prompts": [{"name": "p", "arguments": [{"required": True}]}],
    "resourceTemplates": [{"name": "t"}],
    "other": [],
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "lists", "version": "1"}
        return {"result": {"protocolVersion": params["protocolVersion"], "capabilities": {}, "serverInfo": info}}
    if method == "ping":
        return {"result": {}}
    if method == "server/discover" or MODE == "unknown":
        return {"error": {"code": -32601, "message": "Method not found"}}
    keys = {"tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts"}
    key = keys.get(method, "resourceTemplates" if MODE == "broken" else "other")
    pages: dict[str, Any] = {
        "empty": {key: []},
        "circle": {key: [], "nextCursor": "again"},
        "number": {key: [], "nextCursor": 5},
        "none": {},
        "text": {key: "many"},
        "texts": {key: ["one"]},
        "broken": {key: BROKEN[key]},
        "odd": {key: [{"name": 5, "arguments": [7, {"name": "a"}]}, {"name": "good", "arguments": 5, "title": "Good"}]},
    }
    if MODE == "late" and "cursor" in params:
        return {"error": {"code": -32601, "message": "No more"}}
    if MODE == "late":
        return {"result": {key: [{"name": "one"}], "nextCursor": "2"}}
    if MODE == "failing":
        return {"error": {"code": -32603, "message": f"No {key} today"}}
    return {"result": pages[MODE]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        reply = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
