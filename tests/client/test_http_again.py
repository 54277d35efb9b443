"""Clients over HTTP that try a call once more: on a new session, or with headers that were not known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from mcplumb import HttpError, RemoteError, RequestLost, RequestTimeout, connect
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.wire.messages import HEADER_MISMATCH
from tests.client.peers import skip
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import run
from tests.transports.http_client.raw import LEGACY, MODERN, Asked, RawServer, Reply, Script, event

pytestmark = leaves_nothing


#: Tried again at once, and as often as it takes.
PATIENT = RestartPolicy(first_wait=0.01, max_wait=0.05, breaker_after=10_000)
FRESH = {"resultType": "complete", "ttlMs": 60_000, "cacheScope": "private"}


@asynccontextmanager
async def by_hand(script: Script) -> AsyncIterator[RawServer]:
    server = RawServer(script)
    await server.open()
    try:
        yield server
    finally:
        await server.close()


# --- Sessions ---


async def legacy(asked: Asked, reply: Reply) -> None:
    """A script: a server of the legacy era, without any tools."""
    if asked.rpc == "initialize":
        await reply.result({"protocolVersion": LEGACY, "capabilities": {"tools": {}}}, Mcp_Session_Id="s1")
    elif asked.method != "POST":
        await reply.send(405)
    else:
        await (reply.result({"tools": []}) if "id" in asked.json else reply.send(202))


@pytest.mark.req("HTP-6")
@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
async def test_a_call_that_ends_its_session_each_time_fails_with_what_was_said_to_it(status: int, kind: str) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc != "tools/call":
            return await legacy(asked, reply)
        said = {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "Session not found"}}
        return await reply.send(status, msgspec.json.encode(said) if kind == "application/json" else b"No session ID?")

    async with (
        by_hand(script) as server,
        connect(server.url, revisions=[LEGACY], restart=PATIENT, timeout=None) as client,
    ):
        with pytest.raises(RemoteError if (status, kind) == (400, "application/json") else HttpError) as caught:
            await client.call_tool("x")
        assert "tools/call 'x'" in str(caught.value)
        assert "ession" in str(caught.value)
        is_lost = status == 404 or kind == "application/json"
        assert server.order.count("tools/call") == (3 if is_lost else 1)
        assert await client.list_tools() == []


async def test_a_refusal_that_speaks_of_a_session_is_told_at_once() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc != "tools/call":
            return await legacy(asked, reply)
        error = {"code": -32602, "message": "Unknown argument: session_name"}
        said = {"jsonrpc": "2.0", "id": asked.json["id"], "error": error}
        return await reply.send(400, msgspec.json.encode(said))

    async with by_hand(script) as server, connect(server.url, revisions=[LEGACY], restart=PATIENT) as client:
        with pytest.raises(RemoteError, match="session_name"):
            await client.call_tool("x")
        assert (server.order.count("tools/call"), server.order.count("initialize")) == (1, 1)


async def test_a_call_whose_question_was_answered_elsewhere_says_what_the_server_said() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "tools/call":
            question = {"id": "q", "method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}}
            await reply.stream(event(msgspec.json.encode({"jsonrpc": "2.0", **question})))
            await asyncio.Event().wait()
        elif asked.method == "POST" and not asked.rpc:
            error = {"code": -32600, "message": "This session belongs to another process."}
            await reply.send(404, msgspec.json.encode({"jsonrpc": "2.0", "error": error}))
        else:
            await legacy(asked, reply)

    async def answer(_: Any) -> Any:
        return None

    async with (
        by_hand(script) as server,
        connect(server.url, revisions=[LEGACY], restart=False, on_elicit=answer) as client,
    ):
        with pytest.raises(RequestLost, match="This session belongs to another process"):
            await client.call_tool("x")


@pytest.mark.req("SSE-2")
async def test_the_same_over_http_sse() -> None:
    streams: list[Reply] = []

    async def script(asked: Asked, reply: Reply) -> None:
        if asked.method == "GET":
            streams.append(reply)
            await reply.stream(event(b"/messages", name="endpoint"))
            await asyncio.Event().wait()
        elif asked.rpc == "tools/call":
            await reply.send(404)
        else:
            await reply.send(202)
            if asked.rpc == "initialize":
                result = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}}
                said = {"jsonrpc": "2.0", "id": asked.json["id"], "result": result}
                await streams[-1].events(event(msgspec.json.encode(said)))

    async with (
        by_hand(script) as server,
        connect(server.url, http_sse=True, restart=PATIENT, revisions=["2024-11-05"], timeout=None) as client,
    ):
        with pytest.raises(HttpError, match="HTTP 404"):
            await client.call_tool("x")
        assert server.order.count("tools/call") == 3


# --- Headers ---


def tool(schema: dict[str, Any], name: str = "go", **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": schema}, **more}


PLAIN = tool({"region": {"type": "string"}})
MARKED = tool({"region": {"type": "string", "x-mcp-header": "Region"}})
WRONG = tool({"region": {"type": "string", "x-mcp-header": "no name"}}, "wrong")


def modern(tools: Callable[[], list[dict[str, Any]]], call: Script | None = None) -> Script:
    """A script: a modern server with these tools, which stay fresh, and which want the region in a header."""

    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "server/discover":
            await reply.result({**FRESH, "supportedVersions": [MODERN], "capabilities": {"tools": {}}})
        elif asked.rpc == "tools/list":
            await reply.result({**FRESH, "tools": tools()})
        elif call is not None:
            await call(asked, reply)
        elif "mcp-param-region" not in asked.headers:
            await reply.error(400, HEADER_MISMATCH)
        else:
            await reply.result({"resultType": "complete", "content": []})

    return script


@pytest.mark.parametrize("calls", [1, 20])
async def test_after_a_mismatch_the_tools_are_listed_again_however_fresh_they_are(calls: int) -> None:
    tools = [PLAIN]

    async with by_hand(modern(lambda: tools)) as server, connect(server.url) as client:
        await client.list_tools()
        tools[:] = [MARKED]
        await asyncio.gather(*(client.call_tool("go", {"region": "eu"}) for _ in range(calls)))
        assert server.order.count("tools/list") == 2, "and those who need it share one list"
        assert server.order.count("tools/call") == 2 * calls
        assert await client.list_tools()
        assert server.order.count("tools/list") == 2, "which stays fresh as any other"


async def test_a_schema_that_broke_is_looked_up_however_fresh_it_is() -> None:
    async def call(asked: Asked, reply: Reply) -> None:
        await reply.result({"resultType": "complete", "content": [], "structuredContent": {"n": "many"}})

    tools = [tool({}, outputSchema={"type": "object", "properties": {"n": {"type": "integer"}}})]

    async with by_hand(modern(lambda: tools, call)) as server, connect(server.url, check_output=True) as client:
        await client.list_tools()
        tools[:] = [tool({}, outputSchema={"type": "object"})]
        assert (await client.call_tool("go")).structured_content == {"n": "many"}
        assert server.order.count("tools/list") == 2


async def test_both_tries_together_have_one_timeout() -> None:
    async def call(asked: Asked, reply: Reply) -> None:
        if "mcp-param-region" in asked.headers:
            skip(200)
            await asyncio.Event().wait()
        skip(900)
        await reply.error(400, HEADER_MISMATCH)

    async with by_hand(modern(lambda: [MARKED], call)) as server, connect(server.url) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("go", {"region": "eu"}, timeout=1000)
        assert server.order.count("tools/call") == 2


async def test_in_a_later_round_only_that_is_sent_again() -> None:
    asked_for: list[str] = []

    async def call(asked: Asked, reply: Reply) -> None:
        if "inputResponses" not in asked.json["params"]:
            schema = {"type": "object", "properties": {}}
            question = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": schema}}
            await reply.result({"resultType": "input_required", "inputRequests": {"q": question}})
            tools[:] = [MARKED]
        elif "mcp-param-region" not in asked.headers:
            await reply.error(400, HEADER_MISMATCH)
        else:
            await reply.result({"resultType": "complete", "content": []})

    def on_elicit(request: Any) -> dict[str, Any]:
        asked_for.append(request.message)
        return {}

    tools = [PLAIN]

    async with by_hand(modern(lambda: tools, call)) as server, connect(server.url, on_elicit=on_elicit) as client:
        await client.list_tools()
        await client.call_tool("go", {"region": "eu"})
        assert asked_for == ["Sure?"]
        assert server.order.count("tools/call") == 3


def test_a_tool_that_cannot_be_used_is_left_out_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with by_hand(modern(lambda: [PLAIN, WRONG])) as server, connect(server.url) as client:
            for _ in range(3):
                assert [each.name for each in await client.list_tools()] == ["go"]
            await client.list_tools(meta={"x": 1})
            assert server.order.count("tools/list") == 2

    with caplog.at_level(logging.DEBUG, "mcplumb.client"):
        run(main())
    said = [record for record in caplog.records if "is left out" in record.getMessage()]
    assert [record.levelno for record in said if "'wrong'" in record.getMessage()] == [logging.WARNING]


def test_a_legacy_server_may_mark_its_arguments_as_it_likes(caplog: pytest.LogCaptureFixture) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "tools/list":
            await reply.result({"tools": [WRONG]})
        elif asked.rpc == "tools/call":
            await reply.result({"content": []})
        else:
            await legacy(asked, reply)

    async def main() -> None:
        async with by_hand(script) as server, connect(server.url, revisions=[LEGACY]) as client:
            assert [each.name for each in await client.list_tools()] == ["wrong"]
            await client.call_tool("wrong", {"region": "eu"})

    run(main())
    assert "left out" not in caplog.text
