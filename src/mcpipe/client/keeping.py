"""Keeping one server connected, from the opening of its link until it is closed."""

from __future__ import annotations

import asyncio

from mcpipe.client.links import Link
from mcpipe.client.opening import Greeting, Opening
from mcpipe.client.session import Session
from mcpipe.client.settings import Settings
from mcpipe.errors import UsageError

__all__ = ["Keeper"]


class Keeper:
    """Owns a link and the session on it."""

    session: Session
    greeting: Greeting

    def __init__(self, link: Link, settings: Settings) -> None:
        self.settings = settings
        self._link = link
        self._opening: Opening | None = None
        self._closing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect and agree on a revision. If it fails or is cancelled, everything is closed again."""
        if self._opening is not None:
            raise UsageError("This was connected already: call connect again.")
        self._opening = Opening(self._link, self.settings)
        try:
            self.session, self.greeting = await self._opening.run()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection and let the server go. From any task, at any time, as often as you like.

        It takes no longer than the stop ladder allows. Cancelled, it goes on without its caller.
        """
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            if self._opening is not None and self._opening.session is not None:
                await self._opening.session.close(self.settings.stop.close_wait)
        finally:
            await self._link.close()
