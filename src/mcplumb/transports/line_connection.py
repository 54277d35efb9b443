"""Newline-delimited JSON over any byte stream: the common part of connections over pipes, sockets and memory.

A `LineConnection` handles lines, messages, queues and closing. It reads bytes from a `Source` and writes them to a
`Sink`, which know the system.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from os import write, writev
from typing import Any, Literal, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.transports.connection import Backpressure, Receiver, Stats
from mcplumb.wire.lines import LineSplitter, LineTooLong
from mcplumb.wire.message_decoder import BadMessage, Batch, Expected, as_torn, decode_line, too_long
from mcplumb.wire.messages import Message, Request, RequestId, encode_batch, encode_line

__all__ = ["HIGH_WATER", "LineConnection", "Sink", "Source", "Trace"]

#: A connection with more queued bytes is clogged: enough to keep a large pipe full, and little for each of many.
HIGH_WATER = 1024 * 1024
#: The most pieces that one write may have (IOV_MAX; POSIX grants 16, and Linux, macOS and the BSDs 1024).
_MOST_PIECES = 1024
#: A line of this many bytes or more gets its newline in a separate piece.
_LARGE = 64 * 1024

_encode = msgspec.json.Encoder().encode
# As numbers: that is the fastest way to look for a byte.
_NEWLINE = ord("\n")
_RETURN = ord("\r")
_SPACE = ord(" ")
#: A chunk without a newline, as ``partition`` returns it.
_NO_LINE = (b"", b"", b"")

#: Called with each line, without its newline, as it is received or queued; of an over-long line, with the beginning.
Trace: TypeAlias = Callable[[Literal["in", "out"], bytes], None]


class Source(ABC):
    """Where bytes come from. It calls back from the event loop, only while not paused, and never within a call."""

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
        """Start. ``arrived`` is called with some bytes and returns how many lines they completed.

        ``ran_out`` is called once, as the last call: with None at the end, or with the error that prevents reading.
        ``hung_up`` is called at most once, while the source is paused, when the sender will send no more.
        """
        self._arrived = arrived
        self._ran_out = ran_out
        self._hung_up = hung_up
        self._begin()

    def _begin(self) -> None:
        """Start to deliver; the callbacks are set."""
        self.resume()

    @abstractmethod
    def pause(self) -> None:
        """Deliver nothing."""

    @abstractmethod
    def resume(self) -> None:
        """Deliver again, or report the end unless that has been done. Called from the loop only."""

    @abstractmethod
    def close(self) -> None:
        """Deliver nothing more, and release everything. Called once."""


class Sink(Protocol):
    """Where bytes go."""

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write some of the pieces, in order, and return the number of bytes; raise `OSError` if it never can again."""

    def watch(self, then: Callable[[], None]) -> None:
        """Call ``then``, from the loop, whenever more can be written."""

    def unwatch(self) -> None:
        """Stop calling."""

    def close(self) -> None:
        """Release everything. Called once, and not while it is watched."""


class _Delivery:
    """The delivery that is under way in an event loop: a chunk that was read, and all that follows from it at once."""

    __slots__ = ("__weakref__", "is_of_one", "writers")

    def __init__(self) -> None:
        #: The connections that have something to write when it ends; None while there is no delivery.
        self.writers: list[LineConnection] | None = None
        #: Whether a single message is being delivered.
        self.is_of_one = False


_deliveries: WeakKeyDictionary[asyncio.AbstractEventLoop, _Delivery] = WeakKeyDictionary()


