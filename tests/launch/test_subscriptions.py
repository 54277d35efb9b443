"""Changes of real servers: several subscriptions at once, in both eras, and over crashes."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from mcplumb import McplumbError, connect
from mcplumb.client import Change, Changes, Client, Missed
from mcplumb.protocol.restart import RestartPolicy
from tests.kit.loop import PATIENCE, run, until
from tests.launch.harness import EAGER, ERAS, HASTY_STOP, HASTY_WAITS, MODERN, Stage, say

BOTH = pytest.mark.parametrize("revision", ERAS)
TOOLS, RESOURCES = "notifications/tools/list_changed", "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def connection(stage: Stage, revision: str = MODERN, program: str = "good", **more: Any) -> Any:
    defaults: dict[str, Any] = {"waits": HASTY_WAITS, "stop": HASTY_STOP, "restart": EAGER}
    return connect(stage.command(program, revisions=[revision]), **{**defaults, **more})


async def take(changes: Changes) -> Change | Missed:
    async with asyncio.timeout(PATIENCE):
        return await anext(changes)


async def announce(client: Client, method: str, **arguments: Any) -> None:
    assert await say(client, "change", method=method, **arguments) == "told"


@BOTH
@pytest.mark.req("SUB-3", "SUB-6")
def test_several_subscriptions_at_once(stage: Stage, revision: str) -> None:
    async def main() -> None:
        async with (
            connection(stage, revision) as client,
            client.listen(tools=True) as tools,
            client.listen(resources=["test://one"]) as updates,
            client.listen(tools=True, resources_list=True, resources=["test://one"]) as everything,
        ):
            await announce(client, TOOLS)
            await announce(client, UPDATED, uri="test://one")
            await announce(client, RESOURCES)
            assert await take(tools) == Change("tools")
            assert await take(updates) == Change("updates", "test://one")
            assert [await take(everything) for _ in range(3)] == [
                Change("tools"),
                Change("updates", "test://one"),
                Change("resources"),
            ]
            await announce(client, TOOLS)
            assert await take(tools) == Change("tools")

    run(main())
    if revision == MODERN:
        assert len(stage.log.find("subscriptions/listen")) == 3
        assert len(stage.log.find("notifications/cancelled")) == 3
    else:
        assert len(stage.log.find("resources/subscribe")) == 1
        assert len(stage.log.find("resources/unsubscribe")) == 1


@BOTH
@pytest.mark.req("SUB-4", "SUB-6")
def test_after_a_crash_they_are_opened_again_with_a_mark(stage: Stage, revision: str) -> None:
    async def main() -> None:
        async with (
            connection(stage, revision) as client,
            client.listen(tools=True) as tools,
            client.listen(resources=["test://one"]) as updates,
        ):
            for _ in range(3):
                os.kill(client.process.pid, signal.SIGKILL)
                assert await take(tools) == Missed()
                assert await take(updates) == Missed()
                await announce(client, TOOLS)
                await announce(client, UPDATED, uri="test://one")
                assert await take(tools) == Change("tools")
                assert await take(updates) == Change("updates", "test://one")
            assert client.process.restarts == 3

    run(main())
    for pid in stage.log.pids:
        methods = stage.log.methods(pid)
        if revision == MODERN:
            assert methods.count("subscriptions/listen") == 2
        else:
            assert methods.count("resources/subscribe") == 1


@pytest.mark.req("SUB-4")
@pytest.mark.parametrize(("before", "after"), [ERAS, ERAS[::-1]])
async def test_they_outlive_a_change_of_era(stage: Stage, before: str, after: str) -> None:
    command = stage.command("eras", each=[{"revisions": [before]}, {"revisions": [after]}])
    async with (
        connect(command, waits=HASTY_WAITS, restart=EAGER) as client,
        client.listen(tools=True, resources=["test://one"]) as changes,
    ):
        assert client.process is not None
        assert client.process.pid is not None
        os.kill(client.process.pid, signal.SIGKILL)
        assert await take(changes) == Missed()
        assert str(client.revision) == after
        await announce(client, UPDATED, uri="test://one")
        assert await take(changes) == Change("updates", "test://one")


@BOTH
@pytest.mark.req("SUB-4")
def test_one_that_was_closed_is_not_opened_again(stage: Stage, revision: str) -> None:
    async def main() -> None:
        async with connection(stage, revision) as client:
            async with client.listen(resources=["test://one"]):
                pass
            os.kill(client.process.pid, signal.SIGKILL)
            await until(lambda: client.process.exits, "the exit")
            assert await say(client, "act") == "2"

    run(main())
    second = stage.log.methods(stage.log.pids[1])
    assert not {"subscriptions/listen", "resources/subscribe"} & set(second)


@BOTH
@pytest.mark.req("SUB-4")
def test_one_that_is_closed_while_the_server_is_down(stage: Stage, revision: str) -> None:
    async def main() -> None:
        policy = RestartPolicy(first_wait=0.5, max_wait=0.5, jitter=0.0)
        async with connection(stage, revision, restart=policy) as client:
            async with client.listen(resources=["test://one"]):
                os.kill(client.process.pid, signal.SIGKILL)
                await until(lambda: client.process.exits, "the exit")
            assert await say(client, "act") == "2"

    run(main())
    second = stage.log.methods(stage.log.pids[1])
    assert not {"subscriptions/listen", "resources/subscribe"} & set(second)


@BOTH
@pytest.mark.req("SUB-4")
async def test_without_a_restart_the_consumer_is_told_why_it_ended(stage: Stage, revision: str) -> None:
    async with connection(stage, revision, restart=False) as client, client.listen(tools=True) as changes:
        await announce(client, TOOLS)
        os.kill(client.process.pid, signal.SIGKILL)
        assert await take(changes) == Change("tools")
        with pytest.raises(McplumbError, match="SIGKILL"):
            await take(changes)


@BOTH
@pytest.mark.req("SUB-4", "LIF-11")
async def test_closing_the_client_ends_them(stage: Stage, revision: str) -> None:
    client = await connection(stage, revision)
    async with client.listen(tools=True) as changes:
        waiting = asyncio.create_task(take(changes))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(McplumbError, match="closed"):
            await waiting


@BOTH
async def test_a_slow_consumer_finds_a_mark_and_blocks_nobody(stage: Stage, revision: str) -> None:
    async with (
        connection(stage, revision) as client,
        client.listen(tools=True) as slow,
        client.listen(tools=True) as quick,
    ):
        seen = 0
        for _ in range(30):
            await announce(client, TOOLS, times=100)
            for _ in range(100):
                assert await take(quick) == Change("tools")
                seen += 1
        assert seen == 3000
        assert slow.dropped > 1000
        assert await take(slow) == Missed()
        assert client.stats.dropped >= slow.dropped


async def listen(client: Client, *resources: str) -> None:
    """Listen until there is an end."""
    async with client.listen(tools=True, resources=resources) as changes:
        async for _ in changes:
            pass


@BOTH
@pytest.mark.req("SUB-4", "LIF-11")
async def test_those_that_are_opened_while_the_client_closes_end(stage: Stage, revision: str) -> None:
    for turns in range(12):
        client = await connection(stage, revision)
        listeners = [asyncio.create_task(listen(client, "test://one")) for _ in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await client.close()
        for listener in listeners:
            with pytest.raises(McplumbError):
                await listener


@pytest.mark.req("SUB-4", "SUB-6", "LIF-11")
async def test_one_that_waits_for_another_while_the_client_closes_ends(stage: Stage) -> None:
    client = await connection(stage, ERAS[1])
    async with client.listen(resources=["test://one"]):
        slow = asyncio.create_task(listen(client, "test://slow"))
        await stage.log.wait_for("resources/subscribe", 2)
        same = asyncio.create_task(listen(client, "test://one"))
        await asyncio.sleep(0.01)
        await client.close()
        for listener in (slow, same):
            with pytest.raises(McplumbError, match="closed"):
                await listener


@pytest.mark.req("SUB-6")
async def test_one_that_is_not_answered_blocks_no_other(stage: Stage) -> None:
    async with connection(stage, ERAS[1], timeout=10_000.0) as client:
        async with client.listen(resources=["test://one"]):
            slow = asyncio.create_task(listen(client, "test://slow"))
            await stage.log.wait_for("resources/subscribe", 2)
            async with asyncio.timeout(PATIENCE), client.listen(resources=["test://two"]) as changes:
                await announce(client, UPDATED, uri="test://two")
                assert await take(changes) == Change("updates", "test://two")
        assert not slow.done()
        slow.cancel()
