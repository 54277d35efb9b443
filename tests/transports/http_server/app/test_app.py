"""The application: what each HTTP request gets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from mcplumb import HttpOptions, Server, UsageError
from mcplumb.limits import Limits
from mcplumb.revisions import LATEST, LATEST_LEGACY, LEGACY
from mcplumb.transports.connection import Connection, Peer
from mcplumb.wire.messages import Result
from tests.transports.ends import Recorder
from tests.transports.http_server.callers import CAPABILITIES, META, VERSION, Caller, error_of
from tests.transports.http_server.visits import Visitor, serving
from tests.transports.http_server.workshop import Workshop

INITIALIZE = {"protocolVersion": LATEST_LEGACY.name, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def _body(method: str, params: Any, request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


# Where


async def test_other_paths_are_not_found_and_told_where_to_go() -> None:
    async with serving(Server("s")) as site:
        answer = await site.ask("POST", "/", {})
        assert answer.status == 404
        assert answer.headers["content-type"].startswith("text/plain")
        assert b"/mcp" in await answer.body()
        assert (await site.ask("POST", "/mcpx", {})).status == 404
        assert (await Caller(site, "/mcp/").call("x")).status != 404


async def test_the_path_can_be_chosen() -> None:
    for path in ("/", "/a/b"):
        async with serving(Workshop().server, path=path) as site:
            assert (await Caller(site, path).call("double", n=1)).status == 200
            assert (await Caller(site, "/mcp").call("double", n=1)).status == 404


async def test_http_sse_has_places_of_its_own_unless_it_is_switched_off() -> None:
    async with serving(Server("s")) as site:
        assert (await site.ask("GET", "/sse", {"Accept": "text/event-stream"})).is_stream
        assert (await site.ask("POST", "/sse", {})).status == 405
        assert (await site.ask("POST", "/messages", {"Content-Type": "application/json"}, b"{}")).status in (
            400,
            404,
        )
    async with serving(Server("s"), sse=False) as site:
        assert (await site.ask("GET", "/sse", {"Accept": "text/event-stream"})).status == 404
    async with serving(Server("s", revisions=[LATEST.name])) as site:
        assert (await site.ask("GET", "/sse", {"Accept": "text/event-stream"})).status == 404


# How


@pytest.mark.req("HTP-5")
async def test_a_modern_server_takes_nothing_but_posts() -> None:
    async with serving(Server("s", revisions=[LATEST.name])) as site:
        for method in ("GET", "DELETE", "PUT", "HEAD"):
            answer = await site.ask(method, "/mcp", {"Accept": "text/event-stream"})
            assert answer.status == 405
            assert answer.headers["allow"] == "POST, OPTIONS"
    async with serving(Server("s")) as site:
        answer = await site.ask("PUT", "/mcp", {})
        assert answer.status == 405
        assert answer.headers["allow"] == "GET, POST, DELETE, OPTIONS"


async def test_what_is_sent_and_what_is_read_must_be_json() -> None:
    async with serving(Workshop().server) as site:
        for media_type, status in (
            ("text/plain", 415),
            ("application/x-www-form-urlencoded", 415),
            ("application/json; charset=utf-8", 200),
            ("Application/JSON", 200),
            ("", 415),
            (None, 415),
        ):
            answer = await Caller(site).call("double", n=1, headers={"Content-Type": media_type})
            assert answer.status == status
        for accept, status in (
            ("text/html", 406),
            ("text/event-stream", 406),
            ("application/json", 200),
            ("*/*", 200),
            ("text/html, Application/*;q=0.8", 200),
            (None, 200),
        ):
            assert (await Caller(site).call("double", n=1, headers={"Accept": accept})).status == status


@pytest.mark.req("HTP-4")
async def test_a_body_has_a_cap() -> None:
    async with serving(Server("s", limits=Limits(max_line=1000))) as site:
        answer = await Caller(site).post(b'{"a": "' + b"x" * 1000 + b'"}')
        assert await error_of(answer) == (413, -32600, None)


# What


@pytest.mark.req("HTP-5")
async def test_what_is_no_message_is_refused() -> None:
    async with serving(Server("s")) as site:
        post = Caller(site).post
        assert await error_of(await post(b"")) == (400, -32700, None)
        assert await error_of(await post(b"{")) == (400, -32700, None)
        assert await error_of(await post({"jsonrpc": "2.0", "id": 3})) == (400, -32600, 3)
        assert await error_of(await post([_body("ping", {})])) == (400, -32600, None)
        assert await error_of(await post({"jsonrpc": "2.0", "id": 3, "result": {}})) == (400, -32600, None)


@pytest.mark.req("HTP-5")
async def test_bad_metadata_is_refused_with_the_id_of_the_request() -> None:
    async with serving(Server("s")) as site:
        post = Caller(site, Mcp_Method="server/discover").post
        bad: list[Any] = [{}, {"_meta": {CAPABILITIES: {}}}, {"_meta": {VERSION: LATEST.name}}]
        for params in bad:
            assert await error_of(await post(_body("server/discover", params, "a"))) == (400, -32602, "a")
        answer = await post(_body("server/discover", {"_meta": META}))
        assert answer.status == 200


@pytest.mark.req("HTP-5")
async def test_an_unknown_version_is_told_the_known_ones() -> None:
    async with serving(Server("s")) as site:
        version = "v999.0.0"
        answer = await Caller(site).request(
            "server/discover", meta={VERSION: version}, headers={"MCP-Protocol-Version": version}
        )
        assert answer.status == 400
        error = (await answer.json())["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": [LATEST.name], "requested": version}


@pytest.mark.req("HTP-2")
async def test_headers_must_say_what_the_body_says() -> None:
    async with serving(Workshop().server) as site:
        caller = Caller(site)
        for headers in (
            {"Mcp-Method": "prompts/list"},
            {"Mcp-Method": None},
            {"Mcp-Method": "TOOLS/CALL"},
            {"Mcp-Name": "other"},
            {"Mcp-Name": None},
            {"Mcp-Name": "=?base64?!?="},
            {"MCP-Protocol-Version": None},
            {"MCP-Protocol-Version": LATEST_LEGACY.name},
            {"MCP-Protocol-Version": "v1"},
        ):
            assert await error_of(await caller.call("double", n=1, headers=headers)) == (400, -32020, 1)
        answer = await caller.call("double", n=1, headers={"Mcp-Name": "=?base64?ZG91Ymxl?="})
        assert answer.status == 200
        answer = await caller.call("double", n=1, headers={"Mcp-Name": "  double \t"})
        assert answer.status == 200
        answer = await caller.call("double", n=1, meta={VERSION: "v999.0.0"})
        assert await error_of(answer) == (400, -32020, 1)


@pytest.mark.req("HTP-5")
async def test_methods_of_sessions_do_not_exist_for_a_modern_client() -> None:
    for revisions in (None, [LATEST.name]):
        async with serving(Server("s", revisions=revisions)) as site:
            for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "unknown/method"):
                answer = await Caller(site).request(method, INITIALIZE)
                assert await error_of(answer) == (404, -32601, 1), method


# In which era


async def test_both_eras_are_at_the_same_place() -> None:
    async with serving(Workshop().server) as site:
        assert (await Caller(site).call("double", n=1)).status == 200
        visitor = Visitor(site)
        assert (await visitor.open())["protocolVersion"] == LATEST_LEGACY.name
        assert (await visitor.call("double", n=1)).status == 200
        assert (await visitor.listen()).is_stream
        assert (await visitor.delete()).status == 204


async def test_a_request_that_says_nothing_of_itself_is_an_old_one() -> None:
    async with serving(Server("s")) as site:
        vague: list[Any] = [None, {}, {"_meta": {}}, {"_meta": {"progressToken": 1}}]
        for params in vague:
            answer = await Visitor(site).request("tools/list", params)
            assert answer.status == 400
            assert "Mcp-Session-Id" in (await answer.json())["error"]["message"]
        assert (await Visitor(site).request("ping", {"_meta": {VERSION: 1}})).status == 400


async def test_a_modern_server_tells_an_old_client_what_it_speaks() -> None:
    async with serving(Server("s", revisions=[LATEST.name])) as site:
        answer = await Visitor(site).initialize()
        assert answer.status == 400
        message = await answer.json()
        assert message["id"] == 1
        assert message["error"]["code"] == -32022
        assert message["error"]["data"]["supported"] == [LATEST.name]
        assert LATEST.name in message["error"]["message"]
        answer = await Visitor(site).request("tools/list")
        assert await error_of(answer) == (400, -32020, 1)


async def test_an_old_server_takes_nobody_for_modern() -> None:
    async with serving(Server("s", revisions=[each.name for each in LEGACY])) as site:
        answer = await Caller(site).request("server/discover")
        assert answer.status == 400
        assert (await answer.json())["error"]["code"] not in (-32020, -32022)
        assert (await Visitor(site).initialize()).status == 200


# The rest


async def test_what_comes_in_is_shown() -> None:
    server = Workshop().server
    shown: list[tuple[str, bytes]] = []
    app = server.asgi(trace=lambda way, line: shown.append((way, line)))
    await app.open()
    await app.open()
    sent = await _ask(app, "/mcp", _written("server/discover"))
    assert sent[0]["status"] == 200
    assert [way for way, _ in shown] == ["in", "out"]
    assert shown[0][1] == _written("server/discover")
    await app.close()


def test_who_fails_to_serve_is_an_error_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(connection: Connection, peer: Peer) -> None:
        raise ZeroDivisionError

    async def stop(connection: Connection, peer: Peer) -> None:
        connection.abort()

    async def fail_late(connection: Connection, peer: Peer) -> None:
        await answer(connection)
        raise ZeroDivisionError

    async def lose(connection: Connection, peer: Peer) -> None:
        await answer(connection)
        raise BrokenPipeError

    async def answer(connection: Connection) -> None:
        connection.start(Recorder())
        connection.send(Result(1, {}))
        await connection.close()

    async def main() -> None:
        for serve, status in ((fail, 500), (stop, 503), (fail_late, 200), (lose, 200)):
            app = Server("s").asgi(serve=serve)
            sent = await _ask(app, "/mcp", _written("server/discover"))
            assert sent[0]["status"] == status
            await app.close()

    asyncio.run(main())
    assert [record.exc_info is not None for record in caplog.records] == [True, True]


async def test_a_client_that_leaves_in_the_middle_of_its_body_gets_nothing() -> None:
    app = Server("s").asgi()
    assert await _ask(app, "/mcp", None) == []
    await app.close()


async def test_nothing_but_http_is_served() -> None:
    async def nothing(*_: object) -> Any:
        raise AssertionError

    with pytest.raises(UsageError, match="websocket"):
        await Server("s").asgi()({"type": "websocket"}, nothing, nothing)


def test_the_hosts_lifespan_is_the_servers(caplog: pytest.LogCaptureFixture) -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        steps.append("begin")
        yield
        steps.append("end")

    async def main() -> None:
        server = Server("s", lifespan=lifespan)
        app = server.asgi()
        for _ in range(2):
            events: asyncio.Queue[Any] = asyncio.Queue()
            said: asyncio.Queue[Any] = asyncio.Queue()
            living = asyncio.create_task(app({"type": "lifespan"}, events.get, said.put))
            events.put_nowait({"type": "lifespan.startup"})
            assert await said.get() == {"type": "lifespan.startup.complete"}
            assert steps == ["begin"]
            for _ in range(2):
                assert (await _ask(app, "/mcp", _written("server/discover")))[0]["status"] == 200
            assert steps == ["begin"]
            events.put_nowait({"type": "lifespan.shutdown"})
            assert await said.get() == {"type": "lifespan.shutdown.complete"}
            await living
            assert steps == ["begin", "end"]
            steps.clear()

    asyncio.run(main())
    assert caplog.records == []


def test_a_lifespan_that_fails_is_told_to_the_host_and_to_clients(caplog: pytest.LogCaptureFixture) -> None:
    fails_at = "begin"

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        if fails_at == "begin":
            raise OSError("no database")
        yield
        raise OSError("no farewell")

    async def main() -> None:
        nonlocal fails_at
        app = Server("s", lifespan=lifespan).asgi()
        events: asyncio.Queue[Any] = asyncio.Queue()
        said: asyncio.Queue[Any] = asyncio.Queue()
        events.put_nowait({"type": "lifespan.startup"})
        await app({"type": "lifespan"}, events.get, said.put)
        assert (await said.get())["type"] == "lifespan.startup.failed"
        assert (await _ask(app, "/mcp", _written("server/discover")))[0]["status"] == 500
        fails_at = "end"
        assert (await _ask(app, "/mcp", _written("server/discover")))[0]["status"] == 200

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert "no database" in caplog.text


def test_without_a_lifespan_the_first_request_opens_what_is_held_until_the_end() -> None:
    steps: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        steps.append("begin")
        try:
            yield
        finally:
            steps.append("end")

    app = Server("s", lifespan=lifespan).asgi()

    async def main() -> None:
        assert steps == []
        for _ in range(3):
            assert (await _ask(app, "/mcp", _written("server/discover")))[0]["status"] == 200
        assert steps == ["begin"]

    for _ in range(2):
        asyncio.run(main())
        assert steps == ["begin", "end"]
        steps.clear()


async def test_when_it_is_closed_requests_are_refused() -> None:
    app = Server("s").asgi()
    await app.close()
    assert (await _ask(app, "/mcp", _written("server/discover")))[0]["status"] == 200
    await app.close()
    shop = Workshop()
    async with serving(shop.server) as site:
        answer = await Caller(site).begin_call("wait", gate="a")
        await shop.at("a")
        closing = asyncio.create_task(site.app.close())
        await asyncio.sleep(0)
        refused = await Caller(site).call("double", n=1)
        assert refused.status == 503
        assert refused.headers["retry-after"] == "1"
        shop.gates["a"].set()
        assert (await answer.head()).status == 200
        await closing
        await site.app.close()


def _written(method: str) -> bytes:
    return msgspec.json.encode(_body(method, {"_meta": META}))


async def _ask(app: Any, path: str, body: bytes | None, **headers: str) -> list[Any]:
    """Send a request through ASGI by hand; a body of None is one of which the rest never comes."""
    sent = []
    events: list[Any] = [{"type": "http.request", "body": body or b"{", "more_body": body is None}]

    async def receive() -> Any:
        return events.pop() if events else {"type": "http.disconnect"}

    async def send(event: Any) -> None:
        sent.append(event)

    fields = {
        "content-type": "application/json",
        "mcp-protocol-version": LATEST.name,
        "mcp-method": "server/discover",
        **headers,
    }
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
    }
    await app(scope, receive, send)
    return sent


def test_options_are_kept() -> None:
    options = HttpOptions(path="/x")
    assert Server("s").asgi(options).options is options
