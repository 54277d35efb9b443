"""How a child process ends: noticed at once, and without reaping it.

An exited child that nobody has reaped keeps its pid, so that neither the pid nor the process group of that number can
be given to a stranger. Whoever started the child reaps it when everything that it left behind is gone, too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress

import msgspec

__all__ = ["Exit", "has_exited", "peek", "reap", "watch_exit"]

#: Python knows `os.waitid` on macOS since 3.13; the system has had it, and these numbers, for longer.
_P_PID: int = getattr(os, "P_PID", 1)
_WEXITED: int = getattr(os, "WEXITED", 4)
_WNOWAIT: int = getattr(os, "WNOWAIT", 0x20)
_CLD_EXITED = 1


class Exit(msgspec.Struct, frozen=True):
    """How a process ended: with an exit code, by a signal, or nobody knows, because somebody else reaped it."""

    code: int | None = None
    signal: str | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            return f"was ended by {self.signal}"
        return "ended" if self.code is None else f"exited with code {self.code}"


def has_exited(pid: int) -> bool:
    """Whether the child has exited, reaped or not; it is not reaped by this. True for what is no child of ours."""
    return peek(pid) is not None


def peek(pid: int) -> Exit | None:
    """How the child ended, without reaping it; None if it still runs."""
    return _look(pid, os.WNOHANG)


def reap(pid: int) -> Exit | None:
    """Reap the child if it has exited; None if it still runs. Its pid may belong to a stranger afterwards."""
    try:
        reaped, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return Exit()
    if not reaped:
        return None
    code = os.waitstatus_to_exitcode(status)
    return Exit(code=code) if code >= 0 else Exit(signal=_signal_name(-code))


def watch_exit(pid: int, then: Callable[[], None]) -> Callable[[], None]:
    """Call ``then`` once, in the running loop, as soon as the child has exited; it is not reaped by this.

    Gives a function that stops watching, which may be called at any time and again, also after the loop was closed.
    """
    loop = asyncio.get_running_loop()
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return loop.call_soon(then).cancel
    except (AttributeError, OSError):
        # Not on Linux, an older one, one that refuses this call, or no descriptor is free.
        return _watch_in_thread(pid, loop, then)
    return _watch_descriptor(pidfd, loop, then)


def _watch_descriptor(pidfd: int, loop: asyncio.AbstractEventLoop, then: Callable[[], None]) -> Callable[[], None]:
    is_open = True

    def stop() -> None:
        nonlocal is_open
        if is_open:
            is_open = False
            if not loop.is_closed():
                loop.remove_reader(pidfd)
            os.close(pidfd)

    def exited() -> None:
        stop()
        then()

    loop.add_reader(pidfd, exited)
    return stop


def _watch_in_thread(pid: int, loop: asyncio.AbstractEventLoop, then: Callable[[], None]) -> Callable[[], None]:
    # Nothing can wake the thread but the child's end, so it is a daemon: it keeps no process from ending.
    is_wanted = True

    def stop() -> None:
        nonlocal is_wanted
        is_wanted = False

    def exited() -> None:
        if is_wanted:
            stop()
            then()

    def wait() -> None:
        _look(pid)
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(exited)

    threading.Thread(target=wait, name=f"mcplumb-exit-{pid}", daemon=True).start()
    return stop


def _look(pid: int, flags: int = 0) -> Exit | None:
    """How the child ended. It stays unreaped. Without WNOHANG, wait for that."""
    flags |= _WEXITED | _WNOWAIT
    if not hasattr(os, "waitid"):
        return _look_in_c(pid, flags)
    try:
        news = os.waitid(_P_PID, pid, flags)
    except ChildProcessError:
        return Exit()
    return None if news is None else _exit_of(news.si_code, news.si_status)


def _look_in_c(pid: int, flags: int) -> Exit | None:
    import ctypes
    import errno
    import sys

    waitid = ctypes.CDLL(None, use_errno=True).waitid
    # Room for a `siginfo_t`: 128 bytes on Linux, less on macOS. It begins with SIGCHLD, or with 0 if there is no news.
    info = (ctypes.c_int * 32)()
    while waitid(_P_PID, pid, info, flags) != 0:
        if ctypes.get_errno() != errno.EINTR:
            return Exit()
    # Linux has a gap before the pid.
    return None if info[0] == 0 else _exit_of(info[2], info[6 if sys.platform == "linux" else 5])


def _exit_of(code: int, status: int) -> Exit:
    return Exit(code=status) if code == _CLD_EXITED else Exit(signal=_signal_name(status))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals
        return f"signal {number}"
