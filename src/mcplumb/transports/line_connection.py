"""Newline-delimited JSON over anything that carries bytes: what all connections of that kind have in common.

A `LineConnection` knows lines, messages, queues and when to stop. A `Source` brings it bytes and a `Sink` takes
them; those know the system.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from os import writev
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.connection import Backpressure, Receiver, Stats
from mcplumb.wire.lines import LineSplitter, LineTooLong
from mcplumb.wire.message_decoder import BadMessage, Batch, Expected, as_torn, decode_line, too_long
from mcplumb.wire.messages import Message, Request, RequestId, encode_batch, encode_line

__all__ = ["HIGH_WATER", "LineConnection", "Sink", "Source", "Trace"]

#: Bytes queued from which on a connection is clogged: enough to keep a large pipe full, and little for each of many.
HIGH_WATER = 1024 * 1024
#: The most pieces that one write may have (IOV_MAX; POSIX grants 16, and Linux, macOS and the BSDs 1024).
_MOST_PIECES = 1024
#: Bytes from which on a line gets its newline in a piece of its own.
_LARGE = 64 * 1024

_encode = msgspec.json.Encoder().encode
# As numbers: that is the fastest way to look for a byte.
_NEWLINE = ord("\n")
_RETURN = ord("\r")
_SPACE = ord(" ")

#: Is shown each line, without its newline, as it is received or queued: of an over-long one, the beginning.
Trace: TypeAlias = Callable[[Literal["in", "out"], bytes], None]


class Source(ABC):
    """Where bytes come from. It calls only while it is not paused, from the event loop, never from within a call."""

    __slots__ = ("_arrived", "_hung_up", "_ran_out")

    _arrived: Callable[[bytes], int]
    _ran_out: Callable[[OSError | None], None]
    _hung_up: Callable[[], None]

    def start(
        self,
        arrived: Callable[[bytes], int],
        ran_out: Callable[[OSError | None], None],
        hung_up: Callable[[], None],
    ) -> None:
        """Begin. ``arrived`` is called with some bytes and returns how many lines they completed.

        ``ran_out`` is called last, and once: with None at the end, or with the error that made reading impossible.
        ``hung_up`` is called once at most, and while the source is paused: whoever sent the bytes will send no more.
        """
        self._arrived = arrived
        self._ran_out = ran_out
        self._hung_up = hung_up
        self._begin()

    def _begin(self) -> None:
        """Begin; the functions to call are set."""
        self.resume()

    @abstractmethod
    def pause(self) -> None:
        """Bring nothing."""

    @abstractmethod
    def resume(self) -> None:
        """Bring more, or tell the end, if that has not been done. Called from the loop only."""

    @abstractmethod
    def close(self) -> None:
        """Bring nothing ever again, and let everything go. Called once."""


class Sink(Protocol):
    """Where bytes go."""

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Take some of the pieces, in order, and return how many bytes; `OSError` if it will never take any again."""

    def watch(self, then: Callable[[], None]) -> None:
        """Call ``then``, from the loop, whenever more can be written."""

    def unwatch(self) -> None:
        """Do so no more."""

    def close(self) -> None:
        """Let everything go. Called once, and not while it is watched."""


