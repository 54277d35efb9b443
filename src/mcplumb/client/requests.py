"""The requests of a client: rounds of input, pages of lists, the cache, and sending again after a lost connection.

`Requests` sends on whichever session the supervisor has open. `read_result` decodes a response, and `next_round`
answers one that asks for input first.
"""
# ``timeout`` parameters are part of the protocol: an expired one also cancels the request on the server.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mcplumb.client.client_session import ClientSession
from mcplumb.client.input_handlers import InputHandlers
from mcplumb.client.link import MAX_AUTHORIZED
from mcplumb.client.supervisor import Supervisor
from mcplumb.errors import (
    Closed,
    DecodeError,
    HttpError,
    McplumbError,
    ProtocolError,
    RemoteError,
    RequestLost,
    RequestTimeout,
    ServerDown,
)
from mcplumb.protocol.in_flight import check_seconds
from mcplumb.protocol.restart import may_resend
from mcplumb.revisions import Revision
from mcplumb.rpc.handler import CallOptions
from mcplumb.rpc.outgoing_requests import describe
from mcplumb.rpc.thread_pool import forks
from mcplumb.rpc.user_callbacks import OnProgress
from mcplumb.types.base import COMPLETE, CacheableResult, Result
from mcplumb.types.client_features import InputRequiredResult
from mcplumb.types.method_table import METHODS
from mcplumb.types.payload_decoder import DECODERS, UNREADABLE, read, read_result_type
from mcplumb.types.prompts import ListPromptsResult
from mcplumb.types.resources import ListResourcesResult, ListResourceTemplatesResult
from mcplumb.types.tools import CallToolResult, ListToolsResult, Tool
from mcplumb.wire.messages import HEADER_MISMATCH, METHOD_NOT_FOUND

__all__ = ["MAX_ROUNDS", "Meta", "Requests", "Timeout", "next_round", "read_result"]

_logger = logging.getLogger("mcplumb.client")


# --- Results, and rounds of input ---

R = TypeVar("R", bound=Result)

#: The ``resultType`` of a final result; legacy results have none.
_COMPLETE = (None, COMPLETE)
#: The params that belong to one round of a request.
_ROUND_PARAMS = frozenset(("_meta", "inputResponses", "requestState"))

#: How often one call is sent at most. Each request for input takes one round.
MAX_ROUNDS = 32


def read_result(kind: type[R], raw: msgspec.Raw, method: str, revision: Revision) -> R | InputRequiredResult:
    """Return the decoded result, or the server's request for input; raise ``ProtocolError`` if it is neither."""
    try:
        result: R = DECODERS[kind].decode(raw)  # what `read` does, without its overhead
    except UNREADABLE:
        try:
            result = read(kind, raw, what="result of " + method)
        except DecodeError:
            # A result that asks for input lacks the required fields of the final one.
            if not revision.has_result_types or read_result_type(raw) == COMPLETE:
                raise
            return _read_input_required(raw, method)
    if result.result_type in _COMPLETE or not revision.has_result_types:
        return result
    return _read_input_required(raw, method)


def _read_input_required(raw: msgspec.Raw, method: str) -> InputRequiredResult:
    read_result_type(raw)  # raises if the type is unknown
    if not METHODS[method].may_need_input:
        raise ProtocolError(f"The server asked for input to answer {method}, which must not ask for any.")
    return read(InputRequiredResult, raw, what="result of " + method)


async def next_round(
    asked: InputRequiredResult, params: dict[str, Any], input_handlers: InputHandlers, revision: Revision
) -> dict[str, Any]:
    """Return the params of the next round: the request's own, the input asked for, and the server's state unchanged."""
    if asked.input_requests is None and asked.request_state is None:
        raise ProtocolError("The server asked for input, but did not say which.")
    retry = {key: value for key, value in params.items() if key not in _ROUND_PARAMS}
    if asked.input_requests is not None:
        # One after the other: a person can answer only one question at a time.
        retry["inputResponses"] = {
            key: await input_handlers.answer(request, revision) for key, request in asked.input_requests.items()
        }
    if asked.request_state is not None:
        retry["requestState"] = asked.request_state
    return retry


# --- Requests ---

Timeout: TypeAlias = float | UnsetType | None
Meta: TypeAlias = dict[str, Any] | None

