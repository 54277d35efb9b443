"""A legacy server over stdio that logs numbers after it has answered: messages that belong to no request."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any


def send(**members: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **members}) + "\n")
    sys.stdout.flush()


def chatter(times: int) -> None:
    for number in range(times):
        send(method="notifications/message", params={"level": "warning", "data": number})
        time.sleep(0.02)


for line in sys.stdin:
    request = json.loads(line)
    match request.get("method"):
        case "initialize":
            info = {"name": "chatty", "version": "1"}
            capabilities: dict[str, Any] = {"tools": {}, "logging": {}}
            result = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
            send(id=request["id"], result=result)
        case "tools/call":
            send(id=request["id"], result={"content": []})
            times = request["params"]["arguments"]["times"]
            threading.Thread(target=chatter, args=(times,), daemon=True).start()
        case _ if "id" in request:
            send(id=request["id"], error={"code": -32601, "message": "There is no such method."})
