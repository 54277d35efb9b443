"""Listen on Unix and TCP sockets, and serve each connection in its own task."""
# Without pathlib, which a start-up would load for nothing but this:
# ruff: noqa: PTH101, PTH108, PTH109, PTH118, PTH120

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import socket
import stat
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from mcplumb.errors import ConnectError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.address import SocketAddress, TcpAddress, UnixAddress
from mcplumb.transports.connection import ANYONE, Serve
from mcplumb.transports.descriptors import close_private, keep_private
from mcplumb.transports.line_connection import Trace
from mcplumb.transports.socket_connection import SocketConnection, TcpInfo, check_tls, find_host, no_such_host, prepare
from mcplumb.wire.messages import Request

if TYPE_CHECKING:
    import ssl

__all__ = ["Listener", "SocketFile", "listening_sockets", "peer_process", "peer_user"]

_logger = logging.getLogger("mcplumb.server")


# The files of Unix sockets: for their owner only, never taken from somebody who listens, and removed in the end.


#: Read and write, for the owner.
_OWNER_ONLY = 0o600
#: Callers that may wait to be let in. The system may allow fewer.
_UNIX_BACKLOG = 512
#: Seconds to wait for others that are about to listen in the same folder, which takes them milliseconds.
_PATIENCE = 5.0
_LOOK = 0.005
#: What Linux tells of a peer: its process, user and group.
_CREDENTIALS = struct.Struct("3i")


class SocketFile:
    """A socket that listens, and the file under which it is found. Made by `claim`; the socket is its owner's."""

    __slots__ = ("_identity", "_path", "socket")

    @classmethod
    async def claim(cls, path: str) -> SocketFile:
        """Listen under this path. A file that nobody listens at any more is replaced.

        `ConnectError` if somebody does, or if the file is no socket, or if the system does not allow it.
        """
        listening = socket.socket(socket.AF_UNIX)
        try:
            async with _alone_in(os.path.dirname(path) or "."):
                try:
                    return cls(listening, path)
                except OSError as error:
                    raise ConnectError(
                        f"The server cannot listen at unix:{path}: {_file_reason(path, error)}"
                    ) from error
        except BaseException:
            listening.close()
            raise

    def __init__(self, listening: socket.socket, path: str) -> None:
        #: Ready to take connections.
        self.socket = listening
        self._path = os.path.join(os.getcwd(), path)
        with suppress(OSError):
            # Linux gives the file the mode of the socket, so that it never has another one.
            os.fchmod(listening.fileno(), _OWNER_ONLY)
        try:
            listening.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            _remove_stale(path)
            listening.bind(path)
        status = os.lstat(path)
        self._identity = status.st_dev, status.st_ino
        try:
            if stat.S_IMODE(status.st_mode) != _OWNER_ONLY:
                os.chmod(path, _OWNER_ONLY)
            # Nobody could connect until now, whatever the mode was.
            listening.listen(_UNIX_BACKLOG)
        except BaseException:
            os.unlink(path)
            raise

    async def remove(self) -> None:
        """Remove the file, if it is still this one: nobody else's can have its number while the socket is open.

        Cancelled, it does so without waiting for others.
        """
        try:
            async with _alone_in(os.path.dirname(self._path)):
                self._unlink()
        except asyncio.CancelledError:
            self._unlink()
            raise

    def _unlink(self) -> None:
        with suppress(OSError):  # it is gone, or the system does not allow it any more
            status = os.lstat(self._path)
            if (status.st_dev, status.st_ino) == self._identity:
                os.unlink(self._path)


def peer_user(connected: socket.socket) -> int | None:
    """The user whose process is at the other end; None where the system does not tell."""
    credentials = _peer(connected)
    return None if credentials is None else credentials[1]


def peer_process(connected: socket.socket) -> int | None:
    """The process that is at the other end, or listens there; None where the system does not tell."""
    credentials = _peer(connected)
    return None if credentials is None else credentials[0]


