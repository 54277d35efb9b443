"""Servers over HTTP that attack those who connect to them."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, TypeVar

import pytest

from mcplumb import McplumbError, UsageError, connect
from mcplumb.limits import Limits
from tests.attacks.harness import ROOT
from tests.attacks.hostile import END, Hostile, Script, Seen, Undiscovered, begun, response, result
from tests.kit.loop import run

T = TypeVar("T")

TOKEN = "for-nobody-else"
#: What a client here takes from a server, in bytes.
LIMITS = Limits(max_line=1_000_000, max_event=1_000_000)
#: The most that a client may hold when it is sent much more than it wants.
MODEST = 250_000_000


def nothing(_: Seen) -> Iterable[bytes]:
    return [END]


def elsewhere_in(address: str, other: Hostile) -> str:
    return address.replace("OTHER", other.origin.removeprefix("http://")).replace(
        "PORT", other.origin.rpartition(":")[2]
    )


async def _call(url: str, **options: Any) -> str:
    """The text that a call gives."""
    async with connect(url, timeout=20.0, restart=False, limits=LIMITS, **options) as client:
        (block,) = (await client.call_tool("echo", {"text": "hello"})).content
        return str(getattr(block, "text", block))


async def _fails(url: str, **options: Any) -> None:
    """Whatever the server does, it ends in an error, and in none that blames the user."""
    with pytest.raises(McplumbError) as caught:
        await _call(url, **options)
    assert not isinstance(caught.value, UsageError), caught.value


# Elsewhere


ELSEWHERE = [
    "http://OTHER/messages",
    "//OTHER/messages",
    "http://127.0.0.1@OTHER/messages",
    "http://localhost:PORT/messages",
    "HTTP://OTHER/messages",
    "/\\OTHER/messages",
    "\\\\OTHER/messages",
    "http:/\\OTHER/messages",
    "http:\\\\OTHER/messages",
    "https://OTHER/messages",
    "ftp://OTHER/messages",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "data:text/plain,hello",
    "http://[OTHER]/messages",
    "http://",
    "",
]


@pytest.mark.req("SSE-2")
@pytest.mark.parametrize("endpoint", ELSEWHERE)
@pytest.mark.parametrize("http_sse", [True, None], ids=["chosen", "found"])
async def test_an_endpoint_elsewhere_is_not_posted_to(endpoint: str, http_sse: bool | None) -> None:
    async with Hostile(nothing) as other:

        def script(seen: Seen) -> Iterator[bytes]:
            if seen.method == "POST":
                yield response("404 Not Found")
            else:
                yield begun("text/event-stream")
                yield f"event: endpoint\ndata: {elsewhere_in(endpoint, other)}\n\n".encode()
                yield b": more to come\n\n"

        async with Undiscovered(script) as server:
            await _fails(server.url, http_sse=http_sse, token=TOKEN)
            # An empty one, or a path, is at the same place.
            assert other.visits == 0


@pytest.mark.req("HTP-7")
@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
@pytest.mark.parametrize("location", [*ELSEWHERE, "http://OTHER/mcp", "http://127.1:PORT/mcp", "http://0:PORT/mcp"])
async def test_a_redirect_elsewhere_is_not_followed(status: str, location: str) -> None:
    async with Hostile(nothing) as other:
        place = elsewhere_in(location, other)
        for script in (
            lambda _: [response(status, Location=place)],
            lambda seen: [response("404 Not Found") if seen.method == "POST" else response(status, Location=place)],
        ):
            async with Undiscovered(script) as server:
                await _fails(server.url, token=TOKEN)
                assert len(server.seen) < 30
        assert other.visits == 0


@pytest.mark.req("HTP-7")
async def test_a_redirect_in_the_middle_of_a_session_is_not_followed_elsewhere() -> None:
    async with Hostile(nothing) as other:
        async with Hostile(lambda _: [response("307 Temporary", Location=other.url)]) as server:
            await _fails(server.url, token=TOKEN)
        assert other.visits == 0


@pytest.mark.req("HTP-7")
async def test_redirects_without_end_come_to_one() -> None:
    numbers = itertools.count()
    async with Undiscovered(lambda _: [response("307 Temporary", Location=f"/mcp/{next(numbers)}")]) as server:
        await _fails(server.url)
        assert len(server.seen) < 100


async def test_a_token_and_cookies_stay_where_they_belong() -> None:
    def script(seen: Seen) -> list[bytes]:
        body = json.dumps({"jsonrpc": "2.0", "id": seen.message["id"], "result": CALLED}).encode()
        return [response(body=body, Content_Type="application/json", Set_Cookie="track=me; Path=/")]

    async with Hostile(script) as server:
        async with connect(server.url, token=TOKEN, limits=LIMITS) as client:
            for _ in range(3):
                await client.call_tool("echo", {})
        assert all("cookie" not in seen.fields for seen in server.seen)
        assert all(seen.fields["authorization"] == f"Bearer {TOKEN}" for seen in server.seen)
        assert all(TOKEN not in seen.path for seen in server.seen)


CALLED = {"resultType": "complete", "content": [{"type": "text", "text": "called"}]}


# Too much


def endless(piece: bytes, first: bytes = b"") -> Callable[[], Iterator[bytes]]:
    """A megabyte at a time: a gigabyte, which is as good as without end."""

    def pieces() -> Iterator[bytes]:
        yield first
        yield from itertools.repeat(piece * (1_000_000 // len(piece)), 1000)
        yield END

    return pieces


@cache
def packed() -> bytes:
    """Half a gigabyte of a JSON text, as few bytes."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    parts = [packer.compress(b'{"jsonrpc":"2.0","id":1,"result":"')]
    parts += [packer.compress(b"x" * 1_000_000) for _ in range(500)]
    parts += [packer.compress(b'"}'), packer.flush()]
    return b"".join(parts)


