"""One connection from its start to its end, as its client sees it."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import random
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from mcpipe.errors import Closed
from mcpipe.limits import Limits
from mcpipe.revisions import LATEST, LATEST_LEGACY, LEGACY, Revision
from mcpipe.server.context import Context
from mcpipe.server.server import Server
from mcpipe.types.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION
from mcpipe.wire.messages import Notification, Request, Result
from tests.server.harness import (
    ABLE,
    ALL_REVISIONS,
    ONE_OF_EACH_ERA,
    PATIENCE,
    WITH_BATCHES,
    Id,
    Peer,
    Plain,
    happens,
    make_server,
    methods_in,
    piped_client,
    progress_in,
    raw_client,
    run,
    text_of,
    turns,
)

every_revision = pytest.mark.parametrize("revision", ALL_REVISIONS, ids=str)
every_legacy = pytest.mark.parametrize("revision", LEGACY, ids=str)
both_eras = pytest.mark.parametrize("revision", ONE_OF_EACH_ERA, ids=str)
small_limits = pytest.mark.parametrize("limit", [1, 2, 3])


class Workshop:
    """A server with tools that wait until they are let go, and what is known of them."""

    def __init__(self, **options: Any) -> None:
        self.server: Server = make_server(**options)
        #: The numbers of the calls that have begun, in that order, and of those that were cancelled.
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        #: How many async ones run, and how many did at the most.
        self.running = self.most = 0
        self.go = asyncio.Event()
        self.thread_go = threading.Event()
        self.thread_begun = threading.Event()
        self.server.add_tool(self.hold)
        self.server.add_tool(self.block)
        self.server.add_tool(self.echo)
        self.server.add_tool(self.large)
        self.server.add_tool(self.ask)

    async def has_counted(self, numbers: list[int], count: int) -> None:
        """Wait until so many have begun, or were cancelled; in threads that takes its time."""
        while len(numbers) < count:  # noqa: ASYNC110 - an event would have to be set by threads
            await asyncio.sleep(0.001)

    async def echo(self, number: int) -> int:
        self.begun.append(number)
        return number

    async def hold(self, number: int) -> int:
        self.begun.append(number)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        finally:
            self.running -= 1
        return number

    def block(self, number: int, ctx: Context) -> int:
        self.begun.append(number)
        self.thread_begun.set()
        assert self.thread_go.wait(PATIENCE)
        if ctx.cancelled:
            self.cancelled.append(number)
        return number

    async def large(self, size: int) -> str:
        return "x" * size

    async def ask(self, number: int, ctx: Context) -> str:
        self.begun.append(number)
        try:
            return (await ctx.elicit_url(f"{number}", "https://example.com")).action
        except Closed:
            return "closed"


def limited(limit: int) -> Limits:
    """So many requests may be in flight, and as many may wait."""
    return Limits(max_in_flight=limit, max_waiting=limit)


def numbered(peer: Peer, tool: str, *numbers: int) -> list[Id]:
    """Call a tool with each of these numbers."""
    return [peer.post_call(tool, {"number": number}) for number in numbers]


def order_of_answers(peer: Peer) -> list[Id]:
    return [each["id"] for each in peer.seen if "method" not in each]


def codes(*responses: Plain) -> list[int]:
    return [response["error"]["code"] for response in responses]


# How a connection is opened


@pytest.mark.req("LEG-1", "LEG-2")
@every_legacy
def test_the_handshake(revision: Revision) -> None:
    server = make_server(version="1.2", title="Test!", instructions="Be kind.")
    server.add_tool(lambda: None, name="t")

    async def main() -> None:
        async with raw_client(server, revision, opens=False) as peer:
            opened = await peer.initialize()
            assert opened["protocolVersion"] == str(revision)
            assert opened["capabilities"]["tools"] == {"listChanged": True}
            assert opened["instructions"] == "Be kind."
            assert opened["serverInfo"]["name"] == "test"
            assert opened["serverInfo"]["version"] == "1.2"
            assert ("title" in opened["serverInfo"]) == revision.has_titles
            assert "resultType" not in opened
            assert "result" in await peer.request("tools/list")

    run(main())


@pytest.mark.req("LEG-2")
@pytest.mark.parametrize("version", ["1999-01-01", "2099-01-01", "", str(LATEST)])
def test_a_version_that_is_not_served_gets_the_newest_that_is(version: str) -> None:
    async def main() -> None:
        async with raw_client(make_server(), LATEST_LEGACY, opens=False) as peer:
            assert (await peer.initialize(protocolVersion=version))["protocolVersion"] == str(LATEST_LEGACY)
        served = make_server(revisions=[str(LEGACY[-1]), str(LEGACY[-2])])
        async with raw_client(served, LATEST_LEGACY, opens=False) as peer:
            assert (await peer.initialize(protocolVersion=version))["protocolVersion"] == str(LEGACY[-2])

    run(main())


@pytest.mark.req("LEG-3")
def test_requests_before_the_handshake_get_a_clear_error_and_the_rest_works() -> None:
    async def main() -> None:
        async with raw_client(make_server(), LATEST_LEGACY, opens=False) as peer:
            assert (await peer.result("ping")) == {}
            error = await peer.error("tools/list")
            assert error["code"] == -32602
            assert "open a session with initialize first" in error["message"]
            await peer.initialize()
            assert "result" in await peer.request("tools/list")

    run(main())


def test_a_session_is_opened_once() -> None:
    async def main() -> None:
        async with raw_client(make_server(), LATEST_LEGACY) as peer:
            error = await peer.error("initialize", {"protocolVersion": str(LATEST_LEGACY), "capabilities": {}})
            assert error["code"] == -32600
            assert "result" in await peer.request("tools/list")

    run(main())


@pytest.mark.parametrize("is_held", [False, True])
def test_a_handshake_whose_id_is_in_use_opens_nothing(is_held: bool) -> None:
    shop = Workshop(limits=limited(2))

    async def main() -> None:
        async with raw_client(shop.server) as peer:
            if is_held:
                numbered(peer, "hold", 1, 2)
            peer.post_call("hold", {"number": 3}, request_id="x")
            await turns()
            params = {"protocolVersion": str(LATEST_LEGACY), "capabilities": {}}
            peer.connection.send(Request("x", "initialize", params))
            assert codes(await peer.answer("x")) == [-32600]
            shop.go.set()
            assert "result" in await peer.answer("x")
            peer.revision = LATEST_LEGACY
            await peer.initialize()

    run(main())


@pytest.mark.req("ERA-11")
def test_a_modern_server_answers_the_handshake_with_its_versions() -> None:
    async def main() -> None:
        async with raw_client(make_server(revisions=[str(LATEST)]), LATEST_LEGACY, opens=False) as peer:
            error = await peer.error("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}})
            assert error["code"] == -32022
            assert error["data"] == {"supported": [str(LATEST)], "requested": "2025-06-18"}

    run(main())


def test_a_legacy_server_does_not_know_modern_requests() -> None:
    async def main() -> None:
        async with raw_client(make_server(revisions=[str(LATEST_LEGACY)])) as peer:
            for method in ("server/discover", "tools/list"):
                assert "open a session with initialize first" in (await peer.error(method))["message"]
            peer.revision = LATEST_LEGACY
            await peer.initialize()
            assert (await peer.error("server/discover"))["code"] == -32601

    run(main())


@pytest.mark.req("META-2", "META-3", "META-7")
def test_every_modern_request_has_to_say_its_version_and_capabilities() -> None:
    async def main() -> None:
        async with raw_client(make_server()) as peer:
            assert "result" in await peer.request("tools/list")
            for missing in (PROTOCOL_VERSION, CLIENT_CAPABILITIES):
                meta = {key: value for key, value in peer.meta().items() if key != missing}
                peer.connection.send(Request("x", "tools/list", {"_meta": meta}))
                response = await peer.answer("x")
                assert codes(response) == [-32602]
                assert missing in response["error"]["message"]
            error = await peer.error("tools/list", meta={PROTOCOL_VERSION: "2099-01-01"})
            assert (error["code"], error["data"]["supported"]) == (-32022, [str(LATEST)])
            for key, value in ((CLIENT_INFO, 5), (LOG_LEVEL, "loud"), (CLIENT_CAPABILITIES, [])):
                assert (await peer.error("tools/list", meta={key: value}))["code"] == -32602
            assert "result" in await peer.request("tools/list")

    run(main())


@pytest.mark.req("ERA-10")
@every_legacy
def test_both_eras_may_use_one_connection(revision: Revision) -> None:
    shop = Workshop()

    async def main() -> None:
        async with raw_client(shop.server, revision, capabilities=ABLE) as legacy:
            modern = Peer(legacy.connection, LATEST, ABLE)
            ids: dict[Id, bool] = {}
            for number in range(10):
                ids[legacy.post_call("hold", {"number": number}, request_id=f"l{number}")] = False
                ids[legacy_post(legacy, modern, number)] = True
            await turns()
            shop.go.set()
            for request_id, is_modern in ids.items():
                result = (await legacy.answer(request_id))["result"]
                assert ("resultType" in result) == is_modern
            # A question goes to each in its own way.
            legacy.post_call("ask", {"number": 1}, request_id="asked")
            question = await legacy.question("elicitation/create") if revision.has_url_elicitation else None
            legacy.connection.send(modern.message("tools/call", {"name": "ask", "arguments": {"number": 2}}))
            asked = await legacy.take(lambda each: "inputRequests" in each.get("result", {}))
            assert asked["result"]["resultType"] == "input_required"
            if question is not None:
                legacy.reply(question, {"action": "accept"})
            assert "result" in await legacy.answer("asked")

    def legacy_post(legacy: Peer, modern: Peer, number: int) -> Id:
        request = modern.message(
            "tools/call", {"name": "hold", "arguments": {"number": number}}, request_id=f"m{number}"
        )
        legacy.connection.send(request)
        return request.id

    run(main())


@every_revision
@pytest.mark.parametrize("method", ["nothing", "tools/nothing", "", "x" * 10_000, "sampling/createMessage"])
def test_a_method_that_is_not_there(revision: Revision, method: str) -> None:
    async def main() -> None:
        async with raw_client(make_server(), revision) as peer:
            error = await peer.error(method)
            assert error["code"] == -32601
            assert f"in protocol revision {revision}" in error["message"]
            assert len(error["message"]) < 300

    run(main())


# Lines that are no messages


@pytest.mark.req("FRM-7", "FRM-4")
@every_revision
@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        (b"garbage", -32700, None),
        (b"{", -32700, None),
        (b"5", -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":"a","method":5}', -32600, "a"),
        (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', -32600, 7),
    ],
)
def test_a_bad_line_is_answered_where_it_may_be(
    revision: Revision, line: bytes, code: int, request_id: Id | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with raw_client(make_server(), revision) as peer:
            peer.send_line(line)
            await peer.settled()
            answers = [each for each in peer.seen if "error" in each]
            if request_id is None and not revision.has_idless_errors:
                assert answers == []
            else:
                (answer,) = answers
                assert answer["error"]["code"] == code
                assert answer.get("id") == request_id

    run(main())
    assert "A line from the client was passed over." in caplog.text


@pytest.mark.req("FRM-7")
@both_eras
@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":1}',
        b'{"jsonrpc":"2.0","id":1,"result":1,"error":2}',
        b'{"jsonrpc":"2.0","id":1,"error":"x"}',
        b'{"jsonrpc":"2.0","id":99,"result":{}}',
        b'{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}',
        b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"}}',
    ],
)
def test_what_looks_like_a_response_is_never_answered(revision: Revision, line: bytes) -> None:
    async def main() -> None:
        async with raw_client(make_server(), revision) as peer:
            peer.send_line(line)
            await peer.settled()
            if line != b'{"jsonrpc":"2.0","id":1}':
                assert [each for each in peer.seen if "error" in each] == []

    run(main())


def test_a_flood_of_bad_lines_is_not_a_flood_of_logs(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with raw_client(make_server(), LEGACY[-1]) as peer:
            for _ in range(1000):
                peer.send_line(b"garbage")
            await peer.settled()

    run(main())
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 10 + 6
    assert [sentence.split()[0] for sentence in said[10:]] == ["16", "32", "64", "128", "256", "512"]


def test_a_broken_answer_ends_its_question() -> None:
    server = make_server()
    raised: list[BaseException] = []

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            await ctx.roots()
        except Exception as error:
            raised.append(error)
            raise
        return "not reached"

    async def main() -> None:
        async with raw_client(server, LATEST_LEGACY, capabilities=ABLE) as peer:
            request_id = peer.post_call("ask")
            question = await peer.question()
            peer.send_line(b'{"jsonrpc":"2.0","id":%d,"result":1,"error":2}' % question["id"])
            assert (await peer.answer(request_id))["result"]["isError"] is True

    run(main())
    assert "answered with what is no answer" in str(raised[0])


# Batches


@pytest.mark.req("FRM-10")
@every_revision
def test_a_batch_is_a_message_in_one_revision_only(revision: Revision) -> None:
    shop = Workshop()

    async def main() -> None:
        async with raw_client(shop.server, revision) as peer:
            calls = [peer.message("tools/call", {"name": "echo", "arguments": {"number": n}}) for n in range(3)]
            peer.connection.send_batch(calls)
            await peer.settled()
            if revision.has_batches:
                assert [text_of(each["result"]) for each in await peer.batch()] == ["0", "1", "2"]
            else:
                assert shop.begun == []
                answers = [each for each in peer.seen if "error" in each]
                assert codes(*answers) == ([-32600] if revision.has_idless_errors else [])

    run(main())


@pytest.mark.req("FRM-10")
def test_a_batch_before_any_session_is_refused() -> None:
    async def main() -> None:
        async with raw_client(make_server(), WITH_BATCHES, opens=False) as peer:
            peer.connection.send_batch([peer.message("ping")])
            await peer.until(lambda: peer.seen)
            assert codes(peer.seen[0]) == [-32600]
            await peer.initialize()

    run(main())


@pytest.mark.req("FRM-10")
def test_the_answers_of_a_batch_wait_for_each_other() -> None:
    shop = Workshop()

    async def main() -> None:
        async with raw_client(shop.server, WITH_BATCHES) as peer:
            peer.connection.send_batch(
                [
                    peer.message("ping", request_id="ping"),
                    peer.message("tools/call", {"name": "hold", "arguments": {"number": 1}}, request_id="hold"),
                    peer.message("nothing", request_id="nothing"),
                    Notification("notifications/nothing"),
                    peer.message("tools/call", {"name": "nothing"}, request_id="wrong"),
                ]
            )
            await peer.settled()
            assert not any("batch" in each for each in peer.seen)
            shop.go.set()
            hold, nothing, ping, wrong = await peer.batch()
            assert (hold["id"], text_of(hold["result"])) == ("hold", "1")
            assert (ping["id"], ping["result"]) == ("ping", {})
            assert codes(nothing, wrong) == [-32601, -32602]

    run(main())


@pytest.mark.req("FRM-10", "CAN-2")
@pytest.mark.parametrize("cancelled", [["a"], ["b"], ["a", "b"]])
def test_a_request_of_a_batch_may_be_cancelled(cancelled: list[str]) -> None:
    shop = Workshop()

    async def main() -> None:
        async with raw_client(shop.server, WITH_BATCHES) as peer:
            peer.connection.send_batch(
                [
                    peer.message("tools/call", {"name": "hold", "arguments": {"number": n}}, request_id=each)
                    for n, each in enumerate("ab")
                ]
            )
            await peer.settled()
            for each in cancelled:
                peer.cancel(each)
            await peer.settled()
            shop.go.set()
            if len(cancelled) == 1:
                assert [each["id"] for each in await peer.batch()] == [next(x for x in "ab" if x not in cancelled)]
            await peer.settled()
            assert not any("batch" in each for each in peer.inbox)

    run(main())


def test_a_batch_may_hold_anything() -> None:
    shop = Workshop()
    heard: list[dict[str, Any]] = []

    @shop.server.notification("example.com/hello")
    async def hear(params: dict[str, Any]) -> None:
        heard.append(params)

    async def main() -> None:
        async with raw_client(shop.server, WITH_BATCHES, capabilities=ABLE) as peer:
            peer.post_call("ask", {"number": 1}, request_id="asked")
            await turns()
            # This revision has no web pages to send anyone to, so nobody is asked.
            await peer.answer("asked")
            peer.send_line(
                b'[{"jsonrpc":"2.0","id":1,"method":"ping"},5,{"jsonrpc":"2.0","id":"bad","method":7},'
                b'{"jsonrpc":"2.0","method":"example.com/hello","params":{"a":1}},'
                b'{"jsonrpc":"2.0","id":1,"result":1,"error":2},{"jsonrpc":"2.0","id":77,"result":{}},'
                b'{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}]'
            )
            ping, second, bad = await peer.batch()
            assert (ping["id"], ping["result"]) == (1, {})
            assert codes(second, bad) == [-32600, -32600]
            assert heard == [{"a": 1}]

    run(main())


def test_a_batch_without_requests_has_no_answer() -> None:
    async def main() -> None:
        async with raw_client(make_server(), WITH_BATCHES) as peer:
            peer.connection.send_batch([Notification("notifications/x"), Result(9, {})])
            peer.send_line(b"[5]")
            peer.send_line(b"[]")
            await peer.settled()
            assert len(peer.seen) == 2

    run(main())


def test_a_batch_holds_no_subscription() -> None:
    """Its answers would never be complete."""

    async def main() -> None:
        async with raw_client(make_server(), WITH_BATCHES) as peer:
            modern = Peer(peer.connection, LATEST, {})
            listen = modern.message("subscriptions/listen", {"notifications": {}}, request_id="listen")
            peer.connection.send_batch([listen, peer.message("ping", request_id="ping")])
            refused, ping = await peer.batch()
            assert codes(refused) == [-32600]
            assert ping["result"] == {}

    run(main())


@pytest.mark.req("FRM-8", "FRM-10")
def test_an_id_is_in_use_until_the_answer_of_its_batch_is_sent() -> None:
    shop = Workshop()

    async def main() -> None:
        async with raw_client(shop.server, WITH_BATCHES) as peer:
            peer.connection.send_batch(
                [
                    peer.message("ping", request_id=8),
                    peer.message("tools/call", {"name": "hold", "arguments": {"number": 1}}, request_id=9),
                ]
            )
            await peer.settled()
            peer.connection.send(peer.message("ping", request_id=8))
            peer.connection.send(peer.message("tools/call", {"name": "hold"}, request_id=8))
            await peer.settled()
            assert [each["error"]["code"] for each in peer.seen if each.get("id") == 8] == [-32600, -32600]
            shop.go.set()
            assert [each["id"] for each in await peer.batch()] == [8, 9]
            peer.connection.send(peer.message("ping", request_id=8))
            await peer.settled()
            assert [each["result"] for each in peer.seen if each.get("id") == 8 and "result" in each] == [{}]

    run(main())


def test_an_id_that_a_batch_has_twice_is_refused_the_second_time() -> None:
    shop = Workshop()

    async def main() -> None:
        async with raw_client(shop.server, WITH_BATCHES) as peer:
            call = peer.message("tools/call", {"name": "hold", "arguments": {"number": 1}}, request_id="x")
            peer.connection.send_batch([call, call, peer.message("ping", request_id="x")])
            await peer.settled()
            shop.go.set()
            answers = await peer.batch()
            assert [each["id"] for each in answers] == ["x"] * 3
            assert sorted("result" in each for each in answers) == [False, False, True]

    run(main())


@small_limits
def test_a_batch_may_have_more_requests_than_may_be_in_flight(limit: int) -> None:
    shop = Workshop(limits=limited(limit))

    async def main() -> None:
        async with raw_client(shop.server, WITH_BATCHES) as peer:
            for _ in range(2):
                peer.connection.send_batch(
                    [peer.message("tools/call", {"name": "hold", "arguments": {"number": n}}) for n in range(10)]
                    + [peer.message("ping")]
                )
            last = peer.post_call("echo", {"number": 77})
            await turns()
            shop.go.set()
            for _ in range(2):
                assert all("result" in each for each in await peer.batch())
            assert "result" in await peer.answer(last)
            assert sorted(shop.begun) == sorted([*range(10), *range(10), 77])

    run(main())


@pytest.mark.parametrize("cancelled", [[1], [1, 2], [0, 1, 2]])
def test_a_request_of_a_batch_may_be_cancelled_while_it_is_held_back(cancelled: list[int]) -> None:
    shop = Workshop(limits=limited(1))

    async def main() -> None:
        async with raw_client(shop.server, WITH_BATCHES, limits=Limits()) as peer:
            calls = [
                peer.message("tools/call", {"name": "hold", "arguments": {"number": n}}, request_id=n) for n in range(3)
            ]
            # In the same batch, for nothing more is read until one of them has ended.
            notes = [Notification("notifications/cancelled", {"requestId": number}) for number in reversed(cancelled)]
            peer.connection.send_batch([*calls, *notes])
            await turns()
            shop.go.set()
            await peer.settled()
            left = [number for number in range(3) if number not in cancelled]
            assert [each["id"] for batch in peer.inbox if "batch" in batch for each in batch["batch"]] == left
            assert set(shop.begun) == {0, *left}

    run(main())


# Ids


@pytest.mark.req("FRM-8")
@every_revision
def test_ids_keep_their_type_and_may_look_alike(revision: Revision) -> None:
    shop = Workshop()

    async def main() -> None:
        async with raw_client(shop.server, revision) as peer:
            ids: list[Id] = [101, "101", -5, "", "ü", 2**53, 2**63 - 1, -(2**63)]
            for number, request_id in enumerate(ids):
                peer.post_call("hold", {"number": number}, request_id=request_id)
            await turns()
            shop.go.set()
            for number, request_id in enumerate(ids):
                assert text_of((await peer.answer(request_id))["result"]) == str(number)

    run(main())


@pytest.mark.req("FRM-8")
@both_eras
@pytest.mark.parametrize("tool", ["hold", "block"])
def test_an_id_in_flight_is_refused_a_second_time(revision: Revision, tool: str) -> None:
    shop = Workshop()

    async def main() -> None:
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

    run(main())


@pytest.mark.req("FRM-8")
def test_the_id_of_a_subscription_is_in_flight() -> None:
    async def main() -> None:
        async with raw_client(make_server()) as peer:
            peer.post("subscriptions/listen", {"notifications": {}}, request_id="x")
            await peer.notification("notifications/subscriptions/acknowledged")
            assert codes(await peer.request("tools/list", request_id="x")) == [-32600]
            assert codes(await peer.request("subscriptions/listen", {"notifications": {}}, request_id="x")) == [-32600]
            peer.cancel("x")
            assert "result" in await peer.request("tools/list", request_id="x")

    run(main())


# Answers


@every_revision
def test_params_that_cannot_be_read_are_the_client_s_fault(revision: Revision) -> None:
    async def main() -> None:
        async with raw_client(make_server(), revision) as peer:
            for method in ("tools/list", "tools/call"):
                error = await peer.error(method, {"cursor": 5, "name": 5})
                assert error["code"] == -32602

    run(main())


@both_eras
def test_a_result_that_cannot_be_one_is_an_error(revision: Revision, caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()

    @server.request("example.com/list")
    async def give_list(params: dict[str, Any]) -> list[int]:
        return [1]

    async def main() -> None:
        async with raw_client(server, revision) as peer:
            error = await peer.error("example.com/list")
            assert error["code"] == -32603

    run(main())
    assert "A result has to be an object, and this is 'list'." in caplog.text


def test_the_lifespan_s_value_is_known() -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        yield "value"

    server = make_server(lifespan=lifespan)

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.lifespan)

    async def main() -> None:
        async with raw_client(server) as peer:
            assert await peer.text("look") == "value"

    run(main())


def test_what_is_told_for_a_request_that_has_ended_is_not_sent() -> None:
    """Even from within its own last moment."""
    server = make_server()
    contexts: list[Context] = []

    @server.tool
    async def keep(ctx: Context) -> str:
        contexts.append(ctx)
        return "done"

    async def main() -> None:
        async with raw_client(server) as peer:
            await peer.call("keep", meta={"progressToken": 1})
            call = contexts[0]._call
            call.session.notify(call.work, Notification("notifications/late"))
            call.session.finish(call, {})
            call.session.answer_subscription(Result("nobody", {}))
            await peer.settled()
            assert methods_in(peer.seen) == []

    run(main())


# Cancelling


@pytest.mark.req("CAN-2", "CAN-3")
@every_revision
@pytest.mark.parametrize("tool", ["hold", "block"])
def test_a_cancelled_request_is_stopped_and_not_answered(revision: Revision, tool: str) -> None:
    shop = Workshop()

    async def main() -> None:
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

    run(main())


@pytest.mark.req("CAN-4")
@every_revision
def test_other_cancellations_are_harmless(revision: Revision, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "mcpipe")
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
def test_a_request_that_is_cancelled_at_once_is_not_answered() -> None:
    shop = Workshop()

    async def main() -> None:
        async with raw_client(shop.server) as peer:
            for tool in ("hold", "block", "ask"):
                (request_id,) = numbered(peer, tool, 1)
                peer.cancel(request_id)
                await peer.settled()
                assert not any(each.get("id") == request_id and "error" not in each for each in peer.seen[-1:])
            shop.thread_go.set()

    run(main())


@pytest.mark.req("CAN-2")
@every_legacy
def test_a_cancelled_question_is_taken_back(revision: Revision) -> None:
    server = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        return str(len(await ctx.roots()))

    async def main() -> None:
        async with raw_client(server, revision, capabilities=ABLE) as peer:
            request_id = peer.post_call("ask")
            question = await peer.question("roots/list")
            peer.cancel(request_id)
            assert await peer.notification("notifications/cancelled") == {"requestId": question["id"]}
            peer.reply(question, {"roots": []})
            await peer.settled()
            assert request_id not in order_of_answers(peer)

    run(main())


# Notifications


def test_notifications_of_the_protocol_may_be_heard_too() -> None:
    shop = Workshop()
    heard: list[str] = []

    @shop.server.notification("notifications/cancelled")
    async def hear_cancelled(params: dict[str, Any]) -> None:
        heard.append("cancelled")

    @shop.server.notification("notifications/initialized")
    async def hear_initialized(params: dict[str, Any]) -> None:
        heard.append("initialized")

    async def main() -> None:
        async with raw_client(shop.server, LATEST_LEGACY) as peer:
            (request_id,) = numbered(peer, "hold", 1)
            await turns()
            peer.cancel(request_id)
            await peer.settled()
            assert heard == ["initialized", "cancelled"]
            assert shop.cancelled == [1]

    run(main())


@both_eras
def test_notifications_out_of_turn_and_unknown_ones_are_harmless(revision: Revision) -> None:
    async def main() -> None:
        async with raw_client(make_server(), revision, opens=False) as peer:
            for method in ("notifications/initialized", "notifications/nothing", "", "tools/call", "initialize"):
                peer.notify(method, {})
            if not revision.is_modern:
                await peer.initialize()
            await peer.settled()
            assert methods_in(peer.seen) == []

    run(main())


def test_a_handler_hears_before_a_later_request_is_answered() -> None:
    server = make_server()
    heard: list[int] = []

    @server.notification("example.com/note")
    async def hear(params: dict[str, Any]) -> None:
        heard.append(params["n"])

    @server.tool
    async def notes() -> list[int]:
        return heard

    async def main() -> None:
        async with raw_client(server) as peer:
            for number in range(5):
                peer.notify("example.com/note", {"n": number})
            assert json.loads(await peer.text("notes")) == list(range(5))

    run(main())


def test_handlers_that_do_not_keep_up_are_not_flooded() -> None:
    server = make_server()
    heard: list[int] = []
    go = asyncio.Event()

    @server.notification("example.com/note")
    async def hear(params: dict[str, Any]) -> None:
        heard.append(params["n"])
        await go.wait()

    async def main() -> None:
        async with raw_client(server) as peer:
            for number in range(5000):
                peer.notify("example.com/note", {"n": number})
            await turns(200)
            assert 0 < len(heard) < 500
            go.set()
            await peer.settled()
            assert heard == list(range(5000))

    run(main())


# More requests than may be in flight


@both_eras
@small_limits
@pytest.mark.parametrize("tool", ["hold", "block"])
def test_requests_beyond_the_limit_wait_in_order(revision: Revision, limit: int, tool: str) -> None:
    shop = Workshop(limits=limited(limit), threads=1 if tool == "block" else 32)

    async def main() -> None:
        async with raw_client(shop.server, revision) as peer:
            ids = numbered(peer, tool, *range(20))
            if tool == "block":
                await happens(shop.thread_begun)
            await turns()
            assert shop.begun == list(range(1 if tool == "block" else limit))
            shop.go.set()
            shop.thread_go.set()
            for number, request_id in enumerate(ids):
                assert text_of((await peer.answer(request_id))["result"]) == str(number)
            # Those that begin together may do so in any order.
            assert sorted(shop.begun) == list(range(20))
            assert shop.most <= limit

    run(main())


@small_limits
@pytest.mark.parametrize("tool", ["echo", "hold"])
def test_thousands_may_wait(limit: int, tool: str) -> None:
    """They end one within the other's end, and the stack does not grow with them."""
    shop = Workshop(limits=limited(limit))

    async def main() -> None:
        async with raw_client(shop.server) as peer:
            first = numbered(peer, "hold", *range(limit))
            ids = numbered(peer, tool, *range(limit, 5000))
            await turns()
            shop.go.set()
            for request_id in [*first, *ids]:
                assert "result" in await peer.answer(request_id)
            assert sorted(shop.begun) == list(range(5000))
            assert shop.most <= limit

    run(main())


