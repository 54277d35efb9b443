from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb.bridge.bridge import Bridge
from mcplumb.limits import Limits
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.types.meta import SUBSCRIPTION_ID
from mcplumb.wire.messages import ErrorDetail
from tests.bridge.ends import Back, Backs, Front, Refused, echo
from tests.client.peers import skip
from tests.kit.loop import turns

both_eras = pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY], ids=str)

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
UPDATED = "notifications/resources/updated"
WANTED = {"toolsListChanged": True, "resourceSubscriptions": ["x:a"]}


async def serve(back: Back, request: dict[str, Any]) -> Any:
    """Acknowledge subscriptions, which stay open; answer everything else."""
    if request["method"] != "subscriptions/listen":
        return await echo(back, request)
    back.tell(ACKNOWLEDGED, _meta={SUBSCRIPTION_ID: request["id"]}, notifications=request["params"]["notifications"])
    return None


def announce(back: Back, method: str, **params: Any) -> None:
    """Send a change as the server's era has it."""
    for request in [each for each in back.seen if each.get("method") == "subscriptions/listen"]:
        back.tell(method, _meta={SUBSCRIPTION_ID: request["id"]}, **params)
    if not back.backs.revision.is_modern:
        back.tell(method, **params)


def listen(front: Front, **wanted: Any) -> int | str:
    return front.post("subscriptions/listen", front.params({"notifications": wanted or WANTED}))


@pytest.mark.req("BRG-1")
@both_eras
async def test_a_modern_client_gets_the_acknowledgement_first_and_then_changes(revision: Revision) -> None:
    backs = Backs(revision, serve)
    async with Front(Bridge(backs)) as front:
        own = listen(front)
        await front.until(lambda: front.notes(ACKNOWLEDGED))
        assert front.seen[0]["params"] == {"_meta": {SUBSCRIPTION_ID: own}, "notifications": WANTED}
        (back,) = backs.all
        announce(back, TOOLS)
        announce(back, UPDATED, uri="x:a")
        announce(back, PROMPTS)  # not subscribed to
        await front.until(lambda: front.notes(UPDATED))
        assert front.notes(TOOLS) == [{"_meta": {SUBSCRIPTION_ID: own}}]
        assert front.notes(UPDATED) == [{"_meta": {SUBSCRIPTION_ID: own}, "uri": "x:a"}]
        assert not front.notes(PROMPTS)


@pytest.mark.req("BRG-1")
@both_eras
async def test_a_cancelled_subscription_is_given_up_at_the_server(revision: Revision) -> None:
    backs = Backs(revision, serve)
    async with Front(Bridge(backs)) as front:
        own = listen(front)
        await front.until(lambda: front.notes(ACKNOWLEDGED))
        (back,) = backs.all
        front.tell("notifications/cancelled", requestId=own)
        ended = "notifications/cancelled" if revision.is_modern else "resources/unsubscribe"
        await back.until(lambda: back.notes(ended))
        announce(back, TOOLS)
        await front.ask("tools/list")
        assert not front.notes(TOOLS)


@pytest.mark.req("BRG-1")
@both_eras
async def test_a_legacy_client_gets_changes_of_lists_and_of_its_resources(revision: Revision) -> None:
    backs = Backs(revision, serve)
    async with Front(Bridge(backs)) as front:
        await front.initialize()
        await front.ask("resources/subscribe", uri="x:a")
        (back,) = backs.all
        announce(back, TOOLS)
        announce(back, UPDATED, uri="x:a")
        await front.until(lambda: front.notes(TOOLS) and front.notes(UPDATED))
        assert front.notes(UPDATED) == [{"uri": "x:a"}]
        await front.ask("resources/unsubscribe", uri="x:a")
        ended = "notifications/cancelled" if revision.is_modern else "resources/unsubscribe"
        await back.until(lambda: back.notes(ended))
        assert await front.ask("resources/unsubscribe", uri="x:never") == {}


