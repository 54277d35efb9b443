"""The protocol's methods on the server: admit a request, begin it, and call the author's function.

`Dispatcher.admit` decides under which revision a request is served, and returns its `Call`. The endpoint then calls
``begin``, which is one of the functions here: it looks up the entry, decodes the arguments, and returns the coroutine
that calls the author's function and converts its return value. Methods without a function return their result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import UNSET

from mcplumb.errors import DecodeError, RequestError, ToolError
from mcplumb.protocol.in_flight import DUPLICATE_ID
from mcplumb.protocol.version_negotiation import Admission, Admitted, InitializedSession, Refused
from mcplumb.rpc.handler import Outcome, Reply
from mcplumb.rpc.thread_pool import end_fork, forks, value_of
from mcplumb.server.catalog import BadCursor, Entry, Registry, ResourceEntry, took_too_long
from mcplumb.server.context import Context
from mcplumb.server.dispatch.failures import error_of, outcome_of
from mcplumb.server.dispatch.running_call import Call
from mcplumb.server.results import ModernText, TextResult, contents_of, prompt_result_of, result_of
from mcplumb.server.schema.read_value import Fault, value_in_words
from mcplumb.server.schema.signature import BadArguments, describe_faults
from mcplumb.types.base import CacheScope, PageParams, Params, Payload, Result, RetryParams
from mcplumb.types.content import TextContent
from mcplumb.types.lifecycle import DiscoverResult, InitializeResult
from mcplumb.types.method_table import METHODS
from mcplumb.types.notification_params import ListenParams, SetLevelParams
from mcplumb.types.payload_decoder import read, undecoded
from mcplumb.types.resources import ReadResourceParams, ReadResourceResult, ResourceParams
from mcplumb.types.tools import CallToolParams, CallToolResult
from mcplumb.wire.messages import INVALID_PARAMS, METHOD_NOT_FOUND, ErrorDetail, Request

if TYPE_CHECKING:
    from mcplumb.revisions import Revision
    from mcplumb.server.server_session import ServerSession
    from mcplumb.server.server_state import SharedState

__all__ = ["Dispatcher", "read_own_resource", "read_own_resource_in_thread"]

#: The maximum number of values of a completion, set by the protocol.
_MOST_COMPLETIONS = 100
#: The number of characters of an unknown name that an error repeats.
_MAX_SHOWN = 200


_ANY_PARAMS = undecoded(Params, "meta")
_RETRY_PARAMS = undecoded(RetryParams, "meta", "input_responses")
_CALL_TOOL_PARAMS = undecoded(CallToolParams, "meta", "input_responses", "arguments")
_READ_RESOURCE_PARAMS = undecoded(ReadResourceParams, "meta", "input_responses")


# --- Methods that call no function of the author ---


def _discover(call: Call) -> Payload:
    shared = call.session.shared
    return DiscoverResult(
        supported_versions=[str(revision) for revision in shared.revisions if revision.is_modern],
        capabilities=shared.capabilities,
        instructions=shared.instructions,
        ttl_ms=shared.ttl_ms,
        cache_scope=shared.cache_scope,
    )


def _ping(_: Call) -> Payload:
    return Result()


def _lister(kind: str, field: str) -> Callable[[Call], msgspec.Raw]:
    """Return the method for pages of one of the catalog's lists."""

    def answer(call: Call) -> msgspec.Raw:
        shared, revision = call.session.shared, call.admitted.revision
        registry: Registry[Any] = getattr(shared.catalog, kind)
        cursor = read(PageParams, call.request.params, what="params").cursor
        if shared.narrow_lists and call.session.has_scopes and registry.has_scopes:
            from mcplumb.server.dispatch.scope_check import may_use

            # Neither kept nor shared: it is the list of one principal.
            page, _ = write(call, registry, cursor, partial(may_use, call.principal), "private")
            return page
        pages = shared.pages(kind, registry.version, revision)
        written = pages.get(cursor)
        if written is not None:
            return written
        written, next_cursor = write(call, registry, cursor, None, shared.cache_scope)
        pages.keep(cursor, written, next_cursor)
        return written

    def write(
        call: Call,
        registry: Registry[Any],
        cursor: str | None,
        may_see: Callable[[Entry], bool] | None,
        cache_scope: CacheScope,
    ) -> tuple[msgspec.Raw, str | None]:
        shared = call.session.shared
        try:
            entries, next_cursor = registry.page(cursor, shared.page_size, may_see)
        except BadCursor as error:
            raise RequestError(INVALID_PARAMS, str(error)) from error
        listed: dict[str, Any] = {field: [entry.payload for entry in entries], "next_cursor": next_cursor}
        result: Any = METHODS[call.request.method].result
        page = result(ttl_ms=shared.ttl_ms, cache_scope=cache_scope, **listed)
        return msgspec.Raw(msgspec.json.encode(shared.written(page, call.admitted.revision))), next_cursor

    return answer


