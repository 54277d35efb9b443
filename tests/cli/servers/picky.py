"""A legacy server that obeys its arguments, each NAME=VALUE:

lock=FILE exits at once while another process of it runs; silent=REVISION never answers an initialize with that
revision; hang=METHOD never answers that method; crash=METHOD exits on it; early=TEXT is written to stderr at the start,
and late=TEXT with each tools/list; modern=COUNT is also a modern server, with that many tools.
"""

from __future__ import annotations

import fcntl
import json
import sys
from pathlib import Path
from typing import Any

KNOWN = ["2025-11-25", "2025-06-18", "2025-03-26"]
GIVEN = dict(word.split("=", 1) for word in sys.argv[1:])
INFO = {"name": "picky", "version": "3"}


def tools(count: int) -> dict[str, Any]:
    return {"tools": [{"name": f"tool_{n}", "inputSchema": {"type": "object"}} for n in range(count)]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    is_modern = "_meta" in params and "modern" in GIVEN
    if method == "initialize":
        asked = params["protocolVersion"]
        if asked == GIVEN.get("silent"):
            return None
        version = asked if asked in KNOWN else KNOWN[0]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": INFO}}
    if method == "server/discover" and is_modern:
        meta = {"io.modelcontextprotocol/serverInfo": INFO}
        found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": meta}
        return {"result": {**found, "resultType": "complete"}}
    if method == "tools/list":
        if "late" in GIVEN:
            sys.stderr.write(f"{GIVEN['late']}\n")
        count = int(GIVEN["modern"]) if is_modern else 3
        return {"result": {**tools(count), "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}}
    if method == "ping":
        return {"result": {}}
    return {"error": {"code": -32601, "message": "Method not found"}}


if "lock" in GIVEN:
    held = Path(GIVEN["lock"]).open("w")  # noqa: SIM115 - held until the process ends
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit("There is another one already.")
if "early" in GIVEN:
    sys.stderr.write(f"{GIVEN['early']}\n")
for line in sys.stdin:
    message = json.loads(line)
    method = message["method"]
    if method == GIVEN.get("crash"):
        sys.exit(7)
    if "id" in message and method != GIVEN.get("hang"):
        reply = answer(method, message.get("params") or {})
        if reply is not None:
            sys.stderr.flush()
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
