"""A server whose completions are all empty, of whatever they are asked for, and which lists nothing."""

from __future__ import annotations

import json
import sys
from typing import Any


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        capabilities: dict[str, Any] = {"completions": {}, "prompts": {}}
        info = {"name": "incomplete", "version": "1"}
        return {
            "result": {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": info}
        }
    if method == "completion/complete":
        return {"result": {"completion": {"values": []}}}
    return {"error": {"code": -32601, "message": "Method not found"}}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        reply = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
