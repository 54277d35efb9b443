"""What a client knows of its server, and does not ask for again: results that stay fresh, and schemas of tools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb.client.client import Client
from mcplumb.errors import ProtocolError, RemoteError
from mcplumb.types.meta import SUBSCRIPTION_ID
from tests.client.peers import COMPLETE, Peer, legacy, modern, skip, talk
from tests.client.restarting import after_discovery, talk_through
from tests.kit.loop import turns

FRESH = {**COMPLETE, "ttlMs": 60_000, "cacheScope": "private"}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def listed(*names: str, **more: Any) -> dict[str, Any]:
    return {"tools": [{"name": name, "inputSchema": {}, **more} for name in names]}


def called(content: Any) -> dict[str, Any]:
    return {**COMPLETE, "content": [], **({} if content is None else {"structuredContent": content})}


async def names(client: Client) -> list[str]:
    return [tool.name for tool in await client.list_tools()]


# Results that stay fresh


def test_a_list_that_stays_fresh_is_not_asked_for_again() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/list"), {**FRESH, **listed("a"), "nextCursor": "2"})
        peer.answer(await peer.expect("tools/list"), {**FRESH, **listed("b")})
        peer.answer(await peer.expect("tools/list"), {**FRESH, **listed("c")})

    async def body(client: Client) -> None:
        first = await client.list_tools()
        assert await names(client) == ["a", "b"]
        first.clear()
        assert await names(client) == ["a", "b"], "each caller has a list of its own"
        assert [tool.name for tool in (await client.tools_page("2")).tools] == ["b"]
        skip(60)
        assert await names(client) == ["c"]

    talk(modern(play), body)


def test_pages_of_a_list_that_do_not_fit_together_are_forgotten() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/list"), {**FRESH, **listed("a"), "nextCursor": "2"})
        peer.refuse(await peer.expect("tools/list"), -32602)
        peer.answer(await peer.expect("tools/list"), {**FRESH, **listed("b")})

    async def body(client: Client) -> None:
        with pytest.raises(RemoteError):
            await client.list_tools()
        assert await names(client) == ["b"]

    talk(modern(play), body)


@pytest.mark.parametrize("how", ["a change", "a switch", "metadata", "no hint"])
def test_a_list_is_asked_for_again_after(how: str) -> None:
    async def play(peer: Peer) -> None:
        hint = COMPLETE if how == "no hint" else FRESH
        peer.answer(await peer.expect("tools/list"), {**hint, **listed("a")})
        if how == "a change":
            # Nobody listens, and yet it is good to know.
            peer.notify("notifications/tools/list_changed", _meta={SUBSCRIPTION_ID: 99})
        peer.answer(await peer.expect("tools/list"), {**hint, **listed("b")})

    async def body(client: Client) -> None:
        assert await names(client) == ["a"]
        await turns()
        again = await client.list_tools(meta={"x": 1} if how == "metadata" else None)
        assert [tool.name for tool in again] == ["b"]

    talk(modern(play), body, cache=how != "a switch")


def test_a_legacy_server_gives_no_hints() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/list"), listed("a"))
        peer.answer(await peer.expect("tools/list"), listed("b"))

    async def body(client: Client) -> None:
        assert (await names(client), await names(client)) == (["a"], ["b"])

    talk(legacy(play), body, revisions=["2025-11-25"])


def test_a_resource_that_stays_fresh_is_not_read_again_until_it_changes() -> None:
    async def play(peer: Peer) -> None:
        for text in ("one", "two"):
            contents = [{"uri": "a:1", "text": text}]
            peer.answer(await peer.expect("resources/read"), {**FRESH, "contents": contents})

    async def body(client: Client) -> None:
        async def text() -> str | None:
            return (await client.read_resource("a:1")).contents[0].text

        async def updated(uri: str) -> None:
            peer.notify("notifications/resources/updated", uri=uri, _meta={SUBSCRIPTION_ID: 99})
            await turns()

        assert await text() == "one"
        await updated("a:2")
        assert await text() == "one"
        await updated("a:1")
        assert await text() == "two"
        await updated("a:2")
        assert await text() == "two"

    peer = modern(play)
    talk(peer, body)


def test_a_server_that_was_started_again_is_asked_again() -> None:
    async def first(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/list"), {**FRESH, **listed("a")})
        await turns()
        await peer.leave()

    async def second(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/list"), {**FRESH, **listed("b")})

    async def body(client: Client) -> None:
        assert await names(client) == ["a"]
        while peer.connections == 1 or not client._supervisor.session.is_open:
            await turns()
            skip(1)
        assert await names(client) == ["b"]

    peer = Peer(after_discovery(first), after_discovery(second))
    talk_through(peer, body)


# Output schemas


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_result_that_breaks_its_schema_is_refused(is_listed: bool) -> None:
    async def play(peer: Peer) -> None:
        if is_listed:
            peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("x", outputSchema=SCHEMA)})
        peer.answer(await peer.expect("tools/call"), called({"n": "many"}))
        # To see what its schema is, or whether it still is that one.
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("x", outputSchema=SCHEMA)})
        peer.answer(await peer.expect("tools/call"), called({"n": 1}))

    async def body(client: Client) -> None:
        if is_listed:
            await client.list_tools()
        with pytest.raises(ProtocolError, match="'x'"):
            await client.call_tool("x")
        assert (await client.call_tool("x")).structured_content == {"n": 1}

    talk(modern(play), body, check_output=True)


def test_a_result_without_what_the_schema_promises_is_refused() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("x", outputSchema=SCHEMA)})
        peer.answer(await peer.expect("tools/call"), called(None))
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("x", outputSchema=SCHEMA)})

    async def body(client: Client) -> None:
        await client.list_tools()
        with pytest.raises(ProtocolError, match="'x'"):
            await client.call_tool("x")

    talk(modern(play), body, check_output=True)


def test_nothing_is_looked_up_without_need() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/call"), called(None))
        peer.answer(await peer.expect("tools/call"), called({"n": "any"}))
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("y")})
        peer.answer(await peer.expect("tools/call"), called({"n": "any"}))

    async def body(client: Client) -> None:
        for _ in range(3):
            await client.call_tool("x")

    talk(modern(play), body, check_output=True)


def test_tools_that_have_changed_are_looked_up_again() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("x")})
        await turns()  # the caller has it
        peer.notify("notifications/tools/list_changed", _meta={SUBSCRIPTION_ID: 99})
        peer.answer(await peer.expect("tools/call"), called({"n": "many"}))
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("x", outputSchema=SCHEMA)})

    async def body(client: Client) -> None:
        await client.list_tools()
        with pytest.raises(ProtocolError, match="'x'"):
            await client.call_tool("x")

    talk(modern(play), body, check_output=True)


def test_a_schema_that_has_changed_unheard_is_looked_up_before_anything_is_refused() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("x", outputSchema=SCHEMA)})
        peer.answer(await peer.expect("tools/call"), called({"n": "many"}))
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("x", outputSchema={"type": "object"})})

    async def body(client: Client) -> None:
        await client.list_tools()
        assert (await client.call_tool("x")).structured_content == {"n": "many"}

    talk(modern(play), body, check_output=True)


@pytest.mark.parametrize("answer", ["error", "silence"])
def test_a_call_that_has_succeeded_does_not_fail_for_the_want_of_a_list(answer: str) -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/call"), called({"n": 1}))
        request = await peer.expect("tools/list")
        if answer == "error":
            peer.refuse(request, -32601)
            peer.answer(await peer.expect("tools/call"), called({"n": 1}))
        else:
            await turns()
            skip(5)

    async def body(client: Client) -> None:
        assert (await client.call_tool("x", timeout=5)).structured_content == {"n": 1}
        if answer == "error":  # and it is not asked again
            assert (await client.call_tool("x", timeout=5)).structured_content == {"n": 1}

    talk(modern(play), body, check_output=True)


def test_those_who_look_at_once_share_one_list() -> None:
    async def play(peer: Peer) -> None:
        calls = [await peer.expect("tools/call") for _ in range(5)]
        for call in calls:
            peer.answer(call, called({"n": 1}))
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("x", outputSchema=SCHEMA)})

    async def body(client: Client) -> None:
        await asyncio.gather(*(client.call_tool("x") for _ in range(5)))

    talk(modern(play), body, check_output=True)


def test_a_list_that_changes_while_it_is_read_is_not_complete() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("a"), "nextCursor": "2"})
        request = await peer.expect("tools/list")
        peer.notify("notifications/tools/list_changed", _meta={SUBSCRIPTION_ID: 99})
        peer.answer(request, {**COMPLETE, **listed("b")})
        peer.answer(await peer.expect("tools/call"), called({"n": "many"}))
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("a", outputSchema=SCHEMA)})

    async def body(client: Client) -> None:
        assert await names(client) == ["a", "b"]
        with pytest.raises(ProtocolError, match="'a'"):
            await client.call_tool("a")

    talk(modern(play), body, check_output=True)


def test_a_list_is_that_of_one_server() -> None:
    async def first(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("a"), "nextCursor": "2"})
        await peer.expect("tools/list")
        await peer.leave()

    async def second(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("b2")})
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("b1")})

    async def body(client: Client) -> None:
        listing = asyncio.ensure_future(names(client))
        while not listing.done():
            await turns()
            skip(1)
        assert await listing == ["b1"]

    talk_through(Peer(after_discovery(first), after_discovery(second)), body)


def test_checking_can_be_switched_off() -> None:
    async def play(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/list"), {**COMPLETE, **listed("x", outputSchema=SCHEMA)})
        peer.answer(await peer.expect("tools/call"), called({"n": "many"}))

    async def body(client: Client) -> None:
        await client.list_tools()
        assert (await client.call_tool("x")).structured_content == {"n": "many"}

    talk(modern(play), body, check_output=False)
