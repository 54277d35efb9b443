"""The tap's end of the pipe to its recorder: no ``put`` waits, and data that the recorder cannot take is counted.

The recorder is a fork of the tap, so that it starts at once, and a process of its own, so that its work never takes
time from the traffic. If it dies, another one goes on with the same file. This module imports next to nothing.
"""

from __future__ import annotations

# Not ``signal``, whose enumerations take long to import.
import _signal as signal  # type: ignore[import-not-found]
import fcntl
import os
import select
import time
from collections import deque
from contextlib import suppress
from struct import Struct
from typing import NoReturn

__all__ = ["CLIENT", "EVENT", "FRAME", "LOST", "PASSED_ON", "SERVER", "STDERR", "RecorderLink", "RecorderOptions"]

#: The kinds of frames: bytes from the client, from the server, of stderr; an event; and bytes that were lost.
CLIENT, SERVER, STDERR, EVENT, LOST = range(1, 6)
#: The head of a frame: its kind, the time on the monotonic clock in nanoseconds, and the number of bytes that follow.
FRAME = Struct("<BQI")

#: The signals that a tap passes on to the server, and its recorder ignores.
PASSED_ON = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGWINCH")

#: The most bytes that wait for the recorder; see `mcplumb.limits.MAX_UNRECORDED`, which is slow to import.
_MAX_WAITING = 64 * 1024 * 1024
_PIPE_BYTES = 1024 * 1024
_MAX_RESTARTS = 5
#: Seconds that the exit waits for the recorder to write the last records.
_LAST_WAIT = 0.3
#: Seconds that a fork of the tap may take to hand over the rest.
_MAX_REST = 60
_NEWLINE = 10
#: The recorder gives way to the host and the server.
_NICENESS = 5


class RecorderOptions:
    """The options of the recorder."""

    __slots__ = ("began", "command", "host", "id", "keep", "masks", "name", "place", "started")

    def __init__(
        self,
        command: list[str],
        *,
        place: str | None = None,
        masks: bool = True,
        keep: int | None = None,
        name: str = "",
    ) -> None:
        self.command = command
        #: A file or a folder; None is the default folder.
        self.place = place
        self.masks = masks
        self.keep = keep
        self.name = name
        self.host = os.getppid()
        #: The start, by the clock on the wall, and by the monotonic one, in nanoseconds.
        self.started = time.time()
        self.began = time.monotonic_ns()
        #: What makes the id of the recording unique.
        self.id = os.urandom(3).hex()


