"""``mcplumb tap -- CMD``: pass all bytes between a host and its server, and give copies to a recorder.

The tap is a small process that imports next to nothing. It moves bytes between the host's pipes and the server's, and
gives a copy of each piece to the recorder, another process, through a pipe that it never waits for. What the recorder
cannot take waits in a queue of limited size; what does not fit is counted.

To the host, the tap is the server. The server is in the process group of the tap, so signals to the group reach it
directly, and those to the tap alone are passed on. An end of input, a closed pipe and the exit are passed on, and the
tap ends as the server did, with the same code or signal, after it has passed on all that the server wrote.
"""

from __future__ import annotations

# Not ``signal``, whose enumerations take as long to import as all the rest.
import _signal as signal  # type: ignore[import-not-found]
import fcntl
import os
import select
import stat
import sys
import time
from collections.abc import Mapping
from typing import NoReturn

from mcplumb.tap.recorder_link import CLIENT, PASSED_ON, SERVER, STDERR, RecorderLink

__all__ = ["run_pipe_tap"]

_POLLIN, _POLLOUT = select.POLLIN, select.POLLOUT
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL
#: Bytes of one read: at first what a pipe holds, and after a read that was full, what an enlarged pipe holds.
_SMALL = 64 * 1024
_LARGE = 1024 * 1024
_FIRST_FREE = 3
#: The exit code of all commands if there is no server.
_NOT_STARTED = 3
#: Seconds that a signal to a whole process group may take from its first member to its last.
_GROUP_DELAY = 0.005


def run_pipe_tap(command: list[str], link: RecorderLink, env: Mapping[str, str] | None = None) -> int:
    """Start the server and pass everything on until it ends; return its exit code, or end by its signal.

    The server gets the environment that the host gave, or ``env``.
    """
    tap = _PipeTap(link)
    try:
        tap.start(command, _environment() if env is None else env)
    except (OSError, ValueError) as error:  # the latter for an empty name
        link.close()
        return _report_failure(command, error)
    return _end_like(tap.run())


class _Flow:
    """One direction: from a descriptor to another."""

    __slots__ = ("buffer", "kind", "pending", "restore", "sink", "source", "waits_to_write")

    def __init__(self, kind: int, source: int, sink: int, restore: int | None = None) -> None:
        self.kind = kind
        #: The two descriptors; -1 when the flow has ended.
        self.source = source
        self.sink = sink
        self.buffer = memoryview(bytearray(_SMALL))
        #: What was read and could not be written yet.
        self.pending: memoryview | None = None
        #: Whether a write may block, because the sink is a file or a terminal.
        self.waits_to_write = False
        #: A descriptor that has to be made blocking again.
        self.restore = restore


