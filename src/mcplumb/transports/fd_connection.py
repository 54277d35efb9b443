"""Connections over file descriptors: pipes, sockets, and also files and terminals."""

from __future__ import annotations

import asyncio
import os
import select
import threading
from collections.abc import Callable

from mcplumb._fast.poll_ahead import lull_of
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
from mcplumb.transports.line_connection import LineConnection, Trace
from mcplumb.wire.message_decoder import Expected
from mcplumb.wire.messages import Request

__all__ = ["StreamConnection", "ThreadSource", "WatchedSource"]

#: Bytes to read at once, at first. Room for more would have to be given back to the system after each small read.
_SMALL_READ = 16 * 1024
#: What a pipe can hold, unless somebody has enlarged it.
_PIPE_ROOM = 64 * 1024
#: The most to read at once: all that a large pipe can hold.
_LARGE_READ = 1024 * 1024
#: A read that brought more lines than this is large enough: more of them would only keep the loop from other work.
_MANY_LINES = 32
#: After so many lines, or pieces of one, the loop turns, even if it has nothing else to do.
_MOST_LINES = 16
#: What a thread reads at once.
_BLOCK = 64 * 1024


class StreamConnection(LineConnection):
    """A connection that reads from one descriptor and writes to another, or to the same if it is a socket.

    Both belong to the connection from then on. Neither is made non-blocking where there is a way around it.
    ``when_large`` is called when messages come that are so large that as much as possible is read at once.
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
        when_large: Callable[[], None] | None = None,
    ) -> None:
        if read_fd == write_fd:
            read_fd = private_copy(read_fd)
        is_watchable = kind_of(read_fd) != "other"
        sink = open_sink(write_fd)
        source = WatchedSource(read_fd, when_large) if is_watchable else ThreadSource(read_fd)
        super().__init__(source, sink, limits=limits, expect=expect, trace=trace)

    @property
    def is_unread(self) -> bool:
        """Whether the peer of a pipe has not read a single byte of what was written to it; False if nobody knows."""
        sink = self._sink
        return not self._is_closed and isinstance(sink, PipeSink) and self.stats.bytes_out <= sink.unread()

    def finish(self) -> None:
        """The peer is known to be gone: receive what is there now, and then the end, whoever else holds the pipe.

        Nothing happens on a file or a terminal, which have their own end.
        """
        if isinstance(self._source, WatchedSource):
            self._source.finish()


class WatchedSource:
    """Reads a pipe or a socket when the loop says that there is something: as much, and as often, as it has learned."""

    __slots__ = (
        "_arrived",
        "_bell",
        "_fd",
        "_has_ended",
        "_has_hung_up",
        "_hung_up",
        "_is_watching",
        "_left",
        "_loop",
        "_lull",
        "_ran_out",
        "_size",
        "_when_large",
    )

    _arrived: Callable[[bytes], int]
    _ran_out: Callable[[OSError | None], None]
    _hung_up: Callable[[], None]

    def __init__(self, fd: int, when_large: Callable[[], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = keep_private(fd)
        self._size = _SMALL_READ
        self._when_large = when_large
        self._lull = lull_of(self._loop, fd)
        self._is_watching = False
        self._has_ended = False
        #: How many more bytes count, once the peer is known to be gone.
        self._left: int | None = None
        #: What tells of the end while nothing is read.
        self._bell: select.epoll | None = None
        self._has_hung_up = False

    def start(
        self,
        arrived: Callable[[bytes], int],
        ran_out: Callable[[OSError | None], None],
        hung_up: Callable[[], None],
    ) -> None:
        """Begin."""
        self._arrived = arrived
        self._ran_out = ran_out
        self._hung_up = hung_up
        self.resume()

    def pause(self) -> None:
        """Do not read, and look for nothing but the end."""
        if self._is_watching:
            self._is_watching = False
            self._loop.remove_reader(self._fd)
            self._look_for_hang_up()

    def resume(self) -> None:
        """Read again."""
        if not self._is_watching and not self._has_ended:
            self._is_watching = True
            self._stop_looking()
            self._loop.add_reader(self._fd, self._read)
            self._end_if_due()

    def finish(self) -> None:
        """Bring what is there now, and then the end."""
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
        left = _MOST_LINES
        while True:
            size = self._size
            try:
                chunk = os.read(self._fd, size)
            except BlockingIOError:
                return  # Somebody who shares the pipe was faster.
            except OSError as error:
                self._end(error)
                return
            if not chunk:
                self._end(None)
                return
            if self._left is not None:
                self._left -= len(chunk)
            lines = self._arrived(chunk)
            if len(chunk) == size:
                if size < _LARGE_READ and lines < _MANY_LINES and self._is_watching:
                    self._grow()
            elif size > _SMALL_READ and len(chunk) < size // 4:
                self._size = size // 4
            if self._left is not None:
                self._end_if_due()
                return
            left -= lines or 1
            if left <= 0 or not self._is_watching or self._lull is None or not self._lull.brings_input():
                return

    def _grow(self) -> None:
        """Read more at once: a message comes that is larger than what was read."""
        if self._size == _PIPE_ROOM:
            enlarge_pipe(self._fd)
        self._size *= 4
        if self._size == _LARGE_READ and self._when_large is not None:
            self._when_large()

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


class ThreadSource:
    """Reads what the loop cannot watch, in a thread, one block each time it is asked to.

    The thread owns the descriptor: nobody else can close it without risking that it reads from a stranger's.
    """

    __slots__ = (
        "_arrived",
        "_fd",
        "_has_ended",
        "_held",
        "_is_asked",
        "_is_flowing",
        "_loop",
        "_orders",
        "_ran_out",
        "_wake",
    )

    _arrived: Callable[[bytes], int]
    _ran_out: Callable[[OSError | None], None]

    def __init__(self, fd: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = keep_private(fd)
        self._wake: int | None = None
        self._orders = threading.Semaphore(0)
        self._is_asked = False
        self._is_flowing = False
        self._has_ended = False
        self._held: bytes | OSError | None = None

    def start(
        self,
        arrived: Callable[[bytes], int],
        ran_out: Callable[[OSError | None], None],
        hung_up: Callable[[], None],
    ) -> None:
        """Begin. Nobody hangs up a file, and who hangs up a terminal sends a signal."""
        self._arrived = arrived
        self._ran_out = ran_out
        wake, self._wake = private_pipe()
        # A daemon, because a read that never returns must not keep the process from its end.
        threading.Thread(target=self._work, args=(wake,), name="mcplumb-reader", daemon=True).start()
        self.resume()

    def pause(self) -> None:
        """Pass nothing on."""
        self._is_flowing = False

    def resume(self) -> None:
        """Pass on what came meanwhile, or ask for more."""
        self._is_flowing = True
        if self._held is not None:
            block, self._held = self._held, None
            self._pass_on(block)
        else:
            self._ask()

    def close(self) -> None:
        """Let the thread go, and with it the descriptor."""
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
        """What the thread does, until ``wake`` tells it to stop."""
        try:
            while self._orders.acquire() and (block := self._block(wake)) is not None:
                self._loop.call_soon_threadsafe(self._came, block)
        except RuntimeError:
            pass  # The loop was closed before the connection.
        finally:
            close_private(self._fd)
            close_private(wake)

    def _block(self, wake: int) -> bytes | OSError | None:
        while wait_for_input(self._fd, wake):
            try:
                return os.read(self._fd, _BLOCK)
            except BlockingIOError:
                continue  # Somebody who shares the terminal was faster.
            except OSError as error:
                return error
        return None
