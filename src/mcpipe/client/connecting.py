"""``connect``: from what a user has to a client that is ready."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from mcpipe.client.checking import OutputChecker
from mcpipe.client.client import Client
from mcpipe.client.eras import EraMemory, process_memory
from mcpipe.client.inputs import Inputs, OnElicit, OnSample, Roots
from mcpipe.client.keeping import Keeper
from mcpipe.client.links import Link, MemoryLink, Serves
from mcpipe.client.settings import DEFAULT_MAX_TIMEOUT, DEFAULT_TIMEOUT, OnLog, Settings
from mcpipe.errors import UsageError
from mcpipe.limits import DEFAULT_LIMITS, Limits
from mcpipe.protocol.era import DEFAULT_WAITS, EraWaits
from mcpipe.protocol.restart import ResendPolicy, RestartPolicy
from mcpipe.protocol.stopping import StopLadder
from mcpipe.revisions import allowed_revisions
from mcpipe.types.base import Implementation
from mcpipe.types.capabilities import ClientCapabilities
from mcpipe.version import __version__

if TYPE_CHECKING:
    from mcpipe.transports.stderr import StderrMode

__all__ = ["Connecting", "connect"]

_DEFAULT_STOP = StopLadder()
_ADDRESSES = ("unix:", "tcp://", "http://", "https://")
_MCPIPE = Implementation("mcpipe", __version__)


def connect(
    target: Serves | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    env: Mapping[str, str] | None = None,
    inherit_env: bool | Iterable[str] = False,
    cwd: str | os.PathLike[str] | None = None,
    stderr: StderrMode = "inherit",
    timeout: float | None = DEFAULT_TIMEOUT,
    max_timeout: float | None = DEFAULT_MAX_TIMEOUT,
    restart: RestartPolicy | bool = True,
    retry: ResendPolicy = "safe",
    revisions: Iterable[str] | None = None,
    on_elicit: OnElicit | None = None,
    on_sample: OnSample | None = None,
    roots: Roots | None = None,
    on_log: OnLog | None = None,
    client_info: Implementation | None = _MCPIPE,
    capabilities: ClientCapabilities | None = None,
    cache: bool = True,
    check_output: bool | None = None,
    era_memory: str | os.PathLike[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    waits: EraWaits = DEFAULT_WAITS,
    stop: StopLadder = _DEFAULT_STOP,
) -> Connecting:
    """Connect to a server: ``async with connect(["python", "weather.py"]) as client``.

    The target is a command that starts one: a list of the program and its arguments, or a string that is split as a
    POSIX shell would, though no shell is involved. Or it is a ``Server`` of this process.

    * ``env``: variables for the server, beside a short list of safe ones of ours. ``inherit_env``: the names of more
      to pass on, or True for all. ``cwd``: the folder to start it in.
    * ``stderr``: what becomes of what it writes there: "inherit" shows it on ours, "capture" keeps the end of it for
      errors and ``client.process.stderr``, "discard" drops it, and a function is called with each line.
    * ``timeout``: seconds that the server has for an answer, unless a call says otherwise; None for no limit.
      ``max_timeout``: seconds that progress can extend that to.
    * ``restart``: how a server that exited is started again; False for not at all. ``retry``: which of the requests
      that it took with it are sent again: those that are "safe", "always" all, or "never" any.
    * ``revisions``: the dates of the protocol revisions to allow; all of them if None.
    * ``on_elicit``, ``on_sample``, ``roots``: what the server may ask for. Without them it is told that it may not.
    * ``on_log``: is called with each log message of the server.
    * ``client_info``: who asks; None says nothing. ``capabilities``: what else to declare, for instance extensions.
    * ``cache``: whether lists and contents are kept for as long as a modern server allows, or asked for each time.
    * ``check_output``: whether results of tools are checked against their output schemas, with jsonschema-rs; None
      for if that is installed.
    * ``era_memory``: a file that remembers which era each server belongs to, for the next program.
    * ``limits``, ``waits``, ``stop``: the caps, the patience while connecting, and that while closing.
    """
    for name, function in (("on_elicit", on_elicit), ("on_sample", on_sample), ("on_log", on_log)):
        if function is not None and not callable(function):
            raise UsageError(f"{name} is a {type(function).__name__}: give it a function.")
    if isinstance(restart, bool):
        restart = RestartPolicy(enabled=restart)
    settings = Settings(
        inputs=Inputs(on_elicit=on_elicit, on_sample=on_sample, roots=roots, capabilities=capabilities),
        timeout=timeout,
        max_timeout=max_timeout,
        restart=restart,
        retry=retry,
        revisions=allowed_revisions(revisions),
        client_info=client_info,
        on_log=on_log,
        cache=cache,
        checker=OutputChecker(check_output),
        limits=limits,
        waits=waits,
        stop=stop,
    )
    link: Link
    if isinstance(target, str | os.PathLike | Sequence):
        if isinstance(target, str) and target.startswith(_ADDRESSES):
            raise UsageError(f"connect cannot reach the address {target!r}: give it the command that starts a server.")
        # A server in the same process needs none of this.
        from mcpipe.client.process import ProcessLink
        from mcpipe.transports.commands import read_command
        from mcpipe.transports.stderr import check_stderr_mode

        check_stderr_mode(stderr)
        command = read_command(target, env=env, inherit_env=inherit_env, cwd=cwd)
        link = ProcessLink(command, stderr=stderr, limits=limits, stop=stop)
    elif callable(getattr(target, "serve_connection", None)):
        if env is not None or inherit_env is not False or cwd is not None or stderr != "inherit":
            raise UsageError("env, inherit_env, cwd and stderr are for a server that is started, not for a Server.")
        link = MemoryLink(target, limits=limits, stop=stop)
    else:
        raise UsageError(f"connect takes a command or a Server, and not a {type(target).__name__}.")
    return Connecting(Keeper(link, settings, process_memory if era_memory is None else EraMemory(era_memory)))


class Connecting:
    """A connection to be: enter it with ``async with``, or await it and close the client yourself."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    async def __aenter__(self) -> Client:
        await self._keeper.open()
        return Client(self._keeper)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._keeper.close()

    def __getattr__(self, name: str) -> NoReturn:
        hint = ". Use the client that it gives: async with connect(...) as client" if hasattr(Client, name) else ""
        raise AttributeError(f"What connect returns has no {name!r}{hint}.", name=name, obj=self)

    def __await__(self) -> Generator[Any, Any, Client]:
        return self.__aenter__().__await__()
