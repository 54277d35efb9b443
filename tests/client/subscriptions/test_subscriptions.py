from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mcplumb.client.client import Client
from mcplumb.errors import Closed, ProtocolError, RemoteError, RequestTimeout
from mcplumb.protocol.subscription_state import Change
from mcplumb.types.meta import SUBSCRIPTION_ID
from mcplumb.types.notification_params import SubscriptionFilter
from mcplumb.wire.messages import Notification
from tests.client.peers import COMPLETE, Peer, modern, talk, talk_legacy
from tests.kit.loop import turns, until
from tests.kit.products import revision_names

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"


async def accept(peer: Peer, **honoured: Any) -> int:
    """Take a listen request, and acknowledge it; returns its id."""
    request = await peer.expect("subscriptions/listen")
    subscription: int = request["id"]
    peer.tell(subscription, ACKNOWLEDGED, notifications=honoured or request["params"]["notifications"])
    return subscription


# --- modern ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("SUB-3", "META-1")
def test_changes_reach_whoever_asked_for_them() -> None:
    async def play(peer: Peer) -> None:
        first = await accept(peer)
        assert peer.seen[-1]["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["a:1"]}
        assert peer.seen[-1]["params"]["_meta"].keys() == peer.seen[0]["params"]["_meta"].keys()
        second = await accept(peer)
        assert peer.seen[-1]["params"]["notifications"] == {"promptsListChanged": True, "resourcesListChanged": True}
        peer.tell(second, PROMPTS)
        peer.tell(first, UPDATED, uri="a:1/part")
        peer.tell(first, TOOLS)
        peer.tell(second, RESOURCES)

    async def body(client: Client) -> None:
        async with (
            client.listen(tools=True, resources=["a:1", "a:1"]) as one,
            client.listen(prompts=True, resources_list=True) as other,
        ):
            assert one.honoured == one.wanted
            assert [await anext(one), await anext(one)] == [Change("updates", "a:1/part"), Change("tools")]
            assert [await anext(other), await anext(other)] == [Change("prompts"), Change("resources")]

    talk(modern(play), body)


@pytest.mark.req("SUB-3")
def test_what_was_not_asked_for_or_belongs_to_nobody_is_dropped_and_counted() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("subscriptions/listen")
        subscription = request["id"]
        peer.tell(subscription, TOOLS)  # before the acknowledgement
        peer.tell(subscription, ACKNOWLEDGED, notifications={"toolsListChanged": True})
        peer.tell(subscription, ACKNOWLEDGED, notifications={"toolsListChanged": True})
        peer.tell(subscription, PROMPTS)
        peer.tell(4711, TOOLS)
        peer.notify(TOOLS)
        peer.tell("1", TOOLS)
        peer.tell(subscription, UPDATED, uri=7)
        peer.notify(TOOLS, _meta={"io.modelcontextprotocol/subscriptionId": []})
        peer.notify(TOOLS, _meta=7)
        peer.tell(subscription, TOOLS)

    async def body(client: Client) -> None:
        async with client.listen(tools=True) as changes:
            assert await anext(changes) == Change("tools")
        assert (client.stats.strays, client.stats.violations) == (6, 3)

    talk(modern(play), body)


@pytest.mark.req("SUB-1")
def test_the_server_may_honour_less() -> None:
    async def play(peer: Peer) -> None:
        await accept(peer, toolsListChanged=True)

    async def body(client: Client) -> None:
        async with client.listen(tools=True, prompts=True) as changes:
            assert changes.honoured == SubscriptionFilter(tools_list_changed=True)
            assert changes.wanted == SubscriptionFilter(tools_list_changed=True, prompts_list_changed=True)

    talk(modern(play), body)


@pytest.mark.req("CAN-1")
def test_leaving_cancels_the_request() -> None:
    async def play(peer: Peer) -> None:
        subscription = await accept(peer)
        note = await peer.expect("notifications/cancelled")
        assert note["params"]["requestId"] == subscription
        peer.tell(subscription, TOOLS)

    async def body(client: Client) -> None:
        async with client.listen(tools=True) as changes:
            pass
        assert [change async for change in changes] == []
        await until(lambda: client.stats.strays)

    talk(modern(play), body)


@pytest.mark.req("SUB-5", "CAN-6")
@pytest.mark.parametrize("how", ["answer", "cancel", "both", "at once"])
def test_the_server_may_end_it(how: str) -> None:
    async def play(peer: Peer) -> None:
        if how == "at once":
            peer.answer(await peer.expect("subscriptions/listen"), COMPLETE)
            return
        subscription = await accept(peer)
        peer.tell(subscription, TOOLS)
        if how in ("cancel", "both"):
            peer.notify("notifications/cancelled", requestId=subscription)
        if how in ("answer", "both"):
            peer.answer({"id": subscription}, COMPLETE)
        await peer.gone()
        assert len(peer.seen) == 2, "nobody cancels what has ended"

    async def body(client: Client) -> None:
        async with client.listen(tools=True) as changes:
            assert [change async for change in changes] == ([] if how == "at once" else [Change("tools")])

    talk(modern(play), body)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(("answer", "error"), [("refuse", RemoteError), ("break", ProtocolError), ("leave", Closed)])
def test_an_end_in_disorder_is_raised(is_open: bool, answer: str, error: type[Exception]) -> None:
    async def play(peer: Peer) -> None:
        request = {"id": await accept(peer)} if is_open else await peer.expect("subscriptions/listen")
        if answer == "refuse":
            peer.refuse(request, -32603, "No more.")
        elif answer == "break":
            peer.answer(request, msgspec.Raw(b"{"))
        else:
            await peer.leave()

    async def body(client: Client) -> None:
        if is_open:
            async with client.listen(tools=True) as changes:
                with pytest.raises(error):
                    await anext(changes)
        else:
            with pytest.raises(error):
                async with client.listen(tools=True):
                    pass

    talk(modern(play), body)


def test_closing_the_client_ends_it() -> None:
    async def play(peer: Peer) -> None:
        await accept(peer)

    async def body(client: Client) -> None:
        async with client.listen(tools=True) as changes:
            await client.close()
            with pytest.raises(Closed, match=r"ended with its connection\. The client was closed\."):
                await anext(changes)
        with pytest.raises(Closed, match="not sent"):
            async with client.listen(tools=True):
                pass

    talk(modern(play), body)


@pytest.mark.parametrize("why", ["timeout", "cancelled"])
def test_a_subscription_that_is_not_acknowledged_is_given_up(why: str) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("subscriptions/listen")
        note = await peer.expect("notifications/cancelled")
        assert note["params"]["requestId"] == request["id"]
        peer.tell(request["id"], ACKNOWLEDGED, notifications={})

    async def body(client: Client) -> None:
        if why == "timeout":
            with pytest.raises(RequestTimeout, match=r"was not acknowledged within 0\.01 s"):
                async with client.listen(tools=True, timeout=0.01):
                    pass
        else:
            task = asyncio.ensure_future(client.listen(tools=True).__aenter__())
            await turns()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await until(lambda: client.stats.strays)

    talk(modern(play), body)


def test_an_acknowledgement_that_comes_as_the_listener_gives_up_changes_nothing() -> None:
    async def play(peer: Peer) -> None:
        await peer.expect("subscriptions/listen")
        await peer.expect("notifications/cancelled")

    async def body(client: Client) -> None:
        task = asyncio.ensure_future(client.listen(tools=True).__aenter__())
        await turns()
        task.cancel()
        # Before the task has run again, the acknowledgement is there.
        params = {"_meta": {SUBSCRIPTION_ID: 2}, "notifications": {"toolsListChanged": True}}
        client._supervisor.session.received(Notification(ACKNOWLEDGED, params))
        with pytest.raises(asyncio.CancelledError):
            await task

    talk(modern(play), body)


# --- legacy ---------------------------------------------------------------------------------------------------------

LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


async def take(peer: Peer, *wanted: tuple[str, str]) -> None:
    """Answer these requests about resources, in this order."""
    for method, uri in wanted:
        request = await peer.expect(f"resources/{method}")
        assert request["params"] == {"uri": uri}
        peer.answer(request, {})


@pytest.mark.req("SUB-6")
@pytest.mark.parametrize("revision", revision_names(LEGACY))
def test_a_legacy_server_tells_the_same(revision: str) -> None:
    async def play(peer: Peer) -> None:
        await take(peer, ("subscribe", "a:1"))
        peer.notify(RESOURCES)
        peer.notify(TOOLS)
        peer.notify(UPDATED, uri="a:1")
        peer.notify(PROMPTS)
        await take(peer, ("unsubscribe", "a:1"))

    async def body(client: Client) -> None:
        async with client.listen(tools=True, prompts=True, resources=["a:1"]) as changes:
            assert changes.honoured == changes.wanted
            assert [await anext(changes) for _ in range(3)] == [
                Change("tools"),
                Change("updates", "a:1"),
                Change("prompts"),
            ]

    talk_legacy(play, body, revision)


@pytest.mark.req("SUB-3", "SUB-6")
def test_several_listeners_share_a_subscription_and_each_gets_its_own() -> None:
    async def play(peer: Peer) -> None:
        await take(peer, ("subscribe", "a:1"), ("subscribe", "a:2"))
        for uri in ("a:2", "a:1", "a:3"):
            peer.notify(UPDATED, uri=uri)
        await take(peer, ("unsubscribe", "a:2"), ("unsubscribe", "a:1"))

    async def body(client: Client) -> None:
        async with client.listen(resources=["a:1"]) as one, client.listen(resources=["a:1", "a:2"]) as both:
            assert [await anext(both) for _ in range(3)] == [Change("updates", f"a:{n}") for n in (2, 1, 3)]
            assert [await anext(one) for _ in range(2)] == [Change("updates", f"a:{n}") for n in (1, 3)]

    talk_legacy(play, body)


@pytest.mark.req("SUB-6")
def test_two_that_come_at_the_same_time_subscribe_once() -> None:
    async def play(peer: Peer) -> None:
        await take(peer, ("subscribe", "a:1"), ("unsubscribe", "a:1"))

    async def body(client: Client) -> None:
        one, other = client.listen(resources=["a:1"]), client.listen(resources=["a:1"])
        await asyncio.gather(one.__aenter__(), other.__aenter__())
        await asyncio.gather(one.__aexit__(None, None, None), other.__aexit__(None, None, None))

    talk_legacy(play, body)


@pytest.mark.req("SUB-6", "LEG-5")
@pytest.mark.parametrize("capabilities", [{}, {"tools": {}, "prompts": {}, "resources": {}}])
def test_what_a_legacy_server_does_not_offer_is_not_asked_of_it(capabilities: dict[str, Any]) -> None:
    async def play(peer: Peer) -> None:
        await peer.initialize("2025-11-25", capabilities=capabilities)
        await peer.gone()
        assert len(peer.seen) == 2

    async def body(client: Client) -> None:
        async with client.listen(tools=True, prompts=True, resources_list=True, resources=["a:1"]) as changes:
            assert changes.honoured == SubscriptionFilter()

    talk(Peer(play), body, revisions=["2025-11-25"])


def test_a_refused_subscription_is_raised_and_undone() -> None:
    async def play(peer: Peer) -> None:
        await take(peer, ("subscribe", "a:1"))
        peer.refuse(await peer.expect("resources/subscribe"), -32002, "Resource not found")
        await take(peer, ("unsubscribe", "a:1"))

    async def body(client: Client) -> None:
        with pytest.raises(RemoteError, match="Resource not found"):
            async with client.listen(resources=["a:1", "a:2"]):
                pass

    talk_legacy(play, body)


def test_a_server_that_does_not_let_go_is_left_anyway() -> None:
    async def play(peer: Peer) -> None:
        await take(peer, ("subscribe", "a:1"))
        peer.refuse(await peer.expect("resources/unsubscribe"), -32601)
        await take(peer, ("subscribe", "a:1"), ("unsubscribe", "a:1"))

    async def body(client: Client) -> None:
        for _ in range(2):
            async with client.listen(resources=["a:1"]):
                pass

    talk_legacy(play, body)


@pytest.mark.parametrize("who", ["server", "client"])
def test_a_lost_connection_ends_it(who: str) -> None:
    async def play(peer: Peer) -> None:
        await take(peer, ("subscribe", "a:1"))
        if who == "server":
            await peer.leave()

    async def body(client: Client) -> None:
        async with client.listen(resources=["a:1"]) as changes:
            if who == "client":
                await client.close()
            with pytest.raises(Closed, match=f"ended with its connection. The {who} "):
                await anext(changes)

    talk_legacy(play, body)


def test_an_acknowledgement_means_nothing_to_a_legacy_client() -> None:
    async def play(peer: Peer) -> None:
        peer.tell(1, ACKNOWLEDGED, notifications={})
        peer.notify(TOOLS)

    async def body(client: Client) -> None:
        async with client.listen(tools=True) as changes:
            assert await anext(changes) == Change("tools")

    talk_legacy(play, body)
