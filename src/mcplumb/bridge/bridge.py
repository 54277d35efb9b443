"""`Bridge`: serves clients of any era with servers of any other, over any transport."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.bridge.bridge_session import BridgeSession
from mcplumb.bridge.group_router import GroupRouter
from mcplumb.bridge.parked_calls import ParkedCalls
from mcplumb.bridge.router import Router, SingleRouter
from mcplumb.bridge.server_pool import ServerPool, Share
from mcplumb.client.connector import ConfigEntry, Connecting, connect
from mcplumb.client.group_member import enabled_servers, target_and_options
from mcplumb.errors import McplumbError, UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.protocol.group_routing import GroupNames, group_prefix
from mcplumb.rpc.observed_endpoint import combined
from mcplumb.server.server import Server
from mcplumb.server.server_session import ServerSession
from mcplumb.transports.address import Address, HttpAddress, UnixAddress, read_address
from mcplumb.version import __version__

if TYPE_CHECKING:
    import ssl

    from mcplumb.bridge.remote_calls import RemoteCalls
    from mcplumb.client.auth.oauth import Auth
    from mcplumb.protocol.http_headers import ParamHeaders
    from mcplumb.recording.recorded_trace import Place
    from mcplumb.server.address_host import OnReady
    from mcplumb.server.stderr_logs import LogFormat
    from mcplumb.stores.replica import Replica
    from mcplumb.telemetry.request_metrics import BackendMetrics, ServerMetrics
    from mcplumb.transports.connection import Connection, Peer
    from mcplumb.transports.http_server.asgi_app import HttpApp
    from mcplumb.transports.http_server.http_options import HttpOptions

__all__ = ["Bridge", "Updated"]

_logger = logging.getLogger("mcplumb.bridge")

#: Seconds between two looks at the files that are watched.
_WATCH_INTERVAL = 1.0
_SHARES = ("auto", "always", "never")
#: Options of ``connect`` for servers that are started, and for servers at an HTTP address. Of several servers, each
#: gets those that it can use.
_STARTED_ONLY = ("env", "inherit_env", "cwd", "stderr")
_HTTP_ONLY = ("headers", "token", "auth", "proxy", "http_sse")
#: Hosts by which a process reaches a listener of its own machine, and those that listen for them.
_OWN_HOSTS = frozenset(("localhost", "127.0.0.1", "::1", "0.0.0.0", "::"))  # noqa: S104 - compared, not bound


class Updated(msgspec.Struct, frozen=True):
    """What changed when the servers of a bridge were replaced."""

    added: list[str]
    removed: list[str]
    changed: list[str]


class Bridge:
    """A server whose features are those of other servers: ``Bridge(["npx", "some-server"]).run("http://…")``.

    ``target`` is what `mcplumb.connect` takes: a command, an address, a server object or an entry of a config file. Or
    it is a mapping of names to these, a loaded config, or the contents of a config file, ``{"mcpServers": {…}}``: then
    the servers are served as one, and the names of their tools and prompts get the name of their server as a prefix.
    Entries that the config marks as disabled are left out, and a server may be a mapping with its ``target`` and
    options of its own, as for `mcplumb.connect_all`. The servers are started when a client needs them, started again
    after a crash, and stopped when they are idle. Clients and servers may speak different eras and use different
    transports.

    - ``share`` says whether clients share one server. *auto*: they do if the server is modern, and if it is legacy
      those do that cannot be asked anything; every other client gets a server of its own. *always*: all share one, and
      a legacy server cannot ask them anything. *never*: each has its own.
    - ``idle`` is how many seconds a server without clients is kept; with 0, it is stopped at once.
    - ``only`` and ``hide`` are patterns such as ``notes_*``: of several servers, only the tools and prompts that match
      are passed on, or all others.
    - ``max_servers`` is how often one server runs at once, at most.
    - ``max_parked`` calls may wait for the answer of a modern client to a legacy server's question, each for
      ``park_within`` seconds.
    - ``sign_in`` returns the authorization for the URL of a server, or None: a client's token is never passed on.
    - ``watch`` are files, such as those of a config. When one of them changes, ``reload`` returns the new servers, and
      ``update`` is called with them.
    - ``record`` is a file to record all messages from and to clients, with secrets masked, or a folder for a file of
      its own; True is the folder of ``mcplumb sessions``.
    - ``connect_options`` are passed to `mcplumb.connect`, such as ``env``, ``stderr`` or ``auth``.
    """

    def __init__(
        self,
        target: Any,
        *,
        name: str | None = None,
        share: Share = "auto",
        idle: float = 300.0,
        only: Sequence[str] = (),
        hide: Sequence[str] = (),
        max_servers: int = 100,
        max_parked: int = 1000,
        park_within: float = 600.0,
        sign_in: Callable[[str], Auth | None] | None = None,
        watch: Sequence[str | os.PathLike[str]] = (),
        reload: Callable[[], Mapping[str, Any]] | None = None,
        limits: Limits = DEFAULT_LIMITS,
        finish_within: float = 30.0,
        stop_within: float = 5.0,
        record: Place = None,
        **connect_options: Any,
    ) -> None:
        if share not in _SHARES:
            raise UsageError(f"share is {share!r}: it must be 'auto', 'always' or 'never'.")
        for option, value in (("idle", idle), ("park_within", park_within)):
            if not 0 <= value < float("inf"):
                raise UsageError(f"{option} is {value!r}: it is a number of seconds, at least 0.")
        for option, number in (("max_servers", max_servers), ("max_parked", max_parked)):
            if number < 1:
                raise UsageError(f"{option} is {number!r}: it is an integer of at least 1.")
        self._is_group = isinstance(target, Mapping)
        #: What is counted of each server; None unless ``/metrics`` is served.
        self.backend_metrics: BackendMetrics | None = None
        #: What metrics call a server without a name: its command line may have secrets in it.
        self._metrics_name = name or "server"
        if (only or hide) and not self._is_group:
            raise UsageError("only and hide are for several servers: give a mapping of their names.")
        self._only, self._hide = tuple(only), tuple(hide)
        #: The servers by name, as they were given.
        self.servers: dict[str, Any] = enabled_servers(target) if self._is_group else {name or _name_of(target): target}
        if not self.servers:
            raise UsageError("A bridge needs at least one server.")
        if bool(watch) != (reload is not None) or (reload is not None and not self._is_group):
            raise UsageError("watch and reload belong together, and are for a bridge over several servers.")
        if self._is_group:
            _check_names(self.servers)
        self._watch, self._reload = [os.fspath(file) for file in watch], reload
        #: By these, changes are noticed, also those from before it runs.
        self._stamps = _stamps(self._watch)
        #: Where it serves: it must not be one of its own servers.
        self._own_addresses: list[Address] = []
        self._sign_in = sign_in
        self._connect_options = {"limits": limits, **connect_options}
        self._new_pool = partial(ServerPool, share=share, idle=idle, max_instances=max_servers)
        if self._is_group:
            # Raises TypeError now if an option is unknown. A wrong target is that server's failure.
            inspect.signature(connect).bind(target, **self._connect_options)
        else:
            self._open(target, name or "")  # raises UsageError now if the target or an option is wrong
        self._is_running = False
        #: The servers that run or may be started, and those that finish their last calls.
        self._pools: dict[str, ServerPool] = {}
        self._retiring: dict[ServerPool, asyncio.Task[None]] = {}
        self._max_parked, self._park_within = max_parked, park_within
        self._finish_within = finish_within
        #: Which server a request goes to, and the calls that wait for answers. They exist while the bridge runs.
        self.router: Router
        self.parked_calls: ParkedCalls
        self._remote_calls: RemoteCalls | None = None
        #: The tools that were listed whose arguments clients over HTTP repeat in headers.
        self.param_headers: dict[str, ParamHeaders] = {}
        self._front = _Front(
            self,
            "mcplumb-bridge",
            version=__version__,
            lifespan=self._running,
            limits=limits,
            finish_within=finish_within,
            stop_within=stop_within,
            state_ttl=park_within + 60.0,
            record=record,
        )

    def run(
        self,
        *addresses: str,
        log_format: LogFormat | None = None,
        trace: bool | None = None,
        tls: ssl.SSLContext | None = None,
        http: HttpOptions | None = None,
        on_ready: OnReady | None = None,
    ) -> None:
        """Serve until SIGINT or SIGTERM, at any number of addresses; by default on stdio. See ``Server.run``."""
        ready = partial(self._opened, on_ready)
        self._front.run(*addresses, log_format=log_format, trace=trace, tls=tls, http=http, on_ready=ready)

    async def serve(
        self,
        *addresses: str,
        tls: ssl.SSLContext | None = None,
        http: HttpOptions | None = None,
        on_ready: OnReady | None = None,
    ) -> None:
        """Serve inside a running event loop, until ``stop`` or cancellation. See ``Server.serve``."""
        await self._front.serve(*addresses, tls=tls, http=http, on_ready=partial(self._opened, on_ready))

    def asgi(self, http: HttpOptions | None = None) -> HttpApp:
        """Return an ASGI application that serves the bridge over HTTP."""
        return self._front.asgi(http)

    async def serve_connection(self, connection: Connection, peer: Peer | None = None) -> None:
        """Serve one connection until it ends. This lets ``connect`` take a bridge like a server."""
        await self._front.serve_connection(connection, peer)

    def stop(self) -> bool:
        """Accept no more requests, finish the accepted ones, and stop the servers. May be called from any thread."""
        return self._front.stop()

    @property
    def health(self) -> dict[str, str]:
        """The state of each server: *running*, *starting*, *failed*, or *idle* if no client needs it at the moment."""
        return {name: pool.state for name, pool in self._pools.items()}

    @property
    def remote_calls(self) -> RemoteCalls | None:
        """The calls that wait at other replicas; None without replicas."""
        replica = self._front.replica
        if self._remote_calls is None and replica is not None and replica.is_open:
            from mcplumb.bridge.remote_calls import RemoteCalls

            self._remote_calls = RemoteCalls(self._front, replica)
        return self._remote_calls

    async def update(self, servers: Mapping[str, Any]) -> Updated:
        """Replace the servers of a bridge over several: add, remove and restart only those that differ.

        To be awaited in the event loop in which the bridge runs. Calls in flight on servers that are removed or changed
        may finish.
        """
        updated, retiring = self._replace(servers)
        if retiring:
            await asyncio.wait(retiring)
        return updated

    def _replace(self, servers: Mapping[str, Any]) -> tuple[Updated, list[asyncio.Task[None]]]:
        """Replace the servers, and return what changed and the tasks in which the old ones finish their calls."""
        if not self._is_group:
            raise UsageError("A bridge over one server cannot be updated: make it with a mapping of names.")
        servers = enabled_servers(servers)
        _check_names(servers)
        before, self.servers = self.servers, servers
        updated = Updated(
            added=[name for name in servers if name not in before],
            removed=[name for name in before if name not in servers],
            changed=[name for name in servers if name in before and not _are_same(servers[name], before[name])],
        )
        if not self._is_running or not isinstance(self.router, GroupRouter):
            return updated, []  # the next start takes the new servers
        retired = [self.router.remove(name) for name in (*updated.removed, *updated.changed)]
        for name in (*updated.changed, *updated.added):
            self.router.add(name, self._pool_of(name))
        self.router.put_in_order(self.servers)
        self._pools = self.router.pools
        self._front.active_sessions.for_each_session(partial(_forget, retired))
        return updated, [self._retire(pool) for pool in retired]

    def _retire(self, pool: ServerPool) -> asyncio.Task[None]:
        retiring = self._retiring[pool] = asyncio.create_task(pool.retire(self._finish_within))
        retiring.add_done_callback(lambda _: self._retiring.pop(pool, None))
        return retiring

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        """Keep the shared state of the sessions while there are any; then stop the servers."""
        self.parked_calls = ParkedCalls(
            max_calls=self._max_parked,
            ttl=self._park_within,
            own_number=lambda: None if self.remote_calls is None else self.remote_calls.own_number,
        )
        self._pools = {name: self._pool_of(name) for name in self.servers}
        if self._is_group:
            self.router = GroupRouter(self._pools, only=self._only, hide=self._hide)
        else:
            self.router = SingleRouter(*self._pools.values())
        self._is_running = True
        watching = asyncio.create_task(self._watch_files())
        try:
            yield
        finally:
            self._is_running = False
            self._own_addresses.clear()
            watching.cancel()
            self.parked_calls.close()
            if self._remote_calls is not None:
                self._remote_calls.close()
                self._remote_calls = None
            closing, self._pools = [*self._pools.values(), *self._retiring], {}
            await asyncio.gather(*(pool.close() for pool in closing), *self._retiring.values())

    async def _watch_files(self) -> None:
        """Update the servers whenever one of the files has changed."""
        if self._reload is None:
            return
        while True:
            await asyncio.sleep(_WATCH_INTERVAL)
            if (stamps := _stamps(self._watch)) == self._stamps:
                continue
            self._stamps = stamps
            try:
                updated, _ = self._replace(self._reload())
            except Exception as error:  # noqa: BLE001 - the function may be anybody's; the next change may mend it
                _logger.warning("The servers stay as they are, because their files cannot be used. %s", error)
            else:
                for what, names in msgspec.structs.asdict(updated).items():
                    if names:
                        _logger.info("Servers %s: %s.", what, ", ".join(names))

    def _opened(self, on_ready: OnReady | None, address: str) -> None:
        """Remember an address at which the bridge serves, and pass it on."""
        if (place := read_address(address)) is not None:
            self._own_addresses.append(place)
        if on_ready is not None:
            on_ready(address)

    def _pool_of(self, name: str) -> ServerPool:
        return self._new_pool(name, partial(self._open, self.servers[name], name))

    def _observed(self, connecting: Connecting, name: str) -> Connecting:
        """Let the metrics of a server observe the connection, if there are any."""
        if self.backend_metrics is not None:
            supervisor = connecting.supervisor
            backend = self.backend_metrics.observer(name if self._is_group else self._metrics_name)
            observer = combined(supervisor.settings.observer, backend)
            supervisor.settings = msgspec.structs.replace(supervisor.settings, observer=observer)
        return connecting

    def _open(self, target: Any, name: str) -> Connecting:
        """Return a connection to a server, not yet opened."""
        if isinstance(target, McplumbError):
            raise target.with_traceback(None)  # the entry of a config file is broken
        target, own_options = target_and_options(name, target) if self._is_group else (target, {})
        options = dict(self._connect_options)
        place = target.connect_arguments()[0] if isinstance(target, ConfigEntry) else target
        address = read_address(place) if isinstance(place, str) else None
        if address is not None and any(_is_same_place(address, own) for own in self._own_addresses):
            raise UsageError(f"{address} is this bridge itself, which would wait for itself without end.")
        if self._is_group:
            is_command = address is None and isinstance(place, str | os.PathLike | Sequence)
            unused = (() if is_command else _STARTED_ONLY, () if isinstance(address, HttpAddress) else _HTTP_ONLY)
            for option in itertools.chain(*unused):
                options.pop(option, None)
            folder = options.get("stderr")
            if isinstance(folder, os.PathLike) and Path(folder).is_dir():
                options["stderr"] = Path(folder, f"{group_prefix(name)}.log")
            options |= own_options
        if isinstance(address, HttpAddress) and self._sign_in is not None and "token" not in options:
            options.setdefault("auth", self._sign_in(place))
        return self._observed(connect(target, **options), name)


class _Front(Server):
    """The server that a bridge is to its clients. Its sessions forward requests."""

    _recorded_by = "bridge"

    def __init__(self, bridge: Bridge, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self._bridge = bridge
        self.active_sessions.new_session = partial(BridgeSession, bridge)

    @property
    def replica(self) -> Replica | None:
        """This process among those that share a store, if there is one."""
        return next(iter(self._replicas.values()), None)

    def _param_headers(self, tool: str) -> ParamHeaders | None:
        return self._bridge.param_headers.get(tool)

    def _health(self) -> dict[str, Any]:
        return {"servers": self._bridge.health}

    def _new_metrics(self) -> ServerMetrics:
        from mcplumb.telemetry.request_metrics import BackendMetrics, ServerMetrics

        backends = self._bridge.backend_metrics = BackendMetrics()
        metrics = ServerMetrics()
        metrics.registry.read_gauges(backends, backends.families)
        return metrics


def _stamps(files: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return stamps by which versions of the files differ."""
    stamps: list[tuple[int, int] | None] = []
    for file in files:
        try:
            status = os.stat(file)  # noqa: PTH116 - once a second
            stamps.append((status.st_mtime_ns, status.st_size))
        except OSError:
            stamps.append(None)
    return stamps


