"""The context of a request, as a function that has one sees it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import msgspec
import pytest

from mcplumb.errors import UsageError
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.server.context import Accepted, Answer, Context, Declined, Delivery
from mcplumb.server.dispatch.client_input import Roots, Sampled
from mcplumb.server.server import Server
from mcplumb.sync import Context as BlockingContext
from mcplumb.types.client_features import ModelHint, ModelPreferences, Root, SamplingMessage, ToolChoice
from mcplumb.types.content import AudioContent, ImageContent, TextContent
from mcplumb.types.meta import LOG_LEVEL
from mcplumb.types.tools import Tool
from tests.kit.loop import PATIENCE, run, turns
from tests.kit.products import revisions
from tests.kit.results import text_of
from tests.server.harness import (
    ABLE,
    ALL_REVISIONS,
    ONE_OF_EACH_ERA,
    Id,
    Peer,
    Plain,
    make_server,
    methods_in,
    raw_client,
)

every_revision = pytest.mark.parametrize("revision", ALL_REVISIONS, ids=str)
both_eras = pytest.mark.parametrize("revision", ONE_OF_EACH_ERA, ids=str)
both_kinds = pytest.mark.parametrize("kind", ["async", "plain"])


def talk(server: Server, body: Callable[[Peer], Awaitable[None]], revision: Revision = LATEST, **options: Any) -> None:
    async def main() -> None:
        async with raw_client(server, revision, **options) as peer:
            await body(peer)

    run(main())


async def answered(peer: Peer, tool: str, *answers: Any) -> Plain:
    """The result of a tool that asks, whose questions get these answers, in the way of the peer's era."""
    params: Plain = {"name": tool, "arguments": {}}
    if peer.revision.is_modern:
        left = list(answers)
        while (result := await peer.result("tools/call", params))["resultType"] == "input_required":
            params["requestState"] = result["requestState"]
            params["inputResponses"] = {key: left.pop(0) for key in result["inputRequests"]}
        return result
    request_id: Id = peer.post("tools/call", params)
    for answer in answers:
        peer.reply(await peer.question(), answer)
    response: dict[str, Plain] = await peer.answer(request_id)
    return response["result"]


# What it knows


@pytest.mark.parametrize("revision", revisions(), ids=str)
@both_kinds
def test_it_knows_the_request(revision: Revision, kind: str) -> None:
    server = make_server()

    def facts(ctx: Context) -> dict[str, Any]:
        assert ctx.client_info is not None
        return {
            "id": ctx.request_id,
            "revision": str(ctx.revision),
            "meta": ctx.meta,
            "client": ctx.client_info.name,
            "sampling": ctx.client_capabilities.sampling is not None,
            "roots": ctx.client_capabilities.roots is not None,
            "cancelled": ctx.cancelled,
            "lifespan": ctx.lifespan,
        }

    async def facts_tool(ctx: Context) -> str:
        return json.dumps(facts(ctx))

    def plain_facts_tool(ctx: Context) -> str:
        return json.dumps(facts(ctx))

    server.add_tool(facts_tool if kind == "async" else plain_facts_tool, name="facts")

    async def body(peer: Peer) -> None:
        known = json.loads(await peer.text("facts", request_id="my id", meta={"traceparent": "00-1", "x": [1]}))
        assert known.pop("meta") == peer.meta(traceparent="00-1", x=[1])
        assert known == {
            "id": "my id",
            "revision": str(revision),
            "client": "peer",
            "sampling": True,
            "roots": False,
            "cancelled": False,
            "lifespan": None,
        }

    talk(server, body, revision, capabilities={"sampling": {}})


@pytest.mark.req("META-6")
@both_eras
def test_trace_context_passes_untouched(revision: Revision) -> None:
    server = make_server()
    trace = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
        "baggage": "userId=Am%C3%A9lie,isProduction=false",
    }

    @server.tool
    async def look(ctx: Context) -> dict[str, Any]:
        return {key: ctx.meta[key] for key in trace}

    async def body(peer: Peer) -> None:
        assert json.loads(await peer.text("look", meta=trace)) == trace

    talk(server, body, revision)


