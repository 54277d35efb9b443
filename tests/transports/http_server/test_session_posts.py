"""Requests of open legacy sessions over HTTP: which responses are JSON, which are streams, and which take a task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import mcplumb._fast
from mcplumb import Context, Server
from mcplumb.stores.memory_store import MemoryStore
from mcplumb.transports.http_server.asgi_app import HttpApp
from tests.client.peers import skip
from tests.kit.loop import PATIENCE, turns
from tests.kit.results import text_of
from tests.transports.http_server.visits import Visitor, serving
from tests.transports.http_server.workshop import Workshop


@pytest.fixture(autouse=True)
def _are_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is about shortcuts, so they are on even if all tests run without."""
    monkeypatch.setattr(mcplumb._fast, "_switched_off", ())


@contextmanager
def _tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The requests that a task has served."""
    found: list[Any] = []
    answer = HttpApp._answer

    async def noted(self: HttpApp, request: Any, serving: Any = None) -> None:
        found.append(request)
        await answer(self, request, serving)

    with monkeypatch.context() as patch:
        patch.setattr(HttpApp, "_answer", noted)
        yield found


async def _double(visitor: Visitor, n: int) -> None:
    answer = await visitor.call("double", n=n)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert text_of(await answer.json()) == str(2 * n)


async def test_an_answer_that_comes_first_is_json_and_takes_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Workshop().server) as site:
        ann, bob = Visitor(site), Visitor(site)
        for visitor in (ann, bob):
            await visitor.open()
        await _double(ann, 0)
        with _tasks(monkeypatch) as tasks:
            # What was learned from one session serves all of them, whatever the length of the body.
            for n in (1, 20000, -3):
                await _double(ann, n)
                await _double(bob, n)
            assert tasks == []


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_what_a_tool_says_first_makes_the_response_a_stream(revision: str) -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        await visitor.open(revision)
        for _ in range(3):
            await _double(visitor, 1)
            answer = await visitor.call("chat", token=7)
            assert answer.is_stream
            first = await answer.event()
            assert first is not None
            # Where a client may resume a stream from its start, that begins with an id and no message.
            assert (first.data == b"") == (revision == "2025-11-25")
            assert first.id
            *said, last = await answer.messages()
            assert [each["method"] for each in said][-1] == "notifications/progress"
            assert text_of(last) == "hello, done"


async def test_what_a_tool_says_later_makes_the_response_a_stream() -> None:
    shop = Workshop()
    async with serving(shop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        await _double(visitor, 1)
        waiting = await visitor.begin_call("tell", 7, gate="late")
        await shop.at("late")
        shop.gates["late"].set()
        *said, last = await (await waiting.head()).messages()
        assert [each["params"]["data"] for each in said] == ["before late", "behind late"]
        assert text_of(last) == "late is open"


async def test_a_client_that_reads_no_streams_gets_json_in_any_case() -> None:
    shop = Workshop()
    async with serving(shop.server) as site:
        visitor = Visitor(site, Accept="application/json")
        await visitor.open()
        for _ in range(3):
            answer = await visitor.call("chat")
            assert text_of(await answer.json()) == "hello, done"


async def test_a_question_goes_out_on_the_stream_of_its_request() -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        await visitor.open(elicitation={})
        await _double(visitor, 1)
        for _ in range(2):
            answer = await visitor.call("ask")
            question = await answer.message()
            assert question["method"] == "elicitation/create"
            assert (await visitor.reply(question, {"action": "accept", "content": {"name": "Ann"}})).status == 202
            assert text_of(await answer.message()) == "hello Ann"


async def test_an_answer_that_takes_long_becomes_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Workshop()
    async with serving(shop.server, keep_alive=20.0) as site:
        visitor = Visitor(site)
        await visitor.open()
        await _double(visitor, 1)
        with _tasks(monkeypatch) as tasks:
            first = await visitor.begin_call("wait", 11, gate="one")
            await shop.at("one")
            skip(15)
            second = await visitor.begin_call("wait", 12, gate="two")
            await shop.at("two")
            assert tasks == []
            skip(6)
            await first.head()
            assert first.is_stream
            await turns(5)
            assert len(tasks) == 1
            shop.gates["two"].set()
            assert text_of(await (await second.head()).json()) == "two is open"
            third = await visitor.begin_call("wait", 13, gate="three")
            await shop.at("three")
            skip(21)
            await third.head()
            assert third.is_stream
        for gate, answer in (("one", first), ("three", third)):
            shop.gates[gate].set()
            assert text_of(await answer.message()) == f"{gate} is open"


async def test_who_leaves_does_not_cancel_what_it_waits_for() -> None:
    shop = Workshop()
    async with serving(shop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        await _double(visitor, 1)
        waiting = await visitor.begin_call("wait", 7, gate="left")
        await shop.at("left")
        waiting.leave()
        await _double(visitor, 2)
        # It is still open, so its id is taken.
        assert (await visitor.call("double", n=1, request_id=7)).status == 400
        shop.gates["left"].set()
        await _until_free(visitor, 7)
        assert not shop.cancelled["left"].is_set()


async def _until_free(visitor: Visitor, request_id: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await visitor.call("double", n=1, request_id=request_id)).status != 200:
            await turns(1)


async def test_a_request_that_is_cancelled_ends_without_an_answer() -> None:
    shop = Workshop()
    async with serving(shop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        await _double(visitor, 1)
        waiting = await visitor.begin_call("wait", 7, gate="never")
        await shop.at("never")
        assert (await visitor.notify("notifications/cancelled", {"requestId": 7})).status == 202
        assert await (await waiting.head()).messages() == []
        async with asyncio.timeout(PATIENCE):
            await shop.cancelled["never"].wait()
        await _double(visitor, 2)


async def test_the_limits_of_a_session_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Workshop()
    async with serving(shop.server, max_streams=2) as site:
        visitor = Visitor(site)
        await visitor.open()
        await _double(visitor, 1)
        waiting = [await visitor.begin_call("wait", gate, gate=gate) for gate in ("a", "b")]
        for gate in ("a", "b"):
            await shop.at(gate)
        refused = await visitor.call("double", n=1)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        for gate, answer in zip(("a", "b"), waiting, strict=True):
            shop.gates[gate].set()
            assert text_of(await (await answer.head()).json()) == f"{gate} is open"
        with _tasks(monkeypatch) as tasks:
            await _double(visitor, 2)
            assert tasks == []


async def test_a_session_that_has_ended_is_not_found() -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        await visitor.open()
        await _double(visitor, 1)
        assert (await (await visitor.site.begin("DELETE", "/mcp", visitor.headers)).head()).status == 204
        assert (await visitor.call("double", n=1)).status == 404
        visitor.headers["Mcp-Session-Id"] = "x"
        assert (await visitor.call("double", n=1)).status == 404


async def test_a_session_does_not_expire_while_a_request_waits() -> None:
    shop = Workshop()
    async with serving(shop.server, session_ttl=60.0, keep_alive=600.0) as site:
        visitor = Visitor(site)
        await visitor.open()
        await _double(visitor, 1)
        waiting = await visitor.begin_call("wait", 7, gate="late")
        await shop.at("late")
        for _ in range(4):
            skip(50)
            await turns(5)
        shop.gates["late"].set()
        assert text_of(await (await waiting.head()).json()) == "late is open"
        for _ in range(4):  # each request begins the time anew
            skip(50)
            await turns(5)
            await _double(visitor, 2)
        skip(70)
        await turns(5)
        assert (await visitor.call("double", n=1)).status == 404


async def test_each_request_has_its_own_headers() -> None:
    server = Server("s")
    kept: list[Context] = []

    @server.tool
    async def keep(ctx: Context, text: str) -> str:
        kept.append(ctx)
        await asyncio.sleep(0)
        headers = ctx.headers or {}
        return f"{headers['mcp-session-id']} {headers['content-length']} {headers['x-who']}"

    async with serving(server) as site:
        ann, bob = Visitor(site, **{"X-Who": "Ann"}), Visitor(site, **{"X-Who": "Bob"})
        lengths = set()
        for visitor in (ann, bob):
            await visitor.open()
        for text in ("a", "a" * 10, "a" * 100):
            for visitor, who in ((ann, "Ann"), (bob, "Bob")):
                said = text_of(await (await visitor.call("keep", text=text)).json())
                session_id, length, name = said.split()
                assert (session_id, name) == (visitor.headers["Mcp-Session-Id"], who)
                lengths.add(int(length))
        assert len(lengths) == 3


async def test_who_has_a_token_is_checked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Workshop().server, tokens=("secret",)) as site:
        visitor = Visitor(site, Authorization="Bearer secret")
        await visitor.open()
        with _tasks(monkeypatch) as tasks:
            for n in range(3):
                await _double(visitor, n)
            assert len(tasks) == 3
        del visitor.headers["Authorization"]
        assert (await visitor.call("double", n=1)).status == 401


async def test_sessions_that_replicas_share_take_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Workshop().server, shared=MemoryStore()) as site:
        visitor = Visitor(site)
        await visitor.open()
        with _tasks(monkeypatch) as tasks:
            for n in range(3):
                await _double(visitor, n)
            assert len(tasks) == 3


async def test_all_are_logged_if_some_are(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "mcplumb.http.access"):
        async with serving(Workshop().server) as site:
            visitor = Visitor(site)
            await visitor.open()
            for n in (1, 2, 3):
                await _double(visitor, n)
    assert caplog.text.count("tools/call double 200") == 3


async def test_all_are_counted() -> None:
    shop = Workshop()
    async with serving(shop.server, metrics="open") as site:
        visitor = Visitor(site)
        await visitor.open()
        for n in (1, 2, 3):
            await _double(visitor, n)
        await visitor.call("chat")
        text = (await (await site.ask("GET", "/metrics", {})).body()).decode()
    counted = [line for line in text.splitlines() if "tools/call" in line and "_count" in line]
    assert sum(float(line.rpartition(" ")[2]) for line in counted) == 4


async def test_a_server_that_stops_finishes_what_waits() -> None:
    shop = Workshop()
    async with serving(shop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        await _double(visitor, 1)
        waiting = await visitor.begin_call("wait", 7, gate="last")
        await shop.at("last")
        closing = asyncio.create_task(site.app.close())
        await turns(20)
        assert not closing.done()
        shop.gates["last"].set()
        assert text_of(await (await waiting.head()).json()) == "last is open"
        await closing


async def test_a_server_that_is_stopped_answers_what_waits_with_an_error() -> None:
    shop = Workshop(stop_within=0.1)
    async with serving(shop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        await _double(visitor, 1)
        waiting = await visitor.begin_call("wait", 7, gate="never")
        await shop.at("never")
        assert shop.server.stop()
        assert "stopping" in (await (await waiting.head()).json())["error"]["message"]
        await shop.cancelled["never"].wait()


async def test_a_modern_request_with_the_head_of_a_session_is_refused_as_ever() -> None:
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        await visitor.open()
        refusals = []
        for _ in range(2):
            answer = await visitor.request("tools/call", {"name": "double", "arguments": {"n": 1}, "_meta": meta})
            refusals.append((answer.status, (await answer.json())["error"]))
            await _double(visitor, 1)
        assert refusals[0] == refusals[1]
        assert refusals[0][0] == 400


async def test_all_of_this_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcplumb._fast, "_switched_off", ("taskless_posts",))
    server = Workshop().server
    async with serving(server) as site:
        visitor = Visitor(site)
        await visitor.open()
        with _tasks(monkeypatch) as tasks:
            for n in range(3):
                await _double(visitor, n)
            assert len(tasks) == 3
