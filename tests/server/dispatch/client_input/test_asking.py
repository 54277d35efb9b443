"""Asking the client for input: the same functions, for clients of both eras."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mcplumb.errors import ToolError
from mcplumb.revisions import LATEST, LATEST_LEGACY, LEGACY, Revision
from mcplumb.server.context import Context
from mcplumb.server.server import Server
from mcplumb.sync import Context as BlockingContext
from mcplumb.types.tools import Tool
from tests.kit.loop import run
from tests.kit.products import revisions
from tests.kit.results import text_of
from tests.server.harness import ABLE, ALL_REVISIONS, Peer, Plain, make_server, methods_in, raw_client

every_revision = pytest.mark.parametrize("revision", ALL_REVISIONS, ids=str)
both_kinds = pytest.mark.parametrize("kind", ["async", "plain"])

FORM: Plain = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
SAMPLED: Plain = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hi."}}

Ask = Callable[[Context], Any]

#: How to ask, what is asked then, what a client needs for it, what it answers, and what the function makes of that.
ASKS: dict[str, tuple[Ask, str, Plain, Plain, str]] = {
    "form": (
        lambda ctx: ctx.elicit("Your name?", FORM),
        "elicitation/create",
        {"elicitation": {}},
        {"action": "accept", "content": {"name": "Ada"}},
        "Accepted(data={'name': 'Ada'})",
    ),
    "url": (
        lambda ctx: ctx.elicit_url("Pay?", "https://example.com/pay"),
        "elicitation/create",
        {"elicitation": {"url": {}}},
        {"action": "decline"},
        "Declined(action='decline')",
    ),
    "sample": (
        lambda ctx: ctx.sample("Hello?", max_tokens=5),
        "sampling/createMessage",
        {"sampling": {}},
        SAMPLED,
        "Hi.",
    ),
    "tools": (
        lambda ctx: ctx.sample("Hello?", max_tokens=5, tools=[Tool("t", {"type": "object"})]),
        "sampling/createMessage",
        {"sampling": {"tools": {}}},
        SAMPLED,
        "Hi.",
    ),
    "roots": (
        lambda ctx: ctx.roots(),
        "roots/list",
        {"roots": {}},
        {"roots": [{"uri": "file:///a"}]},
        "['file:///a']",
    ),
}
#: What a revision must have for it.
FLAGS = {"form": "has_elicitation", "url": "has_url_elicitation"}


def can(revision: Revision, what: str) -> bool:
    return what not in FLAGS or bool(getattr(revision, FLAGS[what]))


def shown(value: Any) -> str:
    if isinstance(value, list):
        return str([root.uri for root in value])
    return value.text if hasattr(value, "text") else repr(value)


def asking_server(ask: Ask, kind: str) -> Server:
    server = make_server()

    async def ask_tool(ctx: Context) -> str:
        return shown(await ask(ctx))

    def plain_ask_tool(ctx: Context) -> str:
        return shown(ask(ctx))

    server.add_tool(ask_tool if kind == "async" else plain_ask_tool, name="ask")
    return server


def talk(server: Server, body: Callable[[Peer], Awaitable[None]], revision: Revision = LATEST, **options: Any) -> None:
    async def main() -> None:
        async with raw_client(server, revision, **options) as peer:
            await body(peer)

    run(main())


@pytest.mark.req("MRT-5", "LEG-4", "DIR-2")
@every_revision
@both_kinds
@pytest.mark.parametrize("what", ASKS)
def test_the_same_function_asks_clients_of_every_revision(revision: Revision, kind: str, what: str) -> None:
    ask, method, capabilities, answer, text = ASKS[what]

    async def body(peer: Peer) -> None:
        if revision.is_modern:
            asked = await peer.call("ask")
            assert asked["resultType"] == "input_required"
            assert asked["inputRequests"]["1"]["method"] == method
            # Also those for roots, which may be left out: the Go SDK's client cannot read a question without them.
            assert isinstance(asked["inputRequests"]["1"]["params"], dict)
            params = {"requestState": asked["requestState"], "inputResponses": {"1": answer}}
            result = await peer.result("tools/call", {"name": "ask", "arguments": {}, **params})
            assert methods_in(peer.seen) == []
        else:
            request_id = peer.post_call("ask")
            if not can(revision, what):
                result = (await peer.answer(request_id))["result"]
                assert result["isError"] is True
                assert text_of(result).startswith("This needs a newer client. ")
                return
            question = await peer.question()
            assert question["method"] == method
            assert ("tools" in question.get("params", {})) == (what == "tools" and revision.has_sampling_tools)
            peer.reply(question, answer)
            result = (await peer.answer(request_id))["result"]
        assert text_of(result) == text

    talk(asking_server(ask, kind), body, revision, capabilities=capabilities)


@pytest.mark.req("META-4", "MRT-2")
@both_kinds
@pytest.mark.parametrize(
    ("what", "declared", "required"),
    [
        ("form", {}, {"elicitation": {"form": {}}}),
        ("form", {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ("url", {"elicitation": {}}, {"elicitation": {"url": {}}}),
        ("url", {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
        ("sample", {}, {"sampling": {}}),
        ("tools", {"sampling": {}}, {"sampling": {"tools": {}}}),
        ("roots", {"sampling": {}}, {"roots": {}}),
    ],
)
def test_a_modern_client_is_told_which_capability_is_missing(
    kind: str, what: str, declared: Plain, required: Plain
) -> None:
    async def body(peer: Peer) -> None:
        error = await peer.error("tools/call", {"name": "ask", "arguments": {}})
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": required}

    talk(asking_server(ASKS[what][0], kind), body, capabilities=declared)


@both_kinds
@pytest.mark.parametrize("revision", revisions(LEGACY), ids=str)
@pytest.mark.parametrize(
    ("what", "declared", "words"),
    [
        ("form", {}, "ask its user with a form"),
        ("url", {"elicitation": {}}, "send its user to a web page"),
        ("sample", {"roots": {}}, "ask a model"),
        ("tools", {"sampling": {}}, "ask a model that may call tools"),
        ("roots", {}, "tell its roots"),
    ],
)
def test_a_legacy_client_gets_a_tool_error_that_says_so(
    kind: str, revision: Revision, what: str, declared: Plain, words: str
) -> None:
    async def body(peer: Peer) -> None:
        result = await peer.call("ask")
        assert result["isError"] is True
        assert text_of(result) == f"This needs a client that can {words}, and this client did not declare that."
        assert methods_in(peer.seen) == []

    talk(asking_server(ASKS[what][0], kind), body, revision, capabilities=declared)


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize("revision", [each for each in ALL_REVISIONS if each.has_url_elicitation], ids=str)
def test_a_web_page_has_an_id_where_the_revision_wants_one(revision: Revision) -> None:
    async def body(peer: Peer) -> None:
        ids = set()
        for _ in range(2):
            if revision.is_modern:
                params = (await peer.call("ask"))["inputRequests"]["1"]["params"]
            else:
                peer.post_call("ask")
                question = await peer.question()
                params = question["params"]
                peer.reply(question, {"action": "cancel"})
            assert (params["mode"], params["url"]) == ("url", "https://example.com/pay")
            ids.add(params.get("elicitationId"))
        assert ids == {None} if not revision.has_elicitation_ids else len(ids) == 2

    talk(asking_server(ASKS["url"][0], "async"), body, revision, capabilities=ABLE)


@pytest.mark.req("MRT-1")
@both_kinds
@pytest.mark.parametrize("where", ["completion/complete", "example.com/ask"])
def test_other_requests_may_not_ask_a_modern_client(kind: str, where: str, caplog: pytest.LogCaptureFixture) -> None:
    server = make_server()
    server.add_prompt(lambda topic: topic, name="sort")

    async def complete(typed: str, ctx: Context) -> list[str]:
        await ctx.roots()
        return []

    def plain_complete(typed: str, ctx: BlockingContext) -> list[str]:
        ctx.roots()
        return []

    server.completion("sort", "topic")(complete if kind == "async" else plain_complete)

    async def handle(params: dict[str, Any], ctx: Context) -> None:
        await ctx.roots()

    def plain_handle(params: dict[str, Any], ctx: BlockingContext) -> None:
        ctx.roots()

    server.request("example.com/ask")(handle if kind == "async" else plain_handle)

    async def body(peer: Peer) -> None:
        ref = {"type": "ref/prompt", "name": "sort"}
        params = {"ref": ref, "argument": {"name": "topic", "value": ""}} if where.startswith("completion") else {}
        assert (await peer.error(where, params))["code"] == -32603

    talk(server, body, capabilities=ABLE)
    assert f"{where} may not ask the client for anything." in caplog.text


def test_an_extension_s_method_may_ask_a_legacy_client() -> None:
    server = make_server()

    @server.on_request("example.com/ask")
    async def handle(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"count": len(await ctx.roots())}

    async def body(peer: Peer) -> None:
        request_id = peer.post("example.com/ask")
        peer.reply(await peer.question("roots/list"), {"roots": []})
        assert (await peer.answer(request_id))["result"] == {"count": 0}

    talk(server, body, LATEST_LEGACY, capabilities=ABLE)


@both_kinds
def test_a_client_that_answers_with_an_error_is_a_tool_error(kind: str) -> None:
    """Which the function may catch; what the client said is its cause."""
    server = make_server()

    @server.tool
    async def catch(ctx: Context) -> str:
        try:
            await ctx.roots()
        except ToolError as error:
            return repr(error.__cause__)
        return "not reached"

    @server.tool
    def plain_catch(ctx: BlockingContext) -> str:
        try:
            ctx.roots()
        except ToolError as error:
            return repr(error.__cause__)
        return "not reached"

    server.add_tool(_let_go, name="let_go")

    async def body(peer: Peer) -> None:
        for tool, is_error, text in (
            (
                "catch" if kind == "async" else "plain_catch",
                None,
                "RemoteError('The client answered roots/list with error -1: No roots here.')",
            ),
            ("let_go", True, "The client could not be asked: it answered with error -1."),
        ):
            request_id = peer.post_call(tool)
            peer.refuse(await peer.question(), -1, "No roots here")
            result = (await peer.answer(request_id))["result"]
            assert (result.get("isError"), text_of(result)) == (is_error, text)

    talk(server, body, LATEST_LEGACY, capabilities=ABLE)


async def _let_go(ctx: Context) -> str:
    await ctx.roots()
    return "not reached"


def test_an_answer_that_is_none_is_refused() -> None:
    async def body(peer: Peer) -> None:
        asked = await peer.call("ask")
        params = {"requestState": asked["requestState"], "inputResponses": {"1": {"roots": "none"}}}
        error = await peer.error("tools/call", {"name": "ask", "arguments": {}, **params})
        assert error["code"] == -32602
        assert error["message"].startswith("The client's answer cannot be read")

    talk(asking_server(ASKS["roots"][0], "async"), body, capabilities=ABLE)


@both_kinds
@pytest.mark.parametrize(
    "line", ['{"jsonrpc":"2.0","id":%d,"result":{"roots":"none"}}', '{"jsonrpc":"2.0","id":%d,"error":1}']
)
def test_a_legacy_answer_that_is_none_is_a_tool_error(kind: str, line: str) -> None:
    async def body(peer: Peer) -> None:
        request_id = peer.post_call("ask")
        question = await peer.question()
        peer.send_line((line % question["id"]).encode())
        result = (await peer.answer(request_id))["result"]
        assert result["isError"] is True
        assert text_of(result).startswith("The client")

    talk(asking_server(ASKS["roots"][0], kind), body, LATEST_LEGACY, capabilities=ABLE)


@both_kinds
@pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY], ids=str)
def test_a_question_that_cannot_be_written_fails_at_once(
    revision: Revision, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(peer: Peer) -> None:
        response = await peer.request("tools/call", {"name": "ask", "arguments": {}})
        assert "error" in response or response["result"]["isError"] is True
        assert methods_in(peer.seen) == []

    server = asking_server(lambda ctx: ctx.sample("Hello?", max_tokens=5, metadata={"bad": object()}), kind)
    talk(server, body, revision, capabilities=ABLE)
    assert caplog.records != []


def test_a_function_may_go_on_without_an_answer() -> None:
    server = make_server()

    @server.tool
    async def try_to_ask(ctx: Context) -> str:
        try:
            await ctx.roots()
        except ToolError:
            return "without"
        return "with"

    async def body(peer: Peer) -> None:
        assert await peer.text("try_to_ask") == "without"

    talk(server, body, LATEST_LEGACY)
