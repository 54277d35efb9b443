"""Posts to a mounted server, each within a span for HTTP, as an instrumentation of the ASGI server makes them.

Prints the spans of the server: the name of the parent, or "remote", and the names of the spans that it is linked to.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mcplumb import Server
from mcplumb.revisions import LATEST

exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

server = Server("mounted")


@server.tool
async def hello() -> str:
    return "hello"


app = server.asgi()
HEADERS = {
    "host": "127.0.0.1", "content-type": "application/json", "accept": "application/json",
    "mcp-protocol-version": LATEST.name, "mcp-method": "tools/call", "mcp-name": "hello",
}  # fmt: skip
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": LATEST.name,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
REMOTE = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}


async def post(name: str, more: dict[str, str]) -> None:
    params = {"name": "hello", "arguments": {}, "_meta": {**META, **more}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(event: Any) -> None:
        sent.append(event)

    scope: Any = {
        "type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "http_version": "1.1",
        "server": ("127.0.0.1", 80), "client": None,
        "headers": [(key.encode(), value.encode()) for key, value in HEADERS.items()],
    }  # fmt: skip
    with trace.get_tracer("http").start_as_current_span(name):
        await app(scope, receive, send)
    assert sent[0]["status"] == 200, sent


async def main() -> None:
    async with app.lifespan():
        for number, more in enumerate(({}, {}, REMOTE, REMOTE)):
            await asyncio.create_task(post(f"http {number}", more))


asyncio.run(main())
spans = exporter.get_finished_spans()
names = {span.context.span_id: span.name for span in spans if span.context is not None}
for span in spans:
    if span.name == "tools/call hello" and span.parent is not None:
        links = [names.get(link.context.span_id) for link in span.links]
        print(json.dumps([names.get(span.parent.span_id, "remote"), links]))
