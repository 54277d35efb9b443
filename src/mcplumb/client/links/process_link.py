"""Servers that are child processes: the link to one, and what its client sees of it."""

from __future__ import annotations

import asyncio
from collections import deque

import msgspec

from mcplumb.client.links.link import Phase
from mcplumb.errors import Closed, McplumbError, ServerExited
from mcplumb.limits import Limits
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.transports.connection import Connection
from mcplumb.transports.line_connection import Trace
from mcplumb.transports.process.child import Child
from mcplumb.transports.process.command import Command, is_safe
from mcplumb.transports.process.stderr import StderrMode

__all__ = ["ProcessExit", "ProcessLink", "ServerProcess"]

#: Seconds in which a server that closed its output should also exit, so that it can be said how.
_LAST_BREATH = 1.0

#: Exits that are remembered. Who crashes more often than that says the same each time.
_MOST_EXITS = 20


class ProcessExit(msgspec.Struct, frozen=True, kw_only=True):
    """How one process of a server ended when it should not have."""

    pid: int
    exit_code: int | None
    #: The name of the signal that ended it, if one did.
    signal: str | None
    #: Seconds that it had lived.
    uptime: float
    #: The end of what it wrote to its stderr.
    stderr_tail: str


class ServerProcess:
    """The processes that a client has run for its server, one after the other. Read it; it is always up to date.

    ``command`` is what was started, and ``restarts`` how often it was started again.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        #: How often the server was started again.
        self.restarts = 0
        self._exits: deque[ProcessExit] = deque(maxlen=_MOST_EXITS)
        self._child: Child | None = None
        self._is_noted = True

    def __repr__(self) -> str:
        state = "not running" if self.pid is None else f"pid {self.pid}"
        return f"<ServerProcess `{self.command}`, {state}, restarts: {self.restarts}>"

    @property
    def pid(self) -> int | None:
        """The process that runs now; None while there is none."""
        return self._child.pid if self._child is not None and not self._child.exited.done() else None

    @property
    def uptime(self) -> float | None:
        """Seconds that it has been running; None while it is not."""
        return None if self._child is None or self.pid is None else _now(self._child) - self._child.started_at

    @property
    def exits(self) -> tuple[ProcessExit, ...]:
        """The latest exits that nobody had asked for, oldest first."""
        return tuple(self._exits)

    @property
    def stderr(self) -> str:
        """The end of what the server has written to its stderr, as far as that is kept."""
        return "" if self._child is None else self._child.stderr_tail()

    def _began(self, child: Child) -> None:
        """A process was started."""
        self.restarts += self._child is not None
        self._child = child
        self._is_noted = False

    def _ended(self, child: Child) -> ProcessExit:
        """This process has exited, and not because it was stopped. Said again, it gives the same exit again."""
        if not self._is_noted:
            self._is_noted = True
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
    """The way to a server that is a child process, speaking over its standard streams."""

    can_restart = True
    may_be_silent = True
    mirrors = False

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
        """The command, with all that it is given."""
        command = self._command
        # Not what differs from terminal to terminal.
        given = [(name, value) for name, value in command.env.items() if name == "PATH" or not is_safe(name)]
        return repr((command.argv, command.cwd, sorted(given)))

    async def open(self) -> Connection:
        """Start the server."""
        await self.close()
        self._child = Child.start(
            self._command, stderr=self._stderr, limits=self._limits, stop=self._stop, trace=self._trace
        )
        self.process._began(self._child)
        return self._child.connection

    async def explain(self, phase: Phase, how: str) -> McplumbError:
        """How the process ended; if it did not, that."""
        child = self._child
        if child is None:
            return Closed(how)
        await asyncio.wait((child.exited,), timeout=_LAST_BREATH)
        if not child.exited.done():
            return Closed(f"{how} Its process still runs, and is ended. {self.describe()}")
        last = self.process._ended(child)
        return ServerExited(
            self.process.command,
            phase="spawn" if child.is_unread and phase != "call" else phase,
            exit_code=last.exit_code,
            signal=last.signal,
            stderr_tail=None if self._stderr == "discard" else last.stderr_tail,
        )

    def describe(self) -> str:
        """The command, and the end of stderr."""
        said = self.process.stderr
        return f"The server is `{self.process.command}`" + (f"; the end of its stderr:\n{said}" if said else ".")

    async def close(self) -> None:
        """Stop the process, and all that it has started."""
        if self._child is not None:
            await self._child.stop()

    def kill(self) -> None:
        """Kill the process, and all that it has started."""
        if self._child is not None:
            self._child.kill()


def _now(child: Child) -> float:
    return child.exited.get_loop().time()
