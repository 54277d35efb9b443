"""The link to a server that is a child process, and `ServerProcess`, the client's view of that process."""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from mcplumb.client.link import Phase
from mcplumb.errors import Closed, McplumbError, ServerExited
from mcplumb.limits import Limits
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.transports.connection import Connection
from mcplumb.transports.line_connection import Trace
from mcplumb.transports.process.child import Child
from mcplumb.transports.process.command import Command, is_safe
from mcplumb.transports.process.stderr import StderrMode

__all__ = ["ProcessExit", "ProcessLink", "ServerProcess"]

#: Seconds to wait for the exit of a server that has closed its output, so that the error can say how it exited.
_EXIT_WAIT = 0.5

#: The number of exits that are remembered.
_MOST_EXITS = 20


class ProcessExit(msgspec.Struct, frozen=True, kw_only=True):
    """An unexpected exit of a server's process."""

    pid: int
    exit_code: int | None
    #: The name of the signal that ended it, if one did.
    signal: str | None
    #: Seconds for which it had run.
    uptime: float
    #: The last lines of its stderr.
    stderr_tail: str


class ServerProcess:
    """The server's process as its client sees it, across restarts. Read-only and always up to date.

    ``command`` is the command line, ``restarts`` the number of restarts.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        #: The number of restarts so far.
        self.restarts = 0
        self._exits: deque[ProcessExit] = deque(maxlen=_MOST_EXITS)
        self._child: Child | None = None
        self._is_exit_recorded = True

    def __repr__(self) -> str:
        state = "not running" if self.pid is None else f"pid {self.pid}"
        return f"<ServerProcess `{self.command}`, {state}, restarts: {self.restarts}>"

    @property
    def pid(self) -> int | None:
        """The id of the running process; None while there is none."""
        return self._child.pid if self._child is not None and not self._child.exited.done() else None

    @property
    def uptime(self) -> float | None:
        """Seconds since the running process was started; None while there is none."""
        return None if self._child is None or self.pid is None else _now(self._child) - self._child.started_at

    @property
    def exits(self) -> tuple[ProcessExit, ...]:
        """The latest unexpected exits, oldest first."""
        return tuple(self._exits)

    @property
    def stderr(self) -> str:
        """The last lines of the server's stderr; empty if stderr is discarded."""
        return "" if self._child is None else self._child.stderr_tail()

    def _record_start(self, child: Child) -> None:
        self.restarts += self._child is not None
        self._child = child
        self._is_exit_recorded = False

    def _record_exit(self, child: Child) -> ProcessExit:
        """Record the unexpected exit of this process, once, and return it."""
        if not self._is_exit_recorded:
            self._is_exit_recorded = True
            how = child.exited.result()
            self._exits.append(
                ProcessExit(
                    pid=child.pid,
                    exit_code=how.code,
                    signal=how.signal,
                    uptime=_now(child) - child.started_at,
                    stderr_tail=child.stderr_tail(),
                )
            )
        return self._exits[-1]


class ProcessLink:
    """A link to a server that is a child process and speaks over its standard input and output."""

    can_restart = True
    may_be_silent = True
    mirrors = False
    authorizer = None

    def __init__(
        self, command: Command, *, stderr: StderrMode, limits: Limits, stop: StopLadder, trace: Trace | None = None
    ) -> None:
        self.process = ServerProcess(str(command))
        self._command = command
        self._stderr: StderrMode = stderr
        self._limits = limits
        self._stop = stop
        self._trace = trace
        self._child: Child | None = None

    @property
    def key(self) -> str:
        """The command with its arguments, directory and environment."""
        command = self._command
        # Without the variables that differ from terminal to terminal.
        given = [(name, value) for name, value in command.env.items() if name == "PATH" or not is_safe(name)]
        return repr((command.argv, command.cwd, sorted(given)))

    async def open(self) -> Connection:
        """Start the server."""
        await self.close()
        self._child = Child.start(
            self._command, stderr=self._stderr, limits=self._limits, stop=self._stop, trace=self._trace
        )
        self.process._record_start(self._child)
        return self._child.connection

    def has_read(self) -> bool | None:
        """Whether the server has emptied its standard input. A launcher such as ``npx`` leaves it to the server."""
        return None if self._child is None else self._child.connection.has_been_read()

    async def explain(self, phase: Phase, how: str) -> McplumbError:
        """Return the error that says how the process exited, or that it still runs."""
        child = self._child
        if child is None:
            return Closed(how)
        await asyncio.wait((child.exited,), timeout=_EXIT_WAIT)
        if not child.exited.done():
            return Closed(f"{how} Its process still runs, and is stopped. {self.describe()}")
        last = self.process._record_exit(child)
        return ServerExited(
            self.process.command,
            phase="spawn" if child.is_unread and phase != "call" else phase,
            exit_code=last.exit_code,
            signal=last.signal,
            stderr_tail=None if self._stderr == "discard" else last.stderr_tail,
        )

    def describe(self) -> str:
        """Return the command and the last lines of stderr."""
        tail = self.process.stderr
        return f"The server is `{self.process.command}`" + (f"; the end of its stderr:\n{tail}" if tail else ".")

    async def close(self) -> None:
        """Stop the process and all its descendants."""
        if self._child is not None:
            await self._child.stop()

    def kill(self) -> None:
        """Kill the process and all its descendants."""
        if self._child is not None:
            self._child.kill()


def _now(child: Child) -> float:
    return child.exited.get_loop().time()
