"""Notice the exit of a child process without reaping it.

The kernel does not reuse the pid of an exited child, nor the process group of that number, before the child is reaped.
So signals to the pid or the group cannot hit an unrelated process until `reap` is called.
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

#: Python has `os.waitid` on macOS since 3.13; the system had it, and these constants, before.
_P_PID: int = getattr(os, "P_PID", 1)
_WEXITED: int = getattr(os, "WEXITED", 4)
_WNOWAIT: int = getattr(os, "WNOWAIT", 0x20)
_CLD_EXITED = 1


class Exit(msgspec.Struct, frozen=True):
    """How a process ended: its exit code, or the signal's name; neither if other code has reaped it."""

    code: int | None = None
    signal: str | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            return f"was ended by {self.signal}"
        return "ended" if self.code is None else f"exited with code {self.code}"


def has_exited(pid: int) -> bool:
    """Return whether the child has exited, without reaping it. Also True if this process has no such child."""
    return peek(pid) is not None


def peek(pid: int) -> Exit | None:
    """Return how the child ended, without reaping it; None if it still runs."""
    return _wait(pid, os.WNOHANG)


def reap(pid: int) -> Exit | None:
    """Reap the child if it has exited, and return how; None if it still runs. Its pid may be reused afterwards."""
    try:
        reaped, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return Exit()
    if not reaped:
        return None
    code = os.waitstatus_to_exitcode(status)
    return Exit(code=code) if code >= 0 else Exit(signal=_signal_name(-code))


def watch_exit(pid: int, then: Callable[[], None]) -> Callable[[], None]:
    """Call ``then`` once, from the running loop, as soon as the child has exited. The child is not reaped.

    Returns a function that stops watching. It may be called at any time and again, also after the loop was closed.
    """
    loop = asyncio.get_running_loop()
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return loop.call_soon(then).cancel
    except (AttributeError, OSError):
        # Not Linux, an old Linux, a sandbox that refuses the call, or no descriptor is free.
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
    # Only the child's exit wakes the thread, so it is a daemon: it must not keep this process from exiting.
    is_watching = True

    def stop() -> None:
        nonlocal is_watching
        is_watching = False

    def exited() -> None:
        if is_watching:
            stop()
            then()

    def wait() -> None:
        _wait(pid)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(exited)

    threading.Thread(target=wait, name=f"mcplumb-exit-{pid}", daemon=True).start()
    return stop


def _wait(pid: int, flags: int = 0) -> Exit | None:
    """Wait for the child's exit, without reaping it; with WNOHANG, return None if it still runs."""
    flags |= _WEXITED | _WNOWAIT
    if not hasattr(os, "waitid"):
        return _wait_with_ctypes(pid, flags)
    try:
        info = os.waitid(_P_PID, pid, flags)
    except ChildProcessError:
        return Exit()
    return None if info is None else _exit_of(info.si_code, info.si_status)


def _wait_with_ctypes(pid: int, flags: int) -> Exit | None:
    import ctypes
    import errno
    import sys

    waitid = ctypes.CDLL(None, use_errno=True).waitid
    # A `siginfo_t`: 128 bytes on Linux, fewer on macOS. Its first field is SIGCHLD, or 0 if no child has exited.
    info = (ctypes.c_int * 32)()
    while waitid(_P_PID, pid, info, flags) != 0:
        if ctypes.get_errno() != errno.EINTR:
            return Exit()
    # On Linux, the pid is preceded by padding.
    return None if info[0] == 0 else _exit_of(info[2], info[6 if sys.platform == "linux" else 5])


def _exit_of(code: int, status: int) -> Exit:
    return Exit(code=status) if code == _CLD_EXITED else Exit(signal=_signal_name(status))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals
        return f"signal {number}"