class _PipeTap:
    def __init__(self, link: RecorderLink) -> None:
        self._link = link
        self._poll = _new_poll()
        self._flows: dict[int, _Flow] = {}
        self._pid = 0
        self._status: int | None = None
        #: The pipe to the recorder while something waits for it, else -1.
        self._watched = -1
        self._watched_restarts = 0
        self._early_signals: list[int] = []
        self._sentinel = _Sentinel()
        self._wake = -1

    # Starting

    def start(self, command: list[str], env: Mapping[str, str]) -> None:
        self._wake, wake_writer = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake_writer, False)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore)
        # The host may have blocked SIGCHLD, and masks are inherited. The server gets the host's mask.
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD,))
        numbers = [getattr(signal, name) for name in PASSED_ON]
        ignored = [number for number in numbers if signal.getsignal(number) == signal.SIG_IGN]
        for number in numbers:
            if number not in ignored:
                signal.signal(number, self._pass_on)
        self._sentinel.start()
        server_in, to_server = _pipe()
        from_server, server_out = _pipe()
        # What goes to one pipe stays in its order: such a stderr cannot be told from stdout.
        from_stderr, server_err = (-1, server_out) if _are_one_file(1, 2) else _pipe()
        os.set_blocking(to_server, False)
        try:
            self._pid = os.posix_spawnp(
                command[0],
                command,
                env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, server_in, 0),
                    (os.POSIX_SPAWN_DUP2, server_out, 1),
                    (os.POSIX_SPAWN_DUP2, server_err, 2),
                ],
                setsigmask=mask,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
        finally:
            for fd in {server_in, server_out, server_err}:
                os.close(fd)
        self._link.put_event(f"started {self._pid}")
        # The server has inherited that they are ignored, but may handle them nevertheless.
        for number in ignored:
            signal.signal(number, self._pass_on)
        for number in self._early_signals:
            self._pass_on(number)
        self._add(_Flow(CLIENT, 0, to_server))
        self._add(_host_sink(SERVER, from_server, 1))
        if from_stderr >= 0:
            self._add(_host_sink(STDERR, from_stderr, 2))
        self._poll.register(self._wake, _POLLIN)

    def _add(self, flow: _Flow) -> None:
        self._flows[flow.source] = self._flows[flow.sink] = flow
        self._poll.register(flow.source, _POLLIN)
        if not flow.waits_to_write:
            self._poll.register(flow.sink, 0)

    # Passing on

    def run(self) -> int:
        """Pass everything on, and return the status with which the server ended."""
        poll, flows, link = self._poll.poll, self._flows, self._link
        while True:
            for fd, events in poll():
                flow = flows.get(fd)
                if flow is None:
                    self._serve_others(fd)
                elif fd == flow.source:
                    self._read(flow)
                elif events & _GONE:
                    self._end(flow, is_broken=True)
                elif events & _POLLOUT:
                    self._write_pending(flow)
            if link.waiting or self._watched >= 0:
                self._watch_link()
            if self._status is not None and self._is_drained():
                return self._finish(self._status)

    def _read(self, flow: _Flow) -> None:
        try:
            size = os.readv(flow.source, (flow.buffer,))
        except BlockingIOError:  # another process has made it non-blocking
            return
        except OSError:
            size = 0
        if not size:
            self._end(flow)
            return
        data = flow.buffer[:size]
        t = time.monotonic_ns()
        try:
            written = os.write(flow.sink, data)
        except BlockingIOError:
            written = 0
        except OSError:
            written = -1
        self._link.put(flow.kind, data, t)
        if written == size:
            if size == len(flow.buffer) < _LARGE:
                _enlarge(flow)
            return
        if written < 0:
            self._end(flow, is_broken=True)
            return
        if flow.waits_to_write:
            _write_all(flow.sink, data[written:])
            return
        flow.pending = data[written:]
        self._poll.unregister(flow.source)
        self._poll.modify(flow.sink, _POLLOUT)

    def _write_pending(self, flow: _Flow) -> None:
        pending = flow.pending
        if pending is None:
            return
        try:
            written = os.write(flow.sink, pending)
        except BlockingIOError:
            return
        except OSError:
            self._end(flow, is_broken=True)
            return
        if written < len(pending):
            flow.pending = pending[written:]
            return
        flow.pending = None
        _enlarge(flow)
        self._poll.modify(flow.sink, 0)
        self._poll.register(flow.source, _POLLIN)

    def _end(self, flow: _Flow, *, is_broken: bool = False) -> None:
        """Pass on an end: of the source to the sink, or of the sink to the source."""
        source, sink = flow.source, flow.sink
        del self._flows[source], self._flows[sink]
        self._forget(source)
        self._forget(sink)
        flow.source = flow.sink = -1
        flow.pending = None
        if flow.restore is not None:
            os.set_blocking(flow.restore, True)
        _close(source)
        _close(sink)
        if flow.kind != CLIENT and sink != (standard := 1 if flow.kind == SERVER else 2):
            _close(standard)  # the sink was another descriptor for it
            if not any(other.kind == STDERR for other in self._flows.values()) and _are_one_file(1, 2):
                _close(2)
        if flow.kind != STDERR:
            side = "client" if (flow.kind == CLIENT) != is_broken else "server"
            what = "closed_pipe" if is_broken else "end_of_input"
            self._link.put_event(f"{what} {side}")

    def _forget(self, fd: int) -> None:
        """Stop waiting for a descriptor, if it is waited for."""
        try:
            self._poll.unregister(fd)
        except (KeyError, OSError):
            return

    def _serve_others(self, fd: int) -> None:
        if fd == self._wake:
            try:
                os.read(fd, _SMALL)
            except BlockingIOError:
                return
            if self._status is None:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
                if pid:
                    self._status = status
            self._link.reap()
            self._sentinel.reap()
        else:
            self._link.flush()

    def _watch_link(self) -> None:
        """Wait until the recorder can take more, while data is queued for it."""
        wanted = self._link.fd if self._link.waiting else -1
        # The pipe to another recorder may have the number of the one before.
        if (wanted, self._link.restarts) != (self._watched, self._watched_restarts):
            if self._watched >= 0:
                self._forget(self._watched)
            if wanted >= 0:
                self._poll.register(wanted, _POLLOUT)
            self._watched, self._watched_restarts = wanted, self._link.restarts

    # Signals

    def _pass_on(self, number: int, _frame: object = None) -> None:
        if not self._pid:
            self._early_signals.append(number)
            return
        if self._status is not None:
            return
        # A signal to the whole group has reached the server already.
        if not self._sentinel.has_got(number):
            try:
                os.kill(self._pid, number)
            except ProcessLookupError:
                return
        self._link.put_event(f"signal {number}")

    # Ending

    def _is_drained(self) -> bool:
        """Return whether everything that the server wrote before its exit has been passed on."""
        left = [flow for flow in set(self._flows.values()) if flow.kind != CLIENT]
        if any(flow.pending is not None for flow in left):
            return False
        check = select.poll()
        for flow in left:
            check.register(flow.source, _POLLIN)
        return not left or not check.poll(0)

    def _finish(self, status: int) -> int:
        self._link.try_once_more()
        self._link.put_event(f"exit {status}")
        self._sentinel.stop()
        if any(flow.kind != CLIENT for flow in self._flows.values()):
            # Descendants of the server hold its pipes. The host learns of the exit, and the pipes stay open for them.
            if os.fork() == 0:
                signal.set_wakeup_fd(-1)
                self._link.is_inherited = True
                self._run_for_descendants()
            return status
        for flow in set(self._flows.values()):
            if flow.restore is not None:
                os.set_blocking(flow.restore, True)
        self._link.close()
        return status

    def _run_for_descendants(self) -> NoReturn:
        try:
            self._status = None
            while any(flow.kind != CLIENT for flow in self._flows.values()):
                for fd, events in self._poll.poll():
                    flow = self._flows.get(fd)
                    if flow is None:
                        self._link.flush()
                    elif fd == flow.source:
                        self._read(flow)
                    elif events & _GONE:
                        self._end(flow, is_broken=True)
                    elif events & _POLLOUT:
                        self._write_pending(flow)
            self._link.close()
        finally:
            os._exit(0)