class LineConnection(Backpressure):
    """A `Connection` that is made in a running event loop, from a source and a sink that it then owns.

    Messages sent before ``start`` are queued. What is sent while messages are being received is written when they have
    been; what is sent at other times, in the next turn of the loop.
    """

    __slots__ = (
        "_bad_lines",
        "_bytes_in",
        "_bytes_out",
        "_clean_end",
        "_expect",
        "_finished",
        "_followers",
        "_has_started",
        "_is_closed",
        "_is_closing",
        "_is_flowing",
        "_is_flush_due",
        "_is_usable",
        "_is_watching",
        "_lines",
        "_lines_in",
        "_lines_out",
        "_loop",
        "_max_batch",
        "_needs_care",
        "_pipe",
        "_queue",
        "_queued",
        "_received",
        "_receiver",
        "_sink",
        "_source",
        "_splitter",
        "_trace",
    )

    _receiver: Receiver
    _received: Callable[[Message | BadMessage | Batch], None]

    def __init__(
        self,
        source: Source,
        sink: Sink,
        *,
        limits: Limits = DEFAULT_LIMITS,
        expect: Expected = Request,
        trace: Trace | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(self._loop, HIGH_WATER)
        self._has_started = False
        self._trace = trace
        # Counted here, because to change a field of a Struct takes ten times as long; by the chunk, not by the line.
        self._lines_in = self._lines_out = 0
        self._bytes_in = self._bytes_out = 0
        self._bad_lines = 0
        # Reading
        self._source = source
        self._splitter = LineSplitter(limits.max_line)
        self._max_batch = limits.max_batch
        self._expect: Expected = expect
        self._lines: Iterator[bytes | LineTooLong] = iter(())  # read, but not yet received
        self._clean_end: bool | None = None  # known, but not yet told
        self._is_flowing = False
        # Writing
        self._sink = sink
        #: The descriptor, if the sink is a pipe: it is written to without going through the sink.
        self._pipe: int | None = getattr(sink, "pipe", None)
        self._queue: list[bytes | memoryview] = []
        self._queued = 0
        self._is_flush_due = True  # by `start`
        self._is_watching = False
        #: Whether a flush has more to do than to write: the sink is watched, others follow, or the connection is
        #: clogged or closing.
        self._needs_care = False
        #: Connections that write when this one has written.
        self._followers: list[LineConnection] | None = None
        # Closing
        self._is_usable = True
        self._is_closing = False
        self._is_closed = False
        self._finished: asyncio.Future[None] | None = None

    def start(self, receiver: Receiver) -> None:
        """Begin to read."""
        if self._is_closing:
            return
        self._receiver = receiver
        self._received = receiver.received
        self._has_started = True
        self._is_flowing = True
        self._source.start(self._deliver, self._ran_out, receiver.hung_up)
        self._loop.call_soon(self._flush)

    @property
    def stats(self) -> Stats:
        """What went over the connection so far."""
        messages_in, messages_out = self._lines_in - self._bad_lines, self._lines_out + len(self._queue)
        return Stats(messages_in, messages_out, self._bytes_in, self._bytes_out, self._bad_lines)

    # --- Reading ---

    def pause(self) -> None:
        """Stop reading. Lines that were read already are kept, too."""
        if self._is_flowing:
            self._is_flowing = False
            self._source.pause()

    def resume(self) -> None:
        """Go on, in the next turn of the loop."""
        if not self._is_flowing and not self._is_closing and self._has_started:
            self._is_flowing = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._is_flowing:
            self._deliver()
        if self._is_flowing:
            self._source.resume()

    def _ran_out(self, error: OSError | None) -> None:
        end = self._splitter.end()
        self._clean_end = end.clean and error is None
        self._lines = iter([end.rest] if end.rest else [])
        self._lines_in += bool(end.rest)
        self._deliver()

    def _deliver(self, chunk: bytes = b"") -> int:
        """Pass on the messages that a chunk completes, as far as they are wanted, then write what was sent meanwhile.

        Returns how many lines the chunk completed. Without a chunk, lines that were read before are passed on.
        """
        writes_here = not self._is_flush_due
        self._is_flush_due = True
        count = 1
        try:
            size = len(chunk)
            self._bytes_in += size
            splitter = self._splitter
            if (
                splitter.is_at_start
                and chunk.find(b"\n") == size - 1 > 0
                and chunk[-2] > _SPACE
                and size <= splitter.max_line
                and self._trace is None
            ):
                # One whole line, and nothing to take off it: what a read brings when one message is awaited.
                self._lines_in += 1
                item = decode_line(chunk[:-1], True, self._max_batch, self._expect)
                if item.__class__ is BadMessage:
                    self._bad_lines += 1
                self._received(item)
            else:
                if chunk:
                    lines = splitter.feed(chunk)
                    count = len(lines)
                    self._lines_in += count
                    self._lines = iter(lines)
                self._pass_on()
        except BaseException:
            # A receiver should not raise, but if it does, then the messages behind that one are not lost.
            self._loop.call_soon(self._go_on)
            raise
        finally:
            if writes_here:
                self._flush()
        return count

    def _pass_on(self) -> None:
        """Decode lines and hand the messages to the receiver, until reading is paused; then report the end, if any."""
        received, trace, max_batch, expect = self._received, self._trace, self._max_batch, self._expect
        line: Any
        for line in self._lines:
            if line.__class__ is bytes:
                if trace is not None:
                    trace("in", line)
                item = decode_line(line, True, max_batch, expect)
            else:
                if trace is not None:
                    trace("in", line.head)
                item = too_long(line)
            if item.__class__ is BadMessage:
                self._bad_lines += 1
                if self._clean_end is not None:  # only the unfinished line at the end of the stream is left then
                    item = as_torn(item)
            received(item)
            if not self._is_flowing:
                return
        if self._clean_end is not None:
            clean, self._clean_end = self._clean_end, None
            self._receiver.ended(clean=clean)

    # --- Writing ---

    def send(self, message: Message | msgspec.Raw, about: RequestId | None = None) -> None:
        """Queue one message. There is one stream, whatever it is about."""
        # Every message goes through here, so the straight way calls no other function of ours.
        if self._is_usable:
            try:
                line = _encode(message)
                if _NEWLINE in line or _RETURN in line:
                    line = encode_line(message)
            except Exception:  # noqa: BLE001 - encode_line finds the words for it
                line = encode_line(message)
            if self._trace is not None:
                self._trace("out", line)
                if self._is_closing:  # by whoever has seen that
                    return
            size = len(line) + 1
            if size < _LARGE:
                self._queue.append(line + b"\n")
            else:
                # It is not copied for one byte more. Pieces in the queue count as lines: these are two, and one line.
                self._queue += (line, b"\n")
                self._lines_out -= 1
            size += self._queued
            self._queued = size
            if size > HIGH_WATER:
                self.is_clogged = self._needs_care = True
            if not self._is_flush_due:
                self._is_flush_due = True
                self._loop.call_soon(self._flush)

    def send_batch(self, messages: Sequence[Message]) -> None:
        """Queue several messages as one line."""
        if self._is_usable:
            self.send(msgspec.Raw(encode_batch(messages)))

    def follow(self, other: LineConnection) -> None:
        """Write what is sent next when ``other`` has handed on what it is receiving, and not a turn of the loop later.

        For a bridge, where what one connection receives is sent on another.
        """
        if other._is_flush_due and not self._is_flush_due and not other._is_watching:
            self._is_flush_due = other._needs_care = True
            if other._followers is None:
                other._followers = [self]
            else:
                other._followers.append(self)

    def _flush_followers(self) -> None:
        followers, self._followers = self._followers, None
        for each in followers or ():
            each._flush()

    def _flush(self) -> None:
        """Write what is queued, as far as the sink takes it."""
        queue = self._queue
        if queue:
            pieces = len(queue)
            pipe = self._pipe
            try:
                if pipe is not None and pieces <= _MOST_PIECES:
                    written = writev(pipe, queue)
                else:
                    written = self._sink.write(queue)
            except BlockingIOError:
                written = 0
            except OSError as error:
                self._break(error)
                return
            self._bytes_out += written
            if written < self._queued:
                self._cut(written)
                if not self._is_watching:
                    self._is_watching = self._is_flush_due = self._needs_care = True
                    self._sink.watch(self._flush)
                self._flush_followers()  # these do not wait for the peer of this one
                return
            self._lines_out += pieces
            queue.clear()
            self._queued = 0
        self._is_flush_due = False
        if self._needs_care:
            self._after_flush()

    def _after_flush(self) -> None:
        """Undo what a full queue made necessary, and close if that is due."""
        self._needs_care = self._is_closing
        if self._followers is not None:
            self._flush_followers()
        if self._is_watching or self.is_clogged:
            self._empty()
        if self._is_closing and not self._is_closed:
            self._finish()

    def _cut(self, written: int) -> None:
        """Take what was written, which is not everything, off the queue."""
        self._queued -= written
        whole = 0
        while written >= len(self._queue[whole]):
            written -= len(self._queue[whole])
            whole += 1
        del self._queue[:whole]
        self._lines_out += whole
        if written:
            self._queue[0] = memoryview(self._queue[0])[written:]
        self._fell_to(self._queued)

    def _empty(self) -> None:
        self._lines_out += len(self._queue)
        self._queue.clear()
        self._queued = 0
        self._is_flush_due = False
        if self._is_watching:
            self._is_watching = False
            self._sink.unwatch()
        self._unclog()
        self._flush_followers()

    def _break(self, error: OSError) -> None:
        self._is_usable = False
        self._empty()
        if self._is_closing:
            self._finish()
        else:
            self._receiver.broke(error)

    # --- Closing ---

    async def close(self) -> None:
        """Write what is queued, then close. Cancelled, it aborts."""
        self._shut()
        self._flush()
        if not self._is_closed:
            if self._finished is None:
                self._finished = self._loop.create_future()
            try:
                await asyncio.shield(self._finished)
            except asyncio.CancelledError:
                self.abort()
                raise

    def abort(self) -> None:
        """Close at once; what is queued is lost."""
        self._shut()
        if not self._is_closed:
            self._empty()
            self._finish()

    def _shut(self) -> None:
        """From now on nothing is received, and nothing more is queued."""
        if not self._is_closing:
            self._is_closing = self._needs_care = True
            self._is_usable = self._is_flowing = False
            self._source.close()
            self._unclog()

    def _finish(self) -> None:
        self._is_closed = True
        self._sink.close()
        if self._finished is not None:
            self._finished.set_result(None)
