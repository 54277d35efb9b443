"""A server that dies, and is there again, whichever way leads to it."""

from __future__ import annotations

import asyncio
import signal
from queue import SimpleQueue

import pytest

from mcplumb.client import Change, Missed
from mcplumb.errors import RequestLost
from mcplumb.sync import connect
from tests.everywhere.processes import Process, everywhere, running
from tests.everywhere.words import text
from tests.kit.loop import PATIENCE, run

pytestmark = everywhere


@pytest.mark.req("STR-3")
async def test_a_call_that_died_with_the_server_is_lost(place: str) -> None:
    async with running(place) as process, process.connect() as client:
        await client.list_tools()  # so that the client knows that it is not safe to call this one twice
        call = asyncio.create_task(client.call_tool("hang"))
        await client.call_tool("seen", {"event": "hang began"})
        await process.kill(client)
        with pytest.raises(RequestLost):
            await call


@pytest.mark.req("STR-3")
async def test_what_only_reads_is_asked_again(place: str) -> None:
    async with running(place) as process, process.connect() as client:
        reading = asyncio.create_task(client.read_resource("event://rain"))
        await client.call_tool("seen", {"event": "waiting for rain"})
        await process.kill(client)
        listing = asyncio.create_task(client.list_tools())
        await process.start()
        assert len(await listing) > 20
        await client.call_tool("seen", {"event": "waiting for rain"})
        assert not reading.done()
        await client.notify("notifications/example", {"word": "rain"})
        (contents,) = (await reading).contents
        assert contents.text == "rain was heard"


@pytest.mark.req("STR-3")
async def test_a_subscription_outlives_a_crash(place: str) -> None:
    async with (
        running(place) as process,
        process.connect() as client,
        client.listen(resources=["place://map"]) as changes,
    ):
        await process.kill(client)
        await process.start()
        assert await anext(changes) == Missed()
        await client.call_tool("touch", {"uri": "place://map"})
        assert await anext(changes) == Change("updates", "place://map")


async def test_a_server_that_is_told_to_stop_answers_what_it_has_accepted(place: str) -> None:
    async with running(place) as process, process.connect(restart=False) as client:
        slow = asyncio.create_task(client.call_tool("echo_slowly", {"text": "yes"}))
        await client.call_tool("seen", {"event": "echo began"})
        await process.kill(client, signal.SIGTERM)
        assert text(await slow) == "yes"


def test_blocking_code(place: str) -> None:
    def use(process: Process) -> None:
        logs: SimpleQueue[object] = SimpleQueue()
        with connect(process.target, **process.options, on_log=lambda log: logs.put(log.data)) as client:
            client.set_log_level("info")
            assert text(client.call_tool("count", {"n": 2})) == "counted"
            assert [logs.get(timeout=PATIENCE) for _ in range(2)] == [{"step": 1}, {"step": 2}]

    async def main() -> None:
        async with running(place) as process:
            await asyncio.to_thread(use, process)

    run(main())
