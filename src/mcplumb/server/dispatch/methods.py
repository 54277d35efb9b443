"""What the protocol's own methods do: those that answer at once, and those that call a function of the author's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from mcplumb.errors import RequestError
from mcplumb.protocol.admission import Admitted, WithMeta
from mcplumb.server.catalog import BadCursor, Registry, ResourceEntry
from mcplumb.server.dispatch.call import Call
from mcplumb.server.dispatch.client_input import Answers, may_need_input
from mcplumb.server.dispatch.execution import Outcome, execute, explained
from mcplumb.server.results import contents_of, prompt_result_of
from mcplumb.server.schema.signature import BadArguments
from mcplumb.types.base import CacheableResult, PageParams, Payload, Result
from mcplumb.types.content import TextContent
from mcplumb.types.lifecycle import DiscoverResult, InitializeResult
from mcplumb.types.method_table import METHODS
from mcplumb.types.notification_params import ListenParams, SetLevelParams
from mcplumb.types.payload_decoder import read
from mcplumb.types.prompts import (
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    ListPromptsResult,
    PromptReference,
    Reference,
)
from mcplumb.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    ResourceParams,
)
from mcplumb.types.tools import CallToolResult, ListToolsResult
from mcplumb.wire.messages import INVALID_PARAMS, METHOD_NOT_FOUND, ErrorDetail, Request

if TYPE_CHECKING:
    from mcplumb.revisions import Revision
    from mcplumb.server.server_session import Session
    from mcplumb.server.shared_state import Shared

__all__ = ["CALLS", "HANDLED", "Method", "answer_now", "greeting"]

#: How many values a completion may have; the protocol says so.
_MOST_COMPLETIONS = 100
#: How much of a name that does not exist is repeated in the error about it.
_LONGEST_SHOWN = 200


class _Retry(WithMeta, frozen=True, kw_only=True):
    #: One of these is there if the request brings something that the function may have asked for.
    input_responses: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    request_state: str | None = None


class _CallTool(_Retry, frozen=True):
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class _GetPrompt(_Retry, frozen=True):
    name: str
    arguments: dict[str, str] | None = None


class _ReadResource(_Retry, frozen=True):
    uri: str


class _Complete(WithMeta, frozen=True):
    ref: Reference
    argument: CompletionArgument
    context: CompletionContext | None = None


# Requests that are answered at once.


def _discover(session: Session, _: Admitted, __: Request) -> Payload:
    shared = session.shared
    return DiscoverResult(
        supported_versions=[str(revision) for revision in shared.revisions if revision.is_modern],
        capabilities=shared.capabilities,
        instructions=shared.instructions,
        ttl_ms=shared.ttl_ms,
        cache_scope=shared.cache_scope,
    )


def _ping(_: Session, __: Admitted, ___: Request) -> Payload:
    return Result()


_Lister: TypeAlias = Callable[["Session", Admitted, Request], msgspec.Raw]


def _lister(kind: str, result: type[CacheableResult], field: str) -> _Lister:
    """Answers with a page of one of the catalog's lists."""

    def answer(session: Session, admitted: Admitted, request: Request) -> msgspec.Raw:
        shared, revision = session.shared, admitted.revision
        registry: Registry[Any] = getattr(shared.catalog, kind)
        cursor = read(PageParams, request.params, what="params").cursor
        pages = shared.pages(kind, registry.version, revision)
        written = pages.get(cursor)
        if written is not None:
            return written
        try:
            entries, next_cursor = registry.page(cursor, shared.page_size)
        except BadCursor as error:
            raise RequestError(INVALID_PARAMS, str(error)) from error
        listed: dict[str, Any] = {field: [entry.payload for entry in entries], "next_cursor": next_cursor}
        page = result(ttl_ms=shared.ttl_ms, cache_scope=shared.cache_scope, **listed)
        written = msgspec.Raw(msgspec.json.encode(shared.written(page, revision)))
        pages.keep(cursor, written, next_cursor)
        return written

    return answer


