"""Calls of modern clients on legacy servers: a server's question ends the client's request, and the call is parked.

A legacy server asks while it works on a call, and waits. A modern client gets the question as the result of its
request, with a sealed state, and sends the request again with the answer and that state. Meanwhile the call goes on at
the server. It is parked here: for a limited time, in a limited number, and for its own client only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from mcplumb.errors import Closed, RequestError, UsageError
from mcplumb.protocol.sealed_request_state import Sealer
from mcplumb.protocol.translation import answer_for_server, question_for_client
from mcplumb.revisions import Revision
from mcplumb.server.dispatch.running_call import Call
from mcplumb.types.base import INPUT_REQUIRED, Number
from mcplumb.wire.messages import INTERNAL_ERROR, INVALID_PARAMS

if TYPE_CHECKING:
    from mcplumb.bridge.server_instance import ServerInstance

__all__ = ["ParkedCalls", "PendingCall"]

#: Seconds after which a question is also asked with another call of the client that waits. A legacy server does not say
#: which call a question belongs to, and a modern client does not say when it has given up a call that asked it.
_ASK_AGAIN_AFTER = 30.0

_GONE = "This call is not waiting for an answer any more: it was answered already, or has ended. Send it again anew."


class _Question(msgspec.Struct, frozen=True, eq=False):
    method: str
    #: As the client's revision has them.
    params: Any
    back: Revision
    answer: asyncio.Future[Any]


class PendingCall:
    """One call under way at a legacy server, over all the requests in which its client makes it."""

    def __init__(
        self, front: Revision, instance: ServerInstance, on_done: Callable[[PendingCall, Call | None], None]
    ) -> None:
        #: The server that works on the call.
        self.instance = instance
        #: The request of the client that waits for the call; None while it is parked.
        self.call: Call | None = None
        self._last_call: Call | None = None
        self._front = front
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[msgspec.Raw]
        self._on_done = on_done
        self._questions: dict[str, _Question] = {}
        self._asked = 0
        self._news: asyncio.Future[None] | None = None
        self._again: asyncio.TimerHandle | None = None

    def start(self, sending: Coroutine[Any, Any, msgspec.Raw]) -> None:
        """Send the call to the server."""
        self._task = self._loop.create_task(sending)
        self._task.add_done_callback(self._ended)

    @property
    def is_waiting(self) -> bool:
        """Whether a request of the client is open, so that it can be asked."""
        return self.call is not None

    @property
    def questions(self) -> dict[str, dict[str, Any]]:
        """The unanswered questions, in the client's form."""
        # Params may be left out, but some clients cannot read a question without them.
        return {
            key: {"method": question.method, "params": {} if question.params is UNSET else question.params}
            for key, question in self._questions.items()
            if not question.answer.done()
        }

    async def ask(self, method: str, params: Any, back: Revision) -> Any:
        """Ask the client, and return its answer as the server's revision has it."""
        translated = question_for_client(params, method, self._front, new_id=token_hex(8))
        answer: asyncio.Future[Any] = self._loop.create_future()
        # If the server takes its question back, the future is cancelled: the question is not open any more.
        self.take_over(_Question(method, translated, back, answer))
        return await answer

    def take_over(self, question: _Question) -> None:
        """Ask the client a question of the server."""
        self._asked += 1
        key = f"question-{self._asked}"
        self._questions[key] = question
        question.answer.add_done_callback(lambda _: self._questions.pop(key, None))
        self._tell()

    def answer(self, responses: Mapping[str, Any]) -> None:
        """Pass on the client's answers. Those to unknown questions are ignored."""
        for key, response in responses.items():
            question = self._questions.get(key)
            if question is not None and not question.answer.done():
                try:
                    question.answer.set_result(answer_for_server(response, question.method, question.back))
                except UsageError as error:
                    question.answer.set_exception(error)

    async def wait(self, call: Call) -> msgspec.Raw | None:
        """Wait for the result of the call and return it; None if the server asks a question first.

        If this is cancelled, the call is cancelled at the server.
        """
        self.call = self._last_call = call
        self._stop_asking_again()
        try:
            while not self._task.done():
                if self.questions:
                    self._again = self._loop.call_later(_ASK_AGAIN_AFTER, self._ask_again)
                    return None
                self._news = self._loop.create_future()
                await self._news
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self.call = None
        return self._task.result()

    def cancel(self) -> None:
        """End the call at the server, because its result is no longer wanted."""
        self._task.cancel()

    def progress(self, progress: Number, total: Number | None, message: str | None) -> None:
        """Report progress to the client, if it waits."""
        if self.call is not None:
            self.call.progress(progress, total, message)

    def _ask_again(self) -> None:
        """Let another call of the client ask the questions that it does not answer."""
        for question in self._questions.values():
            for other in self.instance.pending:
                if other.is_waiting and not question.answer.done() and question not in other._questions.values():
                    other.take_over(question)
                    break
        self._again = self._loop.call_later(_ASK_AGAIN_AFTER, self._ask_again)

    def _stop_asking_again(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _ended(self, task: asyncio.Task[msgspec.Raw]) -> None:
        if not task.cancelled():
            task.exception()  # `wait` raises it, unless the call is parked
        self._stop_asking_again()
        self._on_done(self, self._last_call if task.cancelled() else None)
        others = sorted(self.instance.pending, key=lambda pending: not pending.is_waiting)
        for question in [each for each in self._questions.values() if not each.answer.done()]:
            # A legacy server does not say to which call of the client it belongs: it may be another one's. If it was
            # this one's, and this one was cancelled, the server takes it back.
            if any(question in other._questions.values() for other in others):
                continue
            if others:
                others[0].take_over(question)
            else:
                question.answer.set_exception(Closed("The call that the question belongs to has ended."))
        self._tell()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class ParkedCalls:
    """The calls that wait for the answers of their clients. They expire after ``ttl`` seconds.

    ``own_number`` returns the number of this replica, if there are several: it is part of the name of a call.
    """

    def __init__(self, *, max_calls: int, ttl: float, own_number: Callable[[], int | None] = lambda: None) -> None:
        self._own_number = own_number
        self._max_calls = max_calls
        self._ttl = ttl
        self._parked: dict[bytes, tuple[PendingCall, object, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, pending: PendingCall, call: Call, place: object) -> dict[str, Any]:
        """Return the result that asks the client, and keep the call. ``place`` is where the answer has to come from.

        Raises `RequestError`, and cancels the call, if too many are parked.
        """
        if len(self._parked) >= self._max_calls:
            pending.cancel()
            raise RequestError(
                INTERNAL_ERROR,
                f"The server asks for input, and {self._max_calls} calls wait for answers already. Try again later.",
            )
        shared = call.session.shared
        name = f"{self._own_number() or 0}.{token_hex(16)}".encode()
        state = shared.sealer.seal(
            name,
            method=call.method,
            params=call.request.params,
            principal=_identity(call),
            now=shared.now(),
        )
        timer = asyncio.get_running_loop().call_later(self._ttl, self._expire, name)
        self._parked[name] = pending, place, timer
        return {"resultType": INPUT_REQUIRED, "inputRequests": pending.questions, "requestState": state}

    def take(self, sealer: Sealer, state: str, call: Call, place: object) -> PendingCall:
        """Return the call that a client answers, which is then no longer parked.

        Raises `StateRefused` if the state does not verify, `RequestError` if the call does not wait any more.
        """
        name = _opened(sealer, state, call)
        pending, known_place, timer = self._parked.get(name, (None, None, None))
        if pending is None or timer is None or known_place is not place:
            raise RequestError(INVALID_PARAMS, _GONE)
        del self._parked[name]
        timer.cancel()
        return pending

    def owner_of(self, sealer: Sealer, state: str, call: Call) -> int | None:
        """Return the number of the replica that has the call, if it is another one.

        Raises `StateRefused` if the state does not verify.
        """
        number = int(_opened(sealer, state, call).partition(b".")[0])
        return number if number and number != self._own_number() else None

    def drop(self, place: object) -> None:
        """Cancel the calls whose client is gone."""
        for name, (_, known_place, _) in list(self._parked.items()):
            if known_place is place:
                self._expire(name)

    def close(self) -> None:
        """Cancel all calls."""
        for name in list(self._parked):
            self._expire(name)

    def _expire(self, name: bytes) -> None:
        pending, _, timer = self._parked.pop(name)
        timer.cancel()
        pending.cancel()


def _opened(sealer: Sealer, state: str, call: Call) -> bytes:
    """Return the name of the call in a request state."""
    return sealer.open(
        state,
        method=call.method,
        params=call.request.params,
        principal=_identity(call),
        now=call.session.shared.now(),
    )


def _identity(call: Call) -> str | None:
    return None if call.principal is None else call.principal.identity
