"""File descriptors, and everything about them that differs between systems.

What a descriptor is, how to write to it without waiting for its reader, how to keep it from children and forks. The
flags of a descriptor are shared with all copies of it, in other processes too: they are left as they are where the
system has another way.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import socket
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Literal, TypeAlias

__all__ = [
    "BlockingSink",
    "Kind",
    "PipeSink",
    "SocketSink",
    "bytes_waiting",
    "close_private",
    "enlarge_pipe",
    "hang_up_bell",
    "is_open",
    "keep_private",
    "kind_of",
    "open_sink",
    "private_copy",
    "private_pipe",
    "put_copy",
    "put_null",
    "wait_for_input",
]

#: The event loop can watch pipes (named ones too) and sockets. The others are files, terminals and devices.
Kind: TypeAlias = Literal["pipe", "socket", "other"]

#: The size that a pipe is enlarged to once it has been full: the most that Linux allows every user.
_PIPE_BYTES = 1024 * 1024
#: The most pieces that one write may have (IOV_MAX; POSIX grants 16, and Linux, macOS and the BSDs 1024).
_MAX_PIECES = 1024
#: Descriptors below this are the standard streams.
_FIRST_PRIVATE = 3


def is_open(fd: int) -> bool:
    """Return whether the number belongs to an open file."""
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def kind_of(fd: int) -> Kind:
    """Return what the descriptor is; raise `OSError` if it is closed."""
    mode = os.fstat(fd).st_mode
    if stat.S_ISFIFO(mode):
        return "pipe"
    return "socket" if stat.S_ISSOCK(mode) else "other"


def enlarge_pipe(fd: int) -> None:
    """Enlarge a pipe where the system can. Users have a quota for that, so only pipes that were full are enlarged."""
    # EPERM: the quota is used up; EBUSY: the pipe is too full; EBADF: it is no pipe. In all cases it stays as it is.
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


# --- Privacy ---

_private: set[int] = set()
#: A lock, because a reader's thread closes its own descriptor.
_lock = threading.RLock()
#: The null device, open as long as anything is private.
_null: int | None = None


def private_copy(fd: int) -> int:
    """Return a second descriptor for the same file, private to this process, and not one of the standard three."""
    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_PRIVATE)
    try:
        return keep_private(copy)
    except OSError:
        os.close(copy)
        raise


def private_pipe() -> tuple[int, int]:
    """Return the two ends of a new pipe, both private, and not among the standard three."""
    with _lock:
        ends = os.pipe()
        copies: list[int] = []
        try:
            copies.extend(map(private_copy, ends))
        except OSError:
            for copy in copies:
                close_private(copy)
            raise
        finally:
            for end in ends:
                os.close(end)
        return copies[0], copies[1]


def keep_private(fd: int) -> int:
    """Make a descriptor private: children do not inherit it, and in a fork it is the null device."""
    global _null  # noqa: PLW0603 (a process has one set of descriptors)
    os.set_inheritable(fd, False)
    with _lock:
        if _null is None:
            # Opened now, because in a fork there may be no descriptor left for it.
            null = os.open(os.devnull, os.O_RDWR)
            try:
                _null = fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, _FIRST_PRIVATE)
            finally:
                os.close(null)
        _private.add(fd)
    return fd


def close_private(fd: int) -> None:
    """Close a descriptor that `private_copy` or `keep_private` returned."""
    global _null  # noqa: PLW0603 (a process has one set of descriptors)
    with _lock:
        _private.discard(fd)
        os.close(fd)
        if not _private and _null is not None:
            os.close(_null)
            _null = None


def put_copy(fd: int, target: int, *, inheritable: bool = True) -> None:
    """Make ``target`` another descriptor for the file of ``fd``, whatever it was."""
    os.dup2(fd, target, inheritable)


def put_null(target: int) -> None:
    """Make ``target`` the null device, for children too."""
    null = os.open(os.devnull, os.O_RDWR)
    if null == target:  # it was free
        os.set_inheritable(null, True)
        return
    try:
        os.dup2(null, target)
    finally:
        os.close(null)


def _leave_to_the_parent() -> None:
    # Not closed: what still uses the numbers in the fork must not reach an unrelated file that has got one of them.
    if _null is not None:
        for fd in _private:
            os.dup2(_null, fd, inheritable=False)


def _leave_and_unlock() -> None:
    _leave_to_the_parent()
    _lock.release()


# The lock is held during a fork, so that the fork finds it free and every descriptor registered.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_leave_and_unlock)


# --- Reading ---


def bytes_waiting(fd: int) -> int:
    """Return how many bytes can be read right now from a pipe or a socket."""
    import termios  # servers never need it, and start sooner without it

    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4), sys.byteorder)


@cache
def _writers_see_unread() -> bool:
    """Return whether the writing end of a pipe tells how much is unread: on Linux it does, on macOS it does not."""
    reader, writer = private_pipe()
    try:
        os.write(writer, b"?")
        return bytes_waiting(writer) == 1
    except OSError:
        return False
    finally:
        close_private(reader)
        close_private(writer)


def hang_up_bell(fd: int) -> select.epoll | None:
    """Return something that becomes readable when the last writer of a pipe or socket is gone, even if data is unread.

    Return None where the system cannot tell that. The caller closes it.
    """
    if not hasattr(select, "epoll"):
        return None
    with suppress(OSError):  # there may be no more descriptors
        bell = select.epoll()
        bell.register(fd, select.EPOLLRDHUP)
        return bell
    return None


def wait_for_input(fd: int, wake: int) -> bool:
    """Block until ``fd`` is readable (return True) or the other end of the pipe ``wake`` is closed (return False)."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.register(wake, select.POLLIN)
    return all(ready != wake for ready, _ in poll.poll())


