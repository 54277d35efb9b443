"""``connect``: from what a user has to a client that is ready."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from types import TracebackType
from typing import Any

from mcpipe.client.client import Client
from mcpipe.client.inputs import Inputs, OnElicit, OnSample, Roots
from mcpipe.client.keeping import Keeper
from mcpipe.client.links import Link, MemoryLink, Serves
from mcpipe.client.settings import DEFAULT_MAX_TIMEOUT, DEFAULT_TIMEOUT, OnLog, Settings
from mcpipe.errors import UsageError
from mcpipe.limits import DEFAULT_LIMITS, Limits
from mcpipe.protocol.era import DEFAULT_WAITS, EraWaits
from mcpipe.protocol.stopping import StopLadder
from mcpipe.revisions import allowed_revisions
from mcpipe.types.base import Implementation
from mcpipe.types.capabilities import ClientCapabilities
from mcpipe.version import __version__

__all__ = ["Connecting", "connect"]

_DEFAULT_STOP = StopLadder()
_MCPIPE = Implementation("mcpipe", __version__)


def connect(
    target: Serves,
    *,
    timeout: float | None = DEFAULT_TIMEOUT,
    max_timeout: float | None = DEFAULT_MAX_TIMEOUT,
    revisions: Iterable[str] | None = None,
    on_elicit: OnElicit | None = None,
    on_sample: OnSample | None = None,
    roots: Roots | None = None,
    on_log: OnLog | None = None,
    client_info: Implementation | None = _MCPIPE,
    capabilities: ClientCapabilities | None = None,
    limits: Limits = DEFAULT_LIMITS,
    waits: EraWaits = DEFAULT_WAITS,
    stop: StopLadder = _DEFAULT_STOP,
) -> Connecting:
    """Connect to a server: ``async with connect(server) as client``. The target is a ``Server`` of this process.

    * ``timeout``: seconds that the server has for an answer, unless a call says otherwise; None for no limit.
      ``max_timeout``: seconds that progress can extend that to.
    * ``revisions``: the dates of the protocol revisions to allow; all of them if None.
    * ``on_elicit``, ``on_sample``, ``roots``: what the server may ask for. Without them it is told that it may not.
    * ``on_log``: is called with each log message of the server.
    * ``client_info``: who asks; None says nothing. ``capabilities``: what else to declare, for instance extensions.
    * ``limits``, ``waits``, ``stop``: the caps, the patience while connecting, and that while closing.
    """
    settings = Settings(
        inputs=Inputs(on_elicit=on_elicit, on_sample=on_sample, roots=roots, capabilities=capabilities),
        timeout=timeout,
        max_timeout=max_timeout,
        revisions=allowed_revisions(revisions),
        client_info=client_info,
        on_log=on_log,
        limits=limits,
        waits=waits,
        stop=stop,
    )
    return Connecting(_link_to(target, settings), settings)


class Connecting:
    """A connection to be: enter it with ``async with``, or await it and close the client yourself."""

    def __init__(self, link: Link, settings: Settings) -> None:
        self._keeper = Keeper(link, settings)

    async def __aenter__(self) -> Client:
        await self._keeper.open()
        return Client(self._keeper)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._keeper.close()

    def __await__(self) -> Generator[Any, Any, Client]:
        return self.__aenter__().__await__()


def _link_to(target: Any, settings: Settings) -> Link:
    if callable(getattr(target, "serve_connection", None)):
        return MemoryLink(target, limits=settings.limits, stop=settings.stop)
    raise UsageError(f"connect takes a Server, and not a {type(target).__name__}.")
