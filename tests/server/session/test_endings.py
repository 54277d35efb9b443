"""One connection, as its client sees it: the end of the input, stopping, and clients that are gone."""

import asyncio
import logging

import msgspec
import pytest

from mcplumb.errors import Closed
from mcplumb.limits import Limits
from mcplumb.revisions import LATEST_LEGACY, Revision
from mcplumb.server.context import Context
from tests.kit.loop import PATIENCE, happens, run, turns
from tests.kit.products import revisions
from tests.kit.results import text_of
from tests.server.harness import ABLE, WITH_BATCHES, make_server, piped_client, raw_client
from tests.server.workshop import Workshop, both_eras, codes, limited, numbered

# The end of the client's input


@pytest.mark.req("LIF-13")
@pytest.mark.parametrize("revision", revisions(), ids=str)
@pytest.mark.parametrize("tool", ["hold", "block"])
async def test_what_was_accepted_is_finished_after_the_end_of_the_input(revision: Revision, tool: str) -> None:
    shop = Workshop(limits=limited(2), finish_within=PATIENCE)

    async with piped_client(shop.server, revision) as (peer, hang_up):
        ids = numbered(peer, tool, *range(10))
        await hang_up()
        await turns()
        assert not peer.has_ended
        shop.go.set()
        shop.thread_go.set()
        for number, request_id in enumerate(ids):
            assert text_of((await peer.answer(request_id))["result"]) == str(number)
        await peer.until(lambda: peer.has_ended)
        await peer.served()


async def test_what_was_heard_is_dealt_with_after_the_end_of_the_input() -> None:
    server = make_server(finish_within=PATIENCE)
    heard, may_end = [], asyncio.Event()

    @server.on_notification("notifications/example.com/hello")
    async def hello(params: dict[str, object]) -> None:
        await may_end.wait()
        heard.append(params)

    async with piped_client(server, LATEST_LEGACY) as (peer, hang_up):
        peer.notify("notifications/example.com/hello", {"name": "x"})
        await hang_up()
        await turns()
        assert not peer.has_ended
        may_end.set()
        await peer.until(lambda: peer.has_ended)
        await peer.served()
    assert heard == [{"name": "x"}]


