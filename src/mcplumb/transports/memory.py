"""An in-memory connection between a client and a server in one event loop.

Messages are encoded and decoded as on a wire, so a message that passes here also passes over every other transport.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence

from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.connection import Connection
from mcplumb.transports.line_connection import LineConnection, Source, Trace
from mcplumb.wire.messages import Request, Result

__all__ = ["memory_pair"]

#: Bytes that each direction buffers, as many as a pipe on Linux.
_CAPACITY = 64 * 1024


def memory_pair(*, limits: Limits = DEFAULT_LIMITS, trace: Trace | None = None) -> tuple[Connection, Connection]:
    """Return two connected connections: the first for a client, the second for a server.

    Each decodes the messages that its role mostly receives a little faster. ``trace`` sees the client's side.
    """
    to_client, to_server = _Buffer(), _Buffer()
    return (
        LineConnection(to_client, _BufferSink(to_server), limits=limits, expect=Result, trace=trace),
        LineConnection(to_server, _BufferSink(to_client), limits=limits, expect=Request, trace=None),
    )


class _Buffer(Source):
    """One direction: the bytes that one side wrote, and the `Source` that the other side reads them from."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._chunks: list[bytes] = []
        self._size = 0
        self._is_flowing = False
        self._is_closed = False
        self._is_complete = False  # the writer has closed
        self._has_ended = False  # the end was reported to the reader
        self._may_hang_up = False  # the reader has started, and was not told yet
        #: Called from the loop when there is room again.
        self.on_room: Callable[[], None] | None = None

    def _begin(self) -> None:
        self._may_hang_up = True
        super()._begin()

    def pause(self) -> None:
        """Deliver nothing but a hang-up."""
        self._is_flowing = False
        self._loop.call_soon(self._report_hang_up)

    def resume(self) -> None:
        """Deliver what is buffered in the next iteration of the loop."""
        self._is_flowing = True
        self._loop.call_soon(self._deliver)

    def close(self) -> None:
        """Drop what is buffered, and refuse further writes."""
        self._is_flowing = False
        self._is_closed = True
        self._clear()

    def put(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Buffer as many bytes as there is room for; raise `BrokenPipeError` if the reader has closed."""
        if self._is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        before = self._size
        for piece in pieces:
            taken = bytes(piece[: _CAPACITY - self._size])
            self._chunks.append(taken)
            self._size += len(taken)
            if self._size == _CAPACITY:
                break
        self._loop.call_soon(self._deliver)
        return self._size - before

    def complete(self) -> None:
        """Mark the end of the stream: the writer has closed."""
        self._is_complete = True
        self._loop.call_soon(self._deliver)
        self._loop.call_soon(self._report_hang_up)

    def _deliver(self) -> None:
        if not self._is_flowing:
            return
        if self._chunks:
            chunk = b"".join(self._chunks)
            self._clear()
            self._arrived(chunk)
            if self._is_complete:
                self._loop.call_soon(self._deliver)
        elif self._is_complete and not self._has_ended:
            self._has_ended = True
            self._ran_out(None)

    def _report_hang_up(self) -> None:
        is_paused = not (self._is_flowing or self._is_closed or self._has_ended)
        if is_paused and self._is_complete and self._may_hang_up:
            self._may_hang_up = False
            self._hung_up()

    def _clear(self) -> None:
        self._chunks.clear()
        self._size = 0
        if self.on_room is not None:
            self._loop.call_soon(self.on_room)


class _BufferSink:
    """The `Sink` of one side: writes into the buffer that the other side reads."""

    def __init__(self, buffer: _Buffer) -> None:
        self._buffer = buffer

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write as many bytes as there is room for."""
        return self._buffer.put(pieces)

    def watch(self, then: Callable[[], None]) -> None:
        """Call ``then`` whenever there is room again."""
        self._buffer.on_room = then

    def unwatch(self) -> None:
        """Stop calling."""
        self._buffer.on_room = None

    def close(self) -> None:
        """Mark the end of the stream."""
        self._buffer.complete()
