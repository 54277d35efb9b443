"""A server that is stopped and started again while its clients work: none of them notices."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from mcplumb import Client, connect
from mcplumb.protocol.restart import RestartPolicy
from tests.attacks.harness import Target
from tests.kit.loop import PATIENCE
from tests.kit.ports import FreePort
from tests.process.harness import LEGACY, MODERN

CLIENTS = 4
RESTARTS = 3
#: Whoever starts a server again takes a while.
PATIENT = RestartPolicy(first_wait=0.05, max_wait=0.2, breaker_after=10_000)
#: Calls of each client between two restarts.
CALLS = 20


@pytest.mark.thorough
@pytest.mark.req("STR-3", "HTP-3")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
@pytest.mark.parametrize(
    "options",
    [{"revisions": [MODERN]}, {"revisions": [LEGACY[-1]]}, {"http_sse": True}],
    ids=["modern", "legacy", "http with sse"],
)
def test_no_safe_call_fails_while_a_server_is_restarted(
    number: int, options: dict[str, Any], free_port: FreePort
) -> None:
    asyncio.run(asyncio.wait_for(_restarts(number, options, free_port()), PATIENCE * 3))


async def _restarts(number: int, options: dict[str, Any], port: int) -> None:
    path = "/sse" if options.get("http_sse") else "/mcp"
    address = f"http://127.0.0.1:{port}/mcp"
    counts = [0] * CLIENTS
    is_over = asyncio.Event()

    async def work(mine: int) -> None:
        address = f"http://127.0.0.1:{port}{path}"
        async with connect(address, timeout=PATIENCE, restart=PATIENT, **options) as client:
            # Only so does it know which calls are safe.
            await client.list_tools()
            while not is_over.is_set():
                await _call(client, f"{mine}: {counts[mine]}")
                counts[mine] += 1

    async def progress() -> None:
        """Until each has made some more calls."""
        goals = [count + CALLS for count in counts]
        while any(count < goal for count, goal in zip(counts, goals, strict=True)):
            finished = [task for task in workers if task.done()]
            assert not finished, [task.exception() for task in finished]
            await asyncio.sleep(0.01)

    server = await asyncio.to_thread(Target, address)
    workers = [asyncio.create_task(work(mine)) for mine in range(CLIENTS)]
    try:
        await progress()
        for _ in range(RESTARTS):
            await asyncio.to_thread(server.end, number)
            server = await asyncio.to_thread(Target, address)
            await progress()
        is_over.set()
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.to_thread(server.end, signal.SIGKILL)


async def _call(client: Client, text: str) -> None:
    """A call that may be made again: the tool says that it only reads."""
    result = await client.call_tool("echo", {"text": text})
    assert [getattr(block, "text", None) for block in result.content] == [text]