def test_its_metadata_is_a_copy() -> None:
    server = make_server()

    @server.tool
    async def change(ctx: Context) -> bool:
        ctx.meta["x"] = "changed"
        return "x" in ctx.meta

    async def body(peer: Peer) -> None:
        assert await peer.text("change") == "false"

    talk(server, body)


@pytest.mark.req("META-7")
def test_each_modern_request_speaks_for_itself() -> None:
    server = make_server()

    @server.tool
    async def who(ctx: Context) -> dict[str, Any]:
        return {"name": ctx.client_info and ctx.client_info.name, "roots": ctx.client_capabilities.roots is not None}

    async def body(peer: Peer) -> None:
        assert json.loads(await peer.text("who")) == {"name": "peer", "roots": True}
        meta = {
            "io.modelcontextprotocol/clientInfo": {"name": "other", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        assert json.loads(await peer.text("who", meta=meta)) == {"name": "other", "roots": False}
        meta["io.modelcontextprotocol/clientInfo"] = None  # type: ignore[assignment]  # as if it were absent
        assert json.loads(await peer.text("who", meta=meta)) == {"name": None, "roots": False}

    talk(server, body, capabilities={"roots": {}})


# Telling


def test_each_level_has_its_method() -> None:
    server = make_server()

    @server.tool
    async def tell(ctx: Context) -> None:
        await ctx.debug("a", logger="mine")
        await ctx.info({"b": [1]})
        await ctx.notice(None)
        await ctx.warning(5)
        await ctx.error("e")
        await ctx.log("emergency", "f")

    async def body(peer: Peer) -> None:
        await peer.call("tell", meta={LOG_LEVEL: "debug"})
        assert [each["params"] for each in peer.seen[:-1]] == [
            {"level": "debug", "data": "a", "logger": "mine"},
            {"level": "info", "data": {"b": [1]}},
            {"level": "notice", "data": None},
            {"level": "warning", "data": 5},
            {"level": "error", "data": "e"},
            {"level": "emergency", "data": "f"},
        ]

    talk(server, body)


@both_kinds
def test_a_level_that_is_none_is_refused(kind: str) -> None:
    server = make_server()

    def tell(ctx: Context) -> str:
        with pytest.raises(UsageError, match=r"There is no log level 'loud'\. The levels are debug, info, notice"):
            ctx.log("loud", "x")  # type: ignore[arg-type]  # the wrong thing, on purpose
        return "refused"

    async def tell_tool(ctx: Context) -> str:
        return tell(ctx)

    server.add_tool(tell_tool if kind == "async" else tell, name="tell")

    async def body(peer: Peer) -> None:
        assert await peer.text("tell") == "refused"

    talk(server, body)


@both_kinds
@pytest.mark.parametrize("values", [("1",), (None,), (1, "2"), (True,), (1, [])])
def test_progress_is_told_in_numbers(kind: str, values: Any) -> None:
    """Also to a client that does not want to know: a mistake should be seen at once."""
    server = make_server()

    def tell(ctx: Context) -> str:
        with pytest.raises(UsageError, match="Progress must be numbers"):
            ctx.progress(*values)
        return "refused"

    async def tell_tool(ctx: Context) -> str:
        return tell(ctx)

    server.add_tool(tell_tool if kind == "async" else tell, name="tell")

    async def body(peer: Peer) -> None:
        assert await peer.text("tell") == "refused"
        assert await peer.text("tell", meta={"progressToken": 1}) == "refused"

    talk(server, body)


def test_a_message_that_cannot_be_written_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()

    @server.tool
    async def tell(ctx: Context) -> str:
        await ctx.error(object())
        await ctx.error("\ud800")
        return "done"

    async def body(peer: Peer) -> None:
        assert await peer.text("tell", meta={LOG_LEVEL: "debug"}) == "done"
        assert methods_in(peer.seen) == []

    talk(server, body)
    assert caplog.text.count("cannot be written as JSON") == 2


def test_progress_and_logs_need_not_be_awaited() -> None:
    server = make_server()

    @server.tool
    async def tell(ctx: Context) -> str:
        ctx.progress(1)
        delivery = ctx.error("x")
        assert await delivery is None  # type: ignore[func-returns-value]
        assert await delivery is None  # type: ignore[func-returns-value]
        return "done"

    async def body(peer: Peer) -> None:
        assert await peer.text("tell", meta={LOG_LEVEL: "debug", "progressToken": 1}) == "done"
        assert methods_in(peer.seen) == ["notifications/progress", "notifications/message"]

    talk(server, body)


async def test_waiting_twice_for_the_same_message_sends_it_once() -> None:
    sent: list[str] = []

    async def send() -> None:
        sent.append("x")

    delivery = Delivery(send)
    await delivery
    await delivery
    await Delivery()
    assert sent == ["x"]


@pytest.mark.parametrize("what", ["log", "progress"])
def test_awaiting_what_is_told_waits_for_a_client_that_does_not_read(what: str) -> None:
    server = make_server()
    is_full, is_told = asyncio.Event(), asyncio.Event()

    @server.tool
    async def tell(ctx: Context) -> str:
        while not ctx._call.session.connection.is_clogged:
            ctx.info("x" * 100_000)
        is_full.set()
        await (ctx.info("last") if what == "log" else ctx.progress(1))
        is_told.set()
        return "done"

    async def body(peer: Peer) -> None:
        peer.connection.pause()
        request_id = peer.post_call("tell", meta={LOG_LEVEL: "debug", "progressToken": 1})
        await is_full.wait()
        await turns()
        assert not is_told.is_set()
        peer.connection.resume()
        await peer.answer(request_id)
        assert peer.seen[-2]["method"] == ("notifications/message" if what == "log" else "notifications/progress")

    talk(server, body)


# Asking the user


@dataclass
class Order:
    size: Literal["small", "large"]
    sugar: bool = False


class OrderStruct(msgspec.Struct):
    size: str
    sugar: bool = False


class OrderDict(TypedDict):
    size: str
    sugar: bool


RAW_FORM: Plain = {
    "type": "object",
    "properties": {"size": {"type": "string"}, "sugar": {"type": "boolean"}},
    "required": ["size"],
}


@both_eras
@both_kinds
@pytest.mark.parametrize("form", [Order, OrderStruct, OrderDict, RAW_FORM], ids=["dataclass", "Struct", "dict", "raw"])
def test_a_form_gives_what_was_filled_in(revision: Revision, kind: str, form: Any) -> None:
    server = make_server()
    answers: list[Answer[Any]] = []

    async def ask(ctx: Context) -> str:
        answers.append(await ctx.elicit("How?", form))
        return "done"

    def plain_ask(ctx: BlockingContext) -> str:
        answers.append(ctx.elicit("How?", form))
        return "done"

    server.add_tool(ask if kind == "async" else plain_ask, name="ask")

    async def body(peer: Peer) -> None:
        await answered(peer, "ask", {"action": "accept", "content": {"size": "large", "sugar": True}})
        (answer,) = answers
        assert answer.action == "accept"
        if isinstance(form, dict) or form is OrderDict:
            assert answer.data == {"size": "large", "sugar": True}
        else:
            assert answer.data == form(size="large", sugar=True)

    talk(server, body, revision, capabilities=ABLE)


@both_eras
@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_user_may_say_no(revision: Revision, action: str) -> None:
    server = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        return repr(await ctx.elicit("How?", Order))

    async def body(peer: Peer) -> None:
        result = await answered(peer, "ask", {"action": action, "content": {"size": "ignored"}})
        assert text_of(result) == f"Declined(action='{action}')"

    talk(server, body, revision, capabilities=ABLE)


@both_eras
@both_kinds
@pytest.mark.parametrize("content", [{"size": "huge"}, {}, {"content": None}])
def test_an_answer_that_does_not_fit_the_form_is_an_error(revision: Revision, kind: str, content: Plain) -> None:
    server = make_server()

    async def ask(ctx: Context) -> str:
        return repr(await ctx.elicit("How?", Order))

    def plain_ask(ctx: Context) -> str:
        return repr(ctx.elicit("How?", Order))

    server.add_tool(ask if kind == "async" else plain_ask, name="ask")

    async def body(peer: Peer) -> None:
        answer = {"action": "accept"} | ({"content": content} if content != {"content": None} else {})
        result = await answered(peer, "ask", answer)
        assert result["isError"] is True
        assert text_of(result).startswith("The client's answer does not match the form: ")

    talk(server, body, revision, capabilities=ABLE)


def test_a_form_that_cannot_be_shown_is_refused_before_anyone_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()

    @dataclass
    class Nested:
        order: Order

    @server.tool
    async def ask(ctx: Context) -> str:
        return repr(await ctx.elicit("How?", Nested))

    async def body(peer: Peer) -> None:
        result = await peer.call("ask")
        assert result["isError"] is True
        assert methods_in(peer.seen) == []

    talk(server, body, LATEST_LEGACY, capabilities=ABLE)
    assert "UsageError" in caplog.text


# Asking the model

SAMPLED: Plain = {"role": "assistant", "model": "m", "stopReason": "endTurn", "content": {"type": "text", "text": "Hi"}}


@both_eras
def test_everything_about_a_message_may_be_said(revision: Revision) -> None:
    server = make_server()

    @server.tool
    async def sample(ctx: Context) -> str:
        sampled = await ctx.sample(
            [
                "Hello?",
                ImageContent("aQ==", "image/png"),
                AudioContent("aQ==", "audio/wav"),
                SamplingMessage("assistant", TextContent("Yes?")),
            ],
            max_tokens=5,
            system_prompt="Be short.",
            model_preferences=ModelPreferences(hints=[ModelHint("m")], cost_priority=0.5),
            temperature=0.1,
            stop_sequences=["."],
            include_context="none",
            metadata={"a": 1},
            tools=[Tool("t", {"type": "object"})],
            tool_choice=ToolChoice("auto"),
        )
        return f"{sampled.text} {sampled.model} {sampled.stop_reason}"

    async def body(peer: Peer) -> None:
        params: Plain
        if revision.is_modern:
            params = (await peer.call("sample"))["inputRequests"]["1"]["params"]
        else:
            peer.post_call("sample")
            params = (await peer.question())["params"]
        assert params == {
            "messages": [
                {"role": "user", "content": {"type": "text", "text": "Hello?"}},
                {"role": "user", "content": {"type": "image", "data": "aQ==", "mimeType": "image/png"}},
                {"role": "user", "content": {"type": "audio", "data": "aQ==", "mimeType": "audio/wav"}},
                {"role": "assistant", "content": {"type": "text", "text": "Yes?"}},
            ],
            "maxTokens": 5,
            "systemPrompt": "Be short.",
            "modelPreferences": {"hints": [{"name": "m"}], "costPriority": 0.5},
            "temperature": 0.1,
            "stopSequences": ["."],
            "includeContext": "none",
            "metadata": {"a": 1},
            "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
            "toolChoice": {"mode": "auto"},
        }
        assert text_of(await answered(peer, "sample", SAMPLED)) == "Hi m endTurn"

    talk(server, body, revision, capabilities=ABLE)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"type": "text", "text": "one"}, "one"),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "onetwo"),
        ({"type": "image", "data": "aQ==", "mimeType": "image/png"}, ""),
        ([{"type": "tool_use", "id": "1", "name": "t", "input": {}}, {"type": "text", "text": "x"}], "x"),
        ({"type": "hologram", "light": 5}, ""),
    ],
)
@both_kinds
def test_the_text_of_what_the_model_said(kind: str, content: Any, text: str) -> None:
    server = make_server()

    async def sample(ctx: Context) -> str:
        return (await ctx.sample("Hello?", max_tokens=5)).text

    def plain_sample(ctx: BlockingContext) -> str:
        return ctx.sample("Hello?", max_tokens=5).text

    server.add_tool(sample if kind == "async" else plain_sample, name="sample")

    async def body(peer: Peer) -> None:
        assert text_of(await answered(peer, "sample", {**SAMPLED, "content": content})) == text

    talk(server, body, capabilities=ABLE)


