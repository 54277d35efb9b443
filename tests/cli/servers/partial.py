"""A modern server, by hand, that agrees to tell about its tools, or nothing, and then ends the subscription."""

from __future__ import annotations

import json
import sys
from typing import Any

VERSION = "2026-07-28"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "server/discover":
        can = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}
        found = {"supportedVersions": [VERSION], "capabilities": can, "ttlMs": 0, "cacheScope": "private"}
        send(id=request["id"], result={"resultType": "complete", **found})
    elif request.get("method") == "subscriptions/listen":
        meta = {SUBSCRIPTION: request["id"]}
        told = {"_meta": meta, "notifications": {} if "nothing" in sys.argv else {"toolsListChanged": True}}
        send(method="notifications/subscriptions/acknowledged", params=told)
        send(id=request["id"], result={"resultType": "complete", "_meta": meta})
