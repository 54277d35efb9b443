"""The user's callbacks: handlers of server requests, progress, logs and changes."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from mcplumb.errors import ProtocolError, UsageError
from mcplumb.protocol.in_flight import ProgressMeter
from mcplumb.revisions import Revision
from mcplumb.types.base import Number
from mcplumb.types.client_features import (
    CreateMessageParams,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitParams,
    ElicitRequest,
    ElicitResult,
    InputRequest,
    InputResponse,
    ListRootsRequest,
    ListRootsResult,
    Root,
)
from mcplumb.types.content import TextContent
from mcplumb.types.lifecycle import ClientCapabilities, ElicitationCapability, RootsCapability, SamplingCapability
from mcplumb.types.notification_params import ProgressParams
from mcplumb.types.revision_adapter import for_revision

__all__ = [
    "Courier",
    "Elicitation",
    "Inputs",
    "OnElicit",
    "OnProgress",
    "OnSample",
    "ProgressCourier",
    "RootLike",
    "Roots",
]

_logger = logging.getLogger("mcplumb.client")


# Bringing news to a user's function, which may be plain or async, slow or broken, without ever waiting for it.


#: Called with the progress, the total and a message; the latter two are None where the server does not say.
OnProgress: TypeAlias = Callable[[Number, Number | None, str | None], Awaitable[None] | None]

#: News that wait for an async function. A slower one than that does not get to see all of them.
_MAX_BACKLOG = 1000


class Courier:
    """Calls one function for each piece of news, in order.

    A plain function is called at once. An async one runs in a task, one call after the other; when too many wait, the
    oldest is dropped and counted. What the function raises is logged, and harms nobody.
    """

    __slots__ = ("_backlog", "_context", "_function", "_task", "_what", "dropped")

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        self.dropped = 0
        self._function = function
        # That of whoever wants the news, and not of the task that happened to connect.
        self._context = copy_context()
        self._what = what
        self._backlog: deque[Awaitable[None]] = deque()
        self._task: asyncio.Task[None] | None = None

    def bring(self, *news: Any) -> None:
        """Call the function with this, now or as soon as it has taken what came before. Raises nothing."""
        try:
            waiting = self._context.run(self._function, *news)
        except Exception:
            _logger.exception("The function %s raised an exception.", self._what)
            return
        if isawaitable(waiting):
            if len(self._backlog) >= _MAX_BACKLOG:
                self.dropped += 1
                _discard(self._backlog.popleft())
            self._backlog.append(waiting)
            if self._task is None or self._task.done():
                self._task = asyncio.get_running_loop().create_task(self._deliver(), context=self._context)

    async def finish(self, within: float | None) -> None:
        """Wait until everything is delivered, but no longer than this many seconds; then stop."""
        try:
            if self._task is not None:
                await asyncio.wait((self._task,), timeout=within)
        finally:
            self.stop()

    def stop(self) -> None:
        """Deliver nothing more. May be called again."""
        if self._task is not None:
            self._task.cancel()
        while self._backlog:
            _discard(self._backlog.popleft())

    async def _deliver(self) -> None:
        while self._backlog:
            try:
                await self._backlog.popleft()
            except Exception:
                _logger.exception("The function %s raised an exception.", self._what)


class ProgressCourier:
    """Brings the progress of one call. A flood of it is thinned out, without losing the last value."""

    __slots__ = ("_courier", "_loop", "_meter", "_turn")

    def __init__(self, function: OnProgress, loop: asyncio.AbstractEventLoop) -> None:
        self._courier = Courier(function, "on_progress")
        self._meter = ProgressMeter()
        self._loop = loop
        self._turn: asyncio.TimerHandle | None = None

    @property
    def dropped(self) -> int:
        """How many values the function was too slow for."""
        return self._courier.dropped

    def bring(self, progress: ProgressParams) -> None:
        """Report this progress, now or a little later."""
        self._report(self._meter.offer(progress, self._loop.time()))
        self._wait_for_turn()

    async def finish(self, within: float | None) -> None:
        """The call was answered: report the last value, and wait until all are delivered, as a courier does."""
        self._forget_turn()
        self._report(self._meter.last())
        await self._courier.finish(within)

    def stop(self) -> None:
        """The call failed: report nothing more."""
        self._forget_turn()
        self._courier.stop()

    def _report(self, progress: ProgressParams | None) -> None:
        if progress is not None:
            self._courier.bring(progress.progress, progress.total, progress.message)

    def _wait_for_turn(self) -> None:
        if self._turn is None and self._meter.deadline is not None:
            self._turn = self._loop.call_at(self._meter.deadline, self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        self._report(self._meter.due(self._loop.time()))
        self._wait_for_turn()

    def _forget_turn(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None


def _discard(waiting: Awaitable[None]) -> None:
    if iscoroutine(waiting):
        waiting.close()


# What a server may ask of its client: the user, a model, the roots. The same handlers serve both eras.


class Elicitation(msgspec.Struct, frozen=True):
    """A question to the user, as ``on_elicit`` gets it."""

    message: str
    #: ``form``: fill in ``schema``. ``url``: open ``url``, and say yes when the user agrees to go there.
    mode: str
    #: The JSON schema of the form.
    schema: dict[str, Any] | None
    url: str | None
    #: The request as it came.
    params: ElicitParams


_Answer: TypeAlias = dict[str, Any] | ElicitResult | None
#: Returns the form's content to accept, None to decline, or an ``ElicitResult`` to say it in full.
OnElicit: TypeAlias = Callable[[Elicitation], _Answer | Awaitable[_Answer]]
#: Returns the model's message, or just its text.
OnSample: TypeAlias = Callable[
    [CreateMessageParams], CreateMessageResult | str | Awaitable[CreateMessageResult] | Awaitable[str]
]
#: A folder: its path, its ``file://`` address, or the whole record.
RootLike: TypeAlias = str | os.PathLike[str] | Root
#: The folders that a server may work in, or a function that gives them.
Roots: TypeAlias = Iterable[RootLike] | Callable[[], Iterable[RootLike] | Awaitable[Iterable[RootLike]]]


class Inputs:
    """The handlers of one client. ``capabilities`` says which there are, and what else the client declares.

    A plain handler runs in a thread, so that it may take its time; an async one runs on the event loop.
    """

    def __init__(
        self,
        *,
        on_elicit: OnElicit | None = None,
        on_sample: OnSample | None = None,
        roots: Roots | None = None,
        capabilities: ClientCapabilities | None = None,
    ) -> None:
        declared = capabilities or ClientCapabilities()
        elicitation, sampling, folders = None, None, None
        self._handlers: dict[type[InputRequest], Callable[[Any], Awaitable[InputResponse]]] = {}
        if on_elicit is not None:
            self._handlers[ElicitRequest] = partial(_elicit, on_elicit)
            elicitation = declared.elicitation or ElicitationCapability(form={}, url={})
        if on_sample is not None:
            self._handlers[CreateMessageRequest] = partial(_sample, on_sample)
            sampling = declared.sampling or SamplingCapability()
        if roots is not None:
            self._handlers[ListRootsRequest] = partial(_list_roots, roots if callable(roots) else _as_roots(roots))
            folders = declared.roots or RootsCapability(list_changed=True)
        # What has no handler is not declared, whatever the caller says.
        self.capabilities = replace(declared, elicitation=elicitation, sampling=sampling, roots=folders)

    def can_answer(self, request: InputRequest) -> bool:
        """Whether there is a handler for this."""
        return type(request) in self._handlers

    async def answer(self, request: InputRequest, revision: Revision) -> InputResponse:
        """What the handler says to this, as the revision has it. What it raises goes through."""
        handler = self._handlers.get(type(request))
        if handler is None:
            method = request.__struct_config__.tag
            raise ProtocolError(f"The server asked for {method}, which this client does not say that it can do.")
        return for_revision(await handler(request.params), revision)


async def _elicit(handler: OnElicit, params: ElicitParams) -> ElicitResult:
    mode = params.mode or "form"
    answer = await _run(handler, Elicitation(params.message, mode, params.requested_schema, params.url, params))
    if isinstance(answer, ElicitResult):
        return answer
    if answer is None:
        return ElicitResult("decline")
    if isinstance(answer, dict):
        return ElicitResult("accept", answer if params.is_form else None)
    raise UsageError(
        f"on_elicit returned a {type(answer).__name__}: return the content as a dict, None to decline, or an "
        "ElicitResult."
    )


async def _sample(handler: OnSample, params: CreateMessageParams) -> CreateMessageResult:
    answer = await _run(handler, params)
    if isinstance(answer, CreateMessageResult):
        return answer
    if isinstance(answer, str):
        return CreateMessageResult("assistant", TextContent(answer), model="unknown")
    raise UsageError(
        f"on_sample returned a {type(answer).__name__}: return the model's text, or a CreateMessageResult."
    )


async def _list_roots(roots: list[Root] | Callable[[], Any], _: Any) -> ListRootsResult:
    return ListRootsResult(_as_roots(await _run(roots)) if callable(roots) else roots)


async def _run(handler: Callable[..., Any], *arguments: Any) -> Any:
    is_async = iscoroutinefunction(handler) or iscoroutinefunction(type(handler).__call__)
    answer = handler(*arguments) if is_async else await asyncio.to_thread(_called, handler, *arguments)
    # A plain function, such as a lambda, may also return what an async one gave it.
    return await answer if isawaitable(answer) else answer


def _as_roots(roots: Iterable[RootLike]) -> list[Root]:
    if isinstance(roots, str | os.PathLike | Root):
        raise UsageError("roots is a single folder: give a list of them, or a function that returns one.")
    return [_as_root(root) for root in roots]


def _as_root(root: RootLike) -> Root:
    if isinstance(root, Root):
        return root
    path = os.fspath(root)
    if "://" in path:
        return Root(path)
    from pathlib import Path  # most clients have no roots

    absolute = Path(path).absolute()
    return Root(absolute.as_uri(), name=absolute.name or None)


def _called(handler: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return handler(*arguments)
    except StopIteration as error:  # which no future can carry
        raise RuntimeError("The function raised StopIteration.") from error