def _set_level(session: Session, _: Admitted, request: Request) -> Payload:
    session.log_level = read(SetLevelParams, request.params, what="params").level
    return Result()


def _subscribe(session: Session, _: Admitted, request: Request) -> Payload:
    session.changes.subscribe(read(ResourceParams, request.params, what="params").uri)
    return Result()


def _unsubscribe(session: Session, _: Admitted, request: Request) -> Payload:
    session.changes.unsubscribe(read(ResourceParams, request.params, what="params").uri)
    return Result()


def _listen(session: Session, _: Admitted, request: Request) -> None:
    session.exempt(request.id)
    session.changes.listen(request.id, read(ListenParams, request.params, what="params").notifications)


#: None instead of a result: the answer comes later.
_ONE_SHOT: dict[str, Callable[[Session, Admitted, Request], Payload | msgspec.Raw | None]] = {
    "server/discover": _discover,
    "ping": _ping,
    "tools/list": _lister("tools", ListToolsResult, "tools"),
    "resources/list": _lister("resources", ListResourcesResult, "resources"),
    "resources/templates/list": _lister("templates", ListResourceTemplatesResult, "resource_templates"),
    "prompts/list": _lister("prompts", ListPromptsResult, "prompts"),
    "logging/setLevel": _set_level,
    "resources/subscribe": _subscribe,
    "resources/unsubscribe": _unsubscribe,
    "subscriptions/listen": _listen,
}


def answer_now(call: Call) -> Outcome | None:
    """What to answer to a request that calls no function of the author's; None if that comes later."""
    name, revision = call.request.method, call.admitted.revision
    answer = _ONE_SHOT.get(name)
    if answer is None or not METHODS[name].sent_by("client", revision):
        return ErrorDetail(METHOD_NOT_FOUND, f"There is no method {name[:80]!r} in protocol revision {revision}.")
    try:
        return answer(call.session, call.admitted, call.request)
    except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
        return explained(error, name, is_clients=True)


def greeting(shared: Shared, revision: Revision) -> InitializeResult:
    """The answer to a client that opens a session."""
    return InitializeResult(
        protocol_version=str(revision),
        capabilities=shared.capabilities,
        server_info=shared.identity,
        instructions=shared.instructions,
    )


# Requests that call a function of the author's.


def _call_tool(call: Call, params: _CallTool) -> None:
    entry = call.session.find_tool(params.name)
    if entry is None:
        raise RequestError(INVALID_PARAMS, f"There is no tool {params.name[:_LONGEST_SHOWN]!r}.")
    if params.request_state is not None or params.input_responses is not msgspec.UNSET:
        _reopen(call, params)
    try:
        arguments = entry.read(params.arguments)
    except BadArguments as error:
        call.session.finish(call, CallToolResult([TextContent(str(error))], is_error=True))
        return
    execute(call, entry, arguments, entry.output.result_of)


def _read_resource(call: Call, params: _ReadResource) -> None:
    found = call.session.shared.catalog.find_resource(params.uri)
    if found is None:
        raise _not_found(call, params.uri)
    entry, values = found
    _reopen(call, params)

    def finish(value: Any) -> Payload:
        if isinstance(value, ReadResourceResult):
            return value
        contents = contents_of(value, uri=params.uri, mime_type=entry.mime_type)
        if contents is None:
            raise _not_found(call, params.uri)
        return _read_result(call, entry, contents)

    try:
        arguments = entry.signature.read(values)
    except BadArguments as error:
        # The address is of the right shape but stands for nothing.
        raise _not_found(call, params.uri) from error
    execute(call, entry, arguments, finish)


def _read_result(call: Call, entry: ResourceEntry, contents: list[Any]) -> Payload:
    shared = call.session.shared
    ttl_ms = shared.ttl_ms if entry.ttl_ms is None else entry.ttl_ms
    # What depends on answers of the user must not be given to anyone else.
    if call.answers is not None:
        ttl_ms = 0
    return ReadResourceResult(contents, ttl_ms=ttl_ms, cache_scope=entry.cache_scope or shared.cache_scope)


