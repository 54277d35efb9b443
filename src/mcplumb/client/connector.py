"""`connect`: turn a command, an address, a config entry or a server object into a client."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias, cast, runtime_checkable

import msgspec

from mcplumb.client.client import Client
from mcplumb.client.client_settings import DEFAULT_MAX_TIMEOUT, DEFAULT_TIMEOUT, ClientSettings, OnLog
from mcplumb.client.handshake import EraMemory, process_memory
from mcplumb.client.input_handlers import InputHandlers, OnElicit, OnSample, Roots
from mcplumb.client.known_tools import OutputChecker
from mcplumb.client.link import CustomLink, MemoryLink, Opens, Serves, SocketLink
from mcplumb.client.supervisor import Supervisor
from mcplumb.errors import UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.protocol.era import DEFAULT_WAITS, EraWaits
from mcplumb.protocol.restart import ResendPolicy, RestartPolicy
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.revisions import allowed_revisions
from mcplumb.transports.address import Address, HttpAddress, TcpAddress, read_address
from mcplumb.transports.line_connection import Trace
from mcplumb.types.base import Implementation
from mcplumb.types.lifecycle import ClientCapabilities
from mcplumb.version import __version__

if TYPE_CHECKING:
    import ssl

    from mcplumb.client.auth.oauth import Auth
    from mcplumb.recording.recorded_trace import Place, RecordedTrace
    from mcplumb.rpc.observed_endpoint import Observer
    from mcplumb.transports.process.stderr import StderrMode

__all__ = ["OWN_INFO", "ConfigEntry", "Connecting", "Target", "connect", "is_started_by_command"]

_DEFAULT_STOP = StopLadder()
#: Failing to connect to an address is cheap, and usual while a service manager restarts the server.
_ADDRESS_RESTART = RestartPolicy(max_wait=5.0, breaker_after=20)
#: The client info that is sent by default.
OWN_INFO = Implementation("mcplumb", __version__)


@runtime_checkable
class ConfigEntry(Protocol):
    """A server's entry in a config file."""

    def connect_arguments(self) -> tuple[Any, dict[str, Any]]:
        """Return the target and the options for ``connect``; arguments of the caller take precedence."""


#: What `connect` connects to.
Target: TypeAlias = ConfigEntry | Serves | Opens | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def is_started_by_command(target: object) -> bool:
    """Return whether the target is a command; raise `UsageError` for an address that cannot be read."""
    if isinstance(target, str):
        return read_address(target) is None
    return isinstance(target, os.PathLike | Sequence)