@pytest.mark.req("LIF-13")
@both_eras
@pytest.mark.parametrize("tool", ["hold", "block"])
def test_what_is_not_finished_in_time_is_cancelled_and_the_client_is_told(
    revision: Revision, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Workshop(limits=limited(1), finish_within=0)

    async def main() -> None:
        async with piped_client(shop.server, revision) as (peer, hang_up):
            running, held = numbered(peer, tool, 1, 2)
            if tool == "block":
                await happens(shop.thread_begun)
            await hang_up()
            for request_id in (running, held):
                error = (await peer.answer(request_id))["error"]
                assert error == {
                    "code": -32603,
                    "message": "The server is stopping, and does not finish this request.",
                }
            await peer.until(lambda: peer.has_ended)
            await peer.served()
            shop.thread_go.set()
            assert shop.begun == [1]

    run(main())
    assert f"does not finish tools/call with the id {2 if not revision.is_modern else 1}" in caplog.text


@pytest.mark.req("LIF-13")
async def test_a_client_that_leaves_while_nothing_is_read_is_noticed() -> None:
    """More waits than is read, and the work that would make room never ends."""
    shop = Workshop(limits=limited(1), finish_within=0.1)

    async with piped_client(shop.server) as (peer, hang_up):
        running, held, *_ = numbered(peer, "hold", *range(10))
        await turns()
        await hang_up()
        assert "error" in await peer.answer(running)
        assert "error" in await peer.answer(held)
        await peer.served()
        assert shop.cancelled == [0]


async def test_questions_end_with_the_input() -> None:
    shop = Workshop(finish_within=PATIENCE)
    server = shop.server
    go = asyncio.Event()

    @server.tool
    async def ask_later(ctx: Context) -> str:
        await go.wait()
        try:
            await ctx.roots()
        except Closed as error:
            return str(error)
        return "not reached"

    async with piped_client(server, LATEST_LEGACY, capabilities=ABLE) as (peer, hang_up):
        (asking,) = numbered(peer, "ask", 1)
        later = peer.post_call("ask_later")
        await peer.question()
        await hang_up()
        assert text_of((await peer.answer(asking))["result"]) == "closed"
        go.set()
        said = text_of((await peer.answer(later))["result"])
        assert said == (
            "roots/list was not sent: the connection is closed. The client sends nothing any more, so it cannot answer."
        )
        await peer.served()


@pytest.mark.req("FRM-6")
@pytest.mark.parametrize("is_torn", [False, True])
def test_the_end_in_the_middle_of_a_line_is_noted(is_torn: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcplumb")

    async def main() -> None:
        async with piped_client(make_server()) as (peer, hang_up):
            await peer.settled()
            if is_torn:
                peer.send_raw(b'{"jsonrpc":"2.0","id":')
            await hang_up()
            await peer.served()

    run(main())
    assert ("ended in the middle of a line" in caplog.text) == is_torn


@pytest.mark.req("LIF-13")
async def test_an_unterminated_last_line_is_answered() -> None:
    async with piped_client(make_server()) as (peer, hang_up):
        await peer.settled()
        peer.send_raw(msgspec.json.encode(peer.message("tools/list", request_id="last")))
        await hang_up()
        assert "result" in await peer.answer("last")
        await peer.served()


@pytest.mark.req("SUB-5")
async def test_subscriptions_end_with_the_input() -> None:
    async with piped_client(make_server(finish_within=PATIENCE)) as (peer, hang_up):
        request_id = peer.post("subscriptions/listen", {"notifications": {}})
        await peer.notification("notifications/subscriptions/acknowledged")
        await hang_up()
        assert "result" in await peer.answer(request_id)
        await peer.served()


# Stopping


@pytest.mark.req("LIF-14")
@both_eras
@pytest.mark.parametrize("tool", ["hold", "block"])
async def test_a_server_that_stops_finishes_what_it_accepted(revision: Revision, tool: str) -> None:
    shop = Workshop(limits=limited(2), stop_within=PATIENCE)

    async with raw_client(shop.server, revision) as peer:
        ids = numbered(peer, tool, *range(3))
        await turns()
        assert shop.server.stop() is True
        await turns()
        # Nothing new is taken in.
        late = peer.post_call("echo", {"number": 9})
        also_late = peer.post("tools/list")
        for request_id in (late, also_late):
            assert "is stopping" in (await peer.answer(request_id))["error"]["message"]
        shop.go.set()
        shop.thread_go.set()
        for number, request_id in enumerate(ids):
            assert text_of((await peer.answer(request_id))["result"]) == str(number)
        await peer.until(lambda: peer.has_ended)
        await peer.served()
        assert shop.begun == [0, 1, 2]


@pytest.mark.req("LIF-14")
@both_eras
@pytest.mark.parametrize("tool", ["hold", "block", "ask"])
async def test_a_server_that_stops_does_not_wait_for_ever(revision: Revision, tool: str) -> None:
    shop = Workshop(limits=limited(1), stop_within=0)

    async with raw_client(shop.server, revision, capabilities=ABLE) as peer:
        if tool == "ask" and revision.is_modern:
            return  # there a call ends with its question
        ids = numbered(peer, tool, 1, 2)
        if tool == "block":
            await happens(shop.thread_begun)
        await turns()
        shop.server.stop()
        for request_id in ids:
            assert "is stopping" in (await peer.answer(request_id))["error"]["message"]
        await peer.served()
        shop.thread_go.set()
        assert shop.begun == [1]


@pytest.mark.req("FRM-10", "LIF-14")
@pytest.mark.parametrize("how", ["stop", "end of input"])
async def test_a_batch_that_is_not_finished_in_time_is_answered_as_one(how: str) -> None:
    shop = Workshop(limits=Limits(max_in_flight=2))

    async with piped_client(shop.server, WITH_BATCHES) as (peer, hang_up):
        calls = [
            peer.message("tools/call", {"name": tool, "arguments": {"number": number}}, request_id=number)
            for number, tool in enumerate(("echo", "hold", "hold", "hold", "echo"))
        ]
        peer.connection.send_batch(calls)
        await peer.settled()
        if how == "stop":
            shop.server.stop()
        else:
            await hang_up()
        first, *others = await peer.batch()
        assert text_of(first["result"]) == "0"
        assert codes(*others) == [-32603] * 4
        await peer.served()


async def test_a_function_that_ignores_its_cancellation_does_not_hold_up_the_end() -> None:
    server = make_server()
    go = asyncio.Event()

    @server.tool
    async def stubborn() -> str:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return "too late"

    async with raw_client(server) as peer:
        request_id = peer.post_call("stubborn")
        await turns()
        server.stop()
        assert "error" in await peer.answer(request_id)
        await peer.served()
        go.set()


async def test_a_tool_may_stop_its_own_server() -> None:
    server = make_server(stop_within=PATIENCE)

    @server.tool
    async def bye() -> str:
        server.stop()
        return "Bye."

    @server.tool
    def plain_bye() -> str:
        server.stop()
        return "Bye."

    for tool in ("bye", "plain_bye"):
        async with raw_client(server) as peer:
            assert await peer.text(tool) == "Bye."
            await peer.served()


@pytest.mark.parametrize("first", ["stop", "end of input"])
async def test_stopping_again_makes_the_time_shorter_but_never_longer(first: str) -> None:
    shop = Workshop(stop_within=PATIENCE, finish_within=PATIENCE)

    async with piped_client(shop.server) as (peer, hang_up):
        (request_id,) = numbered(peer, "hold", 1)
        await turns()
        if first == "stop":
            shop.server.stop()
        else:
            await hang_up()
        await turns()
        shop.server.stop_within = 0
        shop.server.stop()
        shop.server.stop_within = PATIENCE
        shop.server.stop()
        assert "error" in await peer.answer(request_id)
        await peer.served()


def test_stopping_a_server_whose_client_does_not_read(caplog: pytest.LogCaptureFixture) -> None:
    shop = Workshop()

    async def main() -> None:
        async with raw_client(shop.server) as peer:
            peer.connection.pause()
            ids = [peer.post_call("large", {"size": 3_000_000}) for _ in range(3)]
            await turns()
            shop.server.stop()
            await peer.served()
            assert len(ids) == 3

    run(main())
    assert "The client did not read the last answers in time." in caplog.text


async def test_the_last_answers_are_written_before_the_end() -> None:
    shop = Workshop(stop_within=PATIENCE)

    async with raw_client(shop.server) as peer:
        peer.connection.pause()
        ids = [peer.post_call("large", {"size": 500_000}) for _ in range(10)]
        await turns()
        shop.server.stop()
        await turns()
        peer.connection.resume()
        for request_id in ids:
            response = await peer.answer(request_id)
            assert "result" in response or "is stopping" in response["error"]["message"]
        await peer.until(lambda: peer.has_ended)
        await peer.served()


async def test_stopping_between_messages() -> None:
    for count in range(1, 10):
        server = make_server()
        async with raw_client(server, LATEST_LEGACY, opens=False) as peer:
            peer.post("initialize", {"protocolVersion": str(LATEST_LEGACY), "capabilities": {}})
            await turns(count)
            server.stop()
            server.stop()
            await peer.served()
            assert server.stop() is False


# A client that is gone


@pytest.mark.req("LIF-14")
@both_eras
@pytest.mark.parametrize("tool", ["hold", "block", "large"])
def test_a_client_that_is_gone_ends_everything_quietly(
    revision: Revision, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mcplumb")
    shop = Workshop(finish_within=PATIENCE, limits=limited(2))

    async def main() -> None:
        async with raw_client(shop.server, revision) as peer:
            if tool == "large":
                for _ in range(10):
                    peer.post_call("large", {"size": 1_000_000})
            else:
                numbered(peer, tool, 1, 2, 3)
            await turns()
            peer.connection.abort()
            # It is noticed when something is written.
            shop.go.set()
            shop.thread_go.set()
            await peer.served()

    run(main())
    assert caplog.records == []


async def test_a_client_that_cannot_be_written_to_ends_what_still_runs() -> None:
    shop = Workshop(finish_within=PATIENCE)

    async with raw_client(shop.server) as peer:
        numbered(peer, "hold", 1, 2)
        await turns()
        peer.connection.abort()
        shop.server.add_tool(lambda: None, name="new")
        await turns()
        (session,) = shop.server.active_sessions._sessions
        session.broke(BrokenPipeError())
        await peer.served()
        assert shop.cancelled == [1, 2]


async def test_serving_may_be_cancelled() -> None:
    shop = Workshop(finish_within=PATIENCE)

    async with raw_client(shop.server, LATEST_LEGACY, capabilities=ABLE) as peer:
        numbered(peer, "hold", 1)
        numbered(peer, "ask", 2)
        await peer.question()
        peer.serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await peer.serving
        peer.serving = asyncio.create_task(asyncio.sleep(0))
        await turns()
        assert shop.cancelled == [1]
        await peer.until(lambda: peer.has_ended)
