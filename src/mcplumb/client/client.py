"""The client: a server, as those who use it see it."""
# A timeout here is the protocol's: it cancels the request on the server. That of asyncio could not know.
# ruff: noqa: ASYNC109

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from mcplumb.client.options import ClientStats
from mcplumb.client.requests import Meta, Requests, Timeout
from mcplumb.client.subscriptions import Changes
from mcplumb.client.supervisor import Supervisor
from mcplumb.errors import UsageError
from mcplumb.revisions import Revision
from mcplumb.rpc.callback_queue import OnProgress
from mcplumb.types.base import Implementation, Result
from mcplumb.types.lifecycle import ServerCapabilities
from mcplumb.types.notification_params import LOGGING_LEVELS, LoggingLevel, SubscriptionFilter
from mcplumb.types.payload_decoder import read
from mcplumb.types.prompts import (
    CompleteParams,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    GetPromptResult,
    ListPromptsResult,
    Prompt,
    PromptReference,
    Reference,
    ResourceTemplateReference,
)
from mcplumb.types.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from mcplumb.types.revision_adapter import for_revision
from mcplumb.types.tools import CallToolResult, ListToolsResult, Tool

if TYPE_CHECKING:
    from mcplumb.client.links.process_link import ServerProcess

__all__ = ["Client"]


