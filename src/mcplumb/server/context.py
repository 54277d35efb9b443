"""The context of a handler: facts about its request, progress and logs, and questions to the client."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, cast, overload

import msgspec

from mcplumb.errors import RequestCancelled, ToolError, UsageError
from mcplumb.revisions import Revision
from mcplumb.types.base import Implementation, Number
from mcplumb.types.content import TextContent
from mcplumb.types.lifecycle import ClientCapabilities
from mcplumb.types.notification_params import LOGGING_LEVELS, LoggingLevel
from mcplumb.types.resources import ReadResourceResult
from mcplumb.wire.messages import RequestId

# Only functions that ask the client for something load these.
if TYPE_CHECKING:
    from mcplumb.protocol.principal import Principal
    from mcplumb.server.dispatch.client_input import Roots, Sampled
    from mcplumb.server.dispatch.running_call import Call
    from mcplumb.types.client_features import (
        CreateMessageRequest,
        ElicitRequest,
        InputRequest,
        ModelPreferences,
        SamplingMessage,
        ToolChoice,
    )
    from mcplumb.types.content import SamplingContent
    from mcplumb.types.tools import Tool

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultedTypeVar

    #: The value of the server's lifespan. Without it, ``Context`` is ``Context[Any]``.
    _L = DefaultedTypeVar("_L", default=Any)
else:
    _L = TypeVar("_L")

__all__ = ["Accepted", "Answer", "Asked", "BlockingContext", "Context", "Declined", "Delivery"]

T = TypeVar("T")

#: What an async function has to await. A plain function gets the result itself: see `BlockingContext`.
Asked: TypeAlias = Coroutine[Any, Any, T]

_NUMBERS = (int, float)


class Accepted(Generic[T]):
    """The user's consent: ``data`` has the values of the form, and is None if the user was sent to a web page."""

    __slots__ = ("data",)
    __match_args__ = ("data",)

    action: Literal["accept"] = "accept"

    def __init__(self, data: T) -> None:
        self.data = data

    def __repr__(self) -> str:
        return f"Accepted(data={self.data!r})"

    def __await__(self) -> Generator[Any, Any, Accepted[T]]:
        return _resolved(self)


class Declined:
    """The user's refusal: ``action`` is ``decline``, or ``cancel`` if the user closed the form without a decision."""

    __slots__ = ("action",)
    __match_args__ = ("action",)

    # Type checkers tell the two answers apart by the declared values of `action`.
    action: Literal["decline", "cancel"]
    data: None = None

    def __init__(self, action: Literal["decline", "cancel"]) -> None:
        self.action = action

    def __repr__(self) -> str:
        return f"Declined(action={self.action!r})"

    def __await__(self) -> Generator[Any, Any, Declined]:
        return _resolved(self)


#: The answer to an elicitation. After ``answer.action == "accept"``, a type checker knows that ``data`` is there.
Answer: TypeAlias = Accepted[T] | Declined


