"""Connections over sockets: how they read, write, end, and come about."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from mcplumb.errors import ConnectError, ConnectTimeout, UsageError
from mcplumb.limits import DEFAULT_LIMITS
from mcplumb.transports.address import TcpAddress, UnixAddress
from mcplumb.transports.socket_connection import (
    SocketConnection,
    check_tls,
    configure_socket,
    open_connection,
    resolve_host,
)
from mcplumb.wire.messages import Notification, Request, Result
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import turns
from tests.kit.ports import FreePort
from tests.transports.ends import Recorder
from tests.transports.socket_ends import (
    WAYS,
    line,
    listening,
    short_folder,
    somebody_else,
    tcp_sockets,
    tls_of_client,
    tls_of_server,
)

pytestmark = leaves_nothing


MEGABYTE = 1024 * 1024


SOCKETS: dict[str, Callable[[], tuple[socket.socket, socket.socket]]] = {"unix": socket.socketpair, "tcp": tcp_sockets}


def connection_over(
    end: socket.socket, *, linger: float = 0.0, refused: Callable[[], None] | None = None
) -> tuple[SocketConnection, Recorder]:
    configure_socket(end)
    connection = SocketConnection.over(
        end, limits=DEFAULT_LIMITS, expect=Request, trace=None, linger=linger, refused=refused
    )
    return connection, Recorder()


# --- A connection ---


@pytest.mark.req("STR-1")
@pytest.mark.parametrize("kind", SOCKETS)
async def test_both_ways_over_one_descriptor(kind: str) -> None:
    near, far = SOCKETS[kind]()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    left, left_side = connection_over(near)
    right, right_side = connection_over(far)
    left.start(left_side)
    right.start(right_side)
    # Beside the null device, nothing more is open than before.
    assert len(os.listdir("/proc/self/fd")) == before + 1  # noqa: PTH208
    left.send(Notification("a", {"text": "x" * 5 * MEGABYTE}))
    right.send(Notification("b", {"text": "x" * 5 * MEGABYTE}))
    await left_side.until_count(1)
    await right_side.until_count(1)
    assert (left_side.names, right_side.names) == (["b"], ["a"])
    await left.close()
    await right_side.until_end()
    assert right_side.ends == [True]
    assert right.failure is None
    await right.close()


def test_tcp_is_prompt_and_watched() -> None:
    near, far = tcp_sockets()
    with near, far:
        configure_socket(near)
        assert near.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert near.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not near.getblocking()


@pytest.mark.req("STR-1")
@pytest.mark.parametrize("kind", SOCKETS)
async def test_what_was_written_arrives_though_the_peer_was_still_talking(kind: str) -> None:
    near, far = SOCKETS[kind]()
    connection, side = connection_over(near, linger=60)
    connection.start(side)
    connection.pause()
    far.sendall(b"x" * 1000)  # which is never read, or what comes next would be lost
    connection.send(Notification("last", {"text": "x" * MEGABYTE}))
    closing = asyncio.ensure_future(connection.close())
    far.settimeout(60)
    text = b""
    while not text.endswith(b"\n"):
        text += await asyncio.to_thread(far.recv, MEGABYTE)
    far.sendall(b"more of it")
    assert await asyncio.to_thread(far.recv, 1) == b""
    assert not closing.done()
    far.close()
    await closing
    await connection.close()


async def test_a_peer_that_goes_on_talking_is_not_waited_for_for_long() -> None:
    near, far = socket.socketpair()
    connection, side = connection_over(near, linger=0.01)
    connection.start(side)
    await connection.close()
    with far:
        assert far.recv(1) == b""


@pytest.mark.parametrize("how", ["abort", "cancel"])
async def test_waiting_for_the_peer_can_be_cut_short(how: str) -> None:
    near, far = socket.socketpair()
    with far:
        connection, side = connection_over(near, linger=60)
        connection.start(side)
        closing = asyncio.ensure_future(connection.close())
        await turns()
        assert not closing.done()
        if how == "abort":
            connection.abort()
            await closing
        else:
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
        connection.abort()


async def test_nobody_is_waited_for_who_is_gone_or_has_said_the_last_word() -> None:
    for leave in (lambda end: end.shutdown(socket.SHUT_WR), socket.socket.close, _reset):
        near, far = tcp_sockets()
        connection, side = connection_over(near, linger=60)
        connection.start(side)
        leave(far)
        await side.until_end()
        await connection.close()
        far.close()


def _reset(end: socket.socket) -> None:
    """Close it as a machine does that knows nothing of the connection any more."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    end.close()


async def test_a_reset_while_waiting_for_the_last_word() -> None:
    near, far = tcp_sockets()
    connection, side = connection_over(near, linger=60)
    connection.start(side)
    closing = asyncio.ensure_future(connection.close())
    await turns()
    _reset(far)
    await closing


async def test_a_reset_is_remembered() -> None:
    near, far = tcp_sockets()
    connection, side = connection_over(near)
    connection.start(side)
    _reset(far)
    await side.until_end()
    assert side.ends == [False]
    assert isinstance(connection.failure, ConnectionResetError)
    connection.abort()


def test_after_the_event_loop_it_can_still_be_aborted() -> None:
    near, far = socket.socketpair()

    async def main() -> SocketConnection:
        connection, side = connection_over(near)
        connection.start(side)
        return connection

    asyncio.run(main()).abort()
    with far:
        assert far.recv(1) == b""


# --- Strangers ---


