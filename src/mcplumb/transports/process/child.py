"""A server as a child process: started without a shell, connected by pipes, stopped with all its descendants.

The server leads a session of its own. Its environment has one additional variable, a mark by which descendants that
have left the session are found. Its exit is noticed without reaping it, which reserves its pid; it is reaped when all
its descendants are gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
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
from mcplumb.transports.process.stderr import StderrDrain, StderrMode, check_stderr_mode, open_output
from mcplumb.transports.process.tree import MARK, Tree, marked, start_time
from mcplumb.wire.messages import Result

__all__ = ["Child"]

#: Seconds between two checks whether the descendants of an exited server are gone: the first and the longest interval.
_FIRST_POLL = 0.002
_LONGEST_POLL = 0.05
#: The interval is at least this many times the CPU time of a check, which blocks the loop.
_POLL_FACTOR = 10
#: Seconds that ``kill`` may block. Only processes that are stuck in the kernel take that long.
_KILL_TIMEOUT = 1.0
#: Seconds that the last kill may block after all steps of the ladder failed.
_LAST_KILL_TIMEOUT = 0.1
#: Bytes of output that are discarded per iteration of the loop while the server stops.
_DISCARD_CHUNK = 64 * 1024

_logger = logging.getLogger("mcplumb.client")


class Child:
    """One run of one server. Created by `start`; call `stop` or `kill` even if the server has exited by itself."""

    __slots__ = (
        "_exit",
        "_is_over",
        "_is_registered",
        "_leftover",
        "_loop",
        "_over",
        "_own_pid",
        "_poll",
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
        """Start the server, in a running event loop.

        Raises `ConnectError` with the reason if it could not be started; no process and no pipe is left then.
        """
        asyncio.get_running_loop()  # raises without one, before anything is started
        check_stderr_mode(stderr)
        program = find_program(command)
        mark = os.urandom(8).hex()
        output = open_output(stderr)
        try:
            pid, pipes = _spawn(command, program, mark, stderr, stop)
            tree = Tree(pid, start_time(pid), mark)
            connection = StreamConnection(pipes.from_server, pipes.to_server, limits=limits, expect=Result, trace=trace)
            return cls(command, tree, connection, StderrDrain(pipes.from_stderr, output), pipes.leftover, stop)
        except ConnectError:
            output.close()
            raise
        except BaseException:
            output.close()
            # A signal handler can raise at any point, also when the server runs but its pid is not known here yet.
            _kill_marked(mark)
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
        #: The time of the start by the loop's clock.
        self.started_at = self._loop.time()
        #: The connection to the server's standard input and output. The user starts it, and need not close it.
        self.connection = connection
        #: Done as soon as the server has exited, for whatever reason. By then its stderr has been read.
        self.exited: asyncio.Future[Exit] = self._loop.create_future()
        #: Whether it exited before it had read anything.
        self.is_unread = False
        self._own_pid = os.getpid()
        self._tree = tree
        self._stderr = stderr
        #: A second descriptor for the server's standard output, to read from while the server stops.
        self._leftover = leftover
        self._exit: Exit | None = None
        self._stopper = Stopper(stop)
        self._poll = _FIRST_POLL
        self._timer: asyncio.TimerHandle | None = None
        self._is_registered = True
        self._is_over = False
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._unwatch = watch_exit(self.pid, self._notice_exit)

    def stderr_tail(self) -> str:
        """Return the last lines that the server has written to stderr; empty if stderr is discarded."""
        return self._stderr.tail()

    # Stopping

    async def stop(self) -> Exit:
        """Stop the server and all its descendants by the stop ladder, reap it, and return how it ended.

        It closes the connection first. May be called again and by several tasks at once. If cancelled, it kills
        everything at once instead. In a fork of the process that started the server, it does nothing.
        """
        if os.getpid() != self._own_pid:
            return Exit()
        if not self._is_over and self._stopper.state == "idle":
            self._begin_stop()
        try:
            await asyncio.shield(self._over)
        except asyncio.CancelledError:
            self.kill()
            raise
        if self._is_registered:
            self._is_registered = False
            await watchdog.unregister(self.pid)
        return self._exit or Exit()

    def kill(self) -> None:
        """Kill the server and all its descendants at once, and reap it. May be called again.

        It needs no event loop; if the loop still runs, call it on the loop's thread. In a fork of the process that
        started the server, it does nothing.
        """
        if os.getpid() != self._own_pid:
            return
        if not self._is_over:
            self._kill_tree(_KILL_TIMEOUT)
            self._finish()
        if self._is_registered:
            self._is_registered = False
            watchdog.unregister_nowait(self.pid)
        self.connection.abort()

    def _notice_exit(self) -> None:
        # All that the server wrote is in the pipes by now. Do not wait for EOF: descendants may hold the pipes open.
        self._stderr.finish()
        self.is_unread = self.connection.is_unread
        self.connection.finish()
        self._exit = peek(self.pid) or Exit()
        if not self.exited.done():
            self.exited.set_result(self._exit)
        if self._stopper.state != "idle":
            self._take_due_steps()

    def _begin_stop(self) -> None:
        self.connection.abort()
        # The server may still write: it must neither block on a full pipe nor get EPIPE.
        self._loop.add_reader(self._leftover, self._discard_output)
        if self._exit is None:
            self._stopper.begin(self._loop.time(), has_hung_up=_has_hung_up(self._leftover))
        self._take_due_steps()

    def _take_due_steps(self) -> None:
        """Take every step of the stop ladder that is due, and schedule the next check."""
        if self._timer is not None:
            self._timer.cancel()
        stopper, is_leader_gone = self._stopper, self._exit is not None
        began = time.thread_time()
        has_signalled = False
        while True:
            now = self._loop.time()
            if is_leader_gone and self._tree.is_gone():
                stopper.exited(now)
            action = (stopper.child_exited(now) if is_leader_gone else None) or stopper.due(now)
            if action is None:
                break
            self._tree.signal(signal.SIGTERM if action == "terminate" else signal.SIGKILL)
            has_signalled = True
        if is_leader_gone and stopper.deadline is not None and not has_signalled:
            # Descendants may have forked since the signal.
            self._tree.signal_again(signal.SIGTERM if stopper.state == "terminating" else signal.SIGKILL)
        if stopper.state == "given_up":
            self._kill_tree(_LAST_KILL_TIMEOUT)
        if stopper.deadline is None:
            self._finish()
            return
        until = stopper.deadline
        if is_leader_gone:
            # On a machine with many processes a check takes long, and it blocks the loop.
            until = min(until, now + max(self._poll, _POLL_FACTOR * (time.thread_time() - began)))
            self._poll = min(self._poll * 1.5, _LONGEST_POLL)
        self._timer = self._loop.call_at(until, self._take_due_steps)

    def _discard_output(self) -> None:
        if not os.read(self._leftover, _DISCARD_CHUNK):
            self._loop.remove_reader(self._leftover)

    def _kill_tree(self, within: float) -> None:
        """Kill all living members of the tree, and block until they are gone, for this many seconds at most."""
        until = time.monotonic() + within
        while not (has_exited(self.pid) and self._tree.is_gone()):
            if time.monotonic() > until:
                _logger.warning("The server %r has not exited, although it was killed.", str(self.command))
                return
            self._tree.signal(signal.SIGKILL)
            time.sleep(_FIRST_POLL)

    def _finish(self) -> None:
        """Reap the server and release everything."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._unwatch()
        self._stderr.finish()
        self._stderr.close()
        self._loop.remove_reader(self._leftover)
        close_private(self._leftover)
        self._exit = self._reap()
        with suppress(RuntimeError):  # the loop is closed, and so is every task that waited
            if not self.exited.done():
                self.exited.set_result(self._exit)
            self._over.set_result(None)

    def _reap(self) -> Exit:
        end = reap(self.pid)
        if end is None:
            # It cannot be killed. Reap it when it ends, so that it does not stay a zombie.
            threading.Thread(target=_wait_for, args=(self.pid,), name="mcplumb-reaper", daemon=True).start()
        return self._exit or end or Exit()