def _set_level(call: Call) -> Payload:
    call.session.log_level = read(SetLevelParams, call.request.params, what="params").level
    return Result()


def _subscribe(call: Call) -> Payload:
    call.session.subscriptions.subscribe(read(ResourceParams, call.request.params, what="params").uri)
    return Result()


def _unsubscribe(call: Call) -> Payload:
    call.session.subscriptions.unsubscribe(read(ResourceParams, call.request.params, what="params").uri)
    return Result()


def _listen(call: Call) -> None:
    """Open a subscription. Its response is sent when it ends."""
    call.session.endpoint.incoming.exempt(call.id)
    call.session.subscriptions.listen(call.id, read(ListenParams, call.request.params, what="params").notifications)


_IMMEDIATE: dict[str, Callable[[Call], Payload | msgspec.Raw | None]] = {
    "server/discover": _discover,
    "ping": _ping,
    "tools/list": _lister("tools", "tools"),
    "resources/list": _lister("resources", "resources"),
    "resources/templates/list": _lister("templates", "resource_templates"),
    "prompts/list": _lister("prompts", "prompts"),
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "subscriptions/listen": _listen,
}


def _answer_immediately(call: Call) -> Outcome | None:
    """Return the outcome of a request that calls no function of the author; None if it stays open."""
    name, revision = call.request.method, call.admitted.revision
    answer = _IMMEDIATE.get(name)
    if answer is None or not METHODS[name].sent_by("client", revision):
        return ErrorDetail(METHOD_NOT_FOUND, f"There is no method {name[:80]!r} in protocol revision {revision}.")
    try:
        result = answer(call)
        return None if result is None else call.encoded(result)
    except Exception as error:  # noqa: BLE001 - whatever it is, the client gets a response
        return error_of(error, name, is_clients=True)


def _initialized(shared: SharedState, revision: Revision) -> InitializeResult:
    """Return the result of ``initialize``."""
    return InitializeResult(
        protocol_version=str(revision),
        capabilities=shared.capabilities,
        server_info=shared.identity,
        instructions=shared.instructions,
    )


# --- Methods that call a function of the author ---

_Started: TypeAlias = Coroutine[Any, Any, Outcome] | Outcome


def _call_tool(call: Call) -> _Started:
    params = call.params or read(_CALL_TOOL_PARAMS, call.request.params, what="params")
    call.params = None  # the call may run for long: free the memory
    entry = call.session.find_tool(params.name)
    if entry is None:
        raise RequestError(INVALID_PARAMS, f"There is no tool {params.name[:_MAX_SHOWN]!r}.")
    if params.request_state is not None or params.input_responses is not UNSET:
        _reopen(call, params)
    try:
        arguments = entry.read(params.arguments)
    except BadArguments as error:
        return call.encoded(CallToolResult([TextContent(str(error))], is_error=True))
    signature = entry.signature
    if signature.context_name is not None:
        arguments[signature.context_name] = Context(call)
    if signature.is_async:
        return _await(call, entry, arguments, entry.result_of)
    return _call_in_thread(call, entry, arguments, entry.result_of)


def _read_resource(call: Call) -> _Started:
    params = call.params or read(_READ_RESOURCE_PARAMS, call.request.params, what="params")
    call.params = None  # it may wait for long
    found = _find_resource(call, params.uri)
    _reopen(call, params)
    return _execute(call, found.entry, found.arguments, found.result_of)


