"""How it ends, and begins again, whichever way."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from mcplumb import Client
from mcplumb.client import Change, Missed
from mcplumb.errors import Closed, RemoteError, RequestCancelled, RequestLost
from tests.everywhere.ways import WAYS, everywhere, meet
from tests.everywhere.words import text

pytestmark = everywhere


async def test_closing_while_calls_are_open(way: str) -> None:
    async with WAYS[way]() as reach:
        async with reach() as client:
            calls = [asyncio.create_task(client.call_tool("hang")) for _ in range(3)]
            await client.call_tool("seen", {"event": "hang began", "times": 3})
        for call in calls:
            with pytest.raises(RequestCancelled):
                await call
        with pytest.raises(Closed):
            await client.call_tool("add", {"a": 1, "b": 2})
        if not way.startswith("stdio"):  # where each client has a server of its own
            async with reach() as other:
                await other.call_tool("seen", {"event": "hang was cancelled", "times": 3})


async def test_closing_while_listening(way: str) -> None:
    async with WAYS[way]() as reach:
        client = await reach()
        async with client.listen(tools=True) as changes:
            next_change = asyncio.create_task(anext(changes))
            await asyncio.sleep(0)
            await client.close()
            with pytest.raises((Closed, StopAsyncIteration)):
                await next_change
        await client.close()


async def test_one_client_after_the_other(way: str) -> None:
    async with WAYS[way]() as reach:
        for _ in range(3):
            async with reach() as client:
                assert text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"


async def test_clients_at_once_do_not_meet(way: str) -> None:
    async with WAYS[way]() as reach, reach() as one:
        async with reach() as other:
            hanging = asyncio.create_task(one.call_tool("hang"))
            await one.call_tool("seen", {"event": "hang began"})
            assert text(await other.call_tool("add", {"a": 1, "b": 2})) == "3"
            async with (
                one.listen(resources=["place://map"]) as changes,
                other.listen(resources=["place://book"]),
            ):
                await one.call_tool("touch", {"uri": "place://book"})
                await one.call_tool("touch", {"uri": "place://map"})
                assert await anext(changes) == Change("updates", "place://map")
        assert not hanging.done()
        assert text(await one.call_tool("add", {"a": 1, "b": 2})) == "3"
        hanging.cancel()
        await one.call_tool("seen", {"event": "hang was cancelled"})


def test_a_server_that_is_stopped_answers_what_it_has_accepted(way: str) -> None:
    async def body(client: Client) -> None:
        slow = asyncio.create_task(client.call_tool("slow"))
        await client.call_tool("seen", {"event": "slow began"})
        assert text(await client.call_tool("stop")) == "stopped"
        assert text(await slow) == "slow but sure"

    meet(way, body)


def test_a_server_that_was_stopped_is_found_again(way: str) -> None:
    async def body(client: Client) -> None:
        for _ in range(2):
            assert text(await client.call_tool("stop")) == "stopped"
            if way.startswith("memory"):  # whoever stops a server in this very process has no other
                with pytest.raises((Closed, RequestLost)):
                    await _call_until_lost(client)
                return
            assert [tool.name for tool in await client.list_tools()]
            assert (await client.read_resource("place://map")).contents

    meet(way, body)


def test_a_call_that_a_stopping_server_does_not_finish_is_told_so(way: str) -> None:
    async def body(client: Client) -> None:
        hanging = asyncio.create_task(client.call_tool("hang", timeout=None))
        await client.call_tool("seen", {"event": "hang began"})
        await client.call_tool("stop")
        with pytest.raises(RemoteError, match="The server is stopping") as caught:
            await hanging
        assert caught.value.code == -32603

    meet(way, body)


def test_a_subscription_of_a_server_that_is_stopped(way: str) -> None:
    async def body(client: Client) -> None:
        async with client.listen(resources=["place://map"]) as changes:
            await client.call_tool("stop")
            if client.revision.has_listen:  # a server that stops in order says that there will be no news
                with pytest.raises(StopAsyncIteration):
                    await anext(changes)
                return
            if way.startswith("memory"):
                with pytest.raises(Closed):
                    await anext(changes)
                return
            assert await anext(changes) == Missed()
            next_change = asyncio.create_task(anext(changes))
            while not next_change.done():
                # This may be lost, too: the server was told to stop, and does so when it likes.
                with suppress(RequestLost):
                    await client.call_tool("touch", {"uri": "place://map"})
                await asyncio.sleep(0.01)
            assert await next_change == Change("updates", "place://map")

    meet(way, body)


async def _call_until_lost(client: Client) -> None:
    while True:
        await client.call_tool("add", {"a": 1, "b": 2})
