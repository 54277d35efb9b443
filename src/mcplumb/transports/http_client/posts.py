"""What is to be posted: one message or one batch, and which answers it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from mcplumb.transports.http_client.bodies import Body
from mcplumb.wire.decoding import BadMessage, Batch
from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, RequestId, Result

__all__ = ["Binding", "Lane", "Post", "Spawn"]

#: Requests, requests that stay open, and what gets no answer: they do not wait for each other.
Lane: TypeAlias = Literal["calls", "listens", "notes"]

#: Runs something beside the posts of a connection, for as long as that lasts. What it may raise is what an exchange
#: may, of what concerns the whole connection: `ConnectError` and `Closed`.
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

#: The request whose response is a stream that stays open.
_LISTEN = "subscriptions/listen"


class Binding(Protocol):
    """One way to speak to a server over HTTP."""

    async def exchange(self, post: Post) -> None:
        """Post this, and pass on what comes in answer to it.

        What is raised is told to those requests in it that still wait: `ConnectError` if the server cannot be
        reached, `Closed` if it has ended the session (its cause is what the server said to this post), and any other
        for what became of this post alone. If nothing is raised, the response has ended without their answers.
        Cancelled, it gives up the response.
        """

    async def leave(self) -> None:
        """Say goodbye to the server. Bounded; what goes wrong does no harm."""


class Post:
    """One message or one batch, on its way through one binding."""

    __slots__ = (
        "binding", "body", "cancels", "first", "ids", "is_accepted", "lane", "method", "on_refusal", "on_result",
        "size", "task", "waiting",
    )  # fmt: skip

    def __init__(self, messages: Sequence[Message], data: bytes, binding: Binding) -> None:
        self.binding = binding
        self.body = Body(data)
        self.size = len(data)
        #: The message, or the first one of the batch.
        self.first = messages[0]
        #: What it asks or tells; empty for an answer.
        self.method = self.first.method if isinstance(self.first, Request | Notification) else ""
        #: The requests in it, and those of them that have no answer yet.
        self.ids: tuple[RequestId, ...] = tuple(each.id for each in messages if isinstance(each, Request))
        self.waiting = set(self.ids)
        self.lane: Lane = "notes" if not self.ids else "listens" if self.method == _LISTEN else "calls"
        #: What this gives up, if it is a notice of that.
        self.cancels: Post | None = None
        #: Is called with the result before anybody else sees it.
        self.on_result: Callable[[Result], None] | None = None
        #: The same with an error that it was refused with. What this raises takes its place.
        self.on_refusal: Callable[[ErrorDetail], None] | None = None
        #: Whether the server has begun with it: then it may have been done, although there is no answer.
        self.is_accepted = False
        #: Carries it, once its turn has come.
        self.task: asyncio.Task[None] | None = None

    @property
    def is_initialize(self) -> bool:
        """Whether it opens a session."""
        return self.method == "initialize"

    @property
    def is_initialized(self) -> bool:
        """Whether it says that the session is open: what is sent after it must not overtake it."""
        return self.method == "notifications/initialized"

    def give_up(self) -> None:
        """Stop carrying it, if that has begun."""
        if self.task is not None:
            self.task.cancel()

    def settle(self, item: Message | BadMessage | Batch) -> None:
        """This came: strike out the requests that it answers."""
        if isinstance(item, Batch):
            for each in item.items:
                self.settle(each)
        elif isinstance(item, Result):
            if item.id in self.waiting and self.on_result is not None:
                self.on_result(item)
            self.waiting.discard(item.id)
        elif isinstance(item, Error) or (isinstance(item, BadMessage) and item.is_response):
            self.waiting -= {item.id}
