# ruff: noqa: SIM117 - a server, a tap and a client in one line would be hard to read
from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from mcplumb import ConnectError, Context, Server, client_tls, connect, server_tls
from mcplumb.recording.recorder import Recorder
from mcplumb.recording.recording_format import Record, read_recording
from mcplumb.tap.http_tap import http_tap, serve_http_tap
from mcplumb.tap.read_session import SessionReader
from mcplumb.transports.address import HttpAddress
from tests.kit.loop import PATIENCE, until
from tests.kit.servers import serving
from tests.tap.sessions import META
from tests.tap.tapping import MCPLUMB
from tests.transports.socket_ends import CERTIFICATES


@asynccontextmanager
async def tapping(server: str, place: Path, **options: Any) -> AsyncIterator[tuple[str, Recorder]]:
    """A tap in front of a server, and its address."""
    app, recorder = http_tap(server, place=place, **options)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve_http_tap(app, HttpAddress("http", "127.0.0.1", 0, ""), ready.set_result))
    try:
        yield await ready, recorder
    finally:
        task.cancel()
        await asyncio.wait((task,))
        recorder.close(PATIENCE)


@asynccontextmanager
async def raw_server(answer: Any) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gets the bytes of a request, and writes what ``answer`` writes."""
    seen: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        seen.append(head + await reader.readexactly(size))
        await answer(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}", seen
    finally:
        server.close()


def records(path: Path) -> list[Record]:
    """The records of a file so far: none, as long as its recorder has not written the header."""
    if not path.exists() or not path.stat().st_size:
        return []
    return [record for _, record in read_recording(path)[1]]


server = Server("over http")
LISTEN = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "subscriptions/listen",
        "params": {"notifications": {"toolsListChanged": True}, "_meta": META},
    }
)
LISTEN_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "subscriptions/listen",
}


@server.tool()
async def count(ctx: Context, n: int) -> int:
    """Count."""
    for i in range(n):
        await ctx.progress(i + 1, n)
    return n


@pytest.mark.req("TAP-1")
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25", "2025-03-26"])
async def test_our_client_and_server_do_not_notice_a_tap(tmp_path: Path, revision: str) -> None:
    place = tmp_path / "a.mcp.jsonl"
    async with serving(server, "http://127.0.0.1:0/mcp") as (address,), tapping(address, place) as (at, _):
        seen: list[float] = []
        async with connect(f"{at}/mcp", revisions=[revision]) as client:
            result = await client.call_tool("count", {"n": 3}, on_progress=lambda value, *_: seen.append(value))
            assert result.text == "3"
            assert client.revision.name == revision
        assert seen[-1] == 3
    session = SessionReader(place).read_all()
    calls = {call.method: call for call in session.transcript.calls()}
    assert calls["tools/call"].state == "answered"
    assert len(calls["tools/call"].notes) >= 1
    assert session.findings.found == []
    assert session.transcript.server.name == "over http"


@pytest.mark.req("TAP-1")
async def test_bodies_and_headers_pass_unchanged(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(3_000_000)

    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 207 Odd\r\nX-One: 1\r\nX-One: 2\r\nContent-Type: application/octet-stream\r\n"
        writer.write(head + b"Content-Length: %d\r\nSet-Cookie: a=secret1\r\n\r\n" % len(data) + data)
        await writer.drain()

    place = tmp_path / "a"
    async with (
        raw_server(answer) as (address, seen),
        tapping(address, place) as (at, _),
        aiohttp.ClientSession() as http,
    ):
        body = b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\xc3\xa9\xff"}}'
        headers = {"Authorization": "Bearer abc123def", "X-Two": "b", "Content-Type": "application/json"}
        async with http.post(
            URL(f"{at}/a%20b/c?d=e%2Ff&token=qwertz", encoded=True), data=body, headers=headers
        ) as response:
            assert response.status == 207
            assert response.headers.getall("X-One") == ["1", "2"]
            assert hashlib.sha256(await response.read()).digest() == hashlib.sha256(data).digest()
    (request,) = seen
    head, _, sent = request.partition(b"\r\n\r\n")
    assert sent == body
    assert head.startswith(b"POST /a%20b/c?d=e%2Ff&token=qwertz HTTP/1.1\r\n")
    assert b"Authorization: Bearer abc123def" in head or b"authorization: Bearer abc123def" in head
    assert f"host: {address.removeprefix('http://')}".encode() in head.lower()
    await until(lambda: len(records(place)) == 2)
    written = place.read_bytes()
    for secret in (b"abc123def", b"secret1", b"qwertz"):
        assert secret not in written
    request_record, response_record = records(place)
    assert request_record.line == body
    assert request_record.http is not None
    assert request_record.http.method == "POST"
    assert response_record.http is not None
    assert response_record.http.status == 207
    assert response_record.line == data


@pytest.mark.req("TAP-1")
async def test_events_pass_as_they_come(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in (b": hello\n\n", b"id: 7\ndata: {}\n\n", b"event: odd\r\ndata: a\r\ndata: b\r\n\r\n"):
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
            await go.wait()
            go.clear()
        writer.write(b"0\r\n\r\n")

    place = tmp_path / "a"
    async with raw_server(answer) as (address, _), tapping(address, place) as (at, _), aiohttp.ClientSession() as http:
        async with http.get(f"{at}/sse") as response:
            for expected in (b": hello\n\n", b"id: 7\ndata: {}\n\n", b"event: odd\r\ndata: a\r\ndata: b\r\n\r\n"):
                assert await response.content.readexactly(len(expected)) == expected
                go.set()
            assert await response.content.read() == b""
    request, head, first, second, end = records(place)
    assert request.text is None
    assert head.http is not None
    assert head.http.status == 200
    assert first.text == "{}"
    assert first.http is not None
    assert first.http.event_id == "7"
    assert second.text == "a\nb"
    assert second.http is not None
    assert second.http.event == "odd"
    assert (end.event, end.sender) == ("end_of_stream", "server")


@pytest.mark.req("TAP-1")
async def test_a_client_that_goes_away_ends_the_stream_at_the_server(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await reader.read()
        ended.set()

    place = tmp_path / "a"
    async with raw_server(answer) as (address, _), tapping(address, place) as (at, _), aiohttp.ClientSession() as http:
        async with http.get(at) as response:
            await response.content.readexactly(9)
            response.close()
        await asyncio.wait_for(ended.wait(), PATIENCE)
    assert (records(place)[-1].event, records(place)[-1].sender) == ("end_of_stream", "client")


@pytest.mark.parametrize("size", [1, 3_000_000])
async def test_compressed_bodies_pass_and_are_recorded_as_text(size: int, tmp_path: Path) -> None:
    text = '{"jsonrpc":"2.0","id":1,"result":{"text":"%s"}}' % ("x" * size)
    packed = gzip.compress(text.encode())

    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
        writer.write(head + b"Content-Length: %d\r\n\r\n" % len(packed) + packed)

    place = tmp_path / "a"
    async with raw_server(answer) as (address, _), tapping(address, place) as (at, _):
        async with aiohttp.ClientSession(auto_decompress=False) as http, http.post(at, data=b"{}") as response:
            assert await response.read() == packed
    assert records(place)[1].text == text


async def test_a_server_that_is_not_there_is_reported(tmp_path: Path) -> None:
    place = tmp_path / "a"
    async with tapping("http://127.0.0.1:1", place) as (at, _), aiohttp.ClientSession() as http:
        async with http.post(at, data=b"{}") as response:
            assert response.status == 502
            assert "cannot reach the server" in await response.text()
    assert [record.event for record in records(place)] == [None, "disconnected"]


async def test_a_response_that_is_not_http_does_not_bring_secrets_into_the_recording(tmp_path: Path) -> None:
    async def echo(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no HTTP, but your key hunter2\r\n\r\n")

    async with (
        raw_server(echo) as (url, _),
        tapping(url, tmp_path / "a") as (at, _),
        aiohttp.ClientSession() as session,
    ):
        async with session.get(f"{at}/mcp?key=hunter2") as answer:
            assert answer.status == 502
            assert "hunter2" not in await answer.text()
    (failure,) = [record for record in records(tmp_path / "a") if record.event == "disconnected"]
    assert failure.reason is not None
    assert failure.reason.startswith("The server could not be reached, or ended the connection: ")
    assert "hunter2" not in failure.reason


async def test_a_server_that_dies_within_a_response_cuts_it_off(tmp_path: Path) -> None:
    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()
        writer.transport.abort()

    async with raw_server(answer) as (address, _), tapping(address, tmp_path / "a") as (at, _):
        async with aiohttp.ClientSession() as http:
            with pytest.raises(aiohttp.ClientError):
                async with http.get(at) as response:
                    await response.read()


@pytest.mark.req("TAP-1")
async def test_a_request_that_is_cut_off_is_not_passed_on(tmp_path: Path) -> None:
    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    place = tmp_path / "a"
    async with raw_server(answer) as (address, seen), tapping(address, place) as (at, _):
        url = URL(at)
        _, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\n{}")
        await writer.drain()
        writer.close()
        await until(lambda: len(records(place)) == 2)
    request, end = records(place)
    assert (request.text, request.torn) == ("{}", True)
    assert (end.event, end.sender) == ("end_of_stream", "client")
    assert seen == []


@pytest.mark.req("TAP-1")
@pytest.mark.parametrize("side", ["client", "server"])
async def test_a_response_that_breaks_off_is_recorded_as_torn(
    tmp_path: Path, side: str, caplog: pytest.LogCaptureFixture
) -> None:
    go = asyncio.Event()

    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"half')
        await writer.drain()
        await go.wait()
        writer.transport.abort()

    place = tmp_path / "a"
    async with raw_server(answer) as (address, _), tapping(address, place) as (at, _), aiohttp.ClientSession() as http:
        async with http.post(at, data=b"{}") as response:
            assert await response.content.readexactly(6) == b'{"half'
            if side == "client":
                response.close()
            else:
                go.set()
                with pytest.raises(aiohttp.ClientError):
                    await response.read()
        await until(lambda: len(records(place)) == 3)
        go.set()
    _, body, end = records(place)
    assert (body.text, body.torn) == ('{"half', True)
    assert caplog.records == []
    assert (end.event, end.sender) == ("end_of_stream", side)


@pytest.mark.parametrize(
    ("given", "passed"),
    [("gzip, deflate, br;q=0.9, zstd", "gzip, deflate"), ("br", "identity"), ("gzip;q=1.0, *", "gzip;q=1.0")],
)
async def test_only_compressions_that_can_be_read_are_asked_for(tmp_path: Path, given: str, passed: str) -> None:
    async def answer(_: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")

    async with raw_server(answer) as (address, seen), tapping(address, tmp_path / "a") as (at, _):
        async with aiohttp.ClientSession() as http:
            await (await http.post(at, data=b"{}", headers={"Accept-Encoding": given})).read()
            await (await http.post(at, data=b"{}", skip_auto_headers=("Accept-Encoding",))).read()
    first, second = (request.lower() for request in seen)
    assert b"accept-encoding: %b\r\n" % passed.encode() in first
    assert b"accept-encoding" not in second


async def test_other_names_are_refused(tmp_path: Path) -> None:
    """A web page whose name leads to the tap must not reach the server, which sees its own name."""
    async with tapping("http://127.0.0.1:1", tmp_path / "a") as (at, _), aiohttp.ClientSession() as http:
        async with http.post(at, data=b"{}", headers={"Host": "evil.example"}) as response:
            assert response.status == 403


@pytest.mark.req("TAP-2")
async def test_a_disk_that_is_full_harms_nothing(tmp_path: Path) -> None:
    async with serving(server, "http://127.0.0.1:0/mcp") as (address,), tapping(address, Path("/dev/full")) as (at, _):
        async with connect(f"{at}/mcp") as client:
            assert (await client.call_tool("count", {"n": 1})).text == "1"


async def test_the_command_runs_until_it_is_ended(tmp_path: Path) -> None:
    place = tmp_path / "a"
    async with serving(server, "http://127.0.0.1:0/mcp") as (address,):
        command = [*MCPLUMB, "tap", "--record", str(place), "--http", ":0", "-s", address, "--header", "X-Added: yes"]
        process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        assert line.startswith("The tap listens at http://127.0.0.1:")
        at = line.split()[4].rstrip(".")
        async with connect(at) as client:
            assert (await client.call_tool("count", {"n": 2})).text == "2"
        async with aiohttp.ClientSession() as http, http.post(at, data=LISTEN, headers=LISTEN_HEADERS) as response:
            assert await response.content.readuntil(b"\n\n")
            process.send_signal(signal.SIGTERM)
            assert await process.stderr.read() == b""
            assert await process.wait() == 0
    await until(place.exists)
    ended = [record for record in records(place) if record.reason == "The tap was ended."]
    assert [record.event for record in ended] == ["end_of_stream"]
    assert any(record.http is not None and record.http.header("x-added") is None for record in records(place))
    assert place.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(sys.platform != "linux", reason="the message differs")
def test_wrong_usage_is_reported() -> None:
    done = subprocess.run(
        [*MCPLUMB, "tap", "--http", "nonsense/x", "-s", "http://127.0.0.1:1/mcp"], capture_output=True, check=False
    )
    assert done.returncode == 2


async def test_a_server_with_its_own_certificate(tmp_path: Path) -> None:
    tls = server_tls(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    async with serving(server, "https://127.0.0.1:0/mcp", tls=tls) as (address,):
        async with tapping(address, tmp_path / "refused.mcp.jsonl") as (tap, _):
            with pytest.raises(ConnectError, match="502"):
                await connect(f"{tap.rstrip('/')}/mcp")
        async with tapping(address, tmp_path / "a.mcp.jsonl", tls=client_tls(CERTIFICATES / "ca.pem")) as (tap, _):
            async with connect(f"{tap.rstrip('/')}/mcp") as client:
                await client.ping()