# Starting


class _Pipes(msgspec.Struct, frozen=True):
    """Our ends of a server's pipes."""

    to_server: int
    from_server: int
    #: A duplicate of ``from_server``, which outlives the connection.
    leftover: int
    from_stderr: int | None


def _spawn(command: Command, program: str, mark: str, stderr: StderrMode, stop: StopLadder) -> tuple[int, _Pipes]:
    with ExitStack() as theirs, ExitStack() as ours:
        try:
            stdin, to_server = _pipe(theirs, ours)
            prepared = watchdog.prepare(stdin, stop, mark)
            ours.callback(watchdog.unregister_nowait, prepared)
            from_server, stdout = _pipe(ours, theirs)
            from_stderr, stderr_fd = (None, subprocess.DEVNULL) if stderr == "discard" else _pipe(ours, theirs)
            leftover = private_copy(from_server)
            ours.callback(close_private, leftover)
            process = subprocess.Popen(  # noqa: S603 (starting the user's command is the purpose)
                command.argv,
                executable=program,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr_fd,
                env={**command.env, MARK: mark},
                cwd=command.cwd,
                start_new_session=True,
            )
            process.returncode = 0  # Popen must not reap it: `Child` does
        except OSError as error:
            raise start_failure(command, program, error) from error
        watchdog.register(process.pid, stop, prepared, mark)
        ours.pop_all()
    return process.pid, _Pipes(to_server, from_server, leftover, from_stderr)


def _kill_marked(mark: str) -> None:
    """Kill and reap the processes that were started with this mark."""
    for pid in marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _wait_for(pid)
        watchdog.unregister_nowait(pid)


def _has_hung_up(output: int) -> bool:
    """Return whether the write end of a server's output has been closed by the server and all its descendants."""
    poll = select.poll()
    poll.register(output, 0)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


def _wait_for(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _pipe(readers: ExitStack, writers: ExitStack) -> tuple[int, int]:
    """Return the two ends of a pipe that is private to this process; the stacks close them."""
    reader, writer = private_pipe()
    readers.callback(close_private, reader)
    writers.callback(close_private, writer)
    return reader, writer