class Delivery:
    """The return value of ``progress`` and ``log``: awaiting it waits until the client has caught up."""

    __slots__ = ("_rest",)

    def __init__(self, rest: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        self._rest = rest

    def __await__(self) -> Generator[Any, Any, None]:
        rest, self._rest = self._rest, None
        if rest is not None:
            yield from rest().__await__()


_DELIVERED = Delivery()


def _resolved(value: T) -> Generator[Any, Any, T]:
    """Implement ``__await__`` for a value that is available already."""
    yield from ()
    return value


class Context(Generic[_L]):
    """The context of the request that a handler is processing.

    A handler receives it through a parameter annotated with this class. ``Context[Db]`` says that ``lifespan`` is a
    ``Db``. Async handlers await its methods. Plain functions, which run in a thread, call the same methods, which then
    block: ``mcplumb.sync.Context`` is the same class with the types for them. A context may be passed to other threads
    and tasks, and used until the request has ended. After that, or once the request is cancelled, nothing is sent any
    more.
    """

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call
        call.waits = set()
        call.session.is_kept = True

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
        """A copy of the request's ``_meta``."""
        # A deep copy: the original is shared with other requests.
        copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self._call.admitted.meta.raw))
        return copy

    @property
    def client_info(self) -> Implementation | None:
        """The name and version of the client, if it sent them."""
        return self._call.admitted.client_info

    @property
    def client_capabilities(self) -> ClientCapabilities:
        """The client's capabilities for this request."""
        return self._call.admitted.capabilities

    @property
    def principal(self) -> Principal | None:
        """Who sent the request, as its access token says: subject, scopes and claims; None if not authenticated."""
        return self._call.principal

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The headers of the HTTP request, with names in lower case; None if the request did not come over HTTP.

        They are as trustworthy as the client and the proxies before it: only ``principal`` is authenticated. Over
        HTTP+SSE they are those of the client's stream.
        """
        return self._call.headers()

    @property
    def cancelled(self) -> bool:
        """Whether the request was cancelled, or the tool's timeout has passed.

        A plain function that runs for long should check it.
        """
        return self._call.is_cancelled

    @property
    def lifespan(self) -> _L:
        """The value of the server's ``lifespan``; None if the server has none."""
        value: _L = self._call.session.shared.lifespan
        return value

    def progress(self, progress: Number, total: Number | None = None, message: str | None = None) -> Delivery:
        """Report the progress of the request. The numbers should increase; frequent reports are throttled.

        Nothing is sent if the client did not ask for progress.
        """
        if type(progress) not in _NUMBERS or (total is not None and type(total) not in _NUMBERS):
            raise UsageError(f"Progress must be numbers, not {progress!r} of {total!r}.")
        if self._call.admitted.progress_token is None:
            return _DELIVERED
        return self._send(lambda: self._call.progress(progress, total, message and str(message)), is_throttled=True)

    def report_progress(self, progress: Number, total: Number | None = None, message: str | None = None) -> Delivery:
        """Do what ``progress`` does, under the name that it has in other libraries."""
        return self.progress(progress, total, message)

    def log(self, level: LoggingLevel, data: Any, *, logger: str | None = None) -> Delivery:
        """Send the client a log message: a text, or any JSON value.

        Nothing is sent if the client did not ask for messages of this level. In an async function, await the return
        value: otherwise the message is dropped if the client does not read fast enough.
        """
        if level not in LOGGING_LEVELS:
            raise UsageError(f"There is no log level {level!r}. The levels are {', '.join(LOGGING_LEVELS)}.")
        if not self._call.wants_log(level):
            return _DELIVERED
        return self._send(lambda: self._call.log(level, data, logger and str(logger)), is_throttled=False)

    def debug(self, data: Any, *, logger: str | None = None) -> Delivery:
        """Send a log message of the level *debug*; see ``log``."""
        return self.log("debug", data, logger=logger)

    def info(self, data: Any, *, logger: str | None = None) -> Delivery:
        """Send a log message of the level *info*; see ``log``."""
        return self.log("info", data, logger=logger)

    def notice(self, data: Any, *, logger: str | None = None) -> Delivery:
        """Send a log message of the level *notice*; see ``log``."""
        return self.log("notice", data, logger=logger)

    def warning(self, data: Any, *, logger: str | None = None) -> Delivery:
        """Send a log message of the level *warning*; see ``log``."""
        return self.log("warning", data, logger=logger)

    def error(self, data: Any, *, logger: str | None = None) -> Delivery:
        """Send a log message of the level *error*; see ``log``."""
        return self.log("error", data, logger=logger)

    @overload
    def elicit(self, message: str, form: type[T], *, key: str | None = None) -> Asked[Answer[T]]: ...
    @overload
    def elicit(
        self, message: str, form: dict[str, Any], *, key: str | None = None
    ) -> Asked[Answer[dict[str, Any]]]: ...
    def elicit(self, message: str, form: Any, *, key: str | None = None) -> Any:
        """Ask the client's user with a form: a dataclass, Struct, TypedDict, pydantic model, or a raw schema.

        With a modern client, the call ends here, and the function runs again from its start once there is an answer.
        ``key`` identifies the question within the call: a unique name or, by default, the number of the question. A
        client may answer a named question before it is asked.
        """
        from mcplumb.server.schema.elicitation_form import form_schema
        from mcplumb.types.client_features import ElicitParams, ElicitRequest

        request = ElicitRequest(ElicitParams.for_form(message, form_schema(form)))
        return self._wait(self._elicit(request, form, key))

    def elicit_url(self, message: str, url: str, *, key: str | None = None) -> Asked[Answer[None]]:
        """Send the client's user to a web page. ``accept`` means that the user agreed to visit it, no more."""
        from mcplumb.types.client_features import ElicitParams, ElicitRequest

        request = ElicitRequest(ElicitParams.for_url(message, url))
        return self._wait(self._elicit(request, None, key))

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
    ) -> Asked[Sampled]:
        """Ask the client's model for a message. Texts and content blocks are sent with the role ``user``."""
        from mcplumb.types.client_features import CreateMessageParams, CreateMessageRequest

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
        return self._wait(self._sample(CreateMessageRequest(params), key))

    def roots(self, *, key: str | None = None) -> Asked[Roots]:
        """Return the folders and files that the client lets this server use."""
        return self._wait(self._roots(key))

    def read_resource(self, uri: str) -> Asked[ReadResourceResult]:
        """Return a resource of this server, as a client would get it. Raises `ToolError` if there is none.

        The resource's function runs as part of this request, with the same context.
        """
        from mcplumb.server.dispatch.methods import read_own_resource, read_own_resource_in_thread

        if self._call.is_own_thread():
            return read_own_resource(self._call, uri)
        return cast("Asked[ReadResourceResult]", read_own_resource_in_thread(self._call, uri))

    def release_stream(self, retry: float = 1.0) -> Delivery:
        """Close the HTTP response stream of this request while the handler keeps running.

        A client whose protocol revision supports this reconnects for the rest after ``retry`` seconds, so that a long
        request does not occupy a connection. On other revisions and transports this does nothing.
        """
        if not 0 <= retry < float("inf"):
            raise UsageError(f"A client cannot reconnect after {retry!r} seconds: give a number of at least 0.")
        if self._call.is_own_thread():
            self._call.release_stream(retry)
        else:
            with suppress(RequestCancelled):
                self._call.wait_in_thread(self._release_stream(retry))
        return _DELIVERED

    async def _release_stream(self, retry: float) -> None:
        self._call.release_stream(retry)

    async def _elicit(self, request: ElicitRequest, form: Any, key: str | None) -> Answer[Any]:
        from mcplumb.types.client_features import ElicitResult

        result = await self._ask(request, ElicitResult, key)
        if result.action != "accept":
            return Declined(result.action)
        if form is None:
            return Accepted(None)
        from mcplumb.server.schema.elicitation_form import read_form
        from mcplumb.server.schema.type_codec import BadValue

        try:
            return Accepted(read_form(form, result.content or {}))
        except BadValue as error:
            raise ToolError(f"The client's answer does not match the form: {error}") from error

    async def _sample(self, request: CreateMessageRequest, key: str | None) -> Sampled:
        from mcplumb.server.dispatch.client_input import Sampled

        return await self._ask(request, Sampled, key)

    async def _roots(self, key: str | None) -> Roots:
        from mcplumb.server.dispatch.client_input import Roots
        from mcplumb.types.base import Params
        from mcplumb.types.client_features import ListRootsRequest, ListRootsResult

        # Params may be left out, but some clients cannot read an input request without them.
        return Roots((await self._ask(ListRootsRequest(Params()), ListRootsResult, key)).roots)

    async def _ask(self, request: InputRequest, as_type: type[T], key: str | None) -> T:
        from mcplumb.server.dispatch.client_input import ask

        return await ask(self._call, request, as_type, key)

    def _send(self, send: Callable[[], None], *, is_throttled: bool) -> Delivery:
        """Send a notification now, or once the client has caught up. The call itself holds back a throttled one."""
        session = self._call.session

        async def send_when_drained() -> None:
            await session.connection.drained()
            send()

        if not self._call.is_own_thread():
            with suppress(RequestCancelled):
                self._call.wait_in_thread(send_when_drained())
            return _DELIVERED
        if not session.connection.is_clogged:
            send()
            return _DELIVERED
        if is_throttled:
            send()
            return Delivery(session.connection.drained)
        return Delivery(send_when_drained)

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> Asked[T]:
        """Return the coroutine itself in the event loop's thread; in other threads, wait and return its result."""
        # The result, which can be awaited as well, is typed for plain functions by `BlockingContext`.
        return coroutine if self._call.is_own_thread() else cast("Asked[T]", self._call.wait_in_thread(coroutine))