class Client:
    """A connected server. It belongs to the event loop in which it was connected.

    Every request may raise `RemoteError` (the server answered with an error), `RequestTimeout`, `RequestLost` (the
    server was lost before it answered, and sending the request again is not safe), `ServerDown` (it was lost too
    often), `Closed` and `ProtocolError`. Whoever cancels the task that waits for an answer cancels the request on the
    server, too.

    ``timeout`` is in seconds: None for no limit, and the client's own if left out. ``meta`` is added to the request's
    ``_meta``, for instance a ``traceparent``.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._requests = Requests(supervisor)

    def __repr__(self) -> str:
        name = "unknown" if self.server_info is None else self.server_info.name
        return f"<Client of {name!r}, {self.revision}>"

    @property
    def revision(self) -> Revision:
        """The protocol revision that both sides speak; ``str`` of it is its date."""
        return self._supervisor.handshake_result.revision

    @property
    def server_info(self) -> Implementation | None:
        """Who the server says it is. A modern one may say nothing."""
        return self._supervisor.handshake_result.server_info

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server says it can do."""
        return self._supervisor.handshake_result.capabilities

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in words for a model."""
        return self._supervisor.handshake_result.instructions

    @property
    def stats(self) -> ClientStats:
        """What this client has seen so far."""
        return self._supervisor.stats

    @property
    def process(self) -> ServerProcess | None:
        """The server's process: its pid, its uptime, how often and why it was started again. None if it is not ours."""
        return self._supervisor.link.process

    async def close(self) -> None:
        """Give up what is open, and leave. From any task, at any time, as often as you like."""
        await self._supervisor.close()

    # Tools

    async def list_tools(self, *, timeout: Timeout = UNSET, meta: Meta = None) -> list[Tool]:
        """All tools, from all pages."""
        options = self._requests.options(timeout, meta=meta)
        pages = await self._requests.pages("tools/list", ListToolsResult, options)
        return [tool for page in pages for tool in page.tools]

    async def tools_page(
        self, cursor: str | None = None, *, timeout: Timeout = UNSET, meta: Meta = None
    ) -> ListToolsResult:
        """One page of the tools: the first, or the one that ``next_cursor`` of the page before names."""
        options = self._requests.options(timeout, meta=meta)
        return await self._requests.page("tools/list", ListToolsResult, cursor, options)

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        timeout: Timeout = UNSET,
        max_timeout: Timeout = UNSET,
        on_progress: OnProgress | None = None,
        meta: Meta = None,
    ) -> CallToolResult:
        """Call a tool. What it says of its own failure is a result too: look at ``is_error``.

        A result that is not what the tool's output schema promises raises `ProtocolError`, where that is checked.
        ``on_progress(progress, total, message)`` asks for progress, which extends the timeout, up to ``max_timeout``.
        The time that this client takes to answer the server's questions does not count.
        """
        requests = self._requests
        if timeout is UNSET and max_timeout is UNSET and on_progress is None and meta is None:
            options = requests.usual_options
        else:
            options = requests.options(timeout, max_timeout, on_progress, meta)
        params = {"name": name, "arguments": arguments or {}}
        start = requests.loop.time()
        result = await requests.ask("tools/call", params, CallToolResult, options, start)
        if result.structured_content is not None or name in requests.with_output_schema:
            await requests.validate_output(name, result, options, start)
        return result

    # Resources

    async def list_resources(self, *, timeout: Timeout = UNSET, meta: Meta = None) -> list[Resource]:
        """All resources, from all pages."""
        pages = await self._requests.pages(
            "resources/list", ListResourcesResult, self._requests.options(timeout, meta=meta)
        )
        return [resource for page in pages for resource in page.resources]

    async def resources_page(
        self, cursor: str | None = None, *, timeout: Timeout = UNSET, meta: Meta = None
    ) -> ListResourcesResult:
        """One page of the resources; see ``tools_page``."""
        options = self._requests.options(timeout, meta=meta)
        return await self._requests.page("resources/list", ListResourcesResult, cursor, options)

    async def list_resource_templates(self, *, timeout: Timeout = UNSET, meta: Meta = None) -> list[ResourceTemplate]:
        """All resource templates, from all pages."""
        pages = await self._requests.pages(
            "resources/templates/list", ListResourceTemplatesResult, self._requests.options(timeout, meta=meta)
        )
        return [template for page in pages for template in page.resource_templates]

    async def resource_templates_page(
        self, cursor: str | None = None, *, timeout: Timeout = UNSET, meta: Meta = None
    ) -> ListResourceTemplatesResult:
        """One page of the resource templates; see ``tools_page``."""
        options = self._requests.options(timeout, meta=meta)
        return await self._requests.page("resources/templates/list", ListResourceTemplatesResult, cursor, options)

    async def read_resource(
        self,
        uri: str,
        *,
        timeout: Timeout = UNSET,
        max_timeout: Timeout = UNSET,
        on_progress: OnProgress | None = None,
        meta: Meta = None,
    ) -> ReadResourceResult:
        """The contents of a resource; otherwise as ``call_tool``."""
        options = self._requests.options(timeout, max_timeout, on_progress, meta)
        return await self._requests.ask_cached("resources/read", {"uri": uri}, ReadResourceResult, options)

    # Prompts

    async def list_prompts(self, *, timeout: Timeout = UNSET, meta: Meta = None) -> list[Prompt]:
        """All prompts, from all pages."""
        pages = await self._requests.pages(
            "prompts/list", ListPromptsResult, self._requests.options(timeout, meta=meta)
        )
        return [prompt for page in pages for prompt in page.prompts]

    async def prompts_page(
        self, cursor: str | None = None, *, timeout: Timeout = UNSET, meta: Meta = None
    ) -> ListPromptsResult:
        """One page of the prompts; see ``tools_page``."""
        options = self._requests.options(timeout, meta=meta)
        return await self._requests.page("prompts/list", ListPromptsResult, cursor, options)

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, str] | None = None,
        *,
        timeout: Timeout = UNSET,
        max_timeout: Timeout = UNSET,
        on_progress: OnProgress | None = None,
        meta: Meta = None,
    ) -> GetPromptResult:
        """The messages of a prompt; otherwise as ``call_tool``."""
        params = {"name": name, "arguments": arguments or {}}
        options = self._requests.options(timeout, max_timeout, on_progress, meta)
        return await self._requests.ask("prompts/get", params, GetPromptResult, options)

    async def complete(
        self,
        ref: Reference | str,
        argument: str,
        value: str,
        context: dict[str, str] | None = None,
        *,
        timeout: Timeout = UNSET,
        meta: Meta = None,
    ) -> Completion:
        """What ``value`` may become, as the value of an argument of a prompt or of a resource template.

        ``ref`` is the prompt's name, or the template. ``context`` has the values that other arguments already have.
        """
        if isinstance(ref, str):
            ref = ResourceTemplateReference(ref) if "://" in ref else PromptReference(ref)
        known = None if context is None else CompletionContext(context)
        params = for_revision(CompleteParams(ref, CompletionArgument(argument, value), known), self.revision)
        fields: dict[str, Any] = msgspec.to_builtins(params)
        options = self._requests.options(timeout, meta=meta)
        answer = await self._requests.ask("completion/complete", fields, CompleteResult, options)
        return answer.completion

    # Changes

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources_list: bool = False,
        resources: Iterable[str] = (),
        timeout: Timeout = UNSET,
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
        return Changes(self._supervisor.listening, wanted, self._requests.options(timeout).timeout)

    # The rest

    async def ping(self, *, timeout: Timeout = UNSET) -> None:
        """Find out whether the server answers."""
        method = "ping" if self.revision.has_ping else "server/discover"
        await self._requests.ask(method, {}, Result, self._requests.options(timeout))

    async def set_log_level(self, level: LoggingLevel, *, timeout: Timeout = UNSET) -> None:
        """Ask for the server's log messages from this level on; ``on_log`` gets them.

        A modern server is told with each request that follows.
        """
        if level not in LOGGING_LEVELS:
            raise UsageError(f"There is no log level {level!r}: use one of {', '.join(LOGGING_LEVELS)}.")
        if self.revision.has_set_level:
            await self._requests.ask("logging/setLevel", {"level": level}, Result, self._requests.options(timeout))
        self._supervisor.set_log_level(level)

    async def roots_changed(self) -> None:
        """Tell the server that the roots are not what they were. A modern one asks when it wants to know."""
        if self.revision.has_roots_list_changed:
            await self.notify("notifications/roots/list_changed")

    async def request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        timeout: Timeout = UNSET,
        max_timeout: Timeout = UNSET,
        on_progress: OnProgress | None = None,
        meta: Meta = None,
    ) -> Any:
        """Send any request, for instance that of an extension. The result is plain data, and is not checked."""
        params = dict(params or {})
        own = params.pop("_meta", None)
        meta = meta if own is None else {**own, **(meta or {})}
        options = self._requests.options(timeout, max_timeout, on_progress, meta)
        raw = await self._requests.ask(method, params, msgspec.Raw, options)
        return read(object, raw, what="result of " + method)

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send any notification."""
        session = await self._supervisor.ready(method, self._supervisor.settings.timeout)
        await session.notify(method, UNSET if params is None else params)
