"""Modern POSTs get the same responses with all shortcuts as without any, whatever the bytes and however they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

import mcplumb._fast
from mcplumb import HttpOptions, Server
from mcplumb.revisions import LATEST
from mcplumb.transports.http_server.asgi_app import HttpApp
from tests.client.peers import LOOPS
from tests.kit.loop import PATIENCE, run
from tests.transports.http_server.byte_site import ByteSite, ElsewhereSite, settle
from tests.transports.http_server.callers import META
from tests.transports.http_server.taskless_posts import (
    chunks_of,
    is_refused_as_http,
    make_server,
    shortcuts_are_on,
)
from tests.transports.http_server.visits import serving

__all__ = ["shortcuts_are_on"]


async def _outputs(chunks: Sequence[bytes], *, pauses: bool, local: str) -> tuple[Any, Any, Any]:
    """What a server says without shortcuts, with them, and when it has seen the same before."""
    options = HttpOptions(origins=("https://page.example",), hosts=("name.example",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mcplumb._fast, "_switched_off", ("taskless_posts",))
        plain = make_server().asgi(options)
    quick = make_server().asgi(options)
    found = []
    for app, times in ((plain, 1), (quick, 2)):
        await app.open()
        site = ByteSite(app)
        if app is quick:
            for call in _CALLS:
                await site.visit([call], pauses=True, local=local)
        found += [await site.visit(chunks, pauses=pauses, local=local) for _ in range(times)]
        await app.close()
    return found[0], found[1], found[2]


# Requests

_HEAD = {
    "start": b"POST /mcp HTTP/1.1",
    "host": b"Host: localhost",
    "type": b"Content-Type: application/json",
    "version": b"MCP-Protocol-Version: %b" % LATEST.name.encode(),
    "method": b"Mcp-Method: tools/call",
    "name": b"Mcp-Name: double",
    "length": b"Content-Length: %d",
}
_OTHERS: dict[str, Sequence[bytes]] = {
    "start": (
        b"POST /mcp HTTP/1.0",
        b"POST /mcp/ HTTP/1.1",
        b"POST /mcp?x=1 HTTP/1.1",
        b"POST http://localhost/mcp HTTP/1.1",
        b"POST /other HTTP/1.1",
        b"GET /mcp HTTP/1.1",
        b"\r\nPOST /mcp HTTP/1.1",
        b" POST /mcp HTTP/1.1",
        b"POST  /mcp HTTP/1.1",
    ),
    "host": (
        b"Host: evil.example",
        b"Host: name.example",
        b"host: localhost",
        b"X: 1",
        b"Host: localhost\r\nHost: evil.example",
        b"Host: localhost\r\nOrigin: https://page.example",
        b"Host: localhost\r\nOrigin: https://evil.example",
        b"Host: localhost\nOrigin: https://evil.example",
        b"Host: local\x00host",
    ),
    "type": (
        b"Content-Type: text/plain",
        b"Content-Type: application/json; charset=utf-8",
        b"Content-Type: application/json\r\n folded",
        b"X: 1",
    ),
    "version": (b"MCP-Protocol-Version: 2025-11-25", b"MCP-Protocol-Version: 2030-01-01", b"X: 1"),
    "method": (b"Mcp-Method: tools/list", b"MCP-METHOD: tools/call", b"X: 1"),
    "name": (b"Mcp-Name: fail", b"Mcp-Name: seen", b"Mcp-Name: guarded", b"Mcp-Name: =?base64?ZG91Ymxl?=", b"X: 1"),
    "length": (
        b"content-length: %d",
        b"CONTENT-LENGTH: %d",
        b"Content-Length:%d",
        b"Content-Length: 0%d",
        b"Content-Length: +%d",
        b"Content-Length: 0x%d",
        b"Content-Length:  %d",
        b"Content-Length: %d ",
        b"Content-Length: %d\t",
        b"Content-Length: %d0",
        b"Content-Length: -%d",
        b"Content-Length: %d\r\nContent-Length: 2",
        b"Content-Length: 2\r\ncontent-length: %d",
        b"Content-Length: %d, 2",
        b"Content-Length : %d",
        b"Content-Length: %d\r\n folded",
        b"Content-Length: %d\r",
        b"Content-Length: %d\nX: 1",
        b"Content-Length: %d\r\nTransfer-Encoding: chunked",
        b"Content-Length: %d\r\nConnection: close",
        b"Content-Length: %d\r\nConnection: keep-alive",
        b"Content-Length: %d\r\nExpect: 100-continue",
        b"Content-Length: %d\r\nUpgrade: h2c\r\nConnection: Upgrade",
        b"Content-Length: %d\r\nAccept: text/plain",
        b"Content-Length: %d\r\nAccept: application/json, text/event-stream",
        b"Content-Length: %d\r\nAuthorization: Bearer x",
        b"Content-Length: %d\r\nX-Content-Length: 2",
        b"X: 1",
    ),
}


def _body(
    tool: str = "double", method: str = "tools/call", version: str = LATEST.name, n: Any = 2, request_id: int = 1
) -> bytes:
    arguments = {"n": n} if tool == "double" else {}
    meta = {**META, "io.modelcontextprotocol/protocolVersion": version}
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


_BODIES = (
    _body("seen"),
    _body("fail"),
    _body("guarded"),
    _body("unknown"),
    _body(method="tools/list"),
    _body(version="2025-11-25"),
    _body(n="x"),
    _body(n=10**20),
    _body(n=[[]] * 300),
    b"[" + _body() + b"]",
    _body()[:-1],
    _body() + b"}",
    _body().replace(b'"id":1,', b""),
    _body().replace(b'"id":1', b'"id":null'),
    _body().replace(b'{"n":2}', b"[" * 90 + b"]" * 90),
    _body().replace(b'{"n":2}', b"[" * 2000 + b"]" * 2000),
    _body().replace(b'"name":"double"', b'"name":"fail","name":"double"'),
    _body().replace(b'"name":"double"', b'"uri":1,"name":"double"'),
    _body().replace(b"double", b"\xff\xff\xff\xff\xff\xff"),
    b"",
    b"x",
)
#: What comes after the body.
_ENDS = (b"\r\n", b"\r\n\r\n", b"x", b"GET / HTTP/1.1\r\n\r\n", b"\x00", b"0\r\n\r\n")


def _written(body: bytes, end: bytes = b"", **changes: bytes) -> bytes:
    lines = b"\r\n".join({**_HEAD, **changes}.values())
    return (lines % len(body) if b"%d" in lines else lines) + b"\r\n\r\n" + body + end


_TOOLS = ("double", "seen", "fail", "odd", "cancel", "guarded")
_CALLS = [_written(_body(tool), name=b"Mcp-Name: %b" % tool.encode()) for tool in _TOOLS]


@st.composite
def _request(draw: st.DrawFn) -> bytes:
    tool = draw(st.sampled_from(_TOOLS))
    changes = {"name": b"Mcp-Name: %b" % tool.encode()}
    for part in draw(st.lists(st.sampled_from(list(_OTHERS)), max_size=2)):
        changes[part] = draw(st.sampled_from(_OTHERS[part]))
    calls = st.builds(_body, st.just(tool), request_id=st.integers(0, 10**6))
    body = draw(st.one_of(calls, calls, st.sampled_from(_BODIES)))
    end = draw(st.one_of(st.just(b""), st.just(b""), st.sampled_from(_ENDS)))
    return _written(body, end, **changes)


@given(chunks=chunks_of(_request()), pauses=st.booleans(), local=st.sampled_from(("127.0.0.1", "10.0.0.1")))
@example(chunks=[*_CALLS], pauses=True, local="127.0.0.1")
@example(
    chunks=[_written(_body("seen", request_id=12345), name=b"Mcp-Name: seen")], pauses=True, local="127.0.0.1"
)  # whose Content-Length is another one
def test_the_shortcuts_change_no_response(chunks: list[bytes], pauses: bool, local: str) -> None:
    async def main() -> None:
        plain, quick, again = await _outputs(chunks, pauses=pauses, local=local)
        assert quick == plain
        assert again == plain

    asyncio.run(main())


@given(chunks=chunks_of(_request()), pauses=st.booleans(), local=st.sampled_from(("127.0.0.1", "10.0.0.1")))
@example(chunks=[*_CALLS], pauses=True, local="127.0.0.1")
def test_another_asgi_server_gives_the_same_responses(chunks: list[bytes], pauses: bool, local: str) -> None:
    assume(b"\r\nUpgrade: " not in b"".join(chunks))  # uvicorn does not read the body of such a request

    async def main() -> None:
        found = []
        for kind in (ByteSite, ElsewhereSite):
            app = make_server().asgi(HttpOptions(origins=("https://page.example",), hosts=("name.example",)))
            await app.open()
            site = kind(app)
            for call in _CALLS:
                await site.visit([call], pauses=True, local=local)
            found.append(await site.visit(chunks, pauses=pauses, local=local))
            await app.close()
        ours, elsewhere = found
        if not (is_refused_as_http(ours[0]) or is_refused_as_http(elsewhere[0])):
            assert ours == elsewhere

    asyncio.run(main())


def test_a_request_that_is_cut_at_any_byte_gets_the_same_response() -> None:
    async def main() -> None:
        whole = _CALLS[0]
        app = make_server().asgi()
        await app.open()
        site = ByteSite(app)
        expected = await site.visit([whole], pauses=True)
        for cut in range(1, len(whole)):
            assert await site.visit([whole[:cut], whole[cut:], whole], pauses=True) == (2 * expected[0], False)
        await app.close()

    asyncio.run(main())


async def test_a_head_that_is_accepted_at_one_address_may_be_refused_at_another() -> None:
    app = make_server().asgi()
    await app.open()
    site = ByteSite(app)
    call = _written(_body(), host=b"Host: name.example")
    for _ in range(2):
        for local, status in (("10.0.0.1", b"200"), ("127.0.0.1", b"403"), ("::1", b"403"), ("10.0.0.2", b"200")):
            output, _ = await site.visit([call, call], pauses=True, local=local)
            assert output.count(b"HTTP/1.1 " + status) == 2
    # As many addresses as there are, they share what is remembered.
    for number in range(100):
        await site.visit([call], pauses=True, local=f"127.0.1.{number}")
    assert len(site.listener._heads) == 2
    await app.close()


@pytest.mark.parametrize("eager", LOOPS)
def test_a_refused_request_lets_none_like_it_in(eager: bool) -> None:
    async def main() -> None:
        app = make_server().asgi()
        await app.open()
        site = ByteSite(app)
        refused = _written(_body(), host=b"Host: evil.example")
        # With eager tasks, the first is refused before the second is parsed.
        for chunks in ([refused + _CALLS[0]], [refused], [refused]):
            output, _ = await site.visit(chunks, pauses=True)
            assert output.startswith(b"HTTP/1.1 403 ")
        await app.close()

    run(main(), eager=eager)


async def test_a_client_that_does_not_read_is_dropped_in_time() -> None:
    server = Server("s")

    @server.tool
    async def flood() -> str:
        return "x" * 100_000

    async with serving(server, write_within=0.3) as site:
        _, writer = await asyncio.open_connection(site.address.host, site.address.port, limit=1)
        call = _written(_body("flood"), name=b"Mcp-Name: flood")
        with suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    writer.write(call)
                    await writer.drain()
                    await asyncio.sleep(0)
        writer.transport.abort()
        await settle()
        assert not site.listener._connections
        assert not site.app._modern_posts


# Nothing is left behind, whatever happens in whichever turn of the loop


class _Steps:
    """A server with a tool that takes some turns of the loop."""

    def __init__(self, lifespan: Any = None) -> None:
        self.server = Server("s", version="1", lifespan=lifespan)
        self.begun = self.ended = 0
        self.server.add_tool(self.steps)

    async def steps(self, n: int) -> str:
        self.begun += 1
        try:
            for _ in range(n):
                await asyncio.sleep(0)
        finally:
            self.ended += 1
        return "done"

    def check_nothing_left(self, app: HttpApp) -> None:
        sessions = self.server.active_sessions
        assert (app._modern_posts, app._requests, sessions._begun, sessions._sessions) == (set(), set(), {}, set())
        assert self.begun == self.ended
        assert sessions.count_requests() == (0, 0)


def _steps(n: int) -> bytes:
    body = _body("double", n=n).replace(b"double", b"steps")
    return _written(body, name=b"Mcp-Name: steps")


class _AsgiCall:
    """A call by another ASGI server than ours, which runs in a task."""

    def __init__(self, app: HttpApp, n: int) -> None:
        head, _, self._body = _steps(n).partition(b"\r\n\r\n")
        fields = (line.partition(b": ") for line in head.split(b"\r\n")[1:])
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "headers": [(name.lower(), value) for name, _, value in fields],
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 4000),
        }
        self.sent: list[Any] = []
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        if self._body:
            body, self._body = self._body, b""
            return {"type": "http.request", "body": body}
        return await asyncio.get_running_loop().create_future()

    async def _send(self, event: Any) -> None:
        self.sent.append(event)


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("n", [0, 1, 4])
async def test_an_asgi_task_may_be_cancelled_at_any_time(n: int, turns: int) -> None:
    steps = _Steps()
    app = steps.server.asgi()
    await app.open()
    call = _AsgiCall(app, n)
    for _ in range(turns):
        await asyncio.sleep(0)
    call.task.cancel()
    await asyncio.wait([call.task])
    await settle()
    steps.check_nothing_left(app)
    assert all(session.is_unused for session in steps.server.active_sessions._spare)
    async with asyncio.timeout(PATIENCE):
        await app.close()


async def test_a_cancelled_task_leaves_the_next_request_of_its_session_alone() -> None:
    steps = _Steps()
    app = steps.server.asgi()
    await app.open()
    site = ByteSite(app)
    expected = await site.visit([_steps(3)], pauses=True)
    steps.server.active_sessions._spare.clear()
    call = _AsgiCall(app, 0)
    await asyncio.sleep(0)
    # Next in the loop: the call is answered, another one gets its session, and then its task learns of its end.
    protocol, transport = site.connect()
    asyncio.get_running_loop().call_soon(protocol.data_received, _steps(3))
    call.task.cancel()
    await settle()
    assert transport.output == expected[0]
    protocol.connection_lost(None)
    await settle()
    steps.check_nothing_left(app)
    await app.close()


@pytest.mark.parametrize("is_warm", [True, False])
@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("event", ["lost", "close", "drain", "shutdown", "stop", "next", "bad"])
async def test_anything_may_happen_at_any_time(event: str, n: int, turns: int, is_warm: bool) -> None:
    steps = _Steps()
    app = steps.server.asgi()
    await app.open()
    site = ByteSite(app)
    expected = (await site.visit([_steps(n)], pauses=True))[0]
    if not is_warm:
        site = ByteSite(app)
    protocol, transport = site.connect()
    protocol.data_received(_steps(n))
    for _ in range(turns):
        await asyncio.sleep(0)
    closing = None
    if event == "lost":
        protocol.connection_lost(None)
    elif event == "close":
        closing = asyncio.create_task(app.close())
    elif event == "drain":
        site.listener.drain()
    elif event == "shutdown":
        protocol.shutdown()
    elif event == "stop":
        steps.server.stop()
    else:
        protocol.data_received(_steps(n) if event == "next" else b"\x00")
    await settle()
    if event == "next":
        assert transport.output == 2 * expected
    elif event == "bad":
        assert transport.output.startswith(expected)
        assert b"400 Bad Request" in transport.output
    elif event == "stop":
        assert transport.output
    elif event != "lost":
        body = expected.partition(b"\r\n\r\n")[2]
        assert transport.output.endswith(body) or (event == "close" and b"503" in transport.output)
    if event != "lost":
        protocol.connection_lost(None)
    await settle()
    steps.check_nothing_left(app)
    async with asyncio.timeout(PATIENCE):
        await (app.close() if closing is None else closing)
