"""TLS over sockets: whom to trust, the handshake, and what goes over it afterwards."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from mcplumb.errors import ConnectError, UsageError
from mcplumb.limits import DEFAULT_LIMITS
from mcplumb.transports.address import TcpAddress
from mcplumb.transports.socket_connection import SocketConnection, open_connection, prepare
from mcplumb.transports.tls import Tls, client_tls, secure, server_tls
from mcplumb.wire.messages import Notification, Request, Result
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import turns
from tests.transports.ends import Recorder
from tests.transports.socket_ends import (
    CERTIFICATES,
    line,
    listening,
    tcp_sockets,
    tls_of_client,
    tls_of_server,
)

pytestmark = leaves_nothing


MEGABYTE = 1024 * 1024
CERT, KEY, CA = CERTIFICATES / "server.pem", CERTIFICATES / "server.key", CERTIFICATES / "ca.pem"


# --- Contexts ---


def test_a_server_and_its_clients() -> None:
    assert server_tls(CERT, KEY).verify_mode == ssl.CERT_NONE
    assert server_tls(CERT, KEY, client_ca=CA).verify_mode == ssl.CERT_REQUIRED
    for context in (client_tls(), client_tls(CA), client_tls(CA, CERTIFICATES / "client.pem", KEY.with_stem("client"))):
        assert context.check_hostname
        assert context.verify_mode == ssl.CERT_REQUIRED


def test_a_key_in_the_same_file(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(CERT.read_bytes() + KEY.read_bytes())
    server_tls(both)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: server_tls("/missing", KEY), r"/missing and .*server\.key, cannot be read: No such file"),
        (lambda: server_tls(CERT), r"server\.pem cannot be used for TLS: give a certificate and the key"),
        (lambda: server_tls(CERT, KEY.with_stem("client")), r"cannot be used for TLS.* \(KEY_VALUES_MISMATCH\)"),
        (lambda: server_tls(CERT, KEY.with_stem("locked")), "The key is encrypted"),
        (lambda: server_tls(CERT, KEY, client_ca="/missing"), "to trust, /missing, cannot be read: No such file"),
        (lambda: client_tls(KEY), r"server\.key has no certificate in PEM form to trust"),
        (lambda: client_tls(CA, key=KEY), "A key is of no use without its certificate"),
    ],
)
def test_files_that_cannot_be_used(make: Callable[[], ssl.SSLContext], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()


# --- The handshake ---


async def failure_of(tls: ssl.SSLContext, address: TcpAddress) -> str:
    with pytest.raises(ConnectError) as caught:
        await open_connection(address, tls=tls)
    return str(caught.value)


async def test_a_server_that_is_not_trusted() -> None:
    async with listening("tls") as place:
        assert isinstance(place.address, TcpAddress)
        said = await failure_of(client_tls(CERTIFICATES / "other-ca.pem"), place.address)
        assert said.startswith(f"The server at {place.address} cannot be reached: its certificate is not trusted: ")
        assert said.endswith("If it is the right server, trust its authority with client_tls(ca=…).")
        said = await failure_of(tls_of_client(), TcpAddress("127.0.0.2", place.address.port))
        assert "cannot be reached" in said


async def test_a_name_that_is_not_the_servers() -> None:
    near, far = tcp_sockets()
    with near, far:
        for end in (near, far):
            end.setblocking(False)
        serving = asyncio.ensure_future(Tls(tls_of_server(), host=None).shake_hands(far))
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            await Tls(tls_of_client(), host="example.org").shake_hands(near)
        with pytest.raises(ssl.SSLError, match="ALERT"):
            await serving


@pytest.mark.parametrize("identity", ["client", "stranger", None])
async def test_a_server_that_checks_its_clients(identity: str | None) -> None:
    near, far = tcp_sockets()
    for end in (near, far):
        prepare(end)
    serving = asyncio.ensure_future(secured(far, tls_of_server(checks_clients=True), None))
    client = await secured(near, tls_of_client(identity), "localhost")
    side = Recorder()
    client.start(side)
    if identity == "client":
        server = await serving
        server.send(Notification("welcome"))
        server.start(Recorder())
        await side.until_count(1)
        server.abort()
    else:
        # With TLS 1.3 a client learns of this only when it reads.
        with pytest.raises(ssl.SSLError, match=r"PEER_DID_NOT_RETURN_A_CERTIFICATE|CERTIFICATE_VERIFY_FAILED"):
            await serving
        await side.until_end()
        assert side.ends == [False]
        assert isinstance(client.failure, ssl.SSLError)
        far.close()
    client.abort()


async def test_a_plain_client_at_a_port_with_tls() -> None:
    async with listening("tls") as place:
        assert isinstance(place.address, TcpAddress)
        connection = await open_connection(place.address)
        side = Recorder()
        connection.start(side)
        connection.send(Request(1, "echo"))
        await side.until_end()
        assert not any(isinstance(item, Result) for item in side.items)
        connection.abort()


async def test_a_client_with_tls_at_a_plain_port() -> None:
    async with listening("tcp") as place:
        assert isinstance(place.address, TcpAddress)
        said = await failure_of(tls_of_client(), place.address)
        assert "TLS failed (" in said
        assert said.endswith("Perhaps the server does not use it, or wants a certificate.")


@pytest.mark.parametrize("last_words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_a_peer_that_leaves_during_the_handshake(last_words: bytes) -> None:
    near, far = tcp_sockets()
    with near, far:
        near.setblocking(False)
        shaking = asyncio.ensure_future(Tls(tls_of_client(), host="localhost").shake_hands(near))
        await turns()
        far.sendall(last_words)
        far.shutdown(socket.SHUT_WR)
        with pytest.raises(ssl.SSLError):
            await shaking


async def test_a_handshake_can_be_cancelled() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = TcpAddress("127.0.0.1", server.getsockname()[1])
        opening = asyncio.ensure_future(open_connection(address, tls=tls_of_client()))
        caller, _ = await asyncio.to_thread(server.accept)
        caller.settimeout(60)
        with caller:
            assert (await asyncio.to_thread(caller.recv, MEGABYTE))[:1] == b"\x16"
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            assert caller.recv(1) == b""
        with pytest.raises(ConnectError, match="it did not answer in time"):
            await open_connection(address, tls=tls_of_client(), within=0.05)


# --- The bytes ---


async def secured(
    end: socket.socket,
    context: ssl.SSLContext,
    host: str | None,
    *,
    linger: float = 0.0,
    refused: Callable[[], None] | None = None,
) -> SocketConnection:
    prepare(end)
    return await secure(
        end,
        context,
        host=host,
        limits=DEFAULT_LIMITS,
        expect=Request,
        trace=None,
        linger=linger,
        refused=refused,
    )


def connect_raw(far: socket.socket) -> ssl.SSLSocket:
    far.settimeout(60)
    return tls_of_client().wrap_socket(far, server_hostname="localhost", suppress_ragged_eofs=False)


async def raw_pair(linger: float = 0.0) -> tuple[SocketConnection, Recorder, ssl.SSLSocket]:
    """A connection, and a client that is nothing but the standard library's socket."""
    near, far = tcp_sockets()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 10_000)  # so that it is full soon
    client = asyncio.ensure_future(asyncio.to_thread(connect_raw, far))
    connection = await secured(near, tls_of_server(), None, linger=linger)
    return connection, Recorder(), await client


