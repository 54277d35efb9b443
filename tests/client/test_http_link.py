"""Clients over HTTP: the link by itself, and clients of real servers, ours and by hand."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcplumb import Client, ConnectError, Context, HttpError, RemoteError, RequestLost, Server, UsageError, connect
from mcplumb.client.http_link import HttpLink
from mcplumb.client.known_tools import ToolRegistry
from mcplumb.limits import DEFAULT_LIMITS
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.protocol.subscription_state import Change, Missed
from mcplumb.transports.address import HttpAddress
from mcplumb.types.tools import Tool, ToolAnnotations
from mcplumb.wire.messages import INVALID_PARAMS, Request
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import run
from tests.kit.ports import FreePort
from tests.kit.servers import serving
from tests.transports.http_client.raw import LEGACY, MODERN, Asked, RawServer, Reply, event, note

pytestmark = leaves_nothing


#: Tried again at once, and as often as it takes.
PATIENT = RestartPolicy(first_wait=0.01, max_wait=0.05, breaker_after=10_000)
ADDRESS = HttpAddress("http", "127.0.0.1", 1, "/mcp?key=secret")


def link(**options: Any) -> HttpLink:
    return HttpLink(ADDRESS, limits=DEFAULT_LIMITS, **options)


# --- The link ---


def test_what_it_says_of_itself() -> None:
    one = link()
    assert one.key == "http://127.0.0.1:1/mcp?key=secret"
    assert one.describe() == "The server is at http://127.0.0.1:1/mcp."
    assert (one.can_restart, one.mirrors, one.process) == (True, True, None)
    assert not one.may_be_silent
    assert link(http_sse=True).may_be_silent


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"headers": {"a b": "x"}}, "'a b' is not the name of an HTTP header."),
        ({"headers": {5: "x"}}, "'5' is not the name"),
        ({"headers": {"X-A": "secret\nX-B: 1"}}, "The value of the header X-A must be a string"),
        ({"headers": {"X-A": 5}}, "The value of the header X-A"),
        ({"headers": {"Content-Type": "x"}}, "The header Content-Type cannot be set"),
        ({"headers": {"mcp-session-id": "x"}}, "The header mcp-session-id cannot be set"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "A header is given twice"),
        ({"headers": {"authorization": "x"}, "token": "secret"}, "give only one of them"),
        ({"token": "secret word"}, "without spaces"),
        ({"token": ""}, "A token must be a string"),
        ({"token": "sécret"}, "A token must be a string"),
        ({"token": 5}, "A token must be a string"),
        ({"proxy": "secret"}, "proxy='http://host:port'"),
    ],
)
def test_what_cannot_be_sent_is_refused_without_repeating_it(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        link(**options)
    assert sentence in str(caught.value)
    assert "secret" not in str(caught.value)


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("mcplumb.transports.http_client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(UsageError, match=r"pip install 'mcplumb\[http\]'"):
        connect("http://127.0.0.1:1/mcp")
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "mcplumb.transports.http_client.connection_pool", raising=False)
    monkeypatch.setitem(sys.modules, "mcplumb.version", None)
    with pytest.raises(ModuleNotFoundError, match=r"mcplumb.version"):
        link()


def test_the_tool_registry_says_which_arguments_go_into_headers() -> None:
    one, registry = link(), ToolRegistry()
    call = Request(1, "tools/call", {"name": "weather"})
    assert one._params_of(call) is None
    one.use(registry)
    assert one._params_of(call) is None
    schema = {"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}}
    registry.learn([Tool("weather", schema)])
    found = one._params_of(call)
    assert found is not None
    assert [header.name for header in found.headers] == ["Mcp-Param-City"]
    assert one._params_of(Request(1, "prompts/get", {"name": "weather"})) is None


@pytest.mark.parametrize("params", [{}, {"name": []}, {"name": 3}])
async def test_a_call_of_no_tool_is_sent_for_the_server_to_refuse(params: dict[str, Any]) -> None:
    async with at_path(workshop()) as url, connect(url) as client:
        with pytest.raises(RemoteError, match=r"The params cannot be read") as caught:
            await client.request("tools/call", params)
        assert caught.value.code == INVALID_PARAMS


async def test_it_can_be_killed_before_it_is_opened_and_closed_twice() -> None:
    one = link()
    one.kill()
    assert str(await one.explain("call", "It ended.")) == "It ended. The server is at http://127.0.0.1:1/mcp."
    await one.open()
    await one.open()
    await one.close()
    await one.close()
    one.kill()


# --- Against our own server ---


def workshop() -> Server:
    server = Server("workshop", version="1")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def double(n: int) -> int:
        return 2 * n

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", {"type": "object", "properties": {"name": {"type": "string"}}})
        return str(answer.data)

    @server.tool
    async def work(ctx: Context) -> str:
        for step in range(3):
            ctx.progress(step, 3)
        return "done"

    return server


@asynccontextmanager
async def at_path(server: Server, port: int = 0, path: str = "/mcp") -> AsyncIterator[str]:
    async with serving(server, f"http://127.0.0.1:{port}/mcp") as (url,):
        yield url.removesuffix("/mcp") + path


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "modern": ("/mcp", {"revisions": [MODERN]}),
    "legacy": ("/mcp", {"revisions": [LEGACY]}),
    "sse": ("/sse", {"revisions": ["2024-11-05"]}),
    "sse from the start": ("/sse", {"http_sse": True}),
    "any": ("/mcp", {}),
}


@pytest.mark.req("HTP-1", "HTP-6", "HTP-7", "SSE-2")
@pytest.mark.parametrize("way", WAYS)
async def test_a_client_does_its_work_over_every_binding(way: str) -> None:
    path, options = WAYS[way]
    asked: list[str] = []

    def on_elicit(request: Any) -> dict[str, str]:
        asked.append(request.message)
        return {"name": "Ada"}

    progress: list[float] = []
    async with at_path(workshop(), path=path) as url:
        can_ask = "sse" not in way  # The first revision has no elicitation.
        async with connect(url, on_elicit=on_elicit, **options) as client:
            assert [tool.name for tool in await client.list_tools()] == ["double", "ask", "work"]
            results = await asyncio.gather(*(client.call_tool("double", {"n": n}) for n in range(150)))
            assert [result.content[0].text for result in results] == [str(2 * n) for n in range(150)]  # type: ignore[union-attr]
            await client.call_tool("work", on_progress=lambda now, *_: progress.append(now))
            assert progress == [0, 1, 2]
            if can_ask:
                assert "Ada" in str((await client.call_tool("ask")).content)
                assert asked == ["Who?"]


@pytest.mark.req("HTP-3")
@pytest.mark.parametrize("revision", [MODERN, LEGACY])
async def test_a_call_that_is_given_up_is_cancelled_on_the_server(revision: str) -> None:
    server = Server("slow")
    began, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @server.tool
    def ping() -> str:
        return "pong"

    async with at_path(server) as url, connect(url, revisions=[revision]) as client:
        call = asyncio.create_task(client.call_tool("wait"))
        await began.wait()
        call.cancel()
        await ended.wait()
        assert not (await client.call_tool("ping")).is_error


PROGRAM = """
import sys
from mcplumb import Server
from mcplumb.types.tools import ToolAnnotations

