"""Streams of a legacy session that break, and clients that come back for the rest, over real HTTP."""

from __future__ import annotations

import asyncio

import pytest

from tests.kit.loop import PATIENCE
from tests.kit.results import text_of
from tests.transports.http_server.visits import LATEST, Answer, Visitor, serving
from tests.transports.http_server.workshop import Workshop

pytestmark = pytest.mark.req("HTP-6")

REVISIONS = ["2025-03-26", "2025-06-18", LATEST]


async def last_id(answer: Answer) -> str:
    """The id of the next event with a message."""
    while (event := await answer.event()) is not None:
        if event.data and event.id:
            return event.id
    raise AssertionError("The stream ended without an event.")


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_request_goes_on_without_its_stream_and_is_found_again(revision: str) -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open(revision)
        answer = await visitor.call("tell", gate="a")
        event_id = await last_id(answer)
        answer.leave()
        workshop.gates["a"].set()
        behind, last = await (await visitor.listen(event_id)).messages()
        assert behind["params"]["data"] == "behind a"
        assert text_of(last) == "a is open"
        assert not workshop.cancelled["a"].is_set()


async def test_whoever_comes_back_early_hears_the_rest_as_it_comes() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        answer = await visitor.call("tell", gate="a")
        event_id = await last_id(answer)
        answer.leave()
        again = await visitor.listen(event_id)
        place = await again.event()
        assert place is not None
        # So that a client which is cut off once more knows where it was.
        assert (place.id, place.data) == (event_id, b"")
        workshop.gates["a"].set()
        behind, last = await again.messages()
        assert behind["params"]["data"] == "behind a"
        assert text_of(last) == "a is open"


async def test_a_question_waits_for_the_client_to_come_back() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open(elicitation={})
        answer = await visitor.call("ask", gate="a")
        event_id = await last_id(answer)
        answer.leave()
        workshop.gates["a"].set()
        again = await visitor.listen(event_id)
        question = await again.message()
        assert question["method"] == "elicitation/create"
        assert (await visitor.reply(question, {"action": "accept", "content": {"name": "Ada"}})).status == 202
        assert [text_of(each) for each in await again.messages()] == ["hello Ada"]


async def test_whoever_comes_back_has_the_stream_and_the_former_response_ends() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        answer = await visitor.call("tell", gate="a")
        event_id = await last_id(answer)
        again = await visitor.listen(event_id)
        assert await answer.event() is None
        workshop.gates["a"].set()
        assert len(await again.messages()) == 2


async def test_only_the_stream_that_broke_is_replayed() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        answer = await visitor.call("tell", gate="a")
        event_id = await last_id(answer)
        answer.leave()
        assert len(await (await visitor.call("chat", word="other")).messages()) == 2
        workshop.server.remove_tool("flood")
        workshop.gates["a"].set()
        behind, last = await (await visitor.listen(event_id)).messages()
        assert behind["params"]["data"] == "behind a"
        assert "result" in last


async def test_a_stream_that_has_said_everything() -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        await visitor.open()
        answer = await visitor.call("chat")
        ids = []
        while (event := await answer.event()) is not None:
            ids.append(event.id)
        done = await visitor.listen(ids[-1])
        assert done.status == 204
        assert await done.body() == b""
        assert [text_of(each) for each in await (await visitor.listen(ids[-2])).messages()] == ["hello, done"]


async def test_the_stream_of_get_goes_on_where_it_broke() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        listening = await visitor.listen()
        workshop.server.remove_tool("flood")
        event_id = await last_id(listening)
        second = await visitor.listen()
        assert second.status == 409
        assert "Last-Event-ID" in (await second.json())["error"]["message"]
        again = await visitor.listen(event_id)
        assert await listening.event() is None
        workshop.server.add_prompt(lambda: "p", name="p")
        assert (await again.message())["method"] == "notifications/prompts/list_changed"


