"""The guardian: a small process that ends the servers of this process if this process dies before it has done so.

It is :mod:`mcplumb.transports.process.tree` as a program, at the other end of a pipe that ends with this process,
however that dies. One guardian serves for all servers, from the first to the last. A fork has none until it has servers
itself. Everything here may be called from any thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress

from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.transports.descriptors import close_private, private_pipe
from mcplumb.transports.process import tree
from mcplumb.transports.process.exit_watch import has_exited, reap, watch_exit

__all__ = ["let_go", "let_go_nowait", "prepare", "watch_over"]

_logger = logging.getLogger("mcplumb.client")

_DEFAULT_LADDER = StopLadder()

#: How long a guardian that was killed may take to end, in seconds: first without, then with holding everything up.
_PATIENCE = 2.0
_SHORT_PATIENCE = 0.1
_POLL = 0.001


def prepare(stdin: int | None = None, ladder: StopLadder = _DEFAULT_LADDER, mark: str = "-") -> str:
    """Start the guardian if there is none, before the server is started that it is for. Never raises.

    With the pipe that will be the server's stdin, the server is guarded from its first moment (where there is /proc).
    That is what the returned name is for: give it to :func:`watch_over`, or to :func:`let_go_nowait` if no server came.
    ``mark`` is the value that the server will have for `tree.MARK`.
    """
    name = "" if stdin is None else tree.file_name(stdin)
    with _lock:
        _guards.add(name, 0, ladder, mark)
    return name


def watch_over(pid: int, ladder: StopLadder, prepared: str = "", mark: str = "-") -> None:
    """If this process dies from now on, the server's tree is ended by the ladder. Never raises.

    The server must lead a session of its own, and must not have been reaped. Where no guardian can run, a warning is
    logged once.
    """
    with _lock:
        _guards.add(str(pid), tree.start_time(pid), ladder, mark)
        _guards.remove(prepared)


async def let_go(pid: int) -> None:
    """The server's tree is gone. With the last one the guardian ends; it is reaped, also if this is cancelled."""
    with _lock:
        last = _guards.remove(str(pid))
    if last is None:
        return
    exited = asyncio.Event()
    unwatch = watch_exit(last, exited.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await exited.wait()
    finally:
        unwatch()
        _bury(last)


def let_go_nowait(who: int | str = "") -> None:
    """The same for those who cannot await: it blocks for the moment that it takes the guardian to end.

    ``who`` may also be what :func:`prepare` has returned, for a server that could not be started.
    """
    with _lock:
        last = _guards.remove(str(who))
    if last is not None:
        _bury(last)


class _Guardian:
    """The process, and the pipe to it. It is born with its first orders."""

    __slots__ = ("_pipe", "pid")

    def __init__(self, orders: Iterable[str]) -> None:
        read_end, self._pipe = private_pipe()
        try:
            os.set_blocking(self._pipe, False)
            self.pid = _spawn(read_end, orders)
        except OSError:
            close_private(self._pipe)
            raise
        finally:
            close_private(read_end)

    def tell(self, order: str) -> bool:
        """Send an order, or an empty one to see whether it listens. No order is so long that it could be cut in two."""
        if has_exited(self.pid):
            return False
        try:
            os.write(self._pipe, f"{order}\n".encode())
        except (BrokenPipeError, BlockingIOError):  # it has ended just now, or was stopped long ago
            return False
        return True

    def dismiss(self) -> None:
        """End it at once, before it can take the end of the pipe for our death. It has to be reaped."""
        if not has_exited(self.pid):
            os.kill(self.pid, signal.SIGKILL)
        close_private(self._pipe)


def _spawn(stdin: int, orders: Iterable[str]) -> int:
    process = subprocess.Popen(  # noqa: S603 - a program of ours, and numbers
        [sys.executable, "-I", "-S", _program(), *orders],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",  # it must not keep a disk from being unmounted
        start_new_session=True,
    )
    process.returncode = 0  # we reap it ourselves, and Popen must not want to
    return process.pid


def _program() -> str:
    """The guardian: compiled, where that was kept, to save it the work."""
    compiled = tree.__spec__.cached
    return compiled if compiled and os.access(compiled, os.R_OK) else tree.__file__


class _Guards:
    """The guardian, if there is one, and what it has to know. To be used under the lock."""

    __slots__ = ("_guardian", "_has_warned", "_is_hopeless", "_orders", "unreaped")

    def __init__(self) -> None:
        self._guardian: _Guardian | None = None
        #: What the guardian is told about each server.
        self._orders: dict[str, str] = {}
        self._has_warned = False
        self._is_hopeless = False
        #: Former guardians that had not ended yet.
        self.unreaped: set[int] = set()

    def add(self, who: str, start: int, ladder: StopLadder, mark: str) -> None:
        """Guard a server; without a name, only see to it that there is a guardian."""
        order = ""
        if who:
            waits = " ".join(str(step.wait) for step in ladder.steps())
            order = self._orders[who] = f"+ {who} {start} {mark} {waits}"
        self._tell(order)

    def remove(self, who: str) -> int | None:
        """Guard a server no more. If it was the last one, the guardian is killed, and its pid returned: reap it."""
        if self._orders.pop(who, None) is not None and self._orders:
            self._tell(f"- {who}")
        guardian = self._guardian
        if self._orders or guardian is None:
            return None
        self._guardian = None
        guardian.dismiss()
        return guardian.pid

    def _tell(self, order: str) -> None:
        """Tell the guardian, or if none listens start one, which knows all orders from its birth."""
        if self._guardian is not None and not self._guardian.tell(order):
            self._lose(self._guardian)
        if self._guardian is None and not self._is_hopeless:
            self._start()

    def _lose(self, guardian: _Guardian) -> None:
        self._guardian = None
        guardian.dismiss()
        end = reap(guardian.pid)
        if end is None:
            self.unreaped.add(guardian.pid)
        elif end.code is not None:
            # It does not leave of its own will while this process lives: the next one would not get far, either.
            self._is_hopeless = True
            self._warn(f"it {end}")
            return
        _logger.warning(
            "The process that guards the servers %s. Another one takes its place.", end or "does not listen"
        )

    def _start(self) -> None:
        self.unreaped = {pid for pid in self.unreaped if reap(pid) is None}
        if not sys.executable or hasattr(sys, "frozen"):  # a frozen program would start itself
            self._warn("there is no Python interpreter to run it")
            return
        try:
            self._guardian = _Guardian(self._orders.values())
        except OSError as error:
            self._warn(str(error))

    def _warn(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "There is no process to guard the servers (%s). If this process is killed, they may live on.", reason
            )


def _bury(pid: int) -> None:
    """Reap a guardian that was killed. If it does not end, a later one's start will try again."""
    deadline = time.monotonic() + _SHORT_PATIENCE
    while reap(pid) is None:
        if time.monotonic() > deadline:
            with _lock:
                _guards.unreaped.add(pid)
            return
        time.sleep(_POLL)


_guards = _Guards()
_lock = threading.RLock()


def _start_over() -> None:
    global _guards  # noqa: PLW0603 - a process has one
    _guards = _Guards()
    _lock.release()


# The lock is held, so that no fork gets the other end of a pipe that is not private yet.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_start_over)
