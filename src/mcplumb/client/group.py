"""`connect_all`: several servers as one. Each has its own client; a broken one does not affect the others."""
# ``timeout`` parameters are part of the protocol: an expired one also cancels the request on the server.
# ruff: noqa: ASYNC109

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from mcplumb.client.client import Client
from mcplumb.client.client_settings import DEFAULT_MAX_TIMEOUT, DEFAULT_TIMEOUT, OnLog
from mcplumb.client.connector import OWN_INFO, Target
from mcplumb.client.group_changes import GroupChanges
from mcplumb.client.group_member import GroupMember, Servers, all_failed, named, new_member, read_members
from mcplumb.client.input_handlers import OnElicit, OnSample, Roots
from mcplumb.client.requests import Meta, Timeout
from mcplumb.errors import Closed, ConnectError, McplumbError, UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.protocol.era import DEFAULT_WAITS, EraWaits
from mcplumb.protocol.group_routing import GroupNames, Origin, template_claims
from mcplumb.protocol.restart import ResendPolicy, RestartPolicy
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.rpc.user_callbacks import OnProgress
from mcplumb.types.base import Implementation
from mcplumb.types.lifecycle import ClientCapabilities
from mcplumb.types.prompts import Completion, GetPromptResult, Prompt, PromptReference, Reference
from mcplumb.types.resources import ReadResourceResult, Resource, ResourceTemplate
from mcplumb.types.tools import CallToolResult, Tool

if TYPE_CHECKING:
    from mcplumb.transports.process.stderr import StderrMode

__all__ = ["ConnectingAll", "Group", "GroupUpdate", "UnknownName", "connect_all"]

T = TypeVar("T")

_logger = logging.getLogger("mcplumb.client")

_DEFAULT_STOP = StopLadder()
#: The number of names in an error.
_MAX_NAMED = 20