def connect(
    target: Target,
    *,
    # Requests and restarts
    timeout: float | None = DEFAULT_TIMEOUT,
    max_timeout: float | None = DEFAULT_MAX_TIMEOUT,
    restart: RestartPolicy | bool = True,
    retry: ResendPolicy = "safe",
    cache: bool = True,
    check_output: bool | None = None,
    # Input for the server, and its logs
    on_elicit: OnElicit | None = None,
    on_sample: OnSample | None = None,
    roots: Roots | None = None,
    on_log: OnLog | None = None,
    # A server that is started
    env: Mapping[str, str] | None = None,
    inherit_env: bool | Iterable[str] = False,
    cwd: str | os.PathLike[str] | None = None,
    stderr: StderrMode = "inherit",
    stop: StopLadder = _DEFAULT_STOP,
    # A server at an address
    tls: ssl.SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
    token: str | None = None,
    auth: Auth | None = None,
    proxy: str | None = None,
    http_sse: bool | None = None,
    # The protocol
    revisions: Iterable[str] | None = None,
    client_info: Implementation | None = OWN_INFO,
    capabilities: ClientCapabilities | None = None,
    waits: EraWaits = DEFAULT_WAITS,
    era_memory: str | os.PathLike[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    # Diagnosis
    trace: Trace | None = None,
    record: Place = None,
) -> Connecting:
    """Connect to a server: ``async with connect(["python", "weather.py"]) as client``.

    The target is one of:

    * a command to start: a list of the program and its arguments, or a string that is split as a POSIX shell would
      split it (no shell is involved);
    * an address: ``unix:/path``, ``tcp://host:port``, ``http://…`` or ``https://…``;
    * a ``Server`` in this process;
    * an async function that opens a new connection over a custom transport each time it is called;
    * an entry of a config file.

    Options for requests and restarts:

    * ``timeout``: seconds to wait for a response, unless the call sets its own; None for no limit.
      ``max_timeout``: the limit up to which progress extends the timeout, in seconds.
    * ``restart``: the policy for restarting a process that exited, or reconnecting to an address; False turns it off.
    * ``retry``: which requests that were lost with the connection are sent again: "safe" ones, "always" or "never".
    * ``cache``: whether to cache lists and contents for as long as a modern server allows.
    * ``check_output``: whether to validate tool results against their output schemas with jsonschema-rs; None
      validates if it is installed.

    Options for what the server asks and logs:

    * ``on_elicit``, ``on_sample``, ``roots``: handlers for the server's requests for input. The client declares only
      the capabilities it has handlers for. In the modern era, an exception in a handler is raised from the call that
      needed the input. A legacy server's request does not name that call: the exception is logged, and the server
      gets an error.
    * ``on_log``: called with each log message of the server.

    Options for a server that is started:

    * ``env``: environment variables for the server, in addition to a short list of safe ones that it always inherits.
      ``inherit_env``: the names of more to inherit, or True for all. ``cwd``: the working directory.
    * ``stderr``: what to do with the server's stderr: "inherit" passes it through, "capture" keeps its end for errors
      and ``client.process.stderr``, "discard" drops it, and a function is called with each line. A path (with a slash
      or a dot in it) or an open file gets all lines; a folder gets a file with the name of the server.
    * ``stop``: the timeouts of the shutdown.

    Options for a server at an address:

    * ``tls``: an `ssl.SSLContext` for ``tcp://`` and ``https://``.
    * ``headers``: sent with each HTTP request. ``token``: a bearer token. ``auth``: signs in or authorizes the program,
      such as ``OAuth()``. ``proxy``: the URL of an HTTP proxy.
    * ``http_sse``: True uses the HTTP+SSE transport, False never does, None detects it.

    Options for the protocol:

    * ``revisions``: the dates of the protocol revisions to allow; None allows all.
    * ``client_info``: the client's name and version; None sends neither. ``capabilities``: further capabilities to
      declare, for example extensions.
    * ``waits``: the timeouts of the handshake. ``era_memory``: a file that remembers the era of each server across
      programs. ``limits``: the caps on what the server sends.

    Options for diagnosis:

    * ``trace``: called with "in" or "out" and the bytes of each message, in the event loop's thread.
    * ``record``: a file to record the session to, with secrets masked, or a folder for a file of its own; True is the
      folder of ``mcplumb sessions``.
    """
    entry_name: str | None = None
    if isinstance(target, ConfigEntry):
        entry_name = getattr(target, "name", None)
        target, options = target.connect_arguments()
        env = {**options.get("env", {}), **(env or {})} or None
        headers = {**options.get("headers", {}), **(headers or {})} or None
        cwd = options.get("cwd") if cwd is None else cwd
        inherit_env = options.get("inherit_env", False) if inherit_env is False else inherit_env
        http_sse = options.get("http_sse") if http_sse is None else http_sse
    for name, function in (("on_elicit", on_elicit), ("on_sample", on_sample), ("on_log", on_log)):
        if function is not None and not callable(function):
            raise UsageError(f"{name} is a {type(function).__name__}: give it a function.")
    address = read_address(target) if isinstance(target, str) else None
    is_command = is_started_by_command(target)
    if isinstance(restart, bool):
        restart = msgspec.structs.replace(RestartPolicy() if is_command else _ADDRESS_RESTART, enabled=restart)
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
        observer=_configured_observer() if "opentelemetry.trace" in sys.modules else None,
    )
    memory = process_memory if era_memory is None else EraMemory(era_memory)
    recorded: RecordedTrace | None = None
    if record is not None and record is not False:
        trace = recorded = _recorded_trace(target, address, entry_name, record, trace)
    is_started = env is not None or inherit_env is not False or cwd is not None or stderr != "inherit"
    is_http = any(option is not None for option in (headers, token, auth, proxy, http_sse))
    if is_http and not isinstance(address, HttpAddress):
        raise UsageError(
            "headers, token, auth, proxy and http_sse are for a server with an http:// or https:// address."
        )
    can_have_tls = isinstance(address, TcpAddress) or (isinstance(address, HttpAddress) and address.scheme == "https")
    if tls is not None and not can_have_tls:
        raise UsageError("tls is for a server with a tcp:// or https:// address.")
    if is_command and isinstance(target, str | os.PathLike | Sequence):
        # Imported here, because a server in the same process needs none of it.
        from mcplumb.client.process_link import ProcessLink
        from mcplumb.transports.process.command import read_command
        from mcplumb.transports.process.stderr import stderr_mode

        command = read_command(target, env=env, inherit_env=inherit_env, cwd=cwd)
        stderr = stderr_mode(stderr, entry_name or os.path.basename(command.argv[0]))  # noqa: PTH119 - pathlib is slow to import
        process = ProcessLink(command, stderr=stderr, limits=limits, stop=stop, trace=trace)
        return Connecting(Supervisor(process, settings, memory, recorded))
    if is_started:
        raise UsageError("env, inherit_env, cwd and stderr are for a server that is started, not for one that runs.")
    if isinstance(address, HttpAddress):
        from mcplumb.client.http_link import HttpLink

        http = HttpLink(
            address,
            limits=limits,
            tls=tls,
            headers=headers,
            token=token,
            auth=auth,
            proxy=proxy,
            http_sse=http_sse,
            trace=trace,
        )
        supervisor = Supervisor(http, settings, memory, recorded)
        http.use(supervisor.registry)
        return Connecting(supervisor)
    if address is not None:
        link = SocketLink(address, limits=limits, tls=tls, trace=trace)
        return Connecting(Supervisor(link, settings, memory, recorded))
    if callable(getattr(target, "serve_connection", None)):
        local = MemoryLink(cast("Serves", target), limits=limits, stop=stop, trace=trace)
        return Connecting(Supervisor(local, settings, memory, recorded))
    if callable(target):
        if trace is not None:
            raise UsageError(
                "trace and record work only with the transports of mcplumb: record the messages in your own transport."
            )
        return Connecting(Supervisor(CustomLink(target), settings, memory))
    from mcplumb.transports.process.command import kind_of

    hint = ""
    if isinstance(target, Mapping):
        hint = ' To use an entry of a config, load it with load_config: a file, or {"mcpServers": {…}}.'
    raise UsageError(f"connect takes a command, an address or a Server, not {kind_of(target)}.{hint}")