FLOODS: dict[str, Callable[[], Iterable[bytes]]] = {
    "a line without end": endless(b"x", begun("text/event-stream") + b"data: "),
    "a field without end": endless(b"x", begun("text/event-stream")),
    "an id without end": endless(b"x", begun("text/event-stream") + b"id: "),
    "an event without end": endless(b"data: x\n", begun("text/event-stream")),
    "comments without end": endless(b": x\n", begun("text/event-stream")),
    "empty events without end": endless(b"\n", begun("text/event-stream")),
    "json without end": endless(b"x", begun("application/json") + b'{"jsonrpc":"2.0","result":"'),
    "space without end": endless(b" ", begun("application/json")),
    "a refusal without end": endless(b"x", b"HTTP/1.1 500 Oh\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"),
    "an error without end": endless(
        b"x",
        b"HTTP/1.1 400 Oh\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + b'{"error":{"message":"',
    ),
    "headers without end": endless(b"X-More: of this\r\n", b"HTTP/1.1 200 OK\r\n"),
    "a header without end": endless(b"x", b"HTTP/1.1 200 OK\r\nX-More: "),
    "a status without end": endless(b"x", b"HTTP/1.1 200 "),
    "hints without end": endless(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"),
    "one chunk without end": endless(
        b"x", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFF\r\n"
    ),
    "something else without end": endless(b"x", begun("video/mp4")),
    "packed json": lambda: [response(body=packed(), Content_Type="application/json", Content_Encoding="gzip")],
    "packed twice": lambda: [
        response(body=gzip.compress(packed()), Content_Type="application/json", Content_Encoding="gzip, gzip")
    ],
    "packed events": lambda: [
        response(body=packed(), Content_Type="text/event-stream", Content_Encoding="gzip"),
    ],
    "packed by the way": lambda: [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(packed()), packed()),
    ],
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", FLOODS)
def test_a_client_is_not_drowned(name: str) -> None:
    """It gives up with an error, and has held little."""

    async def attack() -> dict[str, Any]:
        async with Hostile(lambda _: FLOODS[name]()) as server:
            visitor = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.attacks.visitor", server.url, stdout=-1, cwd=ROOT
            )
            output, _ = await visitor.communicate()
            assert visitor.returncode == 0
            seen: dict[str, Any] = json.loads(output)
            return seen

    seen = run(attack())
    assert not seen["outcome"].startswith("a result"), seen
    assert seen["peak"] < MODEST, seen