def test_many_wait_inside_the_server() -> None:
    shop = Workshop(limits=limited(5000))

    async def main() -> None:
        async with raw_client(shop.server) as peer:
            first = numbered(peer, "hold", *range(5000))
            ids = numbered(peer, "echo", *range(5000, 10_000))
            await turns(500)
            assert len(shop.begun) == 5000
            shop.go.set()
            await peer.until(lambda: len(peer.seen) == 10_000)
            assert sorted(shop.begun) == list(range(10_000))
            assert sorted(order_of_answers(peer), key=int) == [*first, *ids]

    run(main())


@small_limits
def test_what_takes_no_work_does_not_wait(limit: int) -> None:
    shop = Workshop(limits=limited(limit))

    async def main() -> None:
        async with raw_client(shop.server) as peer:
            numbered(peer, "hold", *range(limit))
            assert "result" in await peer.request("tools/list")
            peer.post("subscriptions/listen", {"notifications": {}})
            await peer.notification("notifications/subscriptions/acknowledged")

    run(main())


@pytest.mark.req("CAN-2")
@pytest.mark.parametrize("limit", [2, 3])
def test_a_request_that_is_held_back_may_be_cancelled(limit: int) -> None:
    shop = Workshop(limits=limited(limit))

    async def main() -> None:
        async with raw_client(shop.server) as peer:
            running = numbered(peer, "hold", *range(limit))
            (held,) = numbered(peer, "hold", 77)
            await turns()
            peer.cancel(held)
            (other,) = numbered(peer, "echo", 88)
            await turns()
            # Its id is free again.
            assert "result" in await peer.request("tools/list", request_id=held)
            shop.go.set()
            for request_id in (*running, other):
                assert "result" in await peer.answer(request_id)
            await peer.settled()
            assert shop.begun == [*range(limit), 88]
            assert order_of_answers(peer).count(held) == 1

    run(main())


