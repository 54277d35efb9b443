"""A server that is gone in the middle of an answer: a lost connection, whichever way the answer took."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcplumb import ProtocolError, RequestLost, connect
from mcplumb.protocol.restart import RestartPolicy
from tests.kit.leaks import leaves_nothing
from tests.transports.http_client.raw import LEGACY, MODERN, Asked, RawServer, Reply

pytestmark = leaves_nothing

EAGER = RestartPolicy(first_wait=0.01, max_wait=0.05, breaker_after=10_000)
RESULTS: dict[str, Any] = {
    "server/discover": {"resultType": "complete", "supportedVersions": [MODERN], "capabilities": {"tools": {}}},
    "initialize": {"protocolVersion": LEGACY, "capabilities": {"tools": {}}},
    "tools/list": {
        "resultType": "complete",
        "tools": [
            {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
            {"name": "act", "inputSchema": {"type": "object"}},
        ],
    },
    "tools/call": {"resultType": "complete", "content": [{"type": "text", "text": "done"}]},
}
BOTH = pytest.mark.parametrize("revision", [MODERN, LEGACY])


def response(message: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": RESULTS[message["method"]]}).encode()


class Wire:
    """Which of the first calls get only the beginning of an answer, and how many calls there were."""

    def __init__(self, torn_calls: int) -> None:
        self.torn_calls = torn_calls
        self.calls = 0

    def tears(self, message: dict[str, Any]) -> bool:
        self.calls += message["method"] == "tools/call"
        return message["method"] == "tools/call" and self.calls <= self.torn_calls


@asynccontextmanager
async def over_tcp(wire: Wire) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if "id" not in message:
                    continue
                if wire.tears(message):
                    writer.write(response(message)[:-30])
                    return
                writer.write(response(message) + b"\n")
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def tear_with_length(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:-30]


def tear_chunk(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n" % len(body) + body[:-30]


def tear_without_length(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" + body[:-30]


def tear_event(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    return head + b"data: " + body[:-30]


@asynccontextmanager
async def over_http(wire: Wire, tear: Callable[[bytes], bytes]) -> AsyncIterator[str]:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.method != "POST":
            await reply.send(405)
        elif "id" not in asked.json:
            await reply.send(202)
        elif wire.tears(asked.json):
            await reply.raw(tear(response(asked.json)))
            reply.cut()
        else:
            await reply.send(200, response(asked.json))

    server = RawServer(script)
    await server.open()
    try:
        yield server.url
    finally:
        await server.close()


WAYS: dict[str, Any] = {
    "tcp": over_tcp,
    "http, length": lambda wire: over_http(wire, tear_with_length),
    "http, chunked": lambda wire: over_http(wire, tear_chunk),
    "http, until closed": lambda wire: over_http(wire, tear_without_length),
    "http, event": lambda wire: over_http(wire, tear_event),
}
everywhere = pytest.mark.parametrize("way", WAYS)


@everywhere
@BOTH
@pytest.mark.req("FRM-6", "LIF-6", "STR-3")
async def test_what_only_reads_is_sent_again(way: str, revision: str) -> None:
    wire = Wire(torn_calls=1)
    async with WAYS[way](wire) as address, connect(address, revisions=[revision], restart=EAGER) as client:
        assert (await client.call_tool("look")).text == "done"
        assert wire.calls == 2


@everywhere
@BOTH
@pytest.mark.req("FRM-6", "LIF-6", "STR-3")
async def test_anything_else_is_lost(way: str, revision: str) -> None:
    wire = Wire(torn_calls=1)
    async with WAYS[way](wire) as address, connect(address, revisions=[revision], restart=EAGER) as client:
        with pytest.raises(RequestLost, match="whether it took effect is unknown"):
            await client.call_tool("act")
        assert wire.calls == 1


async def test_a_whole_body_that_is_not_a_message_is_no_torn_one() -> None:
    def answer(_: bytes) -> bytes:
        return b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{"id": 1}'

    wire = Wire(torn_calls=1)
    async with over_http(wire, answer) as address, connect(address, revisions=[MODERN]) as client:
        with pytest.raises(ProtocolError):
            await client.call_tool("look")
        assert wire.calls == 1
