"""TLS for a Redis: ports that lead to one whose program was built without TLS, and options for one that has it."""

from __future__ import annotations

import asyncio
import select
import socket
import socketserver
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Self

import pytest

from tests.kit.ports import held_port
from tests.kit.redis_server import RedisServer, running_redis
from tests.transports.socket_ends import CERTIFICATES

#: How the handshake of TLS begins.
_HANDSHAKE = b"\x16"


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # the other direction ends as well, by the close
    finally:
        writer.close()


def _tls() -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    return tls


@asynccontextmanager
async def behind_tls(redis: RedisServer) -> AsyncIterator[int]:
    """Accept TLS on a port, and pass what comes on to a Redis: the program of the wheel has no TLS of its own."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_redis, to_redis = await asyncio.open_connection("127.0.0.1", redis.port)
        await asyncio.gather(pass_on(reader, to_redis), pass_on(from_redis, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=_tls())
    async with server:
        yield server.sockets[0].getsockname()[1]


class Front(socketserver.ThreadingTCPServer):
    """A port that leads to a Redis, with and without TLS: sentinels without TLS name it to clients with TLS.

    It has threads of its own, so that the sentinels reach it whatever the test does.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, redis: RedisServer) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.redis = redis
        self.tls = _tls()
        self.port: int = self.server_address[1]
        #: Connections with TLS that were accepted.
        self.handshakes = 0

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Connection(socketserver.BaseRequestHandler):
    server: Front
    request: socket.socket

    def handle(self) -> None:
        with suppress(OSError):  # one of the ends is gone: the other one notices
            client = self.request
            if client.recv(1, socket.MSG_PEEK) == _HANDSHAKE:
                client = self.server.tls.wrap_socket(client, server_side=True)
                self.server.handshakes += 1
            with client, socket.create_connection(("127.0.0.1", self.server.redis.port)) as redis:
                while True:
                    ready, _, _ = select.select((client, redis), (), ())
                    for end in ready:
                        data = end.recv(65536)
                        # What TLS has decrypted already does not make the socket readable.
                        while isinstance(end, ssl.SSLSocket) and end.pending():
                            data += end.recv(65536)
                        if not data:
                            return
                        (redis if end is client else client).sendall(data)


@contextmanager
def redis_with_tls(*extra: str) -> Iterator[tuple[RedisServer, int]]:
    """A Redis or sentinel with a second port, for TLS; the test is skipped if the program was built without TLS."""
    files = {
        "cert": CERTIFICATES / "server.pem",
        "key": CERTIFICATES / "server.key",
        "ca-cert": CERTIFICATES / "ca.pem",
    }
    options = [word for name, path in files.items() for word in (f"--tls-{name}-file", str(path))]
    options += ["--tls-auth-clients", "no", "--tls-replication", "yes"]
    with ExitStack() as stack:
        port: int = stack.enter_context(held_port()).getsockname()[1]
        options += ["--tls-port", str(port)]
        try:
            server = stack.enter_context(running_redis(*extra, *options))
        except RuntimeError as error:
            if "Bad directive" not in str(error):
                raise
            pytest.skip("This redis-server was built without TLS.")
        yield server, port
