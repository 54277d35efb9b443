"""Traces and metrics for OpenTelemetry, following its semantic conventions for MCP.

The trace context travels in ``_meta``: a request that is sent carries the context of its span, and one that is received
continues it. A program that does not configure OpenTelemetry never loads this module.

https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextvars import Token
from typing import Any

import msgspec
from msgspec import UNSET
from opentelemetry import context, metrics, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.metrics import Meter, NoOpMeterProvider
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import (
    Link,
    NoOpTracerProvider,
    ProxyTracerProvider,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mcplumb.rpc.handler import Handled, Reply
from mcplumb.rpc.observed_endpoint import Failure, Observer, Watch
from mcplumb.types.method_table import METHODS
from mcplumb.types.payload_decoder import UNREADABLE
from mcplumb.version import __version__
from mcplumb.wire.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    ErrorDetail,
    Request,
)

__all__ = [
    "CALLERS_MISTAKES",
    "OpenTelemetryObserver",
    "configured_observer",
    "configured_tracer",
    "context_in",
    "request_attributes",
    "span_name",
]

#: Upper bounds in seconds that the conventions want.
_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
#: Characters of a name or a URI of a peer.
_LONGEST = 200
#: Bytes of context that are read from a request: W3C allows 512 for ``tracestate`` and 8192 for ``baggage``.
_LONGEST_CONTEXT = 8192

#: Codes of errors that are the caller's, and so none at the receiver. The last is of a resource that does not exist.
CALLERS_MISTAKES = frozenset((PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, -32002))

#: The network of a connection, by its class. Over HTTP, each of the two ends has classes of its own.
_HTTP = {"network.transport": "tcp", "network.protocol.name": "http"}
_NETWORKS: dict[str, dict[str, str]] = {
    "StreamConnection": {"network.transport": "pipe"},
    "SocketConnection": {"network.transport": "tcp"},
    "HttpConnection": _HTTP,
    "ModernPost": _HTTP,
    "PostConnection": _HTTP,
}
#: A connection that carries one request is no session.
_ONE_REQUEST = "ModernPost"


def configured_observer() -> Observer | None:
    """Return the observer, if the program has configured tracing or metrics; otherwise None.

    Configured is what has set a provider: the SDK, or ``opentelemetry-instrument``. As for any other instrumentation,
    ``OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=mcplumb`` turns it off.
    """
    meters = metrics.get_meter_provider()
    # The placeholder before one is set has no public name.
    is_measured = not isinstance(meters, NoOpMeterProvider) and not type(meters).__name__.startswith("_Proxy")
    if _is_disabled() or not (_is_traced() or is_measured):
        return None
    return OpenTelemetryObserver(trace.get_tracer("mcplumb", __version__), metrics.get_meter("mcplumb", __version__))


def configured_tracer() -> Tracer | None:
    """Return the tracer of a tap, if the program has configured tracing; otherwise None."""
    return trace.get_tracer("mcplumb.tap", __version__) if _is_traced() and not _is_disabled() else None


def _is_traced() -> bool:
    return not isinstance(trace.get_tracer_provider(), ProxyTracerProvider | NoOpTracerProvider)


def _is_disabled() -> bool:
    disabled = os.environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "")
    return bool({"mcplumb", "*"} & {name.strip() for name in disabled.split(",")})


# --- The context in `_meta` ---


class _Params(msgspec.Struct):
    name: Any = None
    uri: Any = None
    meta: dict[str, msgspec.Raw] | None = msgspec.field(default=None, name="_meta")


_decode_params = msgspec.json.Decoder(_Params).decode
_decode_meta = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class _MetaGetter(Getter[Mapping[str, Any]]):
    """Reads the strings of a ``_meta``, which may be undecoded. Other values are ignored."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        value = carrier.get(key)
        if isinstance(value, msgspec.Raw):
            if memoryview(value).nbytes > _LONGEST_CONTEXT:
                return None
            try:
                value = msgspec.json.decode(value)
            except UNREADABLE:
                return None
        return [value] if isinstance(value, str) and len(value) <= _LONGEST_CONTEXT else None

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        return list(carrier)


class _MetaSetter(Setter[dict[str, Any]]):
    def set(self, carrier: dict[str, Any], key: str, value: str) -> None:
        carrier[key] = value


