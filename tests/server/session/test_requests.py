"""One connection, as its client sees it: ids, answers, cancellations and notifications."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcplumb.revisions import LATEST_LEGACY, LEGACY, Revision
from mcplumb.server.context import Context
from mcplumb.wire.messages import Notification
from tests.kit.loop import run, turns
from tests.kit.products import revisions
from tests.kit.results import text_of
from tests.server.harness import ABLE, Id, make_server, methods_in, raw_client
from tests.server.workshop import Workshop, both_eras, codes, numbered, order_of_answers

# Ids


@pytest.mark.req("FRM-8")
@pytest.mark.parametrize("revision", revisions(), ids=str)
async def test_ids_keep_their_type_and_may_look_alike(revision: Revision) -> None:
    shop = Workshop()

    async with raw_client(shop.server, revision) as peer:
        ids: list[Id] = [101, "101", -5, "", "ü", 2**53, 2**63 - 1, -(2**63)]
        for number, request_id in enumerate(ids):
            peer.post_call("hold", {"number": number}, request_id=request_id)
        await turns()
        shop.go.set()
        for number, request_id in enumerate(ids):
            assert text_of((await peer.answer(request_id))["result"]) == str(number)


@pytest.mark.req("FRM-8")
@both_eras
@pytest.mark.parametrize("tool", ["hold", "block"])
async def test_an_id_in_flight_is_refused_a_second_time(revision: Revision, tool: str) -> None:
    shop = Workshop()

    async with raw_client(shop.server, revision) as peer:
        peer.post_call(tool, {"number": 1}, request_id="x")
        await turns()
        assert codes(await peer.request("tools/call", {"name": "echo"}, request_id="x")) == [-32600]
        assert codes(await peer.request("tools/list", request_id="x")) == [-32600]
        shop.go.set()
        shop.thread_go.set()
        assert text_of((await peer.answer("x"))["result"]) == "1"
        # And free again once it is answered.
        assert "result" in await peer.request("tools/list", request_id="x")


@pytest.mark.req("FRM-8")
async def test_the_id_of_a_subscription_is_in_flight() -> None:
    async with raw_client(make_server()) as peer:
        peer.post("subscriptions/listen", {"notifications": {}}, request_id="x")
        await peer.notification("notifications/subscriptions/acknowledged")
        assert codes(await peer.request("tools/list", request_id="x")) == [-32600]
        assert codes(await peer.request("subscriptions/listen", {"notifications": {}}, request_id="x")) == [-32600]
        peer.cancel("x")
        assert "result" in await peer.request("tools/list", request_id="x")


# Answers


@pytest.mark.parametrize("revision", revisions(), ids=str)
async def test_params_that_cannot_be_read_are_the_client_s_fault(revision: Revision) -> None:
    async with raw_client(make_server(), revision) as peer:
        for method in ("tools/list", "tools/call"):
            error = await peer.error(method, {"cursor": 5, "name": 5})
            assert error["code"] == -32602


@both_eras
def test_a_result_that_cannot_be_one_is_an_error(revision: Revision, caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()

    @server.on_request("example.com/list")
    async def give_list(params: dict[str, Any]) -> list[int]:
        return [1]

    async def main() -> None:
        async with raw_client(server, revision) as peer:
            error = await peer.error("example.com/list")
            assert error["code"] == -32603

    run(main())
    assert "A result must be an object, not a 'list'." in caplog.text


async def test_the_lifespan_s_value_is_known() -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        yield "value"

    server = make_server(lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.lifespan)

    async with raw_client(server) as peer:
        assert await peer.text("look") == "value"


async def test_what_is_told_for_a_request_that_has_ended_is_not_sent() -> None:
    """Even from within its own last moment."""
    server = make_server()
    contexts: list[Context] = []

    @server.tool
    async def keep(ctx: Context) -> str:
        contexts.append(ctx)
        return "done"

    async with raw_client(server) as peer:
        await peer.call("keep", meta={"progressToken": 1})
        call = contexts[0]._call
        call.session.endpoint.notify_about(call, Notification("notifications/late"))
        call.session.endpoint.finish(call, {})
        await peer.settled()
        assert methods_in(peer.seen) == []


# Cancelling


@pytest.mark.req("CAN-2", "CAN-3")
@pytest.mark.parametrize("revision", revisions(), ids=str)
@pytest.mark.parametrize("tool", ["hold", "block"])
async def test_a_cancelled_request_is_stopped_and_not_answered(revision: Revision, tool: str) -> None:
    shop = Workshop()

    async with raw_client(shop.server, revision) as peer:
        cancelled, other = numbered(peer, tool, 1, 2)
        await shop.has_counted(shop.begun, 2)
        peer.cancel(cancelled)
        await peer.settled()
        shop.go.set()
        shop.thread_go.set()
        assert "result" in await peer.answer(other)
        await shop.has_counted(shop.cancelled, 1)
        assert shop.cancelled == [1]
        assert not any(each.get("id") == cancelled for each in peer.seen)


@pytest.mark.req("CAN-3")
async def test_the_work_on_a_cancelled_request_is_stopped_at_once() -> None:
    shop = Workshop()

    async with raw_client(shop.server) as peer:
        (request_id,) = numbered(peer, "hold", 1)
        await peer.settled()
        peer.cancel(request_id)
        await peer.settled()
        assert shop.cancelled == [1]


@pytest.mark.req("CAN-4")
@pytest.mark.parametrize("revision", revisions(), ids=str)
def test_other_cancellations_are_harmless(revision: Revision, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "mcplumb")
    shop = Workshop()

    async def main() -> None:
        async with raw_client(shop.server, revision) as peer:
            done = peer.post_call("echo", {"number": 1})
            await peer.answer(done)
            (running,) = numbered(peer, "hold", 2)
            wrong: list[Any] = [done, done, 999, "999", str(running), None, 1.5, [], {}, True]
            for request_id in wrong:
                peer.cancel(request_id)
            peer.notify("notifications/cancelled", {})
            peer.notify("notifications/cancelled")
            peer.send_line(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}')
            await peer.settled()
            assert shop.cancelled == []
            shop.go.set()
            assert "result" in await peer.answer(running)

    run(main())
    assert caplog.records == []


@pytest.mark.req("CAN-2")
async def test_a_request_that_is_cancelled_at_once_is_not_answered() -> None:
    shop = Workshop()

    async with raw_client(shop.server) as peer:
        for tool in ("hold", "block", "ask"):
            (request_id,) = numbered(peer, tool, 1)
            peer.cancel(request_id)
            await peer.settled()
            assert not any(each.get("id") == request_id and "error" not in each for each in peer.seen[-1:])
        shop.thread_go.set()


@pytest.mark.req("CAN-2")
@pytest.mark.parametrize("revision", revisions(LEGACY), ids=str)
async def test_a_cancelled_question_is_taken_back(revision: Revision) -> None:
    server = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(len(await ctx.roots()))

    async with raw_client(server, revision, capabilities=ABLE) as peer:
        request_id = peer.post_call("ask")
        question = await peer.question("roots/list")
        peer.cancel(request_id)
        assert await peer.notification("notifications/cancelled") == {
            "requestId": question["id"],
            "reason": "The caller does not wait for the answer any more.",
        }
        peer.reply(question, {"roots": []})
        await peer.settled()
        assert request_id not in order_of_answers(peer)


# Notifications


async def test_notifications_of_the_protocol_may_be_heard_too() -> None:
    shop = Workshop()
    heard: list[str] = []

    @shop.server.on_notification("notifications/cancelled")
    async def hear_cancelled(params: dict[str, Any]) -> None:
        heard.append("cancelled")

    @shop.server.on_notification("notifications/initialized")
    async def hear_initialized(params: dict[str, Any]) -> None:
        heard.append("initialized")

    async with raw_client(shop.server, LATEST_LEGACY) as peer:
        (request_id,) = numbered(peer, "hold", 1)
        await turns()
        peer.cancel(request_id)
        await peer.settled()
        assert heard == ["initialized", "cancelled"]
        assert shop.cancelled == [1]


@both_eras
async def test_notifications_out_of_turn_and_unknown_ones_are_harmless(revision: Revision) -> None:
    async with raw_client(make_server(), revision, opens=False) as peer:
        for method in ("notifications/initialized", "notifications/nothing", "", "tools/call", "initialize"):
            peer.notify(method, {})
        if not revision.is_modern:
            await peer.initialize()
        await peer.settled()
        assert methods_in(peer.seen) == []
