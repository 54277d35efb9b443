"""A response that is a stream of server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from mcplumb.transports.http_server.requests import HttpRequest
from mcplumb.transports.waiters import Waiters
from mcplumb.wire.events import encode_comment

__all__ = ["HIGH_WATER", "LOW_WATER", "EventStream"]

#: Bytes queued from which on a stream is clogged. There may be thousands, and the server has a buffer of its own.
HIGH_WATER = 256 * 1024
#: Bytes queued at which it no longer is.
LOW_WATER = HIGH_WATER // 4

_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    # Proxies that would collect some of the stream before they pass it on are asked not to.
    (b"x-accel-buffering", b"no"),
)
_COMMENT = encode_comment()

_logger = logging.getLogger("mcplumb.http")


class EventStream:
    """The events of one response, which is begun by the first of them or by ``begin``. Made in a running event loop.

    What is put is queued, and written by a task that lives as long as there is something to write. After ``keep_alive``
    seconds without an event, a comment is written. The owner must await ``finished`` before it lets the request go, and
    call ``abort`` if it cannot.

    ``gone`` is called, at most once and from the loop, if nothing can be written any more and neither ``end`` nor
    ``abort`` has been called: the client has left, or has read nothing for about ``write_within`` seconds.
    """

    __slots__ = (
        "_finished",
        "_gone",
        "_has_begun",
        "_headers",
        "_is_ending",
        "_is_over",
        "_is_quiet",
        "_keep_alive",
        "_loop",
        "_made_at",
        "_queue",
        "_queued",
        "_request",
        "_timer",
        "_waiters",
        "_write_within",
        "_writer",
        "_writing_since",
        "is_clogged",
    )

    def __init__(
        self,
        request: HttpRequest,
        *,
        keep_alive: float,
        write_within: float,
        gone: Callable[[], None],
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._made_at = self._loop.time()
        self._request = request
        self._gone = gone
        self._headers = (*_HEADERS, *headers)
        self._keep_alive = keep_alive
        self._write_within = write_within
        self._queue: list[bytes] = []
        self._queued = 0
        #: Whether more is queued than the client should be made to catch up with.
        self.is_clogged = False
        self._waiters = Waiters(self._loop)
        self._has_begun = False
        self._is_ending = False
        self._is_over = False
        self._is_quiet = True
        self._writer: asyncio.Task[None] | None = None
        self._writing_since: float | None = None
        self._finished: asyncio.Future[None] = self._loop.create_future()
        self._timer = self._loop.call_later(keep_alive, self._tick)
        request.watch(self._break)

    @property
    def is_over(self) -> bool:
        """Whether nothing can be written any more."""
        return self._is_over

    @property
    def age(self) -> float:
        """For how many seconds it has been there."""
        return self._loop.time() - self._made_at

    def begin(self) -> None:
        """Send the head of the response now, whether or not there is an event."""
        self._write_soon()

    def put(self, event: bytes) -> None:
        """Queue one event, or several, in their final form. Nothing happens once the stream has ended."""
        if self._is_ending or self._is_over:
            return
        self._queue.append(event)
        self._queued += len(event)
        self._is_quiet = False
        if self._queued > HIGH_WATER:
            self.is_clogged = True
        self._write_soon()

    def end(self) -> None:
        """Write what is queued, and then end the response. May be called again."""
        self._is_ending = True
        self._unclog()  # Nobody can put anything any more, so nobody need wait.
        self._write_soon()

    def abort(self) -> None:
        """Write nothing more; what is queued is lost. May be called again, and after ``end``."""
        self._stop()

    async def drained(self) -> None:
        """Wait until the stream is no longer clogged, or is over. Cancelling this harms nothing."""
        await self._waiters.wait_while(lambda: self.is_clogged)

    async def finished(self) -> None:
        """Wait until the response has ended, in whatever way. Cancelling this harms nothing."""
        await asyncio.shield(self._finished)

    def _write_soon(self) -> None:
        if self._writer is None and not self._is_over:
            self._writer = self._loop.create_task(self._write())

    async def _write(self) -> None:
        """Write what is queued, until nothing is."""
        request = self._request
        self._writing_since = self._loop.time()
        try:
            if not self._has_begun:
                self._has_begun = True
                await request.begin(200, self._headers)
            while self._queue or self._is_ending:
                events = b"".join(self._queue)
                self._queue.clear()
                is_last = self._is_ending
                await request.write(events, more=not is_last)
                self._writing_since = self._loop.time()
                self._queued -= len(events)
                if self._queued <= LOW_WATER:
                    self._unclog()
                if is_last:
                    self._stop()
                    return
        except OSError:
            self._break()
        except Exception:
            _logger.exception("The HTTP server failed to send a part of a response.")
            self._break()
        finally:
            self._writer = self._writing_since = None

    def _tick(self) -> None:
        now = self._loop.time()
        if self._writing_since is not None and now - self._writing_since >= self._write_within:
            self._break()
            return
        if self._is_quiet and self._writer is None:
            self.put(_COMMENT)
        self._is_quiet = True
        self._timer = self._loop.call_at(now + self._keep_alive, self._tick)

    def _break(self) -> None:
        is_unexpected = not (self._is_over or self._is_ending)
        self._stop()
        if is_unexpected:
            self._gone()

    def _stop(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._timer.cancel()
        self._request.unwatch()
        self._queue.clear()
        self._unclog()
        if self._writer is not None and self._writer is not asyncio.current_task():
            self._writer.cancel()
        if not self._finished.done():
            self._finished.set_result(None)

    def _unclog(self) -> None:
        if self.is_clogged:
            self.is_clogged = False
            self._waiters.wake()
