"""A server with tools that wait until they are let go, for the tests of sessions."""

import asyncio
import threading
from typing import Any

import pytest

from mcplumb.errors import Closed
from mcplumb.limits import Limits
from mcplumb.revisions import LEGACY
from mcplumb.server.context import Context
from mcplumb.server.server import Server
from tests.kit.loop import PATIENCE
from tests.server.harness import ALL_REVISIONS, ONE_OF_EACH_ERA, Id, Peer, Plain, make_server

every_revision = pytest.mark.parametrize("revision", ALL_REVISIONS, ids=str)
every_legacy = pytest.mark.parametrize("revision", LEGACY, ids=str)
both_eras = pytest.mark.parametrize("revision", ONE_OF_EACH_ERA, ids=str)
small_limits = pytest.mark.parametrize("limit", [1, 2, 3])


class Workshop:
    """A server with tools that wait until they are let go, and what is known of them."""

    def __init__(self, **options: Any) -> None:
        self.server: Server = make_server(**options)
        #: The numbers of the calls that have begun, in that order, and of those that were cancelled.
        self.begun: list[int] = []
        self.cancelled: list[int] = []
        #: How many async ones run, and how many did at the most.
        self.running = self.most = 0
        self.go = asyncio.Event()
        self.thread_go = threading.Event()
        self.thread_begun = threading.Event()
        self.server.add_tool(self.hold)
        self.server.add_tool(self.block)
        self.server.add_tool(self.echo)
        self.server.add_tool(self.large)
        self.server.add_tool(self.ask)

    async def has_counted(self, numbers: list[int], count: int) -> None:
        """Wait until so many have begun, or were cancelled; in threads that takes its time."""
        while len(numbers) < count:  # noqa: ASYNC110 - an event would have to be set by threads
            await asyncio.sleep(0.001)

    async def echo(self, number: int) -> int:
        self.begun.append(number)
        return number

    async def hold(self, number: int) -> int:
        self.begun.append(number)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        finally:
            self.running -= 1
        return number

    def block(self, number: int, ctx: Context) -> int:
        self.begun.append(number)
        self.thread_begun.set()
        assert self.thread_go.wait(PATIENCE)
        if ctx.cancelled:
            self.cancelled.append(number)
        return number

    async def large(self, size: int) -> str:
        return "x" * size

    async def ask(self, number: int, ctx: Context) -> str:
        self.begun.append(number)
        try:
            return (await ctx.elicit_url(f"{number}", "https://example.com")).action
        except Closed:
            return "closed"


def limited(limit: int) -> Limits:
    """So many requests may be in flight, and as many may wait."""
    return Limits(max_in_flight=limit, max_waiting=limit)


def numbered(peer: Peer, tool: str, *numbers: int) -> list[Id]:
    """Call a tool with each of these numbers."""
    return [peer.post_call(tool, {"number": number}) for number in numbers]


def order_of_answers(peer: Peer) -> list[Id]:
    return [each["id"] for each in peer.seen if "method" not in each]


def codes(*responses: Plain) -> list[int]:
    return [response["error"]["code"] for response in responses]
