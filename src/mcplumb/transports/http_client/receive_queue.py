"""What comes in over all the responses of one server, on its way to the connection's receiver."""

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
    """Decodes, counts and passes on, in order. After ``shut`` it passes nothing on any more.

    The receiver is called by the loop, and not by the task that read something: there, whoever waits for an answer
    could not be woken at once.
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
        """From now on there is somebody to pass things on to."""
        self._receiver = receiver

    def shut(self) -> None:
        """There is nobody any more."""
        self._receiver = None
        self._flowing.set()

    def pause(self) -> None:
        """Let nobody through ``flow``."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let them through again."""
        self._flowing.set()

    async def flow(self) -> None:
        """Wait while messages are not wanted. Whoever takes some asks here before."""
        if not self._flowing.is_set():
            await self._flowing.wait()

    def take(self, data: bytes, post: Post | None = None) -> Message | BadMessage | Batch:
        """One message came, in answer to this post if that is known. Returns what it is."""
        if self.trace is not None:
            self.trace("in", data)
        self.stats.bytes_in += len(data)
        item = decode_line(data, True, self.limits.max_batch, Result)
        self._pass_on(item, post)
        return item

    def refuse(self, data: bytes, post: Post, codes: Container[int] | None = None) -> bool:
        """The post was refused, with these bytes. Whether they are a JSON-RPC error, and have been passed on.

        If there are ``codes``, only an error with one of them is. Some servers leave out the id, or have a word of
        their own there: it is about what was posted all the same.
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

    def pass_over(self, event: EventTooLong) -> None:
        """An event came that is too long to be kept."""
        if self.trace is not None:
            self.trace("in", event.head)
        self._pass_on(too_long(event), None)

    def fail(self, request_id: RequestId, error: McplumbError) -> None:
        """This request gets no answer."""
        self._tell(lambda receiver: receiver.failed(request_id, error))

    def break_off(self, error: OSError) -> None:
        """Nothing can be sent any more."""
        if not self._has_broken:
            self._has_broken = True
            self._tell(lambda receiver: receiver.broke(error))

    def end(self, *, clean: bool) -> None:
        """Nothing more will come."""
        if not self._has_ended:
            self._has_ended = True
            self._tell(lambda receiver: receiver.ended(clean=clean))

    def _pass_on(self, item: Message | BadMessage | Batch, post: Post | None) -> None:
        if isinstance(item, BadMessage):
            self.stats.bad_lines += 1
        else:
            self.stats.messages_in += 1
        if post is not None:
            post.settle(item)
        self._tell(lambda receiver: receiver.received(item))

    def _tell(self, what: Callable[[Receiver], None]) -> None:
        self._loop.call_soon(self._tell_now, what)

    def _tell_now(self, what: Callable[[Receiver], None]) -> None:
        if self._receiver is not None:
            what(self._receiver)