async def test_a_stream_that_has_been_there_for_a_while_may_have_been_lost() -> None:
    workshop = Workshop()
    async with serving(workshop.server, keep_alive=0.2) as site, asyncio.timeout(PATIENCE):
        visitor = Visitor(site)
        await visitor.open("2025-06-18")
        lost = await visitor.listen()
        while (again := await visitor.listen()).status == 409:
            assert again.headers["retry-after"] == "1"
            await asyncio.sleep(0.02)
        assert await lost.event() is None
        workshop.server.remove_tool("flood")
        assert (await again.message())["method"] == "notifications/tools/list_changed"


async def test_an_event_that_is_kept_no_longer() -> None:
    async with serving(Workshop().server, max_events=2) as site:
        visitor = Visitor(site)
        await visitor.open()
        answer = await visitor.call("flood", count=5, size=1)
        event_id = await last_id(answer)
        assert len(await answer.messages()) == 5
        for lost in (event_id, "nonsense"):
            refused = await visitor.listen(lost)
            assert refused.status == 400
            assert "not known any more" in (await refused.json())["error"]["message"]


# Requests that are cancelled


async def cancel(visitor: Visitor, request_id: object) -> None:
    assert (await visitor.notify("notifications/cancelled", {"requestId": request_id})).status == 202


async def test_a_cancelled_request_ends_its_response() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        silent = await visitor.begin_call("wait", "silent", gate="a")
        talking = await visitor.call("tell", gate="b", request_id="talking")
        await workshop.at("a")
        await workshop.at("b")
        await cancel(visitor, "silent")
        assert (await silent.head()).is_stream
        assert await silent.messages() == []
        await cancel(visitor, "talking")
        assert len(await talking.messages()) == 1
        for gate in "ab":
            async with asyncio.timeout(60):
                await workshop.cancelled[gate].wait()


async def test_cancellations_that_mean_nothing() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open()
        answer = await visitor.begin_call("wait", 7, gate="a")
        await workshop.at("a")
        await cancel(visitor, 99)
        await cancel(visitor, "7")
        await cancel(visitor, None)
        assert (await visitor.notify("notifications/cancelled")).status == 202
        workshop.gates["a"].set()
        assert text_of(await (await answer.head()).json()) == "a is open"


# Batches


def call(request_id: object, tool: str, **arguments: object) -> dict[str, object]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


CANCEL = {"jsonrpc": "2.0", "method": "notifications/cancelled"}


async def test_a_batch_is_answered_by_a_batch() -> None:
    async with serving(Workshop().server) as site:
        visitor = Visitor(site)
        await visitor.open("2025-03-26")
        answer = await visitor.post([call(1, "double", n=1), call(2, "double", n=2), CANCEL])
        assert sorted(text_of(each) for each in await answer.json()) == ["2", "4"]
        answer = await visitor.post([call(1, "double", n=1), call(2, "chat")])
        said, answers = await answer.messages()
        assert said["params"]["data"] == "hello"
        assert sorted(text_of(each) for each in answers) == ["2", "hello, done"]
        assert (await visitor.post([CANCEL, CANCEL])).status == 202


async def test_a_batch_of_which_some_is_cancelled_and_one_of_which_all_is() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open("2025-03-26")
        first = asyncio.create_task(visitor.post([call("a", "wait", gate="a"), call("b", "wait", gate="b")]))
        second = asyncio.create_task(visitor.post([call("c", "wait", gate="c"), call("d", "wait", gate="d")]))
        for gate in "abcd":
            await workshop.at(gate)
        for request_id in "bcd":
            await cancel(visitor, request_id)
        assert await (await second).messages() == []
        workshop.gates["a"].set()
        assert [text_of(each) for each in await (await first).json()] == ["a is open"]


async def test_a_batch_with_an_id_that_is_in_use_or_is_there_twice() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        visitor = Visitor(site)
        await visitor.open("2025-03-26")
        waiting = await visitor.begin_call("wait", "a", gate="a")
        await workshop.at("a")
        assert (await visitor.post([call("b", "double", n=1), call("a", "double", n=2)])).status == 400
        answers = await (await visitor.post([call("b", "double", n=1), call("b", "double", n=2)])).json()
        assert sorted("error" in each for each in answers) == [False, True]
        workshop.gates["a"].set()
        assert (await waiting.head()).status == 200