@pytest.mark.req("CAN-2")
@small_limits
def test_a_cancellation_makes_room_for_the_next(limit: int) -> None:
    shop = Workshop(limits=limited(limit + 1))

    async def main() -> None:
        async with raw_client(shop.server) as peer:
            running = numbered(peer, "hold", *range(limit + 1))
            (held,) = numbered(peer, "echo", 77)
            await turns()
            assert 77 not in shop.begun
            peer.cancel(running[0])
            assert text_of((await peer.answer(held))["result"]) == "77"
            shop.go.set()

    run(main())


def test_many_may_end_as_soon_as_they_begin() -> None:
    shop = Workshop(limits=Limits(max_in_flight=1))

    async def main() -> None:
        async with raw_client(shop.server) as peer:
            (running,) = numbered(peer, "hold", 0)
            ids = numbered(peer, "echo", *range(1, 5000))
            await turns()
            peer.cancel(running)
            for request_id in ids:
                assert "result" in await peer.answer(request_id)
            assert shop.begun == list(range(5000))

    run(main())


@pytest.mark.req("FRM-8")
@small_limits
def test_an_id_that_is_held_back_is_in_flight(limit: int) -> None:
    shop = Workshop(limits=limited(limit + 1))

    async def main() -> None:
        async with raw_client(shop.server) as peer:
            numbered(peer, "hold", *range(limit))
            peer.post_call("hold", {"number": 8}, request_id="running")
            peer.post_call("echo", {"number": 9}, request_id="held")
            await turns()
            for request_id in ("running", "held"):
                again = await peer.request(
                    "tools/call", {"name": "echo", "arguments": {"number": 1}}, request_id=request_id
                )
                assert codes(again) == [-32600]
                assert codes(await peer.request("tools/list", request_id=request_id)) == [-32600]
            shop.go.set()
            assert text_of((await peer.answer("held"))["result"]) == "9"
            assert text_of((await peer.answer("running"))["result"]) == "8"

    run(main())


