"""A server as a child process: started without a shell, spoken to over pipes, and ended with all that it started.

The server leads a session of its own, and has one variable more than its user gave it: a mark, by which descendants
are known that have left the session. Its exit is noticed without reaping it, so that its pid stays ours until
everything that came from it is gone; only then is it reaped.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import threading
import time
from contextlib import ExitStack, suppress

import msgspec

from mcplumb.errors import ConnectError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.protocol.stop_ladder import StopLadder, Stopper
from mcplumb.transports.descriptors import close_private, private_copy, private_pipe
from mcplumb.transports.fd_connection import StreamConnection
from mcplumb.transports.line_connection import Trace
from mcplumb.transports.process import watchdog
from mcplumb.transports.process.command import Command, find_program, start_failure
from mcplumb.transports.process.exit_watch import Exit, has_exited, peek, reap, watch_exit
from mcplumb.transports.process.stderr import StderrDrain, StderrMode, check_stderr_mode
from mcplumb.transports.process.tree import MARK, Tree, marked, start_time
from mcplumb.wire.messages import Result

__all__ = ["Child"]

#: How often to look whether what a server left behind is gone, in seconds: at first, and at last.
_FIRST_LOOK = 0.002
_LAST_LOOK = 0.05
#: How many times as long as a look takes to rest before the next.
_REST = 10
#: How long a kill may hold everything up, in seconds. Only processes that are stuck in the kernel take so long.
_PATIENCE = 1.0
#: The same for what the ladder did not end.
_SHORT_PATIENCE = 0.1
#: Bytes to throw away in one turn of the loop.
_CHUNK = 64 * 1024

_logger = logging.getLogger("mcplumb.client")


class Child:
    """One run of one server. Made by `start`; ends by `stop` or `kill`, also if the server has exited by itself."""

    __slots__ = (
        "_exit",
        "_host",
        "_is_guarded",
        "_is_over",
        "_leftover",
        "_look",
        "_loop",
        "_over",
        "_stderr",
        "_stopper",
        "_timer",
        "_tree",
        "_unwatch",
        "command",
        "connection",
        "exited",
        "is_unread",
        "pid",
        "started_at",
    )

    @classmethod
    def start(
        cls,
        command: Command,
        *,
        stderr: StderrMode = "inherit",
        limits: Limits = DEFAULT_LIMITS,
        stop: StopLadder,
        trace: Trace | None = None,
    ) -> Child:
        """Start the server, in a running event loop. `ConnectError` says why it did not start; nothing is left then."""
        asyncio.get_running_loop()  # or nothing is started
        check_stderr_mode(stderr)
        program = find_program(command)
        mark = os.urandom(8).hex()
        try:
            pid, ends = _spawn(command, program, mark, stderr, stop)
            tree = Tree(pid, start_time(pid), mark)
            connection = StreamConnection(ends.from_server, ends.to_server, limits=limits, expect=Result, trace=trace)
            return cls(command, tree, connection, StderrDrain(ends.from_stderr, stderr), ends.leftover, stop)
        except ConnectError:
            raise
        except BaseException:
            # A signal handler raised it, at any point: the server may be there already, and nobody would ever know.
            _abandon(mark)
            raise

    def __init__(
        self,
        command: Command,
        tree: Tree,
        connection: StreamConnection,
        stderr: StderrDrain,
        leftover: int,
        stop: StopLadder,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.command = command
        self.pid = tree.session
        #: By the clock of the loop.
        self.started_at = self._loop.time()
        #: To the server's standard input and output. Its owner starts it, and need not close it.
        self.connection = connection
        #: Done as soon as the server has exited, by itself or not. By then its stderr has been read.
        self.exited: asyncio.Future[Exit] = self._loop.create_future()
        #: Whether it exited before it had read anything.
        self.is_unread = False
        self._host = os.getpid()
        self._tree = tree
        self._stderr = stderr
        #: A second descriptor for the server's standard output.
        self._leftover = leftover
        self._exit: Exit | None = None
        self._stopper = Stopper(stop)
        self._look = _FIRST_LOOK
        self._timer: asyncio.TimerHandle | None = None
        self._is_guarded = True
        self._is_over = False
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._unwatch = watch_exit(self.pid, self._notice_exit)

    def stderr_tail(self) -> str:
        """The last lines that the server has written to stderr, unless they were to be discarded."""
        return self._stderr.tail()

    # --- Ending ---

    async def stop(self) -> Exit:
        """End the server and everything that it started, by the stop ladder, and reap it. Says how the server ended.

        Nothing can be sent to it from now on. May be called again, and by several at once. Cancelled, the ladder is
        left: all that is alive is killed and reaped at once.
        """
        if os.getpid() != self._host:
            return Exit()  # it is our parent's
        if not self._is_over and self._stopper.state == "idle":
            self._begin()
        try:
            await asyncio.shield(self._over)
        except asyncio.CancelledError:
            self.kill()
            raise
        if self._is_guarded:
            self._is_guarded = False
            await watchdog.let_go(self.pid)
        return self._exit or Exit()

    def kill(self) -> None:
        """The same at once and by force. May be called again, and in a fork of this process, where nothing happens.

        It needs no event loop. If that still runs, then this belongs to its thread.
        """
        if os.getpid() != self._host:
            return
        if not self._is_over:
            self._kill_tree(_PATIENCE)
            self._finish()
        if self._is_guarded:
            self._is_guarded = False
            watchdog.let_go_nowait(self.pid)
        self.connection.abort()

    def _notice_exit(self) -> None:
        # What the server has written is there by now. Others may hold its pipes for as long as they like.
        self._stderr.finish()
        self.is_unread = self.connection.is_unread
        self.connection.finish()
        self._exit = peek(self.pid) or Exit()
        if not self.exited.done():
            self.exited.set_result(self._exit)
        if self._stopper.state != "idle":
            self._climb()

    def _begin(self) -> None:
        self.connection.abort()
        # A server may still have something to say, and must neither wait for a reader nor miss one.
        self._loop.add_reader(self._leftover, self._throw_away)
        if self._exit is None:
            self._stopper.begin(self._loop.time())
        self._climb()

    def _climb(self) -> None:
        """Take every step of the ladder that is due, and come back when there may be another."""
        if self._timer is not None:
            self._timer.cancel()
        stopper, is_leader_gone = self._stopper, self._exit is not None
        began = self._loop.time()
        while True:
            now = self._loop.time()
            if is_leader_gone and not self._tree.members():
                stopper.exited(now)
            action = (stopper.child_exited(now) if is_leader_gone else None) or stopper.due(now)
            if action is None:
                break
            self._tree.signal(signal.SIGTERM if action == "terminate" else signal.SIGKILL)
        if stopper.state == "given_up":
            self._kill_tree(_SHORT_PATIENCE)
        if stopper.deadline is None:
            self._finish()
            return
        until = stopper.deadline
        if is_leader_gone:
            # To look takes time, on a machine with many processes, in which the loop stands still.
            self._look = max(self._look, _REST * (self._loop.time() - began))
            until = min(until, now + self._look)
            self._look = min(self._look * 1.5, max(self._look, _LAST_LOOK))
        self._timer = self._loop.call_at(until, self._climb)

    def _throw_away(self) -> None:
        if not os.read(self._leftover, _CHUNK):
            self._loop.remove_reader(self._leftover)

    def _kill_tree(self, patience: float) -> None:
        """Kill all that is alive, and wait for its end: without the loop, but not for long."""
        until = time.monotonic() + patience
        while not (has_exited(self.pid) and not self._tree.members()):
            if time.monotonic() > until:
                _logger.warning("The server %r does not end, although it was killed.", str(self.command))
                return
            self._tree.signal(signal.SIGKILL)
            time.sleep(_FIRST_LOOK)

    def _finish(self) -> None:
        """Reap the server, and let everything go."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._unwatch()
        self._stderr.finish()
        self._stderr.close()
        self._loop.remove_reader(self._leftover)
        close_private(self._leftover)
        self._exit = self._reap()
        with suppress(RuntimeError):  # the loop is closed, and nobody waits there any more
            if not self.exited.done():
                self.exited.set_result(self._exit)
            self._over.set_result(None)

    def _reap(self) -> Exit:
        end = reap(self.pid)
        if end is None:
            # Nobody can do more, but when it ends it shall not become a zombie.
            threading.Thread(target=_wait_for, args=(self.pid,), name="mcplumb-reaper", daemon=True).start()
        return self._exit or end or Exit()