class RecorderLink:
    """Sends frames to the recorder. No method waits for it, except `close`, for a moment."""

    def __init__(self, options: RecorderOptions) -> None:
        self._options = options
        #: The writing end of the pipe; -1 if there is no recorder.
        self.fd = -1
        #: Bytes that wait until the pipe has room.
        self.waiting = 0
        #: Whether this process is a fork of the one that started the recorder.
        self.is_inherited = False
        self._queue: deque[bytes] = deque()
        #: Whether the first piece in the queue is the rest of a frame.
        self._is_torn = False
        self._pid = 0
        #: The event that names the server, while that runs.
        self._server = b""
        self._done = -1
        #: How many recorders have replaced another.
        self.restarts = 0
        #: By kind: the bytes that the recorder was given, and those that were lost since the last frame of that kind.
        self._given = [0] * (STDERR + 1)
        self._lost = [0] * (STDERR + 1)
        #: By kind: whether the last byte ended a line.
        self._is_at_start = [True] * (STDERR + 1)
        self._start()

    def put(self, kind: int, data: memoryview, t: int) -> None:
        """Send bytes that arrived at this time, in nanoseconds of the monotonic clock."""
        size = len(data)
        if self.fd < 0 or self.waiting + size > _MAX_WAITING:
            self._lost[kind] += size
            self._is_at_start[kind] = data[-1] == _NEWLINE
            return
        if self._lost[kind]:
            self._put_lost(kind)
        self._send(FRAME.pack(kind, t, size), data)
        # Not before: a recorder that is started within gets this frame, and must not count it as lost.
        self._is_at_start[kind] = data[-1] == _NEWLINE
        self._given[kind] += size

    def put_event(self, words: str) -> None:
        """Send an event: its name, and words for its details."""
        data = words.encode()
        if words.startswith("started "):
            self._server = data
        elif words.startswith("exit "):
            self._server = b""  # its number may be that of another process now
        if self.fd >= 0:
            self._send(FRAME.pack(EVENT, time.monotonic_ns(), len(data)), data)

    def flush(self) -> None:
        """Send as much of the queue as the pipe has room for."""
        while self._queue and self.fd >= 0:
            piece = self._queue[0]
            try:
                written = os.write(self.fd, piece)
            except BlockingIOError:
                return
            except OSError:
                self._replace()
                return
            self.waiting -= written
            if written < len(piece):
                self._queue[0] = piece[written:]
                self._is_torn = True
                return
            self._queue.popleft()
            self._is_torn = False

    def reap(self) -> None:
        """Notice that the recorder has ended."""
        if self._pid and not self.is_inherited and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = 0
            self._replace()

    def try_once_more(self) -> None:
        """Start a last recorder if they were given up, so that the recording says how much was lost since."""
        if self.fd >= 0 or not self.restarts:
            return
        self.restarts += 1
        self._start()
        for kind in (CLIENT, SERVER, STDERR):
            if self._lost[kind] and self.fd >= 0:
                self._put_lost(kind, has_died=True)

    def close(self) -> None:
        """Send the queue, and wait for a moment until it is written."""
        for kind in (CLIENT, SERVER, STDERR):
            if self._lost[kind] and self.fd >= 0:
                self._put_lost(kind)
        deadline = time.monotonic() + _LAST_WAIT
        poll = select.poll()
        if self.fd >= 0 and self.waiting:
            poll.register(self.fd, select.POLLOUT)
            while self.waiting and self.fd >= 0 and poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                self.flush()
        if self.waiting and self.fd >= 0:
            self._leave_the_rest()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self._done >= 0:
            done = select.poll()
            done.register(self._done, select.POLLIN)
            done.poll(max(0.0, deadline - time.monotonic()) * 1000)
            os.close(self._done)
            self._done = -1

    def _leave_the_rest(self) -> None:
        """Let a fork send the rest of the queue, because the exit must not wait."""
        with suppress(OSError):
            if os.fork() == 0:
                try:
                    signal.alarm(_MAX_REST)
                    signal.signal(signal.SIGALRM, signal.SIG_DFL)
                    _let_go_of_all_but(self.fd)
                    os.set_blocking(self.fd, True)
                    for piece in self._queue:
                        rest = memoryview(piece)
                        while rest:
                            rest = rest[os.write(self.fd, rest) :]
                finally:
                    os._exit(0)

    def _send(self, head: bytes, data: bytes | memoryview) -> None:
        if not self._queue:
            try:
                written = os.writev(self.fd, (head, data))
            except BlockingIOError:
                written = 0
            except OSError:
                self._replace()
                written = 0
                if self.fd < 0:
                    return
            if written == len(head) + len(data):
                return
            self._is_torn = written > 0
            piece = (head + bytes(data))[written:]
        else:
            piece = head + bytes(data)
        self._queue.append(piece)
        self.waiting += len(piece)

    def _put_lost(self, kind: int, *, has_died: bool = False) -> None:
        words = f"{kind} {self._lost[kind]} {int(self._is_at_start[kind])} {int(has_died)}".encode()
        self._lost[kind] = 0
        self._send(FRAME.pack(LOST, time.monotonic_ns(), len(words)), words)

    # The recorder

    def _start(self) -> None:
        """Start a recorder. The first one creates the file; later ones append to it."""
        try:
            reader, writer = os.pipe()
            done, done_writer = os.pipe()
        except OSError:
            return  # there is no room for another process: nothing is recorded
        # A signal to the group of the tap is not meant for the recorder, which is in that group for a moment.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
            if pid == 0:
                self._become_recorder(reader, done_writer)
        except OSError:
            return
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(reader)
        os.close(done_writer)
        os.set_blocking(writer, False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            with suppress(OSError):  # the user's quota is used up
                fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self.fd, self._done, self._pid = writer, done, pid

    def _become_recorder(self, frames: int, done: int) -> NoReturn:
        code = 1
        try:
            # It must not hold the pipes of the host and the server, nor get signals that are meant for those.
            os.setsid()
            signal.set_wakeup_fd(-1)
            for name in PASSED_ON:
                signal.signal(getattr(signal, name), signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            _let_go_of_all_but(frames, done)
            os.nice(_NICENESS)
            from mcplumb.tap.recorder_process import record_frames

            code = record_frames(frames, self._options, self._given if self.restarts else None, self._is_at_start)
        finally:
            os._exit(code)

    def _replace(self) -> None:
        """Start another recorder after one has died. Data that the dead one did not write is lost."""
        if self.fd >= 0:
            os.close(self.fd)
            os.close(self._done)
            self.fd = self._done = -1
        if self._is_torn:
            self.waiting -= len(self._queue.popleft())
            self._is_torn = False
        if self.is_inherited or self.restarts >= _MAX_RESTARTS:
            self._queue.clear()
            self.waiting = 0
            return
        self.restarts += 1
        if self._server:
            # If the tap is killed, this recorder has to end the server.
            self._queue.appendleft(FRAME.pack(EVENT, time.monotonic_ns(), len(self._server)) + self._server)
            self.waiting += len(self._queue[0])
        # What waits has not been given yet.
        for piece in self._queue:
            kind, _, size = FRAME.unpack_from(piece)
            if kind <= STDERR:
                self._given[kind] -= size
        self._start()
        for piece in self._queue:
            kind, _, size = FRAME.unpack_from(piece)
            if kind <= STDERR:
                self._given[kind] += size


def _let_go_of_all_but(*kept: int) -> None:
    """Close all descriptors but these: a fork must not hold the pipes of the host and the server."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - pathlib is slow to import
        if int(name) > 2 and int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))
