"""Listen on Unix and TCP sockets, and serve each connection in its own task.

`Acceptor` accepts connections, `Listener` serves them. `SocketFile` is the file of a Unix socket: only its owner may
use it, it never replaces the socket of a server that still listens, and it is removed at the end.
"""

# os.path instead of pathlib, whose import would slow down every start:
# ruff: noqa: PTH101, PTH108, PTH109, PTH118, PTH120

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import resource
import socket
import stat
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from mcplumb.errors import ConnectError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.address import HttpAddress, SocketAddress, TcpAddress, UnixAddress
from mcplumb.transports.connection import ANYONE, STRANGER, Serve
from mcplumb.transports.descriptors import close_private, keep_private
from mcplumb.transports.line_connection import Trace
from mcplumb.transports.socket_connection import (
    SocketConnection,
    TcpInfo,
    check_tls,
    configure_socket,
    explain_unknown_host,
    resolve_host,
)
from mcplumb.wire.messages import Request

if TYPE_CHECKING:
    import ssl

__all__ = [
    "Acceptor",
    "Listener",
    "SocketFile",
    "connection_room",
    "listening_sockets",
    "peer_process",
    "peer_user",
    "spare_descriptors",
]

_logger = logging.getLogger("mcplumb.server")


#: Connections that may wait to be accepted. The system may allow fewer.
_BACKLOG = 512


# Unix socket files


#: The mode of the file: read and write for its owner, nothing for others.
_OWNER_ONLY = 0o600
#: Seconds to wait for another server that holds the lock on the folder, normally for milliseconds.
_LOCK_TIMEOUT = 5.0
_LOCK_POLL = 0.005
#: The ``ucred`` structure of Linux: process, user and group of the peer.
_CREDENTIALS = struct.Struct("3i")


class SocketFile:
    """A listening Unix socket and its file. Created by `claim`; the caller closes the socket."""

    __slots__ = ("_identity", "_path", "socket")

    @classmethod
    async def claim(cls, path: str) -> SocketFile:
        """Listen at this path. A stale socket file, at which no process listens, is replaced.

        Raises `ConnectError` if a process listens there, if the file is not a socket, or if the system refuses.
        """
        listening = socket.socket(socket.AF_UNIX)
        try:
            async with _folder_lock(os.path.dirname(path) or "."):
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
        #: The socket, which already listens.
        self.socket = listening
        self._path = os.path.join(os.getcwd(), path)
        with suppress(OSError):
            # Linux gives the file the mode of the socket, so that it never exists with a wider one.
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
            # No client could connect before this, whatever the mode was.
            listening.listen(_BACKLOG)
        except BaseException:
            os.unlink(path)
            raise

    async def remove(self) -> None:
        """Remove the file, unless it was replaced: its inode number is not reused while the socket is open.

        If cancelled, it removes the file without waiting for the lock.
        """
        try:
            async with _folder_lock(os.path.dirname(self._path)):
                self._unlink()
        except asyncio.CancelledError:
            self._unlink()
            raise

    def _unlink(self) -> None:
        with suppress(OSError):  # it is gone, or may no longer be removed
            status = os.lstat(self._path)
            if (status.st_dev, status.st_ino) == self._identity:
                os.unlink(self._path)


def peer_user(connected: socket.socket) -> int | None:
    """Return the user id of the process at the other end; None where the system cannot tell."""
    credentials = _peer_credentials(connected)
    return None if credentials is None else credentials[1]


def peer_process(connected: socket.socket) -> int | None:
    """Return the id of the process at the other end; None where the system cannot tell."""
    credentials = _peer_credentials(connected)
    return None if credentials is None else credentials[0]


def _peer_credentials(connected: socket.socket) -> tuple[int, int, int] | None:
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    process, user, group = _CREDENTIALS.unpack(
        connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    )
    return process, user, group


