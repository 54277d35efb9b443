"""A server, client, bridge or tap with OpenTelemetry's SDK, whose spans and metrics are appended to a file as JSON.

``traced.py FILE server [ADDRESS]``, ``traced.py FILE bridge ADDRESS COMMAND…`` and
``traced.py FILE client REVISION TARGET…``, ``traced.py FILE tap COMMAND…`` and ``traced.py FILE http-tap URL``. What
listens at an address prints it when it is ready.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from opentelemetry import baggage, context, metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult

from mcplumb import Context, Server, connect
from mcplumb.bridge.bridge import Bridge
from mcplumb.tap.http_tap import http_tap, serve_http_tap
from mcplumb.tap.start_tap import start_tap
from mcplumb.transports.address import HttpAddress, read_address

FILE, ROLE, *WORDS = sys.argv[1:]


class FileExporter(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            assert span.context is not None
            write({
                "role": ROLE,
                "pid": os.getpid(),
                "name": span.name,
                "kind": span.kind.name,
                "trace": format(span.context.trace_id, "032x"),
                "span": format(span.context.span_id, "016x"),
                "parent": None if span.parent is None else format(span.parent.span_id, "016x"),
                "status": span.status.status_code.name,
                "attributes": dict(span.attributes or {}),
            })  # fmt: skip
        return SpanExportResult.SUCCESS


def write(record: dict[str, Any]) -> None:
    with Path(FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


reader = InMemoryMetricReader()
provider = TracerProvider()
# The recorder of a tap is a fork: what collects spans in a thread, as exporters do, has to survive that.
provider.add_span_processor((BatchSpanProcessor if "tap" in ROLE else SimpleSpanProcessor)(FileExporter()))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))


def write_metrics() -> None:
    data = reader.get_metrics_data()
    for resource in data.resource_metrics if data is not None else ():
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            points: Any = metric.data.data_points
            for point in points:
                write({"role": ROLE, "metric": metric.name, "unit": metric.unit, "count": point.count,
                       "bounds": list(point.explicit_bounds), "attributes": dict(point.attributes)})  # fmt: skip


server = Server("traced")


@server.tool
async def add(a: int, b: int) -> int:
    with trace.get_tracer("author").start_as_current_span("inside add"):
        return a + b


@server.tool
def in_thread(ctx: Context) -> str:
    """What the context carries in a thread."""
    span = trace.get_current_span().get_span_context()
    return f"{span.span_id:016x} {baggage.get_baggage('user')} {ctx.request_id}"


@server.tool
async def fail() -> str:
    raise ValueError("It fails.")


@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Really?", {"type": "object", "properties": {"sure": {"type": "boolean"}}})
    return answer.action


def on_ready(address: str) -> None:
    print(address, flush=True)


async def client(revision: str, target: Any) -> None:
    tracer = trace.get_tracer("caller")
    options: dict[str, Any] = {} if isinstance(target, str) else {"inherit_env": True}
    async with connect(target, revisions=[revision], on_elicit=lambda _: {"sure": True}, **options) as client:
        with tracer.start_as_current_span("caller"):
            context.attach(baggage.set_baggage("user", "alice"))
            results = []
            calls: dict[str, dict[str, Any]] = {"add": {"a": 1, "b": 2}, "in_thread": {}, "fail": {}, "ask": {}}
            for name, arguments in calls.items():
                results.append(await client.call_tool(name, arguments))
            try:
                await client.call_tool("nothing")
            except Exception as error:  # noqa: BLE001 - it is what is tested
                print(type(error).__name__)
    print(json.dumps([result.text for result in results]), flush=True)


async def http_tap_of(url: str) -> None:
    address = read_address("http://127.0.0.1:0")
    assert isinstance(address, HttpAddress)
    app, recorder = http_tap(url, place=f"{FILE}.mcp.jsonl")
    task = asyncio.ensure_future(serve_http_tap(app, address, on_ready))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
    recorder.close()


def run(main: Callable[[], None]) -> None:
    try:
        main()
    finally:
        write_metrics()


if ROLE == "server":
    run(lambda: server.run(*WORDS, on_ready=on_ready))
elif ROLE == "bridge":
    run(lambda: Bridge(WORDS[1:], inherit_env=True).run(WORDS[0], on_ready=on_ready))
elif ROLE == "tap":
    start_tap(WORDS, place=f"{FILE}.mcp.jsonl")
elif ROLE == "http-tap":
    asyncio.run(http_tap_of(WORDS[0]))
else:
    target: Any = WORDS[1] if WORDS[1].startswith("http") else WORDS[1:]
    run(lambda: asyncio.run(client(WORDS[0], target)))