@small_limits
def test_a_question_is_answered_also_when_everything_is_full(limit: int) -> None:
    """A function that waits for the client must not wait behind requests that nobody reads."""
    shop = Workshop(limits=limited(limit))

    async def main() -> None:
        async with raw_client(shop.server, LATEST_LEGACY, capabilities=ABLE) as peer:
            asking = numbered(peer, "ask", *range(limit))
            questions = [await peer.question() for _ in asking]
            # As many again wait; beyond that, nothing can be promised, but the answers are read.
            held = numbered(peer, "echo", *range(100, 100 + limit))
            refused = numbered(peer, "echo", 200, 201)
            for request_id in refused:
                response = await peer.answer(request_id)
                assert response["error"]["code"] == -32603
                assert "Too many requests wait already" in response["error"]["message"]
            for question in questions:
                peer.reply(question, {"action": "accept"})
            for request_id in (*asking, *held):
                assert "result" in await peer.answer(request_id)

    run(main())


def test_a_question_asked_while_everything_is_full_is_answered() -> None:
    server = make_server(limits=limited(1))
    go, done = asyncio.Event(), asyncio.Event()

    @server.tool
    async def ask_later(ctx: Context) -> str:
        await go.wait()
        answer = await ctx.elicit_url("Sure?", "https://example.com")
        await done.wait()
        return answer.action

    @server.tool
    async def echo(number: int) -> int:
        return number

    async def main() -> None:
        async with raw_client(server, LATEST_LEGACY, capabilities=ABLE) as peer:
            asking = peer.post_call("ask_later")
            held = numbered(peer, "echo", 1)
            await turns()
            go.set()
            peer.reply(await peer.question(), {"action": "decline"})
            await turns()
            # It is full again, now without a question: the next ones wait, and are not refused.
            held += numbered(peer, "echo", 2, 3, 4)
            await turns()
            done.set()
            assert text_of((await peer.answer(asking))["result"]) == "decline"
            for request_id in held:
                assert "result" in await peer.answer(request_id)

    run(main())