async def test_a_second_notification_does_not_double_announcements() -> None:
    backs = Backs(handler=serve)
    async with Front(Bridge(backs)) as front:
        await front.initialize()
        front.tell("notifications/initialized")
        await front.ask("ping")
        announce(backs.all[0], TOOLS)
        await front.until(lambda: front.notes(TOOLS))
        await front.ask("tools/list")
        assert len(front.notes(TOOLS)) == 1


@pytest.mark.req("BRG-3")
@both_eras
async def test_each_client_gets_its_own_changes_of_a_shared_server(revision: Revision) -> None:
    backs = Backs(revision, serve)
    bridge = Bridge(backs)
    async with Front(bridge) as modern, Front(bridge) as legacy, Front(bridge) as other:
        listen(modern, resourceSubscriptions=["x:a"])
        await modern.until(lambda: modern.notes(ACKNOWLEDGED))
        await legacy.initialize()
        await legacy.ask("resources/subscribe", uri="x:b")
        await other.initialize()
        (back,) = backs.all
        for request in [each for each in back.seen if each.get("method") == "subscriptions/listen"]:
            for uri in request["params"]["notifications"].get("resourceSubscriptions", ()):
                back.tell(UPDATED, _meta={SUBSCRIPTION_ID: request["id"]}, uri=uri)
        if not revision.is_modern:
            back.tell(UPDATED, uri="x:a")
            back.tell(UPDATED, uri="x:b")
        await modern.until(lambda: modern.notes(UPDATED))
        await legacy.until(lambda: legacy.notes(UPDATED))
        await other.ask("tools/list")
        assert [each["uri"] for each in modern.notes(UPDATED)] == ["x:a"]
        assert [each["uri"] for each in legacy.notes(UPDATED)] == ["x:b"]
        assert not other.notes(UPDATED)


@pytest.mark.req("BRG-1", "BRG-5")
@both_eras
async def test_after_a_crash_everything_is_announced(revision: Revision) -> None:
    backs = Backs(revision, serve)
    async with Front(Bridge(backs.connect, revisions=[str(revision)])) as front:
        own = listen(front)
        await front.until(lambda: front.notes(ACKNOWLEDGED))
        await backs.all[0].crash()
        await backs.until(lambda: _wait(backs, 2))
        await front.until(lambda: front.notes(UPDATED) and front.notes(TOOLS))
        assert front.notes(UPDATED) == [{"_meta": {SUBSCRIPTION_ID: own}, "uri": "x:a"}]
        assert len(front.notes(ACKNOWLEDGED)) == 1


def _wait(backs: Backs, count: int) -> bool:
    # The pause before the restart passes at once.
    skip(1)
    return len(backs.all) >= count


@pytest.mark.req("BRG-1")
async def test_a_server_that_ends_a_subscription_ends_the_client_s() -> None:
    backs = Backs(LATEST, serve)
    async with Front(Bridge(backs)) as front:
        own = listen(front)
        await front.until(lambda: front.notes(ACKNOWLEDGED))
        (back,) = backs.all
        (request,) = [each for each in back.seen if each.get("method") == "subscriptions/listen"]
        back.tell("notifications/cancelled", requestId=request["id"])
        result = await front.answer_to(own)
        assert result["resultType"] == "complete"
        assert result["_meta"][SUBSCRIPTION_ID] == own


async def test_a_server_that_is_gone_for_good_ends_a_subscription_with_an_error() -> None:
    backs = Backs(LATEST, serve)
    async with Front(Bridge(backs)) as front:
        own = listen(front)
        await front.until(lambda: front.notes(ACKNOWLEDGED))
        await backs.all[0].crash()
        with pytest.raises(Refused, match="ended with its connection"):
            await front.answer_to(own)