server = Server("worker")

@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def double(n: int) -> int:
    return 2 * n

server.run(f"http://127.0.0.1:{sys.argv[1]}/mcp", on_ready=lambda address: print(address, flush=True))
"""


async def start(port: int) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(port), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    line = await process.stdout.readline()
    assert line, "the server has not started"
    return process, line.decode().strip()


@pytest.mark.parametrize("revision", [MODERN, LEGACY])
def test_a_server_that_is_killed_and_started_again_under_load_loses_no_safe_call(
    revision: str, free_port: FreePort
) -> None:
    counts = [0] * 8
    stop, answered = asyncio.Event(), asyncio.Event()

    async def load(client: Client, number: int) -> None:
        try:
            while not stop.is_set():
                result = await client.call_tool("double", {"n": number}, timeout=60)
                assert not result.is_error
                counts[number] += 1
                answered.set()
        finally:
            answered.set()

    async def until_all_are_answered(loads: list[asyncio.Task[None]]) -> None:
        before = list(counts)
        while any(count < past + 2 for count, past in zip(counts, before, strict=True)):
            for task in loads:
                if task.done():
                    task.result()  # It has failed.
            answered.clear()
            await answered.wait()

    async def main() -> None:
        port = free_port()  # nobody else may take it while there is no server
        process, url = await start(port)
        client = await connect(url, revisions=[revision], restart=PATIENT)
        await client.list_tools()
        loads = [asyncio.create_task(load(client, number)) for number in range(len(counts))]
        for _ in range(3):
            await until_all_are_answered(loads)
            process.kill()
            await process.wait()
            process, _ = await start(port)
        await until_all_are_answered(loads)
        stop.set()
        await asyncio.gather(*loads)
        await client.close()
        process.terminate()
        await process.wait()

    run(main())


async def test_a_legacy_subscription_outlives_a_restart_of_the_server(free_port: FreePort) -> None:
    first, port = workshop(), free_port()
    async with at_path(first, port) as url:
        client = await connect(url, revisions=[LEGACY], restart=PATIENT)
        listening = client.listen(tools=True)
        changes = await listening.__aenter__()
        await client.list_tools()  # Now the server knows that the session is open.
        first.tool(name="another")(lambda: "x")
        assert await anext(changes) == Change("tools")
    second = workshop()
    async with at_path(second, port):
        news = asyncio.ensure_future(anext(changes))
        count = 0
        while not news.done():
            count += 1
            second.tool(name=f"new{count}")(lambda: "x")
            await asyncio.sleep(0.02)
        assert isinstance(news.result(), Change | Missed)
        await listening.__aexit__(None, None, None)
        await client.close()


@pytest.mark.req("HTP-1")
async def test_a_modern_subscription_is_opened_again_when_its_stream_breaks_off() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "server/discover":
            await reply.result({"supportedVersions": [MODERN], "capabilities": {"tools": {"listChanged": True}}})
            return
        meta = {"io.modelcontextprotocol/subscriptionId": asked.json["id"]}
        await reply.stream(
            event(
                note("notifications/subscriptions/acknowledged", _meta=meta, notifications={"toolsListChanged": True})
            ),
            event(note("notifications/tools/list_changed", _meta=meta)),
        )
        await (cut if asked.json["id"] == 2 else asyncio.Event()).wait()
        reply.reset()

    cut = asyncio.Event()

    async with (
        by_hand(script) as server,
        connect(server.url, restart=PATIENT) as client,
        client.listen(tools=True) as changes,
    ):
        assert await anext(changes) == Change("tools")
        cut.set()
        await server.until(lambda: len(server.of("subscriptions/listen")) == 2)
        assert isinstance(await anext(changes), Change | Missed)
        assert server.order.count("server/discover") == 1


# --- What goes wrong ---


async def test_a_server_that_does_not_run_is_told_at_once() -> None:
    with pytest.raises(ConnectError, match=r"http://127.0.0.1:1 cannot be reached: nothing listens there"):
        async with connect("http://127.0.0.1:1/mcp"):
            raise AssertionError


@asynccontextmanager
async def by_hand(script: Any) -> AsyncIterator[RawServer]:
    server = RawServer(script)
    await server.open()
    try:
        yield server
    finally:
        await server.close()


async def test_a_server_that_lets_nobody_in_says_what_it_wants() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.headers.get("authorization") != "Bearer right":
            await reply.send(401, WWW_Authenticate="Bearer")
        else:
            await reply.result({"supportedVersions": [MODERN], "capabilities": {"tools": {}}, "tools": []})

    async with by_hand(script) as server:
        with pytest.raises(ConnectError, match="token=") as caught:
            await connect(server.url, token="wrong-secret")
        assert isinstance(caught.value.__cause__, HttpError)
        assert caught.value.__cause__.www_authenticate == "Bearer"
        assert "secret" not in str(caught.value)
        assert len(server.asked) == 1
        async with connect(server.url, token="right", headers={"X-Team": "a"}) as client:
            assert await client.list_tools() == []
        assert {asked.headers.get("x-team") for asked in server.asked[1:]} == {"a"}


async def test_a_page_is_no_server() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.send(200, b"<html>", "text/html")

    async with by_hand(script) as server:
        with pytest.raises(ConnectError, match="of the type 'text/html', which does not answer"):
            await connect(server.url)


async def test_a_call_whose_response_breaks_off_is_lost_and_the_next_one_is_not() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "server/discover":
            await reply.result({"supportedVersions": [MODERN], "capabilities": {"tools": {}}})
        elif asked.rpc == "tools/list":
            await reply.result({"tools": []})
        else:
            reply.reset()

    async with by_hand(script) as server, connect(server.url) as client:
        with pytest.raises(RequestLost, match="whether it took effect is unknown"):
            await client.call_tool("write")
        assert await client.list_tools() == []
        assert server.order.count("tools/call") == 1
        assert server.order.count("server/discover") == 1


@pytest.mark.req("HTP-6")
async def test_a_session_that_is_over_is_opened_anew() -> None:
    sessions = iter(("s1", "s2"))
    good = "s1"

    async def script(asked: Asked, reply: Reply) -> None:
        nonlocal good
        if asked.rpc == "initialize":
            good = next(sessions)
            await reply.result({"protocolVersion": LEGACY, "capabilities": {"tools": {}}}, Mcp_Session_Id=good)
        elif asked.method != "POST":
            await reply.send(405)
        elif asked.headers["mcp-session-id"] != good:
            await reply.send(404)
        elif asked.rpc == "tools/call":
            good = "over"
            await reply.result({"content": []})
        else:
            await (reply.result({"tools": []}) if "id" in asked.json else reply.send(202))

    async with (
        by_hand(script) as server,
        connect(server.url, revisions=[LEGACY], restart=PATIENT, check_output=False) as client,
    ):
        await client.call_tool("x")
        assert await client.list_tools() == []
        assert server.order.count("initialize") == 2


@pytest.mark.parametrize("count", range(0, 60, 4))
async def test_a_connect_that_is_cancelled_at_any_time_leaves_nothing(count: int) -> None:
    async with at_path(workshop()) as url:

        async def visit() -> None:
            async with connect(url) as client:
                await client.list_tools()

        visiting = asyncio.create_task(visit())
        for _ in range(count):
            await asyncio.sleep(0)
        visiting.cancel()
        await asyncio.wait((visiting,))