# Clients that do not read


@both_eras
@pytest.mark.parametrize("tool", ["large", "error"])
def test_answers_wait_for_a_client_that_does_not_read_and_none_is_lost(revision: Revision, tool: str) -> None:
    shop = Workshop()

    @shop.server.tool
    async def error(size: int) -> str:
        raise ValueError("x" * size)

    async def main() -> None:
        async with raw_client(shop.server, revision) as peer:
            peer.connection.pause()
            ids = [peer.post_call("large", {"size": 200_000}) for _ in range(50)]
            ids += [peer.post_call(tool, {"size": 1}) for _ in range(50)]
            await turns(200)
            peer.connection.resume()
            for request_id in ids:
                assert "result" in await peer.answer(request_id)
            assert order_of_answers(peer) == ids

    run(main())


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "nothing"])
def test_a_client_that_does_not_read_is_not_read_either(method: str) -> None:
    shop = Workshop()

    async def main() -> None:
        async with raw_client(shop.server) as peer:
            peer.connection.pause()
            count = 20_000
            params = {"name": "large", "arguments": {"size": 500}, "padding": "x" * 100}
            for number in range(count):
                peer.post(method, params)
                if number % 1000 == 0:
                    await turns()
            await turns(200)
            # Most of it waits on the client's own side.
            assert peer.connection.is_clogged
            peer.connection.resume()
            await peer.until(lambda: len(peer.seen) == count)
            assert order_of_answers(peer) == list(range(1, count + 1))

    run(main())