@pytest.mark.req("STR-4")
@pytest.mark.parametrize("first", [b"POST / HTTP/1.1\r\n", b"GET /", b"\x16\x03\x01"])
async def test_who_speaks_another_protocol_is_not_listened_to(first: bytes) -> None:
    near, far = tcp_sockets()
    refusals: list[bool] = []
    connection, side = connection_over(near, refused=lambda: refusals.append(True))
    connection.start(side)
    far.sendall(first + b"\r\n\r\n" + line(1))
    await side.until_end()
    far.sendall(line(2))
    connection.pause()
    connection.resume()
    await turns()
    assert (side.items, side.ends, refusals) == ([], [False], [True])
    connection.abort()
    far.close()


@pytest.mark.parametrize("first", [b"", b"\n", b"null\n", b"garbage\n", b"[]\n"])
async def test_all_others_are_heard(first: bytes) -> None:
    near, far = tcp_sockets()
    connection, side = connection_over(near, refused=lambda: pytest.fail("refused"))
    connection.start(side)
    far.sendall(first + line(1))
    await side.until(lambda: side.names)
    far.sendall(b"POST\n" + line(2))  # only the first byte of all can tell
    await side.until(lambda: side.names == ["echo", "echo"])
    connection.abort()
    far.close()


# --- Connecting ---


@pytest.mark.req("STR-1")
@pytest.mark.parametrize("way", WAYS)
async def test_connecting(way: str) -> None:
    async with listening(way) as place:
        connection = await open_connection(place.address, tls=place.tls)
        side = Recorder()
        connection.start(side)
        connection.send(Request(1, "echo", {"a": "b"}))
        await side.until_count(1)
        answer = side.items[0]
        assert isinstance(answer, Result)
        assert bytes(answer.result) == b'{"a":"b"}'
        await connection.close()


async def test_a_port_where_nothing_listens(free_port: FreePort) -> None:
    for host in ("127.0.0.1", "localhost"):
        address = TcpAddress(host, free_port())
        with pytest.raises(ConnectError) as caught:
            await open_connection(address)
        assert str(caught.value) == (
            f"The server at {address} cannot be reached: nothing listens there. Start the server, or check the address."
        )


@pytest.mark.parametrize("host", ["a..b", "nobody.invalid"])
async def test_a_host_that_is_not_found(host: str) -> None:
    with pytest.raises(ConnectError, match=rf"the host '{host}' was not found \(.+\)\. Check its name\."):
        await open_connection(TcpAddress(host, 1))


async def test_a_port_to_which_nobody_can_connect() -> None:
    with pytest.raises(ConnectError, match=r"cannot be reached: [A-Z].+\."):
        await open_connection(TcpAddress("255.255.255.255", 1))


def _leave_behind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def _listen_for_packets(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    server.bind(str(path))
    return server


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "there is no such file. Start the server, or check the path."),
        (Path.touch, "the file is not a socket. Check the path."),
        (Path.mkdir, "the file is not a socket. Check the path."),
        (_leave_behind, "nothing listens there, and the socket file is stale. Start the server again."),
        (_listen_for_packets, "Protocol wrong type for socket."),
    ],
)
async def test_a_file_where_nothing_listens(make: Callable[[Path], object], said: str) -> None:
    with short_folder() as folder:
        path = folder / "s"
        made = make(path)
        with pytest.raises(ConnectError) as caught:
            await open_connection(UnixAddress(str(path)))
        assert str(caught.value) == f"The server at unix:{path} cannot be reached: {said}"
        if isinstance(made, socket.socket):
            made.close()


async def test_a_folder_that_must_not_be_looked_into() -> None:
    async with listening("unix") as place:
        assert isinstance(place.address, UnixAddress)
        with somebody_else(Path(place.address.path)), pytest.raises(ConnectError, match="belongs to another user"):
            await open_connection(place.address)


async def test_a_server_that_takes_nobody_in_is_not_waited_for_for_ever() -> None:
    with short_folder() as folder, socket.socket(socket.AF_UNIX) as server:
        path = str(folder / "s")
        server.bind(path)
        server.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(path)
            with pytest.raises(ConnectTimeout, match="it did not answer in time"):
                await open_connection(UnixAddress(path), within=0.1)
            opening = asyncio.ensure_future(open_connection(UnixAddress(path)))
            await asyncio.sleep(0.05)
            server.accept()[0].close()
            (await opening).abort()
            await turns()


async def test_connecting_can_be_cancelled() -> None:
    with short_folder() as folder, socket.socket(socket.AF_UNIX) as server:
        path = str(folder / "s")
        server.bind(path)
        server.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(path)
            opening = asyncio.ensure_future(open_connection(UnixAddress(path)))
            await turns()
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening


async def test_every_address_of_a_host_is_tried() -> None:
    """The name of this machine stands for ::1 as well as for 127.0.0.1, on most machines."""

    async with listening("tcp") as place:
        assert isinstance(place.address, TcpAddress)
        connection = await open_connection(TcpAddress("localhost", place.address.port))
        await connection.close()


async def test_a_number_is_not_looked_up() -> None:
    assert [info[4][:2] for info in await resolve_host(TcpAddress("::1", 5))] == [("::1", 5)]


async def test_a_server_without_tls() -> None:
    async with listening("tcp") as place:
        with pytest.raises(ConnectError, match="Perhaps the server does not use TLS"):
            await open_connection(place.address, tls=tls_of_client())


async def test_tls_is_for_tcp() -> None:
    with pytest.raises(UsageError, match="TLS is only for TCP"):
        await open_connection(UnixAddress("/x"), tls=tls_of_client())
    with pytest.raises(UsageError, match=r"tls was made for a server: make it with client_tls\(\)"):
        await open_connection(TcpAddress("127.0.0.1", 1), tls=tls_of_server())
    with pytest.raises(UsageError, match=r"tls was made for a client: make it with server_tls\("):
        check_tls(TcpAddress("127.0.0.1", 1), tls_of_client(), is_server=True)
