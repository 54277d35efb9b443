"""Several servers as one: lists are merged, names get the prefix of their server, and requests find their way back.

A server that cannot be used is left out, and named in the instructions that clients get. One that does not start
in time goes on starting in the background, and for a while the others wait for it only briefly. The set of servers may
change while the bridge runs; the servers that stay are not disturbed.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from mcplumb.bridge.bridge_session import BridgeSession, Described
from mcplumb.bridge.server_instance import FrontClient
from mcplumb.bridge.server_pool import PoolClosed, ServerPool
from mcplumb.client.subscriptions import Changes
from mcplumb.errors import DecodeError, McplumbError, ProtocolError, RemoteError, RequestError, RequestTimeout
from mcplumb.protocol.group_routing import GroupNames, template_claims
from mcplumb.protocol.subscription_state import Missed
from mcplumb.protocol.translation import members_of
from mcplumb.types.base import COMPLETE
from mcplumb.types.lifecycle import ListCapability, ResourcesCapability, ServerCapabilities
from mcplumb.types.notification_params import LoggingLevel, SubscriptionFilter
from mcplumb.types.payload_decoder import read
from mcplumb.wire.messages import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

if TYPE_CHECKING:
    from mcplumb.server.dispatch.running_call import Call
    from mcplumb.wire.messages import Notification

__all__ = ["GroupRouter"]

_logger = logging.getLogger("mcplumb.bridge")

T = TypeVar("T")

#: Seconds that a server has to start and to answer a request to all servers; one that hangs delays the others by that.
_PATIENCE = 20.0
#: For how many seconds such a server then counts as late, and the seconds that a late one has.
_LATE_FOR, _LATE_PATIENCE = 60.0, 1.0
#: The maximum number of pages of one server's list.
_MAX_PAGES = 1000
#: Each list, the member of its result, and what identifies an item.
_LISTS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}


class GroupRouter:
    """Routes requests to several servers. ``only`` and ``hide`` are globs on the names of tools and prompts."""

    def __init__(self, pools: Mapping[str, ServerPool], *, only: Iterable[str] = (), hide: Iterable[str] = ()) -> None:
        self.pools = dict(pools)
        self.sole: ServerPool | None = None
        only, hide = tuple(only), tuple(hide)
        self._names = {"tools/list": GroupNames(only=only, hide=hide), "prompts/list": GroupNames(only=only, hide=hide)}
        for server, pool in self.pools.items():
            self._name_server(server)
            pool.on_started = partial(self._has_started, server)
        #: The URIs and templates of each server, as last listed.
        self._resources: dict[str, frozenset[str]] = {}
        self._templates: dict[str, frozenset[str]] = {}
        #: The servers that did not answer in time, and until when they are hardly waited for.
        self._late: dict[str, float] = {}
        #: The servers that clients do not know of, because they could not be used.
        self._left_out: set[str] = set()
        #: The last warning about each server.
        self._reported: dict[str, str] = {}
        self._subscriptions: set[_GroupSubscription] = set()

    # --- The set of servers ---

    def add(self, server: str, pool: ServerPool) -> None:
        """Add a server, and announce that the lists have changed."""
        self._name_server(server)
        self.pools[server] = pool
        pool.on_started = partial(self._has_started, server)
        for subscription in self._subscriptions:
            subscription.start(server, pool)
        self._announce_change()

    def remove(self, server: str) -> ServerPool:
        """Remove a server, announce that the lists have changed, and return its instances."""
        pool = self.pools.pop(server)
        for names in self._names.values():
            names.remove_server(server)
        for known in (self._resources, self._templates, self._late, self._reported):
            known.pop(server, None)
        self._left_out.discard(server)
        for subscription in self._subscriptions:
            subscription.stop(server)
        self._announce_change()
        return pool

    def put_in_order(self, servers: Iterable[str]) -> None:
        """Put the servers in this order: an item that several of them list belongs to the first."""
        self.pools = {server: self.pools[server] for server in servers}

    def _name_server(self, server: str) -> None:
        for names in self._names.values():
            names.add_server(server)

    def _has_started(self, server: str) -> None:
        """Announce a server that could not be used before, and subscribe to its changes."""
        was_late = self._late.pop(server, None) is not None
        if was_late or server in self._left_out:
            self._left_out.discard(server)
            for subscription in self._subscriptions:
                subscription.resume(server, self.pools[server])
            self._announce_change()

    def _announce_change(self) -> None:
        for subscription in self._subscriptions:
            subscription.lists_changed()

    # --- What clients see ---

    async def describe(self, session: BridgeSession, client: FrontClient) -> Described:
        """Start all servers, and return their combined declarations."""

        async def known(pool: ServerPool) -> Any:
            async with session.leased(client, pool) as instance:
                return instance.known

        found, failed = await self._for_all(known)
        declared = [one.capabilities for one in found.values()]
        completes, logs = (
            any(getattr(one, name) is not None for one in declared) for name in ("completions", "logging")
        )
        # The lists may change with the set of servers, even if no server changes its own.
        capabilities = ServerCapabilities(
            tools=ListCapability(list_changed=True),
            prompts=ListCapability(list_changed=True),
            resources=ResourcesCapability(
                list_changed=True, subscribe=any(one.resources and one.resources.subscribe for one in declared) or None
            ),
            completions={} if completes else None,
            logging={} if logs else None,
        )
        parts = [f"# {server}\n\n{one.instructions}" for server, one in found.items() if one.instructions]
        if failed:
            parts.append(f"These servers cannot be used at the moment: {', '.join(failed)}.")
        return Described(capabilities, None, "\n\n".join(parts) or None)

    async def forward(self, session: BridgeSession, call: Call) -> Any:
        """Send a request to the server that it belongs to, or to all of them if it asks for a list."""
        method, members = call.method, members_of(call.request.params)
        if method in _LISTS:
            return await self._list(session, call, members)
        if method in ("tools/call", "prompts/get"):
            listing = "tools/list" if method == "tools/call" else "prompts/list"
            server, members["name"] = await self._find_name(session, call, listing, _text(members, "name"))
        elif method == "resources/read":
            server = await self._find_resource(session, call, _text(members, "uri"))
        elif method == "completion/complete":
            server = await self._complete(session, call, members)
        else:
            raise RequestError(
                METHOD_NOT_FOUND,
                f"{method[:80]!r} cannot be passed on: it does not say which of the servers it is for.",
            )
        return await self._ask(server, lambda pool: session.send(call, pool, members))

    @asynccontextmanager
    async def changes(
        self, session: BridgeSession, client: FrontClient, wanted: SubscriptionFilter
    ) -> AsyncIterator[list[Changes]]:
        """Open a subscription at each server for the block. Servers that fail are left out."""
        subscription = _GroupSubscription(self, session, client, wanted)
        self._subscriptions.add(subscription)
        try:
            await subscription.open(self.pools)
            yield [subscription.merged]
        finally:
            self._subscriptions.discard(subscription)
            await subscription.close()

    async def raise_log_level(self, session: BridgeSession, client: FrontClient, level: LoggingLevel) -> None:
        """Pass the level on to all servers."""

        async def pass_on(pool: ServerPool) -> None:
            async with session.leased(client, pool) as instance:
                await instance.raise_log_level(level)

        await self._for_all(pass_on)

    def notify(self, notification: Notification, client: FrontClient) -> None:
        """Pass on a notification of an extension to all running servers, because it names none."""
        for pool in self.pools.values():
            if pool.state == "running":
                pool.notify(notification, client)

    def owner_of(self, uri: str) -> str | None:
        """Return the server that has listed a resource, or a template that it matches; None if none has."""
        for server in self.pools:
            if uri in self._resources.get(server, ()):
                return server
        for server in self.pools:
            if any(template_claims(template, uri) for template in self._templates.get(server, ())):
                return server
        return None

    # --- Servers that hang ---

    def patience(self, server: str) -> float:
        """Return the seconds to wait for a server when a request goes to all of them."""
        return _PATIENCE if self._late.get(server, 0.0) <= asyncio.get_running_loop().time() else _LATE_PATIENCE

    def note_late(self, server: str) -> None:
        """Record that a server did not answer in time."""
        if server in self.pools:
            self._late[server] = asyncio.get_running_loop().time() + _LATE_FOR

    # --- Lists ---

    async def _list(self, session: BridgeSession, call: Call, members: dict[str, Any]) -> dict[str, Any]:
        if "cursor" in members:
            raise RequestError(INVALID_PARAMS, "There is no such page: the lists of several servers have one page.")
        items = await self._items(session, call, call.method)
        result: dict[str, Any] = {_LISTS[call.method][0]: items}
        revision = call.admitted.revision
        if revision.has_result_types:
            result |= {"resultType": COMPLETE, "ttlMs": 0, "cacheScope": "private"}
            result["_meta"] = session.shared.result_meta(revision)
        return result

    async def _items(self, session: BridgeSession, call: Call, method: str) -> list[dict[str, Any]]:
        """Return the items of all servers, with the names that they have in the group."""

        async def listed(pool: ServerPool) -> list[dict[str, Any]]:
            return await self._items_of(session, call, method, pool)

        found, _ = await self._for_all(listed)
        merged: dict[str, dict[str, Any]] = {}
        for server, items in found.items():
            for key, item in self._named(method, server, items):
                merged.setdefault(key, item)
        return list(merged.values())

    async def _items_of(
        self, session: BridgeSession, call: Call, method: str, pool: ServerPool
    ) -> list[dict[str, Any]]:
        """Return the items on all pages of one server, up to a limit: they are sent in one message."""
        field = _LISTS[method][0]
        items: list[dict[str, Any]] = []
        params: dict[str, Any] = {}
        seen: set[bytes] = set()
        size, max_size = 0, session.shared.limits.max_line
        for _ in range(_MAX_PAGES):
            try:
                page = await session.send(call, pool, params, method=method)
            except RequestError as error:
                if error.code == METHOD_NOT_FOUND:
                    return items
                raise
            members = page if isinstance(page, dict) else members_of(page)
            listed = members.get(field, msgspec.Raw(b"[]"))
            listed = listed if isinstance(listed, msgspec.Raw) else msgspec.Raw(msgspec.json.encode(listed))
            size += len(bytes(listed))
            if size > max_size:
                raise ProtocolError(f"Its {method} has more than {max_size:,} bytes.")
            items += [members_of(row) for row in read(list[msgspec.Raw], listed)]
            if "nextCursor" not in members:
                return items
            params = {"cursor": members["nextCursor"]}
            cursor = msgspec.json.encode(params)
            if cursor in seen:
                break
            seen.add(cursor)
        raise ProtocolError(f"The pages of its {method} have no end, or are more than {_MAX_PAGES}.")

    def _named(self, method: str, server: str, items: list[dict[str, Any]]) -> Iterable[tuple[str, dict[str, Any]]]:
        """Record which server the items belong to, and yield each with its name in the group."""
        key = _LISTS[method][1]
        keyed = [(own, item) for item in items if (own := _maybe_text(item, key)) is not None]
        names = self._names.get(method)
        if names is None:
            known = self._resources if method == "resources/list" else self._templates
            if server in self.pools:
                known[server] = frozenset(own for own, _ in keyed)
            yield from keyed
            return
        names.set_names(server, [own for own, _ in keyed])
        for own, item in keyed:
            if (name := names.name_of(server, own)) is not None:
                yield name, {**item, key: name}

    # --- Finding the server ---

    async def _find_name(self, session: BridgeSession, call: Call, listing: str, name: str) -> tuple[str, str]:
        """Return the server of a tool or prompt, and its own name there."""
        names = self._names[listing]
        origin = names.find(name)
        server = names.server_of(name)
        if origin is None and server is not None and names.is_visible(name):
            # A name that was cut or cleaned can be told from the list only.
            try:
                items = await self._ask(server, lambda pool: self._items_of(session, call, listing, pool))
            except ProtocolError as error:
                raise RequestError(
                    INTERNAL_ERROR, f"The server {server!r} cannot be asked for a list. {error}"
                ) from error
            names.set_names(server, [own for item in items if (own := _maybe_text(item, "name")) is not None])
            origin = names.find(name)
        if origin is None:
            what = "tool" if listing == "tools/list" else "prompt"
            raise RequestError(INVALID_PARAMS, f"There is no {what} {name[:200]!r}.")
        return origin

    async def _find_resource(self, session: BridgeSession, call: Call, uri: str) -> str:
        server = self.owner_of(uri)
        if server is None:
            await self._items(session, call, "resources/list")
            await self._items(session, call, "resources/templates/list")
            server = self.owner_of(uri)
        if server is None:
            code = call.admitted.revision.resource_not_found
            raise RequestError(code, f"There is no resource {uri[:200]!r}.", {"uri": uri[:200]})
        return server

    async def _complete(self, session: BridgeSession, call: Call, members: dict[str, Any]) -> str:
        """Return the server of a completion request; change the name in its reference to the server's own."""
        reference = members_of(members.get("ref", msgspec.Raw(b"{}")))
        if "name" in reference:
            server, own = await self._find_name(session, call, "prompts/list", _text(reference, "name"))
            members["ref"] = {**reference, "name": own}
            return server
        uri = _text(reference, "uri")
        for server in self.pools:
            if uri in self._templates.get(server, ()):
                return server
        return await self._find_resource(session, call, uri)

    async def _ask(self, server: str, ask: Callable[[ServerPool], Coroutine[Any, Any, T]]) -> T:
        """Ask a server; if it is replaced before anything was sent to it, ask the new one."""
        while (pool := self.pools.get(server)) is not None:
            try:
                return await ask(pool)
            except PoolClosed:
                if self.pools.get(server) is pool:
                    raise
        raise RequestError(INVALID_PARAMS, f"The server {server!r} is not there any more.")

    async def _for_all(
        self, ask: Callable[[ServerPool], Coroutine[Any, Any, T]]
    ) -> tuple[dict[str, T], dict[str, McplumbError]]:
        """Ask all servers at the same time, and return the answers and the errors."""

        async def ask_in_time(server: str) -> T:
            patience = self.patience(server)
            try:
                async with asyncio.timeout(patience):
                    answer = await self._ask(server, ask)
            except TimeoutError:
                self.note_late(server)
                raise RequestTimeout(f"It did not answer within {patience:g} s.") from None
            self._late.pop(server, None)
            return answer

        servers = list(self.pools)
        answers = await asyncio.gather(*map(ask_in_time, servers), return_exceptions=True)
        found: dict[str, T] = {}
        failed: dict[str, McplumbError] = {}
        for server, answer in zip(servers, answers, strict=True):
            if isinstance(answer, McplumbError):
                self._report(server, answer)
                if server in self.pools:
                    failed[server] = answer
                    self._left_out.add(server)
            elif isinstance(answer, BaseException):
                raise answer
            elif server in self.pools:  # it may have been removed while others were waited for
                found[server] = answer
                self._left_out.discard(server)
        return found, failed

    def _report(self, server: str, error: McplumbError) -> None:
        """Log why a server is left out: as a warning if that is news, and its pool has not reported it."""
        pool, why = self.pools.get(server), str(error)
        is_news = pool is not None and pool.failure is None and self._reported.get(server) != why
        _logger.log(logging.WARNING if is_news else logging.INFO, "The server %r is left out. %s", server, why)
        if is_news:
            self._reported[server] = why


