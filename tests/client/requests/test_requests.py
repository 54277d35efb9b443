"""Requests that outlive a connection: what is sent again, how often, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb.client.client import Client
from mcplumb.errors import Closed, RequestLost, RequestTimeout, ServerDown
from mcplumb.protocol.restart import MAX_SENDS, RestartPolicy
from tests.client.peers import COMPLETE, TEXT, Peer, Play, nothing, skip
from tests.client.restarting import PATIENT, after_discovery, after_handshake, talk_through
from tests.kit.loop import turns, until


def answering(result: Any) -> Play:
    """A server that answers the first request like this."""

    async def play(peer: Peer) -> None:
        peer.answer(await peer.next(), result)

    return play


async def vanish(peer: Peer) -> None:
    """A server that is lost with the first request that it gets."""
    await peer.next()
    await peer.leave()


def tools(*names: str, **annotations: bool) -> dict[str, Any]:
    return {**COMPLETE, "tools": [{"name": name, "inputSchema": {}, "annotations": annotations} for name in names]}


async def next_start(peer: Peer) -> None:
    """Let time pass until the server was started again."""
    before = peer.connections
    while peer.connections == before:
        await turns(10)
        skip(1)


@pytest.mark.req("LIF-6")
@pytest.mark.parametrize("opened", [after_discovery, after_handshake])
def test_what_only_reads_is_sent_again(opened: Any) -> None:
    peer = Peer(opened(vanish), opened(answering(tools("x"))))

    async def body(client: Client) -> None:
        listing = asyncio.ensure_future(client.list_tools())
        await next_start(peer)
        assert [tool.name for tool in await listing] == ["x"]
        first, second = (each["id"] for each in peer.seen if each.get("method") in _OPENING | {"tools/list"})
        assert first < second

    revisions = None if opened is after_discovery else ["2025-11-25"]
    talk_through(peer, body, **({} if revisions is None else {"revisions": _revisions(*revisions)}))


_OPENING = {"server/discover", "initialize"}


def _revisions(*names: str) -> Any:
    from mcplumb.revisions import allowed_revisions

    return allowed_revisions(names)


@pytest.mark.req("LIF-6")
def test_what_may_have_had_an_effect_is_not() -> None:
    async def again(peer: Peer) -> None:
        # The tool is not known: the client asks whether it may be called twice.
        peer.answer(await peer.expect("tools/list"), tools("x"))

    peer = Peer(after_discovery(vanish), after_discovery(again))

    async def body(client: Client) -> None:
        call = asyncio.ensure_future(client.call_tool("x"))
        await next_start(peer)
        with pytest.raises(RequestLost, match="'x' was answered: whether it took effect is unknown") as caught:
            await call
        assert isinstance(caught.value.__cause__, Closed)

    talk_through(peer, body)


@pytest.mark.req("LIF-6")
@pytest.mark.parametrize("mark", ["readOnlyHint", "idempotentHint"])
@pytest.mark.parametrize("is_known", [True, False])
def test_a_tool_that_is_marked_as_safe_is_called_again(mark: str, is_known: bool) -> None:
    async def first(peer: Peer) -> None:
        if is_known:
            peer.answer(await peer.expect("tools/list"), tools("x", **{mark: True}))
        await vanish(peer)

    async def second(peer: Peer) -> None:
        if not is_known:
            peer.answer(await peer.expect("tools/list"), tools("x", **{mark: True}))
        peer.answer(await peer.expect("tools/call"), TEXT)

    peer = Peer(after_discovery(first), after_discovery(second))

    async def body(client: Client) -> None:
        if is_known:
            await client.list_tools()
        call = asyncio.ensure_future(client.call_tool("x"))
        await next_start(peer)
        assert (await call).content

    talk_through(peer, body)


@pytest.mark.parametrize("answer", ["error", "unknown"])
def test_a_tool_that_nobody_vouches_for_is_not_called_again(answer: str) -> None:
    async def second(peer: Peer) -> None:
        request = await peer.expect("tools/list")
        if answer == "error":
            peer.refuse(request, -32603)
        else:
            peer.answer(request, tools("y", readOnlyHint=True))

    peer = Peer(after_discovery(vanish), after_discovery(second))

    async def body(client: Client) -> None:
        call = asyncio.ensure_future(client.call_tool("x"))
        await next_start(peer)
        with pytest.raises(RequestLost):
            await call

    talk_through(peer, body)


@pytest.mark.req("LIF-6")
def test_the_policy_can_allow_everything() -> None:
    peer = Peer(after_discovery(vanish), after_discovery(answering(TEXT)))

    async def body(client: Client) -> None:
        call = asyncio.ensure_future(client.call_tool("x"))
        await next_start(peer)
        assert (await call).content

    talk_through(peer, body, retry="always")


@pytest.mark.req("LIF-6")
def test_the_policy_can_allow_nothing() -> None:
    peer = Peer(after_discovery(vanish), after_discovery(nothing))

    async def body(client: Client) -> None:
        with pytest.raises(RequestLost):
            await client.list_tools()

    talk_through(peer, body, retry="never")


def test_a_request_that_servers_die_of_is_not_sent_for_ever() -> None:
    peer = Peer(after_discovery(vanish))

    async def body(client: Client) -> None:
        listing = asyncio.ensure_future(client.list_tools())
        while not listing.done():
            await turns()
            skip(1)
        with pytest.raises(RequestLost):
            await listing
        assert peer.connections == MAX_SENDS

    talk_through(peer, body)


@pytest.mark.req("CAN-5")
def test_the_timeout_of_a_request_is_one_for_all_that_it_takes() -> None:
    async def leave(peer: Peer) -> None:
        await peer.expect("tools/list")
        skip(40)
        await peer.leave()

    peer = Peer(after_discovery(leave), after_discovery(nothing))

    async def body(client: Client) -> None:
        listing = asyncio.ensure_future(client.list_tools(timeout=60))
        await next_start(peer)
        await until(lambda: "tools/list" in str(peer.seen))
        skip(10)
        await turns()
        assert not listing.done()
        skip(10)
        with pytest.raises(RequestTimeout, match="not answered in time"):
            await listing

    talk_through(peer, body)


@pytest.mark.req("CAN-5")
def test_whoever_waits_for_the_server_waits_no_longer_than_the_timeout() -> None:
    async def leave(peer: Peer) -> None:
        await peer.leave()

    peer = Peer(after_discovery(leave), after_discovery(nothing))

    async def body(client: Client) -> None:
        await client._supervisor.session.over
        waiting = asyncio.ensure_future(client.list_tools(timeout=5))
        await turns()
        skip(5)
        with pytest.raises(RequestTimeout, match=r"being connected to again\. The server closed the connection"):
            await waiting

    talk_through(peer, body, restart=RestartPolicy(first_wait=10, jitter=0))


def test_what_was_not_sent_is_sent_when_the_server_is_back() -> None:
    async def leave(peer: Peer) -> None:
        await peer.leave()

    async def back(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/call"), TEXT)
        await peer.expect("notifications/x")

    peer = Peer(after_discovery(leave), after_discovery(back))

    async def body(client: Client) -> None:
        await client._supervisor.session.over
        # Never sent, so that sending it cannot be a second time.
        call = asyncio.ensure_future(client.call_tool("x"))
        await next_start(peer)
        assert (await call).content
        await client.notify("notifications/x")
        await turns()

    talk_through(peer, body, retry="never")


@pytest.mark.req("LIF-5")
def test_calls_fail_at_once_while_the_server_is_down_for_good() -> None:
    async def leave(peer: Peer) -> None:
        await peer.leave()

    peer = Peer(after_discovery(leave), after_discovery(leave), after_discovery(answering(TEXT)))

    async def body(client: Client) -> None:
        await next_start(peer)
        await until(lambda: client._supervisor._restarter.fails_fast)
        with pytest.raises(ServerDown, match=r"failed 2 times in a row\. It is connected to again in 60 s") as caught:
            await client.call_tool("x")
        assert isinstance(caught.value.__cause__, Closed)
        with pytest.raises(ServerDown):
            await client.notify("notifications/x")
        skip(60)
        await until(lambda: client._supervisor.session.is_open)
        assert (await client.call_tool("x")).content

    talk_through(peer, body, restart=RestartPolicy(first_wait=1, jitter=0, breaker_after=2))


def test_a_request_that_is_sent_again_says_what_the_new_session_says() -> None:
    """The metadata of one era is not sent to a server of the other."""
    seen: list[Any] = []

    async def old(peer: Peer) -> None:
        request = await peer.expect("server/discover")
        peer.refuse(request, -32601)
        await peer.initialize("2025-11-25")
        listing = await peer.expect("tools/list")
        seen.append(listing["params"])
        peer.answer(listing, {"tools": []})

    peer = Peer(after_discovery(vanish), old)

    async def body(client: Client) -> None:
        listing = asyncio.ensure_future(client.list_tools())
        await next_start(peer)
        await listing
        assert seen == [{}]
        assert not client.revision.is_modern

    talk_through(peer, body, restart=PATIENT)


@pytest.mark.req("CAN-5", "LIF-6")
def test_progress_has_given_a_lost_call_more_time() -> None:
    async def work(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/list"), tools("x", idempotentHint=True))
        request = await peer.expect("tools/call")
        token = request["params"]["_meta"]["progressToken"]
        for step in range(4):
            skip(8)
            peer.notify("notifications/progress", progressToken=token, progress=step)
            await turns()
        await peer.leave()

    async def again(peer: Peer) -> None:
        peer.answer(await peer.expect("tools/call"), TEXT)

    peer = Peer(after_discovery(work), after_discovery(again))

    async def body(client: Client) -> None:
        await client.list_tools()
        call = asyncio.ensure_future(client.call_tool("x", timeout=10, max_timeout=100, on_progress=print))
        await until(lambda: not client._supervisor.session.is_open)
        await next_start(peer)
        assert (await call).content

    talk_through(peer, body)