@asynccontextmanager
async def _folder_lock(folder: str) -> AsyncIterator[None]:
    """Hold an advisory lock on the folder, so that only one server at a time claims or removes a file in it.

    The wait is bounded, and the body runs without the lock afterwards: in a folder that all users share, any of them
    may hold the lock forever. It also runs without one where the folder cannot be opened.
    """
    fd: int | None = None
    with suppress(OSError):  # not readable, or missing, which the body reports
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _LOCK_TIMEOUT
    try:
        while fd is not None and not _try_lock(fd) and loop.time() < deadline:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(_LOCK_POLL)
        yield
    finally:
        if fd is not None:
            os.close(fd)


def _try_lock(fd: int) -> bool:
    """Return False if another process holds the lock. A folder that cannot be locked at all counts as locked."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def _remove_stale(path: str) -> None:
    """Remove a socket file at which no process listens; raise `ConnectError` if it is anything else."""
    with suppress(FileNotFoundError):  # it was removed meanwhile
        mode = os.lstat(path).st_mode
        if not stat.S_ISSOCK(mode):
            kind = "a symbolic link" if stat.S_ISLNK(mode) else "a directory" if stat.S_ISDIR(mode) else "a file"
            raise _taken(path, f"there is {kind} that is not a socket. Remove it, or choose another path.")
        if who := _listener(path):
            raise _taken(path, f"{who} listens there already. Stop it, or choose another path.")
        os.unlink(path)


def _listener(path: str) -> str:
    """Describe the process that listens there; empty if none does."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
            process = peer_process(probe)
        except ConnectionRefusedError:
            return ""
        except BlockingIOError:
            process = None  # its backlog is full
    return "Another process" if process is None else f"Process {process}"


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


# Accepting


#: Connections accepted in one iteration of the loop.
_ACCEPTS_PER_TURN = 64
#: Seconds without accepting after ``accept`` failed for lack of descriptors or memory.
_ACCEPT_PAUSE = 1.0
#: Seconds between two warnings about that.
_WARN_AGAIN = 60.0
#: The part of the process's descriptors, and the least number, that connections leave to everything else.
_SPARE_PART, _LEAST_SPARE = 8, 32


def spare_descriptors() -> int:
    """Return how many descriptors of this process the connections at one address leave to everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft // _SPARE_PART, _LEAST_SPARE)


def connection_room(wanted: int) -> int:
    """Return how many connections at one address the descriptors of this process allow, ``wanted`` at most.

    Functions open files, and imports do: these must not fail because of clients that are only connected.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(soft - spare_descriptors(), 1))


class Acceptor:
    """Accepts connections at sockets that listen, and passes each to ``accepted``.

    When the system has no descriptor or memory for another one, it calls ``make_room``. Unless that returns True,
    because connections were closed, accepting pauses for a second. One warning a minute says so. At most ``per_turn``
    connections are accepted in one turn of the event loop.
    """

    def __init__(
        self,
        address: SocketAddress | HttpAddress,
        sockets: list[socket.socket],
        accepted: Callable[[socket.socket], None],
        *,
        make_room: Callable[[], bool] = lambda: False,
        per_turn: int | None = None,
    ) -> None:
        self._address = address
        self._sockets = sockets
        self._accepted = accepted
        self._make_room = make_room
        self._per_turn = per_turn or _ACCEPTS_PER_TURN
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self._warn_from = 0.0
        for each in sockets:
            keep_private(each.fileno())
            each.setblocking(False)
        self._start()

    def stop(self) -> None:
        """Stop accepting. May be called again."""
        if self._timer is not None:
            self._timer.cancel()
        for each in self._sockets:
            if each.fileno() >= 0:
                self._loop.remove_reader(each)

    def close(self) -> None:
        """Stop accepting, and close the sockets. May be called again."""
        self.stop()
        for each in self._sockets:
            if each.fileno() >= 0:
                close_private(each.detach())

    def _start(self) -> None:
        for each in self._sockets:
            self._loop.add_reader(each, self._accept, each)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(self._per_turn):
            try:
                connected, _ = listening.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue  # the client has disconnected already
            except OSError as error:
                self._warn(error)
                if not self._make_room():
                    self.stop()
                    self._timer = self._loop.call_later(_ACCEPT_PAUSE, self._start)
                return
            self._accepted(connected)

    def _warn(self, error: OSError) -> None:
        self._failures += 1
        now = self._loop.time()
        if now >= self._warn_from:
            self._warn_from = now + _WARN_AGAIN
            times = "" if self._failures == 1 else f" ({self._failures} times so far)"
            reason = error.strerror or error
            _logger.warning("%s: Connections cannot be accepted at the moment: %s.%s", self._address, reason, times)


