"""Changes: who listens is told, in the way of its era, once for many, and nobody else is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mcplumb.limits import Limits
from mcplumb.revisions import LATEST, LATEST_LEGACY, LEGACY, Revision
from mcplumb.server.context import Context
from mcplumb.server.server import Server
from mcplumb.types.meta import SERVER_INFO, SUBSCRIPTION_ID
from tests.client.peers import LOOPS
from tests.kit.loop import PATIENCE, run, turns
from tests.kit.products import revisions
from tests.server.harness import ONE_OF_EACH_ERA, Id, Peer, Plain, make_server, methods_in, raw_client

both_eras = pytest.mark.parametrize("revision", ONE_OF_EACH_ERA, ids=str)

EVERYTHING: Plain = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


async def listen(peer: Peer, **wanted: Any) -> Id:
    """Open a subscription, and see that it was acknowledged before anything else came."""
    request_id = peer.post("subscriptions/listen", {"notifications": wanted})
    params = await peer.notification("notifications/subscriptions/acknowledged")
    assert params["_meta"] == {SUBSCRIPTION_ID: request_id}
    assert params["notifications"] == {key: value for key, value in wanted.items() if value}
    return request_id


def changes(peer: Peer) -> list[Plain]:
    """The notifications about changes that nobody has taken yet."""
    return [each for each in peer.inbox if "method" in each]


CHANGES: dict[str, tuple[Callable[[Server], None], Callable[[Server], None]]] = {
    "tools": (lambda server: server.add_tool(print_nothing), lambda server: server.remove_tool("print_nothing")),
    "prompts": (lambda server: server.add_prompt(print_nothing), lambda server: server.remove_prompt("print_nothing")),
    "resources": (
        lambda server: server.add_resource("x://y", print_nothing),
        lambda server: server.remove_resource("x://y"),
    ),
    "templates": (
        lambda server: server.add_resource("x://{y}", lambda y: y, name="t"),
        lambda server: server.remove_resource("x://{y}"),
    ),
}
TOPIC = {"templates": "resources"}


def print_nothing() -> str:
    return ""


# Lists


@pytest.mark.req("SUB-2")
@pytest.mark.parametrize("kind", CHANGES)
@pytest.mark.parametrize("wanted", ["tools", "prompts", "resources"])
async def test_a_modern_client_is_told_what_it_asked_for_and_nothing_else(kind: str, wanted: str) -> None:
    server = make_server()
    topic = TOPIC.get(kind, kind)

    async with raw_client(server) as peer:
        subscription = await listen(peer, **{f"{wanted}ListChanged": True})
        for change in CHANGES[kind]:
            change(server)
            await peer.settled()
            if topic == wanted:
                params = await peer.notification(f"notifications/{topic}/list_changed")
                assert params == {"_meta": {SUBSCRIPTION_ID: subscription}}
            assert changes(peer) == []


@pytest.mark.req("SUB-6")
@pytest.mark.parametrize("revision", revisions(LEGACY), ids=str)
@pytest.mark.parametrize("kind", CHANGES)
async def test_a_legacy_client_is_told_of_all_lists(revision: Revision, kind: str) -> None:
    server = make_server()

    async with raw_client(server, revision) as peer:
        await peer.settled()
        for change in CHANGES[kind]:
            change(server)
            await peer.settled()
            assert await peer.notification(f"notifications/{TOPIC.get(kind, kind)}/list_changed") == {}
            assert changes(peer) == []


async def test_a_client_that_does_not_listen_is_told_nothing() -> None:
    server = make_server()

    async with raw_client(server) as modern, raw_client(server, LATEST_LEGACY, opens=False) as unopened:
        server.add_tool(print_nothing)
        server.resource_changed("x://y")
        await modern.settled()
        await turns()
        assert methods_in(modern.seen) == methods_in(unopened.seen) == []


async def test_a_legacy_client_is_told_only_once_it_is_ready() -> None:
    server = make_server()

    async with raw_client(server, LATEST_LEGACY, opens=False) as peer:
        await peer.result("initialize", {"protocolVersion": str(LATEST_LEGACY), "capabilities": {}})
        server.add_tool(print_nothing)
        await peer.settled()
        assert methods_in(peer.seen) == []
        peer.notify("notifications/initialized")
        await peer.settled()
        server.remove_tool("print_nothing")
        await peer.notification("notifications/tools/list_changed")


@pytest.mark.parametrize("eager", LOOPS)
@both_eras
def test_many_changes_of_one_moment_are_told_once(revision: Revision, eager: bool) -> None:
    async def main() -> None:
        server = make_server()
        async with raw_client(server, revision) as peer:
            if revision.is_modern:
                await listen(peer, **EVERYTHING)
            await peer.settled()
            peer.seen.clear()
            for number in range(100):
                server.add_tool(print_nothing, name=f"t{number}")
                server.add_prompt(print_nothing, name=f"p{number}")
            await peer.settled()
            assert sorted(methods_in(peer.seen)) == [
                "notifications/prompts/list_changed",
                "notifications/tools/list_changed",
            ]

    run(main(), eager=eager)


@both_eras
async def test_what_a_client_reads_after_it_was_told_is_the_new_list(revision: Revision) -> None:
    server = make_server()

    async with raw_client(server, revision) as peer:
        if revision.is_modern:
            await listen(peer, toolsListChanged=True)
        await peer.settled()
        for number in range(3):
            server.add_tool(print_nothing, name=f"t{number}")
            await peer.notification("notifications/tools/list_changed")
            assert len((await peer.result("tools/list"))["tools"]) == number + 1


@both_eras
async def test_changes_may_come_from_any_thread(revision: Revision) -> None:
    server = make_server()
    server.add_resource("x://y", print_nothing)

    async with raw_client(server, revision) as peer:
        if revision.is_modern:
            await listen(peer, toolsListChanged=True, resourceSubscriptions=["x://y"])
        else:
            await peer.result("resources/subscribe", {"uri": "x://y"})
        await peer.settled()

        def change() -> None:
            server.add_tool(print_nothing)
            server.resource_changed("x://y")

        thread = threading.Thread(target=change)
        thread.start()
        await asyncio.to_thread(thread.join, PATIENCE)
        await peer.notification("notifications/tools/list_changed")
        assert (await peer.notification("notifications/resources/updated"))["uri"] == "x://y"


async def test_all_clients_are_told_each_in_its_own_way() -> None:
    server = make_server()

    async with raw_client(server) as modern, raw_client(server, LATEST_LEGACY) as legacy:
        first = await listen(modern, toolsListChanged=True)
        second = await listen(modern, toolsListChanged=True, promptsListChanged=True)
        await legacy.settled()
        server.add_tool(print_nothing)
        ids = [
            (await modern.notification("notifications/tools/list_changed"))["_meta"][SUBSCRIPTION_ID] for _ in range(2)
        ]
        assert ids == [first, second]
        assert await legacy.notification("notifications/tools/list_changed") == {}


@pytest.mark.req("ERA-10")
async def test_one_connection_may_listen_in_both_ways() -> None:
    server = make_server()

    async with raw_client(server) as peer:
        modern = await listen(peer, toolsListChanged=True)
        peer.revision = LATEST_LEGACY
        await peer.initialize()
        await peer.settled()
        server.add_tool(print_nothing)
        both = [await peer.notification("notifications/tools/list_changed") for _ in range(2)]
        assert {} in both
        assert {"_meta": {SUBSCRIPTION_ID: modern}} in both


# Resources


@pytest.mark.req("SUB-2")
async def test_a_modern_client_is_told_of_the_resources_it_named() -> None:
    server = make_server()

    async with raw_client(server) as peer:
        subscription = await listen(peer, resourceSubscriptions=["a://1", "a://2"])
        for uri in ("a://1", "a://3", "a://1", "a://2"):
            server.resource_changed(uri)
        await peer.settled()
        told = [each["params"] for each in changes(peer)]
        assert told == [{"_meta": {SUBSCRIPTION_ID: subscription}, "uri": uri} for uri in ("a://1", "a://2")]


@pytest.mark.req("SUB-6")
@pytest.mark.parametrize("revision", revisions(LEGACY), ids=str)
async def test_a_legacy_client_subscribes_to_resources(revision: Revision) -> None:
    server = make_server()

    async with raw_client(server, revision) as peer:
        await peer.result("resources/subscribe", {"uri": "a://1"})
        await peer.result("resources/subscribe", {"uri": "a://1"})
        server.resource_changed("a://1")
        server.resource_changed("a://2")
        await peer.settled()
        assert [each["params"] for each in changes(peer)] == [{"uri": "a://1"}]
        await peer.notification("notifications/resources/updated")
        await peer.result("resources/unsubscribe", {"uri": "a://1"})
        await peer.result("resources/unsubscribe", {"uri": "a://9"})
        server.resource_changed("a://1")
        await peer.settled()
        assert changes(peer) == []


async def test_who_unsubscribes_while_a_change_waits_is_told_nothing() -> None:
    server = make_server()
    go = asyncio.Event()

    @server.tool
    async def large(ctx: Context) -> None:
        while not ctx._call.session.connection.is_clogged:
            ctx.info("x" * 100_000)
        await go.wait()

    async with raw_client(server, LATEST_LEGACY) as peer:
        for uri in ("a://1", "a://2"):
            await peer.result("resources/subscribe", {"uri": uri})
        peer.connection.pause()
        called = peer.post_call("large")
        await turns()
        server.resource_changed("a://1")
        server.resource_changed("a://2")
        await turns()
        unsubscribed = peer.post("resources/unsubscribe", {"uri": "a://1"})
        await turns()
        peer.connection.resume()
        go.set()
        await peer.answer(called)
        await peer.answer(unsubscribed)
        await peer.settled()
        uris = [each["params"]["uri"] for each in changes(peer) if "uri" in each["params"]]
        assert uris == ["a://2"]


# Subscriptions begin and end


@pytest.mark.req("SUB-1")
@pytest.mark.parametrize("wanted", [{}, {"toolsListChanged": False}, EVERYTHING, {"resourceSubscriptions": ["a://1"]}])
async def test_the_acknowledgement_comes_first_and_says_what_is_honoured(wanted: Plain) -> None:
    server = make_server()

    async with raw_client(server) as peer:
        server.add_tool(print_nothing)  # before it listens
        await listen(peer, **wanted)
        assert methods_in(peer.seen) == ["notifications/subscriptions/acknowledged"]
        assert changes(peer) == []


@pytest.mark.req("SUB-1")
@pytest.mark.tricks  # without eager tasks, the tool runs after the subscription was taken
async def test_a_change_before_a_subscription_is_not_told_after_it() -> None:
    server = make_server()

    @server.tool
    async def change() -> str:
        server.add_tool(print_nothing)
        return "changed"

    async with raw_client(server) as peer:
        old = await listen(peer, toolsListChanged=True)
        # Both are read in the same moment.
        changing = peer.post_call("change")
        peer.post("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await peer.answer(changing)
        await peer.settled()
        told = [each["params"]["_meta"][SUBSCRIPTION_ID] for each in changes(peer) if "list_changed" in each["method"]]
        assert told == [old]


@pytest.mark.req("SUB-2", "CAN-2")
async def test_a_cancelled_subscription_is_told_nothing_more() -> None:
    server = make_server()

    async with raw_client(server) as peer:
        first = await listen(peer, toolsListChanged=True)
        second = await listen(peer, toolsListChanged=True)
        peer.cancel(first)
        peer.cancel(first)
        await peer.settled()
        server.add_tool(print_nothing)
        await peer.settled()
        assert [each["params"]["_meta"][SUBSCRIPTION_ID] for each in changes(peer)] == [second]
        assert not any(each.get("id") == first for each in peer.seen)
        # Its id is free again.
        peer.post("subscriptions/listen", {"notifications": {}}, request_id=first)
        await peer.notification("notifications/subscriptions/acknowledged")


@pytest.mark.req("SUB-5")
async def test_a_server_that_stops_ends_its_subscriptions_in_good_order() -> None:
    server = make_server()

    async with raw_client(server) as peer:
        first = await listen(peer, toolsListChanged=True)
        second = await listen(peer)
        server.add_tool(print_nothing)  # what happened before the end is told before it
        server.stop()
        for subscription in (first, second):
            result = (await peer.answer(subscription))["result"]
            assert result["resultType"] == "complete"
            assert result["_meta"][SUBSCRIPTION_ID] == subscription
            assert result["_meta"][SERVER_INFO]["name"] == "test"
        await peer.notification("notifications/tools/list_changed")
        assert peer.seen[-1].get("id") == second
        await peer.served()


async def test_there_is_a_limit_to_subscriptions() -> None:
    server = make_server(limits=Limits(max_subscriptions=2, max_subscribed_resources=3, max_uri=10))

    async with raw_client(server) as peer:
        first = await listen(peer, resourceSubscriptions=["a://1", "a://2"])
        for wanted, words in (
            ({"resourceSubscriptions": ["a://3", "a://4"]}, "no more than 3 resources"),
            ({"resourceSubscriptions": ["a://" + "x" * 10]}, "no more than 10 characters"),
        ):
            error = await peer.error("subscriptions/listen", {"notifications": wanted})
            assert error["code"] == -32602
            assert words in error["message"]
        await listen(peer)
        error = await peer.error("subscriptions/listen", {"notifications": {}})
        assert "No more than 2 subscriptions" in error["message"]
        peer.cancel(first)
        await listen(peer)


async def test_there_is_a_limit_to_what_a_legacy_client_subscribes_to() -> None:
    server = make_server(limits=Limits(max_subscribed_resources=2, max_uri=10))

    async with raw_client(server, LATEST_LEGACY) as peer:
        for number in (1, 2, 2):
            await peer.result("resources/subscribe", {"uri": f"a://{number}"})
        for uri, words in (
            ("a://3", "No more than 2 resources"),
            ("a://" + "x" * 10, "no more than 10 characters"),
        ):
            error = await peer.error("resources/subscribe", {"uri": uri})
            assert error["code"] == -32602
            assert words in error["message"]
        await peer.result("resources/unsubscribe", {"uri": "a://1"})
        await peer.result("resources/subscribe", {"uri": "a://3"})


# Clients that do not keep up


@both_eras
def test_a_flood_of_changes_takes_no_room(revision: Revision) -> None:
    server = make_server()
    uris = [f"a://{number}" for number in range(10)]

    @server.tool
    async def large() -> str:
        return "x" * 3_000_000

    async def main() -> None:
        async with raw_client(server, revision) as peer:
            if revision.is_modern:
                await listen(peer, toolsListChanged=True, resourceSubscriptions=uris)
            else:
                for uri in uris:
                    await peer.result("resources/subscribe", {"uri": uri})
            await peer.settled()
            peer.seen.clear()
            peer.connection.pause()
            request_id = peer.post_call("large")
            await turns()
            for number in range(1000):
                server.add_tool(print_nothing, name=f"t{number}")
                server.resource_changed(uris[number % 10])
                if number % 100 == 0:
                    await turns()
            peer.connection.resume()
            await peer.answer(request_id)
            await peer.settled()
            told = [each for each in peer.seen if "method" in each]
            assert 11 <= len(told) <= 22
            assert {each["params"]["uri"] for each in told if "uri" in each.get("params", {})} == set(uris)

    run(main())


async def test_a_client_that_leaves_while_it_does_not_read_leaves_nothing_behind() -> None:
    server = make_server()

    @server.tool
    async def large() -> str:
        return "x" * 3_000_000

    async with raw_client(server) as peer:
        await listen(peer, toolsListChanged=True)
        peer.connection.pause()
        peer.post_call("large")
        await turns()
        server.add_tool(print_nothing)
        await turns()
    server.remove_tool("print_nothing")


@pytest.mark.parametrize("revision", [LATEST], ids=str)
async def test_a_client_that_opens_and_cancels_subscriptions_without_reading_is_not_read(revision: Revision) -> None:
    server = make_server()

    async with raw_client(server, revision) as peer:
        peer.connection.pause()
        for number in range(20_000):
            peer.post("subscriptions/listen", {"notifications": {}}, request_id=number)
            peer.cancel(number)
            if number % 500 == 0:
                await turns()
        await turns(200)
        # The rest of it waits on the client's side.
        assert peer.connection.is_clogged
        peer.connection.resume()
        await peer.until(lambda: len(peer.seen) == 20_000)
