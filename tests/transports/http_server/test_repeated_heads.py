"""Requests whose heads were accepted before: they are served as all others, but without a task and ASGI events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httptools
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mcplumb._fast
from mcplumb import Context, Server
from mcplumb.transports.connection import Connection, Peer
from mcplumb.transports.http_server.asgi_request import HttpRequest
from mcplumb.transports.http_server.repeated_heads import CheckedHead, RepeatedHeads
from tests.client.peers import skip
from tests.kit.loop import PATIENCE, turns
from tests.kit.results import text_of
from tests.transports.http_server.callers import written_call
from tests.transports.http_server.visits import Answer, Site, serving
from tests.transports.http_server.workshop import Workshop

LISTENS = "Accept: application/json, text/event-stream\r\n"
#: Asks for log messages.
TALKS: dict[str, Any] = {"io.modelcontextprotocol/logLevel": "debug"}


@pytest.fixture(autouse=True)
def _is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is about it, so it is on even if all tests run without."""
    monkeypatch.setattr(mcplumb._fast, "_switched_off", ())


class _Wire:
    """A connection to a site."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def leave(self) -> None:
        self._writer.transport.abort()

    async def answer(self) -> Answer:
        return await Answer(self._reader, self._writer).head()

    async def call(self, tool: str, *, meta: Any = None, extra: str = "", **arguments: Any) -> Answer:
        self.send(written_call(tool, meta=meta, extra=extra, **arguments))
        return await self.answer()


@asynccontextmanager
async def _wire(site: Site) -> AsyncIterator[_Wire]:
    wire = _Wire(*await asyncio.open_connection(site.address.host, site.address.port))
    try:
        yield wire
    finally:
        wire.leave()


class _Tasks:
    """Counts the connections that are served by tasks."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        serve = server.active_sessions.serve

        async def counted(connection: Connection, peer: Peer, **options: Any) -> None:
            self.count += 1
            await serve(connection, peer, **options)

        monkeypatch.setattr(server.active_sessions, "serve", counted)


@contextmanager
def _parsed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """What the application gets as ASGI requests."""
    found: list[bytes] = []
    from mcplumb.transports.http_server.asgi_app import HttpApp

    answer = HttpApp._answer

    async def noted(self: HttpApp, request: Any, serving: Any = None) -> None:
        found.append(request.header("mcp-name"))
        await answer(self, request, serving)

    with monkeypatch.context() as patch:
        patch.setattr(HttpApp, "_answer", noted)
        yield found


async def test_only_the_first_of_equal_heads_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Workshop()
    tasks = _Tasks(shop.server, monkeypatch)
    async with serving(shop.server) as site, _wire(site) as wire, _wire(site) as other:
        with _parsed(monkeypatch) as parsed:
            for n in (1, 2, 30000, -4):  # whose bodies differ in length
                answer = await wire.call("double", n=n)
                assert answer.status == 200
                assert answer.headers["content-type"] == "application/json"
                assert text_of(await answer.json()) == str(2 * n)
            assert text_of(await (await other.call("double", n=7)).json()) == "14"
            assert parsed == ["double"]
    assert tasks.count == 0


async def test_all_of_this_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcplumb._fast, "_switched_off", ("taskless_posts",))
    shop = Workshop()
    tasks = _Tasks(shop.server, monkeypatch)
    async with serving(shop.server) as site, _wire(site) as wire:
        with _parsed(monkeypatch) as parsed:
            for n in (1, 2, 3):
                assert text_of(await (await wire.call("double", n=n)).json()) == str(2 * n)
            assert parsed == 3 * ["double"]
        assert shop.server.active_sessions._spare == []
    assert tasks.count == 3


async def test_each_request_gets_its_own_answer() -> None:
    shop = Workshop()
    async with serving(shop.server) as site:

        async def call_often(first: int) -> None:
            async with _wire(site) as wire:
                for n in range(first, first + 20):
                    assert text_of(await (await wire.call("double", n=n)).json()) == str(2 * n)

        await asyncio.gather(*(call_often(1000 * each) for each in range(10)))


async def test_one_that_waits_is_answered_when_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Workshop()
    shop.gates["open"].set()
    tasks = _Tasks(shop.server, monkeypatch)
    async with serving(shop.server) as site, _wire(site) as wire:
        await (await wire.call("wait", gate="open")).json()
        wire.send(written_call("wait", gate="late"))
        await shop.at("late")
        shop.gates["late"].set()
        assert text_of(await (await wire.answer()).json()) == "late is open"
        assert text_of(await (await wire.call("wait", gate="open")).json()) == "open is open"
    assert tasks.count == 0