class _Sentinel:
    """A process of the same group that distinguishes signals to the group from signals to the tap alone.

    It blocks all signals, so those that it gets stay pending, and /proc shows them. Without /proc there is none.
    """

    __slots__ = ("_pid", "_pipe")

    def __init__(self) -> None:
        self._pid = 0
        self._pipe = -1

    def start(self) -> None:
        if not os.access("/proc/self/status", os.R_OK):
            return
        reader, self._pipe = _pipe()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._pid = os.fork()
            if self._pid == 0:
                _wait_for_end(reader)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(reader)

    def has_got(self, number: int) -> bool:
        """Return whether the whole group received this signal."""
        if not self._pid:
            return False
        time.sleep(_GROUP_DELAY)
        try:
            with open(f"/proc/{self._pid}/status", "rb") as file:  # noqa: PTH123 - pathlib is slow to import
                lines = file.read().split(b"\n")
        except OSError:
            return False
        bit = 1 << (number - 1)
        found = any(int(line[7:], 16) & bit for line in lines if line.startswith((b"SigPnd:", b"ShdPnd:")))
        if found:
            # A new one has no pending signals, so that the next signal can be told apart, too.
            self.stop()
            self.start()
        return found

    def stop(self) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def reap(self) -> None:
        if self._pid and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = 0


def _wait_for_end(pipe: int) -> NoReturn:
    """Wait in the sentinel until the tap has ended, for any reason."""
    try:
        for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib is slow to import
            if int(name) != pipe:
                _close_quietly(int(name))
        os.read(pipe, 1)
    finally:
        os._exit(0)


