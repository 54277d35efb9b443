"""The watchdog: a small process that stops the servers of this process if this process dies first.

It runs :mod:`mcplumb.transports.process.tree` as a program and reads from a pipe, which ends when this process dies,
for whatever reason. One watchdog serves all servers, from the start of the first to the end of the last. A fork starts
its own when it starts a server. All functions here may be called from any thread.
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

__all__ = ["prepare", "register", "unregister", "unregister_nowait"]

_logger = logging.getLogger("mcplumb.client")

_DEFAULT_LADDER = StopLadder()

#: Seconds to wait for the exit of the watchdog after it was killed: first asynchronously, then blocking.
_EXIT_TIMEOUT = 2.0
_BLOCKING_TIMEOUT = 0.1
_POLL = 0.001


def prepare(stdin: int | None = None, ladder: StopLadder = _DEFAULT_LADDER, mark: str = "-") -> str:
    """Start the watchdog if it does not run, before a server is started. Never raises.

    With the pipe that will be the server's stdin, the server is covered from its first moment (where there is /proc).
    Pass the returned name to :func:`register`, or to :func:`unregister_nowait` if the server could not be started.
    ``mark`` is the value that the server will have for `tree.MARK`.
    """
    name = "" if stdin is None else tree.file_name(stdin)
    with _lock:
        _registry.add(name, 0, ladder, mark)
    return name


def register(pid: int, ladder: StopLadder, prepared: str = "", mark: str = "-") -> None:
    """Register a server: if this process dies, the watchdog stops the server's tree by the ladder. Never raises.

    The server must lead a session of its own, and must not have been reaped. Where no watchdog can run, a warning is
    logged once.
    """
    with _lock:
        _registry.add(str(pid), tree.start_time(pid), ladder, mark)
        _registry.remove(prepared)


async def unregister(pid: int) -> None:
    """Remove a server whose tree is gone. The last one stops the watchdog, and reaps it even if this is cancelled."""
    with _lock:
        watchdog_pid = _registry.remove(str(pid))
    if watchdog_pid is None:
        return
    exited = asyncio.Event()
    unwatch = watch_exit(watchdog_pid, exited.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_TIMEOUT):
                await exited.wait()
    finally:
        unwatch()
        _reap_killed(watchdog_pid)


def unregister_nowait(server: int | str = "") -> None:
    """Remove a server without an event loop; the last one blocks for the moment that the watchdog takes to exit.

    ``server`` is its pid, or what :func:`prepare` returned for a server that could not be started.
    """
    with _lock:
        watchdog_pid = _registry.remove(str(server))
    if watchdog_pid is not None:
        _reap_killed(watchdog_pid)


class _WatchdogProcess:
    """The watchdog's process and the pipe to it. It is started with its first instructions."""

    __slots__ = ("_pipe", "pid")

    def __init__(self, instructions: Iterable[str]) -> None:
        read_end, self._pipe = private_pipe()
        try:
            os.set_blocking(self._pipe, False)
            self.pid = _spawn(read_end, instructions)
        except OSError:
            close_private(self._pipe)
            raise
        finally:
            close_private(read_end)

    def send(self, instruction: str) -> bool:
        """Send an instruction; an empty one checks whether the process reads. Each is short enough to be sent whole."""
        if has_exited(self.pid):
            return False
        try:
            os.write(self._pipe, f"{instruction}\n".encode())
        except (BrokenPipeError, BlockingIOError):  # it has just exited, or has been stopped for long
            return False
        return True

    def kill(self) -> None:
        """Kill the process before it sees the end of the pipe, which means our death. The caller reaps it."""
        if not has_exited(self.pid):
            os.kill(self.pid, signal.SIGKILL)
        close_private(self._pipe)


def _spawn(stdin: int, instructions: Iterable[str]) -> int:
    process = subprocess.Popen(  # noqa: S603 - our own program, and numbers as arguments
        [sys.executable, "-I", "-S", _program(), *instructions],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",  # the current directory would keep a disk from being unmounted
        start_new_session=True,
    )
    process.returncode = 0  # Popen must not reap it: this module does
    return process.pid


def _program() -> str:
    """Return the path of the watchdog's program: the bytecode file, if there is one, which starts faster."""
    compiled = tree.__spec__.cached
    return compiled if compiled and os.access(compiled, os.R_OK) else tree.__file__


class _Registry:
    """The registered servers, and the watchdog's process while there are any. Used with the lock held."""

    __slots__ = ("_has_warned", "_instructions", "_is_disabled", "_process", "unreaped")

    def __init__(self) -> None:
        self._process: _WatchdogProcess | None = None
        #: The instruction for each server.
        self._instructions: dict[str, str] = {}
        self._has_warned = False
        self._is_disabled = False
        #: Pids of former watchdogs that had not exited yet.
        self.unreaped: set[int] = set()

    def add(self, server: str, start: int, ladder: StopLadder, mark: str) -> None:
        """Register a server; without a name, only make sure that the watchdog runs."""
        instruction = ""
        if server:
            waits = " ".join(str(step.wait) for step in ladder.steps())
            instruction = self._instructions[server] = f"+ {server} {start} {mark} {waits}"
        self._send(instruction)

    def remove(self, server: str) -> int | None:
        """Remove a server. If it was the last one, kill the watchdog and return its pid, which the caller reaps."""
        if self._instructions.pop(server, None) is not None and self._instructions:
            self._send(f"- {server}")
        process = self._process
        if self._instructions or process is None:
            return None
        self._process = None
        process.kill()
        return process.pid

    def _send(self, instruction: str) -> None:
        """Send an instruction. If the watchdog does not read, replace it by a new one, which gets all instructions."""
        if self._process is not None and not self._process.send(instruction):
            self._discard(self._process)
        if self._process is None and not self._is_disabled:
            self._start()

    def _discard(self, process: _WatchdogProcess) -> None:
        self._process = None
        process.kill()
        end = reap(process.pid)
        if end is None:
            self.unreaped.add(process.pid)
        elif end.code is not None:
            # It does not exit by itself while this process lives, so it failed, and so would the next one.
            self._is_disabled = True
            self._warn(f"it {end}")
            return
        _logger.warning("The watchdog process %s. Another one is started.", end or "does not respond")

    def _start(self) -> None:
        self.unreaped = {pid for pid in self.unreaped if reap(pid) is None}
        if not sys.executable or hasattr(sys, "frozen"):  # in a frozen program, sys.executable is the program itself
            self._warn("there is no Python interpreter to run it")
            return
        try:
            self._process = _WatchdogProcess(self._instructions.values())
        except OSError as error:
            self._warn(str(error))

    def _warn(self, reason: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "The watchdog process cannot run (%s). If this process is killed, its servers may keep running.", reason
            )


def _reap_killed(pid: int) -> None:
    """Reap a watchdog that was killed. If it does not exit in time, the start of the next one tries again."""
    deadline = time.monotonic() + _BLOCKING_TIMEOUT
    while reap(pid) is None:
        if time.monotonic() > deadline:
            with _lock:
                _registry.unreaped.add(pid)
            return
        time.sleep(_POLL)


_registry = _Registry()
_lock = threading.RLock()


def _reset_after_fork() -> None:
    global _registry  # noqa: PLW0603 - a process has one
    _registry = _Registry()
    _lock.release()


# Forks wait for the lock: otherwise a child could inherit a pipe that is not private yet.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_reset_after_fork)