async def test_while_the_server_drains_each_connection_ends_with_its_next_answer() -> None:
    shop = Workshop()
    shop.gates["open"].set()
    async with serving(shop.server) as site, _wire(site) as waiting, _wire(site) as idle:
        for wire in (waiting, idle):
            answer = await wire.call("wait", gate="open")
            assert "connection" not in answer.headers
            await answer.json()
        waiting.send(written_call("wait", gate="late"))
        await shop.at("late")
        site.listener.drain()
        shop.gates["late"].set()
        for answer in (await waiting.answer(), await idle.call("wait", gate="open")):
            assert answer.headers["connection"] == "close"
            assert text_of(await answer.json()).endswith("is open")


async def test_who_leaves_cancels_what_it_waits_for() -> None:
    shop = Workshop()
    shop.gates["open"].set()
    async with serving(shop.server) as site, _wire(site) as wire:
        await (await wire.call("wait", gate="open")).json()
        wire.send(written_call("wait", gate="left"))
        await shop.at("left")
        wire.leave()
        async with asyncio.timeout(PATIENCE):
            await shop.cancelled["left"].wait()
        # And whoever comes next is not affected.
        async with _wire(site) as other:
            assert text_of(await (await other.call("wait", gate="open")).json()) == "open is open"


async def test_a_request_that_follows_one_that_waits_is_answered_after_it() -> None:
    shop = Workshop()
    shop.gates["open"].set()
    async with serving(shop.server) as site, _wire(site) as wire:
        await (await wire.call("wait", gate="open")).json()
        await (await wire.call("double", n=1)).json()
        wire.send(written_call("wait", gate="first"))
        await shop.at("first")
        wire.send(written_call("double", n=2) + written_call("double", n=3))
        shop.gates["first"].set()
        answers = [text_of(await (await wire.answer()).json()) for _ in range(3)]
        assert answers == ["first is open", "4", "6"]
        assert text_of(await (await wire.call("double", n=4)).json()) == "8"


