"""The client: a server, as those who use it see it."""
# A timeout here is the protocol's: it cancels the request on the server. That of asyncio could not know.
# ruff: noqa: ASYNC109

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from mcpipe.client.changes import Changes
from mcpipe.client.couriers import OnProgress
from mcpipe.client.keeping import Keeper
from mcpipe.client.rounds import MAX_ROUNDS, next_round, read_result
from mcpipe.client.settings import ClientStats
from mcpipe.errors import ProtocolError, UsageError
from mcpipe.revisions import Revision
from mcpipe.types.base import Implementation, Result
from mcpipe.types.capabilities import ServerCapabilities
from mcpipe.types.completion import (
    CompleteParams,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    Reference,
    ResourceTemplateReference,
)
from mcpipe.types.input import InputRequiredResult
from mcpipe.types.log import LOGGING_LEVELS, LoggingLevel
from mcpipe.types.prompts import GetPromptResult, ListPromptsResult, Prompt
from mcpipe.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from mcpipe.types.subscriptions import SubscriptionFilter
from mcpipe.types.tools import CallToolResult, ListToolsResult, Tool
from mcpipe.types.writing import for_revision

__all__ = ["Client"]

_R = TypeVar("_R", bound=Result)
_Page = TypeVar("_Page", ListToolsResult, ListResourcesResult, ListResourceTemplatesResult, ListPromptsResult)

_Timeout: TypeAlias = float | UnsetType | None
_Meta: TypeAlias = dict[str, Any] | None

#: A list with more pages than this has no end.
_MAX_PAGES = 10_000


