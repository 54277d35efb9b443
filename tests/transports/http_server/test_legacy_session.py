"""One legacy session over real HTTP: what goes on which stream, and what becomes of streams that break."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.results import text_of
from tests.transports.http_server.visits import LATEST, Visitor, serving
from tests.transports.http_server.workshop import Workshop

pytestmark = pytest.mark.req("HTP-6")

OLDER = ["2024-11-05", "2025-03-26", "2025-06-18"]


# What goes where


async def test_an_answer_that_is_all_there_is_to_say_is_json() -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        await visitor.open()
        answer = await visitor.call("double", n=21)
        assert answer.status == 200
        assert text_of(await answer.json()) == "42"


@pytest.mark.req("HTP-8")
async def test_what_is_said_before_the_answer_makes_it_a_stream() -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        await visitor.open()
        answer = await visitor.call("chat", token=7)
        assert answer.status == 200
        assert answer.headers["x-accel-buffering"] == "no"
        log, progress, last = await answer.messages()
        assert log["params"]["data"] == "hello"
        assert progress["params"] == {"progressToken": 7, "progress": 1, "total": 2}
        assert text_of(last) == "hello, done"


async def test_two_requests_at_once_have_a_stream_each() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        first, second = await visitor.call("tell", gate="a"), await visitor.call("tell", gate="b")
        workshop.gates["b"].set()
        said = [each.get("params", {}).get("data") for each in await second.messages()]
        assert said == ["before b", "behind b", None]
        workshop.gates["a"].set()
        said = [each.get("params", {}).get("data") for each in await first.messages()]
        assert said == ["before a", "behind a", None]


async def test_a_question_goes_with_the_request_it_belongs_to() -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        await visitor.open(elicitation={})
        listening = await visitor.listen()
        answer = await visitor.call("ask")
        question = await answer.message()
        assert question["method"] == "elicitation/create"
        accepted = await visitor.reply(question, {"action": "accept", "content": {"name": "Ada"}})
        assert accepted.status == 202
        assert await accepted.body() == b""
        (last,) = await answer.messages()
        assert text_of(last) == "hello Ada"
        await visitor.delete()
        assert await listening.messages() == []


async def test_what_belongs_to_no_request_goes_on_the_stream_of_get() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        listening = await visitor.listen()
        assert listening.is_stream
        workshop.server.remove_tool("flood")
        assert (await listening.message())["method"] == "notifications/tools/list_changed"


async def test_what_nobody_hears_is_kept_for_whoever_listens_next() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        workshop.server.remove_tool("flood")
        assert text_of(await (await visitor.call("double", n=1)).json()) == "2"
        listening = await visitor.listen()
        assert (await listening.message())["method"] == "notifications/tools/list_changed"
        listening.leave()
        while (again := await visitor.listen()).status == 409:
            pass
        workshop.server.add_prompt(lambda: "p", name="p")
        assert (await again.message())["method"] == "notifications/prompts/list_changed"


async def test_a_client_that_reads_no_streams_gets_json_all_the_same() -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site, Accept="application/json")
        await visitor.open()
        assert text_of(await (await visitor.call("chat")).json()) == "hello, done"
        refused = await visitor.listen()
        assert refused.status == 406
        visitor.headers["Accept"] = "text/event-stream"
        assert (await (await visitor.listen()).message())["params"]["data"] == "hello"


@pytest.mark.req("HTP-8")
@pytest.mark.parametrize("revision", [LATEST, *OLDER])
async def test_a_request_that_takes_long_becomes_a_stream_with_comments(revision: str) -> None:
    workshop = Workshop()
    async with serving(workshop.server, keep_alive=0.05) as site:
        visitor = Visitor(site)
        await visitor.open(revision)
        answer = await visitor.call("wait", gate="a")
        assert answer.is_stream
        start = b""
        while b"\n: " not in b"\n" + start:
            start += await answer.chunk()
        assert (b"id: " in start) == (revision == LATEST)
        workshop.gates["a"].set()
        assert text_of(await answer.message()) == "a is open"
        assert await answer.event() is None


# Streams that begin with a place to come back to, and streams that do not


async def test_streams_begin_with_a_place_to_come_back_to() -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        await visitor.open(LATEST)
        for answer in (await visitor.call("chat"), await visitor.listen()):
            first = await answer.event()
            assert first is not None
            assert first.data == b""
            assert first.id


@pytest.mark.parametrize("revision", OLDER)
async def test_older_clients_would_not_know_an_event_without_a_message(revision: str) -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open(revision)
        listening = await visitor.listen()
        workshop.server.remove_tool("flood")
        for answer in (await visitor.call("chat"), listening):
            first = await answer.event()
            assert first is not None
            assert first.data.startswith(b"{")
            assert first.id


# Letting the client go


@pytest.mark.parametrize("talks", [False, True])
async def test_a_released_client_comes_back_for_the_rest(talks: bool) -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        answer = await visitor.call("leave", gate="a", talks=talks)
        first = await answer.event()
        assert first is not None
        assert first.data == b""
        said = await answer.messages()
        assert [each["params"]["data"] for each in said] == (["see you"] if talks else [])
        assert answer.retry == 250
        again = await visitor.listen(first.id)
        if talks:
            assert (await again.message())["params"]["data"] == "see you"
        workshop.gates["a"].set()
        welcome, last = await again.messages()
        assert welcome["params"]["data"] == "welcome back"
        assert text_of(last) == "here it is"


async def test_a_released_client_that_comes_late_finds_everything() -> None:
    workshop = Workshop()
    workshop.gates["a"].set()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        answer = await visitor.call("leave", gate="a", retry=1e300)
        first = await answer.event()
        assert first is not None
        assert await answer.messages() == []
        assert answer.retry == 3_600_000
        welcome, last = await (await visitor.listen(first.id)).messages()
        assert welcome["params"]["data"] == "welcome back"
        assert text_of(last) == "here it is"


@pytest.mark.parametrize("revision", OLDER)
async def test_older_clients_are_not_released(revision: str) -> None:
    workshop = Workshop()
    workshop.gates["a"].set()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open(revision)
        welcome, last = await (await visitor.call("leave", gate="a")).messages()
        assert welcome["params"]["data"] == "welcome back"
        assert text_of(last) == "here it is"


# What is refused


async def refusal(answer: Any, status: int) -> Any:
    assert answer.status == status
    return await answer.json()


async def test_an_id_that_is_in_use() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        answer = await visitor.begin_call("wait", "x", gate="a")
        await workshop.at("a")
        error = await refusal(await visitor.call("double", n=1, request_id="x"), 400)
        assert error["id"] == "x"
        assert "has not been answered yet" in error["error"]["message"]
        workshop.gates["a"].set()
        assert text_of(await (await answer.head()).json()) == "a is open"
        assert text_of(await (await visitor.call("double", n=1, request_id="x")).json()) == "2"


@pytest.mark.parametrize(
    ("body", "expected_id", "code"),
    [
        (b"{", None, -32700),
        (b'{"jsonrpc":"2.0","id":5,"method":5}', 5, -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":1,"error":1}', None, -32600),
        (b"[]", None, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', None, -32600),
    ],
)
async def test_what_is_no_message_here(body: bytes, expected_id: int | None, code: int) -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        await visitor.open()
        error = await refusal(await visitor.post(body), 400)
        assert error.get("id") == expected_id
        assert error["error"]["code"] == code


async def test_a_broken_answer_is_told_to_whoever_waits_for_it() -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        await visitor.open(elicitation={})
        answer = await visitor.call("ask")
        question = await answer.message()
        broken = b'{"jsonrpc":"2.0","id":%d,"result":{},"error":5}' % question["id"]
        await refusal(await visitor.post(broken), 400)
        (last,) = await answer.messages()
        assert last["result"]["isError"]


async def test_more_requests_than_a_session_may_have_open() -> None:
    workshop = Workshop()
    async with serving(workshop.server, max_streams=2) as site:
        visitor = Visitor(site)
        await visitor.open(elicitation={})
        first = await visitor.call("ask")
        question = await first.message()
        second = await visitor.begin_call("wait", "y", gate="a")
        await workshop.at("a")
        refused = await visitor.call("double", n=1, request_id="z")
        assert refused.headers["retry-after"] == "1"
        assert (await refusal(refused, 503))["id"] == "z"
        await refusal(await visitor.listen(), 503)
        # Answers and notifications are let in, or nothing would ever be finished.
        assert (await visitor.reply(question, {"action": "decline"})).status == 202
        assert [text_of(each) for each in await first.messages()] == ["decline"]
        workshop.gates["a"].set()
        assert (await second.head()).status == 200
