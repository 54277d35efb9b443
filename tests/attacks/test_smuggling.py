"""Requests that hide another one, which whoever stands before the server would not see."""

from __future__ import annotations

import itertools

import pytest

from tests.attacks.harness import Target, head, post
from tests.process.harness import modern_call

_NAMES = (f"smuggled {number}" for number in itertools.count())

USUAL = (
    b"POST /mcp HTTP/1.1\r\n"
    b"Host: 127.0.0.1\r\n"
    b"Accept: application/json, text/event-stream\r\n"
    b"Content-Type: application/json\r\n"
    b"MCP-Protocol-Version: 2026-07-28\r\n"
    b"Mcp-Method: tools/list\r\n"
)
OUTER = b"0\r\n\r\n"
LENGTH_OF_ALL = b"Content-Length: %(all)d\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"

#: The headers by which a body ends in one place for some and in another for others. ``all`` is the length with what is
#: hidden, ``some`` that without.
SHAPES = [
    LENGTH_OF_ALL + CHUNKED,
    CHUNKED + LENGTH_OF_ALL,
    b"Content-Length: %(some)d\r\n" + LENGTH_OF_ALL,
    LENGTH_OF_ALL + b"Content-Length: %(some)d\r\n",
    b"Content-Length: %(some)d, %(all)d\r\n",
    LENGTH_OF_ALL + b"Transfer-Encoding: xchunked\r\n",
    LENGTH_OF_ALL + b"Transfer-Encoding : chunked\r\n",
    LENGTH_OF_ALL + b"Transfer-Encoding: chunked, identity\r\n",
    LENGTH_OF_ALL + b"Transfer-Encoding: identity\r\n" + CHUNKED,
    LENGTH_OF_ALL + b"Transfer-Encoding:\tchunked\r\n",
    LENGTH_OF_ALL + b"Transfer-Encoding: \x0bchunked\r\n",
    LENGTH_OF_ALL + b"Transfer-Encoding\r\n : chunked\r\n",
    LENGTH_OF_ALL + b"X: x\nTransfer-Encoding: chunked\r\n",
    LENGTH_OF_ALL + b"transfer-encoding: CHUNKED\r\n",
    LENGTH_OF_ALL + b'Transfer-Encoding: "chunked"\r\n',
    b"Content_Length: %(some)d\r\n" + LENGTH_OF_ALL + CHUNKED,
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: repr(shape)[:60])
def test_a_body_with_two_ends_hides_nothing(target: Target, shape: bytes) -> None:
    name = next(_NAMES)
    hidden = post(modern_call(1, "release", name=name)) + post(modern_call(1, "wait", name=name))
    lengths = {b"all": len(OUTER + hidden), b"some": len(OUTER)}
    with target.wire() as wire:
        wire.offer(USUAL + shape % lengths + b"\r\n" + OUTER + hidden)
        came = wire.rest()
    assert came.count(b"HTTP/1.1") <= 1, came
    assert not came or came.split()[1] in {b"400", b"403", b"411", b"413", b"415", b"501"}, came
    assert target.events(f"{name} began") == 0


@pytest.mark.parametrize(
    "chunk",
    [
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b" 1\r\n",
        b"1 \r\nx\r\n",
        b"g\r\n",
        b"\r\n",
        b"FFFFFFFFFFFFFFFFF\r\n",
        b"7FFFFFFFFFFFFFFF\r\n",
        b"FFFFFFFFFFFFFFFF\r\n",
        b"1\nx\n0\n\n",
        b"1\r\nxx\r\n",
        b"1\r\nx\n",
        b"1\r\nx0\r\n\r\n",
        b"1;\nx\r\n0\r\n\r\n",
        b"00000000000000000000000000000000000000001\r\nx\r\n0\r\n\r\n",
        b"0\r\nContent-Length: 5\r\n\r\n",
        b"0\r\n\0\r\n\r\n",
    ],
    ids=repr,
)
def test_chunks_that_are_none(target: Target, chunk: bytes) -> None:
    name = next(_NAMES)
    hidden = post(modern_call(1, "release", name=name)) + post(modern_call(1, "wait", name=name))
    with target.wire() as wire:
        wire.offer(USUAL + CHUNKED + b"\r\n" + chunk + hidden)
        wire.socket.shutdown(1)
        came = wire.rest()
    assert b"400 Bad Request" in came or not came, came


@pytest.mark.parametrize("version", [b"HTTP/1.0", b"HTTP/1.1"])
def test_old_clients_cannot_send_chunks_beside_a_length(target: Target, version: bytes) -> None:
    name = next(_NAMES)
    hidden = post(modern_call(1, "wait", name=name))
    data = USUAL.replace(b"HTTP/1.1", version) + CHUNKED + b"Content-Length: 5\r\nConnection: keep-alive\r\n\r\n"
    with target.wire() as wire:
        wire.offer(data + OUTER + hidden)
        came = wire.rest()
    assert b"200 OK" not in came, came
    assert target.events(f"{name} began") == 0


def test_a_body_where_there_is_none_is_not_the_next_request(target: Target) -> None:
    """A GET may have one, which must not be taken for a request of its own."""
    name = next(_NAMES)
    hidden = post(modern_call(1, "wait", name=name))
    fields = {"Host": "127.0.0.1", "Content-Length": str(len(hidden))}
    for method, path in (("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/"), ("OPTIONS", "/mcp"), ("POST", "/other")):
        with target.wire() as wire:
            assert wire.ask(head(method, path, fields) + hidden).status in {204, 400, 403, 404, 405, 406}
    assert target.events(f"{name} began") == 0


def test_several_requests_at_once_are_answered_in_their_order(target: Target) -> None:
    """That is what is allowed: nothing hides in it, and each is answered to whom it belongs."""
    texts = [f"number {number}" for number in range(10)]
    with target.wire() as wire:
        wire.send(b"".join(post(modern_call(1, "echo", text=text)) for text in texts))
        answers = [wire.answer() for _ in texts]
    assert [answer.message["result"]["content"][0]["text"] for answer in answers] == texts


def test_a_client_that_sends_without_end_and_never_reads_is_not_collected(target: Target) -> None:
    request = post(modern_call(1, "echo", text="x" * 1000))
    before = target.memory()
    with target.wire() as wire:
        wire.socket.settimeout(2.0)
        try:
            for _ in range(100_000):
                if not wire.offer(request):
                    break
        except TimeoutError:
            pass
        target.serves()
        assert target.memory() - before < 50_000_000