class Client:
    """A connected server. It belongs to the event loop in which it was connected.

    Every request may raise `RemoteError` (the server answered with an error), `RequestTimeout`, `RequestLost` (the
    connection ended first), `Closed` and `ProtocolError`. Whoever cancels the task that waits for an answer cancels
    the request on the server, too.

    ``timeout`` is in seconds: None for no limit, and the client's own if left out. ``meta`` is added to the request's
    ``_meta``, for instance a ``traceparent``.
    """

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._timeout = keeper.settings.timeout
        self._max_timeout = keeper.settings.max_timeout

    def __repr__(self) -> str:
        name = "unknown" if self.server_info is None else self.server_info.name
        return f"<Client of {name!r}, {self.revision}>"

    @property
    def revision(self) -> Revision:
        """The protocol revision that both sides speak; ``str`` of it is its date."""
        return self._keeper.greeting.revision

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is. A modern one may say nothing."""
        return self._keeper.greeting.server_info

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server says it can do."""
        return self._keeper.greeting.capabilities

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in words for a model."""
        return self._keeper.greeting.instructions

    @property
    def stats(self) -> ClientStats:
        """What this client has seen so far."""
        return self._keeper.session.stats

    async def close(self) -> None:
        """Give up what is open, and leave. From any task, at any time, as often as you like."""
        await self._keeper.close()

    # Tools

    async def list_tools(self, *, timeout: _Timeout = UNSET, meta: _Meta = None) -> list[Tool]:
        """All tools, from all pages."""
        pages = await self._pages("tools/list", ListToolsResult, timeout, meta)
        return [tool for page in pages for tool in page.tools]

    async def tools_page(
        self, cursor: str | None = None, *, timeout: _Timeout = UNSET, meta: _Meta = None
    ) -> ListToolsResult:
        """One page of the tools: the first, or the one that ``next_cursor`` of the page before names."""
        return await self._page("tools/list", ListToolsResult, cursor, timeout, meta)

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: _Timeout = UNSET,
        max_timeout: _Timeout = UNSET,
        on_progress: OnProgress | None = None,
        meta: _Meta = None,
    ) -> CallToolResult:
        """Call a tool. What it says of its own failure is a result too: look at ``is_error``.

        ``on_progress(progress, total, message)`` asks for progress, which extends the timeout, up to ``max_timeout``.
        The time that this client takes to answer the server's questions does not count.
        """
        params = {"name": name, "arguments": arguments or {}}
        return await self._ask("tools/call", params, CallToolResult, timeout, max_timeout, on_progress, meta)

    # Resources

    async def list_resources(self, *, timeout: _Timeout = UNSET, meta: _Meta = None) -> list[Resource]:
        """All resources, from all pages."""
        pages = await self._pages("resources/list", ListResourcesResult, timeout, meta)
        return [resource for page in pages for resource in page.resources]

    async def resources_page(
        self, cursor: str | None = None, *, timeout: _Timeout = UNSET, meta: _Meta = None
    ) -> ListResourcesResult:
        """One page of the resources; see ``tools_page``."""
        return await self._page("resources/list", ListResourcesResult, cursor, timeout, meta)

    async def list_resource_templates(self, *, timeout: _Timeout = UNSET, meta: _Meta = None) -> list[ResourceTemplate]:
        """All resource templates, from all pages."""
        pages = await self._pages("resources/templates/list", ListResourceTemplatesResult, timeout, meta)
        return [template for page in pages for template in page.resource_templates]

    async def resource_templates_page(
        self, cursor: str | None = None, *, timeout: _Timeout = UNSET, meta: _Meta = None
    ) -> ListResourceTemplatesResult:
        """One page of the resource templates; see ``tools_page``."""
        return await self._page("resources/templates/list", ListResourceTemplatesResult, cursor, timeout, meta)

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: _Timeout = UNSET,
        max_timeout: _Timeout = UNSET,
        on_progress: OnProgress | None = None,
        meta: _Meta = None,
    ) -> ReadResourceResult:
        """The contents of a resource; otherwise as ``call_tool``."""
        params = {"uri": uri}
        return await self._ask("resources/read", params, ReadResourceResult, timeout, max_timeout, on_progress, meta)

    # Prompts

    async def list_prompts(self, *, timeout: _Timeout = UNSET, meta: _Meta = None) -> list[Prompt]:
        """All prompts, from all pages."""
        pages = await self._pages("prompts/list", ListPromptsResult, timeout, meta)
        return [prompt for page in pages for prompt in page.prompts]

    async def prompts_page(
        self, cursor: str | None = None, *, timeout: _Timeout = UNSET, meta: _Meta = None
    ) -> ListPromptsResult:
        """One page of the prompts; see ``tools_page``."""
        return await self._page("prompts/list", ListPromptsResult, cursor, timeout, meta)

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, str] | None = None,
        *,
        timeout: _Timeout = UNSET,
        max_timeout: _Timeout = UNSET,
        on_progress: OnProgress | None = None,
        meta: _Meta = None,
    ) -> GetPromptResult:
        """The messages of a prompt; otherwise as ``call_tool``."""
        params = {"name": name, "arguments": arguments or {}}
        return await self._ask("prompts/get", params, GetPromptResult, timeout, max_timeout, on_progress, meta)

    async def complete(
        self,
        ref: Reference | str,
        argument: str,
        value: str,
        context: dict[str, str] | None = None,
        *,
        timeout: _Timeout = UNSET,
        meta: _Meta = None,
    ) -> Completion:
        """What ``value`` may become, as the value of an argument of a prompt or of a resource template.

        ``ref`` is the prompt's name, or the template. ``context`` has the values that other arguments already have.
        """
        if isinstance(ref, str):
            ref = ResourceTemplateReference(ref) if "://" in ref else PromptReference(ref)
        known = None if context is None else CompletionContext(context)
        params = for_revision(CompleteParams(ref, CompletionArgument(argument, value), known), self.revision)
        fields: dict[str, Any] = msgspec.to_builtins(params)
        answer = await self._ask("completion/complete", fields, CompleteResult, timeout, UNSET, None, meta)
        return answer.completion

    # Changes

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources_list: bool = False,
        resources: Iterable[str] = (),
        timeout: _Timeout = UNSET,
    ) -> Changes:
        """Hear of changes: of the three lists, and of the resources with these addresses.

        ``async with client.listen(tools=True) as changes``, and then ``async for change in changes``. The block is
        entered when the server has agreed; ``changes.honoured`` says to how much. The timeout is for that.
        """
        if isinstance(resources, str):
            raise UsageError("listen takes a list of addresses in resources=, and not a single one.")
        wanted = SubscriptionFilter(
            tools_list_changed=tools or None,
            prompts_list_changed=prompts or None,
            resources_list_changed=resources_list or None,
            resource_subscriptions=list(dict.fromkeys(resources)) or None,
        )
        if wanted == SubscriptionFilter():
            raise UsageError("listen needs something to listen for: tools, prompts, resources_list or resources.")
        return self._keeper.session.listen(wanted, self._limits(timeout, UNSET)[0])

    # The rest

    async def ping(self, *, timeout: _Timeout = UNSET) -> None:
        """Find out whether the server answers."""
        method = "ping" if self.revision.has_ping else "server/discover"
        await self._ask(method, {}, Result, timeout, UNSET, None, None)

    async def set_log_level(self, level: LoggingLevel, *, timeout: _Timeout = UNSET) -> None:
        """Ask for the server's log messages from this level on; ``on_log`` gets them.

        A modern server is told with each request that follows.
        """
        if level not in LOGGING_LEVELS:
            raise UsageError(f"There is no log level {level!r}: use one of {', '.join(LOGGING_LEVELS)}.")
        if self.revision.has_set_level:
            await self._ask("logging/setLevel", {"level": level}, Result, timeout, UNSET, None, None)
        else:
            self._keeper.session.set_log_level(level)

    async def roots_changed(self) -> None:
        """Tell the server that the roots are not what they were. A modern one asks when it wants to know."""
        if self.revision.has_roots_list_changed:
            await self.notify("notifications/roots/list_changed")

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        timeout: _Timeout = UNSET,
        max_timeout: _Timeout = UNSET,
        on_progress: OnProgress | None = None,
        meta: _Meta = None,
    ) -> Any:
        """Send any request, for instance that of an extension. The result is plain data, and is not checked."""
        params = dict(params or {})
        own = params.pop("_meta", None)
        timeout, max_timeout = self._limits(timeout, max_timeout)
        raw = await self._keeper.session.request(
            method,
            params,
            timeout=timeout,
            max_timeout=max_timeout,
            meta=meta if own is None else {**own, **(meta or {})},
            on_progress=on_progress,
        )
        return msgspec.json.decode(raw)

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send any notification."""
        await self._keeper.session.notify(method, UNSET if params is None else params)

    async def _ask(
        self,
        method: str,
        params: dict[str, Any],
        kind: type[_R],
        timeout: _Timeout,
        max_timeout: _Timeout,
        on_progress: OnProgress | None,
        meta: _Meta,
    ) -> _R:
        keeper = self._keeper
        revision = keeper.greeting.revision
        timeout, max_timeout = self._limits(timeout, max_timeout)
        for _ in range(MAX_ROUNDS):
            raw = await keeper.session.request(
                method, params, timeout=timeout, max_timeout=max_timeout, meta=meta, on_progress=on_progress
            )
            result = read_result(kind, raw, method, revision)
            if not isinstance(result, InputRequiredResult):
                return result
            params = await next_round(result, params, keeper.settings.inputs, revision)
        raise ProtocolError(f"The server asked for input {MAX_ROUNDS} times, and did not come to a result of {method}.")

    async def _page(self, method: str, kind: type[_Page], cursor: str | None, timeout: _Timeout, meta: _Meta) -> _Page:
        params = {} if cursor is None else {"cursor": cursor}
        return await self._ask(method, params, kind, timeout, UNSET, None, meta)

    async def _pages(self, method: str, kind: type[_Page], timeout: _Timeout, meta: _Meta) -> list[_Page]:
        pages = [await self._page(method, kind, None, timeout, meta)]
        seen = set()
        while (cursor := pages[-1].next_cursor) is not None:
            if cursor in seen or len(pages) >= _MAX_PAGES:
                raise ProtocolError(f"The pages of {method} have no end: the server names the same ones again.")
            seen.add(cursor)
            pages.append(await self._page(method, kind, cursor, timeout, meta))
        return pages

    def _limits(self, timeout: _Timeout, max_timeout: _Timeout) -> tuple[float | None, float | None]:
        if timeout is UNSET:
            timeout = self._timeout
        if max_timeout is UNSET:
            max_timeout = self._max_timeout
            if timeout is None:
                max_timeout = None
            elif max_timeout is not None:
                # Who allows a call more than is usual means it.
                max_timeout = max(timeout, max_timeout)
        return timeout, max_timeout