def _peer(connected: socket.socket) -> tuple[int, int, int] | None:
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    process, user, group = _CREDENTIALS.unpack(
        connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return process, user, group


@asynccontextmanager
async def _alone_in(folder: str) -> AsyncIterator[None]:
    """Wait until no other server is about to claim or remove a file in this folder, and keep others waiting.

    Somebody who holds the folder for long is not waited for: everybody may do that in a folder for all.
    """
    held: int | None = None
    with suppress(OSError):  # it must not be read; or is not there, which the next step will tell
        held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE
    try:
        while held is not None and _is_held_by_another(held) and loop.time() < deadline:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(_LOOK)
        yield
    finally:
        if held is not None:
            os.close(held)


def _is_held_by_another(folder: int) -> bool:
    """Whether somebody else has the folder locked. If not, we have from now on, where it can be locked at all."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def _remove_stale(path: str) -> None:
    """Remove a socket that nobody listens at; `ConnectError` if this is none."""
    with suppress(FileNotFoundError):  # somebody else has done that
        mode = os.lstat(path).st_mode
        if not stat.S_ISSOCK(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "a directory" if stat.S_ISDIR(mode) else "a file"
            raise _taken(
                path, f"there is {kind} that is no socket. It was left alone: remove it, or choose another path."
            )
        if who := _listener(path):
            raise _taken(path, f"{who} listens there already. Stop it, or choose another path.")
        os.unlink(path)


def _listener(path: str) -> str:
    """Who listens there; empty if that is nobody."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
            process = peer_process(probe)
        except ConnectionRefusedError:
            return ""
        except BlockingIOError:
            process = None  # with a queue at the door
    return "Somebody" if process is None else f"Process {process}"


def _taken(path: str, why: str) -> ConnectError:
    return ConnectError(f"The server cannot listen at unix:{path}: {why}")


def _file_reason(path: str, error: OSError) -> str:
    folder = os.path.dirname(path) or "."
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return f"there is no folder {folder}. Create it, or choose another path."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"the system does not allow this user to create or replace it in {folder}. Choose another path."
        case errno.EPROTOTYPE:
            return "there is a socket of another kind. Choose another path."
        case _:
            return f"{error.strerror or error}."


# Servers on sockets: connections are taken in, and each of them is served in a task of its own.


#: Callers that may wait to be let in. The system may allow fewer.
_TCP_BACKLOG = 512
#: How many are let in before the loop turns.
_MOST_AT_ONCE = 64
#: Seconds to let nobody in after the system could not, for want of descriptors or memory.
_REST = 1.0
#: Seconds that a client may take to agree on TLS.
_HANDSHAKE = 10.0
#: Seconds that a client has, when its connection is closed, to say that it has nothing more to say.
_LINGER = 0.4
#: How many of the same complaints are logged one by one. After that, each time their number has doubled.
_MOST_COMPLAINTS = 10


class Listener:
    """One address at which a server takes connections. Made by `open`, in a running event loop."""

    @classmethod
    async def open(
        cls,
        address: SocketAddress,
        serve: Serve,
        *,
        limits: Limits = DEFAULT_LIMITS,
        tls: ssl.SSLContext | None = None,
        trace: Trace | None = None,
    ) -> Listener:
        """Take connections from now on. `ConnectError` says why that cannot be; nothing is left then."""
        check_tls(address, tls, is_server=True)
        if isinstance(address, UnixAddress):
            file = await SocketFile.claim(address.path)
            return cls(address, [file.socket], file, serve, limits, None, trace)
        sockets = await listening_sockets(address)
        places = [each.getsockname() for each in sockets]
        if tls is None and not all(_is_local(place[0]) for place in places):
            _logger.warning(
                "The server listens at %s without TLS, and not for this machine alone: whoever reaches it can use it, "
                "and whoever is on the way can read along.",
                address,
            )
        return cls(TcpAddress(address.host, places[0][1]), sockets, None, serve, limits, tls, trace)

    def __init__(
        self,
        address: SocketAddress,
        sockets: list[socket.socket],
        file: SocketFile | None,
        serve: Serve,
        limits: Limits,
        tls: ssl.SSLContext | None,
        trace: Trace | None,
    ) -> None:
        #: Where it listens: with the port that the system chose, if that was left to it.
        self.address = address
        self._sockets = sockets
        self._file = file
        self._serve = serve
        self._limits = limits
        self._tls = tls
        self._trace = trace
        self._loop = asyncio.get_running_loop()
        self._host = os.getpid()
        self._user = os.geteuid()
        self._serving: set[asyncio.Task[None]] = set()
        self._handshakes: set[asyncio.Timeout] = set()
        self._complaints: Counter[str] = Counter()
        self._rest: asyncio.TimerHandle | None = None
        self._is_closed = False
        for each in sockets:
            keep_private(each.fileno())
            each.setblocking(False)
        self._watch()

    async def close(self) -> None:
        """Take no more connections, and remove the socket's file. Those that are served go on. May be called again.

        Cancelled, it is done all the same.
        """
        if self._is_closed or os.getpid() != self._host:
            return
        self._is_closed = True
        self._unwatch()
        for timeout in self._handshakes:
            if not timeout.expired():
                timeout.reschedule(self._loop.time())
        try:
            if self._file is not None:
                await self._file.remove()
        finally:
            for each in self._sockets:
                close_private(each.detach())

    # Letting in

    def _watch(self) -> None:
        for each in self._sockets:
            self._loop.add_reader(each, self._let_in, each)

    def _unwatch(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        for each in self._sockets:
            self._loop.remove_reader(each)

    def _let_in(self, listening: socket.socket) -> None:
        for _ in range(_MOST_AT_ONCE):
            try:
                connected, _ = listening.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue  # it has left already
            except OSError as error:
                self._complain(f"No connection can be taken at the moment: {error.strerror or error}.")
                self._unwatch()
                self._rest = self._loop.call_later(_REST, self._watch)
                return
            if self._is_welcome(connected):
                task = self._loop.create_task(self._handle(connected))
                self._serving.add(task)
                task.add_done_callback(partial(self._forget, connected))
            else:
                connected.close()

    def _is_welcome(self, connected: socket.socket) -> bool:
        if len(self._serving) >= self._limits.max_connections:
            self._complain("A client was turned away: there are as many connections as limits.max_connections allows.")
            return False
        if self._file is not None:
            user = peer_user(connected)
            # Where the system does not tell, the mode of the file has to do.
            if user not in (None, self._user, 0):
                self._complain(f"A process of the user {user} was turned away: the socket is for its owner only.")
                return False
        return True

    def _forget(self, connected: socket.socket, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        connected.close()  # if no connection has taken it over

    # Serving

    async def _handle(self, connected: socket.socket) -> None:
        try:
            connection = await self._connection(connected)
        except OSError as error:
            self._complain(f"A connection did not come about: {_said(error)}.")
            return
        try:
            if not self._is_closed:
                await self._serve(connection, ANYONE)
        except Exception:
            _logger.exception("A connection at %s could not be served.", self.address)
        finally:
            connection.abort()

    async def _connection(self, connected: socket.socket) -> SocketConnection:
        prepare(connected)
        # A file cannot be reached by a browser.
        refused = None if self._file is not None else self._refuse_stranger
        if self._tls is None:
            return SocketConnection.over(
                connected, limits=self._limits, expect=Request, trace=self._trace, linger=_LINGER, refused=refused
            )
        from mcplumb.transports.tls import secure

        async with asyncio.timeout(_HANDSHAKE) as timeout:
            self._handshakes.add(timeout)
            try:
                return await secure(
                    connected,
                    self._tls,
                    host=None,
                    limits=self._limits,
                    expect=Request,
                    trace=self._trace,
                    linger=_LINGER,
                    refused=refused,
                )
            finally:
                self._handshakes.discard(timeout)

    def _refuse_stranger(self) -> None:
        self._complain("A client was turned away: it speaks HTTP or TLS, and this port is for neither.")

    def _complain(self, sentence: str) -> None:
        self._complaints[sentence] += 1
        count = self._complaints[sentence]
        if count <= _MOST_COMPLAINTS or count & (count - 1) == 0:
            _logger.warning("%s: %s%s", self.address, sentence, "" if count == 1 else f" ({count} times so far)")


async def listening_sockets(address: TcpAddress) -> list[socket.socket]:
    """Sockets that listen, one for each address of the host that this machine has, all at the same port."""
    try:
        found = await find_host(address)
    except socket.gaierror as error:
        raise ConnectError(f"The server cannot listen at {address}: {no_such_host(address, error)}") from error
    sockets: list[socket.socket] = []
    port, failure = address.port, None
    try:
        for info in found:
            try:
                sockets.append(_bound(info, port))
                port = sockets[0].getsockname()[1]
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                failure = error  # a name can stand for addresses that this machine has, and for others
        if failure is not None and not sockets:
            raise failure
    except OSError as error:
        for each in sockets:
            each.close()
        raise ConnectError(f"The server cannot listen at {address}: {_tcp_reason(address, error)}") from error
    return sockets


def _bound(info: TcpInfo, port: int) -> socket.socket:
    family, kind, protocol, _, (host, _, *rest) = info
    listening = socket.socket(family, kind, protocol)
    try:
        # So that a server can start again at once, while the system still remembers its old connections.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((host, port, *rest))
        listening.listen(_TCP_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _is_local(host: str) -> bool:
    return host.startswith("127.") or host == "::1"


def _said(error: OSError) -> str:
    import ssl

    if isinstance(error, TimeoutError):
        return "its client took too long to agree on TLS"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error})"
    return error.strerror or str(error)


def _tcp_reason(address: TcpAddress, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"the port {address.port} is in use. Stop who uses it, or take another; port 0 takes any."
        case errno.EADDRNOTAVAIL | errno.EAFNOSUPPORT:
            return "this machine has no such address. Leave the host out to listen for this machine alone."
        case errno.EACCES:
            return f"the system does not allow this user the port {address.port}. Take one from 1024 on."
        case _:
            return f"{error.strerror or error}."