class _GroupSubscription:
    """A client's subscription at all servers. It continues when servers are added and removed."""

    def __init__(
        self, router: GroupRouter, session: BridgeSession, client: FrontClient, wanted: SubscriptionFilter
    ) -> None:
        self._router = router
        self._session = session
        self._client = client
        self._wanted = wanted
        #: The changes of all servers. They are pushed, so there is nothing to open.
        self.merged = Changes(_Pushed(), wanted, None)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._honoured: set[str] = set()

    async def open(self, pools: Mapping[str, ServerPool]) -> None:
        """Subscribe at all servers, and wait until each has acknowledged or failed, or is late."""
        await self.merged.__aenter__()
        opened = [(server, self.start(server, pool)) for server, pool in pools.items()]
        await asyncio.gather(*itertools.starmap(self._wait, opened))
        wanted = self._wanted
        uris = [uri for uri in wanted.resource_subscriptions or () if uri in self._honoured]
        self.merged.granted(msgspec.structs.replace(wanted, resource_subscriptions=uris or None))

    def start(self, server: str, pool: ServerPool) -> asyncio.Future[None]:
        """Subscribe at a server; return a future that is done when it has acknowledged or failed."""
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks[server] = asyncio.create_task(self._follow(server, pool, opened))
        return opened

    async def _wait(self, server: str, opened: asyncio.Future[None]) -> None:
        try:
            async with asyncio.timeout(self._router.patience(server)):
                await opened
        except TimeoutError:
            self._router.note_late(server)

    def resume(self, server: str, pool: ServerPool) -> None:
        """Subscribe at a server that could not be used before, unless that is still under way."""
        if server not in self._tasks or self._tasks[server].done():
            self.start(server, pool)

    def stop(self, server: str) -> None:
        """Unsubscribe from a server that is removed."""
        task = self._tasks.pop(server, None)
        if task is not None:
            task.cancel()

    def lists_changed(self) -> None:
        """Announce that all lists have changed, with the set of servers."""
        self.merged.push(Missed())

    async def close(self) -> None:
        """Unsubscribe from all servers."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _follow(self, server: str, pool: ServerPool, opened: asyncio.Future[None]) -> None:
        """Push the changes of a server; only those of its lists if it refuses a resource, which may not be its own."""
        wanted = self._wanted
        uris = [uri for uri in wanted.resource_subscriptions or () if self._router.owner_of(uri) in (server, None)]
        lists = msgspec.structs.replace(wanted, resource_subscriptions=None)
        filters = [msgspec.structs.replace(wanted, resource_subscriptions=uris), lists] if uris else [lists]
        try:
            async with self._session.leased(self._client, pool) as instance:
                for each in filters:
                    try:
                        await self._push_changes(instance.changes(each, self._client), opened)
                        break
                    except RemoteError as error:
                        if opened.done() or each is lists:
                            raise
                        _logger.info("The server %r refuses a subscription. %s", server, error)
        except McplumbError as error:
            _logger.info("Changes of the server %r are not announced. %s", server, error)
        finally:
            if not opened.done():
                opened.set_result(None)

    async def _push_changes(self, subscription: Changes, opened: asyncio.Future[None]) -> None:
        async with subscription as changes:
            honoured = changes.honoured or SubscriptionFilter()
            self._honoured.update(honoured.resource_subscriptions or ())
            if not opened.done():
                opened.set_result(None)
            async for change in changes:
                self.merged.push(change)


class _Pushed:
    """A source of changes that are pushed from elsewhere."""

    async def open(self, changes: Changes) -> None:
        """Do nothing."""

    async def close(self, changes: Changes) -> None:
        """Do nothing."""

    def reopen(self, changes: Changes, cause: McplumbError) -> None:
        """Do nothing."""

    def has_spent_token(self, changes: Changes) -> bool:
        """Return False: there is no token."""
        return False


def _text(members: dict[str, Any], name: str) -> str:
    if name not in members:
        raise DecodeError(f"The params lack {name!r}.")
    return read(str, members[name], what=name)


def _maybe_text(members: dict[str, Any], name: str) -> str | None:
    try:
        return _text(members, name)
    except DecodeError:
        return None
