"""Connections over Unix and TCP sockets: newline-delimited JSON on one descriptor for both directions.

`open_connection` is the client's way in; `SocketConnection.over` wraps a socket that is already connected. TLS is in
`mcplumb.transports.tls`.
"""

# os.path instead of pathlib, whose import would slow down every start:
# ruff: noqa: PTH112, PTH113

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

from mcplumb.errors import ConnectError, ConnectTimeout, UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.address import SocketAddress, TcpAddress, UnixAddress
from mcplumb.transports.descriptors import SocketSink
from mcplumb.transports.fd_connection import WatchedSource
from mcplumb.transports.line_connection import LineConnection, Trace
from mcplumb.wire.message_decoder import Expected
from mcplumb.wire.messages import Result

if TYPE_CHECKING:
    import ssl

__all__ = [
    "LingeringSink",
    "SocketConnection",
    "SocketSource",
    "TcpInfo",
    "check_tls",
    "configure_socket",
    "explain_unknown_host",
    "open_connection",
    "resolve_host",
]

#: One entry of ``getaddrinfo``: family, type, protocol, canonical name, socket address.
TcpInfo: TypeAlias = tuple[Any, ...]

#: Seconds within which a connection must be established, name lookup and TLS included.
_CONNECT_TIMEOUT = 10.0
#: Seconds between two attempts to connect to a Unix socket whose backlog is full.
_RETRY_INTERVAL = 0.02
#: Bytes per read while discarding what a peer still sends during a lingering close.
_DISCARD_CHUNK = 64 * 1024
#: First bytes of HTTP (a capital letter) and of TLS, which no JSON-RPC line starts with. A web page can make a browser
#: send an HTTP request to a local port, with a body whose lines are messages.
_OTHER_PROTOCOLS = frozenset(b"\x16ABCDEFGHIJKLMNOPQRSTUVWXYZ")
#: TCP keep-alive: where the system supports it, a peer that vanished is noticed after about two minutes.
_KEEP_ALIVE = [
    (getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
    if hasattr(socket, name)
]


class SocketSource(WatchedSource):
    """Reads a socket whose descriptor belongs to its `LingeringSink`.

    With ``refused``, the first byte is checked: if the peer speaks HTTP or TLS, ``refused`` is called and the source
    ends with an error, without delivering anything.
    """

    __slots__ = ("_refused",)

    def __init__(self, fd: int, refused: Callable[[], None] | None = None) -> None:
        super().__init__(fd)
        self._refused = refused

    def _begin(self) -> None:
        if self._refused is not None:
            self._arrived = self._checked(self._arrived, self._refused)
        super()._begin()

    def close(self) -> None:
        """Stop reading."""
        self._has_ended = True
        self.pause()
        self._stop_looking()

    def _checked(self, arrived: Callable[[bytes], int], refused: Callable[[], None]) -> Callable[[bytes], int]:
        is_first = True

        def check(chunk: bytes) -> int:
            nonlocal is_first
            if is_first:
                if chunk[0] in _OTHER_PROTOCOLS:
                    refused()
                    self._end(ConnectionError("The peer speaks another protocol."))
                    return 0
                is_first = False
            return arrived(chunk)

        return check


class LingeringSink(SocketSink):
    """Writes to a socket and owns its descriptor, which it closes after a lingering close.

    The system may discard the bytes written last if a socket is closed while it has unread input. So ``close`` shuts
    down the sending side, and waits at most ``linger`` seconds for the peer to do the same.
    """

    __slots__ = ("_is_closed", "_linger", "_timer", "closed", "skip_linger")

    def __init__(self, fd: int, linger: float) -> None:
        super().__init__(fd)
        self._linger = linger
        #: Makes ``close`` close the socket at once.
        self.skip_linger = False
        #: Done when the descriptor is closed.
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def close(self) -> None:
        """Shut down the sending side; close the socket when the peer has done so too, or after ``linger`` seconds."""
        if not self.skip_linger:
            with suppress(OSError):  # the peer is gone
                self._shut_down_sending()
                if self._linger > 0:
                    self._timer = self._loop.call_later(self._linger, self.close_now)
                    self._loop.add_reader(self._fd, self._discard_input)
                    self._discard_input()
                    return
        self.close_now()

    def close_now(self) -> None:
        """Close the socket without lingering. May be called again."""
        if not self._is_closed:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
                self._loop.remove_reader(self._fd)
            super().close()
            if not self._loop.is_closed():
                self.closed.set_result(None)

    def _shut_down_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def _discard_input(self) -> None:
        try:
            is_over = not self._socket.recv(_DISCARD_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            is_over = True
        if is_over:
            self.close_now()


class SocketConnection(LineConnection):
    """A connection over a connected socket, whose descriptor it owns."""

    __slots__ = ("_socket_sink", "failure")

    def __init__(
        self, source: SocketSource, sink: LingeringSink, *, limits: Limits, expect: Expected, trace: Trace | None
    ) -> None:
        super().__init__(source, sink, limits=limits, expect=expect, trace=trace)
        self._socket_sink = sink
        #: Why reading failed; None if it did not, or if the stream simply ended.
        self.failure: OSError | None = None

    @classmethod
    def over(
        cls,
        connected: socket.socket,
        *,
        limits: Limits,
        expect: Expected,
        trace: Trace | None,
        linger: float = 0.0,
        refused: Callable[[], None] | None = None,
    ) -> SocketConnection:
        """Return a connection that owns the socket. If this raises, the socket still belongs to the caller."""
        fd = connected.fileno()
        source, sink = SocketSource(fd, refused), LingeringSink(fd, linger)
        connected.detach()
        return cls(source, sink, limits=limits, expect=expect, trace=trace)

    async def close(self) -> None:
        """Write what is queued, then close. If cancelled, it aborts."""
        await super().close()
        try:
            await asyncio.shield(self._socket_sink.closed)
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        """Close at once and drop what is queued."""
        self._socket_sink.skip_linger = True
        super().abort()
        self._socket_sink.close_now()

    def _ran_out(self, error: OSError | None) -> None:
        self.failure = error
        super()._ran_out(error)


def configure_socket(connected: socket.socket) -> None:
    """Make a new socket non-blocking and, over TCP, turn on TCP_NODELAY and keep-alive."""
    connected.setblocking(False)
    if connected.family != socket.AF_UNIX:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


def check_tls(address: SocketAddress, tls: ssl.SSLContext | None, *, is_server: bool) -> None:
    """Raise `UsageError` if the address cannot use TLS, or if the context is for the other role."""
    if tls is None:
        return
    import ssl

    if isinstance(address, UnixAddress):
        raise UsageError(f"TLS is only for TCP: {address} is local to this machine. Leave tls out.")
    if is_server and tls.protocol == ssl.PROTOCOL_TLS_CLIENT:
        raise UsageError("tls was made for a client: make it with server_tls(cert, key).")
    if not is_server and tls.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise UsageError("tls was made for a server: make it with client_tls().")


async def resolve_host(address: TcpAddress) -> list[TcpInfo]:
    """Resolve the host's name to socket addresses; raise `socket.gaierror` if it has none."""
    host, port, kind = address.host, address.port, socket.SOCK_STREAM
    try:
        with suppress(socket.gaierror):
            # A numeric address needs no lookup, and so no thread.
            return socket.getaddrinfo(host, port, type=kind, flags=socket.AI_NUMERICHOST)
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=kind)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, "it is not a valid host name") from error