@pytest.mark.req("CAN-2")
def test_a_request_may_be_cancelled_while_its_answer_waits_for_the_client() -> None:
    server = make_server()
    is_full = asyncio.Event()

    @server.tool
    async def fill(ctx: Context) -> None:
        while not ctx._call.session.connection.is_clogged:
            ctx.info("x" * 100_000)
        is_full.set()
        await asyncio.Event().wait()

    @server.tool
    def answer() -> str:
        return "too late"

    async def main() -> None:
        async with raw_client(server, LATEST_LEGACY) as peer:
            peer.connection.pause()
            request_id = peer.post_call("answer")
            peer.post_call("fill")
            # Both are there before the thread has run, so reading goes on until its answer waits.
            peer.cancel(request_id)
            await is_full.wait()
            await turns()
            peer.connection.resume()
            await peer.settled()
            assert request_id not in order_of_answers(peer)

    run(main())


def test_progress_and_answers_of_a_client_that_reads_now_and_then_stay_in_order() -> None:
    server = make_server()

    @server.tool
    async def work(number: int, ctx: Context) -> str:
        for step in range(5):
            await ctx.info("x" * 50_000)
            await ctx.progress(step + 1)
        return f"{number}"

    async def main() -> None:
        async with raw_client(server) as peer:
            ids = [
                peer.post_call("work", {"number": n}, meta={"progressToken": n, LOG_LEVEL: "info"}) for n in range(20)
            ]
            for _ in range(100):
                peer.connection.pause()
                await turns(5)
                peer.connection.resume()
                await turns(5)
            for number, request_id in enumerate(ids):
                assert text_of((await peer.answer(request_id))["result"]) == str(number)
            for number, request_id in enumerate(ids):
                own = [
                    each
                    for each in peer.seen
                    if each.get("id") == request_id or each.get("params", {}).get("progressToken") == number
                ]
                assert progress_in(own)[-1] == 5
                assert own[-1].get("id") == request_id
            assert methods_in(peer.seen).count("notifications/message") == 100

    run(main())