class GroupUpdate(msgspec.Struct, frozen=True):
    """What ``Group.update`` changed: the names of servers. Those that failed are in ``Group.failures``."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    #: Connected again, because their entries differ.
    changed: tuple[str, ...] = ()
    #: Connected, after an earlier attempt had failed.
    recovered: tuple[str, ...] = ()


def connect_all(
    servers: Servers,
    *,
    prefix: bool = True,
    only: Iterable[str] = (),
    hide: Iterable[str] = (),
    # As for `connect`
    timeout: float | None = DEFAULT_TIMEOUT,
    max_timeout: float | None = DEFAULT_MAX_TIMEOUT,
    restart: RestartPolicy | bool = True,
    retry: ResendPolicy = "safe",
    cache: bool = True,
    check_output: bool | None = None,
    on_elicit: OnElicit | None = None,
    on_sample: OnSample | None = None,
    roots: Roots | None = None,
    on_log: OnLog | None = None,
    stderr: StderrMode = "inherit",
    stop: StopLadder = _DEFAULT_STOP,
    revisions: Iterable[str] | None = None,
    client_info: Implementation | None = OWN_INFO,
    capabilities: ClientCapabilities | None = None,
    waits: EraWaits = DEFAULT_WAITS,
    era_memory: str | os.PathLike[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> ConnectingAll:
    """Connect to several servers at once: ``async with connect_all({"weather": "python weather.py"}) as group``.

    ``servers`` is a mapping of names to what `connect` takes. Where one server needs options of its own, give a mapping
    with its ``target`` and these options: ``{"notes": {"target": "https://…", "token": "…"}}``. Or it is a config: a
    loaded one, or the contents of a config file, ``{"mcpServers": {"weather": {"command": "python", …}}}``, as for
    `load_config`. Entries that it marks as disabled are left out.

    The servers are started at the same time. One that fails is logged, listed in ``group.failures`` and left out;
    only if all of them fail, `ConnectError` is raised.

    Options:

    * ``prefix``: whether names begin with the server's: the tool ``forecast`` of ``weather`` is ``weather_forecast``.
      Without prefixes, a name that several servers have still gets them.
    * ``only``, ``hide``: glob patterns for these names. Tools and prompts that they exclude are neither listed nor
      called.
    * All other options are those of `connect`, for each server. ``stderr`` applies to servers that are started; a
      folder gets one file for each.
    """
    shared = {
        "stderr": stderr,
        "timeout": timeout,
        "max_timeout": max_timeout,
        "restart": restart,
        "retry": retry,
        "revisions": None if revisions is None else tuple(revisions),
        "on_elicit": on_elicit,
        "on_sample": on_sample,
        "roots": roots,
        "on_log": on_log,
        "client_info": client_info,
        "capabilities": capabilities,
        "cache": cache,
        "check_output": check_output,
        "era_memory": era_memory,
        "limits": limits,
        "waits": waits,
        "stop": stop,
    }
    names = [GroupNames(prefix=prefix, only=only, hide=hide) for _ in range(2)]
    return ConnectingAll(Group(shared, *names), servers)


class ConnectingAll:
    """The return value of `connect_all`: enter it with ``async with``, or await it and close the group yourself."""

    def __init__(self, group: Group, servers: Servers) -> None:
        self._group = group
        self._servers = servers

    async def __aenter__(self) -> Group:
        await self._group._open(self._servers)
        return self._group

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._group.close()

    def __await__(self) -> Generator[Any, Any, Group]:
        return self.__aenter__().__await__()


# --- The group ---


class Group(Mapping[str, Client]):
    """Several servers as one. ``group["name"]`` is the client of one of them; iterating gives the connected ones.

    Requests are those of `Client`, and their errors name the server. Tools and prompts have the names of the group,
    ``server_tool``; resources keep their URIs. A server that crashes is restarted like any other, and meanwhile only
    its own requests wait or fail. It belongs to the event loop in which it was opened.
    """

    def __init__(self, shared: dict[str, Any], tools: GroupNames, prompts: GroupNames) -> None:
        self._shared = shared
        self._tools = tools
        self._prompts = prompts
        self._members: dict[str, GroupMember] = {}
        #: The URIs and templates of each server, as last listed.
        self._uris: dict[str, frozenset[str]] = {}
        self._templates: dict[str, tuple[str, ...]] = {}
        self._listeners: set[GroupChanges] = set()
        # Members are added, removed and replaced by one task at a time.
        self._changing = asyncio.Lock()
        self._is_open = False
        self._closing: asyncio.Task[None] | None = None

    # A group is itself, whatever it contains.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        failed = f", without {', '.join(self.failures)}" if self.failures else ""
        return f"<Group of {', '.join(self) or 'no servers'}{failed}>"

    def __getitem__(self, name: str) -> Client:
        member = self._members.get(name)
        if member is None:
            raise _unknown("server", name, self._members)
        if member.client is None:
            raise ConnectError(f"Server {name!r} is not connected: {member.reason}") from member.error
        return member.client

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._members and self._members[name].client is not None

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, member in self._members.items() if member.client is not None])

    def __len__(self) -> int:
        return sum(member.client is not None for member in self._members.values())

    @property
    def failures(self) -> dict[str, Exception]:
        """The servers that are not connected, and why. ``reconnect`` tries again."""
        return {name: it.reason for name, it in self._members.items() if it.client is None}

    async def close(self) -> None:
        """Close all connections at the same time. May be called from any task, repeatedly.

        If cancelled, it goes on in the background.
        """
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    # Members

    async def add(self, name: str, target: Target | Mapping[str, Any]) -> Client:
        """Add a server and return its client. If connecting fails, the error is raised and the group is unchanged."""
        async with self._changing:
            self._check_open()
            if name in self._members:
                raise UsageError(f"The group has a server {name!r} already: remove it first.")
            member = new_member(name, target)
            self._join(member)
            try:
                await self._start(member)
                return member.connected()
            except BaseException:
                self._leave(name)
                await member.close()
                raise

    async def remove(self, name: str) -> None:
        """Remove a server, and close its connection."""
        async with self._changing:
            self._check_open()
            if name not in self._members:
                raise _unknown("server", name, self._members)
            member = self._leave(name)
            self._announce(name)
            await member.close()

    async def reconnect(self, name: str) -> Client:
        """Connect again to a server, for example one that failed, and return its client; raise if it fails again."""
        async with self._changing:
            self._check_open()
            if name not in self._members:
                raise _unknown("server", name, self._members)
            member = self._members[name].again()
            await self._replace(member)
            return member.connected()

    async def update(self, servers: Servers) -> GroupUpdate:
        """Change the group to these servers, for example after its config has changed; return what differs.

        Servers whose entries are the same are not disturbed, except that those that had failed are tried again.
        """
        async with self._changing:
            self._check_open()
            new = read_members(servers)
            old = self._members
            added = [name for name in new if name not in old]
            removed = [name for name in old if name not in new]
            changed = [name for name in new if name in old and not old[name].is_like(new[name])]
            failed = [name for name in new if name in old and name not in changed and old[name].client is None]
            left = [self._leave(name) for name in removed]
            for name in added:
                self._join(new[name])
            self._members = {name: self._members[name] for name in new}
            async with asyncio.TaskGroup() as tasks:
                for member in left:
                    self._announce(member.name)
                    tasks.create_task(member.close())
                for name in added:
                    tasks.create_task(self._start(new[name]))
                for name in (*changed, *failed):
                    tasks.create_task(self._replace(new[name]))
            recovered = tuple(name for name in failed if name in self)
            return GroupUpdate(tuple(added), tuple(removed), tuple(changed), recovered)

    # Tools

    async def list_tools(self, *, timeout: Timeout = UNSET, meta: Meta = None) -> list[Tool]:
        """Return the tools of all servers, with their names in the group.

        A server that cannot list its tools is logged and left out; if none can, the error is raised.
        """
        listed = await self._list("tools/list", lambda client: client.list_tools(timeout=timeout, meta=meta))
        return _renamed(self._tools, listed)

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
        """Call a tool by its name in the group; see `Client.call_tool`."""
        origin = self._tools.find(name) or await self._look_up("tool", name)
        client = self._client_for(origin.server, name)
        try:
            return await client.call_tool(
                origin.name, arguments, timeout=timeout, max_timeout=max_timeout, on_progress=on_progress, meta=meta
            )
        except McplumbError as error:
            raise named(origin.server, error) from error

    async def find_tool(self, name: str) -> Origin:
        """Return the server of a tool, and the tool's name there."""
        return self._tools.find(name) or await self._look_up("tool", name)

    # Prompts

    async def list_prompts(self, *, timeout: Timeout = UNSET, meta: Meta = None) -> list[Prompt]:
        """Return the prompts of all servers, with their names in the group; see ``list_tools``."""
        listed = await self._list("prompts/list", lambda client: client.list_prompts(timeout=timeout, meta=meta))
        return _renamed(self._prompts, listed)

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
        """Return the messages of a prompt, by its name in the group; see `Client.get_prompt`."""
        origin = await self.find_prompt(name)
        client = self._client_for(origin.server, name)
        try:
            return await client.get_prompt(
                origin.name, arguments, timeout=timeout, max_timeout=max_timeout, on_progress=on_progress, meta=meta
            )
        except McplumbError as error:
            raise named(origin.server, error) from error

    async def find_prompt(self, name: str) -> Origin:
        """Return the server of a prompt, and the prompt's name there."""
        return self._prompts.find(name) or await self._look_up("prompt", name)

    # Resources

    async def list_resources(self, *, timeout: Timeout = UNSET, meta: Meta = None) -> list[Resource]:
        """Return the resources of all servers; see ``list_tools``. ``find_resource`` says which servers have a URI."""
        listed = await self._list("resources/list", lambda client: client.list_resources(timeout=timeout, meta=meta))
        self._uris.update({server: frozenset(it.uri for it in found) for server, found in listed.items()})
        return [resource for found in listed.values() for resource in found]

    async def list_resource_templates(self, *, timeout: Timeout = UNSET, meta: Meta = None) -> list[ResourceTemplate]:
        """Return the resource templates of all servers; see ``list_tools``."""
        listed = await self._list(
            "resources/templates/list", lambda client: client.list_resource_templates(timeout=timeout, meta=meta)
        )
        self._templates.update({server: tuple(it.uri_template for it in found) for server, found in listed.items()})
        return [template for found in listed.values() for template in found]

    async def read_resource(
        self,
        uri: str,
        *,
        server: str | None = None,
        timeout: Timeout = UNSET,
        max_timeout: Timeout = UNSET,
        on_progress: OnProgress | None = None,
        meta: Meta = None,
    ) -> ReadResourceResult:
        """Return the contents of a resource, from the server that lists it or has a template for it.

        If several do, `UsageError` names them, and ``server`` selects one.
        """
        server = server if server is not None else self._one_of(await self.find_resource(uri), uri)
        client = self._client_for(server, uri)
        try:
            return await client.read_resource(
                uri, timeout=timeout, max_timeout=max_timeout, on_progress=on_progress, meta=meta
            )
        except McplumbError as error:
            raise named(server, error) from error

    async def find_resource(self, uri: str) -> list[str]:
        """Return the servers that list this URI, or else those with a template for it.

        The servers are asked for their lists if the lists seen last do not have it.
        """
        found = self._servers_with(uri)
        if not found:
            await self._list_all_resources()
            found = self._servers_with(uri)
        return found

    async def complete(
        self,
        ref: Reference | str,
        argument: str,
        value: str,
        context: dict[str, str] | None = None,
        *,
        server: str | None = None,
        timeout: Timeout = UNSET,
        meta: Meta = None,
    ) -> Completion:
        """Return completions of ``value`` for an argument of a prompt or of a resource template.

        ``ref`` is the prompt's name in the group, or the template; see `Client.complete`. ``server`` selects one of
        several servers that have the same template.
        """
        name = ref if isinstance(ref, str) else ref.name if isinstance(ref, PromptReference) else ref.uri
        if isinstance(ref, PromptReference) or (isinstance(ref, str) and "://" not in ref):
            server, own = await self.find_prompt(name)
            ref = PromptReference(own)
        elif server is None:
            if not any(name in templates for templates in self._templates.values()):
                await self._list_all_resources()
            server = self._one_of([it for it in self if name in self._templates.get(it, ())], name)
        client = self._client_for(server, name)
        try:
            return await client.complete(ref, argument, value, context, timeout=timeout, meta=meta)
        except McplumbError as error:
            raise named(server, error) from error

    # Changes

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources_list: bool = False,
        resources: Iterable[str] = (),
        timeout: Timeout = UNSET,
    ) -> GroupChanges:
        """Subscribe to changes of all servers: ``async with group.listen(tools=True) as changes``.

        ``async for server, change in changes`` gives the name of a server, and its `Change` or `Missed`. A server that
        is added, removed or connected again counts as a change of its lists. Each URI of ``resources`` is subscribed to
        at the servers that ``find_resource`` returns.
        """
        if isinstance(resources, str):
            raise UsageError("listen takes a list of addresses in resources=, not a single one.")
        uris = tuple(dict.fromkeys(resources))
        if not (tools or prompts or resources_list or uris):
            raise UsageError("listen needs something to listen for: tools, prompts, resources_list or resources.")
        wanted = {"tools": tools, "prompts": prompts, "resources_list": resources_list}
        return GroupChanges(self, self._listeners, wanted, uris, timeout)

    # --- Internals ---

    async def _open(self, servers: Servers) -> None:
        if self._is_open or self._closing is not None:
            raise UsageError("This was connected already: call connect_all again.")
        self._is_open = True
        try:
            for member in read_members(servers).values():
                self._join(member)
            async with asyncio.TaskGroup() as tasks:
                for member in self._members.values():
                    tasks.create_task(self._start(member))
            self._check_any_connected()
        except BaseException:
            await self.close()
            raise

    async def _close(self) -> None:
        self._is_open = False
        for changes in list(self._listeners):
            changes.end()
        await self._close_members()
        # A change that was going on has ended by now, or soon does, because what it connects to was closed.
        async with self._changing:
            await self._close_members()

    async def _close_members(self) -> None:
        # Not a TaskGroup: the failure of one must not keep the others open.
        outcomes = await asyncio.gather(*(it.close() for it in self._members.values()), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def _check_any_connected(self) -> None:
        if self._members and not len(self):
            raise all_failed("connected", self.failures)

    def _check_open(self) -> None:
        if not self._is_open:
            raise Closed("The group is closed.")

    def _join(self, member: GroupMember) -> None:
        for names in (self._tools, self._prompts):
            names.add_server(member.name)
        self._members[member.name] = member

    def _leave(self, name: str) -> GroupMember:
        self._forget_lists(name)
        for names in (self._tools, self._prompts):
            names.remove_server(name)
        return self._members.pop(name)

    def _forget_lists(self, name: str) -> None:
        for names in (self._tools, self._prompts):
            names.set_names(name, ())
        self._uris.pop(name, None)
        self._templates.pop(name, None)

    async def _start(self, member: GroupMember) -> None:
        # A group that was closed meanwhile has closed what had been started, and only that.
        if self._is_open:
            await member.start(self._shared)
            if member.client is not None:
                self._announce(member.name)

    async def _replace(self, new: GroupMember) -> None:
        """Close the server of this name, and start the new one."""
        old = self._members[new.name]
        self._members[new.name] = new
        self._forget_lists(new.name)
        if old.client is not None:
            self._announce(new.name)
        await old.close()
        await self._start(new)

    def _announce(self, name: str) -> None:
        """Report to all subscriptions that a server has come or gone."""
        for changes in list(self._listeners):
            changes.server_changed(name)

    def _client_for(self, server: str, what: str) -> Client:
        member = self._members.get(server)
        if member is not None and member.client is not None:
            return member.client
        if member is None:
            raise _unknown("server", server, self._members)
        raise ConnectError(
            f"{what!r} was not sent: server {server!r} is not connected. {member.reason}"
        ) from member.error

    async def _look_up(self, kind: str, name: str) -> Origin:
        """Find a name that the last lists do not have: one with a hash, or one without a prefix."""
        names, method = (self._tools, Client.list_tools) if kind == "tool" else (self._prompts, Client.list_prompts)
        server = names.server_of(name)
        if server is not None and names.is_visible(name):
            client = self._client_for(server, name)
            try:
                names.set_names(server, [it.name for it in await method(client)])
            except McplumbError as error:
                raise named(server, error) from error
        elif not names.has_prefix:
            await (self.list_tools() if kind == "tool" else self.list_prompts())
        origin = names.find(name)
        if origin is None:
            raise _unknown(kind, name, names)
        return origin

    async def _list(self, method: str, ask: Callable[[Client], Awaitable[list[T]]]) -> dict[str, list[T]]:
        """Ask all servers at the same time; return their answers in the order of the servers."""
        self._check_open()
        asked = list(self)
        answers: dict[str, list[T]] = {}
        errors: dict[str, Exception] = {}

        async def ask_one(server: str) -> None:
            try:
                answers[server] = await ask(self[server])
            except McplumbError as error:
                errors[server] = error
                _logger.warning("The server %r is left out of %s: %s", server, method, error)

        async with asyncio.TaskGroup() as tasks:
            for server in asked:
                tasks.create_task(ask_one(server))
        if errors and not answers:
            raise all_failed(f"asked for {method}", errors)
        return {server: answers[server] for server in asked if server in answers and server in self._members}

    async def _list_all_resources(self) -> None:
        await self.list_resources()
        await self.list_resource_templates()

    def _servers_with(self, uri: str) -> list[str]:
        listed = [server for server in self if uri in self._uris.get(server, ())]
        return listed or [
            server for server in self if any(template_claims(it, uri) for it in self._templates.get(server, ()))
        ]

    def _one_of(self, servers: list[str], uri: str) -> str:
        if len(servers) == 1:
            return servers[0]
        if servers:
            raise UsageError(f"Several servers have {uri!r}: name one with server=. They are {', '.join(servers)}.")
        # A server may read more than it lists.
        able = [name for name, client in self.items() if client.capabilities.resources is not None]
        if len(able) == 1:
            return able[0]
        choice = f"Name one with server=: {', '.join(able)}." if able else "None of them has resources."
        raise UsageError(f"No server lists {uri!r}, or has a template for it. {choice}")


# --- Names and errors ---


def _renamed(names: GroupNames, listed: dict[str, list[T]]) -> list[T]:
    """Return the listed items of all servers under their names in the group, each name once."""
    for server, found in listed.items():
        names.set_names(server, [getattr(it, "name") for it in found])  # noqa: B009 - a tool or a prompt
    renamed: dict[str, T] = {}
    for server, found in listed.items():
        for it in found:
            name = names.name_of(server, getattr(it, "name"))  # noqa: B009
            if name is not None:
                renamed.setdefault(name, replace(it, name=name))  # type: ignore[type-var]
    return list(renamed.values())


def _unknown(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    from difflib import get_close_matches

    known = list(known)
    similar = get_close_matches(name, known, 3)
    if similar:
        hint = f"Did you mean {' or '.join(map(repr, similar))}?"
    elif known:
        more = ", …" if len(known) > _MAX_NAMED else ""
        hint = f"Known are {', '.join(known[:_MAX_NAMED])}{more}."
    else:
        hint = f"No {kind}s are listed yet: call list_{kind}s first."
    return UnknownName(f"The group has no {kind} {name!r}. {hint}")


class UnknownName(UsageError, KeyError):
    """A group has no server, tool or prompt of this name."""

    # KeyError.__str__ would put the message in quotes.
    __str__ = Exception.__str__
