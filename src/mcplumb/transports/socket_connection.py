"""Connections over Unix and TCP sockets: the framing of stdio, on one descriptor for both ways."""

# Without pathlib, which a start-up would load for nothing but this:
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
    "SocketConnection",
    "SocketEnd",
    "SocketSource",
    "TcpInfo",
    "check_tls",
    "find_host",
    "no_such_host",
    "open_connection",
    "prepare",
]

#: What the system says of one address of a host.
TcpInfo: TypeAlias = tuple[Any, ...]

#: Seconds in which a connection has to be there, with everything that belongs to it.
_WITHIN = 10.0
#: Seconds between two knocks at a server that has a queue at its door.
_KNOCK = 0.02
#: Bytes to throw away at once.
_CHUNK = 64 * 1024
#: What a line of JSON-RPC never begins with, but HTTP (a letter) and TLS do. A web page can make a browser send such
#: things to this machine, with lines in them that are messages.
_STRANGERS = frozenset(b"\x16ABCDEFGHIJKLMNOPQRSTUVWXYZ")
#: A peer that vanished without a word is noticed after about two minutes, where the system can be told so.
_KEEP_ALIVE = [
    (getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
    if hasattr(socket, name)
]


class SocketSource(WatchedSource):
    """Reads a socket whose descriptor belongs to its `SocketEnd`.

    With ``refused``, a peer whose first byte shows that it speaks HTTP or TLS is not listened to: it is called, and
    then the source runs out.
    """

    __slots__ = ("_refused",)

    def __init__(self, fd: int, refused: Callable[[], None] | None = None) -> None:
        super().__init__(fd)
        self._refused = refused

    def start(
        self,
        arrived: Callable[[bytes], int],
        ran_out: Callable[[OSError | None], None],
        hung_up: Callable[[], None],
    ) -> None:
        """Begin."""
        super().start(arrived if self._refused is None else self._guarded(arrived, self._refused), ran_out, hung_up)

    def close(self) -> None:
        """Read no more."""
        self._has_ended = True
        self.pause()
        self._stop_looking()

    def _guarded(self, arrived: Callable[[bytes], int], refused: Callable[[], None]) -> Callable[[bytes], int]:
        is_known = False

        def arrive(chunk: bytes) -> int:
            nonlocal is_known
            if not is_known:
                if chunk[0] in _STRANGERS:
                    refused()
                    self._end(ConnectionError("The peer speaks another protocol."))
                    return 0
                is_known = True
            return arrived(chunk)

        return arrive


class SocketEnd(SocketSink):
    """Writes to a socket, and lets it go in the end.

    A socket that is closed while there is something to read in it may take back what was written last. So it waits,
    for ``linger`` seconds at most, until the peer has nothing more to say.
    """

    __slots__ = ("_is_gone", "_linger", "_timer", "gone", "is_hasty")

    def __init__(self, fd: int, linger: float) -> None:
        super().__init__(fd)
        self._linger = linger
        #: Whether to wait for nobody.
        self.is_hasty = False
        #: Done when the descriptor is closed.
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._is_gone = False

    def close(self) -> None:
        """Say that nothing more comes, and let go when the peer has said so, too."""
        if not self.is_hasty:
            with suppress(OSError):  # the peer is gone
                self._say_end()
                if self._linger > 0:
                    self._timer = self._loop.call_later(self._linger, self.let_go)
                    self._loop.add_reader(self._fd, self._throw_away)
                    self._throw_away()
                    return
        self.let_go()

    def let_go(self) -> None:
        """Close the socket now. May be called again."""
        if not self._is_gone:
            self._is_gone = True
            if self._timer is not None:
                self._timer.cancel()
                self._loop.remove_reader(self._fd)
            super().close()
            if not self._loop.is_closed():
                self.gone.set_result(None)

    def _say_end(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def _throw_away(self) -> None:
        try:
            is_over = not self._socket.recv(_CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            is_over = True
        if is_over:
            self.let_go()


class SocketConnection(LineConnection):
    """A connection over a connected socket, of which it owns the descriptor."""

    __slots__ = ("_end", "failure")

    def __init__(
        self, source: SocketSource, end: SocketEnd, *, limits: Limits, expect: Expected, trace: Trace | None
    ) -> None:
        super().__init__(source, end, limits=limits, expect=expect, trace=trace)
        self._end = end
        #: Why nothing more could be read, if the stream did not just end.
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
        """A connection that takes the socket over; if this raises, it has not."""
        fd = connected.fileno()
        source, end = SocketSource(fd, refused), SocketEnd(fd, linger)
        connected.detach()
        return cls(source, end, limits=limits, expect=expect, trace=trace)

    async def close(self) -> None:
        """Write what is queued, then close. Cancelled, it aborts."""
        await super().close()
        try:
            await asyncio.shield(self._end.gone)
        except asyncio.CancelledError:
            self.abort()
            raise

    def abort(self) -> None:
        """Close at once; what is queued is lost."""
        self._end.is_hasty = True
        super().abort()
        self._end.let_go()

    def _ran_out(self, error: OSError | None) -> None:
        self.failure = error
        super()._ran_out(error)


def prepare(connected: socket.socket) -> None:
    """Make a new socket as connections need it: never to be waited for, and, over TCP, prompt and watched."""
    connected.setblocking(False)
    if connected.family != socket.AF_UNIX:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


def check_tls(address: SocketAddress, tls: ssl.SSLContext | None, *, is_server: bool) -> None:
    """Raise if TLS makes no sense there, or not like this."""
    if tls is None:
        return
    import ssl

    if isinstance(address, UnixAddress):
        raise UsageError(f"TLS is for TCP: what goes over {address} never leaves this machine. Leave tls out.")
    if is_server and tls.protocol == ssl.PROTOCOL_TLS_CLIENT:
        raise UsageError("tls was made for a client: make it with server_tls(cert, key).")
    if not is_server and tls.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise UsageError("tls was made for a server: make it with client_tls().")


async def find_host(address: TcpAddress) -> list[TcpInfo]:
    """All that the host's name stands for; `socket.gaierror` if that is nothing."""
    host, port, kind = address.host, address.port, socket.SOCK_STREAM
    try:
        with suppress(socket.gaierror):
            # A number needs nobody to look it up, and no thread to wait for that.
            return socket.getaddrinfo(host, port, type=kind, flags=socket.AI_NUMERICHOST)
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=kind)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, "it is no name that a host can have") from error


def no_such_host(address: TcpAddress, error: socket.gaierror) -> str:
    """What it means that the host was not found."""
    return f"the host {address.host!r} was not found ({error.strerror}). Check its name."


async def open_connection(
    address: SocketAddress,
    *,
    limits: Limits = DEFAULT_LIMITS,
    tls: ssl.SSLContext | None = None,
    trace: Trace | None = None,
    within: float = _WITHIN,
) -> SocketConnection:
    """Connect to a server, within so many seconds; `ConnectError` says why that cannot be. Nothing is left then."""
    check_tls(address, tls, is_server=False)
    connected: socket.socket | None = None
    try:
        async with asyncio.timeout(within):
            if isinstance(address, UnixAddress):
                connected = await _reach_file(address.path)
            else:
                connected = await _reach_host(address, within)
            prepare(connected)
            if tls is None or isinstance(address, UnixAddress):
                return SocketConnection.over(connected, limits=limits, expect=Result, trace=trace)
            from mcplumb.transports.tls import secure

            return await secure(connected, tls, host=address.host, limits=limits, expect=Result, trace=trace)
    except OSError as error:
        kind = ConnectTimeout if isinstance(error, TimeoutError) else ConnectError
        raise kind(f"The server at {address} cannot be reached: {_reason(address, error)}") from error
    finally:
        if connected is not None:
            connected.close()  # does nothing if a connection has taken it over


async def _reach_file(path: str) -> socket.socket:
    reaching = socket.socket(socket.AF_UNIX)
    try:
        reaching.setblocking(False)
        while True:
            try:
                reaching.connect(path)
            except BlockingIOError:
                await asyncio.sleep(_KNOCK)  # the server has more callers than it takes in at the moment
            else:
                return reaching
    except BaseException:
        reaching.close()
        raise


async def _reach_host(address: TcpAddress, within: float) -> socket.socket:
    """Try one address of the host after the other. Each may take its share of the time, so that all have a chance."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    found = await find_host(address)
    failure: OSError = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    for index, (family, kind, protocol, _, place) in enumerate(found):
        try:
            async with asyncio.timeout((deadline - loop.time()) / (len(found) - index)):
                return await _reach_place(socket.socket(family, kind, protocol), place)
        except OSError as error:
            failure = error
    raise failure


async def _reach_place(reaching: socket.socket, place: Any) -> socket.socket:
    try:
        reaching.setblocking(False)
        await asyncio.get_running_loop().sock_connect(reaching, place)
    except BaseException:
        reaching.close()
        raise
    return reaching


def _reason(address: SocketAddress, error: OSError) -> str:
    import ssl

    match error, address:
        case TimeoutError(), _:
            return "it did not answer in time. Check the address, and what stands between it and this machine."
        case socket.gaierror(), TcpAddress():
            return no_such_host(address, error)
        case ssl.SSLError(), _:
            from mcplumb.transports.tls import why_not_secure

            return why_not_secure(error)
        case ConnectionRefusedError(), UnixAddress(path) if os.path.isfile(path) or os.path.isdir(path):
            return "its file is no socket. Check the path."
        case ConnectionRefusedError(), UnixAddress():
            return "nothing listens there, the file is left over. Start the server again."
        case ConnectionRefusedError(), _:
            return "nothing listens there. Start the server, or check the address."
        case FileNotFoundError(), _:
            return "there is no such file. Start the server, or check the path."
        case PermissionError(), UnixAddress():
            return "its file belongs to another user, or lies where this one must not look."
        case _:
            return f"{error.strerror or error}."