class _FoundResource:
    """A resource that has a URI, and what its function is called with."""

    __slots__ = ("_call", "_uri", "arguments", "entry")

    def __init__(self, call: Call, uri: str, entry: ResourceEntry, arguments: dict[str, Any]) -> None:
        self._call = call
        self._uri = uri
        self.entry = entry
        self.arguments = arguments

    def result_of(self, value: Any) -> ReadResourceResult:
        """Return what the function returned as the result of a request."""
        if isinstance(value, ReadResourceResult):
            return value
        contents = contents_of(value, uri=self._uri, mime_type=self.entry.mime_type)
        if contents is None:
            raise _not_found(self._call, self._uri)
        return _read_result(self._call, self.entry, contents)


def _find_resource(call: Call, uri: str) -> _FoundResource:
    found = call.session.shared.catalog.find_resource(uri)
    if found is None:
        raise _not_found(call, uri)
    entry, values = found
    try:
        return _FoundResource(call, uri, entry, entry.signature.read(values))
    except BadArguments as error:
        # The URI matches the template but not the types of its parameters.
        raise _not_found(call, uri) from error


def _find_own_resource(call: Call, uri: str) -> _FoundResource:
    """Return a resource for a function of this server: with the context of its call, if it takes one."""
    found = _find_resource(call, uri)
    name = found.entry.signature.context_name
    if name is not None:
        found.arguments[name] = Context(call)
    return found


async def read_own_resource(call: Call, uri: str) -> ReadResourceResult:
    """Return a resource for an async function of this server; raise ToolError if there is none."""
    call.check_running()
    try:
        found = _find_own_resource(call, uri)
        if found.entry.signature.is_async:
            return found.result_of(await found.entry.function(**found.arguments))

        def call_function(**arguments: Any) -> ReadResourceResult:
            return found.result_of(found.entry.function(**arguments))

        result: ReadResourceResult = value_of(await call.session.shared.thread_pool.run(call_function, found.arguments))
    except _NotFound as missing:
        raise ToolError(missing.message) from None
    return result


def read_own_resource_in_thread(call: Call, uri: str) -> ReadResourceResult:
    """Return a resource for a plain function of this server; raise ToolError if there is none.

    A resource that is a plain function, too, is called in the same thread: if it waited for another one, functions that
    occupy all threads would wait for ever.
    """
    call.check_running()
    try:
        found = _find_own_resource(call, uri)
        if not found.entry.signature.is_async:
            return found.result_of(found.entry.function(**found.arguments))
    except _NotFound as missing:
        raise ToolError(missing.message) from None
    return call.wait_in_thread(read_own_resource(call, uri))


def _read_result(call: Call, entry: ResourceEntry, contents: list[Any]) -> ReadResourceResult:
    shared = call.session.shared
    ttl_ms = shared.ttl_ms if entry.ttl_ms is None else entry.ttl_ms
    # A result that depends on a user's input must not be cached for others.
    if call.answers is not None:
        ttl_ms = 0
    cache_scope = "private" if entry.scopes else entry.cache_scope or shared.cache_scope
    return ReadResourceResult(contents, ttl_ms=ttl_ms, cache_scope=cache_scope)


def _get_prompt(call: Call) -> _Started:
    from mcplumb.types.prompts import GetPromptParams

    kind = undecoded(GetPromptParams, "meta", "input_responses")
    try:
        params = read(kind, call.request.params, what="params")
    except DecodeError as error:
        if faults := _not_strings(call.request.params):  # msgspec does not name them
            raise RequestError(INVALID_PARAMS, describe_faults(faults)) from error
        raise
    call.params = None  # it may wait for long
    entry = call.session.shared.catalog.prompts.get(params.name)
    if entry is None:
        raise RequestError(INVALID_PARAMS, f"There is no prompt {params.name[:_MAX_SHOWN]!r}.")
    _reopen(call, params)
    try:
        arguments = entry.signature.read(params.arguments or {})
    except BadArguments as error:
        raise RequestError(INVALID_PARAMS, str(error)) from error
    description = entry.payload.description
    return _execute(call, entry, arguments, lambda value: prompt_result_of(value, description))


class _AnyArguments(Payload, frozen=True):
    arguments: dict[str, Any]


