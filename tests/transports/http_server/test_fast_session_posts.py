"""POSTs of legacy sessions get the same responses with all shortcuts as without any, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import accumulate, pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mcplumb._fast
from mcplumb import Context, HttpOptions, Server
from mcplumb.revisions import LATEST_LEGACY
from mcplumb.transports.http_server.asgi_app import HttpApp
from mcplumb.transports.http_server.legacy_session import LegacySession
from tests.client.peers import LOOPS
from tests.kit.loop import PATIENCE, run
from tests.transports.http_server.byte_site import ByteSite, ElsewhereSite, settle
from tests.transports.http_server.taskless_posts import (
    chunks_of,
    is_refused_as_http,
    make_server,
    shortcuts_are_on,
)

__all__ = ["shortcuts_are_on"]


# Requests

_VERSION = LATEST_LEGACY.name
#: Stands for the id of the session, and is as long.
_ID = b"5" * 56
_HEAD = {
    "start": b"POST /mcp HTTP/1.1",
    "host": b"Host: localhost",
    "type": b"Content-Type: application/json",
    "version": b"MCP-Protocol-Version: %b" % _VERSION.encode(),
    "session": b"Mcp-Session-Id: %b" % _ID,
    "length": b"Content-Length: %d",
}
_OTHERS: dict[str, Sequence[bytes]] = {
    "start": (b"POST /mcp HTTP/1.0", b"POST /mcp/ HTTP/1.1", b"POST /other HTTP/1.1", b"DELETE /mcp HTTP/1.1"),
    "host": (b"Host: evil.example", b"Host: localhost\r\nOrigin: https://evil.example", b"X: 1"),
    "type": (b"Content-Type: text/plain", b"Content-Type: application/json\r\nAccept: text/html", b"X: 1"),
    "version": (b"MCP-Protocol-Version: 2025-03-26", b"MCP-Protocol-Version: 2030-01-01", b"X: 1"),
    "session": (
        b"mcp-session-id: %b" % _ID,
        b"MCP-SESSION-ID: %b" % _ID,
        b"Mcp-Session-Id:%b" % _ID,
        b"Mcp-Session-Id: %b " % _ID,
        b"Mcp-Session-Id: %b0" % _ID,
        b"Mcp-Session-Id: %b" % _ID[1:],
        b"Mcp-Session-Id: %b, %b" % (_ID, _ID),
        b"Mcp-Session-Id: %b\r\nMcp-Session-Id: %b" % (_ID, _ID),
        b"Mcp-Session-Id: x\r\nMcp-Session-Id: %b" % _ID,
        b"Mcp-Session-Id: %b\r\n folded" % _ID,
        b"Mcp-Session-Id: %b\nX: 1" % _ID,
        b"Mcp-Session-Id: %b\nContent-Length: 2" % _ID,
        b"Mcp-Session-Id: ",
        b"Mcp-Session-Id: x",
        b"X: 1",
    ),
    "length": (
        b"content-length: %d",
        b"Content-Length: 0%d",
        b"Content-Length: %d0",
        b"Content-Length: %d\r\nMcp-Session-Id: x",
        b"Content-Length: %d\r\nTransfer-Encoding: chunked",
        b"Content-Length: %d\r\nConnection: close",
        b"Content-Length: %d\r\nAuthorization: Bearer x",
        b"Content-Length: %d\r\nX: 1",
    ),
}


def _body(tool: str = "double", method: str = "tools/call", n: Any = 2, request_id: Any = 1) -> bytes:
    arguments = {"n": n} if tool in ("double", "steps") else {}
    params = {"name": tool, "arguments": arguments}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


_MODERN_META = b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"name":'
_BODIES = (
    _body("seen"),
    _body("fail"),
    _body("unknown"),
    _body(method="tools/list"),
    _body(method="ping"),
    _body(method="initialize"),
    _body(method="server/discover"),
    _body(n="x"),
    _body(request_id="one"),
    b"[" + _body() + b"]",
    _body()[:-1],
    _body().replace(b'"id":1,', b""),
    _body().replace(b'"id":1', b'"id":null'),
    _body().replace(b'"name":', _MODERN_META),
    _body().replace(b"double", b"\xff\xff\xff\xff\xff\xff"),
    b'{"jsonrpc":"2.0","id":1,"result":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
    b"",
    b"x",
)
_ENDS = (b"\r\n", b"x", b"GET / HTTP/1.1\r\n\r\n", b"\x00")


def _written(body: bytes, end: bytes = b"", **changes: bytes) -> bytes:
    lines = b"\r\n".join({**_HEAD, **changes}.values())
    return (lines % len(body) if b"%d" in lines else lines) + b"\r\n\r\n" + body + end


_TOOLS = ("double", "seen", "fail", "odd", "cancel", "guarded")
_CALLS = [_written(_body(tool)) for tool in _TOOLS]


@st.composite
def _request(draw: st.DrawFn) -> bytes:
    changes = {}
    for part in draw(st.lists(st.sampled_from(list(_OTHERS)), max_size=2)):
        changes[part] = draw(st.sampled_from(_OTHERS[part]))
    calls = st.builds(_body, st.sampled_from(_TOOLS), request_id=st.integers(0, 10**6))
    body = draw(st.one_of(calls, calls, st.sampled_from(_BODIES)))
    end = draw(st.one_of(st.just(b""), st.just(b""), st.sampled_from(_ENDS)))
    return _written(body, end, **changes)


# Servers


async def _opened(site: ByteSite) -> bytes:
    """Open a session, and return its id."""
    params = {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    opening = msgspec.json.encode({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
    output, _ = await site.visit([_written(opening, session=b"X: 1")], pauses=True)
    session_id = output.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0]
    assert len(session_id) == len(_ID)
    ready = _written(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    output, _ = await site.visit([ready.replace(_ID, session_id)], pauses=True)
    assert output.startswith(b"HTTP/1.1 202 ")
    return session_id


def _put(session_id: bytes, chunks: Sequence[bytes]) -> list[bytes]:
    """Return the chunks with the id of a session in place of the one that stands for it, which may be cut."""
    whole = b"".join(chunks).replace(_ID, session_id)
    return [whole[start:end] for start, end in pairwise([0, *accumulate(map(len, chunks))])]


async def _visit(site: ByteSite, chunks: Sequence[bytes], *, pauses: bool, local: str = "127.0.0.1") -> Any:
    """Send the chunks in a session of their own; return the output, and whether the server closes the connection."""
    session_id = await _opened(site)
    output, has_ended = await site.visit(_put(session_id, chunks), pauses=pauses, local=local)
    return output.replace(session_id, _ID), has_ended


async def _outputs(chunks: Sequence[bytes], *, pauses: bool, local: str) -> tuple[Any, Any, Any]:
    """What a server says without shortcuts, with them, and when it has seen the same before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mcplumb._fast, "_switched_off", ("taskless_posts",))
        plain = make_server().asgi()
    quick = make_server().asgi()
    found = []
    for app, times in ((plain, 1), (quick, 2)):
        await app.open()
        site = ByteSite(app)
        if app is quick:
            for call in _CALLS:
                await _visit(site, [call], pauses=True, local=local)
        found += [await _visit(site, chunks, pauses=pauses, local=local) for _ in range(times)]
        await app.close()
    return found[0], found[1], found[2]