# What is not so


LIES: dict[str, Script] = {
    "nothing": lambda _: [END],
    "garbage": lambda _: [b"\0" * 1000, END],
    "another protocol": lambda _: [b"SSH-2.0-OpenSSH_9.0\r\n", END],
    "a request": lambda _: [b"POST /mcp HTTP/1.1\r\nHost: you\r\n\r\n", END],
    "too short": lambda _: [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{}", END],
    "bad length": lambda _: [b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", END],
    "bad chunk": lambda _: [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", END],
    "no content": lambda _: [response("204 No Content")],
    "accepted": lambda _: [response("202 Accepted")],
    "not json": lambda _: [response(body=b"<html>", Content_Type="text/html")],
    "json by name": lambda _: [response(body=b"<html>", Content_Type="application/json")],
    "deep": lambda _: [response(body=b"[" * 900_000, Content_Type="application/json")],
    "digits": lambda _: [response(body=b'{"id":' + b"9" * 900_000, Content_Type="application/json")],
    "another's answer": lambda _: [
        response(body=b'{"jsonrpc":"2.0","id":4711,"result":{}}', Content_Type="application/json")
    ],
    "an upgrade": lambda _: [response("101 Switching Protocols", Upgrade="websocket", Connection="Upgrade"), END],
    "status zero": lambda _: [b"HTTP/1.1 000 Nothing\r\nContent-Length: 0\r\n\r\n"],
    "status of words": lambda _: [b"HTTP/1.1 OK\r\n\r\n", END],
    "not allowed": lambda _: [
        response("401 Unauthorized", WWW_Authenticate='Bearer resource_metadata="http://169.254.169.254/latest"')
    ],
    "two answers": lambda seen: [result(seen, {}) + b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", END],
}


@pytest.mark.parametrize("name", LIES)
async def test_what_is_not_so_is_an_error(name: str) -> None:
    for kind in (Hostile, Undiscovered):
        async with kind(LIES[name]) as server:
            await _fails(server.url)


@pytest.mark.req("HTP-6")
@pytest.mark.parametrize("session", ["x" * 8000, "\xe4", "a b", "", "*"], ids=lambda session: session[:3])
async def test_a_strange_session_id_does_no_harm(session: str) -> None:
    """It is sent back as it was, or refused."""

    def script(seen: Seen) -> list[bytes]:
        if seen.asks == "initialize":
            value = {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "serverInfo": {"name": "x", "version": "1"},
            }
            body = json.dumps({"jsonrpc": "2.0", "id": seen.message["id"], "result": value}).encode()
            return [response(body=body, Content_Type="application/json", Mcp_Session_Id=session)]
        if seen.asks == "tools/call":
            return [result(seen, CALLED)]
        return [response("202 Accepted" if seen.method == "POST" and "initialized" in seen.asks else "400 No")]

    async with Undiscovered(script) as server:
        try:
            assert await _call(server.url) == "called"
        except McplumbError:
            return
        calls = [seen for seen in server.seen if seen.asks == "tools/call"]
        assert {seen.fields.get("mcp-session-id", "") for seen in calls} == {session}


async def test_a_server_that_discovers_itself_is_a_good_one() -> None:
    """The scripts above would prove nothing otherwise."""

    async with Hostile(lambda seen: [result(seen, CALLED)]) as server:
        assert await _call(server.url) == "called"
