from __future__ import annotations

import asyncio

import pytest

from mcplumb import Server, connect_all
from mcplumb.client import Change, Missed, ServerChange
from mcplumb.client import group_changes as module
from mcplumb.errors import Closed, ConnectError, UsageError
from mcplumb.revisions import LATEST, LATEST_LEGACY
from tests.kit.loop import turns, until

both_eras = pytest.mark.parametrize("era", [LATEST.name, LATEST_LEGACY.name])


def make() -> Server:
    server = Server("any")
    for number in range(10):
        server.resource(f"test://{number}", name=f"r{number}")(lambda: "x")
    return server


async def test_a_subscription_is_entered_before_it_is_used_and_once() -> None:
    async with connect_all({"a": make()}) as group:
        changes = group.listen(tools=True)
        with pytest.raises(UsageError, match="Enter the changes first"):
            await anext(changes)
        async with changes:
            assert changes.servers == ["a"]
        assert changes.servers == []
        assert [change async for change in changes] == []
        with pytest.raises(UsageError, match="used already"):
            await changes.__aenter__()


@both_eras
async def test_equal_changes_that_wait_are_given_once(era: str) -> None:
    server = make()
    async with (
        connect_all({"a": server}, revisions=[era]) as group,
        group.listen(tools=True, resources=["test://1", "test://2"]) as changes,
    ):
        for number in (1, 2, 1, 1, 2):
            server.resource_changed(f"test://{number}")
        server.add_tool(lambda: "", name="one")
        server.add_tool(lambda: "", name="two")
        await until(lambda: len(changes._queue) == 3, "all kinds of changes")
        await turns()
        assert {await anext(changes) for _ in range(3)} == {
            ServerChange("a", Change("updates", "test://1")),
            ServerChange("a", Change("updates", "test://2")),
            ServerChange("a", Change("tools")),
        }
        assert not changes._queue
        server.resource_changed("test://1")
        assert await anext(changes) == ("a", Change("updates", "test://1"))
        assert changes.dropped == 0


async def test_beyond_the_limit_a_server_loses_its_own_changes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_QUEUED", 3)
    loud, quiet = make(), Server("quiet")
    async with (
        connect_all({"quiet": quiet, "loud": loud}) as group,
        group.listen(prompts=True, resources=[f"test://{number}" for number in range(10)]) as changes,
    ):
        quiet.prompt(name="x")(lambda: "x")
        await until(lambda: changes._queue, "the quiet one")
        for number in range(5):
            loud.resource_changed(f"test://{number}")
        await until(lambda: changes.dropped == 3, "a queue that is full")
        await until(lambda: len(changes._queue) == 3, "what comes after that")
        assert [await anext(changes) for _ in range(3)] == [
            ("quiet", Change("prompts")),
            ("loud", Missed()),
            ("loud", Change("updates", "test://4")),
        ]


async def test_a_server_that_cannot_be_subscribed_to_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    server = make()
    async with connect_all({"a": make(), "b": server}) as group:
        await group["a"].close()
        async with group.listen(tools=True) as changes:
            assert changes.servers == ["b"]
            assert any(it.startswith("The subscription to the server 'a' ended: ") for it in caplog.messages)
            server.add_tool(lambda: "", name="one")
            assert await anext(changes) == ("b", Change("tools"))
            await group["b"].close()
            assert await anext(changes) == ("b", Missed())
            await group.reconnect("b")
            assert await anext(changes) == ("b", Change("tools"))
            await until(lambda: changes.servers == ["b"], "another subscription")
        await group["b"].close()
        with pytest.raises(ConnectError, match="None of the 2 servers could be subscribed to"):
            await group.listen(tools=True).__aenter__()
        await group.remove("b")
        with pytest.raises(Closed, match="Server 'a': "):
            await group.listen(tools=True).__aenter__()
    assert group._listeners == set()


async def test_only_servers_with_a_resource_are_subscribed_to() -> None:
    async with (
        connect_all({"a": make(), "b": Server("b")}) as group,
        group.listen(resources=["test://1"]) as changes,
    ):
        assert changes.servers == ["a"]


async def test_a_resource_that_nobody_has_is_refused() -> None:
    async with connect_all({"a": make(), "b": Server("b")}) as group:
        with pytest.raises(UsageError, match="No server lists 'test://99', or has a template for it"):
            await group.listen(tools=True, resources=["test://1", "test://99"]).__aenter__()
        assert group._listeners == set()


async def test_cancelling_while_it_is_entered_leaves_nothing() -> None:
    async with connect_all({"a": make()}) as group:
        entering = asyncio.create_task(group.listen(tools=True).__aenter__())
        await asyncio.sleep(0)
        entering.cancel()
        await asyncio.wait((entering,))
        assert entering.cancelled()
        assert group._listeners == set()


async def test_cancelling_a_wait_loses_nothing() -> None:
    server = make()
    async with connect_all({"a": server}) as group, group.listen(tools=True) as changes:
        waiting = asyncio.create_task(anext(changes))
        await turns()
        waiting.cancel()
        await asyncio.wait((waiting,))
        server.add_tool(lambda: "", name="one")
        assert await anext(changes) == ("a", Change("tools"))