@given(chunks=chunks_of(_request()), pauses=st.booleans(), local=st.sampled_from(("127.0.0.1", "10.0.0.1")))
@example(chunks=[*_CALLS], pauses=True, local="127.0.0.1")
@example(chunks=[_written(_body("seen", request_id=12345))], pauses=True, local="127.0.0.1")
@example(chunks=[b"".join(_CALLS)], pauses=False, local="127.0.0.1")
def test_the_shortcuts_change_no_response(chunks: list[bytes], pauses: bool, local: str) -> None:
    async def main() -> None:
        plain, quick, again = await _outputs(chunks, pauses=pauses, local=local)
        assert quick == plain
        assert again == plain

    asyncio.run(main())


@given(chunks=chunks_of(_request()), pauses=st.booleans(), local=st.sampled_from(("127.0.0.1", "10.0.0.1")))
@example(chunks=[*_CALLS], pauses=True, local="127.0.0.1")
def test_another_asgi_server_gives_the_same_responses(chunks: list[bytes], pauses: bool, local: str) -> None:
    async def main() -> None:
        found = []
        for kind in (ByteSite, ElsewhereSite):
            app = make_server().asgi()
            await app.open()
            site = kind(app)
            for call in _CALLS:
                await _visit(site, [call], pauses=True, local=local)
            found.append(await _visit(site, chunks, pauses=pauses, local=local))
            await app.close()
        ours, elsewhere = found
        if not (is_refused_as_http(ours[0]) or is_refused_as_http(elsewhere[0])):
            assert ours == elsewhere

    asyncio.run(main())


