"""A server that works only while its client rests. It needs nothing that is installed, and starts fast.

It answers whatever comes, until the client says through the socket at the path of the second argument, with one byte,
that it rests. From then on it waits for such a byte, answers all that has come by then with one write, and says with a
byte that it has. When that socket is closed, or without any, it answers whatever comes to the end of its input.

The first argument is how many tools it lists.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from typing import Any

TOOLS, PATHS = int(sys.argv[1]), sys.argv[2:]
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
CACHED = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
ABOUT: dict[str, Any] = {"capabilities": {"tools": {}}}
NAME = {"name": "resting", "version": "1"}
FIXED: dict[str, dict[str, Any]] = {
    "server/discover": {
        "supportedVersions": ["2026-07-28"],
        "_meta": {"io.modelcontextprotocol/serverInfo": NAME},
        **ABOUT,
        **CACHED,
    },
    "initialize": {"protocolVersion": "2025-11-25", "serverInfo": NAME, **ABOUT},
    "tools/list": {"tools": [{"name": f"tool-{number}", "inputSchema": SCHEMA} for number in range(TOOLS)], **CACHED},
}


def main() -> None:
    for path in PATHS:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            while client.fileno() not in select.select([0, client.fileno()], [], [])[0]:
                work()
            while client.recv(1):
                work()
                client.send(b".")
    while work():
        select.select([0], [], [])


def work() -> bool:
    """Answer what is there; False at the end of it."""
    came = b""
    while select.select([0], [], [], 0)[0]:
        chunk = os.read(0, 65536)
        if not chunk:
            return False
        came += chunk
    os.write(1, b"".join(map(answer, came.splitlines())))
    return True


def answer(line: bytes) -> bytes:
    request = json.loads(line)
    params = request.get("params", {})
    if "id" not in request or params.get("name") == "wait" or request["method"] == "subscriptions/listen":
        return b""
    if request["method"] in FIXED:
        result = FIXED[request["method"]]
    else:
        result = {"content": [{"type": "text", "text": params["arguments"]["text"]}], "resultType": "complete"}
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n"


main()