# The listener


#: Seconds that a client may take for the TLS handshake.
_HANDSHAKE_TIMEOUT = 10.0
#: Seconds that a client has to close its side when the server closes the connection.
_LINGER = 0.4
#: Warnings of one kind that are logged one by one; later ones are logged each time their number has doubled.
_MOST_WARNINGS = 10


class Listener:
    """Accepts connections at one address. Created by `open`, in a running event loop."""

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
        """Listen at the address and start to accept.

        Raises `ConnectError` with the reason if that fails; no socket and no file is left then.
        """
        check_tls(address, tls, is_server=True)
        if isinstance(address, UnixAddress):
            file = await SocketFile.claim(address.path)
            return cls(address, [file.socket], file, serve, limits, None, trace)
        sockets = await listening_sockets(address)
        names = [each.getsockname() for each in sockets]
        if tls is None and not all(_is_loopback(name[0]) for name in names):
            _logger.warning(
                "The server listens at %s without TLS, and not only for this machine: everyone who can reach it can "
                "use it, and the traffic can be read on the way.",
                address,
            )
        return cls(TcpAddress(address.host, names[0][1]), sockets, None, serve, limits, tls, trace)

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
        #: The address, with the actual port if port 0 was asked for.
        self.address = address
        self._sockets = sockets
        self._file = file
        self._serve = serve
        self._limits = limits
        self._tls = tls
        self._trace = trace
        self._loop = asyncio.get_running_loop()
        self._own_pid = os.getpid()
        self._own_user = os.geteuid()
        self._serving: set[asyncio.Task[None]] = set()
        self._handshakes: set[asyncio.Timeout] = set()
        self._warnings: Counter[str] = Counter()
        self._is_closed = False
        self._max_connections = connection_room(limits.max_connections)
        self._acceptor = Acceptor(address, sockets, self._accepted)

    async def close(self) -> None:
        """Stop accepting, and remove the socket file. Connections that are being served go on.

        May be called again. In a fork it does nothing. If cancelled, it still completes.
        """
        if self._is_closed or os.getpid() != self._own_pid:
            return
        self._is_closed = True
        self._acceptor.stop()
        for timeout in self._handshakes:
            if not timeout.expired():
                timeout.reschedule(self._loop.time())
        try:
            if self._file is not None:
                await self._file.remove()
        finally:
            self._acceptor.close()

    # Accepting

    def _accepted(self, connected: socket.socket) -> None:
        if self._is_allowed(connected):
            task = self._loop.create_task(self._handle(connected))
            self._serving.add(task)
            task.add_done_callback(partial(self._forget, connected))
        else:
            connected.close()

    def _is_allowed(self, connected: socket.socket) -> bool:
        if len(self._serving) >= self._max_connections:
            reached = "limits.max_connections is reached"
            if self._max_connections < self._limits.max_connections:
                reached = f"the descriptors of the process (ulimit -n) allow {self._max_connections} connections"
            self._warn(f"A client was refused: {reached}.")
            return False
        if self._file is not None:
            user = peer_user(connected)
            # Where the system cannot tell the user, the mode of the file must suffice.
            if user not in (None, self._own_user, 0):
                self._warn(f"A process of the user {user} was refused: the socket is for its owner only.")
                return False
        return True

    def _forget(self, connected: socket.socket, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        connected.close()  # does nothing if a connection has taken the socket over

    # Serving

    async def _handle(self, connected: socket.socket) -> None:
        try:
            connection = await self._connection(connected)
        except OSError as error:
            self._warn(f"A connection could not be set up: {_setup_reason(error)}.")
            return
        try:
            if not self._is_closed:
                await self._serve(connection, ANYONE if self._file is not None else STRANGER)
        except Exception:
            _logger.exception("A connection at %s could not be served.", self.address)
        finally:
            connection.abort()

    async def _connection(self, connected: socket.socket) -> SocketConnection:
        configure_socket(connected)
        # A browser cannot reach a Unix socket.
        refused = None if self._file is not None else self._warn_other_protocol
        of_connection = getattr(self._trace, "of_connection", None)
        trace = self._trace if of_connection is None else of_connection()
        if self._tls is None:
            return SocketConnection.over(
                connected, limits=self._limits, expect=Request, trace=trace, linger=_LINGER, refused=refused
            )
        from mcplumb.transports.tls import start_tls

        async with asyncio.timeout(_HANDSHAKE_TIMEOUT) as timeout:
            self._handshakes.add(timeout)
            try:
                return await start_tls(
                    connected,
                    self._tls,
                    host=None,
                    limits=self._limits,
                    expect=Request,
                    trace=trace,
                    linger=_LINGER,
                    refused=refused,
                )
            finally:
                self._handshakes.discard(timeout)

    def _warn_other_protocol(self) -> None:
        self._warn("A client was refused: it speaks HTTP or TLS, which this port does not serve.")

    def _warn(self, sentence: str) -> None:
        self._warnings[sentence] += 1
        count = self._warnings[sentence]
        if count <= _MOST_WARNINGS or count & (count - 1) == 0:
            _logger.warning("%s: %s%s", self.address, sentence, "" if count == 1 else f" ({count} times so far)")


async def listening_sockets(address: TcpAddress) -> list[socket.socket]:
    """Return listening sockets: one for each address of the host that this machine has, all on the same port."""
    where = str(address).removeprefix("tcp://")  # it may be for HTTP
    try:
        found = await resolve_host(address)
    except socket.gaierror as error:
        raise ConnectError(f"The server cannot listen at {where}: {explain_unknown_host(address, error)}") from error
    sockets: list[socket.socket] = []
    port, failure = address.port, None
    try:
        for info in found:
            try:
                sockets.append(_listen(info, port))
                port = sockets[0].getsockname()[1]
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                failure = error  # only some of a name's addresses may belong to this machine
        if failure is not None and not sockets:
            raise failure
    except OSError as error:
        for each in sockets:
            each.close()
        raise ConnectError(f"The server cannot listen at {where}: {_tcp_reason(address, error)}") from error
    return sockets


def _listen(info: TcpInfo, port: int) -> socket.socket:
    family, kind, protocol, _, (host, _, *rest) = info
    listening = socket.socket(family, kind, protocol)
    try:
        # A server can restart at once, although old connections are still in TIME_WAIT.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind((host, port, *rest))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"


def _setup_reason(error: OSError) -> str:
    import ssl

    if isinstance(error, TimeoutError):
        return "the TLS handshake timed out"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error})"
    return error.strerror or str(error)


def _tcp_reason(address: TcpAddress, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"the port {address.port} is in use. Stop the process that uses it, or choose another; 0 takes any "
                "free port."
            )
        case errno.EADDRNOTAVAIL | errno.EAFNOSUPPORT:
            return "this machine has no such address. Leave out the host to listen on this machine only."
        case errno.EACCES:
            return f"this user may not use port {address.port}. Choose one from 1024 on."
        case _:
            return f"{error.strerror or error}."