# Everything at once


class Walk:
    """A client that does anything at any time, and keeps a record of what it may expect."""

    def __init__(self, peer: Peer, shop: Workshop, seed: int) -> None:
        self._peer = peer
        self._shop = shop
        self._random = random.Random(seed)
        self._numbers = itertools.count(1000)
        self.posted: list[Id] = []
        self.cancelled: set[Id] = set()

    async def take(self, steps: int) -> None:
        actions = [self._post] * 6 + [self._cancel] * 2 + [self._let_go, self._pause, self._batch, self._wait]
        for _ in range(steps):
            self._random.choice(actions)()
            self._reply()
            await turns(self._random.randrange(4))
        # Now everything comes to its end.
        self._shop.thread_go.set()
        self._peer.connection.resume()
        await self._peer.until(self._is_settled)

    def _message(self) -> Request:
        number = next(self._numbers)
        tool = self._random.choice(["echo", "hold", "block", "ask", "large", "nothing", "list"])
        self.posted.append(number)
        if tool == "list":
            return self._peer.message("tools/list", request_id=number)
        arguments = {"size": self._random.choice([1, 400_000])} if tool == "large" else {"number": number}
        meta = {"progressToken": number}
        params = {"name": tool, "arguments": arguments}
        return self._peer.message("tools/call", params, request_id=number, meta=meta)

    def _post(self) -> None:
        self._peer.connection.send(self._message())

    def _batch(self) -> None:
        if self._peer.revision.has_batches:
            self._peer.connection.send_batch([self._message() for _ in range(self._random.randrange(1, 6))])

    def _cancel(self) -> None:
        if self.posted:
            self.cancelled.add(number := self._random.choice(self.posted))
            self._peer.cancel(number)

    def _let_go(self) -> None:
        self._shop.go.set()
        self._shop.go.clear()

    def _pause(self) -> None:
        self._peer.connection.pause()

    def _wait(self) -> None:
        self._peer.connection.resume()

    def _reply(self) -> None:
        for question in [each for each in self._peer.inbox if "id" in each and "method" in each]:
            self._peer.inbox.remove(question)
            self._peer.reply(question, {"action": "accept"})

    def answers(self) -> dict[Id, int]:
        """How often each request was answered."""
        each = [item for message in self._peer.seen for item in message.get("batch", [message])]
        counts: dict[Id, int] = {}
        for message in each:
            if "method" not in message:
                counts[message["id"]] = counts.get(message["id"], 0) + 1
        return counts

    def _is_settled(self) -> bool:
        self._let_go()
        self._reply()
        answers = self.answers()
        return all(number in answers or number in self.cancelled for number in self.posted)


@pytest.mark.req("FRM-8", "CAN-2", "CAN-4")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY, WITH_BATCHES], ids=str)
def test_each_request_is_answered_once_whatever_happens(revision: Revision, seed: int) -> None:
    shop = Workshop(limits=Limits(max_in_flight=3, max_waiting=3 if seed % 2 else 300), threads=2)

    async def main() -> None:
        async with raw_client(shop.server, revision, capabilities=ABLE) as peer:
            walk = Walk(peer, shop, seed)
            await walk.take(300)
            await peer.settled()
            answers = walk.answers()
            wrong = {number: answers.get(number) for number in walk.posted if answers.get(number, 0) > 1}
            assert wrong == {}
            assert all(number in answers for number in walk.posted if number not in walk.cancelled)
            # It is as good as new.
            (request_id,) = numbered(peer, "echo", 1)
            assert "result" in await peer.answer(request_id)
            (session,) = shop.server._sessions
            assert len(session._incoming) == len(session._calls) == len(session._waiting) == len(session._batches) == 0

    run(main())


