"""A client in a process of its own, so that what it takes can be seen: ``python -m tests.attacks.visitor URL``.

It calls a tool, and prints what became of that and the most memory that it has held.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys

from mcpipe import McpipeError, connect
from mcpipe.limits import Limits

LIMITS = Limits(max_line=1_000_000, max_event=1_000_000)


async def main(url: str) -> None:
    try:
        async with connect(url, timeout=10.0, restart=False, limits=LIMITS) as client:
            result = await client.call_tool("echo", {"text": "hello"})
            outcome = f"a result: {result.content}"
    except McpipeError as error:
        outcome = f"{type(error).__name__}: {error}"
    # In kilobytes, or in bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    print(json.dumps({"outcome": outcome, "peak": peak}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
