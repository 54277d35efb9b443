"""Connecting and closing from any task, in any order, more than once, with other tasks failing all around."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mcplumb import Client, Closed, McplumbError, UsageError, connect
from tests.kit.loop import debug_loop, run
from tests.launch.harness import ERAS, HASTY_STOP, HASTY_WAITS, Stage, say

BOTH = pytest.mark.parametrize("revision", ERAS)


def connection(stage: Stage, revision: str = ERAS[0], program: str = "good", **options: Any) -> Any:
    return connect(stage.command(program, revisions=[revision], **options), waits=HASTY_WAITS, stop=HASTY_STOP)


async def opened(connecting: Any) -> Client:
    client: Client = await connecting
    return client


@BOTH
@pytest.mark.req("LIF-11")
@debug_loop
async def test_connected_in_one_task_and_closed_in_another(stage: Stage, revision: str) -> None:
    client = await asyncio.create_task(opened(connection(stage, revision)))
    assert await asyncio.create_task(say(client, "echo", text="x")) == "x"
    await asyncio.create_task(client.close())
    with pytest.raises(Closed):
        await client.list_tools()


@BOTH
@pytest.mark.req("LIF-11")
@debug_loop
async def test_closed_twice_and_at_once(stage: Stage, revision: str) -> None:
    client = await connection(stage, revision)
    await asyncio.gather(*(client.close() for _ in range(10)))
    await client.close()
    async with connection(stage, revision) as client:
        await client.close()
    await client.close()


@pytest.mark.req("LIF-11")
@debug_loop
async def test_closed_while_another_close_is_cancelled(stage: Stage) -> None:
    client = await connection(stage, program="stubborn", ignores=["EOF", "TERM"])
    first, second = asyncio.create_task(client.close()), asyncio.create_task(client.close())
    await stage.log.wait_for_event("end of input")
    first.cancel()
    await second
    with pytest.raises(asyncio.CancelledError):
        await first
    assert stage.living() == []


@pytest.mark.req("LIF-11")
async def test_entered_once_only(stage: Stage) -> None:
    connecting = connection(stage)
    async with connecting as client:
        with pytest.raises(UsageError):
            await connecting
        assert await say(client, "echo", text="x") == "x"
    with pytest.raises(UsageError):
        await connecting


def test_a_connection_that_is_never_made_starts_nothing(stage: Stage) -> None:
    async def main() -> None:
        connection(stage)
        await asyncio.sleep(0)

    run(main())
    assert stage.log.pids == []


@BOTH
@pytest.mark.req("LIF-11")
@debug_loop
async def test_many_in_any_order(stage: Stage, revision: str) -> None:
    clients = await asyncio.gather(*(opened(connection(stage, revision)) for _ in range(6)))
    texts = await asyncio.gather(*(say(client, "echo", text=str(index)) for index, client in enumerate(clients)))
    assert texts == [str(index) for index in range(6)]
    for index in (3, 0, 5, 1):
        await clients[index].close()
    assert await say(clients[4], "echo", text="still") == "still"
    await asyncio.gather(clients[2].close(), clients[4].close())


@BOTH
@pytest.mark.req("LIF-11", "LIF-4")
@debug_loop
async def test_in_a_task_group_that_fails(stage: Stage, revision: str) -> None:
    ready = asyncio.Event()

    async def stay() -> None:
        async with connection(stage, revision) as client:
            await say(client, "echo", text="x")
            ready.set()
            await asyncio.Event().wait()

    async def fail() -> None:
        await ready.wait()
        raise KeyError

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(stay())
            group.create_task(fail())

    with pytest.raises(ExceptionGroup) as caught:
        await together()
    assert caught.group_contains(KeyError)
    assert stage.living() == []


@BOTH
@pytest.mark.req("LIF-11")
@debug_loop
async def test_a_client_outlives_the_group_in_which_it_was_connected(stage: Stage, revision: str) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(opened(connection(stage, revision)))
    client = task.result()
    async with asyncio.timeout(60):
        assert await say(client, "echo", text="x") == "x"
    async with asyncio.TaskGroup() as group:
        group.create_task(client.close())


@pytest.mark.req("LIF-11")
@debug_loop
async def test_opened_under_a_timeout_that_is_over_by_now(stage: Stage) -> None:
    async with asyncio.timeout(30):
        client = await connection(stage)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await client.call_tool("hold")
    assert await say(client, "echo", text="x") == "x"
    async with asyncio.timeout(30):
        await client.close()


@pytest.mark.req("LIF-11")
@debug_loop
async def test_closed_while_it_connects(stage: Stage) -> None:
    connecting = connection(stage, program="hanging", silent_on=["*"])
    task = asyncio.create_task(opened(connecting))
    await stage.log.wait_for("server/discover")
    await connecting.__aexit__(None, None, None)
    with pytest.raises(McplumbError, match="closed"):
        await task


@pytest.mark.req("LIF-11")
@debug_loop
async def test_an_async_generator_that_is_not_finished(stage: Stage) -> None:
    async def clients() -> Any:
        async with connection(stage) as client:
            yield client

    generator = clients()
    client = await anext(generator)
    assert await say(client, "echo", text="x") == "x"
    await asyncio.create_task(generator.aclose())
    assert stage.living() == []


@pytest.mark.req("LIF-11", "LIF-4")
@debug_loop
async def test_calls_that_are_cancelled_at_any_moment(stage: Stage) -> None:
    async with connection(stage) as client:
        for turns in range(30):
            task = asyncio.create_task(client.call_tool("echo", {"text": str(turns)}))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert await say(client, "echo", text="x") == "x"


def scenes(stage: Stage) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
    async def once() -> None:
        async with connection(stage) as client:
            assert await say(client, "echo", text="x") == "x"

    async def by_hand() -> None:
        client = await connection(stage)
        await client.close()

    return {"once": once, "by hand": by_hand}


@pytest.mark.req("LIF-11")
@pytest.mark.parametrize("scene", ["once", "by hand"])
def test_one_loop_after_another(stage: Stage, scene: str) -> None:
    for _ in range(3):
        run(scenes(stage)[scene](), debug=True)


if sys.version_info >= (3, 12):

    @pytest.mark.req("LIF-11")
    @debug_loop
    async def test_with_eager_tasks(stage: Stage) -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with connection(stage) as client:
            assert await say(client, "echo", text="x") == "x"
            call = asyncio.create_task(client.call_tool("hold"))
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        client = await connection(stage)
        await asyncio.gather(client.close(), client.close())
