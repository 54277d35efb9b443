"""Our client with a server of others in a process, which has to be gone afterwards, with all that it started."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcplumb import Client, connect
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.types.content import TextContent
from mcplumb.types.tools import CallToolResult
from tests.interop.environments import run
from tests.interop.tapping import tapped

LEGACY = "2025-11-25"
MODERN = "2026-07-28"

#: Seconds for all of a visit.
VISIT_SECONDS = 60

#: A server that leaves when it is asked to has as long as it needs.
POLITE = StopLadder(close_wait=30)
#: One that does not is told to soon.
IMPATIENT = StopLadder(close_wait=0.3)

MARK = "INTEROPMARK"


@asynccontextmanager
async def visiting(
    command: Sequence[str],
    *,
    env: dict[str, str] | None = None,
    stop: StopLadder = POLITE,
    seconds: float = VISIT_SECONDS,
    **options: Any,
) -> AsyncIterator[Client]:
    """Connect to a server, and fail if a process is left at the end, or if all of it takes longer than this."""
    mark = uuid.uuid4().hex
    try:
        async with asyncio.timeout(seconds):
            async with connect(tapped(command), env={MARK: mark, **(env or {})}, stop=stop, **options) as client:
                assert processes_with(mark)
                yield client
    finally:
        left = processes_with(mark)
        assert left == [], f"These are left: {left}"


def processes_with(mark: str) -> list[str]:
    """The command lines of the living processes that have inherited the mark, wherever they are now."""
    wanted = f"{MARK}={mark}"
    if not Path("/proc/self/environ").exists():
        return [line for line in run("ps", "-axEww", "-o", "command=").splitlines() if wanted in line]
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # It has just ended, or is somebody else's.
    return found


def said(result: CallToolResult) -> str:
    """The text of a result, and whether it is an error."""
    text = "\n".join(block.text for block in result.content if isinstance(block, TextContent))
    return f"error: {text}" if result.is_error else text


async def read(client: Client, uri: str) -> str | None:
    """What a resource holds, which has one part; bytes are in base64."""
    [part] = (await client.read_resource(uri)).contents
    return part.text if part.is_text else part.blob


def pid_of(client: Client) -> int:
    assert client.process is not None
    assert client.process.pid is not None
    return client.process.pid


def complain_not(client: Client) -> None:
    """Everything that came was understood."""
    stats = client.stats
    assert (stats.bad_lines, stats.violations, stats.unknown_answers) == (0, 0, 0)
