"""Clients that are slow, or take too much: raw bytes over a socket."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from mcplumb import HttpOptions, Server
from mcplumb.transports.http_server.uvicorn_protocol import HardenedProtocol
from tests.client.peers import skip
from tests.kit.loop import PATIENCE, turns, until
from tests.kit.results import text_of
from tests.transports.http_server.callers import written_call
from tests.transports.http_server.visits import Answer, Site, serving
from tests.transports.http_server.workshop import Workshop

CALL = written_call("double", n=1)


class _Wire:
    """A connection to a site."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def half_close(self) -> None:
        self._writer.write_eof()

    async def answer(self) -> Answer:
        return await Answer(self._reader, self._writer).head()

    async def rest(self) -> bytes:
        """All that comes until the server closes the connection."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""


@asynccontextmanager
async def _wire(site: Site, *, limit: int = 2**20) -> AsyncIterator[_Wire]:
    reader, writer = await asyncio.open_connection(site.address.host, site.address.port, limit=limit)
    try:
        yield _Wire(reader, writer)
    finally:
        writer.transport.abort()


async def test_a_connection_carries_many_requests() -> None:
    async with serving(Workshop().server) as site, _wire(site) as wire:
        for n in range(5):
            wire.send(written_call("double", n=n))
            assert text_of(await (await wire.answer()).json()) == str(2 * n)
        # And several at once, also in pieces.
        for data in (CALL[:20], CALL[20:] + CALL, CALL):
            wire.send(data)
            await asyncio.sleep(0.01)
        for _ in range(3):
            assert text_of(await (await wire.answer()).json()) == "2"


@pytest.mark.req("HTP-4")
@pytest.mark.parametrize("said", [b"", b"\r\n\r\n", b"P", CALL[:30]])
async def test_who_says_too_little_is_not_waited_for(said: bytes) -> None:
    async with serving(Server("s"), header_within=0.2) as site, _wire(site) as wire:
        wire.send(said)
        _check_late(await wire.rest())


async def test_who_drips_is_not_waited_for_any_longer() -> None:
    async with serving(Server("s"), header_within=0.2) as site, _wire(site) as wire:
        wire.send(b"POST /mcp HTTP/1.1\r\n")
        ending = asyncio.create_task(wire.rest())
        while not ending.done():
            wire.send(b"x: y\r\n")
            await asyncio.sleep(0.01)
        _check_late(await ending)


async def test_the_second_head_has_a_deadline_too() -> None:
    async with serving(Workshop().server, header_within=1) as site, _wire(site) as wire:
        wire.send(CALL)
        assert text_of(await (await wire.answer()).json()) == "2"
        wire.send(CALL[:30])
        _check_late(await wire.rest())


async def test_answers_have_no_deadline() -> None:
    shop = Workshop()
    async with serving(shop.server, header_within=1, next_within=0.1, body_within=0.1) as site, _wire(site) as wire:
        wire.send(written_call("wait", gate="a"))
        await shop.at("a")
        skip(60)
        await turns()
        shop.gates["a"].set()
        assert (await wire.answer()).status == 200


def _check_late(said: bytes) -> None:
    # To those from whom nothing has come when it is too late, nothing is said.
    assert said == b"" or said.startswith(b"HTTP/1.1 408 ")


async def test_who_has_nothing_more_to_say_is_not_kept() -> None:
    async with serving(Workshop().server, next_within=0.05) as site, _wire(site) as wire:
        wire.send(CALL)
        assert text_of(await (await wire.answer()).json()) == "2"
        assert await wire.rest() == b""


@pytest.mark.req("HTP-4")
async def test_a_body_that_stalls_is_not_waited_for() -> None:
    async with serving(Workshop().server, body_within=0.05) as site, _wire(site) as wire:
        wire.send(CALL[:-1])
        answer = await wire.answer()
        assert answer.status == 408
        await answer.body()
        # The rest of the body may still come, but not for ever.
        assert await wire.rest() == b""


async def test_after_a_refusal_the_rest_of_the_body_is_passed_over() -> None:
    async with serving(Workshop().server, tokens=("t",)) as site, _wire(site) as wire:
        wire.send(CALL[:-5])
        answer = await wire.answer()
        assert answer.status == 401
        await answer.body()
        wire.send(CALL[-5:] + written_call("double", n=4, extra="Authorization: Bearer t\r\n"))
        assert text_of(await (await wire.answer()).json()) == "8"


@pytest.mark.req("HTP-4")
@pytest.mark.parametrize(
    "head",
    [
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n" + b"x: %b\r\n" % (b"y" * 2000) + b"\r\n",
        b"GET /" + b"x" * 2000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nx: " + b"y" * 2000,
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\n" + b"a: b\r\n" * 201 + b"\r\n",
    ],
)
async def test_a_head_has_a_cap(head: bytes) -> None:
    async with serving(Server("s"), max_head=1000 if b"a: b" not in head else 64_000) as site:
        for size in (len(head), 100):
            async with _wire(site) as wire:
                for at in range(0, len(head), size):
                    wire.send(head[at : at + size])
                    await asyncio.sleep(0)
                assert (await wire.rest()).startswith(b"HTTP/1.1 431 ")


async def test_a_body_is_no_part_of_the_head() -> None:
    async with serving(Workshop().server, max_head=1000) as site, _wire(site) as wire:
        wire.send(written_call("chat", word="x" * 5000))
        assert (await wire.answer()).status == 200


async def test_headers_behind_a_body_are_passed_over_unless_there_are_many() -> None:
    async with serving(Workshop().server, max_head=1000) as site:
        head, _, body = CALL.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
        chunked = b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", b"%x" % len(body), body, b"0\r\n"])
        async with _wire(site) as wire:
            wire.send(chunked + b"Origin: http://evil.example.com\r\n\r\n" + CALL)
            for _ in range(2):
                assert text_of(await (await wire.answer()).json()) == "2"
        async with _wire(site) as wire:
            wire.send(chunked + b"x: yyyyyyy\r\n" * 1000)
            assert (await wire.rest()).startswith(b"HTTP/1.1 431 ")


async def test_what_is_not_http_is_refused() -> None:
    async with serving(Server("s")) as site:
        for data in (
            b"\x16\x03\x01\x02\x00\x01",
            b"hello\r\n\r\n",
            b"GET /mcp HTTP/1.1\r\nbad header\r\n\r\n",
            b"GET http:// HTTP/1.1\r\n\r\n",
        ):
            async with _wire(site) as wire:
                wire.send(data)
                assert (await wire.rest()).startswith(b"HTTP/1.1 400 ")


async def test_garbage_behind_a_request_does_not_get_into_its_answer() -> None:
    shop = Workshop()
    async with serving(shop.server) as site, _wire(site) as wire:
        wire.send(written_call("wait", gate="a"))
        await shop.at("a")
        wire.send(b"\x00\x00\x00")
        shop.gates["a"].set()
        answer = await wire.answer()
        assert answer.status == 200
        await answer.body()
        assert (await wire.rest()).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("count", [16, 20, 500])
@pytest.mark.parametrize("padding", [0, 5000], ids=["short", "long"])
async def test_any_number_of_requests_may_wait_on_one_connection(count: int, padding: int) -> None:
    shop = Workshop()
    async with serving(shop.server) as site, _wire(site) as wire:
        wire.send(written_call("wait", gate="a"))
        await shop.at("a")
        wire.send(b"".join(written_call("double", n=n, extra=f"X: {'x' * padding}\r\n") for n in range(count)))
        shop.gates["a"].set()
        assert (await (await wire.answer()).json())["result"]
        for n in range(count):
            assert text_of(await (await wire.answer()).json()) == str(2 * n)


async def test_few_of_the_requests_that_wait_are_parsed() -> None:
    shop = Workshop()
    async with serving(shop.server) as site, _wire(site) as wire:
        wire.send(written_call("wait", gate="a"))
        await shop.at("a")
        wire.send(b"GET / HTTP/1.1\r\n\r\n" * 20_000)
        connection = _connection()
        await until(lambda: connection.pipeline, "the next requests")
        await turns()
        assert 16 <= len(connection.pipeline) < 100
        shop.gates["a"].set()
        assert (await (await wire.answer()).json())["result"]
        for _ in range(20_000):
            answer = await wire.answer()
            assert answer.status == 403  # it has no host
            await answer.body()


def _chunked(*, coding: bytes = b"chunked", body: bytes = b"0\r\n\r\n") -> bytes:
    head = CALL.partition(b"\r\n\r\n")[0].replace(b"Content-Length", b"X-Length")
    return head + b"\r\nTransfer-Encoding: " + coding + b"\r\n\r\n" + body


@pytest.mark.parametrize("before", [0, 1, 3])
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (_chunked(body=b"zz\r\nbody"), 400),
        (_chunked(body=b"1\r\nxx\r\n"), 400),
        (_chunked(body=b'5\r\n{"js\r\nFFFFFFFFFFFFFFFFF\r\n'), 400),
        (_chunked(coding=b"xchunked"), 400),
        (_chunked(coding=b"identity"), 400),
        (_chunked(coding=b"chunked, identity"), 400),
        (_chunked(coding=b"gzip, chunked"), 501),
        (_chunked(coding=b"gzip\r\nTransfer-Encoding: chunked"), 501),
        (b"no HTTP\r\n\r\n", 400),
    ],
    ids=lambda value: repr(value)[-50:],
)
async def test_a_bad_body_is_answered_after_the_requests_before_it(data: bytes, status: int, before: int) -> None:
    async with serving(Workshop().server) as site, _wire(site) as wire:
        wire.send(CALL * before + data)
        for _ in range(before):
            assert text_of(await (await wire.answer()).json()) == "2"
        rest = await wire.rest()
        assert rest.startswith(b"HTTP/1.1 %d " % status)
        assert rest.count(b"HTTP/1.1 ") == 1


async def test_a_bad_body_of_a_request_that_was_answered_gets_no_second_answer() -> None:
    async with serving(Workshop().server, tokens=("t",)) as site, _wire(site) as wire:
        wire.send(_chunked(body=b"1\r\nx\r\n"))
        answer = await wire.answer()
        assert answer.status == 401
        await answer.body()
        wire.send(b"zz\r\n")
        assert await wire.rest() == b""


UPGRADE = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"


def _in_chunks(call: bytes) -> bytes:
    head, _, body = call.partition(b"\r\n\r\n")
    head = head.replace(b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked")
    return head + b"\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_who_would_rather_speak_something_else_is_answered_in_http(is_chunked: bool) -> None:
    calls = [written_call("double", n=n, extra=UPGRADE) for n in range(4)]
    if is_chunked:
        calls = [_in_chunks(call) for call in calls]
    async with serving(Workshop().server) as site, _wire(site) as wire:
        # Several at once, in pieces, and with plain ones between them.
        head, _, body = calls[0].partition(b"\r\n\r\n")
        for data in (head[:50], head[50:], b"\r\n\r\n", body, CALL + calls[1] + calls[2] + CALL + calls[3]):
            wire.send(data)
            await asyncio.sleep(0.01)
        for expected in ("0", "2", "2", "4", "2", "6"):
            assert text_of(await (await wire.answer()).json()) == expected
        wire.send(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        answer = await wire.answer()
        assert answer.status == 404
        await answer.body()
        wire.send(CALL)
        assert (await wire.answer()).status == 200


async def test_caps_hold_for_those_who_want_an_upgrade() -> None:
    async with serving(Workshop().server, max_head=1000) as site, _wire(site) as wire:
        wire.send(written_call("double", n=1, extra=f"{UPGRADE}X: {'x' * 1000}\r\n"))
        assert (await wire.rest()).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("target", [b"/mcp", b"localhost:80"])
async def test_nobody_is_connected_to_others(target: bytes) -> None:
    async with serving(Workshop().server) as site, _wire(site) as wire:
        wire.send(b"CONNECT %b HTTP/1.1\r\nHost: localhost\r\n\r\n\x00\x01" % target)
        wire.send(CALL)
        said = await wire.rest()
        assert said.startswith(b"HTTP/1.1 400 ")
        assert said.count(b"HTTP/1.1") == 1


async def test_there_is_a_cap_on_connections() -> None:
    shop = Workshop()
    async with serving(shop.server, max_connections=2) as site, _wire(site) as one, _wire(site) as two:
        for wire in (one, two):
            wire.send(CALL)
            assert text_of(await (await wire.answer()).json()) == "2"
        for gate, wire in (("a", one), ("b", two)):
            wire.send(written_call("wait", gate=gate))
            await shop.at(gate)
        async with _wire(site) as three:
            assert (await three.rest()).startswith(b"HTTP/1.1 503 ")
        shop.gates["a"].set()
        assert (await one.answer()).status == 200
        async with _wire(site) as four:
            four.send(CALL)
            assert (await four.answer()).status == 200
        assert b"503" not in await one.rest()  # it has made room


@pytest.mark.parametrize("said", [b"", b"GET /mcp HTTP/1.1\r\n", CALL], ids=["nothing", "half a head", "a call"])
async def test_who_asks_for_nothing_makes_room(said: bytes) -> None:
    async with serving(Workshop().server, max_connections=5) as site, AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(_wire(site)) for _ in range(20)]
        for wire in crowd[-5:]:
            wire.send(said)
            if said == CALL:
                assert (await wire.answer()).status == 200
        last = await stack.enter_async_context(_wire(site))
        last.send(CALL)
        assert text_of(await (await last.answer()).json()) == "2"
        assert [await wire.rest() for wire in crowd[:15]] == [b""] * 15


async def test_of_a_crowd_not_everybody_is_told_why() -> None:
    shop = Workshop()
    async with serving(shop.server, max_connections=1) as site, AsyncExitStack() as stack:
        busy = await stack.enter_async_context(_wire(site))
        busy.send(written_call("wait", gate="a"))
        await shop.at("a")
        crowd = [await stack.enter_async_context(_wire(site)) for _ in range(110)]
        said = [await wire.rest() for wire in crowd]
        assert {text[:13] for text in said} == {b"HTTP/1.1 503 ", b""}
        shop.gates["a"].set()
        assert (await busy.answer()).status == 200


async def test_who_does_not_read_a_long_answer_is_cut_off() -> None:
    server = Server("s")
    has_begun = asyncio.Event()

    @server.tool
    async def much(n: int) -> str:
        has_begun.set()
        return "x" * n

    async with serving(server, write_within=0.05) as site, _wire(site, limit=16) as wire:
        wire.send(written_call("much", n=30_000_000))
        await has_begun.wait()
        async with asyncio.timeout(PATIENCE):
            await _connection().closed


async def test_as_long_as_something_is_read_it_goes_on() -> None:
    class Transport:
        """Something from which a little is read, and then nothing. It notes when it is looked at."""

        def __init__(self) -> None:
            self.sizes = [300, 200, 200, 100, 100]
            self.is_aborted = asyncio.Event()

        def get_write_buffer_size(self) -> int:
            return self.sizes.pop(0) if self.sizes else 100

        def abort(self) -> None:
            self.is_aborted.set()

        def is_closing(self) -> bool:
            return self.is_aborted.is_set()

        def close(self) -> None: ...

        def get_extra_info(self, name: str) -> None: ...

    transport = Transport()
    app = Server("s").asgi(HttpOptions(write_within=0.01))
    config = Config(app, interface="asgi3", lifespan="off", ws="none", log_config=None)
    protocol = HardenedProtocol(config, ServerState(), app, {}, {}, lambda: False)
    protocol.connection_made(cast("asyncio.Transport", transport))
    protocol.pause_writing()
    async with asyncio.timeout(PATIENCE):
        await transport.is_aborted.wait()
    assert transport.sizes == []
    protocol.connection_lost(None)
    assert protocol.closed.done()


async def test_who_reads_slowly_gets_it_all() -> None:
    server = Server("s")

    @server.tool
    async def much(n: int) -> str:
        return "x" * n

    async with serving(server, write_within=30) as site, _wire(site, limit=4096) as wire:
        wire.send(written_call("much", n=20_000_000))
        await asyncio.sleep(0.2)
        assert len(text_of(await (await wire.answer()).json())) == 20_000_000


async def test_the_last_answer_is_written_before_the_connection_is_closed() -> None:
    async with serving(Workshop().server) as site, _wire(site) as wire:
        wire.send(written_call("chat", word="x" * 1_000_000, extra="Connection: close\r\n"))
        answer = await wire.answer()
        assert answer.headers["connection"] == "close"
        assert len(text_of(await answer.json())) > 1_000_000
        assert await wire.rest() == b""


def _connection() -> HardenedProtocol:
    """The one that is open."""
    found = [each for each in gc.get_objects() if isinstance(each, HardenedProtocol)]
    # Where TLS failed, there never was a connection.
    [connection] = [each for each in found if cast("Any", each.transport) is not None and not each.closed.done()]
    return connection