class _Ends(msgspec.Struct, frozen=True):
    """Our ends of a server's pipes."""

    to_server: int
    from_server: int
    #: A second descriptor for the same.
    leftover: int
    from_stderr: int | None


def _spawn(command: Command, program: str, mark: str, stderr: StderrMode, stop: StopLadder) -> tuple[int, _Ends]:
    with ExitStack() as theirs, ExitStack() as ours:
        try:
            stdin, to_server = _pipe(theirs, ours)
            prepared = watchdog.prepare(stdin, stop, mark)
            ours.callback(watchdog.let_go_nowait, prepared)
            from_server, stdout = _pipe(ours, theirs)
            from_stderr, stderr_fd = (None, subprocess.DEVNULL) if stderr == "discard" else _pipe(ours, theirs)
            leftover = private_copy(from_server)
            ours.callback(close_private, leftover)
            process = subprocess.Popen(  # noqa: S603 (to start what the user names is what this is for)
                command.argv,
                executable=program,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr_fd,
                env={**command.env, MARK: mark},
                cwd=command.cwd,
                start_new_session=True,
            )
            process.returncode = 0  # we reap it ourselves, and Popen must not want to
        except OSError as error:
            raise start_failure(command, program, error) from error
        watchdog.watch_over(process.pid, stop, prepared, mark)
        ours.pop_all()
    return process.pid, _Ends(to_server, from_server, leftover, from_stderr)


def _abandon(mark: str) -> None:
    """Kill what was started with this mark, and forget it."""
    for pid in marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _wait_for(pid)
        watchdog.let_go_nowait(pid)


def _wait_for(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _pipe(readers: ExitStack, writers: ExitStack) -> tuple[int, int]:
    """The two ends of a pipe, for this process alone; closed by the stacks."""
    reader, writer = private_pipe()
    readers.callback(close_private, reader)
    writers.callback(close_private, writer)
    return reader, writer
