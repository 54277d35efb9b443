"""The metrics of a server, as ``/metrics`` shows them, and those of the servers behind a bridge."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mcplumb.rpc.endpoint import Endpoint
from mcplumb.rpc.handler import Handled, Reply
from mcplumb.rpc.observed_endpoint import Failure, Watch
from mcplumb.telemetry.metric_families import OTHER, Family, Histogram, Registry, text_of
from mcplumb.types.method_table import METHODS
from mcplumb.types.payload_decoder import UNREADABLE
from mcplumb.version import __version__
from mcplumb.wire.messages import ErrorDetail, Request

if TYPE_CHECKING:
    from mcplumb.transports.http_server.asgi_app import HttpApp

__all__ = ["BackendMetrics", "BackendObserver", "ServerMetrics", "gauge", "http_gauges"]


class _Named(msgspec.Struct):
    name: str = ""


_decode_named = msgspec.json.Decoder(_Named).decode


def gauge(name: str, text: str, numbers: dict[tuple[str, ...], float], labels: tuple[str, ...] = ()) -> Family:
    """Return a family of gauges with these values."""
    return Family(name, "gauge", text, labels, series={key: [float(number)] for key, number in numbers.items()})


def http_gauges(app: HttpApp) -> list[Family]:
    """Return the numbers of open sessions and streams of an application, as gauges."""
    sessions: dict[tuple[str, ...], float] = {(transport,): number for transport, number in app.legacy_sessions.items()}
    return [
        gauge("mcplumb_sessions", "Sessions of legacy clients over HTTP.", sessions, ("transport",)),
        gauge("mcplumb_streams", "HTTP responses that are open streams of events.", {(): app.open_streams}),
    ]


class ServerMetrics:
    """Counts and times the requests of clients, and returns the text for ``/metrics``.

    ``has_tool`` says whether a tool exists; without it, a name counts if the call had a result. ``custom`` has the
    methods that are not the protocol's. Everything else that clients name becomes `OTHER`.
    """

    def __init__(
        self, *, has_tool: Callable[[str], bool] | None = None, custom: Mapping[str, object] | None = None
    ) -> None:
        self._has_tool = has_tool
        self._custom = {} if custom is None else custom
        labels = ("method", "tool")
        self._requests = Family(
            "mcplumb_requests_total", "counter", "Requests that ended, by outcome.", (*labels, "outcome")
        )
        self._durations = Histogram(
            "mcplumb_request_duration_seconds", "From the start of a request to its outcome.", labels
        )
        self._refused = Family(
            "mcplumb_requests_refused_total", "counter", "Requests that were not begun, by error code.", ("code",)
        )
        self._http_refused = Family(
            "mcplumb_http_refused_total", "counter", "HTTP requests that were refused, by status.", ("status",)
        )
        self._malformed = Family(
            "mcplumb_bad_messages_total", "counter", "Lines and bodies of clients that are not messages."
        )
        self._malformed.add((), 0)  # so that it exists before the first one
        families = [self._requests, self._durations, self._refused, self._http_refused, self._malformed]
        self.registry = Registry(families)
        self.registry.read_gauges(
            self, lambda: [gauge("mcplumb_info", "The version of mcplumb.", {(__version__,): 1}, ("version",))]
        )
        #: Returns the text for all processes that share the address; None if this process is alone.
        self.collect: Callable[[], Awaitable[bytes]] | None = None

    async def text(self) -> bytes:
        """Return all metrics as text."""
        return text_of(self.registry.snapshot()) if self.collect is None else await self.collect()

    def refused_http(self, status: int) -> None:
        """Count an HTTP request that was refused."""
        self._http_refused.add((str(status),))

    # --- The observer ---

    def received(self, endpoint: Endpoint, request: Request, admitted: Handled | Reply) -> Watch:
        """Return a watch that times and counts a request."""
        method = request.method
        name = ""
        if method == "tools/call":
            name = _name_in(request.params)
        elif method not in METHODS and method not in self._custom:
            method = OTHER
        return _Timer(self, method, name)

    def sending(self, endpoint: Endpoint, method: str, params: Any) -> tuple[Watch, Any]:
        """Ignore a request to the client: its duration says nothing about the server."""
        return _IGNORED, params

    def refused(self, error: ErrorDetail) -> None:
        """Count a request that is not accepted."""
        self._refused.add((str(error.code),))

    def malformed(self) -> None:
        """Count a line that is not a message."""
        self._malformed.add()

    def ended(self, endpoint: Endpoint, seconds: float) -> None:
        """Ignore the end of a connection."""

    def restarted(self) -> None:
        """Do nothing: a server does not restart its connections."""

    def count(self, method: str, tool: str, seconds: float, failure: Failure | None) -> None:
        """Count a request that has ended."""
        if tool:
            is_known = self._has_tool(tool) if self._has_tool is not None else failure is None or failure.code is None
            tool = tool if is_known else OTHER
        self._requests.add((method, tool, "ok" if failure is None else failure.kind))
        self._durations.observe((method, tool), seconds)


class _Timer:
    """Times one request of a client."""

    __slots__ = ("_method", "_metrics", "_start", "_tool")

    def __init__(self, metrics: ServerMetrics, method: str, tool: str) -> None:
        self._metrics = metrics
        self._method = method
        self._tool = tool
        self._start = time.perf_counter()

    def enter(self) -> None:
        """Do nothing."""

    leave = enter

    def end(self, failure: Failure | None) -> None:
        self._metrics.count(self._method, self._tool, time.perf_counter() - self._start, failure)


class _Ignored:
    """Observes nothing."""

    def enter(self) -> None:
        """Do nothing."""

    leave = enter

    def end(self, failure: Failure | None) -> None:
        """Do nothing."""


_IGNORED = _Ignored()


def _name_in(params: Any) -> str:
    try:
        return _decode_named(params).name
    except (*UNREADABLE, TypeError):
        return ""


# --- The servers behind a bridge ---


class BackendMetrics:
    """The metrics of the servers behind a bridge."""

    def __init__(self) -> None:
        self.requests = Family(
            "mcplumb_backend_requests_total",
            "counter",
            "Requests to the servers behind the bridge, by outcome.",
            ("server", "outcome"),
        )
        self.durations = Histogram(
            "mcplumb_backend_request_duration_seconds", "From sending a request to its result.", ("server",)
        )
        self.in_flight: dict[str, int] = {}
        self.restarts = Family(
            "mcplumb_backend_restarts_total",
            "counter",
            "How often a server behind the bridge was started or connected to again after it was lost.",
            ("server",),
        )

    def families(self) -> list[Family]:
        """Return all families, with the requests in flight."""
        in_flight: dict[tuple[str, ...], float] = {(server,): number for server, number in self.in_flight.items()}
        text = "Requests that a server behind the bridge has not answered yet."
        gauges = gauge("mcplumb_backend_requests_in_flight", text, in_flight, ("server",))
        return [self.requests, self.durations, self.restarts, gauges]

    def observer(self, server: str) -> BackendObserver:
        """Return the observer of the connections to one server."""
        self.in_flight.setdefault(server, 0)
        self.restarts.add((server,), 0)
        return BackendObserver(self, server)


class BackendObserver:
    """Observes the requests to one server behind a bridge."""

    def __init__(self, metrics: BackendMetrics, server: str) -> None:
        self.metrics = metrics
        self.server = server

    def received(self, endpoint: Endpoint, request: Request, admitted: Handled | Reply) -> Watch:
        """Ignore a request of the server."""
        return _IGNORED

    def sending(self, endpoint: Endpoint, method: str, params: Any) -> tuple[Watch, Any]:
        """Return a watch that times and counts a request."""
        return _BackendTimer(self), params

    def refused(self, error: ErrorDetail) -> None:
        """Ignore a refused request, which the server sent."""

    def malformed(self) -> None:
        """Ignore a malformed line: the client of the server logs it."""

    def ended(self, endpoint: Endpoint, seconds: float) -> None:
        """Ignore the end of a connection."""

    def restarted(self) -> None:
        """Count that the server was started, or connected to, again."""
        self.metrics.restarts.add((self.server,))


class _BackendTimer:
    """Times one request to a server behind a bridge."""

    __slots__ = ("_observer", "_start")

    def __init__(self, observer: BackendObserver) -> None:
        self._observer = observer
        self._start = time.perf_counter()
        observer.metrics.in_flight[observer.server] += 1

    def enter(self) -> None:
        """Do nothing."""

    leave = enter

    def end(self, failure: Failure | None) -> None:
        metrics, server = self._observer.metrics, self._observer.server
        metrics.in_flight[server] -= 1
        metrics.requests.add((server, "ok" if failure is None else failure.kind))
        metrics.durations.observe((server,), time.perf_counter() - self._start)
