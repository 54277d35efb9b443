"""The inbox of an HTTP connection: decodes the messages of all responses and passes them to the receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container

from mcplumb.errors import McplumbError
from mcplumb.limits import Limits
from mcplumb.transports.connection import Receiver, Stats
from mcplumb.transports.http_client.post_queue import Post
from mcplumb.transports.line_connection import Trace
from mcplumb.wire.message_decoder import BadMessage, Batch, decode_line, too_long
from mcplumb.wire.messages import Error, Message, RequestId, Result
from mcplumb.wire.server_sent_events import EventTooLong

__all__ = ["Inbox"]


class Inbox:
    """Decodes and counts messages and passes them to the receiver in order, until ``shut``.

    The receiver is called from the loop, not from the task that has read a message: only there can it resume a waiting
    task at once.
    """

    def __init__(self, limits: Limits, trace: Trace | None) -> None:
        self._loop = asyncio.get_running_loop()
        self.limits = limits
        self.stats = Stats()
        self.trace = trace
        self._receiver: Receiver | None = None
        self._has_broken = self._has_ended = False
        self._flowing = asyncio.Event()
        self._flowing.set()

    def open(self, receiver: Receiver) -> None:
        """Pass messages to this receiver from now on."""
        self._receiver = receiver

    def shut(self) -> None:
        """Drop messages from now on."""
        self._receiver = None
        self._flowing.set()

    def pause(self) -> None:
        """Make ``wait_until_resumed`` wait."""
        self._flowing.clear()

    def resume(self) -> None:
        """Make ``wait_until_resumed`` return at once."""
        self._flowing.set()

    async def wait_until_resumed(self) -> None:
        """Wait while the connection is paused. To be awaited before each ``take``."""
        if not self._flowing.is_set():
            await self._flowing.wait()

    def take(self, data: bytes, post: Post | None = None) -> Message | BadMessage | Batch:
        """Decode one message and pass it on; ``post`` is what it answers, if known. Return the message."""
        if self.trace is not None:
            self.trace("in", data)
        self.stats.bytes_in += len(data)
        item = decode_line(data, True, self.limits.max_batch, Result)
        self._pass_on(item, post)
        return item

    def refuse(self, data: bytes, post: Post, codes: Container[int] | None = None) -> bool:
        """Pass on the JSON-RPC error in the body of an HTTP error response. Return False if the body is none.

        With ``codes``, only these error codes count. The error is passed on for all requests of the post that wait,
        whatever its id: some servers omit it or send a placeholder.
        """
        item = decode_line(data, True, self.limits.max_batch, Result)
        if not isinstance(item, Error) or (codes is not None and item.error.code not in codes):
            return False
        if self.trace is not None:
            self.trace("in", data)
        self.stats.bytes_in += len(data)
        if post.on_refusal is not None:
            post.on_refusal(item.error)
        for request_id in list(post.waiting):
            self._pass_on(Error(request_id, item.error), post)
        return True

    def report_too_long(self, event: EventTooLong) -> None:
        """Report an event that is too long."""
        if self.trace is not None:
            self.trace("in", event.head)
        self._pass_on(too_long(event), None)

    def fail(self, request_id: RequestId, error: McplumbError) -> None:
        """Report that a request gets no answer."""
        self._call_soon(lambda receiver: receiver.failed(request_id, error))

    def break_off(self, error: OSError) -> None:
        """Report, once, that nothing more can be sent."""
        if not self._has_broken:
            self._has_broken = True
            self._call_soon(lambda receiver: receiver.broke(error))

    def end(self, *, clean: bool) -> None:
        """Report, once, that nothing more will be received."""
        if not self._has_ended:
            self._has_ended = True
            self._call_soon(lambda receiver: receiver.ended(clean=clean))

    def _pass_on(self, item: Message | BadMessage | Batch, post: Post | None) -> None:
        if isinstance(item, BadMessage):
            self.stats.bad_lines += 1
        else:
            self.stats.messages_in += 1
        if post is not None:
            post.settle(item)
        self._call_soon(lambda receiver: receiver.received(item))

    def _call_soon(self, call: Callable[[Receiver], None]) -> None:
        self._loop.call_soon(self._call, call)

    def _call(self, call: Callable[[Receiver], None]) -> None:
        if self._receiver is not None:
            call(self._receiver)
