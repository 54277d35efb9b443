"""`Client`: the public methods for talking to one server."""
# ``timeout`` parameters are part of the protocol: an expired one also cancels the request on the server.
# ruff: noqa: ASYNC109

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from mcplumb.client.client_settings import ClientStats
from mcplumb.client.requests import Meta, Requests, Timeout
from mcplumb.client.subscriptions import Changes
from mcplumb.client.supervisor import Supervisor
from mcplumb.errors import UsageError
from mcplumb.revisions import Revision
from mcplumb.rpc.user_callbacks import OnProgress
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
    from mcplumb.client.process_link import ServerProcess

__all__ = ["Client"]


class Client:
    """A connection to one server. It belongs to the event loop in which it was opened.

    Every request may raise `RemoteError` (the server answered with an error), `RequestTimeout`, `RequestLost` (the
    server was lost before it answered, and sending the request again is not safe), `ServerDown` (it was lost too
    often), `Closed` and `ProtocolError`. Cancelling the task that awaits a request also cancels the request on the
    server.

    ``timeout`` is in seconds: None means no limit; if omitted, the client's own timeout applies. ``meta`` is added to
    the request's ``_meta``, for example a ``traceparent``.
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
        """The server's name and version. A modern server may omit them."""
        return self._supervisor.handshake_result.server_info

    @property
    def capabilities(self) -> ServerCapabilities:
        """The capabilities that the server declares."""
        return self._supervisor.handshake_result.capabilities

    @property
    def instructions(self) -> str | None:
        """Instructions for a model on how to use the server."""
        return self._supervisor.handshake_result.instructions

    @property
    def stats(self) -> ClientStats:
        """Counters over all connections of this client."""
        return self._supervisor.stats

    @property
    def process(self) -> ServerProcess | None:
        """The server's process: pid, uptime, restarts and their reasons. None if the client did not start it."""
        return self._supervisor.link.process

    async def close(self) -> None:
        """Cancel open requests and close the connection. May be called from any task, at any time, repeatedly."""
        await self._supervisor.close()

    # Tools

    async def list_tools(self, *, timeout: Timeout = UNSET, meta: Meta = None) -> list[Tool]:
        """Return all tools, from all pages. Empty, without a request, if the server declares that it has none."""
        options = self._requests.options(timeout, meta=meta)
        pages = await self._requests.pages("tools/list", ListToolsResult, options)
        return [tool for page in pages for tool in page.tools]

    async def tools_page(
        self, cursor: str | None = None, *, timeout: Timeout = UNSET, meta: Meta = None
    ) -> ListToolsResult:
        """Return one page of the tools: the first, or the one for the ``next_cursor`` of the previous page."""
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
        """Call a tool and return its result. A tool that fails returns a result, too: see ``is_error``.

        ``result.text`` is its text, ``result.structured_content`` its data, and ``result.raise_for_error()`` raises
        `ToolFailed` if the tool failed.

        Where output is checked, a result that does not match the tool's output schema raises `ProtocolError`.
        ``on_progress(progress, total, message)`` requests progress, which extends the timeout, up to ``max_timeout``.
        The time that this client takes to answer the server's requests for input does not count.
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
        """Return all resources, from all pages. Empty, without a request, if the server declares that it has none."""
        pages = await self._requests.pages(
            "resources/list", ListResourcesResult, self._requests.options(timeout, meta=meta)
        )
        return [resource for page in pages for resource in page.resources]

    async def resources_page(
        self, cursor: str | None = None, *, timeout: Timeout = UNSET, meta: Meta = None
    ) -> ListResourcesResult:
        """Return one page of the resources; see ``tools_page``."""
        options = self._requests.options(timeout, meta=meta)
        return await self._requests.page("resources/list", ListResourcesResult, cursor, options)

    async def list_resource_templates(self, *, timeout: Timeout = UNSET, meta: Meta = None) -> list[ResourceTemplate]:
        """Return all resource templates, from all pages. Empty like ``list_resources``."""
        pages = await self._requests.pages(
            "resources/templates/list", ListResourceTemplatesResult, self._requests.options(timeout, meta=meta)
        )
        return [template for page in pages for template in page.resource_templates]

    async def resource_templates_page(
        self, cursor: str | None = None, *, timeout: Timeout = UNSET, meta: Meta = None
    ) -> ListResourceTemplatesResult:
        """Return one page of the resource templates; see ``tools_page``."""
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
        """Return the contents of a resource. For the parameters, see ``call_tool``."""
        options = self._requests.options(timeout, max_timeout, on_progress, meta)
        return await self._requests.ask_cached("resources/read", {"uri": uri}, ReadResourceResult, options)

    # Prompts

    async def list_prompts(self, *, timeout: Timeout = UNSET, meta: Meta = None) -> list[Prompt]:
        """Return all prompts, from all pages. Empty, without a request, if the server declares that it has none."""
        pages = await self._requests.pages(
            "prompts/list", ListPromptsResult, self._requests.options(timeout, meta=meta)
        )
        return [prompt for page in pages for prompt in page.prompts]

    async def prompts_page(
        self, cursor: str | None = None, *, timeout: Timeout = UNSET, meta: Meta = None
    ) -> ListPromptsResult:
        """Return one page of the prompts; see ``tools_page``."""
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
        """Return the messages of a prompt; all its arguments are strings. For the parameters, see ``call_tool``."""
        _check_strings(name, arguments)
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
        """Return completions of ``value`` for an argument of a prompt or of a resource template.

        ``ref`` is the name of the prompt, or the template. ``context`` holds the values of the other arguments.
        """
        if isinstance(ref, str):
            ref = ResourceTemplateReference(ref) if "://" in ref else PromptReference(ref)
        of = ref.uri if isinstance(ref, ResourceTemplateReference) else getattr(ref, "name", ref)
        _check_strings(of, context)
        _check_strings(of, {argument: value})
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
        """Subscribe to changes of the three lists and of the resources with these URIs.

        ``async with client.listen(tools=True) as changes``, and then ``async for change in changes``. The block is
        entered when the server has acknowledged the subscription; ``changes.honoured`` says which parts of it. The
        timeout applies to that acknowledgement.
        """
        if isinstance(resources, str):
            raise UsageError("listen takes a list of addresses in resources=, not a single one.")
        wanted = SubscriptionFilter(
            tools_list_changed=tools or None,
            prompts_list_changed=prompts or None,
            resources_list_changed=resources_list or None,
            resource_subscriptions=list(dict.fromkeys(resources)) or None,
        )
        if wanted == SubscriptionFilter():
            raise UsageError("listen needs something to listen for: tools, prompts, resources_list or resources.")
        return Changes(self._supervisor.subscriptions, wanted, self._requests.options(timeout).timeout)

    # The rest

    async def ping(self, *, timeout: Timeout = UNSET) -> None:
        """Check that the server answers."""
        method = "ping" if self.revision.has_ping else "server/discover"
        await self._requests.ask(method, {}, Result, self._requests.options(timeout))

    async def set_log_level(self, level: LoggingLevel, *, timeout: Timeout = UNSET) -> None:
        """Request log messages of this level and above; ``on_log`` receives them.

        A modern server gets the level with every later request.
        """
        if level not in LOGGING_LEVELS:
            raise UsageError(f"There is no log level {level!r}: use one of {', '.join(LOGGING_LEVELS)}.")
        if self.revision.has_set_level:
            await self._requests.ask("logging/setLevel", {"level": level}, Result, self._requests.options(timeout))
        self._supervisor.set_log_level(level)

    async def roots_changed(self) -> None:
        """Notify the server that the roots have changed. Does nothing in the modern era, where servers ask for them."""
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
        """Send any request, for example one of an extension, and return its result as plain data, unchecked."""
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


def _check_strings(of: object, arguments: Any) -> None:
    """Raise `UsageError` for an argument that is no string: the server's error might not name it."""
    for name, value in arguments.items() if isinstance(arguments, dict) else ():
        if not isinstance(value, str):
            raise UsageError(f"The argument {name!r} of {of!r} is {reprlib.repr(value)}: it must be a string.")
