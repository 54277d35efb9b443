"""The client and the server of this package, with each other, in one process and in every revision."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypedDict

import msgspec
import pytest

from mcplumb import Client, Context, Server, ToolError, ToolFailed, connect
from mcplumb.errors import ConnectError, NoCommonRevision, RemoteError, RequestTimeout
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.protocol.subscription_state import Change
from mcplumb.revisions import REVISIONS, get_revision
from mcplumb.sync import Context as BlockingContext
from mcplumb.types.client_features import CreateMessageParams
from mcplumb.types.content import TextContent
from mcplumb.types.prompts import PromptReference, ResourceTemplateReference
from mcplumb.types.tools import CallToolResult
from tests.kit.loop import run, turns

pytestmark = pytest.mark.parametrize("name", [revision.name for revision in REVISIONS])


class Report(TypedDict):
    city: str
    celsius: float


class Person(msgspec.Struct):
    name: str
    age: int = 0


class World:
    """A server with something of everything, and what happened in it."""

    def __init__(self, **options: Any) -> None:
        self.events: list[str] = []
        self.release = asyncio.Event()
        self.server = server = Server("world", version="2.0", instructions="Look around.", page_size=2, **options)

        @server.tool
        async def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        @server.tool
        def report(city: str) -> Report:
            return {"city": city, "celsius": 21.5}

        @server.tool
        def fail() -> str:
            raise ToolError("The well is dry.")

        @server.tool
        async def count(n: int, ctx: Context) -> str:
            for step in range(1, n + 1):
                await ctx.progress(step, n, f"step {step}")
                await ctx.debug("hush")
                await ctx.info({"step": step})
            return "counted"

        @server.tool
        async def hang() -> str:
            self.events.append("hanging")
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.events.append("cancelled")
                raise
            return "released"

        @server.tool
        async def introduce(ctx: Context) -> str:
            answer = await ctx.elicit("Who are you?", Person)
            if answer.action != "accept" or answer.data is None:
                return answer.action
            again = await ctx.elicit("Really?", Person)
            return f"{answer.data.name} {again.action}"

        @server.tool
        def think(question: str, ctx: BlockingContext) -> str:
            return ctx.sample(question, max_tokens=5).text

        @server.tool
        async def look(ctx: Context) -> str:
            return " ".join(root.uri for root in await ctx.roots())

        @server.resource("world://{place}/now")
        async def now(place: str) -> str:
            return f"quiet in {place}"

        @server.resource("world://map")
        def world_map() -> bytes:
            return b"\x00\x01"

        @server.prompt
        def plan(city: str) -> str:
            return f"Plan a day in {city}."

        @server.completion("plan", "city")
        def cities(typed: str) -> list[str]:
            return [city for city in ("Oslo", "Odense", "Rome") if city.startswith(typed)]

        @server.completion("world://{place}/now", "place")
        def places(typed: str, others: dict[str, str]) -> list[str]:
            return [f"{typed}!", *others.values()]

        @server.on_request("x/echo")
        async def echo(params: dict[str, Any]) -> dict[str, Any]:
            return {"said": params.get("say")}


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def meet(name: str, body: Any, world: World | None = None, **options: Any) -> None:
    async def main() -> None:
        async with connect((world or World()).server, revisions=[name], **options) as client:
            assert str(client.revision) == name
            await body(client)
            assert (client.stats.bad_lines, client.stats.violations, client.stats.unknown_answers) == (0, 0, 0)

    run(main())


def test_they_know_each_other(name: str) -> None:
    async def body(client: Client) -> None:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("world", "2.0")
        assert client.instructions == "Look around."
        assert client.capabilities.tools is not None
        await client.ping()

    meet(name, body)


def test_lists_come_whole_over_several_pages(name: str) -> None:
    async def body(client: Client) -> None:
        tools = await client.list_tools()
        assert {tool.name for tool in tools} >= {"add", "report", "fail", "count", "hang"}
        assert next(tool for tool in tools if tool.name == "add").description == "Add two numbers."
        assert len((await client.tools_page()).tools) == 2
        assert [resource.uri for resource in await client.list_resources()] == ["world://map"]
        assert [each.uri_template for each in await client.list_resource_templates()] == ["world://{place}/now"]
        assert [prompt.name for prompt in await client.list_prompts()] == ["plan"]

    meet(name, body)


def test_tools_are_called(name: str) -> None:
    async def body(client: Client) -> None:
        assert text(await client.call_tool("add", {"a": 1, "b": 2})) == "3"
        result = await client.call_tool("report", {"city": "Oslo"})
        assert msgspec.json.decode(text(result)) == {"city": "Oslo", "celsius": 21.5}
        if client.revision.has_structured_content:
            assert result.structured_content == {"city": "Oslo", "celsius": 21.5}
        failed = await client.call_tool("fail")
        assert (failed.is_error, text(failed)) == (True, "The well is dry.")
        wrong = await client.call_tool("add", {"a": "one", "b": 2})
        assert wrong.is_error
        assert "a" in text(wrong)
        sums = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": n}) for n in range(100)))
        assert [text(each) for each in sums] == [str(2 * n) for n in range(100)]

    meet(name, body)


def test_resources_prompts_and_completions(name: str) -> None:
    async def body(client: Client) -> None:
        (contents,) = (await client.read_resource("world://oslo/now")).contents
        assert contents.text == "quiet in oslo"
        (contents,) = (await client.read_resource("world://map")).contents
        assert contents.blob == "AAE="
        with pytest.raises(RemoteError) as caught:
            await client.read_resource("world://nowhere")
        assert caught.value.code == client.revision.resource_not_found
        prompt = await client.get_prompt("plan", {"city": "Oslo"})
        assert prompt.messages[0].content == TextContent("Plan a day in Oslo.")
        assert (await client.complete(PromptReference("plan"), "city", "O")).values == ["Oslo", "Odense"]
        assert (await client.complete("plan", "city", "O")).values == ["Oslo", "Odense"]
        reference = ResourceTemplateReference("world://{place}/now")
        completion = await client.complete(reference, "place", "os", {"land": "no"})
        assert completion.values == (["os!", "no"] if client.revision.has_completion_context else ["os!"])

    meet(name, body)


def test_an_extension_is_asked(name: str) -> None:
    async def body(client: Client) -> None:
        assert (await client.request("x/echo", {"say": "hi"}))["said"] == "hi"

    meet(name, body)


@pytest.mark.parametrize("is_async", [False, True])
def test_progress_and_logs(name: str, is_async: bool) -> None:
    seen: list[Any] = []
    logs: list[Any] = []

    async def on_progress(*news: Any) -> None:
        await asyncio.sleep(0)
        seen.append(news)

    async def body(client: Client) -> None:
        function = on_progress if is_async else lambda *news: seen.append(news)
        await client.call_tool("count", {"n": 3}, on_progress=function)
        told = get_revision(name).has_progress_message
        assert seen == [(step, 3, f"step {step}" if told else None) for step in (1, 2, 3)]
        assert logs == [{"step": step} for step in (1, 2, 3)]
        await client.set_log_level("debug")
        await client.call_tool("count", {"n": 1})
        assert logs[3:] == ["hush", {"step": 1}]
        await client.set_log_level("error")
        await client.call_tool("count", {"n": 1})
        assert len(logs) == 5

    meet(name, body, on_log=lambda log: logs.append(log.data))


@pytest.mark.req("MRT-4", "MRT-5")
@pytest.mark.parametrize("is_async", [False, True])
def test_the_user_is_asked(name: str, is_async: bool) -> None:
    questions: list[str] = []

    def on_elicit(question: Any) -> dict[str, Any] | None:
        assert (question.mode, question.url) == ("form", None)
        assert set(question.schema["properties"]) == {"name", "age"}
        questions.append(question.message)
        return {"name": "Ada", "age": 36} if question.message == "Who are you?" else None

    async def ask_later(question: Any) -> dict[str, Any] | None:
        return on_elicit(question)

    async def body(client: Client) -> None:
        result = await client.call_tool("introduce")
        if client.revision.has_elicitation:
            assert text(result) == "Ada decline"
            assert questions == ["Who are you?", "Really?"]
        else:
            assert result.is_error
            assert questions == []

    meet(name, body, on_elicit=ask_later if is_async else on_elicit)


@pytest.mark.req("META-4", "MRT-2")
def test_who_cannot_ask_is_told_so(name: str) -> None:
    async def body(client: Client) -> None:
        if client.revision.is_modern:
            with pytest.raises(RemoteError) as caught:
                await client.call_tool("introduce")
            assert caught.value.code == -32021
        else:
            assert (await client.call_tool("introduce")).is_error

    meet(name, body)


@pytest.mark.req("MRT-5")
def test_a_model_and_the_roots_are_asked(name: str) -> None:
    def on_sample(params: CreateMessageParams) -> str:
        (block,) = params.messages[0].blocks
        assert isinstance(block, TextContent)
        return block.text.upper()

    async def body(client: Client) -> None:
        assert text(await client.call_tool("think", {"question": "why"})) == "WHY"
        assert text(await client.call_tool("look")) == "file:///a file:///b"

    meet(name, body, on_sample=on_sample, roots=lambda: ["file:///a", "file:///b"])


@pytest.mark.req("SUB-3", "SUB-6")
def test_changes_are_heard(name: str) -> None:
    world = World()

    async def body(client: Client) -> None:
        async with (
            client.listen(tools=True, resources=["world://oslo/now"]) as one,
            client.listen(prompts=True) as other,
        ):
            world.server.remove_tool("add")
            assert await anext(one) == Change("tools")
            world.server.resource_changed("world://rome/now")
            world.server.resource_changed("world://oslo/now")
            assert await anext(one) == Change("updates", "world://oslo/now")
            world.server.remove_prompt("plan")
            assert await anext(other) == Change("prompts")
        world.server.resource_changed("world://oslo/now")
        assert "add" not in {tool.name for tool in await client.list_tools()}

    meet(name, body, world)


@pytest.mark.req("CAN-1", "CAN-5")
@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_call_that_is_given_up_stops_on_the_server(name: str, how: str) -> None:
    world = World()

    async def body(client: Client) -> None:
        if how == "timeout":
            with pytest.raises(RequestTimeout):
                await client.call_tool("hang", timeout=0.01)
        else:
            task = asyncio.ensure_future(client.call_tool("hang"))
            await turns()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await client.ping()
        await turns()
        assert world.events == ["hanging", "cancelled"]

    meet(name, body, world)


async def test_leaving_stops_what_runs(name: str) -> None:
    world = World()

    async with connect(world.server, revisions=[name]) as client:
        task = asyncio.ensure_future(client.call_tool("hang"))
        await turns()
    assert world.events == ["hanging", "cancelled"]
    assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], Exception)


async def test_a_plain_tool_that_cannot_be_stopped_does_not_hold_up_the_end(name: str) -> None:
    started, release, finished = threading.Event(), threading.Event(), threading.Event()
    world = World()

    @world.server.tool
    def stuck() -> None:
        started.set()
        release.wait(60)
        finished.set()

    try:
        async with connect(world.server, revisions=[name], stop=StopLadder(close_wait=0.1, term_wait=0.1)) as client:
            task = asyncio.ensure_future(client.call_tool("stuck"))
            await asyncio.to_thread(started.wait)
        assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], Exception)
        assert not finished.is_set()
    finally:
        release.set()


def test_the_lifespan_is_open_while_a_client_is(name: str) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        events.append("open")
        yield "value"
        events.append("closed")

    world = World(lifespan=lifespan)

    @world.server.tool
    async def value(ctx: Context) -> str:
        return str(ctx.lifespan)

    async def body(client: Client) -> None:
        assert text(await client.call_tool("value")) == "value"
        assert events == ["open"]

    meet(name, body, world)
    assert events == ["open", "closed"]


async def test_a_server_that_cannot_start_says_why(name: str) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise OSError("The database is gone.")
        yield

    with pytest.raises(ConnectError, match=r"The server failed with OSError: The database is gone\."):
        await connect(World(lifespan=lifespan).server, revisions=[name])


@pytest.mark.req("ERA-8")
async def test_a_server_of_other_revisions_is_refused_with_both_sides_named(name: str) -> None:
    others = [revision.name for revision in REVISIONS if revision.name != name]

    with pytest.raises(NoCommonRevision) as caught:
        await connect(World(revisions=others).server, revisions=[name])
    assert caught.value.ours == (name,)
    assert set(caught.value.theirs) <= set(others)
    assert caught.value.theirs


async def test_two_clients_of_one_server_do_not_meet(name: str) -> None:
    world = World()

    async with connect(world.server, revisions=[name]) as one, connect(world.server) as other:
        hanging = asyncio.ensure_future(one.call_tool("hang"))
        await turns()
        assert text(await other.call_tool("add", {"a": 2, "b": 2})) == "4"
        await other.close()
        world.release.set()
        assert text(await hanging) == "released"


async def test_a_result_has_its_text_and_raises_what_the_tool_said(name: str) -> None:
    async with connect(World().server, revisions=[name]) as client:
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert (result.raise_for_error().text, result.is_error) == ("3", False)
        with pytest.raises(ToolFailed, match="The tool failed: The well is dry"):
            (await client.call_tool("fail")).raise_for_error()
