"""Subscriptions, whichever way the news come."""

from __future__ import annotations

import pytest

from mcplumb import Client
from mcplumb.client import Change
from tests.everywhere.ways import everywhere, meet
from tests.everywhere.words import text

pytestmark = everywhere


def test_lists_that_change(way: str) -> None:
    async def body(client: Client) -> None:
        before = [tool.name for tool in await client.list_tools()]
        async with client.listen(tools=True, prompts=True, resources_list=True) as changes:
            await client.call_tool("grow", {"name": "sprout"})
            assert await anext(changes) == Change("tools")
            assert [tool.name for tool in await client.list_tools()] == [*before, "sprout"]
            assert text(await client.call_tool("sprout")) == "I am sprout."
            await client.call_tool("forget_plan")
            assert await anext(changes) == Change("prompts")
            assert await client.list_prompts() == []
            await client.call_tool("open_place", {"name": "rome"})
            assert await anext(changes) == Change("resources")
            assert "place://rome" in [resource.uri for resource in await client.list_resources()]
            await client.call_tool("shrink", {"name": "sprout"})
            assert await anext(changes) == Change("tools")
            assert [tool.name for tool in await client.list_tools()] == before

    meet(way, body)


def test_resources_that_change(way: str) -> None:
    async def body(client: Client) -> None:
        async with client.listen(resources=["place://oslo/now", "place://map"]) as changes:
            for uri in ("place://rome/now", "place://oslo/now", "place://map"):
                await client.call_tool("touch", {"uri": uri})
            assert await anext(changes) == Change("updates", "place://oslo/now")
            assert await anext(changes) == Change("updates", "place://map")

    meet(way, body)


def test_several_subscriptions_at_once(way: str) -> None:
    async def body(client: Client) -> None:
        async with client.listen(resources=["place://map"]) as one:
            async with client.listen(resources=["place://map", "place://book"]) as other:
                await client.call_tool("touch", {"uri": "place://map"})
                assert await anext(one) == await anext(other) == Change("updates", "place://map")
            await client.call_tool("touch", {"uri": "place://book"})
            await client.call_tool("touch", {"uri": "place://map"})
            assert await anext(one) == Change("updates", "place://map")
            with pytest.raises(StopAsyncIteration):
                await anext(other)

    meet(way, body)


def test_a_subscription_that_was_left_can_be_entered_anew(way: str) -> None:
    async def body(client: Client) -> None:
        for _ in range(5):
            async with client.listen(resources=["place://map"]) as changes:
                await client.call_tool("touch", {"uri": "place://map"})
                assert await anext(changes) == Change("updates", "place://map")

    meet(way, body)
