"""Heads of requests that never end, are too large, or are not HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.attacks.harness import ANSWERABLE, Target, Wire, head, post
from tests.process.harness import modern_call

CALL = modern_call(1, "echo", text="hello")
#: More than anyone needs for the head of a request.
MUCH = 4 * 1024 * 1024


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with Target(http={"header_within": 1.0, "body_within": 1.0}) as target:
        yield target


def gives_up(wire: Wire) -> None:
    """The server refuses, or closes the connection without a word."""
    came = wire.first_line()
    assert not came or int(came.split()[1]) in {*ANSWERABLE, 501, 505}, came


@pytest.mark.parametrize("part", [b"", b"P", b"POST /mcp HTTP/1.1\r\n", post(CALL).partition(b"\r\n\r\n")[0]])
def test_a_head_that_does_not_come_is_not_waited_for(target: Target, part: bytes) -> None:
    with target.wire() as wire:
        wire.send(part)
        gives_up(wire)


def test_a_head_that_comes_line_by_line_has_no_more_time(target: Target) -> None:
    """The way of Slowloris: there is always a little more."""
    with target.wire() as wire:
        wire.send(b"POST /mcp HTTP/1.1\r\n")
        wire.socket.settimeout(0.05)
        came = None
        while wire.offer(b"X-More: of this\r\n"):
            try:
                came = wire.socket.recv(1000)
                break
            except TimeoutError:
                continue
            except ConnectionResetError:
                break
        assert not came or int(came.split()[1]) in ANSWERABLE


def test_the_second_request_of_a_connection_has_no_more_time_than_the_first(target: Target) -> None:
    with target.wire() as wire:
        assert wire.ask(post(CALL)).status == 200
        wire.send(b"POST /mcp HTTP/1.1\r\n")
        gives_up(wire)


def endless_line() -> Iterator[bytes]:
    yield b"POST /mcp HTTP/1.1\r\nX-Endless: "
    yield from [b"x" * 65536] * (MUCH // 65536)


def endless_name() -> Iterator[bytes]:
    yield b"POST /mcp HTTP/1.1\r\n"
    yield from [b"x" * 65536] * (MUCH // 65536)


def endless_target() -> Iterator[bytes]:
    yield b"POST /"
    yield from [b"x" * 65536] * (MUCH // 65536)


def endless_method() -> Iterator[bytes]:
    yield from [b"P" * 65536] * (MUCH // 65536)


def many_lines() -> Iterator[bytes]:
    yield b"POST /mcp HTTP/1.1\r\n"
    for number in range(100_000):
        yield b"X-%d: x\r\n" % number
    yield b"\r\n"


def same_line() -> Iterator[bytes]:
    yield b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    yield from [b"Accept: application/json\r\n"] * 100_000
    yield b"\r\n"


def many_trailers() -> Iterator[bytes]:
    yield head(fields={"Host": "127.0.0.1", "Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    yield b"2\r\n{}\r\n0\r\n"
    yield from [b"X-Trailer: x\r\n"] * 300_000


def long_extension() -> Iterator[bytes]:
    yield head(fields={"Host": "127.0.0.1", "Content-Type": "application/json", "Transfer-Encoding": "chunked"})
    yield b"2;"
    yield from [b"x" * 65536] * (MUCH // 65536)


@pytest.mark.parametrize(
    "head_of",
    [endless_line, endless_name, endless_target, endless_method, many_lines, same_line, many_trailers, long_extension],
)
def test_a_head_without_end_is_not_collected(target: Target, head_of: Callable[[], Iterator[bytes]]) -> None:
    before = target.memory()
    with target.wire() as wire:
        for piece in head_of():
            if not wire.offer(piece):
                break
        gives_up(wire)
    assert target.memory() - before < MUCH * 4


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 1000,
        b"\r\n" * 10_000,
        b"\xff" * 1000,
        b"hello\r\n\r\n",
        b"GET /mcp\r\n\r\n",
        b"GET /mcp HTTP/0.9\r\n\r\n",
        b"GET /mcp HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500,
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"POST  /mcp  HTTP/1.1\r\n\r\n",
        b"POST /mcp HTTP/1.1 \r\nHost: 127.0.0.1\r\n\r\n",
        b" POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
    ids=lambda garbage: repr(garbage[:20]),
)
def test_what_is_not_http_is_not_served(target: Target, garbage: bytes) -> None:
    with target.wire() as wire:
        wire.offer(garbage)
        gives_up(wire)


@pytest.mark.parametrize(
    "line",
    [
        b"X-Bad: a\0b",
        b"X-Bad: a\rb",
        b"X-Bad: a\x01b",
        b"X-Bad: a\x7fb",
        b"X-Bad : a",
        b"X Bad: a",
        b"X-B\xe4d: a",
        b"X-Bad\0: a",
        b"X-Bad",
        b": a",
        b" folded: a",
        b"X-Bad: a\r\n folded",
        b"(X-Bad): a",
    ],
)
def test_a_bad_header_is_refused(target: Target, line: bytes) -> None:
    """Those who read them in different ways can be set against each other."""
    with target.wire() as wire:
        wire.send(post(CALL).replace(b"Accept:", line + b"\r\nAccept:"))
        gives_up(wire)


@pytest.mark.parametrize("name", ["Mcp-Name", "Mcp-Session-Id", "Last-Event-ID", "Authorization", "Origin", "Cookie"])
@pytest.mark.parametrize("value", ["a\rSet-Cookie: b=c", "a\nSet-Cookie: b=c", "a\0b", "a\x0bb"])
def test_nothing_can_be_injected_by_a_header(target: Target, name: str, value: str) -> None:
    answer_head = b""
    with target.wire() as wire:
        wire.send(post(CALL, {name: value}))
        # With a bare line feed it may be a header of its own, which does nothing.
        wire.socket.shutdown(1)
        answer_head = wire.rest().partition(b"\r\n\r\n")[0]
    assert b"set-cookie" not in answer_head.lower()


@pytest.mark.req("HTP-5")
@pytest.mark.parametrize(
    "method", ["PUT", "PATCH", "HEAD", "TRACE", "CONNECT", "OPTIONS", "LOCK", "post", "POSTPOST", "FOO", "M-SEARCH"]
)
def test_a_wrong_method_does_nothing(target: Target, method: str) -> None:
    data = post(modern_call(1, "wait", name="wrong method")).replace(b"POST", method.encode(), 1)
    with target.wire() as wire:
        wire.send(data)
        status, _ = wire.begun()
    assert status in {204, 400, 403, 405, 501} if method == "OPTIONS" else {400, 403, 405, 501}
    assert target.events("wrong method began") == 0


TRICKS = [
    "//mcp",
    "/mcp/",
    "/mcp//",
    "/./mcp",
    "/x/../mcp",
    "/mcp/../mcp",
    "/mcp/..",
    "/%2e/mcp",
    "/x/%2e%2e/mcp",
    "/mcp%2f",
    "/mcp%00",
    "/mcp%0d%0aSet-Cookie:%20a=b",
    "/mcp%ff",
    "/mcp%",
    "/mcp%zz",
    "/MCP",
    "/%6dcp",
    "/mcp;x=y",
    "/mcp?x=y",
    "/mcp?" + "x" * 10_000,
    "/mcp#x",
    "http://evil.example/mcp",
    "http://127.0.0.1/mcp",
    "//evil.example/mcp",
    "\\mcp",
    "mcp",
    "*",
    "",
    "/\xe4",
    "/sse",
    "/messages",
    "/messages?session_id=../../mcp",
    "/.well-known/oauth-protected-resource",
]


@pytest.mark.parametrize("path", TRICKS, ids=lambda path: repr(path[:30]))
def test_no_path_leads_past_the_guards(target: Target, path: str) -> None:
    """Whatever a path means, a good request is served or refused, and a bad one is refused."""
    message = modern_call(1, "wait", name="tricked")
    for fields in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Mcp-Name": "echo"}):
        with target.wire() as wire:
            wire.send(post(message, fields, path=path))
            status, _ = wire.begun()
            assert status in {400, 403, 404, 405}, (fields, status)
    with target.wire() as wire:
        wire.send(post(CALL, path=path))
        status, fields_back = wire.begun()
        assert status in {200, 202, 400, 403, 404, 405}, status
        assert "set-cookie" not in fields_back
        assert "location" not in fields_back
    assert target.events("tricked began") == 0


def test_an_upgrade_is_not_taken(target: Target) -> None:
    asked = {
        "Host": "127.0.0.1",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version": "13",
    }
    for protocol in ("websocket", "h2c", "TLS/1.0"):
        with target.wire() as wire:
            wire.send(head("GET", "/mcp", {**asked, "Upgrade": protocol}))
            assert wire.begun()[0] in ANSWERABLE
        with target.wire() as wire:
            wire.send(post(CALL, {"Connection": "Upgrade", "Upgrade": protocol}))
            assert wire.begun()[0] in {200, *ANSWERABLE}