class Connecting:
    """The return value of `connect`: enter it with ``async with``, or await it and close the client yourself."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor

    async def __aenter__(self) -> Client:
        await self.supervisor.open()
        return Client(self.supervisor)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.supervisor.close()

    def __getattr__(self, name: str) -> NoReturn:
        hint = ". Use the client that it gives: async with connect(...) as client" if hasattr(Client, name) else ""
        raise AttributeError(f"The return value of connect has no {name!r}{hint}.", name=name, obj=self)

    def __await__(self) -> Generator[Any, Any, Client]:
        return self.__aenter__().__await__()


def _recorded_trace(
    target: object, address: Address | None, name: str | None, record: Place, trace: Trace | None
) -> RecordedTrace:
    from mcplumb.config.entry import mask_arguments, mask_url
    from mcplumb.recording.recorded_trace import record_session

    transport, command, url = "memory", None, None
    if isinstance(target, str) and address is not None:
        transport, url = str(address).partition(":")[0].removesuffix("s"), mask_url(target)
    elif is_started_by_command(target):
        from mcplumb.transports.process.command import read_command

        transport = "stdio"
        command = mask_arguments(read_command(cast("Any", target), env=None, inherit_env=False, cwd=None).argv)
    return record_session(record, "client", transport, trace, name=name or "", command=command, url=url)


def _configured_observer() -> Observer | None:
    from mcplumb.telemetry.opentelemetry_observer import configured_observer

    return configured_observer()