@pytest.mark.parametrize("parts", [2, 5])
async def test_a_request_in_pieces_is_parsed(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Workshop()
    async with serving(shop.server) as site, _wire(site) as wire:
        await (await wire.call("double", n=1)).json()
        whole = written_call("double", n=5)
        size = len(whole) // parts + 1
        with _parsed(monkeypatch) as parsed:
            for start in range(0, len(whole), size):
                wire.send(whole[start : start + size])
                await asyncio.sleep(0.01)
            assert text_of(await (await wire.answer()).json()) == "10"
            assert parsed == ["double"]
        assert text_of(await (await wire.call("double", n=6)).json()) == "12"


async def test_what_a_tool_says_first_makes_the_response_a_stream() -> None:
    shop = Workshop()
    async with serving(shop.server) as site, _wire(site) as wire:
        for _ in range(3):
            answer = await wire.call("chat", meta=TALKS, extra=LISTENS)
            said, last = await answer.messages()
            assert said["params"]["data"] == "hello"
            assert text_of(last) == "hello, done"
            # Nothing of that stays.
            assert text_of(await (await wire.call("double", extra=LISTENS, n=1)).json()) == "2"


async def test_what_a_tool_says_later_makes_the_response_a_stream() -> None:
    shop = Workshop()
    async with serving(shop.server) as site, _wire(site) as wire:
        shop.gates["open"].set()
        await (await wire.call("tell", extra=LISTENS, gate="open")).json()
        wire.send(written_call("tell", meta=TALKS, extra=LISTENS, gate="late"))
        await shop.at("late")
        shop.gates["late"].set()
        *said, last = await (await wire.answer()).messages()
        assert [each["params"]["data"] for each in said] == ["before late", "behind late"]
        assert text_of(last) == "late is open"


async def test_a_plain_function_is_answered_from_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("s")
    tasks = _Tasks(server, monkeypatch)

    @server.tool
    def half(n: int) -> int:
        return n // 2

    async with serving(server) as site, _wire(site) as wire:
        for n in (2, 4, 6):
            assert text_of(await (await wire.call("half", n=n)).json()) == str(n // 2)
    assert tasks.count == 0


async def test_a_context_that_is_kept_stays_that_of_its_request() -> None:
    server = Server("s")
    kept: list[Context] = []

    @server.tool
    async def keep(ctx: Context) -> str:
        kept.append(ctx)
        return "kept"

    async with serving(server) as site, _wire(site) as wire:
        await (await wire.call("keep", extra="X-Who: Ann\r\n")).json()
        for who in ("Ann", "Bob", "Bob"):
            await (await wire.call("keep", extra=f"X-Who: {who}\r\n")).json()
    assert [(ctx.headers or {})["x-who"] for ctx in kept] == ["Ann", "Ann", "Bob", "Bob"]


async def test_a_body_that_says_something_else_is_refused() -> None:
    shop = Workshop()
    async with serving(shop.server) as site, _wire(site) as wire:
        whole = written_call("double", n=1)
        await (await wire.call("double", n=1)).json()
        for there, instead in (
            (b'"double"', b'"triple"'),
            (b"tools/call", b"tools/list"),
            (b"2026-07-28", b"2026-07-29"),
        ):
            head, _, body = whole.partition(b"\r\n\r\n")
            wire.send(head + b"\r\n\r\n" + body.replace(there, instead))
            answer = await wire.answer()
            assert answer.status == 400
            assert "Header mismatch" in (await answer.json())["error"]["message"]
        head, _, body = whole.partition(b"\r\n\r\n")
        wire.send(head + b"\r\n\r\n" + b"x" * len(body))
        answer = await wire.answer()
        assert (answer.status, (await answer.json())["error"]["code"]) == (400, -32700)
        assert text_of(await (await wire.call("double", n=2)).json()) == "4"


async def test_errors_have_their_status() -> None:
    shop = Workshop()
    async with serving(shop.server) as site, _wire(site) as wire:
        await (await wire.call("double", n=1)).json()
        for _ in range(2):
            answer = await wire.call("unknown")
            assert (answer.status, (await answer.json())["error"]["code"]) == (400, -32602)
        assert (await (await wire.call("double", n="x")).json())["result"]["isError"]


async def test_pages_that_may_use_the_server_may_read_all_answers() -> None:
    shop = Workshop()
    page = "Origin: https://page.example\r\n"
    async with serving(shop.server, origins=("https://page.example",)) as site, _wire(site) as wire:
        for n in (1, 2):
            answer = await wire.call("double", extra=page, n=n)
            assert answer.headers["access-control-allow-origin"] == "https://page.example"
            assert text_of(await answer.json()) == str(2 * n)
        assert (await wire.call("double", extra="Origin: https://evil.example\r\n", n=3)).status == 403


async def test_tokens_are_checked_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Workshop()
    async with serving(shop.server, tokens=("secret",)) as site, _wire(site) as wire:
        with _parsed(monkeypatch) as parsed:
            for _ in range(2):
                answer = await wire.call("double", extra="Authorization: Bearer secret\r\n", n=1)
                assert text_of(await answer.json()) == "2"
            assert len(parsed) == 2
        assert (await wire.call("double", n=1)).status == 401


async def test_a_new_header_parameter_counts_at_once() -> None:
    shop = Workshop()
    async with serving(shop.server) as site, _wire(site) as wire:
        await (await wire.call("double", n=1)).json()
        shop.server.remove_tool("double")
        schema = {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}

        async def double(given: dict[str, Any]) -> int:
            return 2 * int(given["n"])

        shop.server.add_tool(double, input_schema=schema)
        answer = await wire.call("double", n=1)
        assert (answer.status, "Mcp-Param-N is missing" in await _message(answer)) == (400, True)


async def _message(answer: Answer) -> str:
    message: str = (await answer.json())["error"]["message"]
    return message


async def test_all_are_logged_if_some_are(caplog: pytest.LogCaptureFixture) -> None:
    shop = Workshop()
    with caplog.at_level(logging.DEBUG, "mcplumb.http.access"):
        async with serving(shop.server) as site, _wire(site) as wire:
            for n in (1, 2, 3):
                await (await wire.call("double", n=n)).json()
    assert caplog.text.count("tools/call double 200") == 3


async def test_a_server_that_stops_finishes_what_waits() -> None:
    shop = Workshop()
    shop.gates["open"].set()
    async with serving(shop.server) as site, _wire(site) as wire:
        await (await wire.call("wait", gate="open")).json()
        wire.send(written_call("wait", gate="last"))
        await shop.at("last")
        closing = asyncio.create_task(site.app.close())
        await asyncio.sleep(0.01)
        assert not closing.done()
        shop.gates["last"].set()
        assert text_of(await (await wire.answer()).json()) == "last is open"
        await closing


async def test_a_server_that_is_stopped_answers_what_waits_with_an_error() -> None:
    shop = Workshop(stop_within=0.1)
    shop.gates["open"].set()
    async with serving(shop.server) as site, _wire(site) as wire:
        await (await wire.call("wait", gate="open")).json()
        wire.send(written_call("wait", gate="never"))
        await shop.at("never")
        assert shop.server.stop()
        answer = await wire.answer()
        assert "stopping" in (await answer.json())["error"]["message"]
        await shop.cancelled["never"].wait()


async def test_an_idle_connection_is_closed_in_time() -> None:
    shop = Workshop()
    async with serving(shop.server, next_within=60.0) as site, _wire(site) as wire:
        for n in (1, 2, 3):
            assert text_of(await (await wire.call("double", n=n)).json()) == str(2 * n)
            skip(40)  # less than it may be idle, and all together more
            await turns(5)
        skip(30)
        async with asyncio.timeout(PATIENCE):
            assert await wire._reader.read() == b""


async def test_sessions_are_used_again() -> None:
    shop = Workshop()
    made: list[object] = []
    async with serving(shop.server) as site, _wire(site) as wire:
        await (await wire.call("double", n=1)).json()
        usual = shop.server.active_sessions.new_session
        assert usual is not None

        def noted(*given: Any) -> Any:
            made.append(given)
            return usual(*given)

        shop.server.active_sessions.new_session = noted
        for n in range(10):
            await (await wire.call("double", n=n)).json()
    assert made == []


async def test_changes_reach_a_subscription_beside_them() -> None:
    shop = Workshop()
    async with serving(shop.server) as site, _wire(site) as wire, _wire(site) as listener:
        params = {"notifications": {"toolsListChanged": True}}
        whole = written_call("double", n=1)
        meta = msgspec.json.decode(whole.partition(b"\r\n\r\n")[2])["params"]["_meta"]
        body = msgspec.json.encode(
            {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {**params, "_meta": meta}}
        )
        head = whole.partition(b"Mcp-Method")[0] + b"Mcp-Method: subscriptions/listen\r\n" + LISTENS.encode()
        listener.send(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        stream = await listener.answer()
        await stream.message()
        for n in range(3):
            await (await wire.call("double", n=n)).json()
        shop.server.remove_tool("chat")
        assert (await stream.message())["method"] == "notifications/tools/list_changed"


# What is remembered


class _Parsed:
    """One request, as the HTTP parser of the server understands it."""

    def __init__(self, data: bytes) -> None:
        self.url, self.body, self.count = b"", b"", 0
        self.headers: list[tuple[bytes, bytes]] = []
        parser = httptools.HttpRequestParser(self)
        parser.feed_data(data)
        self.method, self.version = parser.get_method(), parser.get_http_version()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.count += 1

    @property
    def scope(self) -> dict[str, Any]:
        return {"headers": self.headers, "http_version": self.version}

    @property
    def meaning(self) -> Any:
        left_out = (b"content-length", b"mcp-session-id")
        others = sorted(header for header in self.headers if header[0] not in left_out)
        return self.method, self.url, self.version, others

    @property
    def sessions(self) -> list[bytes]:
        return [value for name, value in self.headers if name == b"mcp-session-id"]

    @property
    def repeated(self) -> Any:
        return None if self.sessions else self


_LINES = (
    b"Host: a",
    b"X: 1",
    b"X: 2",
    b" folded",
    b"\tfolded",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Transfer-Encoding: chunked",
    b"Upgrade: h2c",
    b"Expect: 100-continue",
    b"Authorization: Bearer x",
    b"Y: a\nContent-Length: 4",
    b"Content-Length: 3",
    b"Content-Length: 03",
    b"Content-Length:3",
    b"content-length: 3",
    b"Content-Length: 3 ",
    b"Content-Length: +3",
    b"Content-Length: 3, 3",
    b"CONTENT-LENGTH: 3",
    b"Mcp-Session-Id: a1",
    b"mcp-session-id: b2",
    b"MCP-SESSION-ID: c3",
    b"Mcp-Session-Id:d4",
    b"Mcp-Session-Id: e5 ",
    b"Mcp-Session-Id: f6, g7",
    b"Mcp-Session-Id: h8\nContent-Length: 4",
    b"Mcp-Session-Id: ",
)
_STARTS = (b"POST /mcp HTTP/1.1", b"POST /mcp HTTP/1.0", b"GET /mcp HTTP/1.1", b"\r\nPOST /mcp HTTP/1.1")
_heads = st.builds(
    lambda start, lines, body: b"\r\n".join([start, *lines]) + b"\r\n\r\n" + body,
    st.sampled_from(_STARTS),
    st.lists(st.sampled_from(_LINES), max_size=6),
    st.sampled_from((b"", b"abc", b"abcd", b"abcPOST / HTTP/1.1\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n")),
)


@given(learned=st.lists(_heads, max_size=6), data=_heads)
@example(
    learned=[b"POST /mcp HTTP/1.1\r\nMcp-Session-Id: a1\r\nX: 1\r\nContent-Length: 3\r\n\r\nabc"],
    data=b"POST /mcp HTTP/1.1\r\nX: 1\r\nContent-Length: 4\r\nmcp-session-id: b2\r\n\r\nabcd",
)
@example(
    learned=[b"POST /mcp HTTP/1.1\r\nMcp-Session-Id: a1\r\nContent-Length: 3\r\n\r\nabc"],
    data=b"POST /mcp HTTP/1.1\r\nMcp-Session-Id: h8\nContent-Length: 4\r\nContent-Length: 3\r\n\r\nabc",
)
def test_a_head_that_is_found_means_what_the_parser_says(learned: list[bytes], data: bytes) -> None:
    known: list[_Parsed] = []

    def check(scope: Any) -> CheckedHead:
        head: Any = next(each for each in known if each.headers is scope["headers"])
        return head  # type: ignore[no-any-return]

    heads = RepeatedHeads(check)
    for each in (*learned, data):
        try:
            known.append(parsed := _Parsed(each))
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            continue
        if parsed.count == 1:
            heads.learn(each, parsed.scope)
    found = heads.find(data)
    if found is not None:
        parsed = _Parsed(data)
        head: Any = found[0]
        assert parsed.count == 1
        assert head.meaning == parsed.meaning
        assert found[1] == parsed.body
        assert parsed.sessions == ([found[2]] if found[2] else [])


async def _nothing(*_: object) -> Any:
    """Stand in for ASGI events that nobody sends."""


def test_no_more_heads_are_kept_than_allowed() -> None:
    made: list[object] = []

    def check(scope: Any) -> Any:
        made.append(None)
        repeated: Any = None if b"mcp-session-id" in dict(scope["headers"]) else object()
        return CheckedHead(HttpRequest({**scope, "method": "POST", "path": "/"}, _nothing, _nothing), repeated)

    heads = RepeatedHeads(check)
    for number in range(1000):
        for session in (b"", b"Mcp-Session-Id: %d\r\n" % number):
            data = b"POST / HTTP/1.1\r\n%bX: %d\r\nContent-Length: 0\r\n\r\n" % (session, number)
            heads.learn(data, _Parsed(data).scope)
            found = heads.find(data)
            assert found is not None
            assert found[2] == (b"%d" % number if session else b"")
    assert len(made) == 2000
    assert len(heads._heads) <= 256
    assert len(heads._session_heads) <= 256
    long = b"POST / HTTP/1.1\r\nX: %b\r\nContent-Length: 0\r\n\r\n" % (b"x" * 5000)
    heads.learn(long, _Parsed(long).scope)
    assert heads.find(long) is None


def test_only_the_number_of_a_content_length_is_left_out() -> None:
    # A parser that is more lenient than ours ends this head after X, and foo is in the body.
    data = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\nX: y\n\n123456789012\r\nfoo\r\n\r\n"
    headers = [(b"host", b"a"), (b"content-length", b"20"), (b"x", b"y")]
    made: list[object] = []
    heads = RepeatedHeads(made.append)
    heads.learn(data, {"headers": headers, "http_version": "1.1"})
    assert made == []


def test_the_head_of_one_request_is_not_taken_for_that_of_the_next() -> None:
    first = b"POST / HTTP/1.1\r\nHost: evil\r\nContent-Length: 2\r\n\r\n{}"
    second = b"POST / HTTP/1.1\r\nHost: good\r\nContent-Length: 2\r\n\r\n{}"
    made: list[object] = []
    heads = RepeatedHeads(made.append)
    heads.learn(first + second, _Parsed(second).scope)
    assert made == []
