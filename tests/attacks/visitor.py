"""A client in a process of its own, so that what it takes can be seen: ``python -m tests.attacks.visitor URL``.

It calls a tool, and prints what became of that and the most memory that it has held.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path

from mcplumb import McplumbError, connect
from mcplumb.limits import Limits

LIMITS = Limits(max_line=1_000_000, max_event=1_000_000)


async def main(url: str) -> None:
    try:
        async with connect(url, timeout=10.0, restart=False, limits=LIMITS) as client:
            result = await client.call_tool("echo", {"text": "hello"})
            outcome = f"a result: {result.content}"
    except McplumbError as error:
        outcome = f"{type(error).__name__}: {error}"
    print(json.dumps({"outcome": outcome, "peak": most_memory()}))


def most_memory() -> int:
    """The most bytes that this program has held."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not by getrusage: that has not forgotten how large the process was which has started this one.
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
