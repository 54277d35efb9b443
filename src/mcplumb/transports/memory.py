"""Two ends of a connection within one event loop: for a client and a server in one process, and for tests.

Messages are written and read as on a wire, so that nothing passes here that would not pass there.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Sequence

from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.connection import Connection
from mcplumb.transports.line_connection import LineConnection, Trace
from mcplumb.wire.messages import Request, Result

__all__ = ["memory_pair"]

#: What fits between the two ends, in each direction, as in a pipe.
_ROOM = 64 * 1024


def memory_pair(*, limits: Limits = DEFAULT_LIMITS, trace: Trace | None = None) -> tuple[Connection, Connection]:
    """Two connected ends: the first for a client, the second for a server, each a little faster in that place.

    ``trace`` is shown what the client's end sees.
    """
    of_client, of_server = _Inbox(), _Inbox()
    return (
        LineConnection(of_client, _Outbox(of_server), limits=limits, expect=Result, trace=trace),
        LineConnection(of_server, _Outbox(of_client), limits=limits, expect=Request, trace=None),
    )


class _Inbox:
    """The source of one end, and what the other end has written into it."""

    _arrived: Callable[[bytes], int]
    _ran_out: Callable[[OSError | None], None]

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._chunks: list[bytes] = []
        self._size = 0
        self._is_flowing = False
        self._is_closed = False
        self._is_complete = False  # nothing more will be put in
        self._has_ended = False  # and that has been told
        #: To be called once, and not before the start.
        self._hung_up: Callable[[], None] | None = None
        #: Called, from the loop, when there is room again.
        self.on_room: Callable[[], None] | None = None

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
        """Pass nothing on but the end."""
        self._is_flowing = False
        self._loop.call_soon(self._tell_hang_up)

    def resume(self) -> None:
        """Pass on what is there, in the next turn of the loop."""
        self._is_flowing = True
        self._loop.call_soon(self._pass_on)

    def close(self) -> None:
        """Refuse everything from now on."""
        self._is_flowing = False
        self._is_closed = True
        self._make_room()

    def put(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Take what there is room for; `BrokenPipeError` if nobody will ever read it."""
        if self._is_closed:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        before = self._size
        for piece in pieces:
            taken = bytes(piece[: _ROOM - self._size])
            self._chunks.append(taken)
            self._size += len(taken)
            if self._size == _ROOM:
                break
        self._loop.call_soon(self._pass_on)
        return self._size - before

    def complete(self) -> None:
        """Nothing more will be put in."""
        self._is_complete = True
        self._loop.call_soon(self._pass_on)
        self._loop.call_soon(self._tell_hang_up)

    def _pass_on(self) -> None:
        if not self._is_flowing:
            return
        if self._chunks:
            chunk = b"".join(self._chunks)
            self._make_room()
            self._arrived(chunk)
            if self._is_complete:
                self._loop.call_soon(self._pass_on)
        elif self._is_complete and not self._has_ended:
            self._has_ended = True
            self._ran_out(None)

    def _tell_hang_up(self) -> None:
        is_paused = not (self._is_flowing or self._is_closed or self._has_ended)
        if is_paused and self._is_complete and self._hung_up is not None:
            told, self._hung_up = self._hung_up, None
            told()

    def _make_room(self) -> None:
        self._chunks.clear()
        self._size = 0
        if self.on_room is not None:
            self._loop.call_soon(self.on_room)


class _Outbox:
    """The sink of one end: the inbox of the other."""

    def __init__(self, inbox: _Inbox) -> None:
        self._inbox = inbox

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Put in what there is room for."""
        return self._inbox.put(pieces)

    def watch(self, then: Callable[[], None]) -> None:
        """Call ``then`` whenever there is room again."""
        self._inbox.on_room = then

    def unwatch(self) -> None:
        """Do so no more."""
        self._inbox.on_room = None

    def close(self) -> None:
        """Nothing more is coming."""
        self._inbox.complete()
