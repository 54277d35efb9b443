"""Answers that are kept for as long as a server allows, and answers that have to be what their schemas promise."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import Any

import pytest

from mcplumb import ProtocolError, connect
from mcplumb.client import Client, Missed
from tests.kit.loop import run, until
from tests.launch.harness import EAGER, ERAS, HASTY_WAITS, LEGACY, Message, Stage, say

BOTH = pytest.mark.parametrize("revision", ERAS)
WEEK = 7 * 24 * 3600 * 1000
TOOLS = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
SHAPE = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def connection(stage: Stage, options: Message, **more: Any) -> Any:
    return connect(stage.command("good", **options), **{"waits": HASTY_WAITS, "restart": EAGER, **more})


async def ask_for_all(client: Client) -> None:
    await client.list_tools()
    await client.list_prompts()
    await client.list_resources()
    await client.read_resource("test://one")


ALL = ["tools/list", "prompts/list", "resources/list", "resources/read"]


def asked(stage: Stage) -> list[str]:
    return [method for method in stage.log.methods() if method in ALL]


def test_what_may_be_kept_is_asked_for_once(stage: Stage) -> None:
    async def main() -> None:
        async with connection(stage, {"ttl": WEEK}) as client:
            for _ in range(3):
                await ask_for_all(client)

    run(main())
    assert asked(stage) == ALL


@pytest.mark.parametrize("sign", [1, -1])
async def test_a_time_of_hundreds_of_digits_is_a_time_as_any_other(stage: Stage, sign: int) -> None:
    async with connection(stage, {"ttl": sign * int("9" * 400)}) as client:
        for _ in range(2):
            await ask_for_all(client)
    assert asked(stage) == (ALL if sign > 0 else ALL * 2)


@pytest.mark.parametrize(
    ("options", "more"),
    [({"ttl": WEEK}, {"cache": False}), ({"ttl": 0}, {}), ({"ttl": WEEK, "revisions": [LEGACY[-1]]}, {})],
)
def test_what_may_not_be_kept_is_asked_for_again(stage: Stage, options: Message, more: Message) -> None:
    async def main() -> None:
        async with connection(stage, options, **more) as client:
            for _ in range(2):
                await ask_for_all(client)

    run(main())
    assert asked(stage) == ALL * 2


@pytest.mark.req("SUB-3")
def test_a_change_drops_what_was_kept(stage: Stage) -> None:
    async def main() -> None:
        async with (
            connection(stage, {"ttl": WEEK}) as client,
            client.listen(tools=True, resources=["test://one"]) as changes,
        ):
            await ask_for_all(client)
            await say(client, "change", method=TOOLS)
            await anext(changes)
            await ask_for_all(client)
            await say(client, "change", method=UPDATED, uri="test://one")
            await anext(changes)
            await ask_for_all(client)

    run(main())
    assert asked(stage) == [*ALL, "tools/list", "resources/read"]


@pytest.mark.req("LIF-5")
def test_a_restart_drops_what_was_kept(stage: Stage) -> None:
    async def main() -> None:
        async with connection(stage, {"ttl": WEEK}) as client, client.listen(tools=True) as changes:
            await ask_for_all(client)
            os.kill(client.process.pid, signal.SIGKILL)
            assert await anext(changes) == Missed()
            await ask_for_all(client)

    run(main())
    assert asked(stage) == ALL * 2


# What results have to be


@BOTH
async def test_a_result_that_is_not_what_its_schema_promises(stage: Stage, revision: str) -> None:
    options = {"shape": SHAPE, "revisions": [revision]}
    async with connection(stage, options, check_output=True) as client:
        await client.list_tools()
        good = await client.call_tool("shaped", {"value": {"n": 1}})
        assert good.structured_content == {"n": 1}
        for bad in ({"n": "one"}, {}):
            with pytest.raises(ProtocolError, match="shaped"):
                await client.call_tool("shaped", {"value": bad})
        assert await say(client, "echo", text="on") == "on"
    async with connection(stage, options, check_output=False) as client:
        await client.list_tools()
        bad_one = await client.call_tool("shaped", {"value": {"n": "one"}})
        assert bad_one.structured_content == {"n": "one"}


def test_a_schema_is_never_fetched(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"

        async def main() -> None:
            for shape in ({"$ref": address}, {"$schema": address}, {"properties": {"n": {"$ref": address}}}):
                async with connection(stage, {"shape": {"type": "object", **shape}}, check_output=True) as client:
                    await client.list_tools()
                    result = await client.call_tool("shaped", {"value": {"n": 1}})
                    assert result.structured_content == {"n": 1}

        run(main())
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize(
    "shape",
    [
        {"properties": {"n": {"pattern": "^(a+)+$"}}},
        {"allOf": [{"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}] * 20},
        {"properties": {"list": {"uniqueItems": True}}},
    ],
)
async def test_a_schema_that_is_made_to_be_slow_holds_nobody_up(stage: Stage, shape: Message) -> None:
    options = {"shape": {"type": "object", **shape}}
    async with connection(stage, options, check_output=True, timeout=30) as client:
        await client.list_tools()
        value = {"n": "a" * 40 + "b", "list": [{"x": number} for number in range(20_000)]}
        call = asyncio.create_task(client.call_tool("shaped", {"value": value}))
        assert await say(client, "echo", text="on") == "on"
        await asyncio.wait((call,))  # passed or refused, but ended
        call.exception()


@BOTH
async def test_a_tool_that_was_never_listed_is_checked_when_it_is(stage: Stage, revision: str) -> None:
    options = {"shape": SHAPE, "revisions": [revision]}
    async with connection(stage, options, check_output=True) as client:
        await client.call_tool("shaped", {"value": {"n": 1}})
        await until(lambda: len(stage.log.calls("shaped")) == 1, "the call")
        await client.list_tools()
        with pytest.raises(ProtocolError, match="shaped"):
            await client.call_tool("shaped", {"value": {"n": "one"}})