def _get_prompt(call: Call, params: _GetPrompt) -> None:
    entry = call.session.shared.catalog.prompts.get(params.name)
    if entry is None:
        raise RequestError(INVALID_PARAMS, f"There is no prompt {params.name[:_LONGEST_SHOWN]!r}.")
    _reopen(call, params)
    try:
        arguments = entry.signature.read(params.arguments or {})
    except BadArguments as error:
        raise RequestError(INVALID_PARAMS, str(error)) from error
    description = entry.payload.description
    execute(call, entry, arguments, lambda value: prompt_result_of(value, description))


def _complete(call: Call, params: _Complete) -> None:
    catalog = call.session.shared.catalog
    ref = params.ref
    if isinstance(ref, PromptReference):
        of, is_known = ref.name, catalog.prompts.get(ref.name) is not None
    else:
        of, is_known = ref.uri, catalog.templates.get(ref.uri) is not None
    if not is_known:
        raise RequestError(INVALID_PARAMS, f"There is no prompt or resource template {of[:_LONGEST_SHOWN]!r}.")
    entry = catalog.completions.get((of, params.argument.name))
    if entry is None:
        call.session.finish(call, CompleteResult(Completion([])))
        return
    given = (params.argument.value, (params.context and params.context.arguments) or {})
    execute(call, entry, dict(zip(entry.takes, given, strict=False)), _completed)


def _completed(value: Any) -> Payload:
    if isinstance(value, CompleteResult):
        return value
    if isinstance(value, Completion):
        return CompleteResult(value)
    values = [value] if isinstance(value, str) else [str(each) for each in value or ()]
    has_more = len(values) > _MOST_COMPLETIONS
    return CompleteResult(Completion(values[:_MOST_COMPLETIONS], len(values), has_more or None))


def _call_handler(call: Call, _: WithMeta) -> None:
    entry = call.session.shared.catalog.request_handlers[call.request.method]
    if may_need_input(call.request.method):
        _reopen(call, read(_Retry, call.request.params, what="params"))
    try:
        arguments = entry.signature.read({entry.takes: read(dict[str, Any], call.request.params, what="params")})
    except BadArguments as error:
        raise RequestError(INVALID_PARAMS, str(error)) from error
    execute(call, entry, arguments, _itself)


def _itself(value: Any) -> Any:
    return value


class Method:
    """A method whose requests are worked on: what is read of their params, and how the work begins."""

    __slots__ = ("begin", "decode", "params")

    def __init__(self, params: type[WithMeta], begin: Callable[[Call, Any], None]) -> None:
        self.params = params
        #: Reads the params, if that is easy; whatever it raises, ``read`` finds the words for it.
        self.decode: Callable[[msgspec.Raw], WithMeta] = msgspec.json.Decoder(params).decode
        #: Begins the work, and leaves the answer to the session.
        self.begin = begin


CALLS: dict[str, Method] = {
    "tools/call": Method(_CallTool, _call_tool),
    "resources/read": Method(_ReadResource, _read_resource),
    "prompts/get": Method(_GetPrompt, _get_prompt),
    "completion/complete": Method(_Complete, _complete),
}
#: The same for a method that the author's own handler answers.
HANDLED = Method(WithMeta, _call_handler)


def _reopen(call: Call, params: _Retry) -> None:
    """Give a call that was made before the answers that it had, and those that come with it now."""
    is_retry = params.request_state is not None or params.input_responses is not msgspec.UNSET
    if is_retry and call.admitted.revision.has_input_required:
        shared, request = call.session.shared, call.request
        call.answers = Answers.reopened(
            shared.sealer,
            params.request_state,
            params.input_responses,
            method=request.method,
            params=request.params,
            principal=call.session.principal,
            now=shared.now(),
        )


def _not_found(call: Call, uri: str) -> RequestError:
    shown = uri[:_LONGEST_SHOWN]
    return RequestError(call.admitted.revision.resource_not_found, f"There is no resource {shown!r}.", {"uri": shown})
