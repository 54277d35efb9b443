"""The files of Unix sockets: for their owner only, never taken from somebody who listens, and removed in the end."""

# Without pathlib, which a start-up would load for nothing but this:
# ruff: noqa: PTH101, PTH108, PTH109, PTH118, PTH120

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from mcplumb.errors import ConnectError

__all__ = ["SocketFile", "peer_process", "peer_user"]

#: Read and write, for the owner.
_OWNER_ONLY = 0o600
#: Callers that may wait to be let in. The system may allow fewer.
_BACKLOG = 512
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
                    raise ConnectError(f"The server cannot listen at unix:{path}: {_reason(path, error)}") from error
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
            listening.listen(_BACKLOG)
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


def _reason(path: str, error: OSError) -> str:
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