@both_eras
def test_roots_are_a_list(revision: Revision) -> None:
    server = make_server()

    @server.tool
    async def look(ctx: Context) -> list[str]:
        roots = await ctx.roots()
        assert isinstance(roots, list)
        return [f"{root.uri} {root.name}" for root in roots]

    async def body(peer: Peer) -> None:
        result = await answered(peer, "look", {"roots": [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b"}]})
        assert json.loads(text_of(result)) == ["file:///a A", "file:///b None"]

    talk(server, body, revision, capabilities=ABLE)


# Several questions


@both_eras
@both_kinds
def test_questions_one_after_the_other(revision: Revision, kind: str) -> None:
    """A modern client's function runs from its start each time, with the answers it has."""
    server = make_server()
    runs: list[int] = []

    async def ask(ctx: Context) -> list[str]:
        runs.append(1)
        return [(await ctx.elicit_url(f"{number}?", "https://example.com")).action for number in range(3)]

    def plain_ask(ctx: BlockingContext) -> list[str]:
        runs.append(1)
        return [ctx.elicit_url(f"{number}?", "https://example.com").action for number in range(3)]

    server.add_tool(ask if kind == "async" else plain_ask, name="ask")

    async def body(peer: Peer) -> None:
        actions = ["accept", "decline", "cancel"]
        result = await answered(peer, "ask", *({"action": action} for action in actions))
        assert json.loads(text_of(result)) == actions
        assert len(runs) == (4 if revision.is_modern else 1)

    talk(server, body, revision, capabilities=ABLE)


@both_eras
def test_questions_at_the_same_time(revision: Revision) -> None:
    server = make_server()

    @server.tool
    async def ask(ctx: Context) -> list[str]:
        answers = await asyncio.gather(*[ctx.elicit_url(f"{n}?", "https://example.com") for n in range(3)])
        return [answer.action for answer in answers]

    async def body(peer: Peer) -> None:
        actions = ["accept", "decline", "cancel"]
        result = await answered(peer, "ask", *({"action": action} for action in actions))
        assert json.loads(text_of(result)) == actions

    talk(server, body, revision, capabilities=ABLE)


def test_questions_of_many_calls_do_not_get_mixed_up() -> None:
    server = make_server()

    @server.tool
    async def ask(number: int, ctx: Context) -> str:
        return (await ctx.sample(f"{number}", max_tokens=1)).text

    async def body(peer: Peer) -> None:
        ids = [peer.post_call("ask", {"number": number}) for number in range(20)]
        questions = [await peer.question() for _ in ids]
        for question in reversed(questions):
            said = question["params"]["messages"][0]["content"]["text"]
            peer.reply(question, {**SAMPLED, "content": {"type": "text", "text": f"answer to {said}"}})
        for number, request_id in enumerate(ids):
            assert text_of((await peer.answer(request_id))["result"]) == f"answer to {number}"

    talk(server, body, LATEST_LEGACY, capabilities=ABLE)


# Other threads and loops


@both_eras
def test_another_event_loop_may_use_it(revision: Revision) -> None:
    """What is awaited there has been waited for already, in that thread."""
    server = make_server()

    @server.tool
    def elsewhere(ctx: Context) -> str:
        async def work() -> str:
            await ctx.progress(1)
            await ctx.error("x")
            answer = await ctx.elicit_url("Sure?", "https://example.com")
            sampled = await ctx.sample("Hello?", max_tokens=1)
            roots = await ctx.roots()
            return f"{answer.action} {sampled.text} {len(roots)}"

        return asyncio.run(work())

    async def body(peer: Peer) -> None:
        result = await answered(peer, "elsewhere", {"action": "accept"}, SAMPLED, {"roots": []})
        assert text_of(result) == "accept Hi 0"

    talk(server, body, revision, capabilities=ABLE)


def test_an_async_function_may_hand_it_to_a_thread() -> None:
    server = make_server()
    names: list[str] = []

    @server.tool
    async def delegate(ctx: BlockingContext) -> str:
        def work() -> str:
            names.append(threading.current_thread().name)
            ctx.progress(1)
            return ctx.elicit_url("Sure?", "https://example.com").action

        return await asyncio.to_thread(work)

    async def body(peer: Peer) -> None:
        request_id = peer.post_call("delegate", meta={"progressToken": 1})
        peer.reply(await peer.question(), {"action": "accept"})
        assert text_of((await peer.answer(request_id))["result"]) == "accept"
        assert names != [threading.current_thread().name]
        assert "notifications/progress" in methods_in(peer.seen)

    talk(server, body, LATEST_LEGACY, capabilities=ABLE)


async def test_values_can_be_awaited_again() -> None:
    for answer in (Accepted(5), Declined("decline")):
        assert await answer is answer
    roots = Roots([Root("file:///a")])
    assert await roots is roots
    sampled = Sampled(role="user", model="m", content=TextContent("x"))
    assert await sampled is sampled


def test_a_client_that_leaves_while_it_is_asked_wakes_the_thread() -> None:
    server = make_server()
    raised: list[BaseException] = []
    ended = threading.Event()

    @server.tool
    def ask(ctx: BlockingContext) -> None:
        try:
            ctx.roots()
        except BaseException as error:
            raised.append(error)
            raise
        finally:
            ended.set()

    async def body(peer: Peer) -> None:
        peer.post_call("ask")
        await peer.question()

    talk(server, body, LATEST_LEGACY, capabilities=ABLE)
    assert ended.wait(PATIENCE)
    assert len(raised) == 1


@both_kinds
def test_a_context_may_name_the_type_of_the_lifespan(kind: str) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[dict[str, int]]:
        yield {"rows": 3}

    server = Server("counting", lifespan=lifespan)

    async def count(ctx: Context[dict[str, int]]) -> int:
        return ctx.lifespan["rows"]

    def count_plainly(ctx: BlockingContext[dict[str, int]] | None = None) -> int:
        return 0 if ctx is None else ctx.lifespan["rows"]

    server.add_tool(count if kind == "async" else count_plainly, name="count")

    async def body(peer: Peer) -> None:
        (tool,) = (await peer.result("tools/list"))["tools"]
        assert tool["inputSchema"]["properties"] == {}
        assert text_of(await peer.call("count")) == "3"

    talk(server, body)


@both_eras
def test_a_plain_function_reads_plain_resources_while_all_threads_are_taken(revision: Revision) -> None:
    server = Server("narrow", threads=1)

    @server.resource("notes://{name}")
    def note(name: str, ctx: Context) -> str:
        return f"{name} for {ctx.request_id}"

    @server.tool
    def read(ctx: BlockingContext) -> str | None:
        return ctx.read_resource("notes://a").contents[0].text

    async def body(peer: Peer) -> None:
        request_id = peer.post_call("read")
        assert text_of((await peer.answer(request_id))["result"]) == f"a for {request_id}"

    talk(server, body, revision)


@both_eras
@both_kinds
def test_what_fails_in_a_resource_fails_in_the_function_that_reads_it(revision: Revision, kind: str) -> None:
    server = make_server()
    seen: list[str] = []

    @server.resource("notes://async")
    async def broken() -> str:
        raise LookupError("async")

    @server.resource("notes://plain")
    def broken_plainly() -> str:
        raise LookupError("plain")

    async def read(uri: str, ctx: Context) -> str:
        try:
            await ctx.read_resource(uri)
        except LookupError as error:
            seen.append(str(error))
        return "done"

    def read_plainly(uri: str, ctx: BlockingContext) -> str:
        try:
            ctx.read_resource(uri)
        except LookupError as error:
            seen.append(str(error))
        return "done"

    server.add_tool(read if kind == "async" else read_plainly, name="read")

    async def body(peer: Peer) -> None:
        for name in ("async", "plain"):
            assert text_of(await peer.call("read", {"uri": f"notes://{name}"})) == "done"
        assert seen == ["async", "plain"]

    talk(server, body, revision)


@both_eras
@both_kinds
@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, StopIteration])
def test_a_resource_that_raises_no_exception_does_not_stop_the_server(
    revision: Revision, kind: str, raised: type[BaseException]
) -> None:
    server = make_server()

    @server.resource("notes://a")
    def broken() -> str:
        raise raised

    async def read(ctx: Context) -> str:
        await ctx.read_resource("notes://a")
        return "done"

    def read_plainly(ctx: BlockingContext) -> str:
        ctx.read_resource("notes://a")
        return "done"

    server.add_tool(read if kind == "async" else read_plainly, name="read")

    async def body(peer: Peer) -> None:
        for _ in range(2):
            assert text_of(await peer.call("read")).startswith("The tool 'read' failed")

    talk(server, body, revision)


@both_eras
def test_progress_has_the_name_of_other_libraries_too(revision: Revision) -> None:
    server = make_server()

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half")
        return "done"

    async def body(peer: Peer) -> None:
        await peer.call("work", meta={"progressToken": 1})
        (told,) = [each["params"] for each in peer.seen if each.get("method") == "notifications/progress"]
        assert {key: told[key] for key in ("progress", "total")} == {"progress": 1, "total": 2}

    talk(server, body, revision)