def _new_poll() -> select.epoll | select.poll:
    """Return what waits for descriptors: epoll, which takes less time, or poll if stdin is a file."""
    if not hasattr(select, "epoll"):
        return select.poll()
    found = select.epoll()
    try:
        found.register(0, 0)
        found.unregister(0)
    except OSError:
        found.close()
        return select.poll()
    return found


def _ignore(_number: int, _frame: object) -> None:
    """Let a signal only wake the loop."""


def _pipe() -> tuple[int, int]:
    """Return a pipe whose ends are not among the standard three."""
    ends = os.pipe()
    return _not_standard(ends[0]), _not_standard(ends[1])


def _not_standard(fd: int) -> int:
    if fd >= _FIRST_FREE:
        return fd
    copy: int = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    os.close(fd)
    return copy


def _close(fd: int) -> None:
    """Close a descriptor; one of the standard three becomes the null device, so that nothing else gets its number."""
    if fd >= _FIRST_FREE:
        os.close(fd)
        return
    null = os.open(os.devnull, os.O_RDWR)
    if null != fd:
        os.dup2(null, fd, inheritable=False)
        os.close(null)


def _close_quietly(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return


def _host_sink(kind: int, source: int, target: int) -> _Flow:
    """Return the flow to the host's stdout or stderr.

    Writing to a pipe must not block. The flag for that would be shared with other processes, so the pipe is opened a
    second time where the system can. Files and terminals are written to as they are.
    """
    try:
        mode = os.fstat(target).st_mode
    except OSError:
        mode = 0  # the host has closed it
    if stat.S_ISFIFO(mode):
        try:
            own = os.open(f"/proc/self/fd/{target}", os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            own = -1
        if own >= 0:
            return _Flow(kind, source, _not_standard(own))
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        restore = target if os.get_blocking(target) else None
        os.set_blocking(target, False)
        return _Flow(kind, source, target, restore)
    flow = _Flow(kind, source, target)
    flow.waits_to_write = True
    return flow


def _are_one_file(one: int, other: int) -> bool:
    """Return whether two descriptors lead to the same file or pipe; a terminal does not count."""
    try:
        first, second = os.fstat(one), os.fstat(other)
    except OSError:
        return False
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino) and not stat.S_ISCHR(first.st_mode)


def _enlarge(flow: _Flow) -> None:
    """Move larger chunks, because there is much to move."""
    if len(flow.buffer) < _LARGE:
        flow.buffer = memoryview(bytearray(_LARGE))
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            for fd in (flow.source, flow.sink):
                try:
                    fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _LARGE)
                except OSError:  # it is no pipe, or the user's quota is used up
                    continue


def _write_all(fd: int, data: memoryview) -> None:
    """Write to a file or a terminal, and wait for it where it must."""
    while data:
        try:
            data = data[os.write(fd, data) :]
        except BlockingIOError:  # another process has made it non-blocking
            select.select((), (fd,), ())
        except OSError:
            return


def _environment() -> dict[str, str]:
    """Return the environment that the host gave: the interpreter itself may have added one variable."""
    environment = dict(os.environ)
    if "LC_CTYPE" in environment:
        try:
            with open("/proc/self/environ", "rb") as file:  # noqa: PTH123 - pathlib is slow to import
                given = b"\0" + file.read()
        except OSError:
            return environment
        if b"\0LC_CTYPE=" not in given:
            del environment["LC_CTYPE"]
    return environment


def _end_like(status: int) -> int:
    """Return the exit code of a status; if the server was ended by a signal, end by the same."""
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    import resource

    number = os.WTERMSIG(status)
    # The server may have left a core file; the tap has nothing to show.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


def _report_failure(command: list[str], error: OSError | ValueError) -> int:
    """Say why the server could not be started, and return the exit code."""
    reason = error.strerror if isinstance(error, OSError) else "This is no name of a program"
    sys.stderr.write(f"Error: mcplumb tap cannot start {command[0]!r}: {reason}.\n")
    sys.stderr.flush()
    return _NOT_STARTED
