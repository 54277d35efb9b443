"""Spans of the requests that a tap sees, if OpenTelemetry is configured.

The recorder makes them, so they cost the traffic nothing. A tap passes bytes on unchanged: the parent of its span is
the context that the request carries in ``_meta``, and the server's own span is a sibling.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mcplumb.recording.mask_secrets import mask_text
from mcplumb.recording.recording_format import Record
from mcplumb.tap.payload_members import members
from mcplumb.tap.transcript import Call, Transcript
from mcplumb.wire.messages import Request

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

__all__ = ["RequestSpans", "configured_spans"]

_logger = logging.getLogger("mcplumb.tap")

#: Requests without an answer at once. At the limit, the oldest span ends.
_MAX_OPEN = 10_000
#: Seconds to hand over the last spans.
_FLUSH_WITHIN = 5.0


def configured_spans(transport: str, started: float) -> RequestSpans | None:
    """Return the span maker for a tap that started at this Unix time; None if tracing is not configured."""
    if "opentelemetry.trace" not in sys.modules:
        return None  # nothing can have configured it
    from mcplumb.telemetry.opentelemetry_observer import configured_tracer

    tracer = configured_tracer()
    return None if tracer is None else RequestSpans(tracer, transport, started)


class RequestSpans:
    """Makes a span of each request, from its record to that of its outcome. Call it with the records, in order."""

    def __init__(self, tracer: Tracer, transport: str, started: float) -> None:
        self._tracer = tracer
        self._network = {"network.transport": "pipe"}
        if transport == "http":
            self._network = {"network.transport": "tcp", "network.protocol.name": "http"}
        self._started = started
        self._transcript = Transcript()
        self._number = 0
        #: The requests that are open, by their identity.
        self._open: dict[int, tuple[Call, Span]] = {}

    def __call__(self, records: Sequence[Record]) -> None:
        """Begin and end the spans of these records. Raises nothing."""
        try:
            for record in records:
                self._take(record)
        except Exception:
            _logger.exception("The spans of some requests are lost.")

    def close(self) -> None:
        """Hand over the last spans: the process may end without the usual steps."""
        from opentelemetry import trace

        flush = getattr(trace.get_tracer_provider(), "force_flush", None)
        if flush is not None:
            flush(int(_FLUSH_WITHIN * 1000))

    def _take(self, record: Record) -> None:
        self._number += 1
        step = self._transcript.feed(self._number, record)
        self._transcript.items.clear()  # what has been said is not needed again
        for said in step.said:
            if isinstance(said.message, Request) and said.call is not None and said.duplicate is None:
                self._begin(said.call, said.message)
        for item in step.items:
            if isinstance(item, Call) and item.state != "open":
                self._end(item, record.t)
        http = record.http
        if http is not None and http.status is not None:
            if "event-stream" not in (http.header("content-type") or ""):
                self._transcript.forget(http.exchange)
        elif http is not None and record.event in ("end_of_stream", "disconnected"):
            self._transcript.forget(http.exchange)

    def _begin(self, call: Call, request: Request) -> None:
        from opentelemetry.trace import SpanKind

        from mcplumb.telemetry.opentelemetry_observer import context_in, request_attributes, span_name

        attributes = request_attributes(call.method, call.name, mask_text(call.name))
        attributes |= {"jsonrpc.request.id": str(call.id), **self._network}
        parent = context_in(members(members(request.params).get("_meta")))
        kind = SpanKind.SERVER if call.sender == "client" else SpanKind.CLIENT
        start = self._nanoseconds(call.t)
        span = self._tracer.start_span(span_name(call.method, attributes), parent, kind, attributes, start_time=start)
        if len(self._open) >= _MAX_OPEN:
            self._open.pop(next(iter(self._open)))[1].end()
        self._open[id(call)] = call, span

    def _end(self, call: Call, t: float) -> None:
        from opentelemetry.trace import Status, StatusCode

        from mcplumb.telemetry.opentelemetry_observer import CALLERS_MISTAKES

        _, span = self._open.pop(id(call), (None, None))
        if span is None:
            return
        if call.revision is not None:
            span.set_attribute("mcp.protocol.version", call.revision)
        if call.code is not None:
            span.set_attribute("rpc.response.status_code", str(call.code))
        # The spans of the client's requests are those of their receiver, as the server's would be.
        is_mistake = call.sender == "client" and call.code in CALLERS_MISTAKES
        if (call.state != "answered" or call.is_tool_error) and not is_mistake:
            kind = "tool_error" if call.is_tool_error else str(call.code or call.state)
            span.set_attribute("error.type", kind)
            text = mask_text(call.error) if call.code is not None else None
            span.set_status(Status(StatusCode.ERROR, text))
        span.end(self._nanoseconds(t))

    def _nanoseconds(self, t: float) -> int:
        """Return the Unix time of a record."""
        return int((self._started + t) * 1e9)
