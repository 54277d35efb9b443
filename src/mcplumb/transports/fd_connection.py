"""Connections over file descriptors: pipes, sockets, and also files and terminals."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from contextvars import copy_context

from mcplumb._fast.poll_ahead import poll_ahead_on
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.descriptors import (
    PipeSink,
    bytes_waiting,
    close_private,
    enlarge_pipe,
    hang_up_bell,
    keep_private,
    kind_of,
    open_sink,
    private_copy,
    private_pipe,
    wait_for_input,
)
from mcplumb.transports.line_connection import LineConnection, Source, Trace
from mcplumb.wire.message_decoder import Expected
from mcplumb.wire.messages import Request

__all__ = ["StreamConnection", "ThreadSource", "WatchedSource"]

#: Bytes to read at once, at first. A larger buffer would be returned to the system after each small read.
_SMALL_READ = 16 * 1024
#: Bytes that a pipe holds, unless it was enlarged.
_PIPE_ROOM = 64 * 1024
#: The most bytes to read at once: all that an enlarged pipe holds.
_LARGE_READ = 1024 * 1024
#: A read that brought more lines than this does not grow: more lines would only keep the loop from other work.
_MANY_LINES = 32
#: After this many lines, or pieces of one, the loop turns even if it has nothing else to do.
_MOST_LINES = 16
#: Bytes that a thread reads at once.
_BLOCK = 64 * 1024


class StreamConnection(LineConnection):
    """A connection that reads from one descriptor and writes to another, or to the same if it is a socket.

    The connection owns both. Neither is made non-blocking where there is a way around it.
    """

    __slots__ = ()

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        *,
        limits: Limits = DEFAULT_LIMITS,
        expect: Expected = Request,
        trace: Trace | None = None,
    ) -> None:
        if read_fd == write_fd:
            read_fd = private_copy(read_fd)
        is_watchable = kind_of(read_fd) != "other"
        sink = open_sink(write_fd)
        source = WatchedSource(read_fd) if is_watchable else ThreadSource(read_fd)
        super().__init__(source, sink, limits=limits, expect=expect, trace=trace)

    @property
    def is_unread(self) -> bool:
        """Whether the peer of a pipe has read nothing of what was written to it; False where that is unknown."""
        sink = self._sink
        if self._is_closed or not isinstance(sink, PipeSink):
            return False
        unread = sink.unread()
        return unread is not None and self.stats.bytes_out <= unread

    def has_been_read(self) -> bool | None:
        """Whether the peer has read everything that was sent; None where that is unknown, as it is for sockets."""
        sink = self._sink
        unread = sink.unread() if not self._is_closed and isinstance(sink, PipeSink) else None
        return None if unread is None else not (unread or self._queued)

    def finish(self) -> None:
        """Receive the available input and then the end, because the peer is gone, even if others hold the pipe.

        Do nothing on a file or a terminal, which have an end of their own.
        """
        if isinstance(self._source, WatchedSource):
            self._source.finish()


class WatchedSource(Source):
    """Reads a pipe or a socket when the loop reports input; the size of a read follows the size of what comes."""

    __slots__ = (
        "_bell",
        "_fd",
        "_has_ended",
        "_has_hung_up",
        "_is_watching",
        "_left",
        "_loop",
        "_poll_ahead",
        "_run",
        "_size",
    )

    def __init__(self, fd: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = keep_private(fd)
        self._size = _SMALL_READ
        self._poll_ahead = poll_ahead_on(self._loop)
        #: Runs what handles its input with the context variables of its own, if another source has waited for it.
        self._run = copy_context().run
        self._is_watching = False
        self._has_ended = False
        #: How many more bytes to read once the peer is known to be gone.
        self._left: int | None = None
        #: What reports a hang-up while reading is paused.
        self._bell: select.epoll | None = None
        self._has_hung_up = False

    def pause(self) -> None:
        """Stop reading, and watch for a hang-up only."""
        if self._is_watching:
            self._is_watching = False
            self._loop.remove_reader(self._fd)
            if self._poll_ahead is not None:
                del self._poll_ahead.sources[self._fd]
            self._look_for_hang_up()

    def resume(self) -> None:
        """Read again after a pause."""
        if not self._is_watching and not self._has_ended:
            self._is_watching = True
            self._stop_looking()
            self._loop.add_reader(self._fd, self._read)
            if self._poll_ahead is not None:
                self._poll_ahead.sources[self._fd] = self
            self._end_if_due()

    def finish(self) -> None:
        """Deliver what is there now, and then the end."""
        if self._left is None and not self._has_ended:
            self._left = bytes_waiting(self._fd)
            self._end_if_due()

    def close(self) -> None:
        """Close the descriptor."""
        self._has_ended = True
        self.pause()
        self._stop_looking()
        close_private(self._fd)

    def _read(self) -> None:
        """Read what is there; then, as long as the loop has nothing else to do, what comes next for any source."""
        left = _MOST_LINES
        read, ahead = os.read, self._poll_ahead
        source: WatchedSource | None = self
        while source is not None:
            size = source._size
            try:
                chunk = read(source._fd, size)
            except BlockingIOError:
                return  # Another process that shares the pipe was faster.
            except OSError as error:
                source._run(source._end, error)
                return
            if not chunk:
                source._run(source._end, None)
                return
            if source._left is not None:
                source._left -= len(chunk)
            lines = source._arrived(chunk) if source is self else source._run(source._arrived, chunk)
            if size > _SMALL_READ or len(chunk) == size:
                source._adapt(size, len(chunk), lines)
            if source._left is not None:
                source._end_if_due()
                return
            left -= lines or 1
            if left <= 0 or ahead is None or not source._is_watching:
                return
            del chunk  # the wait may be long
            source = ahead.next_source()

    def _adapt(self, size: int, came: int, lines: int) -> None:
        """Read more at once if messages are larger than what was read, and less if they have become small again."""
        if came < size // 4:
            self._size = size // 4
        elif came == size and size < _LARGE_READ and lines < _MANY_LINES and self._is_watching:
            self._grow()

    def _grow(self) -> None:
        """Read more at once, because a message is larger than one read."""
        if self._size == _PIPE_ROOM:
            enlarge_pipe(self._fd)
        self._size *= 4

    def _end_if_due(self) -> None:
        if self._left is not None and self._left <= 0:
            self._loop.call_soon(self._end_early)

    def _end_early(self) -> None:
        if self._is_watching:
            self._end(None)

    def _end(self, error: OSError | None) -> None:
        self._has_ended = True
        self.pause()
        self._ran_out(error)

    def _look_for_hang_up(self) -> None:
        if not self._has_ended and not self._has_hung_up:
            self._bell = hang_up_bell(self._fd)
            if self._bell is not None:
                self._loop.add_reader(self._bell, self._rings)

    def _stop_looking(self) -> None:
        if self._bell is not None:
            self._loop.remove_reader(self._bell)
            self._bell.close()
            self._bell = None

    def _rings(self) -> None:
        self._has_hung_up = True
        self._stop_looking()
        self._hung_up()


class ThreadSource(Source):
    """Reads what the loop cannot watch, in a thread, one block at a time.

    The thread owns the descriptor: if another thread closed it, the next read could be of an unrelated file that has
    got the same number.
    """

    __slots__ = (
        "_fd",
        "_has_ended",
        "_held",
        "_is_asked",
        "_is_flowing",
        "_loop",
        "_orders",
        "_wake",
    )

    def __init__(self, fd: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = keep_private(fd)
        self._wake: int | None = None
        self._orders = threading.Semaphore(0)
        self._is_asked = False
        self._is_flowing = False
        self._has_ended = False
        self._held: bytes | OSError | None = None

    def _begin(self) -> None:
        # ``hung_up`` is never called: files have no peer, and terminals that hang up send a signal.
        wake, self._wake = private_pipe()
        # A daemon, because a read that never returns must not keep the process from its end.
        threading.Thread(target=self._work, args=(wake,), name="mcplumb-reader", daemon=True).start()
        self.resume()

    def pause(self) -> None:
        """Deliver nothing until ``resume``."""
        self._is_flowing = False

    def resume(self) -> None:
        """Deliver what came meanwhile, or ask the thread for more."""
        self._is_flowing = True
        if self._held is not None:
            block, self._held = self._held, None
            self._pass_on(block)
        else:
            self._ask()

    def close(self) -> None:
        """End the thread, which closes the descriptor."""
        self._is_flowing = False
        if self._wake is None:
            close_private(self._fd)
        else:
            close_private(self._wake)
            self._orders.release()

    def _ask(self) -> None:
        if not self._is_asked and not self._has_ended:
            self._is_asked = True
            self._orders.release()

    def _came(self, block: bytes | OSError) -> None:
        self._is_asked = False
        if self._is_flowing:
            self._pass_on(block)
        else:
            self._held = block

    def _pass_on(self, block: bytes | OSError) -> None:
        if not block or isinstance(block, OSError):
            self._has_ended = True
            self._ran_out(block or None)
        else:
            self._arrived(block)
            if self._is_flowing:
                self._ask()

    def _work(self, wake: int) -> None:
        """Read blocks when they are asked for, in the thread, until ``wake`` is closed."""
        try:
            while self._orders.acquire() and (block := self._block(wake)) is not None:
                self._loop.call_soon_threadsafe(self._came, block)
        except RuntimeError:
            pass  # the loop was closed before the connection
        finally:
            close_private(self._fd)
            close_private(wake)

    def _block(self, wake: int) -> bytes | OSError | None:
        while wait_for_input(self._fd, wake):
            try:
                return os.read(self._fd, _BLOCK)
            except BlockingIOError:
                continue  # another process that shares the terminal was faster
            except OSError as error:
                return error
        return None
