"""Questions under keys that the author gave them, as clients see them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mcplumb.errors import ToolError
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.server.context import Context
from mcplumb.server.server import Server
from mcplumb.sync import Context as BlockingContext
from tests.kit.loop import run
from tests.kit.results import text_of
from tests.server.harness import ABLE, ONE_OF_EACH_ERA, Peer, Plain, make_server, raw_client

both_eras = pytest.mark.parametrize("revision", ONE_OF_EACH_ERA, ids=str)

NAME: Plain = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ADA: Plain = {"action": "accept", "content": {"name": "Ada"}}
SAMPLED: Plain = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hi."}}


def talk(server: Server, body: Callable[[Peer], Awaitable[None]], revision: Revision = LATEST) -> None:
    async def main() -> None:
        async with raw_client(server, revision, capabilities=ABLE) as peer:
            await body(peer)

    run(main())


def call(tool: str, **more: Any) -> Plain:
    return {"name": tool, "arguments": {}, **more}


@pytest.fixture
def server() -> Server:
    server = make_server()

    @server.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("What is your name?", NAME, key="user_name")
        return f"Hello, {(answer.data or {}).get('name')}!"

    @server.tool
    def greet_plainly(ctx: BlockingContext) -> str:
        answer = ctx.elicit("What is your name?", NAME, key="user_name")
        return f"Hello, {(answer.data or {}).get('name')}!"

    @server.prompt(name="greet")
    async def greeting(ctx: Context) -> str:
        answer = await ctx.elicit("What is your name?", NAME, key="user_name")
        return f"Greet {(answer.data or {}).get('name')}."

    @server.resource("greet://all")
    async def greetings(ctx: Context) -> str:
        answer = await ctx.elicit("What is your name?", NAME, key="user_name")
        return f"Hello, {(answer.data or {}).get('name')}!"

    @server.tool
    async def ask_all(ctx: Context) -> str:
        name, reply, roots, page = await asyncio.gather(
            ctx.elicit("Name?", NAME, key="user_name"),
            ctx.sample("Hello?", max_tokens=5, key="greeting"),
            ctx.roots(key="client_roots"),
            ctx.elicit_url("Pay?", "https://example.com", key="payment"),
        )
        return f"{name.action} {reply.text} {len(roots)} {page.action}"

    @server.tool
    async def ask_twice(ctx: Context) -> str:
        one = await ctx.elicit("Name?", NAME, key="step1")
        two = await ctx.elicit("Really?", NAME, key="step2")
        return f"{one.action} {two.action}"

    @server.tool
    async def same_key(ctx: Context) -> str:
        await ctx.elicit("Name?", NAME, key="same")
        await ctx.elicit("Another name?", NAME, key="same")
        return "not reached"

    return server


@pytest.mark.req("MRT-1", "MRT-5")
@pytest.mark.parametrize("tool", ["greet", "greet_plainly"])
def test_a_question_under_its_key(server: Server, tool: str) -> None:
    async def body(peer: Peer) -> None:
        asked = await peer.call(tool)
        assert list(asked["inputRequests"]) == ["user_name"]
        state = asked["requestState"]
        given: Plain = {"inputResponses": {"user_name": ADA, "unknown": 1}, "requestState": state}
        assert text_of(await peer.result("tools/call", call(tool, **given))) == "Hello, Ada!"

    talk(server, body)


@pytest.mark.req("LEG-4")
def test_a_legacy_client_sees_no_key(server: Server) -> None:
    async def body(peer: Peer) -> None:
        request_id = peer.post_call("greet")
        question = await peer.question()
        assert "user_name" not in str(question)
        peer.reply(question, ADA)
        assert text_of((await peer.answer(request_id))["result"]) == "Hello, Ada!"

    talk(server, body, LATEST_LEGACY)


@pytest.mark.req("MRT-1")
@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/call", call("greet")), ("prompts/get", {"name": "greet"}), ("resources/read", {"uri": "greet://all"})],
)
def test_an_answer_before_the_question(server: Server, method: str, params: Plain) -> None:
    """Without a state, which nobody could have sealed yet."""

    async def body(peer: Peer) -> None:
        result = await peer.result(method, {**params, "inputResponses": {"user_name": ADA, "a": 1, "b": {}}})
        assert result["resultType"] == "complete"
        assert "Ada" in str(result)
        again = await peer.result(method, {**params, "inputResponses": {"wrong_key": ADA}})
        assert list(again["inputRequests"]) == ["user_name"]

    talk(server, body)


@pytest.mark.parametrize("responses", [{"user_name": 12345}, {"user_name": {"action": "sing"}}, None, []])
def test_an_answer_that_is_none(server: Server, responses: Any) -> None:
    async def body(peer: Peer) -> None:
        assert (await peer.error("tools/call", call("greet", inputResponses=responses)))["code"] == -32602
        state = (await peer.call("greet"))["requestState"]
        params = call("greet", inputResponses=responses, requestState=state)
        assert (await peer.error("tools/call", params))["code"] == -32602
        assert text_of(await peer.result("tools/call", {**params, "inputResponses": {"user_name": ADA}}))

    talk(server, body)


@pytest.mark.req("MRT-3")
def test_state_that_was_tampered_with(server: Server) -> None:
    async def body(peer: Peer) -> None:
        state = (await peer.call("greet"))["requestState"] + "-TAMPERED"
        params = call("greet", inputResponses={"user_name": ADA}, requestState=state)
        assert (await peer.error("tools/call", params))["code"] == -32602

    talk(server, body)


def test_a_legacy_client_brings_no_answers(server: Server) -> None:
    async def body(peer: Peer) -> None:
        request_id = peer.post("tools/call", call("greet", inputResponses={"user_name": ADA}))
        peer.reply(await peer.question(), {"action": "decline"})
        assert text_of((await peer.answer(request_id))["result"]) == "Hello, None!"

    talk(server, body, LATEST_LEGACY)


@pytest.mark.req("MRT-1")
def test_gathered_questions_are_asked_together(server: Server) -> None:
    async def body(peer: Peer) -> None:
        asked = await peer.call("ask_all")
        requests = asked["inputRequests"]
        assert {key: request["method"] for key, request in requests.items()} == {
            "user_name": "elicitation/create",
            "greeting": "sampling/createMessage",
            "client_roots": "roots/list",
            "payment": "elicitation/create",
        }
        responses: Plain = {
            "payment": {"action": "decline"},
            "client_roots": {"roots": []},
            "greeting": SAMPLED,
            "user_name": ADA,
        }
        params = call("ask_all", inputResponses=responses, requestState=asked["requestState"])
        assert text_of(await peer.result("tools/call", params)) == "accept Hi. 0 decline"
        # Those that are not answered are asked again, and no others.
        del responses["greeting"]
        again = await peer.result("tools/call", {**params, "inputResponses": responses})
        assert list(again["inputRequests"]) == ["greeting"]
        params = call("ask_all", inputResponses={"greeting": SAMPLED}, requestState=again["requestState"])
        assert text_of(await peer.result("tools/call", params)) == "accept Hi. 0 decline"

    talk(server, body)


@pytest.mark.req("MRT-1")
def test_one_question_after_the_other(server: Server) -> None:
    async def body(peer: Peer) -> None:
        one = await peer.call("ask_twice")
        assert list(one["inputRequests"]) == ["step1"]
        params = call("ask_twice", inputResponses={"step1": ADA}, requestState=one["requestState"])
        two = await peer.result("tools/call", params)
        assert list(two["inputRequests"]) == ["step2"]
        assert two["requestState"] != one["requestState"]
        params = call("ask_twice", inputResponses={"step2": ADA}, requestState=two["requestState"])
        assert text_of(await peer.result("tools/call", params)) == "accept accept"

    talk(server, body)


@both_eras
def test_one_key_for_two_questions(server: Server, revision: Revision, caplog: pytest.LogCaptureFixture) -> None:
    async def body(peer: Peer) -> None:
        if revision.is_modern:
            result = await peer.result("tools/call", call("same_key", inputResponses={"same": ADA}))
        else:
            request_id = peer.post_call("same_key")
            peer.reply(await peer.question(), ADA)
            result = (await peer.answer(request_id))["result"]
        assert result["isError"] is True

    talk(server, body, revision)
    assert "Two questions of this call have the key 'same'" in caplog.text


def test_questions_beside_a_failure_are_not_asked() -> None:
    server = make_server()

    async def fail() -> None:
        raise ToolError("No.")

    @server.tool
    async def ask(ctx: Context) -> str:
        await asyncio.gather(fail(), ctx.roots(key="a"), ctx.roots(key="b"))
        return "not reached"

    async def body(peer: Peer) -> None:
        assert text_of(await peer.call("ask")) == "No."

    talk(server, body)