if TYPE_CHECKING:

    class BlockingContext(Context[_L]):
        """`Context` with the types for plain functions, in which the methods block and return their results."""

        @overload  # type: ignore[override]
        def elicit(self, message: str, form: type[T], *, key: str | None = None) -> Answer[T]: ...
        @overload
        def elicit(self, message: str, form: dict[str, Any], *, key: str | None = None) -> Answer[dict[str, Any]]: ...
        def elicit(self, message: str, form: Any, *, key: str | None = None) -> Any:
            """Ask the client's user with a form."""

        def elicit_url(  # type: ignore[override]
            self, message: str, url: str, *, key: str | None = None
        ) -> Answer[None]:
            """Send the client's user to a web page."""

        def sample(  # type: ignore[override]
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
            """Ask the client's model for a message."""

        def roots(self, *, key: str | None = None) -> Roots:  # type: ignore[override]
            """Return the folders and files that the client lets this server use."""

        def read_resource(self, uri: str) -> ReadResourceResult:  # type: ignore[override]
            """Return a resource of this server."""

else:
    BlockingContext = Context


def _message(given: str | SamplingContent | SamplingMessage) -> SamplingMessage:
    from mcplumb.types.client_features import SamplingMessage

    if isinstance(given, SamplingMessage):
        return given
    return SamplingMessage("user", TextContent(given) if isinstance(given, str) else given)
