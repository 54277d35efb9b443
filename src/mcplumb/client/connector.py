"""``connect``: from what a user has to a client that is ready."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast, runtime_checkable

import msgspec

from mcplumb.client.client import Client
from mcplumb.client.handshake import EraMemory, process_memory
from mcplumb.client.input_handlers import InputHandlers, OnElicit, OnSample, Roots
from mcplumb.client.links.link import CustomLink, MemoryLink, Opens, Serves
from mcplumb.client.options import DEFAULT_MAX_TIMEOUT, DEFAULT_TIMEOUT, ClientSettings, OnLog
from mcplumb.client.supervisor import Supervisor
from mcplumb.client.tool_registry import OutputChecker
from mcplumb.errors import UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.protocol.era import DEFAULT_WAITS, EraWaits
from mcplumb.protocol.restart import ResendPolicy, RestartPolicy
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.revisions import allowed_revisions
from mcplumb.transports.address import HttpAddress, TcpAddress, read_address
from mcplumb.transports.line_connection import Trace
from mcplumb.types.base import Implementation
from mcplumb.types.lifecycle import ClientCapabilities
from mcplumb.version import __version__

if TYPE_CHECKING:
    import ssl

    from mcplumb.transports.process.stderr import StderrMode

__all__ = ["Connecting", "Entry", "connect"]

_DEFAULT_STOP = StopLadder()
#: To find nobody at an address costs nothing, and is what a server looks like that somebody else is starting again.
_FOR_ADDRESSES = RestartPolicy(max_wait=5.0, breaker_after=20)
_MCPLUMB = Implementation("mcplumb", __version__)


@runtime_checkable
class Entry(Protocol):
    """A server as a config file has it."""

    def connect_arguments(self) -> tuple[Any, dict[str, Any]]:
        """What to connect to, and those options of ``connect`` that say how. A caller may say otherwise."""


def connect(
    target: Entry | Serves | Opens | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
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
    client_info: Implementation | None = _MCPLUMB,
    capabilities: ClientCapabilities | None = None,
    cache: bool = True,
    check_output: bool | None = None,
    era_memory: str | os.PathLike[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    waits: EraWaits = DEFAULT_WAITS,
    stop: StopLadder = _DEFAULT_STOP,
    tls: ssl.SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
    token: str | None = None,
    proxy: str | None = None,
    http_sse: bool | None = None,
    trace: Trace | None = None,
) -> Connecting:
    """Connect to a server: ``async with connect(["python", "weather.py"]) as client``.

    The target is a command that starts one: a list of the program and its arguments, or a string that is split as a
    POSIX shell would, though no shell is involved. Or it is the address of one: ``unix:/path``, ``tcp://host:port``,
    ``http://…`` or ``https://…``. Or it is a ``Server`` of this process. Or it is an async function that opens
    a connection, each time a new one, over a transport of your own. Or it is an entry of a config file.

    * ``env``: variables for the server, beside a short list of safe ones of ours. ``inherit_env``: the names of more
      to pass on, or True for all. ``cwd``: the folder to start it in.
    * ``stderr``: what becomes of what it writes there: "inherit" shows it on ours, "capture" keeps the end of it for
      errors and ``client.process.stderr``, "discard" drops it, and a function is called with each line.
    * ``timeout``: seconds that the server has for an answer, unless a call says otherwise; None for no limit.
      ``max_timeout``: seconds that progress can extend that to.
    * ``restart``: how a server that exited is started again, or one at an address connected to again; False for not
      at all. ``retry``: which of the requests that it took with it are sent again: those that are "safe",
      "always" all, or "never" any.
    * ``revisions``: the dates of the protocol revisions to allow; all of them if None.
    * ``on_elicit``, ``on_sample``, ``roots``: what the server may ask for. Without them it is told that it may not.
      If one of the functions raises something, so does the call that the question belongs to. A legacy server's
      question does not say which call that is: there the server is told that the function failed, and the log says why.
    * ``on_log``: is called with each log message of the server.
    * ``client_info``: who asks; None says nothing. ``capabilities``: what else to declare, for instance extensions.
    * ``cache``: whether lists and contents are kept for as long as a modern server allows, or asked for each time.
    * ``check_output``: whether results of tools are checked against their output schemas, with jsonschema-rs; None
      for if that is installed.
    * ``era_memory``: a file that remembers which era each server belongs to, for the next program.
    * ``limits``, ``waits``, ``stop``: the caps, the patience while connecting, and that while closing.
    * ``tls``: for ``tcp://`` and ``https://``: an `ssl.SSLContext`. ``headers``, ``token``, ``proxy``: for HTTP: what
      to send with each request, the bearer token to show, and the proxy to go through. ``http_sse``: True for a server
      of the HTTP+SSE transport, False for one that is not; None finds out.
    * ``trace``: is called with "in" or "out" and the bytes of each message, in the event loop's thread.
    """
    if isinstance(target, Entry):
        target, said = target.connect_arguments()
        env = {**said.get("env", {}), **(env or {})} or None
        headers = {**said.get("headers", {}), **(headers or {})} or None
        cwd = said.get("cwd") if cwd is None else cwd
        inherit_env = said.get("inherit_env", False) if inherit_env is False else inherit_env
        http_sse = said.get("http_sse") if http_sse is None else http_sse
    for name, function in (("on_elicit", on_elicit), ("on_sample", on_sample), ("on_log", on_log)):
        if function is not None and not callable(function):
            raise UsageError(f"{name} is a {type(function).__name__}: give it a function.")
    address = read_address(target) if isinstance(target, str) else None
    is_command = address is None and isinstance(target, str | os.PathLike | Sequence)
    if isinstance(restart, bool):
        restart = msgspec.structs.replace(RestartPolicy() if is_command else _FOR_ADDRESSES, enabled=restart)
    settings = ClientSettings(
        input_handlers=InputHandlers(on_elicit=on_elicit, on_sample=on_sample, roots=roots, capabilities=capabilities),
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
    memory = process_memory if era_memory is None else EraMemory(era_memory)
    is_started = env is not None or inherit_env is not False or cwd is not None or stderr != "inherit"
    is_http = headers is not None or token is not None or proxy is not None or http_sse is not None
    if is_http and not isinstance(address, HttpAddress):
        raise UsageError("headers, token, proxy and http_sse are for a server with an http:// or https:// address.")
    can_have_tls = isinstance(address, TcpAddress) or (isinstance(address, HttpAddress) and address.scheme == "https")
    if tls is not None and not can_have_tls:
        raise UsageError("tls is for a server with a tcp:// or https:// address.")
    if is_command and isinstance(target, str | os.PathLike | Sequence):
        # A server in the same process needs none of this.
        from mcplumb.client.links.process_link import ProcessLink
        from mcplumb.transports.process.command import read_command
        from mcplumb.transports.process.stderr import check_stderr_mode

        check_stderr_mode(stderr)
        command = read_command(target, env=env, inherit_env=inherit_env, cwd=cwd)
        return Connecting(
            Supervisor(ProcessLink(command, stderr=stderr, limits=limits, stop=stop, trace=trace), settings, memory)
        )
    if is_started:
        raise UsageError("env, inherit_env, cwd and stderr are for a server that is started, not for one that runs.")
    if isinstance(address, HttpAddress):
        from mcplumb.client.links.http_link import HttpLink

        http = HttpLink(
            address,
            limits=limits,
            tls=tls,
            headers=headers,
            token=token,
            proxy=proxy,
            http_sse=http_sse,
            trace=trace,
        )
        supervisor = Supervisor(http, settings, memory)
        http.use(supervisor.registry)
        return Connecting(supervisor)
    if address is not None:
        from mcplumb.client.links.socket_link import SocketLink

        return Connecting(Supervisor(SocketLink(address, limits=limits, tls=tls, trace=trace), settings, memory))
    if callable(getattr(target, "serve_connection", None)):
        return Connecting(
            Supervisor(MemoryLink(cast("Serves", target), limits=limits, stop=stop, trace=trace), settings, memory)
        )
    if callable(target):
        if trace is not None:
            raise UsageError("trace is for the transports of mcplumb: one of your own sees its messages itself.")
        return Connecting(Supervisor(CustomLink(target), settings, memory))
    raise UsageError(f"connect takes a command, an address or a Server, and not a {type(target).__name__}.")


class Connecting:
    """A connection to be: enter it with ``async with``, or await it and close the client yourself."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def __aenter__(self) -> Client:
        await self._supervisor.open()
        return Client(self._supervisor)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._supervisor.close()

    def __getattr__(self, name: str) -> NoReturn:
        hint = ". Use the client that it gives: async with connect(...) as client" if hasattr(Client, name) else ""
        raise AttributeError(f"What connect returns has no {name!r}{hint}.", name=name, obj=self)

    def __await__(self) -> Generator[Any, Any, Client]:
        return self.__aenter__().__await__()