_R = TypeVar("_R", bound=Result | msgspec.Raw)
_C = TypeVar("_C", bound=CacheableResult)
_Page = TypeVar("_Page", ListToolsResult, ListResourcesResult, ListResourceTemplatesResult, ListPromptsResult)

#: The kind of a result that is returned undecoded.
_RAW: Any = msgspec.Raw
_NO_RESULT = msgspec.Raw()

#: The field of each kind of page that has the list, by its name on the wire.
_LIST_FIELDS: dict[Any, str] = {
    ListToolsResult: "tools",
    ListResourcesResult: "resources",
    ListResourceTemplatesResult: "resourceTemplates",
    ListPromptsResult: "prompts",
}
#: Half the seconds before the first resend on a session that stayed open; the pause doubles each time.
_RESEND_PAUSE = 0.1
#: How many sessions one request may end by the server's answer to it before that answer counts as final.
_MAX_SESSIONS = 3
#: The number of unusable tools that are logged.
_MOST_WARNINGS = 100
#: Seconds for listing the tools of a server that was started again, to learn whether a call may be sent again.
_LOOK_UP_TIMEOUT = 5.0
#: A list with more pages than this is taken to be endless.
_MAX_PAGES = 1000


class _Sent(msgspec.Struct, frozen=True):
    """A request that was sent, and the state in which it was sent."""

    session: ClientSession
    #: The generation of the tool registry.
    generation: int
    method: str
    params: dict[str, Any]
    options: CallOptions
    start: float


class _UnknownThread:
    _thread_id = None


