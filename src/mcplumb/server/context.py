"""What a handler can do and know besides its arguments."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, overload

import msgspec

from mcplumb.errors import RequestCancelled, ToolError, UsageError
from mcplumb.revisions import Revision
from mcplumb.types.base import Implementation, Number
from mcplumb.types.client_features import (
    CreateMessageParams,
    CreateMessageRequest,
    CreateMessageResult,
    ElicitParams,
    ElicitRequest,
    ElicitResult,
    ListRootsRequest,
    ListRootsResult,
    ModelPreferences,
    Root,
    SamplingMessage,
    ToolChoice,
)
from mcplumb.types.content import SamplingContent, TextContent
from mcplumb.types.lifecycle import ClientCapabilities
from mcplumb.types.notifications import LOGGING_LEVELS, LoggingLevel
from mcplumb.types.tools import Tool
from mcplumb.wire.messages import RequestId

if TYPE_CHECKING:
    from mcplumb.server.dispatch.call import Call
    from mcplumb.types.client_features import InputRequest

__all__ = ["Answer", "Context", "Roots", "Sampled", "Told"]

T = TypeVar("T")

_NUMBERS = (int, float)


class Answer(Generic[T]):
    """What the user did: ``accept`` (then ``data`` is what was filled in), ``decline`` or ``cancel``."""

    __slots__ = ("action", "data")

    def __init__(self, action: Literal["accept", "decline", "cancel"], data: T | None) -> None:
        self.action = action
        self.data = data

    def __repr__(self) -> str:
        return f"Answer(action={self.action!r}, data={self.data!r})"

    def __await__(self) -> Generator[Any, Any, Answer[T]]:
        return _at_once(self)


class Sampled(CreateMessageResult, frozen=True, kw_only=True):
    """The message that the client's model gave."""

    @property
    def text(self) -> str:
        """All text in it."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextContent))

    def __await__(self) -> Generator[Any, Any, Sampled]:
        return _at_once(self)


class Roots(list[Root]):
    """The client's roots."""

    def __await__(self) -> Generator[Any, Any, Roots]:
        return _at_once(self)


