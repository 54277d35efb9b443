"""Routing: which server behind a bridge a request goes to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from mcplumb.bridge.bridge_session import BridgeSession, Described
from mcplumb.bridge.server_instance import FrontClient
from mcplumb.bridge.server_pool import ServerPool
from mcplumb.client.subscriptions import Changes
from mcplumb.protocol.translation import members_of
from mcplumb.types.notification_params import LoggingLevel, SubscriptionFilter

if TYPE_CHECKING:
    from mcplumb.server.dispatch.running_call import Call
    from mcplumb.wire.messages import Notification

__all__ = ["Router", "SingleRouter"]


class Router(Protocol):
    """Decides which servers serve the requests of a client."""

    #: The server that all requests go to as they are; None if there are several.
    sole: ServerPool | None

    async def describe(self, session: BridgeSession, client: FrontClient) -> Described:
        """Return the description of the servers that a client gets when it connects."""

    async def forward(self, session: BridgeSession, call: Call) -> Any:
        """Return the outcome of a request."""

    def changes(
        self, session: BridgeSession, client: FrontClient, wanted: SubscriptionFilter
    ) -> AbstractAsyncContextManager[list[Changes]]:
        """Open subscriptions at the servers for a client's filter, within a block."""

    async def raise_log_level(self, session: BridgeSession, client: FrontClient, level: LoggingLevel) -> None:
        """Make the servers send log messages of this level."""

    def notify(self, notification: Notification, client: FrontClient) -> None:
        """Pass on a notification of an extension that arrived alone, in its own POST."""


class SingleRouter:
    """All requests go to one server, as they are."""

    def __init__(self, pool: ServerPool) -> None:
        self._pool = pool
        self.sole: ServerPool | None = pool

    async def describe(self, session: BridgeSession, client: FrontClient) -> Described:
        """Return the declarations of the server."""
        async with session.leased(client, self._pool) as instance:
            known = instance.known
            return Described(known.capabilities, known.server_info, known.instructions)

    async def forward(self, session: BridgeSession, call: Call) -> Any:
        """Send the request to the server."""
        return await session.send(call, self._pool, members_of(call.request.params))

    @asynccontextmanager
    async def changes(
        self, session: BridgeSession, client: FrontClient, wanted: SubscriptionFilter
    ) -> AsyncIterator[list[Changes]]:
        """Open one subscription, for everything."""
        async with session.leased(client, self._pool) as instance, instance.changes(wanted, client) as changes:
            yield [changes]

    async def raise_log_level(self, session: BridgeSession, client: FrontClient, level: LoggingLevel) -> None:
        """Pass the level on."""
        async with session.leased(client, self._pool) as instance:
            await instance.raise_log_level(level)

    def notify(self, notification: Notification, client: FrontClient) -> None:
        """Pass it on to the server, which is started if necessary."""
        self._pool.notify(notification, client)
