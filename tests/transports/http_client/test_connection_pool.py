from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import subprocess
import sys

import pytest

from mcplumb.errors import ConnectError, ConnectTimeout, HttpError, McplumbError, ProtocolError, RequestLost, UsageError
from mcplumb.transports.http_client import connection_pool as module
from mcplumb.transports.http_client.connection_pool import ConnectionPool
from mcplumb.transports.http_client.post_queue import Body
from tests.kit.leaks import leaves_nothing, nothing_left
from tests.kit.loop import run, turns
from tests.kit.ports import FreePort
from tests.transports.http_client.raw import Asked, RawServer, Reply, Script, crowded
from tests.transports.socket_ends import CERTIFICATES

pytestmark = leaves_nothing


async def fails(pool: ConnectionPool, method: str = "POST") -> McplumbError:
    with pytest.raises(McplumbError) as caught:
        async with pool.request(method, pool.url, {}, Body(b"{}")):
            raise AssertionError("it should not get here")
    await pool.close()
    return caught.value


async def serve(script: Script, tls: ssl.SSLContext | None = None) -> RawServer:
    server = RawServer(script)
    await server.open(tls)
    return server


# --- Redirects ---


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_within_the_origin_is_followed_with_everything(status: int) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.target == "/mcp":
            await reply.send(status, Location="/mcp/")
        else:
            await reply.send(200, b"{}")

    async def main() -> None:
        server = await serve(script)
        pool = ConnectionPool(server.url, headers={"Authorization": "Bearer t"})
        async with pool.request("POST", pool.url, {"Mcp-Method": "ping"}, Body(b"[1]")) as response:
            assert response.status == 200
        assert [asked.target for asked in server.asked] == ["/mcp", "/mcp/"]
        for asked in server.asked:
            assert (asked.method, asked.body) == ("POST", b"[1]")
            assert asked.headers["authorization"] == "Bearer t"
            assert asked.headers["mcp-method"] == "ping"
        assert server.came == 1
        await pool.close()
        await server.close()

    run(main())


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:{other}/mcp",
        "//localhost:{other}/",
        "https:/x",
        "",
        "http://[",
        "http://user:pass@127.0.0.1:{own}/mcp",
        "//user@127.0.0.1:{own}/mcp",
        "//:pass@127.0.0.1:{own}/mcp",
    ],
)
async def test_a_redirect_elsewhere_is_refused_and_nothing_is_sent_there(location: str) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.send(307, Location=location.format(other=other.port, own=server.port))

    async def script_elsewhere(asked: Asked, reply: Reply) -> None:
        raise AssertionError("nothing is to come here")

    other: RawServer
    server: RawServer

    other = await serve(script_elsewhere)
    server = await serve(script)
    error = await fails(ConnectionPool(server.url, headers={"Authorization": "Bearer secret"}))
    assert isinstance(error, HttpError)
    assert "Nothing was sent there" in str(error)
    assert "secret" not in str(error)
    assert other.came == 0
    assert len(server.asked) == 1
    await server.close()
    await other.close()


async def test_redirects_do_not_go_on_for_ever() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.send(307, Location="/again")

    server = await serve(script)
    pool = ConnectionPool(server.url)
    async with pool.request("GET", pool.url, {}) as response:
        assert response.status == 307
    assert len(server.asked) == 6
    await pool.close()
    await server.close()


# --- What goes wrong ---


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_that_does_not_run(host: str, free_port: FreePort) -> None:
    error = await fails(ConnectionPool(f"http://{host}:{free_port()}/mcp?secret=1"))
    assert isinstance(error, ConnectError)
    assert "cannot be reached: nothing listens there. Start the server" in str(error)
    assert "secret" not in str(error)


async def test_a_name_that_nobody_knows() -> None:
    error = await fails(ConnectionPool("http://nobody.invalid/mcp"))
    assert isinstance(error, ConnectError)
    assert "http://nobody.invalid cannot be reached: its name could not be resolved" in str(error)


async def test_a_server_that_takes_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CONNECT_TIMEOUT", 0.2)

    with crowded() as url:
        error = await fails(ConnectionPool(url))
    assert isinstance(error, ConnectTimeout)
    assert "no connection within 0.2 s" in str(error)


async def test_what_is_no_http() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.raw(b"SSH-2.0-OpenSSH\r\n\r\n")
        reply.cut()

    server = await serve(script)
    error = await fails(ConnectionPool(server.url))
    assert isinstance(error, ProtocolError)
    assert "is not HTTP" in str(error)
    await server.close()


