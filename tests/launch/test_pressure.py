"""A server that floods, one that does not read, a consumer that is slow: nothing grows, and nobody else waits."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from mcplumb import McplumbError, RequestTimeout, connect
from mcplumb.limits import Limits
from tests.launch.harness import ERAS, HASTY_STOP, HASTY_WAITS, LEGACY, MODERN, Stage, say
from tests.launch.remains import memory

pytestmark = pytest.mark.thorough

BOTH = pytest.mark.parametrize("revision", ERAS)
FLOODS = ["notifications", "unknown", "garbage", "blank"]
MEGABYTE = 1 << 20


def connection(stage: Stage, program: str, options: dict[str, Any], **more: Any) -> Any:
    defaults: dict[str, Any] = {"waits": HASTY_WAITS, "stop": HASTY_STOP, "restart": False, "stderr": "capture"}
    return connect(stage.command(program, **options), **{**defaults, **more})


@BOTH
@pytest.mark.req("FRM-4", "CAN-4")
@pytest.mark.parametrize("what", [*FLOODS, "requests"])
async def test_answers_come_through_a_flood(stage: Stage, what: str, revision: str) -> None:
    options = {"what": what, "after": 1 if revision == MODERN else 2, "revisions": [revision]}
    if what == "requests":
        options["piece"] = 2000  # each of them may be answered
    async with connection(stage, "flooding", options, revisions=[revision]) as client:
        for number in range(20):
            assert await say(client, "echo", text=str(number)) == str(number)
        stats = client.stats
        assert stats.bytes_in > MEGABYTE or what == "requests"
        if what == "garbage":
            assert stats.bad_lines > 1000
        if what == "unknown":
            assert stats.unknown_answers > 1000
        if what == "requests" and revision == MODERN:
            assert stats.violations > 100


@pytest.mark.req("FRM-5")
@pytest.mark.parametrize("what", [*FLOODS, "line"])
async def test_a_flood_is_not_kept(stage: Stage, what: str) -> None:
    seen: list[Any] = []

    async def slow(message: Any) -> None:
        seen.append(message)
        await asyncio.sleep(1)

    options = {"what": what, "bytes": 16 * MEGABYTE, "after": 1}
    limits = Limits(max_line=MEGABYTE)
    async with connection(stage, "flooding", options, on_log=slow, limits=limits, revisions=[MODERN]) as client:
        before = memory()
        assert await say(client, "echo", text="through") == "through"
        assert memory() - before < 8 * MEGABYTE
        assert client.stats.bytes_in > 16 * MEGABYTE


@pytest.mark.req("FRM-5", "CAN-5")
async def test_a_line_that_never_ends(stage: Stage) -> None:
    async with connection(stage, "flooding", {"what": "line", "after": 1}, revisions=[MODERN]) as client:
        before = memory()
        with pytest.raises(RequestTimeout):
            await client.call_tool("echo", timeout=1.0)
        assert memory() - before < 256 * MEGABYTE  # the usual cap is 64 MiB


@BOTH
@pytest.mark.req("LIF-10", "CAN-5")
async def test_a_server_that_does_not_read(stage: Stage, revision: str) -> None:
    after = 1 if revision == MODERN else 2
    options = {"deaf_after": after, "revisions": [revision]}
    async with connection(stage, "hanging", options, revisions=[revision], timeout=0.3) as client:
        await stage.log.wait_for_event("deaf")
        before = memory()
        text = "x" * 10_000
        results = await asyncio.gather(
            *(client.call_tool("echo", {"text": text}) for _ in range(2000)), return_exceptions=True
        )
        assert all(isinstance(result, RequestTimeout) for result in results)
        # One that waits for a turn has not been written anywhere yet.
        assert memory() - before < 64 * MEGABYTE
        with pytest.raises(RequestTimeout):
            await client.list_tools()
        with pytest.raises(RequestTimeout):
            async with client.listen(resources=["test://one"]):
                pass
        for _ in range(3):
            with contextlib.suppress(McplumbError):
                await client.notify("notifications/own", {"text": text})


@BOTH
@pytest.mark.req("LIF-10", "LIF-2")
async def test_a_server_that_does_not_read_harms_no_other(stage: Stage, revision: str) -> None:
    options = {"deaf_after": 2, "revisions": [revision]}
    async with (
        connection(stage, "hanging", options, revisions=[revision]) as deaf,
        connection(stage, "good", {"revisions": [revision]}) as good,
    ):
        calls = [asyncio.create_task(deaf.call_tool("echo", {"text": "x" * MEGABYTE})) for _ in range(20)]
        for number in range(100):
            assert await say(good, "echo", text=str(number)) == str(number)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


@BOTH
async def test_large_answers_and_many_calls_at_once(stage: Stage, revision: str) -> None:
    async with connection(stage, "good", {"revisions": [revision]}) as client:
        texts = [str(number) + "x" * 200_000 for number in range(50)]
        assert await asyncio.gather(*(say(client, "echo", text=text) for text in texts)) == texts
        numbers = [str(number) for number in range(2000)]
        assert await asyncio.gather(*(say(client, "echo", text=text) for text in numbers)) == numbers


async def test_more_calls_than_may_be_open(stage: Stage) -> None:
    async with connection(stage, "good", {}, limits=Limits(max_in_flight=5)) as client:
        held = [asyncio.create_task(client.call_tool("hold")) for _ in range(4)]
        await stage.log.wait_for_calls("hold", 4)
        numbers = [str(number) for number in range(100)]
        assert await asyncio.gather(*(say(client, "echo", text=text) for text in numbers)) == numbers
        for call in held:
            call.cancel()


async def test_a_slow_handler_blocks_nobody(stage: Stage) -> None:
    async def on_elicit(_: Any) -> None:
        await asyncio.Event().wait()

    options = {"revisions": [LEGACY[-1]]}
    async with connection(stage, "asking", options, on_elicit=on_elicit) as client:
        params = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
        arguments = {"method": "elicitation/create", "params": params}
        asked = [asyncio.create_task(client.call_tool("ask", arguments)) for _ in range(20)]
        for number in range(20):
            assert await say(client, "echo", text=str(number)) == str(number)
        for call in asked:
            call.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def test_nothing_grows_with_the_number_of_calls(stage: Stage) -> None:
    async with connection(stage, "good", {}) as client:

        async def some(count: int) -> None:
            for _ in range(count // 50):
                await asyncio.gather(*(say(client, "echo", text="x") for _ in range(40)))
                given_up = [asyncio.create_task(client.call_tool("hold")) for _ in range(10)]
                await asyncio.sleep(0)
                for call in given_up:
                    call.cancel()
                await asyncio.gather(*given_up, return_exceptions=True)

        await some(2000)
        before = memory()
        await some(10_000)
        assert memory() - before < 8 * MEGABYTE