# --- Writing ---


class _DescriptorSink:
    """Common part of the ways to write to a descriptor, which it owns."""

    __slots__ = ("_fd", "_loop")

    def __init__(self, fd: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = keep_private(fd)

    def watch(self, then: Callable[[], None]) -> None:
        """Call ``then`` whenever the descriptor is writable."""
        self._loop.add_writer(self._fd, then)

    def unwatch(self) -> None:
        """Stop watching."""
        self._loop.remove_writer(self._fd)

    def close(self) -> None:
        """Close the descriptor; it must not be watched."""
        close_private(self._fd)


class PipeSink(_DescriptorSink):
    """Writes to a pipe through an open file description of our own, so that only ours is non-blocking."""

    __slots__ = ("_is_large", "_was_blocking")

    def __init__(self, fd: int) -> None:
        own = _reopened(fd)
        super().__init__(fd if own is None else own)
        self._is_large = False
        self._was_blocking = own is None and os.get_blocking(fd)
        if own is not None:
            close_private(fd)
        elif self._was_blocking:
            os.set_blocking(fd, False)

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write as much as the pipe has room for, and return how many bytes that was."""
        try:
            return os.writev(self._fd, pieces[:_MAX_PIECES])
        except BlockingIOError:
            return 0

    @property
    def pipe(self) -> int:
        """The descriptor, for a connection that writes to it without a call of this object for each message."""
        return self._fd

    def unread(self) -> int | None:
        """Return how many bytes have not been read yet; None where the system does not tell."""
        with suppress(OSError):
            return bytes_waiting(self._fd) if _writers_see_unread() else None
        return None

    def watch(self, then: Callable[[], None]) -> None:
        """Call ``then`` whenever the pipe is writable, after enlarging it once."""
        if not self._is_large:
            self._is_large = True
            enlarge_pipe(self._fd)
        super().watch(then)

    def close(self) -> None:
        """Close the pipe, and make it blocking again if it was."""
        if self._was_blocking:
            os.set_blocking(self._fd, True)
        super().close()


class SocketSink(_DescriptorSink):
    """Writes to a socket without blocking, by a flag of each call."""

    __slots__ = ("_socket",)

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._socket = socket.socket(fileno=fd)
        if self._socket.gettimeout() is not None:
            # The program set a default timeout for its sockets, with which a socket would wait all the same.
            self._socket.settimeout(None)

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write as much as the socket has room for, and return how many bytes that was."""
        try:
            return self._socket.sendmsg(pieces[:_MAX_PIECES], (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.detach()
        super().close()


class BlockingSink(_DescriptorSink):
    """Writes to a file, a terminal or a device, which cannot be watched: everything at once, blocking if it must."""

    __slots__ = ()

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write everything, and return how many bytes that was."""
        rest = memoryview(b"".join(pieces))
        total = len(rest)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                # Another process that shares the terminal has made it non-blocking.
                select.select((), (self._fd,), ())
        return total


def open_sink(fd: int) -> PipeSink | SocketSink | BlockingSink:
    """Return the sink for a descriptor, which the sink then owns."""
    kind = kind_of(fd)
    if kind == "pipe":
        return PipeSink(fd)
    return SocketSink(fd) if kind == "socket" else BlockingSink(fd)


def _reopened(fd: int) -> int | None:
    """Return a new open file description of the same pipe, non-blocking; None where the system has no way to that.

    There is none without /proc, for a pipe of another user, and for one that has no reader any more.
    """
    try:
        own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
    if own >= _FIRST_PRIVATE:
        return own
    try:
        return fcntl.fcntl(own, fcntl.F_DUPFD_CLOEXEC, _FIRST_PRIVATE)
    finally:
        os.close(own)