def _not_strings(params: Any) -> list[Fault]:
    """Return the arguments of a prompt that are no strings, as faults."""
    try:
        arguments = read(_AnyArguments, params).arguments
    except DecodeError:
        return []
    return [
        ((name,), f"expected a string, got {value_in_words(value)}")
        for name, value in arguments.items()
        if not isinstance(value, str)
    ]


def _complete(call: Call) -> _Started:
    from mcplumb.types.prompts import CompleteParams, CompleteResult, Completion, PromptReference

    params = read(CompleteParams, call.request.params, what="params")
    catalog = call.session.shared.catalog
    ref = params.ref
    owner: Entry | None
    if isinstance(ref, PromptReference):
        of, owner = ref.name, catalog.prompts.get(ref.name)
    else:
        of, owner = ref.uri, catalog.templates.get(ref.uri)
    if owner is None:
        raise RequestError(INVALID_PARAMS, f"There is no prompt or resource template {of[:_MAX_SHOWN]!r}.")
    entry = catalog.completions.get((of, params.argument.name))
    if entry is None:
        choices, typed = owner.choices(params.argument.name), params.argument.value.casefold()
        found = [each for each in choices if each.casefold().startswith(typed)]
        return call.encoded(_completed(found) if choices else CompleteResult(Completion([])))
    given = (params.argument.value, (params.context and params.context.arguments) or {})
    return _execute(call, entry, dict(zip(entry.takes, given, strict=False)), _completed)


def _completed(value: Any) -> Payload:
    from mcplumb.types.prompts import CompleteResult, Completion

    if isinstance(value, CompleteResult):
        return value
    if isinstance(value, Completion):
        return CompleteResult(value)
    values = [value] if isinstance(value, str) else [str(each) for each in value or ()]
    has_more = len(values) > _MOST_COMPLETIONS
    return CompleteResult(Completion(values[:_MOST_COMPLETIONS], len(values), has_more or None))


def _call_handler(call: Call) -> _Started:
    """Call the author's handler for a custom method."""
    entry = call.session.shared.catalog.request_handlers[call.request.method]
    standard = METHODS.get(call.request.method)
    if standard is not None and standard.may_need_input:
        _reopen(call, read(_RETRY_PARAMS, call.request.params, what="params"))
    try:
        arguments = entry.signature.read({entry.takes: read(dict[str, Any], call.request.params, what="params")})
    except BadArguments as error:
        raise RequestError(INVALID_PARAMS, str(error)) from error
    return _execute(call, entry, arguments, None)


def _reopen(call: Call, params: Any) -> None:
    """Restore the answers of a call that is sent again, and add those that come with it."""
    is_retry = params.request_state is not None or params.input_responses is not UNSET
    if is_retry and call.admitted.revision.has_input_required:
        from mcplumb.server.dispatch.client_input import Answers

        shared, request = call.session.shared, call.request
        call.answers = Answers.reopened(
            shared.sealer,
            params.request_state,
            params.input_responses,
            method=request.method,
            params=request.params,
            principal=None if call.principal is None else call.principal.identity,
            now=shared.now(),
        )


class _NotFound(RequestError):
    """There is no resource with a URI."""


def _not_found(call: Call, uri: str) -> _NotFound:
    shown = uri[:_MAX_SHOWN]
    return _NotFound(call.admitted.revision.resource_not_found, f"There is no resource {shown!r}.", {"uri": shown})


# --- Calling the function ---

#: Converts a function's return value to a result; None if it is the result already.
_ToResult: TypeAlias = Callable[[Any], Any] | None


def _execute(call: Call, entry: Entry, arguments: dict[str, Any], to_result: _ToResult) -> _Started:
    signature = entry.signature
    if signature.context_name is not None:
        arguments[signature.context_name] = Context(call)
    call_function = _await if signature.is_async else _call_in_thread
    return call_function(call, entry, arguments, to_result)


async def _await(call: Call, entry: Entry, arguments: dict[str, Any], to_result: _ToResult) -> Outcome:
    """Await an async function, and return the outcome of the call."""
    try:
        value = await entry.function(**arguments)
        if forks and len(forks) != call.session.forks:
            end_fork()
        if to_result is result_of and value.__class__ is str:
            # Most tools return text.
            meta = call.session.text_meta.get(call.admitted.revision.name)
            return TextResult([TextContent(value)]) if meta is None else ModernText([TextContent(value)], meta)
        return call.encoded(value if to_result is None else to_result(value))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if forks and len(forks) != call.session.forks:
            end_fork()
        if not call.is_running:
            # Cancelled, or closed with the event loop: no response is wanted.
            raise
        return outcome_of(call, entry, error)


