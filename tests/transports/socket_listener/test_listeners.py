"""Listeners: many clients at once, those who are turned away, and the end."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import resource
import socket
from pathlib import Path
from typing import Any

import pytest

from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.address import TcpAddress, UnixAddress
from mcplumb.transports.connection import Connection, Peer
from mcplumb.transports.socket_listener import Listener
from mcplumb.wire.messages import Request, Result
from tests.client.peers import skip
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import turns
from tests.transports.ends import Recorder
from tests.transports.socket_ends import (
    LOCAL,
    WAYS,
    Place,
    echo,
    line,
    listening,
    said,
    short_folder,
    somebody_else,
    turn_until,
)

pytestmark = leaves_nothing


# --- Serving ---


@pytest.mark.req("STR-2")
@pytest.mark.parametrize("way", WAYS)
async def test_many_clients_at_once(way: str) -> None:
    async with listening(way) as place:
        callers = [await place.knock() for _ in range(20)]
        # All use the same ids.
        for number, caller in enumerate(callers):
            caller.put(1, number=number)
        for number, caller in enumerate(callers):
            assert await caller.answer() == {"jsonrpc": "2.0", "id": 1, "result": {"number": number}}
        for leaving in callers[::2]:
            await leaving.close()
        for caller in callers[1::2]:
            assert (await caller.ask(2))["id"] == 2
            await caller.close()


async def test_a_crowd_at_the_door() -> None:
    async with listening("unix") as place:
        assert isinstance(place.address, UnixAddress)
        crowd = [socket.socket(socket.AF_UNIX) for _ in range(200)]
        for caller in crowd:
            caller.settimeout(60)
            caller.connect(place.address.path)
            caller.sendall(line(1))
        for caller in crowd:
            assert b'"id":1' in await asyncio.to_thread(caller.recv, 1000)
            caller.close()
        await turn_until(lambda: not place.listener._serving)


@pytest.mark.req("STR-1")
@pytest.mark.parametrize("way", ["unix", "tcp"])
async def test_who_closes_its_side_still_gets_its_answers(way: str) -> None:
    async def slowly(connection: Connection, peer: Peer) -> None:
        side = Recorder()
        connection.start(side)
        await side.until_end()
        for item in side.items:
            assert isinstance(item, Request)
            connection.send(Result(item.id, {"text": "x" * 100_000}))
        await connection.close()

    async with listening(way, serve=slowly) as place:
        caller = await place.knock()
        for number in range(10):
            caller.put(number)
        caller.writer.write_eof()
        assert [(await caller.answer())["id"] for _ in range(10)] == list(range(10))
        assert await caller.ended()
        await caller.close()


@pytest.mark.req("STR-2")
@pytest.mark.parametrize("way", WAYS)
async def test_a_client_that_vanishes_harms_no_other(way: str) -> None:
    async with listening(way) as place:
        stays, leaves = await place.knock(), await place.knock()
        leaves.writer.write(line(1)[:-5])
        leaves.writer.transport.abort()
        assert (await stays.ask(1))["id"] == 1
        await stays.close()
        await leaves.close()


@pytest.mark.req("STR-2")
async def test_a_connection_that_cannot_be_served_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def fail_first(connection: Connection, peer: Peer, seen: list[Connection] = []) -> None:  # noqa: B006 - shared
        seen.append(connection)
        if len(seen) == 1:
            raise ZeroDivisionError
        await echo(connection, peer)

    async with listening("unix", serve=fail_first) as place:
        first, second = await place.knock(), await place.knock()
        assert await first.ended()
        assert (await second.ask(1))["id"] == 1
        await first.close()
        await second.close()
        assert said(caplog) == [f"A connection at {place.address} could not be served."]


# --- Turned away ---


@pytest.mark.req("STR-2")
@pytest.mark.parametrize("way", WAYS)
async def test_there_are_only_so_many_connections(way: str, caplog: pytest.LogCaptureFixture) -> None:
    async with listening(way, limits=Limits(max_connections=2)) as place:
        first, second = await place.knock(), await place.knock()
        assert (await first.ask(1))["id"] == 1
        assert (await second.ask(1))["id"] == 1
        for _ in range(17):
            assert await _is_turned_away(place)
        assert (await first.ask(2))["id"] == 2
        await second.close()
        # Its place is free, as soon as the server has noticed.
        while await _is_turned_away(place):
            pass
        await first.close()
    turned_away = "A client was refused: limits.max_connections is reached."
    assert said(caplog)[0] == f"{place.address}: {turned_away}"
    numbers = [text.partition(" (")[2] for text in said(caplog)[1:11]]
    assert numbers == [f"{number} times so far)" for number in (*range(2, 11), 16)]


async def _is_turned_away(place: Place) -> bool:
    try:
        caller = await place.knock()
    except (ConnectionError, OSError):
        return True  # before it could agree on TLS
    caller.put(1)
    try:
        return await caller.reader.readline() == b""
    except ConnectionError:
        return True
    finally:
        await caller.close()


@pytest.mark.req("STR-4")
async def test_a_socket_is_for_its_owner_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:  # then the server has to be somebody else
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    async with listening("unix") as place:
        assert isinstance(place.address, UnixAddress)
        path = Path(place.address.path)
        path.parent.chmod(0o755)
        path.chmod(0o777)  # noqa: ASYNC240 - somebody has let everybody in
        caller = socket.socket(socket.AF_UNIX)
        if os.geteuid() == 0:
            with somebody_else(path):
                caller.connect(str(path))
        else:
            caller.connect(str(path))
        caller.settimeout(60)
        with caller:
            assert await asyncio.to_thread(caller.recv, 1) == b""
        user = 65534 if os.geteuid() == 0 else os.getuid()
        assert said(caplog) == [
            f"{place.address}: A process of the user {user} was refused: the socket is for its owner only."
        ]


async def test_where_nothing_is_told_of_a_peer_the_mode_of_the_file_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_PEERCRED")
    async with listening("unix") as place:
        caller = await place.knock()
        assert (await caller.ask(1))["id"] == 1
        await caller.close()


@pytest.mark.req("STR-4")
async def test_a_web_page_cannot_use_a_server_on_this_machine(caplog: pytest.LogCaptureFixture) -> None:
    async with listening("tcp") as place:
        browser = await place.knock()
        body = line(1)
        browser.writer.write(
            b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        assert await browser.ended()
        await browser.close()
        assert said(caplog) == [
            f"{place.address}: A client was refused: it speaks HTTP or TLS, which this port does not serve."
        ]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (line(1), r"A connection could not be set up: TLS failed (WRONG_VERSION_NUMBER)."),
        (b"GET / HTTP/1.1\r\n\r\n", "A connection could not be set up: TLS failed (HTTP_REQUEST)."),
        (b"", "A connection could not be set up: TLS failed (UNEXPECTED_EOF_WHILE_READING)."),
    ],
)
async def test_a_client_without_tls(words: bytes, complaint: str, caplog: pytest.LogCaptureFixture) -> None:
    async with listening("tls") as place:
        plain = await Place(place.listener, None).knock()
        if words:
            plain.writer.write(words)
        else:
            plain.writer.write_eof()
        await plain.reader.read()
        await plain.close()
        assert [text.partition(": ")[2] for text in said(caplog)] == [complaint]
        caller = await place.knock()
        assert (await caller.ask(1))["id"] == 1
        await caller.close()


async def test_a_handshake_takes_only_so_long(caplog: pytest.LogCaptureFixture) -> None:
    async with listening("tls") as place:
        silent = await Place(place.listener, None).knock()
        await turn_until(lambda: place.listener._handshakes)
        skip(10)
        assert await silent.ended()
        await silent.close()
        assert said(caplog)[0].endswith("A connection could not be set up: the TLS handshake timed out.")


async def test_a_client_that_is_cut_off_in_the_handshake(caplog: pytest.LogCaptureFixture) -> None:
    async with listening("tls") as place:
        assert isinstance(place.address, TcpAddress)
        caller = socket.create_connection((place.address.host, place.address.port))
        await turn_until(lambda: place.listener._handshakes)
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        caller.close()
        await turn_until(lambda: said(caplog))
        assert said(caplog) == [f"{place.address}: A connection could not be set up: Connection reset by peer."]


# --- When the system cannot ---


async def test_without_descriptors_it_waits_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async with listening("unix") as place:
        early = await place.knock()
        assert (await early.ask(1))["id"] == 1
        assert isinstance(place.address, UnixAddress)
        late = socket.socket(socket.AF_UNIX)
        late.settimeout(60)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (late.fileno() + 1, hard))
        try:
            filler = _fill_up()
            late.connect(place.address.path)
            await turn_until(lambda: said(caplog))
            assert (await early.ask(2))["id"] == 2
            await turns()
            assert said(caplog) == [
                f"{place.address}: Connections cannot be accepted at the moment: {os.strerror(errno.EMFILE)}."
            ]
            for fd in filler:
                os.close(fd)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        late.sendall(line(3))
        with late:
            assert b'"id":3' in await asyncio.to_thread(late.recv, 1000)
        await early.close()


def _fill_up() -> list[int]:
    """Take every descriptor that is left."""
    taken = []
    while True:
        try:
            taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            return taken


class Faulty(socket.socket):
    """A socket at which taking a connection in fails a few times."""

    errors: list[OSError]

    def accept(self) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return super().accept()


async def test_a_client_that_left_in_the_queue_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    raw = socket.create_server(("127.0.0.1", 0))
    faulty = Faulty(fileno=raw.detach())
    faulty.errors = [ConnectionAbortedError(), OSError(errno.ENETDOWN, "Network is down")]
    address = TcpAddress("127.0.0.1", faulty.getsockname()[1])
    listener = Listener(address, [faulty], None, echo, DEFAULT_LIMITS, None, None)
    caller = await Place(listener, None).knock()
    assert (await caller.ask(1))["id"] == 1
    await caller.close()
    assert said(caplog) == [f"{address}: Connections cannot be accepted at the moment: Network is down."]
    faulty.errors = [OSError(errno.ENETDOWN, "Network is down")]
    late = await Place(listener, None).knock()
    await turn_until(lambda: not faulty.errors)
    await listener.close()  # while it waits
    await late.close()


# --- The end ---


@pytest.mark.req("STR-2", "STR-4")
@pytest.mark.parametrize("way", WAYS)
async def test_closing_takes_no_more_and_leaves_the_rest_alone(way: str) -> None:
    async with listening(way) as place:
        caller = await place.knock()
        assert (await caller.ask(1))["id"] == 1
        await place.listener.close()
        await place.listener.close()
        with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
            await place.knock()
        if isinstance(place.address, UnixAddress):
            assert not os.path.lexists(place.address.path)  # noqa: ASYNC240 - it takes no time
        assert (await caller.ask(2))["id"] == 2
        await caller.close()


@pytest.mark.req("STR-4")
async def test_closing_that_is_cancelled_leaves_no_file() -> None:
    async with listening("unix") as place:
        assert isinstance(place.address, UnixAddress)
        path = Path(place.address.path)
        folder = os.open(path.parent, os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)
        closing = asyncio.create_task(place.listener.close())
        await turns()
        assert not closing.done(), "somebody else is about to listen in this folder"
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        os.close(folder)
        assert not os.path.lexists(path)  # noqa: ASYNC240 - it takes no time


@pytest.mark.parametrize("is_too_late", [False, True])
async def test_closing_in_the_middle_of_a_handshake(is_too_late: bool) -> None:
    async with listening("tls") as place:
        silent = await Place(place.listener, None).knock()
        await turn_until(lambda: place.listener._handshakes)
        if is_too_late:  # the task has not noticed that its time is over
            (timeout,) = place.listener._handshakes
            timeout._on_timeout()  # type: ignore[attr-defined] # as the loop does
        await place.listener.close()
        assert await silent.ended()
        await silent.close()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_closing_when_somebody_has_just_come_in(is_cancelled: bool) -> None:
    async with listening("tcp", serve=_never) as place:
        assert isinstance(place.address, TcpAddress)
        with socket.create_connection((place.address.host, place.address.port)) as caller:
            (listening_socket,) = place.listener._sockets
            place.listener._acceptor._accept(listening_socket)
            (task,) = place.listener._serving
            await place.listener.close()
            if is_cancelled:
                task.cancel()
            await asyncio.wait((task,))
            caller.settimeout(60)
            assert caller.recv(1) == b""
            await turns()


async def _never(connection: Connection, peer: Peer) -> None:
    raise AssertionError("It was closed already.")


async def test_a_fork_closes_nothing() -> None:
    async with listening("unix") as place:
        assert isinstance(place.address, UnixAddress)
        place.listener._own_pid += 1  # as it looks to a fork
        await place.listener.close()
        place.listener._own_pid -= 1
        caller = await place.knock()
        assert (await caller.ask(1))["id"] == 1
        await caller.close()


async def test_a_server_can_start_again_at_once() -> None:
    with short_folder() as folder:
        address: TcpAddress | UnixAddress
        for address in (UnixAddress(str(folder / "s")), LOCAL):
            for _ in range(3):
                listener = await Listener.open(address, echo)
                address = listener.address
                caller = await Place(listener, None).knock()
                assert (await caller.ask(1))["id"] == 1
                await listener.close()
                caller.put(2)
                caller.writer.write_eof()
                assert (await caller.answer())["id"] == 2
                await caller.close()


async def test_lines_are_traced() -> None:
    seen: list[tuple[str, bytes]] = []
    listener = await Listener.open(LOCAL, echo, trace=lambda way, text: seen.append((way, text)))
    caller = await Place(listener, None).knock()
    await caller.ask(1)
    assert seen == [("in", line(1)[:-1]), ("out", b'{"jsonrpc":"2.0","id":1,"result":{}}')]
    await caller.close()
    await listener.close()