# Nothing is left behind, whatever happens in whichever turn of the loop


class _Steps:
    """A server with a tool that takes some turns of the loop, and may talk."""

    def __init__(self) -> None:
        self.server = Server("s", version="1", stop_within=5.0)
        self.begun = self.ended = 0
        self.server.add_tool(self.steps)
        self.talks = False

    async def steps(self, ctx: Context, n: int) -> str:
        self.begun += 1
        try:
            for step in range(n):
                if self.talks:
                    await ctx.warning(f"{step}")
                await asyncio.sleep(0)
        finally:
            self.ended += 1
        return "done"


@asynccontextmanager
async def _at_work(steps: _Steps) -> AsyncIterator[tuple[HttpApp, ByteSite, bytes, LegacySession]]:
    app = steps.server.asgi(HttpOptions())
    await app.open()
    site = ByteSite(app)
    session_id = await _opened(site)
    session = app._sessions._table.find(session_id.decode(), None)
    try:
        yield app, site, session_id, session
    finally:
        async with asyncio.timeout(PATIENCE):
            await app.close()


def _steps(n: int, session_id: bytes, request_id: int = 1) -> bytes:
    return _written(_body("steps", n=n, request_id=request_id)).replace(_ID, session_id)


@pytest.mark.parametrize("eager", LOOPS)
@pytest.mark.parametrize("accepts", [b"application/json", b"application/json, text/event-stream"])
def test_what_a_tool_says_is_streamed_to_who_accepts_that(accepts: bytes, eager: bool) -> None:
    async def main() -> None:
        steps = _Steps()
        steps.talks = True
        async with _at_work(steps) as (_, site, session_id, _):
            fields = b"Content-Type: application/json\r\nAccept: " + accepts
            call = _written(_body("steps", n=3), type=fields).replace(_ID, session_id)
            for _ in range(2):
                output, _ = await site.visit([call], pauses=True)
                assert output.count(b'"done"') == 1
                assert output.count(b"notifications/message") == (3 if b"stream" in accepts else 0)

    run(main(), eager=eager)


@pytest.mark.parametrize("talks", [False, True])
@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("event", ["lost", "close", "drain", "shutdown", "stop", "next", "bad", "cancel", "delete"])
async def test_anything_may_happen_at_any_time(event: str, n: int, turns: int, talks: bool) -> None:
    steps = _Steps()
    async with _at_work(steps) as (app, site, session_id, session):
        await site.visit([_steps(n, session_id)], pauses=True)
        steps.talks = talks
        protocol, transport = site.connect()
        protocol.data_received(_steps(n, session_id))
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
        elif event == "cancel":
            cancel = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
            await site.visit([_written(cancel).replace(_ID, session_id)], pauses=True)
        elif event == "delete":
            await site.visit([_written(b"", start=b"DELETE /mcp HTTP/1.1").replace(_ID, session_id)], pauses=True)
        else:
            protocol.data_received(_steps(n, session_id, 2) if event == "next" else b"\x00")
        await settle()
        if event != "lost":
            assert transport.output.startswith(b"HTTP/1.1 200 OK") or event in ("close", "stop", "delete")
            said = transport.output.count(b'"done"')
            assert said == 2 if event == "next" else said == 1 or event in ("stop", "cancel")
            if talks and n and said:
                assert b"text/event-stream" in transport.output
            elif said:
                assert b"text/event-stream" not in transport.output
            protocol.connection_lost(None)
        await settle()
        assert steps.begun == steps.ended
        assert not session._posts
        assert session._active == 0
        assert not app._requests
        if closing is not None:
            async with asyncio.timeout(PATIENCE):
                await closing