# The end of the client's input


@pytest.mark.req("LIF-13")
@every_revision
@pytest.mark.parametrize("tool", ["hold", "block"])
def test_what_was_accepted_is_finished_after_the_end_of_the_input(revision: Revision, tool: str) -> None:
    shop = Workshop(limits=limited(2), finish_within=PATIENCE)

    async def main() -> None:
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

    run(main())


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
def test_a_client_that_leaves_while_nothing_is_read_is_noticed() -> None:
    """More waits than is read, and the work that would make room never ends."""
    shop = Workshop(limits=limited(1), finish_within=0.1)

    async def main() -> None:
        async with piped_client(shop.server) as (peer, hang_up):
            running, held, *_ = numbered(peer, "hold", *range(10))
            await turns()
            await hang_up()
            assert "error" in await peer.answer(running)
            assert "error" in await peer.answer(held)
            await peer.served()
            assert shop.cancelled == [0]

    run(main())


def test_questions_end_with_the_input() -> None:
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

    async def main() -> None:
        async with piped_client(server, LATEST_LEGACY, capabilities=ABLE) as (peer, hang_up):
            (asking,) = numbered(peer, "ask", 1)
            later = peer.post_call("ask_later")
            await peer.question()
            await hang_up()
            assert text_of((await peer.answer(asking))["result"]) == "closed"
            go.set()
            said = text_of((await peer.answer(later))["result"])
            assert said == "roots/list was not sent: the client sends nothing any more, so it could not answer."
            await peer.served()

    run(main())


@pytest.mark.req("FRM-6")
@pytest.mark.parametrize("is_torn", [False, True])
def test_the_end_in_the_middle_of_a_line_is_noted(is_torn: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcpipe")

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
def test_an_unterminated_last_line_is_answered() -> None:
    async def main() -> None:
        async with piped_client(make_server()) as (peer, hang_up):
            await peer.settled()
            peer.send_raw(msgspec.json.encode(peer.message("tools/list", request_id="last")))
            await hang_up()
            assert "result" in await peer.answer("last")
            await peer.served()

    run(main())


@pytest.mark.req("SUB-5")
def test_subscriptions_end_with_the_input() -> None:
    async def main() -> None:
        async with piped_client(make_server(finish_within=PATIENCE)) as (peer, hang_up):
            request_id = peer.post("subscriptions/listen", {"notifications": {}})
            await peer.notification("notifications/subscriptions/acknowledged")
            await hang_up()
            assert "result" in await peer.answer(request_id)
            await peer.served()

    run(main())


# Stopping


@pytest.mark.req("LIF-14")
@both_eras
@pytest.mark.parametrize("tool", ["hold", "block"])
def test_a_server_that_stops_finishes_what_it_accepted(revision: Revision, tool: str) -> None:
    shop = Workshop(limits=limited(2), stop_within=PATIENCE)

    async def main() -> None:
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

    run(main())


@pytest.mark.req("LIF-14")
@both_eras
@pytest.mark.parametrize("tool", ["hold", "block", "ask"])
def test_a_server_that_stops_does_not_wait_for_ever(revision: Revision, tool: str) -> None:
    shop = Workshop(limits=limited(1), stop_within=0)

    async def main() -> None:
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

    run(main())


@pytest.mark.req("FRM-10", "LIF-14")
@pytest.mark.parametrize("how", ["stop", "end of input"])
def test_a_batch_that_is_not_finished_in_time_is_answered_as_one(how: str) -> None:
    shop = Workshop(limits=Limits(max_in_flight=2))

    async def main() -> None:
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

    run(main())


def test_a_function_that_ignores_its_cancellation_does_not_hold_up_the_end() -> None:
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

    async def main() -> None:
        async with raw_client(server) as peer:
            request_id = peer.post_call("stubborn")
            await turns()
            server.stop()
            assert "error" in await peer.answer(request_id)
            await peer.served()
            go.set()

    run(main())


def test_a_tool_may_stop_its_own_server() -> None:
    server = make_server(stop_within=PATIENCE)

    @server.tool
    async def bye() -> str:
        server.stop()
        return "Bye."

    @server.tool
    def plain_bye() -> str:
        server.stop()
        return "Bye."

    async def main() -> None:
        for tool in ("bye", "plain_bye"):
            async with raw_client(server) as peer:
                assert await peer.text(tool) == "Bye."
                await peer.served()

    run(main())


@pytest.mark.parametrize("first", ["stop", "end of input"])
def test_stopping_again_makes_the_time_shorter_but_never_longer(first: str) -> None:
    shop = Workshop(stop_within=PATIENCE, finish_within=PATIENCE)

    async def main() -> None:
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

    run(main())


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


def test_the_last_answers_are_written_before_the_end() -> None:
    shop = Workshop(stop_within=PATIENCE)

    async def main() -> None:
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

    run(main())


def test_stopping_between_messages() -> None:
    async def main() -> None:
        for count in range(1, 10):
            server = make_server()
            async with raw_client(server, LATEST_LEGACY, opens=False) as peer:
                peer.post("initialize", {"protocolVersion": str(LATEST_LEGACY), "capabilities": {}})
                await turns(count)
                server.stop()
                server.stop()
                await peer.served()
                assert server.stop() is False

    run(main())


# A client that is gone


@pytest.mark.req("LIF-14")
@both_eras
@pytest.mark.parametrize("tool", ["hold", "block", "large"])
def test_a_client_that_is_gone_ends_everything_quietly(
    revision: Revision, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mcpipe")
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


def test_a_client_that_cannot_be_written_to_ends_what_still_runs() -> None:
    shop = Workshop(finish_within=PATIENCE)

    async def main() -> None:
        async with raw_client(shop.server) as peer:
            numbered(peer, "hold", 1, 2)
            await turns()
            peer.connection.abort()
            shop.server.add_tool(lambda: None, name="new")
            await turns()
            (session,) = shop.server._sessions
            session.broke(BrokenPipeError())
            await peer.served()
            assert shop.cancelled == [1, 2]

    run(main())


def test_serving_may_be_cancelled() -> None:
    shop = Workshop(finish_within=PATIENCE)

    async def main() -> None:
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

    run(main())
