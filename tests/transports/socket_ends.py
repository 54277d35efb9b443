"""What the tests of sockets share: short paths, certificates, a server that echoes, and clients that know no MCP."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.address import SocketAddress, TcpAddress, UnixAddress
from mcplumb.transports.connection import Connection, Peer
from mcplumb.transports.socket_listener import Listener
from mcplumb.transports.tls import client_tls, server_tls
from mcplumb.wire.messages import Request, Result
from tests.transports.ends import Item, Recorder

CERTIFICATES = Path(__file__).parent.parent / "data" / "tls"

#: Every way to a server over a socket.
WAYS = ["unix", "tcp", "tls"]

LOCAL = TcpAddress("127.0.0.1", 0)


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for a name: the path of a socket must not be long."""
    with tempfile.TemporaryDirectory(prefix="m") as folder:
        yield Path(folder)


@contextmanager
def somebody_else(path: Path) -> Iterator[None]:
    """Somebody who must not use a file: another user if we are root, and otherwise a file that is for nobody."""
    if os.geteuid() == 0:
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)
    else:
        path.chmod(0)
        yield


def tls_of_server(*, checks_clients: bool = False) -> ssl.SSLContext:
    client_ca = CERTIFICATES / "ca.pem" if checks_clients else None
    return server_tls(CERTIFICATES / "server.pem", CERTIFICATES / "server.key", client_ca=client_ca)


def tls_of_client(identity: str | None = None) -> ssl.SSLContext:
    if identity is None:
        return client_tls(CERTIFICATES / "ca.pem")
    return client_tls(CERTIFICATES / "ca.pem", CERTIFICATES / f"{identity}.pem", CERTIFICATES / f"{identity}.key")


async def echo(connection: Connection, peer: Peer) -> None:
    """Answers each request with its own parameters, until the client has nothing more to say."""

    def answer(item: Item) -> None:
        if isinstance(item, Request):
            connection.send(Result(item.id, item.params or {}))

    side = Recorder(answer)
    connection.start(side)
    await side.until(lambda: side.ends or side.errors)
    await connection.close()


class Place:
    """A server that listens, and how to reach it."""

    def __init__(self, listener: Listener, tls: ssl.SSLContext | None) -> None:
        self.listener = listener
        self.address: SocketAddress = listener.address
        self.tls = tls

    async def knock(self) -> Caller:
        """Connect, without MCP."""
        if isinstance(self.address, UnixAddress):
            return Caller(*await asyncio.open_unix_connection(self.address.path, limit=2**26))
        return await self.knock_at(self.address.host)

    async def knock_at(self, host: str) -> Caller:
        """Connect to another of its hosts, without MCP."""
        assert isinstance(self.address, TcpAddress)
        name = host if self.tls is not None else None
        return Caller(
            *await asyncio.open_connection(host, self.address.port, ssl=self.tls, server_hostname=name, limit=2**26)
        )


class Caller:
    """A client of its own making."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request_id: int, **params: Any) -> dict[str, Any]:
        self.put(request_id, **params)
        return await self.answer()

    def put(self, request_id: int, **params: Any) -> None:
        self.writer.write(line(request_id, **params))

    async def answer(self) -> dict[str, Any]:
        text = await self.reader.readline()
        answer: dict[str, Any] = msgspec.json.decode(text)
        return answer

    async def ended(self) -> bool:
        """Whether the server closes the connection without another word."""
        try:
            return await self.reader.read(1) == b""
        except (ConnectionError, ssl.SSLError):
            return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (ConnectionError, ssl.SSLError):
            return


def line(request_id: int, **params: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": request_id, "method": "echo", "params": params}) + b"\n"


@asynccontextmanager
async def listening(way: str, *, limits: Limits = DEFAULT_LIMITS, serve: Any = echo) -> AsyncIterator[Place]:
    """A server at a socket of this kind."""
    with short_folder() as folder:
        address = UnixAddress(str(folder / "s")) if way == "unix" else LOCAL
        listener = await Listener.open(address, serve, limits=limits, tls=tls_of_server() if way == "tls" else None)
        try:
            yield Place(listener, tls_of_client() if way == "tls" else None)
        finally:
            await listener.close()


def tcp_sockets() -> tuple[socket.socket, socket.socket]:
    """Two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening_socket:
        near = socket.create_connection(listening_socket.getsockname())
        far, _ = listening_socket.accept()
    return near, far


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What servers have logged."""
    return [record.getMessage() for record in caplog.records if record.name == "mcplumb.server"]


async def turn_until(condition: Any) -> None:
    """Let the loop turn, in real time, until this is so."""
    while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
        await asyncio.sleep(0.001)