class Requests:
    """Sends requests to one server, on whichever session is open."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._registry = supervisor.registry
        #: The names of the tools with an output schema. This is the registry's own set.
        self.with_output_schema = supervisor.registry.with_output_schema
        self._cache = supervisor.cache
        self._checker = supervisor.settings.checker
        self._supervisor = supervisor
        self._timeout = supervisor.settings.timeout
        self._max_timeout = supervisor.settings.max_timeout
        #: The options of a call without options of its own.
        self.usual_options = self.options()
        self._mirrors = supervisor.link.mirrors
        #: The event loop whose clock times requests.
        self.loop = asyncio.get_running_loop()
        #: Tells in which thread the loop runs: asyncio's own loops do. With others, each request asks for the loop.
        self._runner: Any = self.loop if hasattr(self.loop, "_thread_id") else _UnknownThread
        self._lookup_lock = asyncio.Lock()
        #: The names of the tools that were left out of lists.
        self._unusable: set[str] = set()

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        kind: type[_R],
        options: CallOptions,
        start: float | None = None,
        keep: Callable[[dict[str, Any], msgspec.Raw, _R], None] | None = None,
        rounds: int = 1,
    ) -> _R:
        """Send a request, answer the server's requests for input, and return the decoded result.

        With ``msgspec.Raw`` as ``kind``, the result is returned as the server wrote it, even if it asks for input.
        ``start`` is when this round began, if known. ``keep`` is called with the params of the last round, the raw
        result and the decoded one. ``rounds`` counts how often the request is sent.
        """
        # Asking for the running loop would be a system call, on Python 3.11. A fork copies the thread and the loop.
        if get_ident() != self._runner._thread_id or forks:
            self._supervisor.check_loop()
        if start is None:
            start = self.loop.time()
        session, generation = self._supervisor.session, self._registry.generation
        meta, failed = session.encoded_meta, None
        try:
            if meta is not None and options is self.usual_options:
                params["_meta"] = meta
                raw = await session.endpoint.request(method, params, options, start)
            else:
                raw = await session.request(method, params, options, start)
        except (Closed, RequestLost, RemoteError, HttpError) as error:
            if isinstance(error, RemoteError) and not (self._mirrors and error.code == HEADER_MISMATCH):
                raise
            raw, failed = _NO_RESULT, error
        if failed is not None:
            sent = _Sent(session, generation, method, params, options, start)
            try:
                raw = await self._recover(sent, failed)
            finally:
                failed = None  # breaks the reference cycle between the error and this frame
            session = self._supervisor.session
        if kind is _RAW:
            return raw  # type: ignore[return-value]
        result = read_result(kind, raw, method, session.revision)  # type: ignore[type-var]
        if result.__class__ is not InputRequiredResult:
            if keep is not None:
                keep(params, raw, result)  # type: ignore[arg-type]
            return result  # type: ignore[return-value]
        if rounds == MAX_ROUNDS:
            raise ProtocolError(f"The server asked for input {MAX_ROUNDS} times, and gave no result for {method}.")
        params = await next_round(result, params, self._supervisor.settings.input_handlers, session.revision)
        return await self.ask(method, params, kind, options, keep=keep, rounds=rounds + 1)

    async def ask_cached(self, method: str, params: dict[str, Any], kind: type[_C], options: CallOptions) -> _C:
        """Return a result from the cache, or request it and cache it for as long as the server allows."""
        cache = self._cache
        if cache is None or options.meta is not None:
            return await self.ask(method, params, kind, options)
        known = cache.get(method, params, self.loop.time())
        if isinstance(known, kind):
            return known
        generation = cache.generation(method)

        def keep(params: dict[str, Any], raw: msgspec.Raw, result: _C) -> None:
            size, now = memoryview(raw).nbytes, self.loop.time()
            cache.put(method, params, result, size=size, now=now, generation=generation)

        return await self.ask(method, params, kind, options, keep=keep)

    async def recover(
        self, session: ClientSession, method: str, params: dict[str, Any], options: CallOptions, failed: McplumbError
    ) -> msgspec.Raw:
        """Send a request again that failed on this session, if that may help; otherwise raise the error."""
        if not isinstance(failed, Closed | RequestLost):
            raise failed
        sent = _Sent(session, self._registry.generation, method, params, options, self.loop.time())
        return await self._recover(sent, failed)

    async def _recover(self, sent: _Sent, failed: Closed | RequestLost | RemoteError | HttpError) -> msgspec.Raw:
        """Send a failed request again where that may help, and return its result; otherwise raise the error."""
        if isinstance(failed, HttpError):
            try:
                return await self._send_authorized(sent, failed)
            finally:
                del failed
        try:
            if isinstance(failed, RemoteError):
                raise failed
            return await self._send_again(sent, failed)
        except RemoteError as error:
            name = sent.params.get("name")
            if not self._mirrors or error.code != HEADER_MISMATCH or sent.method != "tools/call":
                raise
            # The server wants some arguments in headers as well, and our copy of the tool's schema is missing or
            # outdated. The tool has not run.
            options = sent.options
            end, last = (None if wait is None else sent.start + wait for wait in (options.timeout, options.max_timeout))
            if not isinstance(name, str) or await self._look_up_again(name, sent.generation, end) is None:
                raise
        finally:
            del failed
        options = replace(options, timeout=self._time_left(end), max_timeout=self._time_left(last))
        again = replace(sent, session=self._supervisor.session, options=options, start=self.loop.time())
        try:
            return await again.session.request(again.method, again.params, options)
        except (Closed, RequestLost) as lost:
            return await self._send_again(again, lost)

    async def _send_authorized(self, request: _Sent, refusal: HttpError) -> msgspec.Raw:
        """Get what a refused request needs, and send it again; otherwise raise the refusal.

        The time that a user takes to consent does not count: the request gets its whole timeout again.
        """
        for _ in range(MAX_AUTHORIZED):
            if not await self._supervisor.authorize(refusal):
                break
            session = await self._supervisor.ready(describe(request.method, request.params), request.options.timeout)
            try:
                return await session.request(request.method, request.params, request.options)
            except HttpError as error:
                refusal = error
            except (Closed, RequestLost) as lost:
                again = replace(request, session=session, start=self.loop.time())
                return await self._send_again(again, lost)
        raise refusal

    async def _send_again(self, request: _Sent, lost: Closed | RequestLost) -> msgspec.Raw:
        """Send a request whose connection was lost again, if that is safe, until it gets a response."""
        used = request.session
        alone = 0
        options = request.options
        waits = options.timeout, options.max_timeout
        ends, ends_at_last = (None if wait is None else request.start + wait for wait in waits)
        sent: list[RequestLost] = []
        sessions = 0
        try:
            while True:
                if (refusal := _refusal(lost)) is not None:
                    sessions += 1
                    if sessions == _MAX_SESSIONS:
                        raise _refusal_error(refusal, describe(request.method, request.params)) from refusal
                if isinstance(lost, RequestLost):  # otherwise it was never sent
                    sent.append(lost)
                    ends = lost.deadline  # progress may have moved it
                    if not await self._may_resend(request.method, request.params, len(sent), self._time_left(ends)):
                        raise lost
                try:
                    session = await self._supervisor.ready(
                        describe(request.method, request.params), self._time_left(ends)
                    )
                except (Closed, ServerDown, RequestTimeout):
                    if sent:  # it may have been executed: raise the error that says so
                        raise sent[0] from sent[0].__cause__
                    raise
                if session is used:
                    # Only this request was lost, and the session is still open. The server may be restarting.
                    alone += 1
                    if alone > 1 and isinstance(lost, Closed):
                        raise lost
                    await asyncio.sleep(_RESEND_PAUSE * 2**alone)
                used = session
                try:
                    left = replace(options, timeout=self._time_left(ends), max_timeout=self._time_left(ends_at_last))
                    return await session.request(request.method, request.params, left)
                except (Closed, RequestLost) as error:
                    lost = error
        finally:
            del lost, sent  # breaks the reference cycle between the errors and this frame

    async def validate_output(self, name: str, result: CallToolResult, options: CallOptions, start: float) -> None:
        """Raise `ProtocolError` if a result does not match its tool's output schema, which may have to be fetched."""
        tool = self._registry.find(name)
        is_promised = result.structured_content is not None if tool is None else tool.output_schema is not None
        if not (is_promised and self._checker.is_active) or result.is_error:
            return
        end = None if options.timeout is None else start + options.timeout
        generation = self._registry.generation
        if tool is None:
            self._check_output(await self._look_up(name, end), result)
            return
        try:
            self._check_output(tool, result)
        except ProtocolError:
            # The schema may be outdated: without a subscription the client is not notified of changes.
            again = await self._look_up_again(name, generation, end)
            if again is None or again.output_schema == tool.output_schema:
                raise
            self._check_output(again, result)

    def _check_output(self, tool: Tool | None, result: CallToolResult) -> None:
        if tool is not None and tool.output_schema is not None:
            self._checker.check(tool.name, tool.output_schema, result)

    async def page(self, method: str, kind: type[_Page], cursor: str | None, options: CallOptions) -> _Page:
        """Return one page of a list; an empty one, without asking, if the server did not declare that it has any."""
        if not self._is_declared(method):
            return _empty_page(kind)
        params = {} if cursor is None else {"cursor": cursor}
        try:
            page = await self.ask_cached(method, params, kind, options)
        except RemoteError as error:
            if error.code == METHOD_NOT_FOUND and not self._has_declared_features():
                return _empty_page(kind)
            if cursor is not None and self._cache is not None:
                # The list has changed since the cursor was issued, so the cached pages are stale.
                self._cache.forget(method)
            raise
        if isinstance(page, ListToolsResult):
            if self._supervisor.link.mirrors and self._supervisor.handshake_result.revision.has_mirrored_headers:
                page = replace(page, tools=[tool for tool in page.tools if self._is_usable(tool)])
            self._registry.learn(page.tools)
        return page

    async def pages(self, method: str, kind: type[_Page], options: CallOptions) -> list[_Page]:
        """Return all pages of a list, all from the same session."""
        generation = self._registry.generation
        pages = [await self.page(method, kind, None, options)]
        session = self._supervisor.session
        seen = set()
        count = 1
        while (cursor := pages[-1].next_cursor) is not None:
            if cursor in seen or count >= _MAX_PAGES:
                raise ProtocolError(f"The pages of {method} have no end, or are more than {_MAX_PAGES}.")
            seen.add(cursor)
            pages.append(await self.page(method, kind, cursor, options))
            count += 1
            if self._supervisor.session is not session:
                # The server was restarted and its list may differ: start over.
                generation, session = self._registry.generation, self._supervisor.session
                pages = [await self.page(method, kind, None, options)]
                seen.clear()
        if method == "tools/list" and generation == self._registry.generation:
            self._registry.is_complete = True
        return pages

    def _is_declared(self, method: str) -> bool:
        """Return whether the server may have what a method lists.

        Some legacy servers declare no feature at all, and answer all the same: these are asked.
        """
        known = self._supervisor.handshake_result
        declared = getattr(known.capabilities, method.partition("/")[0]) is not None
        return declared or not (known.revision.is_modern or self._has_declared_features())

    def _has_declared_features(self) -> bool:
        capabilities = self._supervisor.handshake_result.capabilities
        return any(each is not None for each in (capabilities.tools, capabilities.resources, capabilities.prompts))

    def options(
        self,
        timeout: Timeout = UNSET,
        max_timeout: Timeout = UNSET,
        on_progress: OnProgress | None = None,
        meta: Meta = None,
    ) -> CallOptions:
        """Return the options of a call, with the client's own timeouts where none are given.

        Raises `UsageError` if a timeout is not a number of seconds.
        """
        for name, limit in (("timeout", timeout), ("max_timeout", max_timeout)):
            if limit is not UNSET:
                check_seconds(name, limit)
        if timeout is UNSET:
            timeout = self._timeout
        if max_timeout is UNSET:
            max_timeout = self._max_timeout
            if timeout is None:
                max_timeout = None
            elif max_timeout is not None:
                # A timeout above the client's maximum raises that maximum.
                max_timeout = max(timeout, max_timeout)
        return CallOptions(timeout, max_timeout, on_progress, meta)

    async def _may_resend(self, method: str, params: dict[str, Any], sent: int, timeout: float | None) -> bool:
        policy = self._supervisor.settings.retry
        if method != "tools/call" or policy != "safe":
            return may_resend(method, policy=policy, sent=sent)
        name = params.get("name")
        if not isinstance(name, str):  # written by the user, who decides what is in the params
            return False
        tool = self._registry.find(name)
        if tool is None:
            end = None if timeout is None else self.loop.time() + timeout
            try:
                await self._supervisor.ready(describe(method, params), timeout)
            except (Closed, ServerDown, RequestTimeout):
                return False
            soon = self.loop.time() + _LOOK_UP_TIMEOUT
            tool = await self._look_up(name, soon if end is None else min(end, soon))
        marks = None if tool is None else tool.annotations
        if marks is None:
            return False
        return may_resend(
            method, policy=policy, read_only=marks.read_only_hint, idempotent=marks.idempotent_hint, sent=sent
        )

    async def _look_up(self, name: str, end: float | None) -> Tool | None:
        """Return a tool from the registry, after listing the tools if necessary; None if it is not found in time.

        Does not raise, because the call that needs the tool has already been made. Concurrent lookups share one list.
        """
        try:
            async with asyncio.timeout_at(end), self._lookup_lock:
                if not self._registry.is_complete:
                    await self.pages("tools/list", ListToolsResult, self.options(self._time_left(end)))
        except RemoteError:
            self._registry.is_complete = True  # the server has no list, so do not ask again
        except (McplumbError, TimeoutError) as error:
            _logger.debug("The tools of the server are not known. %s", error)
        return self._registry.find(name)

    async def _look_up_again(self, name: str, generation: int, end: float | None) -> Tool | None:
        """Return a tool from a new list, because what this generation of the registry says turned out to be wrong."""
        if generation == self._registry.generation:  # otherwise another call has cleared it already
            self._registry.clear()
            if self._cache is not None:
                self._cache.forget("tools/list")
        return await self._look_up(name, end)

    def _is_usable(self, tool: Tool) -> bool:
        """Return whether the tool's header annotations are valid. If not, the tool must not be called over HTTP."""
        from mcplumb.protocol.http_headers import BadAnnotation, param_headers

        try:
            param_headers(tool.input_schema)
        except BadAnnotation as error:
            if tool.name not in self._unusable and len(self._unusable) < _MOST_WARNINGS:
                self._unusable.add(tool.name)
                _logger.warning(
                    "The tool %r of the server cannot be used over HTTP, and is left out. %s", tool.name[:100], error
                )
            return False
        return True

    def _time_left(self, end: float | None) -> float | None:
        return None if end is None else max(0.0, end - self.loop.time())


def _empty_page(kind: type[_Page]) -> _Page:
    return read(kind, {_LIST_FIELDS[kind]: []})


def _refusal(lost: BaseException | None) -> HttpError | RemoteError | None:
    """Return the error response to this very request that ended the session; None if the request was lost otherwise."""
    while isinstance(lost, Closed):
        lost = lost.__cause__
    return lost if isinstance(lost, HttpError | RemoteError) else None


def _refusal_error(refusal: HttpError | RemoteError, what: str) -> McplumbError:
    """Return the final error for a request that keeps ending sessions."""
    if isinstance(refusal, RemoteError):
        return RemoteError(refusal.code, refusal.message, request=what, peer="server")
    return HttpError(refusal.status, f"{what} was refused, and ended {_MAX_SESSIONS} sessions with that. {refusal}")