def _are_same(server: Any, other: Any) -> bool:
    """Return whether two targets, or the errors of two broken entries, are the same."""
    if isinstance(server, McplumbError) and isinstance(other, McplumbError):
        return str(server) == str(other)
    return bool(server == other)


def _is_same_place(address: Address, own: Address) -> bool:
    """Return whether an address is that of one's own listener, perhaps by another name of this machine."""
    if isinstance(address, UnixAddress) and isinstance(own, UnixAddress):
        return os.path.realpath(address.path) == os.path.realpath(own.path)
    if isinstance(address, UnixAddress) or isinstance(own, UnixAddress) or type(address) is not type(own):
        return False
    return address.port == own.port and (address.host == own.host or {address.host, own.host} <= _OWN_HOSTS)


def _check_names(servers: Mapping[str, Any]) -> None:
    """Raise `UsageError` if two servers would get the same prefix."""
    names = GroupNames()
    for server in servers:
        if not isinstance(server, str):
            raise UsageError(f"The name of a server must be a string, not a {type(server).__name__}.")
        names.add_server(server)


def _forget(pools: Sequence[ServerPool], session: ServerSession) -> None:
    if isinstance(session, BridgeSession):
        session.forget(pools)


def _name_of(target: Any) -> str:
    """Return a name for a server in messages."""
    if isinstance(target, ConfigEntry):
        return str(getattr(target, "name", "server"))
    if isinstance(target, str):
        return target
    if isinstance(target, Sequence):
        return " ".join(map(os.fspath, target))
    return str(getattr(target, "name", "server"))