async def _call_in_thread(call: Call, entry: Entry, arguments: dict[str, Any], to_result: _ToResult) -> Outcome:
    """Call a plain function in a thread, and return the outcome of the call."""

    def call_function(**arguments: Any) -> Any:
        # Converted in the thread, too: a function may return a path, whose file is then read.
        value = entry.function(**arguments)
        return value if to_result is None else to_result(value)

    try:
        running = call.session.shared.thread_pool.run(call_function, arguments)
        value, error = await (running if entry.timeout is None else asyncio.wait_for(running, entry.timeout))
        if error is None:
            return call.encoded(value)
    except TimeoutError:
        call.is_cancelled = True  # the function cannot be stopped, but it can look
        error = took_too_long(entry)
    except Exception as raised:  # noqa: BLE001 - whatever it is, the client gets a response
        error = raised
    return outcome_of(call, entry, error)


# --- Admission ---


class _Method:
    """A method that calls a function: how its params are decoded, and how it begins."""

    __slots__ = ("begin", "decode")

    def __init__(self, params: type[Any], begin: Callable[[Call], _Started]) -> None:
        #: Decodes valid params; for invalid ones, ``begin`` finds the error message.
        self.decode: Callable[[msgspec.Raw], Any] = msgspec.json.Decoder(params).decode
        self.begin = begin


_CALLS = {
    "tools/call": _Method(_CALL_TOOL_PARAMS, _call_tool),
    "resources/read": _Method(_READ_RESOURCE_PARAMS, _read_resource),
    "prompts/get": _Method(_ANY_PARAMS, _get_prompt),
    "completion/complete": _Method(_ANY_PARAMS, _complete),
}
_HANDLER_METHOD = _Method(_ANY_PARAMS, _call_handler)

_DECODE_ERRORS = (TypeError, msgspec.DecodeError, UnicodeDecodeError)


class Dispatcher:
    """Admits the requests of one connection."""

    __slots__ = ("_admission", "_handlers", "_session")

    def __init__(self, session: ServerSession, admission: Admission) -> None:
        self._session = session
        self._admission = admission
        self._handlers = session.shared.catalog.request_handlers

    def admit(self, request: Request) -> Call | Reply:
        """Return the call for a request, or the reply to one that is refused or opens a session."""
        name = request.method
        method = _HANDLER_METHOD if name in self._handlers else _CALLS.get(name)
        if method is None:
            return self._admit_other(request)
        params: Any
        try:
            params = method.decode(request.params)
            meta = params.meta
        except _DECODE_ERRORS:
            params = meta = None  # whether the request is admitted at all is decided first
        admitted = self._admission.request(request, meta)
        if admitted.__class__ is Admitted:
            return Call(request.id, request, method.begin, session=self._session, admitted=admitted, params=params)
        return self._not_admitted(admitted)

    def _admit_other(self, request: Request) -> Call | Reply:
        """Admit a request that calls no function of the author."""
        name = request.method
        is_idle = False
        if name == "initialize":
            endpoint = self._session.endpoint
            if endpoint.is_in_flight(request.id):
                # Checked before it opens a session.
                return Reply(DUPLICATE_ID)
            is_idle = endpoint.is_idle and not endpoint.is_in_batch
        admitted = self._admission.request(request, is_idle=is_idle)
        if type(admitted) is not Admitted:
            return self._not_admitted(admitted)
        return Call(
            request.id,
            request,
            _answer_immediately,
            session=self._session,
            admitted=admitted,
            params=None,
            is_quick=True,
            stays_open=name == "subscriptions/listen",
        )

    def _not_admitted(self, verdict: Admitted | InitializedSession | Refused) -> Reply:
        if isinstance(verdict, InitializedSession):
            shared = self._session.shared
            self._session.start_over()
            return Reply(shared.written(_initialized(shared, verdict.revision), verdict.revision))
        assert isinstance(verdict, Refused)  # noqa: S101 - for mypy
        return Reply(verdict.error)