@pytest.mark.parametrize("head", [b"X: " + b"x" * 20_000, b"\r\n".join(b"X-%d: 1" % number for number in range(1000))])
async def test_a_head_without_end_is_not_read(head: bytes) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.raw(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
        reply.cut()

    server = await serve(script)
    error = await fails(ConnectionPool(server.url))
    assert isinstance(error, ProtocolError)
    await server.close()


@pytest.mark.parametrize("is_reset", [True, False])
async def test_a_connection_that_ends_before_the_response(is_reset: bool) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if is_reset:
            reply.reset()
        else:
            reply.cut()

    server = await serve(script)
    error = await fails(ConnectionPool(server.url))
    assert isinstance(error, RequestLost)
    assert len(server.asked) == 1  # and not twice
    await server.close()


# --- TLS and proxies ---


def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    return context


async def pong(asked: Asked, reply: Reply) -> None:
    await reply.send(200, b"{}")


async def test_tls_is_checked_and_can_be_told_whom_to_trust() -> None:
    server = await serve(pong, server_tls())
    error = await fails(ConnectionPool(server.url))
    assert isinstance(error, ConnectError)
    assert "cannot be trusted" in str(error)
    assert "tls=ssl.create_default_context(cafile=…)" in str(error)
    pool = ConnectionPool(server.url, tls=ssl.create_default_context(cafile=CERTIFICATES / "ca.pem"))
    async with pool.request("POST", pool.url, {}, Body(b"{}")) as response:
        assert response.status == 200
    await pool.close()
    await server.close()


async def test_a_server_without_tls() -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        error = await fails(ConnectionPool(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"))
    assert isinstance(error, ConnectError)
    assert "TLS failed at" in str(error)


async def test_a_proxy_is_gone_through() -> None:
    proxy = await serve(pong)
    pool = ConnectionPool("http://nobody.invalid/mcp", proxy=f"http://me:word@127.0.0.1:{proxy.port}")
    async with pool.request("POST", pool.url, {}, Body(b"{}")) as response:
        assert response.status == 200
    [asked] = proxy.asked
    assert asked.target == "http://nobody.invalid/mcp"
    assert asked.headers["proxy-authorization"] == "Basic bWU6d29yZA=="
    await pool.close()
    await proxy.close()


async def test_a_proxy_that_cannot_be_used(free_port: FreePort) -> None:
    async def refuse(asked: Asked, reply: Reply) -> None:
        await reply.send(407)

    url = f"http://me:word@127.0.0.1:{free_port()}"
    error = await fails(ConnectionPool("http://nobody.invalid/mcp", proxy=url))
    assert isinstance(error, ConnectError)
    assert "The proxy http://127.0.0.1" in str(error)
    assert "word" not in str(error)
    proxy = await serve(refuse)
    error = await fails(ConnectionPool("https://nobody.invalid/mcp", proxy=f"http://127.0.0.1:{proxy.port}"))
    assert isinstance(error, ConnectError)
    assert "refused to connect to https://nobody.invalid: it answered with HTTP 407" in str(error)
    await proxy.close()


@pytest.mark.parametrize("proxy", ["127.0.0.1:8080", "socks5://me:word@host:1", "http://", "http://[", 5])
def test_what_is_no_proxy(proxy: str) -> None:
    with pytest.raises(UsageError, match="proxy='http://host:port'") as caught:
        ConnectionPool("http://127.0.0.1/", proxy=proxy)
    assert "word" not in str(caught.value)


# --- Closing ---


async def test_it_opens_again_after_it_was_closed() -> None:
    server = await serve(pong)
    pool = ConnectionPool(server.url)
    await pool.close()
    pool.kill()
    for _ in range(2):
        async with pool.request("GET", pool.url, {}) as response:
            assert response.status == 200
        await pool.close()
    assert server.came == 2
    await server.close()


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_server_that_reads_nothing_holds_nothing_up(
    is_cancelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CLOSE_TIMEOUT", 0.05)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await leave.wait()
        writer.transport.abort()

    came, leave = asyncio.Event(), asyncio.Event()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1)
    pool = ConnectionPool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    body = Body(b"x" * 50_000_000)

    async def send() -> None:
        async with pool.request("POST", pool.url, {}, body):
            raise AssertionError("nobody answers")

    task = asyncio.create_task(send())
    await came.wait()
    while body._transport is None or not body._transport.get_write_buffer_size():
        await turns()
    if is_cancelled:
        task.cancel()
        await asyncio.wait((task,))
    await pool.close()
    await asyncio.wait((task,))
    assert task.cancelled() or isinstance(task.exception(), RequestLost)
    leave.set()
    server.close()


def test_it_can_be_killed_in_the_middle() -> None:
    async def hang(asked: Asked, reply: Reply) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        server = await serve(hang)
        pool = ConnectionPool(server.url)

        async def send() -> None:
            async with pool.request("POST", pool.url, {}, Body(b"{}")):
                raise AssertionError("nobody answers")

        task = asyncio.create_task(send())
        await server.until(lambda: server.asked)
        pool.kill()
        pool.kill()
        await asyncio.wait((task,))
        assert isinstance(task.exception(), RequestLost)
        await server.close()

    run(main())
    gc.collect()


def test_or_after_its_loop() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.send(200, b"{}", Connection="close")
        reply.cut()

    async def main() -> None:
        server = await serve(script)
        pools.append(pool := ConnectionPool(server.url))
        async with pool.request("GET", pool.url, {}) as response:
            await response.read()
        await server.close()
        await turns()

    pools: list[ConnectionPool] = []
    with nothing_left():
        run(main())
        left = pools[0]._make_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("", 0)))
        pools[0].kill()
        assert left.fileno() == -1
    gc.collect()


def test_or_when_its_loop_was_dropped_with_everything_in_it() -> None:
    # In a program of its own, because asyncio complains about that.
    program = """
import asyncio, os
from mcplumb.transports.http_client.connection_pool import ConnectionPool

kept = []

async def accept(reader, writer):
    kept.append(writer)
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}")

async def main():
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    pool = ConnectionPool(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
    async with pool.request("GET", pool.url, {}) as response:
        print(await response.content.read())
    return pool

loop = asyncio.new_event_loop()
pool = loop.run_until_complete(main())
ours = [each.fileno() for each in pool._sockets]
loop.close()
pool.kill()
for number in ours:
    try:
        os.fstat(number)
    except OSError:
        print("gone")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60)
    assert ran.stdout.split() == [b"b'{}'", b"gone"]
    assert b"Unclosed" not in ran.stderr