_GETTER, _SETTER = _MetaGetter(), _MetaSetter()
#: Always these, whatever is set for HTTP: the protocol reserves their keys in ``_meta``.
_W3C = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])


def context_in(meta: Mapping[str, Any]) -> context.Context:
    """Return the context that a ``_meta`` carries, within the current one."""
    return _W3C.extract(meta, context.get_current(), _GETTER)


def _meta_of(params: Any) -> dict[str, Any]:
    """Return a copy of the ``_meta`` of params to be sent."""
    meta = params.get("_meta") if isinstance(params, dict) else getattr(params, "meta", None)
    if isinstance(meta, msgspec.Raw):
        try:
            return dict(_decode_meta(meta))
        except UNREADABLE:
            return {}
    return dict(meta) if isinstance(meta, dict) else {}


def _with_context(params: Any, meta: dict[str, Any], parent: context.Context) -> Any:
    """Return the params with this context in their ``_meta``; the params themselves if they cannot have one."""
    _W3C.inject(meta, parent, _SETTER)
    if not meta:
        return params
    if params is UNSET or params is None:
        return {"_meta": meta}
    if isinstance(params, dict):
        params["_meta"] = meta  # in place: who sends the params again on another session sets it again
        return params
    return msgspec.structs.replace(params, meta=meta) if hasattr(params, "meta") else params


# --- The observer ---


class OpenTelemetryObserver:
    """Makes a span for each request, at either end, and records the durations of requests and sessions."""

    def __init__(self, tracer: Tracer, meter: Meter) -> None:
        self._tracer = tracer
        self.durations = {
            "server": _histogram(meter, "mcp.server.operation.duration", "The duration of a request at its receiver."),
            "client": _histogram(meter, "mcp.client.operation.duration", "The duration of a request at its sender."),
        }
        self._sessions = {
            "client": _histogram(meter, "mcp.server.session.duration", "The duration of a session at the server."),
            "server": _histogram(meter, "mcp.client.session.duration", "The duration of a session at the client."),
        }

    def received(self, endpoint: Any, request: Request, admitted: Handled | Reply) -> Watch:
        """Start the span of a request of the peer, as a child of the span that it names."""
        try:
            params = _decode_params(request.params)
        except (*UNREADABLE, TypeError):
            params = _Params()
        attributes = request_attributes(request.method, params.name, params.uri)
        attributes["jsonrpc.request.id"] = str(request.id)[:_LONGEST]
        revision = getattr(getattr(admitted, "admitted", None), "revision", None)
        attributes.update(_network(endpoint, revision))
        ambient = trace.get_current_span().get_span_context()
        parent = context_in(params.meta or {})
        is_remote = trace.get_current_span(parent).get_span_context() != ambient
        # The span of the HTTP request, if there is one, is another story: it is linked.
        links = [Link(ambient)] if ambient.is_valid and is_remote else []
        name = span_name(request.method, attributes)
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, attributes, links)
        return _SpanWatch(self, "server", span, parent, attributes)

    def sending(self, endpoint: Any, method: str, params: Any) -> tuple[Watch, Any]:
        """Start the span of a request of this side, and put its context into the params."""
        is_dict = isinstance(params, dict)
        name, uri = (params.get(key) if is_dict else None for key in ("name", "uri"))
        attributes = request_attributes(method, name, uri)
        attributes.update(_network(endpoint, getattr(endpoint.handler, "revision", None)))
        if (number := endpoint.next_id) is not None:
            attributes["jsonrpc.request.id"] = str(number)
        meta = _meta_of(params)
        parent = context.get_current()
        if not trace.get_current_span(parent).get_span_context().is_valid:
            # A context that the caller has put there by hand.
            parent = _W3C.extract(meta, parent, _GETTER)
        span = self._tracer.start_span(span_name(method, attributes), parent, SpanKind.CLIENT, attributes)
        within = trace.set_span_in_context(span, parent)
        return _SpanWatch(self, "client", span, parent, attributes), _with_context(params, meta, within)

    def refused(self, error: ErrorDetail) -> None:
        """Do nothing: the request has a span of its own if it could be read."""

    def malformed(self) -> None:
        """Do nothing: a line that cannot be read has no span."""

    def restarted(self) -> None:
        """Do nothing: the handshake has spans."""

    def ended(self, endpoint: Any, seconds: float) -> None:
        """Record how long a session was open."""
        if type(endpoint.connection).__name__ != _ONE_REQUEST:
            revision = getattr(endpoint.handler, "revision", None) or _session_revision(endpoint.handler)
            self._sessions[endpoint.peer].record(seconds, _network(endpoint, revision))


