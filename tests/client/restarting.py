"""Servers in memory that can be lost and started again, as a process can."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from mcplumb.client.client import Client
from mcplumb.client.client_settings import ClientSettings
from mcplumb.client.connector import Connecting
from mcplumb.client.handshake import EraMemory
from mcplumb.client.input_handlers import InputHandlers
from mcplumb.client.link import MemoryLink
from mcplumb.client.supervisor import Supervisor
from mcplumb.limits import DEFAULT_LIMITS
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.protocol.stop_ladder import StopLadder
from tests.client.peers import Peer, Play
from tests.kit.loop import run

T = TypeVar("T")

#: Early exits are forgiven, and the next start does not wait for chance.
PATIENT = RestartPolicy(first_wait=1, jitter=0, breaker_after=100)


class RestartingLink(MemoryLink):
    """As a memory link, but worth a second connection."""

    can_restart = True


def after_discovery(play: Play) -> Play:
    """The play of a modern server, from the start of its process."""

    async def whole(peer: Peer) -> None:
        await peer.discover()
        await play(peer)

    return whole


def after_handshake(play: Play, revision: str = "2025-11-25") -> Play:
    """The play of a legacy server, from the start of its process."""

    async def whole(peer: Peer) -> None:
        await peer.initialize(revision)
        await play(peer)

    return whole


def connecting(peer: Peer, **options: Any) -> Connecting:
    """What ``connect`` gives, for a server that is started again."""
    settings = ClientSettings(**{"input_handlers": InputHandlers(), "restart": PATIENT, **options})
    link = RestartingLink(peer, limits=DEFAULT_LIMITS, stop=StopLadder())
    return Connecting(Supervisor(link, settings, EraMemory()))


def talk_through(peer: Peer, body: Callable[[Client], Awaitable[T]], **options: Any) -> T:
    """Let the body talk to a server that is started again; fails if either side does."""

    async def main() -> T:
        async with connecting(peer, **options) as client:
            return await body(client)

    try:
        result = run(main())
    except BaseException:
        peer.check_failure()
        raise
    peer.check()
    return result