@pytest.mark.req("BRG-1")
@both_eras
async def test_a_bridge_that_stops_ends_subscriptions_with_a_result(revision: Revision) -> None:
    bridge = Bridge(Backs(revision, serve))
    async with Front(bridge) as front:
        own = listen(front)
        await front.until(lambda: front.notes(ACKNOWLEDGED))
        bridge.stop()
        assert (await front.answer_to(own))["_meta"][SUBSCRIPTION_ID] == own


@pytest.mark.req("BRG-6")
async def test_a_subscription_that_opens_during_the_stop_does_not_hold_it_up() -> None:
    go_on = asyncio.Event()

    async def slowly(back: Back, request: dict[str, Any]) -> Any:
        if request["method"] == "subscriptions/listen":
            await go_on.wait()
        return await serve(back, request)

    backs = Backs(LATEST, slowly)
    bridge = Bridge(backs)
    async with Front(bridge) as front:
        own = listen(front)
        await backs.until(lambda: backs.all)
        await backs.all[0].until(lambda: backs.all[0].notes("subscriptions/listen"))
        bridge.stop()
        await turns()
        go_on.set()
        assert (await front.answer_to(own))["resultType"] == "complete"


async def test_a_refused_subscription_can_be_tried_again() -> None:
    refusals = 1

    async def grumpy(back: Back, request: dict[str, Any]) -> Any:
        nonlocal refusals
        if (
            request["method"] == "subscriptions/listen"
            and "resourceSubscriptions" in request["params"]["notifications"]
        ):
            refusals -= 1
            if refusals >= 0:
                return ErrorDetail(-32602, "Not now.")
        return await serve(back, request)

    backs = Backs(LATEST, grumpy)
    async with Front(Bridge(backs)) as front:
        await front.initialize()
        with pytest.raises(Refused, match="Not now"):
            await front.ask("resources/subscribe", uri="x:a")
        await front.ask("resources/subscribe", uri="x:a")
        announce(backs.all[0], UPDATED, uri="x:a")
        await front.until(lambda: front.notes(UPDATED))


async def test_a_cancelled_subscribe_leaves_nothing() -> None:
    hang = True

    async def slowly(back: Back, request: dict[str, Any]) -> Any:
        if request["method"] == "subscriptions/listen" and hang:
            await asyncio.Event().wait()
        return await serve(back, request)

    backs = Backs(LATEST, slowly)
    async with Front(Bridge(backs)) as front:
        await front.initialize()
        own = front.post("resources/subscribe", {"uri": "x:a"})
        (back,) = backs.all
        await back.until(lambda: len(back.notes("subscriptions/listen")) == 2)
        front.tell("notifications/cancelled", requestId=own)
        await back.until(lambda: back.cancelled)
        hang = False
        await front.ask("resources/subscribe", uri="x:a")
        announce(back, UPDATED, uri="x:a")
        await front.until(lambda: front.notes(UPDATED))


async def test_there_is_a_limit_to_subscribed_resources() -> None:
    limits = Limits(max_subscribed_resources=2, max_uri=10)
    async with Front(Bridge(Backs(handler=serve), limits=limits)) as front:
        await front.initialize()
        for uri in ("x:a", "x:b", "x:b"):
            await front.ask("resources/subscribe", uri=uri)
        with pytest.raises(Refused, match="may subscribe to 2 resources"):
            await front.ask("resources/subscribe", uri="x:c")
        await front.ask("resources/unsubscribe", uri="x:a")
        with pytest.raises(Refused, match="at most 10 characters"):
            await front.ask("resources/subscribe", uri="x:" + "c" * 10)
        await front.ask("resources/subscribe", uri="x:c")


async def test_there_is_a_limit_to_modern_subscriptions() -> None:
    async with Front(Bridge(Backs(handler=serve), limits=Limits(max_subscriptions=1))) as front:
        listen(front)
        await front.until(lambda: front.notes(ACKNOWLEDGED))
        with pytest.raises(Refused, match="No more than 1 subscriptions"):
            await front.answer_to(listen(front))