class Told:
    """What ``progress`` and ``log`` return: awaiting it waits until the client has caught up."""

    __slots__ = ("_rest",)

    def __init__(self, rest: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        self._rest = rest

    def __await__(self) -> Generator[Any, Any, None]:
        rest, self._rest = self._rest, None
        if rest is not None:
            yield from rest().__await__()


_TOLD = Told()


def _at_once(value: T) -> Generator[Any, Any, T]:
    """What awaiting a value gives that is there already."""
    yield from ()
    return value


class Context:
    """The request that a handler works on.

    A handler gets one by having a parameter annotated with this class. Async functions await what waits; plain
    functions, which run in a thread, call the same names and block. It may be passed on to other threads and tasks,
    and used until the request has ended; after that, or once it is cancelled, nothing is sent any more.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call
        call.outcomes = set()

    @property
    def request_id(self) -> RequestId:
        """The id of the request."""
        return self._call.id

    @property
    def revision(self) -> Revision:
        """The protocol revision that the request is served under."""
        return self._call.admitted.revision

    @property
    def meta(self) -> dict[str, Any]:
        """The request's ``_meta``, as it came: a copy."""
        # All the way down: what it is made from serves other requests, too.
        copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self._call.admitted.meta.raw))
        return copy

    @property
    def client_info(self) -> Implementation | None:
        """Who asks, as far as the client says."""
        return self._call.admitted.client_info

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """What the client can do for this request."""
        return self._call.admitted.capabilities

    @property
    def principal(self) -> str | None:
        """Who the client has proved to be, with a bearer token; None if it has proved nothing."""
        return self._call.session.principal

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the answer any more. A plain function that works for long should look at it."""
        return self._call.is_cancelled

    @property
    def lifespan(self) -> Any:
        """What the server's ``lifespan`` gave when the server started; None if it has none."""
        return self._call.session.shared.lifespan

    def progress(self, progress: Number, total: Number | None = None, message: str | None = None) -> Told:
        """Tell the client how far the request is. The numbers should grow; floods are thinned out.

        Nothing happens if the client did not ask for progress.
        """
        if type(progress) not in _NUMBERS or (total is not None and type(total) not in _NUMBERS):
            raise UsageError(f"Progress is told in numbers, and not as {progress!r} of {total!r}.")
        if self._call.admitted.progress_token is None:
            return _TOLD
        return self._tell(lambda: self._call.progress(progress, total, message and str(message)), can_wait=True)

    def log(self, level: LoggingLevel, data: Any, *, logger: str | None = None) -> Told:
        """Send the client a log message: a text, or any JSON value.

        Nothing happens if the client does not want messages of this level. In an async function, a message to a
        client that does not keep up is sent by awaiting what this returns, and otherwise dropped.
        """
        if level not in LOGGING_LEVELS:
            raise UsageError(f"There is no log level {level!r}. The levels are {', '.join(LOGGING_LEVELS)}.")
        if not self._call.wants_log(level):
            return _TOLD
        return self._tell(lambda: self._call.log(level, data, logger and str(logger)), can_wait=False)

    def debug(self, data: Any, *, logger: str | None = None) -> Told:
        """``log`` at the level *debug*."""
        return self.log("debug", data, logger=logger)

    def info(self, data: Any, *, logger: str | None = None) -> Told:
        """``log`` at the level *info*."""
        return self.log("info", data, logger=logger)

    def notice(self, data: Any, *, logger: str | None = None) -> Told:
        """``log`` at the level *notice*."""
        return self.log("notice", data, logger=logger)

    def warning(self, data: Any, *, logger: str | None = None) -> Told:
        """``log`` at the level *warning*."""
        return self.log("warning", data, logger=logger)

    def error(self, data: Any, *, logger: str | None = None) -> Told:
        """``log`` at the level *error*."""
        return self.log("error", data, logger=logger)

    @overload
    def elicit(self, message: str, form: type[T], *, key: str | None = None) -> Answer[T]: ...
    @overload
    def elicit(self, message: str, form: dict[str, Any], *, key: str | None = None) -> Answer[dict[str, Any]]: ...
    def elicit(self, message: str, form: Any, *, key: str | None = None) -> Any:
        """Ask the client's user with a form: a dataclass, Struct, TypedDict, pydantic model, or a raw schema.

        On a modern client the call ends here, and the function is run again, from its start, once there is an answer.
        It sees the question under its ``key``: a name that no other question of the call has or, if there is none, the
        number of the question. Under a name, an answer is also taken from a client that was not asked yet.
        """
        from mcplumb.server.schema.elicitation_form import form_schema

        request = ElicitRequest(ElicitParams.for_form(message, form_schema(form)))
        return self._wait(self._elicited(request, form, key))

    def elicit_url(self, message: str, url: str, *, key: str | None = None) -> Answer[None]:
        """Send the client's user to a web page. ``accept`` means that the user agreed to go, not that all is done."""
        request = ElicitRequest(ElicitParams.for_url(message, url))
        return cast("Answer[None]", self._wait(self._elicited(request, None, key)))

    def sample(
        self,
        messages: str | Sequence[str | SamplingContent | SamplingMessage],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        model_preferences: ModelPreferences | None = None,
        temperature: float | None = None,
        stop_sequences: list[str] | None = None,
        include_context: Literal["none", "thisServer", "allServers"] | None = None,
        metadata: dict[str, Any] | None = None,
        tools: list[Tool] | None = None,
        tool_choice: ToolChoice | None = None,
        key: str | None = None,
    ) -> Sampled:
        """Ask the client's model. Texts and content blocks are the user's messages."""
        params = CreateMessageParams(
            messages=[_message(each) for each in ([messages] if isinstance(messages, str) else messages)],
            max_tokens=max_tokens,
            system_prompt=system_prompt,
            model_preferences=model_preferences,
            temperature=temperature,
            stop_sequences=stop_sequences,
            include_context=include_context,
            metadata=metadata,
            tools=tools,
            tool_choice=tool_choice,
        )
        return cast("Sampled", self._wait(self._sampled(CreateMessageRequest(params), key)))

    def roots(self, *, key: str | None = None) -> Roots:
        """The folders and files that the client lets this server work in."""
        return cast("Roots", self._wait(self._rooted(key)))

    def release_stream(self, retry: float = 1.0) -> Told:
        """Let go of the HTTP response that this request came with, while the work goes on.

        A client whose protocol revision has that comes back for the rest after ``retry`` seconds, so that no connection
        is held for work that takes long. Nothing happens on other clients and transports.
        """
        if not 0 <= retry < float("inf"):
            raise UsageError(f"A client cannot come back after {retry!r} seconds: give a number of at least 0.")
        if self._call.is_own_thread():
            self._call.release_stream(retry)
        else:
            with suppress(RequestCancelled):
                self._call.wait_in_thread(self._released(retry))
        return _TOLD

    async def _released(self, retry: float) -> None:
        self._call.release_stream(retry)

    async def _elicited(self, request: ElicitRequest, form: Any, key: str | None) -> Answer[Any]:
        result = await self._ask(request, ElicitResult, key)
        if form is None or result.action != "accept":
            return Answer(result.action, None)
        from mcplumb.server.schema.codec import BadValue
        from mcplumb.server.schema.elicitation_form import read_form

        try:
            return Answer(result.action, read_form(form, result.content or {}))
        except BadValue as error:
            raise ToolError(
                f"The client's answer does not fit the form that it was asked to fill in: {error}"
            ) from error

    async def _sampled(self, request: CreateMessageRequest, key: str | None) -> Sampled:
        return await self._ask(request, Sampled, key)

    async def _rooted(self, key: str | None) -> Roots:
        return Roots((await self._ask(ListRootsRequest(), ListRootsResult, key)).roots)

    async def _ask(self, request: InputRequest, as_type: type[T], key: str | None) -> T:
        from mcplumb.server.dispatch.client_input import ask  # it loads asyncio

        return await ask(self._call, request, as_type, key)

    def _tell(self, tell: Callable[[], None], *, can_wait: bool) -> Told:
        """Tell it now, or when the client keeps up; ``can_wait`` is what the call itself holds back until then."""
        session = self._call.session

        async def tell_in_turn() -> None:
            await session.connection.drained()
            tell()

        if not self._call.is_own_thread():
            with suppress(RequestCancelled):
                self._call.wait_in_thread(tell_in_turn())
            return _TOLD
        if not session.connection.is_clogged:
            tell()
            return _TOLD
        if can_wait:
            tell()
            return Told(session.connection.drained)
        return Told(tell_in_turn)

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """The coroutine itself for those who can await it; for other threads, what it gives."""
        return coroutine if self._call.is_own_thread() else self._call.wait_in_thread(coroutine)


def _message(given: str | SamplingContent | SamplingMessage) -> SamplingMessage:
    if isinstance(given, SamplingMessage):
        return given
    return SamplingMessage("user", TextContent(given) if isinstance(given, str) else given)