class LineConnection(Backpressure):
    """A `Connection` over a source and a sink, which it owns. It is created in a running event loop.

    Messages sent before ``start`` are queued. What is sent while a connection of the loop delivers messages is written
    when it has delivered them all, in one write; what is sent at other times, in the next turn of the loop.
    """

    __slots__ = (
        "_alone_to",
        "_bad_lines",
        "_bytes_in",
        "_bytes_out",
        "_clean_end",
        "_delivery",
        "_expect",
        "_finished",
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
        # Counted here, because changing a field of a Struct takes ten times as long; per chunk, not per line.
        self._lines_in = self._lines_out = 0
        self._bytes_in = self._bytes_out = 0
        self._bad_lines = 0
        # Reading
        self._source = source
        self._splitter = LineSplitter(limits.max_line)
        self._max_batch = limits.max_batch
        self._expect: Expected = expect
        self._lines: Iterator[bytes | LineTooLong] = iter(())  # read, but not yet received
        self._clean_end: bool | None = None  # known, but not yet reported
        self._is_flowing = False
        # Writing
        self._sink = sink
        #: The descriptor, if the sink is a pipe: it is written to without going through the sink.
        self._pipe: int | None = getattr(sink, "pipe", None)
        #: The same, as long as `send_alone` may write to it.
        self._alone_to = self._pipe if trace is None else None
        self._queue: list[bytes | memoryview] = []
        self._queued = 0
        self._is_flush_due = True  # by `start`
        self._is_watching = False
        #: Whether a flush has more to do than to write: the sink is watched, or the connection is clogged or closing.
        self._needs_care = False
        self._delivery = _deliveries.get(self._loop) or _deliveries.setdefault(self._loop, _Delivery())
        # Closing
        self._is_usable = True
        self._is_closing = False
        self._is_closed = False
        self._finished: asyncio.Future[None] | None = None

    def start(self, receiver: Receiver) -> None:
        """Start reading."""
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
        """The counters of the connection."""
        messages_in, messages_out = self._lines_in - self._bad_lines, self._lines_out + len(self._queue)
        return Stats(messages_in, messages_out, self._bytes_in, self._bytes_out, self._bad_lines)

    # --- Reading ---

    def pause(self) -> None:
        """Stop reading. Lines that were read already are kept."""
        if self._is_flowing:
            self._is_flowing = False
            self._source.pause()

    def resume(self) -> None:
        """Resume reading, in the next iteration of the loop."""
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
        """Deliver the messages that a chunk completes, until reading is paused; then write what was sent meanwhile.

        Returns how many lines the chunk completed. Without a chunk, the lines that were read before are delivered.
        """
        delivery = self._delivery
        writers: list[LineConnection] = []
        if delivery.writers is None:
            delivery.writers = writers
        count = 1
        try:
            size = len(chunk)
            self._bytes_in += size
            splitter = self._splitter
            # ``find`` and ``endswith`` parse their arguments, which takes longer than their search.
            line, newline, rest = chunk.partition(b"\n") if size <= splitter.longest_whole else _NO_LINE
            if newline and not rest and line and line[-1] > _SPACE and self._trace is None:
                # One whole line with nothing to strip: the usual result of a read while one message is awaited.
                self._lines_in += 1
                item = decode_line(line, True, self._max_batch, self._expect)
                if type(item) is BadMessage:
                    self._bad_lines += 1
                delivery.is_of_one = True
                self._received(item)
            else:
                if chunk:
                    lines = splitter.feed(chunk)
                    count = len(lines)
                    self._lines_in += count
                    self._lines = iter(lines)
                self._pass_on()
        except BaseException:
            # A receiver should not raise; if it does, the messages after that one are not lost.
            self._loop.call_soon(self._go_on)
            raise
        finally:
            delivery.is_of_one = False
            if delivery.writers is writers:
                delivery.writers = None
                if writers:
                    try:
                        for each in writers:
                            each._flush()
                    except BaseException:
                        # The others have been promised this flush; it does no harm to those that have had it.
                        for each in writers:
                            self._loop.call_soon(each._flush)
                        raise
        return count

    def _pass_on(self) -> None:
        """Decode lines and pass the messages to the receiver until reading is paused; then report the end, if any."""
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
        """Queue one message. ``about`` is ignored, because there is only one stream."""
        # Every message takes this path, so the common case calls no other function of the package.
        if self._is_usable:
            try:
                line = _encode(message)
                if _NEWLINE in line or _RETURN in line:
                    line = encode_line(message)
            except Exception:  # noqa: BLE001 - encode_line explains it
                line = encode_line(message)
            if self._trace is not None:
                self._trace("out", line)
                if self._is_closing:  # the trace has closed the connection
                    return
            size = len(line) + 1
            if size < _LARGE:
                self._queue.append(line + b"\n")
            else:
                # Not copied to add one byte. Pieces in the queue are counted as lines; these two are one line.
                self._queue += (line, b"\n")
                self._lines_out -= 1
            size += self._queued
            self._queued = size
            if size > HIGH_WATER:
                self.is_clogged = self._needs_care = True
            if not self._is_flush_due:
                self._is_flush_due = True
                writers = self._delivery.writers
                if writers is None:
                    self._loop.call_soon(self._flush)
                else:
                    writers.append(self)

    def send_alone(self, message: Message) -> None:
        """Send a message that was made of the one being delivered, and that nothing follows: in a bridge.

        It is written at once, where the delivery is of no other message that may lead to more, and nothing is queued.
        """
        pipe = self._alone_to
        if pipe is None or self._is_flush_due or not self._delivery.is_of_one:
            self.send(message)
            return
        line = _encode(message)
        size = len(line) + 1
        if size > _LARGE or _NEWLINE in line or _RETURN in line:
            self.send(message)
            return
        line += b"\n"
        try:
            written = write(pipe, line)
        except OSError:
            written = 0  # the flush meets it again
        self._bytes_out += written
        if written == size:
            self._lines_out += 1
        else:
            self._queue.append(memoryview(line)[written:])
            self._queued = size - written
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def send_batch(self, messages: Sequence[Message]) -> None:
        """Queue several messages as one line."""
        if self._is_usable:
            self.send(msgspec.Raw(encode_batch(messages)))

    def _flush(self) -> None:
        """Write as much of the queue as the sink accepts."""
        queue = self._queue
        if queue:
            pieces = len(queue)
            pipe = self._pipe
            try:
                if pipe is None or pieces > _MOST_PIECES:
                    written = self._sink.write(queue)
                elif pieces == 1:
                    written = write(pipe, queue[0])
                else:
                    written = writev(pipe, queue)
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
                return
            self._lines_out += pieces
            queue.clear()
            self._queued = 0
        self._is_flush_due = False
        if self._needs_care:
            self._after_flush()

    def _after_flush(self) -> None:
        """Undo the measures for a full queue, and complete a close that is due."""
        self._needs_care = self._is_closing
        if self._is_watching or self.is_clogged:
            self._empty()
        if self._is_closing and not self._is_closed:
            self._finish()

    def _cut(self, written: int) -> None:
        """Remove the bytes written by a partial write from the queue."""
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

    def _break(self, error: OSError) -> None:
        self._is_usable = False
        self._alone_to = None
        self._empty()
        if self._is_closing:
            self._finish()
        else:
            self._receiver.broke(error)

    # --- Closing ---

    async def close(self) -> None:
        """Write the queue, then close. If cancelled, it aborts."""
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
        """Close at once and drop the queue."""
        self._shut()
        if not self._is_closed:
            self._empty()
            self._finish()

    def _shut(self) -> None:
        """Stop receiving and queueing."""
        if not self._is_closing:
            self._is_closing = self._needs_care = True
            self._is_usable = self._is_flowing = False
            self._alone_to = None
            self._source.close()
            self._unclog()

    def _finish(self) -> None:
        self._is_closed = True
        self._sink.close()
        if self._finished is not None:
            self._finished.set_result(None)
