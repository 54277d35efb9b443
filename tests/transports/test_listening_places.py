"""Where listeners listen, for whom, and where they cannot."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from mcplumb.errors import ConnectError, UsageError
from mcplumb.transports.address import TcpAddress, UnixAddress
from mcplumb.transports.socket_listener import Listener
from tests.kit.leaks import leaves_nothing
from tests.transports.socket_ends import LOCAL, Place, echo, said, tls_of_client, tls_of_server

pytestmark = leaves_nothing


@pytest.mark.req("STR-4")
@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("localhost", True), ("127.0.0.2", True), ("0.0.0.0", False)],  # noqa: S104 - on purpose
)
@pytest.mark.parametrize("has_tls", [False, True])
async def test_whom_it_listens_for(host: str, is_local: bool, has_tls: bool, caplog: pytest.LogCaptureFixture) -> None:
    tls = tls_of_server() if has_tls else None
    listener = await Listener.open(TcpAddress(host, 0), echo, tls=tls)
    assert isinstance(listener.address, TcpAddress)
    assert listener.address.host == host
    assert listener.address.port > 0
    await listener.close()
    warned = [text for text in said(caplog) if "without TLS, and not only for this machine" in text]
    assert len(warned) == (not is_local and not has_tls)


async def test_a_name_with_several_addresses_is_served_at_all_of_them() -> None:
    listener = await Listener.open(TcpAddress("localhost", 0), echo)
    assert isinstance(listener.address, TcpAddress)
    names = {str(info[4][0]) for info in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    served = 0
    for host in names:
        try:
            caller = await Place(listener, None).knock_at(host)
        except OSError:
            continue  # an address that this machine has only by name
        assert (await caller.ask(1))["id"] == 1
        await caller.close()
        served += 1
    assert served
    await listener.close()


async def test_an_address_that_the_machine_does_not_have_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    infos = [
        (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("192.0.2.1", 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0)),
    ]

    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: infos)
    listener = await Listener.open(TcpAddress("many.example", 0), echo)
    monkeypatch.undo()
    caller = await Place(listener, None).knock_at("127.0.0.1")
    assert (await caller.ask(1))["id"] == 1
    await caller.close()
    await listener.close()


async def test_all_addresses_of_a_name_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.2", 0)) as other:
        port = other.getsockname()[1]
        infos = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port)) for host in ("127.0.0.1", "127.0.0.2")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: infos)
        with pytest.raises(ConnectError, match=f"the port {port} is in use"):
            await Listener.open(TcpAddress("many.example", port), echo)


async def test_ipv6_where_the_machine_has_it() -> None:
    try:
        listener = await Listener.open(TcpAddress("::1", 0), echo)
    except ConnectError as error:
        assert "this machine has no such address" in str(error)  # noqa: PT017 - one of both
        return
    assert str(listener.address).startswith("tcp://[::1]:")
    caller = await Place(listener, None).knock()
    assert (await caller.ask(1))["id"] == 1
    await caller.close()
    await listener.close()


def _taken() -> tuple[TcpAddress, socket.socket]:
    server = socket.create_server(("127.0.0.1", 0))
    return TcpAddress("127.0.0.1", server.getsockname()[1]), server


async def test_a_port_that_is_taken() -> None:
    address, server = _taken()
    with server, pytest.raises(ConnectError) as caught:
        await Listener.open(address, echo)
    assert str(caught.value) == (
        f"The server cannot listen at 127.0.0.1:{address.port}: the port {address.port} is in use. Stop the process "
        "that uses it, or choose another; 0 takes any free port."
    )


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (TcpAddress("192.0.2.1", 0), "this machine has no such address. Leave out the host"),
        (TcpAddress("nobody.invalid", 0), "the host 'nobody.invalid' was not found ("),
    ],
)
async def test_an_address_where_it_cannot_listen(address: TcpAddress, why: str) -> None:
    with pytest.raises(ConnectError) as caught:
        await Listener.open(address, echo)
    assert f"The server cannot listen at {str(address).removeprefix('tcp://')}: {why}" in str(caught.value)


@pytest.mark.parametrize(
    ("number", "why"), [(errno.EACCES, "this user may not use port 80"), (errno.EIO, "Input/output error.")]
)
async def test_a_port_that_the_system_refuses(number: int, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(socket.socket):
        def bind(self, address: Any) -> None:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket, "socket", Refused)
    with pytest.raises(ConnectError, match=why):
        await Listener.open(TcpAddress("127.0.0.1", 80), echo)


@pytest.mark.parametrize(
    "open_wrongly",
    [
        lambda: Listener.open(UnixAddress("/x"), echo, tls=tls_of_server()),
        lambda: Listener.open(LOCAL, echo, tls=tls_of_client()),
    ],
)
async def test_tls_that_does_not_fit(open_wrongly: Callable[[], Any]) -> None:
    with pytest.raises(UsageError):
        await open_wrongly()