@pytest.mark.req("STR-1")
async def test_large_messages_both_ways() -> None:
    async with listening("tls") as place:
        connection = await open_connection(place.address, tls=place.tls)
        side = Recorder()
        connection.start(side)
        sizes = [1, 100, 10 * MEGABYTE, 5, MEGABYTE // 4, 300_000]
        for number, size in enumerate(sizes):
            connection.send(Request(number, "echo", {"text": "x" * size}))
        await side.until_count(len(sizes))
        answers = [item for item in side.items if isinstance(item, Result)]
        assert [answer.id for answer in answers] == list(range(len(sizes)))
        assert [len(bytes(answer.result)) - 11 for answer in answers] == sizes
        await connection.close()


@pytest.mark.req("STR-1")
async def test_who_closes_its_side_still_gets_its_answers() -> None:
    connection, side, client = await raw_pair(linger=60)
    connection.start(side)
    await asyncio.to_thread(client.sendall, line(1) + line(2))
    unwrapping = asyncio.ensure_future(asyncio.to_thread(client.unwrap))
    await side.until_end()
    assert (len(side.items), side.ends, connection.failure) == (2, [True], None)
    # `unwrap` takes no data, so it fails when it meets some; but it came.
    connection.send(Result(1, {}))
    closing = asyncio.ensure_future(connection.close())
    with pytest.raises(ssl.SSLError, match="APPLICATION_DATA_AFTER_CLOSE_NOTIFY"):
        await unwrapping
    client.close()
    await closing


@pytest.mark.parametrize("is_paused", [False, True])
async def test_what_came_with_the_handshake_is_not_lost(is_paused: bool) -> None:
    near, far = tcp_sockets()
    far.setblocking(False)
    prepare(near)
    loop = asyncio.get_running_loop()
    serving = asyncio.ensure_future(secured(near, tls_of_server(), None))
    tls = Tls(tls_of_client(), host="localhost")
    # The last step of the handshake, and at once the first messages and the end.
    with pytest.raises(ssl.SSLWantReadError):
        tls.session.do_handshake()
    await loop.sock_sendall(far, tls.outgoing.read())
    while True:
        tls.incoming.write(await loop.sock_recv(far, MEGABYTE))
        try:
            tls.session.do_handshake()
            break
        except ssl.SSLWantReadError:
            continue
    tls.session.write(line(1) + line(2))
    with pytest.raises(ssl.SSLWantReadError):
        tls.session.unwrap()
    await loop.sock_sendall(far, tls.outgoing.read())
    connection, side = await serving, Recorder()
    connection.start(side)
    if is_paused:
        connection.pause()
        await turns()
        assert not side.items
        connection.resume()
    await side.until_end()
    assert side.names == ["echo", "echo"]
    assert side.ends == [True]
    connection.abort()
    far.close()


async def test_pausing_between_messages_that_came_together() -> None:
    connection, side, client = await raw_pair()
    connection.start(side)
    side.on_item = lambda item: connection.pause()
    await asyncio.to_thread(client.sendall, line(1) + line(2))
    client.shutdown(socket.SHUT_RDWR)
    for count in (1, 2):
        await side.until_count(count)
        await turns()
        assert (len(side.items), side.ends) == (count, [])
        connection.resume()
    await side.until_end()
    connection.abort()
    client.close()


@pytest.mark.parametrize("is_paused", [False, True])
async def test_bytes_that_were_changed_on_the_way(is_paused: bool) -> None:
    connection, side, client = await raw_pair()
    connection.start(side)
    if is_paused:
        side.on_item = lambda item: connection.pause()
    await asyncio.to_thread(client.sendall, line(1))
    await side.until_count(1)
    record = b"\x17\x03\x03\x00\x20" + b"x" * 32
    with socket.socket(fileno=client.detach()) as plain:
        plain.sendall(record)
        connection.resume()
        await side.until_end()
        assert side.ends == [False]
        assert isinstance(connection.failure, ssl.SSLError)
        connection.abort()


async def test_a_message_and_then_bytes_that_were_changed() -> None:
    connection, side, client = await raw_pair()
    connection.start(side)
    connection.pause()
    side.on_item = lambda item: connection.pause()
    await asyncio.to_thread(client.sendall, line(1))
    with socket.socket(fileno=client.detach()) as plain:
        plain.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        connection.resume()
        await side.until_count(1)
        await turns()
        assert side.ends == []
        connection.resume()
        await side.until_end()
        connection.abort()


async def test_the_end_is_said_in_tls_as_well() -> None:
    connection, side, client = await raw_pair(linger=60)
    connection.start(side)
    connection.send(Notification("last"))
    closing = asyncio.ensure_future(connection.close())
    text = b""
    while not text.endswith(b"\n"):
        text += await asyncio.to_thread(client.recv, MEGABYTE)
    # Without that, the client could not tell an end from a connection that was cut.
    assert await asyncio.to_thread(client.recv, 1) == b""
    client.close()
    await closing


async def test_a_browser_is_refused_over_tls_too() -> None:
    near, far = tcp_sockets()
    refusals: list[bool] = []
    client = asyncio.ensure_future(asyncio.to_thread(connect_raw, far))
    connection = await secured(near, tls_of_server(), None, refused=lambda: refusals.append(True))
    side = Recorder()
    connection.start(side)
    browser = await client
    await asyncio.to_thread(browser.sendall, b"POST / HTTP/1.1\r\n\r\n" + line(1))
    await side.until_end()
    assert (side.items, refusals) == ([], [True])
    connection.abort()
    browser.close()


async def test_a_peer_that_is_gone() -> None:
    connection, side, client = await raw_pair()
    connection.start(side)
    client.close()
    await side.until_end()
    while not side.errors:
        connection.send(Notification("x", {"text": "x" * MEGABYTE}))
        await turns()
    connection.abort()


async def test_a_slow_reader_clogs_the_connection() -> None:
    connection, side, client = await raw_pair()
    connection.start(side)
    for _ in range(3):
        connection.send(Notification("x", {"text": "x" * MEGABYTE}))
    await turns()
    assert connection.is_clogged
    closing = asyncio.ensure_future(connection.close())
    total = await asyncio.to_thread(_read_all, client)
    assert total == 3 * (MEGABYTE + len(b'{"jsonrpc":"2.0","method":"x","params":{"text":""}}\n'))
    await closing


def _read_all(client: ssl.SSLSocket) -> int:
    total = 0
    with client:
        while chunk := client.recv(MEGABYTE):
            total += len(chunk)
    return total