def explain_unknown_host(address: TcpAddress, error: socket.gaierror) -> str:
    """Explain to the user that the host was not found."""
    return f"the host {address.host!r} was not found ({error.strerror}). Check its name."


async def open_connection(
    address: SocketAddress,
    *,
    limits: Limits = DEFAULT_LIMITS,
    tls: ssl.SSLContext | None = None,
    trace: Trace | None = None,
    within: float = _CONNECT_TIMEOUT,
) -> SocketConnection:
    """Connect to a server within this many seconds.

    Raises `ConnectError` with the reason if that fails; no socket is left open then.
    """
    check_tls(address, tls, is_server=False)
    connected: socket.socket | None = None
    try:
        async with asyncio.timeout(within):
            if isinstance(address, UnixAddress):
                connected = await _connect_unix(address.path)
            else:
                connected = await _connect_tcp(address, within)
            configure_socket(connected)
            if tls is None or isinstance(address, UnixAddress):
                return SocketConnection.over(connected, limits=limits, expect=Result, trace=trace)
            from mcplumb.transports.tls import start_tls

            return await start_tls(connected, tls, host=address.host, limits=limits, expect=Result, trace=trace)
    except OSError as error:
        kind = ConnectTimeout if isinstance(error, TimeoutError) else ConnectError
        raise kind(f"The server at {address} cannot be reached: {_reason(address, error)}") from error
    finally:
        if connected is not None:
            connected.close()  # does nothing if a connection has taken the socket over


async def _connect_unix(path: str) -> socket.socket:
    connecting = socket.socket(socket.AF_UNIX)
    try:
        connecting.setblocking(False)
        while True:
            try:
                connecting.connect(path)
            except BlockingIOError:
                await asyncio.sleep(_RETRY_INTERVAL)  # the server's backlog is full
            else:
                return connecting
    except BaseException:
        connecting.close()
        raise


async def _connect_tcp(address: TcpAddress, within: float) -> socket.socket:
    """Try the addresses of the host in turn. Each gets an equal share of the time left, so that all are tried."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    found = await resolve_host(address)
    failure: OSError = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    for index, (family, kind, protocol, _, sockaddr) in enumerate(found):
        try:
            async with asyncio.timeout((deadline - loop.time()) / (len(found) - index)):
                return await _connect_to(socket.socket(family, kind, protocol), sockaddr)
        except OSError as error:
            failure = error
    raise failure


async def _connect_to(connecting: socket.socket, sockaddr: Any) -> socket.socket:
    try:
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, sockaddr)
    except BaseException:
        connecting.close()
        raise
    return connecting


def _reason(address: SocketAddress, error: OSError) -> str:
    import ssl

    match error, address:
        case TimeoutError(), _:
            return "it did not answer in time. Check the address and the network, including firewalls."
        case socket.gaierror(), TcpAddress():
            return explain_unknown_host(address, error)
        case ssl.SSLError(), _:
            from mcplumb.transports.tls import explain_tls_error

            return explain_tls_error(error)
        case ConnectionRefusedError(), UnixAddress(path) if os.path.isfile(path) or os.path.isdir(path):
            return "the file is not a socket. Check the path."
        case ConnectionRefusedError(), UnixAddress():
            return "nothing listens there, and the socket file is stale. Start the server again."
        case ConnectionRefusedError(), _:
            return "nothing listens there. Start the server, or check the address."
        case FileNotFoundError(), _:
            return "there is no such file. Start the server, or check the path."
        case PermissionError(), UnixAddress():
            return "its file belongs to another user, or is in a folder that this user may not access."
        case _:
            return f"{error.strerror or error}."