class _SpanWatch:
    """The span of one request, and its duration."""

    __slots__ = ("_attributes", "_observer", "_parent", "_side", "_span", "_start", "_token")

    def __init__(
        self,
        observer: OpenTelemetryObserver,
        side: str,
        span: Span,
        parent: context.Context,
        attributes: dict[str, Any],
    ) -> None:
        self._observer = observer
        self._side = side
        self._span = span
        self._parent = parent
        self._attributes = attributes
        self._start = time.perf_counter()
        self._token: Token[context.Context] | None = None

    def enter(self) -> None:
        self._token = context.attach(trace.set_span_in_context(self._span, self._parent))

    def leave(self) -> None:
        if self._token is not None:
            context.detach(self._token)
            self._token = None

    def end(self, failure: Failure | None) -> None:
        seconds, attributes = time.perf_counter() - self._start, self._attributes
        is_error = failure is not None and (self._side == "client" or failure.code not in CALLERS_MISTAKES)
        if failure is not None:
            if failure.code is not None:
                self._span.set_attribute("rpc.response.status_code", str(failure.code))
            if is_error:
                self._span.set_attribute("error.type", failure.kind)
                self._span.set_status(Status(StatusCode.ERROR, failure.message))
        self._span.end()
        measured = {key: value for key, value in attributes.items() if key not in _OF_SPANS}
        if failure is not None:
            if is_error:
                measured["error.type"] = failure.kind
            if failure.code is not None:
                measured["rpc.response.status_code"] = str(failure.code)
                # There may be no such method, tool or prompt, and a peer can think of any number of names.
                if self._side == "server":
                    measured.pop("gen_ai.tool.name", None)
                    measured.pop("gen_ai.prompt.name", None)
                    if measured["mcp.method.name"] not in METHODS:
                        measured["mcp.method.name"] = "_OTHER"
        self._observer.durations[self._side].record(seconds, measured)


#: Attributes of spans with too many values for metrics.
_OF_SPANS = frozenset(("jsonrpc.request.id", "mcp.resource.uri"))


def _histogram(meter: Meter, name: str, text: str) -> Any:
    return meter.create_histogram(name, unit="s", description=text, explicit_bucket_boundaries_advisory=_BUCKETS)


def request_attributes(method: str, name: Any, uri: Any) -> dict[str, Any]:
    """Return the attributes that the conventions ask for, from the members of a request's params."""
    attributes: dict[str, Any] = {"mcp.method.name": method[:_LONGEST]}
    if method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    if isinstance(name, str) and method in ("tools/call", "prompts/get"):
        attributes["gen_ai.tool.name" if method == "tools/call" else "gen_ai.prompt.name"] = name[:_LONGEST]
    if isinstance(uri, str) and method.startswith("resources/"):
        attributes["mcp.resource.uri"] = uri[:_LONGEST]
    return attributes


def span_name(method: str, attributes: Mapping[str, Any]) -> str:
    """Return the name of the span of a request with these attributes."""
    target = attributes.get("gen_ai.tool.name") or attributes.get("gen_ai.prompt.name")
    return str(attributes["mcp.method.name"]) if target is None else f"{method} {target}"


def _network(endpoint: Any, revision: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in type(endpoint.connection).__mro__:
        if kind.__name__ in _NETWORKS:
            found = dict(_NETWORKS[kind.__name__])
            break
    place = getattr(endpoint.connection, "server_place", None)  # of a client over HTTP
    if place is not None:
        found["server.address"], found["server.port"] = place
    if revision is not None:
        found["mcp.protocol.version"] = str(revision)
    return found


def _session_revision(handler: Any) -> Any:
    """Return the revision of a legacy client's session, at the server; None if it has none."""
    session = getattr(getattr(handler, "_admission", None), "session", None)
    return None if session is None else session.revision
