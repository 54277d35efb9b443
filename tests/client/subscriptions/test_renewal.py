"""Subscriptions that outlive the connection they were opened on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mcplumb.client.client import Client
from mcplumb.errors import Closed, RemoteError, RequestTimeout
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.protocol.subscription_state import Change, Missed
from mcplumb.revisions import allowed_revisions
from tests.client.peers import Peer, Play, nothing, skip
from tests.client.restarting import after_discovery, after_handshake, talk_through
from tests.kit.loop import turns, until

LEGACY = {"revisions": allowed_revisions(["2025-11-25"])}


async def start_again(peer: Peer) -> None:
    """Lose the server, and let time pass until it was started again."""
    before = peer.connections
    await peer.leave()
    while peer.connections == before:
        await turns()
        skip(1)
    await turns()


async def grant(peer: Peer, *, and_tell: bool = False) -> None:
    request = await peer.expect("subscriptions/listen")
    wanted = request["params"]["notifications"]
    peer.tell(request["id"], "notifications/subscriptions/acknowledged", notifications=wanted)
    if and_tell:
        peer.tell(request["id"], "notifications/tools/list_changed")


async def grant_and_tell(peer: Peer) -> None:
    await grant(peer, and_tell=True)


async def grant_resource(peer: Peer) -> None:
    peer.answer(await peer.expect("resources/subscribe"), {})


def listening(plays: list[Play], body: Callable[[Client, Peer], Awaitable[None]], **options: Any) -> None:
    peer = Peer(*plays)

    async def with_peer(client: Client) -> None:
        await body(client, peer)

    talk_through(peer, with_peer, **options)


@pytest.mark.req("SUB-4")
def test_a_modern_subscription_is_opened_again_and_says_so() -> None:
    async def body(client: Client, peer: Peer) -> None:
        async with client.listen(tools=True) as changes, client.listen(prompts=True) as others:
            await start_again(peer)
            assert await anext(changes) == Missed()
            assert await anext(changes) == Change("tools")
            assert await anext(others) == Missed()
            await start_again(peer)
            assert await anext(changes) == Missed()

    async def both(peer: Peer) -> None:
        await grant(peer)
        await grant(peer)

    async def both_again(peer: Peer) -> None:
        await grant_and_tell(peer)
        await grant(peer)

    listening([after_discovery(both), after_discovery(both_again), after_discovery(both)], body)


@pytest.mark.req("SUB-4", "SUB-6")
def test_a_legacy_subscription_is_opened_again_and_says_so() -> None:
    async def body(client: Client, peer: Peer) -> None:
        async with client.listen(tools=True, resources=["a:1"]) as changes:
            await start_again(peer)
            assert await anext(changes) == Missed()
            peer.notify("notifications/resources/updated", uri="a:1")
            assert await anext(changes) == Change("updates", "a:1")

    async def again(peer: Peer) -> None:
        await grant_resource(peer)
        peer.answer(await peer.expect("resources/unsubscribe"), {})

    listening([after_handshake(grant_resource), after_handshake(again)], body, **LEGACY)


def test_one_that_was_being_opened_is_opened_on_the_next_connection() -> None:
    async def body(client: Client, peer: Peer) -> None:
        entering = asyncio.ensure_future(client.listen(tools=True).__aenter__())
        await until(lambda: "subscriptions/listen" in str(peer.seen))
        await start_again(peer)
        changes = await entering
        assert await anext(changes) == Change("tools"), "nothing can have been missed"
        await changes.__aexit__(None, None, None)

    listening([after_discovery(nothing), after_discovery(grant_and_tell)], body)


def test_one_that_is_refused_the_second_time_has_failed() -> None:
    async def refuse(peer: Peer) -> None:
        peer.refuse(await peer.expect("subscriptions/listen"), -32603, "Not again.")

    async def body(client: Client, peer: Peer) -> None:
        async with client.listen(tools=True) as changes:
            await start_again(peer)
            with pytest.raises(RemoteError, match="Not again"):
                await anext(changes)

    listening([after_discovery(grant), after_discovery(refuse)], body)


def test_one_that_is_not_acknowledged_the_second_time_has_failed() -> None:
    async def body(client: Client, peer: Peer) -> None:
        async with client.listen(tools=True, timeout=30) as changes:
            await start_again(peer)
            skip(30)
            with pytest.raises(RequestTimeout, match="not acknowledged within 30 s"):
                await anext(changes)

    listening([after_discovery(grant), after_discovery(nothing)], body)


def test_one_that_is_lost_while_it_is_opened_again_is_opened_once_more() -> None:
    async def body(client: Client, peer: Peer) -> None:
        async with client.listen(tools=True) as changes:
            await start_again(peer)
            await start_again(peer)
            assert await anext(changes) == Missed()
            assert await anext(changes) == Change("tools")

    listening([after_discovery(grant), after_discovery(nothing), after_discovery(grant_and_tell)], body)


@pytest.mark.parametrize("opened", [after_discovery, after_handshake])
def test_closing_it_while_the_server_is_gone_is_quiet(opened: Any) -> None:
    async def body(client: Client, peer: Peer) -> None:
        async with client.listen(tools=True):
            await turns()  # the server reads the last message of the handshake
            await peer.leave()
            await turns()
        while peer.connections == 1:
            await turns()
            skip(1)
        await turns()
        assert "listen" not in str(peer.seen)

    plays = [opened(grant if opened is after_discovery else nothing), opened(nothing)]
    listening(plays, body, **(LEGACY if opened is after_handshake else {}))


def test_one_that_has_ended_is_not_opened_again() -> None:
    async def finish(peer: Peer) -> None:
        request = await peer.expect("subscriptions/listen")
        wanted = request["params"]["notifications"]
        peer.tell(request["id"], "notifications/subscriptions/acknowledged", notifications=wanted)
        peer.answer(request, {"resultType": "complete"})

    async def body(client: Client, peer: Peer) -> None:
        async with client.listen(tools=True) as changes:
            with pytest.raises(StopAsyncIteration):
                await anext(changes)
            await start_again(peer)
            assert "listen" not in str(peer.seen)
            changes.push(Missed())
            with pytest.raises(StopAsyncIteration):
                await anext(changes)

    listening([after_discovery(finish), after_discovery(nothing)], body)


def test_closing_it_while_it_is_opened_again_cancels_that() -> None:
    async def body(client: Client, peer: Peer) -> None:
        async with client.listen(tools=True):
            await start_again(peer)
            request = next(each for each in peer.seen if each["method"] == "subscriptions/listen")
        await turns()
        assert peer.seen[-1]["method"] == "notifications/cancelled"
        assert peer.seen[-1]["params"]["requestId"] == request["id"]

    listening([after_discovery(grant), after_discovery(nothing)], body)


@pytest.mark.parametrize("opened", [after_discovery, after_handshake])
def test_a_server_that_is_gone_for_good_ends_it(opened: Any) -> None:
    async def body(client: Client, peer: Peer) -> None:
        async with client.listen(tools=True) as changes:
            await turns()  # the server reads the last message of the handshake
            await peer.leave()
            with pytest.raises(Closed, match=r"ended with its connection\. The server closed the connection"):
                await anext(changes)
            with pytest.raises(Closed):
                await anext(changes)

    plays = [opened(grant if opened is after_discovery else nothing)]
    options = LEGACY if opened is after_handshake else {}
    listening(plays, body, restart=RestartPolicy(enabled=False), **options)


@pytest.mark.parametrize("is_renewing", [True, False])
def test_closing_the_client_ends_it(is_renewing: bool) -> None:
    async def body(client: Client, peer: Peer) -> None:
        async with client.listen(tools=True) as changes:
            if is_renewing:
                await start_again(peer)
            await client.close()
            with pytest.raises(Closed, match="The client was closed"):
                await anext(changes)

    listening([after_discovery(grant), after_discovery(nothing)], body)


def test_what_its_consumer_was_too_slow_for_is_counted() -> None:
    async def flood(peer: Peer) -> None:
        request = await peer.expect("subscriptions/listen")
        wanted = request["params"]["notifications"]
        peer.tell(request["id"], "notifications/subscriptions/acknowledged", notifications=wanted)
        for _ in range(1500):
            peer.tell(request["id"], "notifications/tools/list_changed")
        await turns()
        flooded.set()

    async def body(client: Client, peer: Peer) -> None:
        async with client.listen(tools=True):
            await flooded.wait()
            assert client.stats.dropped == 1000
        assert client.stats.dropped == 1000

    flooded = asyncio.Event()
    listening([after_discovery(flood)], body)
