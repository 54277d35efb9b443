"""Convert a session for other programs: JSON, an HTML page, HAR for the tools of browsers, OTLP for tracing tools."""

from __future__ import annotations

import calendar
import html
import re
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, quote

import msgspec

from mcplumb.cli.render.output import clean, json_text
from mcplumb.recording.recording_format import Header, Record
from mcplumb.tap.payload_members import members, text_of
from mcplumb.tap.read_session import SessionReader
from mcplumb.tap.session_text import counted, finding_lines, item_line, title_lines
from mcplumb.tap.transcript import Bad, Call, Stray
from mcplumb.types.meta import TRACEPARENT
from mcplumb.version import __version__

__all__ = ["FORMATS", "export_session"]

#: Seconds.
_LONGEST_SESSION = 1e9
_CREATOR = {"name": "mcplumb", "version": __version__}


def export_session(session: SessionReader, records: dict[int, Record], form: str) -> Iterator[bytes]:
    """Yield the parts of a completely read session in one of `FORMATS`. ``records`` are its records by number."""
    return FORMATS[form](session, records)


def _document(document: Any) -> bytes:
    """Return an indented JSON document, in which nothing can control a terminal."""
    return json_text(document, indent=2).encode() + b"\n"


# --- JSON ---


def _as_json(session: SessionReader, records: dict[int, Record]) -> Iterator[bytes]:
    document = {
        "header": session.header,
        "client": session.transcript.client,
        "server": session.transcript.server,
        "revisions": session.transcript.revisions,
        "items": session.transcript.items,
        "findings": session.findings.found,
        "records": [{"number": number, **msgspec.to_builtins(record)} for number, record in records.items()],
    }
    yield _document(document)


# --- HTML ---

_STYLE = """
:root { color-scheme: light dark; font: 14px/1.5 system-ui, sans-serif; }
body { margin: 2rem auto; max-width: 110rem; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
pre, summary { font: 12px/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
details { border-bottom: 1px solid #8884; padding: 2px 0; } details pre { padding: 4px 2rem 8px; opacity: .85; }
.failed, .error { color: light-dark(#b00020, #ff8a80); } .warning { color: light-dark(#8a5a00, #ffcc66); }
article { margin: .8rem 0; padding: .6rem 1rem; border-left: 3px solid currentColor; }
"""


def _as_html(session: SessionReader, records: dict[int, Record]) -> Iterator[bytes]:
    """Yield a self-contained page without scripts, in which all traffic is text."""
    title, *about = map(_escaped, title_lines(session.header, session.transcript))
    yield (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">\n"""
        f"<title>{title}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{title}</h1><p>{'<br>'.join(about)}</p>\n"
        f"<h2>{counted(len(session.findings.found), 'finding')}</h2>\n"
    ).encode()
    for finding in session.findings.found:
        lines = map(_escaped, finding_lines(finding))
        yield f'<article class="{finding.severity}">{"<br>".join(lines)}</article>\n'.encode()
    yield f"<h2>{counted(len(session.transcript.items), 'item')}</h2>\n".encode()
    for item in session.transcript.items:
        failed = isinstance(item, Bad | Stray) or (
            isinstance(item, Call) and (item.state in ("failed", "lost") or item.is_tool_error)
        )
        numbers = [item.number]
        if isinstance(item, Call):
            numbers += [*item.notes, *([item.answer] if item.answer is not None else [])]
        texts = (_escaped(f"{number}: {_shown(records[number])}") for number in numbers if number in records)
        yield (
            f'<details><summary class="{"failed" if failed else ""}">{_escaped(item_line(item))}</summary>'
            f"<pre>{chr(10).join(texts)}</pre></details>\n"
        ).encode()
    yield b"</body></html>\n"


def _escaped(text: str) -> str:
    """Return text for a page, with its control characters and hidden ones made visible."""
    return html.escape(clean(text))


def _shown(record: Record) -> str:
    if record.text is None:
        return msgspec.json.encode(record).decode()
    try:
        return msgspec.json.format(record.text, indent=2)
    except (msgspec.DecodeError, RecursionError):
        return record.text


# --- HAR ---


def _as_har(session: SessionReader, records: dict[int, Record]) -> Iterator[bytes]:
    heads: dict[int, Record] = {}
    for record in records.values():
        if record.http is not None and record.http.status is not None:
            heads.setdefault(record.http.exchange, record)
    entries = [_har_entry(session.header, call, records, heads) for call in session.transcript.calls()]
    document = {"log": {"version": "1.2", "creator": _CREATOR, "entries": entries}}
    yield _document(document)


def _har_entry(header: Header, call: Call, records: dict[int, Record], heads: dict[int, Record]) -> dict[str, Any]:
    """Return the entry of a call; ``heads`` are the heads of HTTP responses by exchange."""
    request, answer = records[call.number], records.get(call.answer or 0)
    head = request.http
    url = header.target.url or f"mcp://{quote(header.name or 'server')}/{quote(call.method)}"
    if header.target.url and head is not None and head.path and head.path.startswith("/"):
        url = "/".join(url.split("/", 3)[:3]) + head.path
    wait = (call.seconds or 0.0) * 1000
    status, reply = (0, "") if answer is None else (200, answer.text or "")
    response_head = None if call.exchange is None else heads.get(call.exchange)
    if response_head is not None and response_head.http is not None:
        status = response_head.http.status or status
    return {
        "startedDateTime": _date(header, call.t),
        "time": wait,
        "request": {
            "method": "POST" if head is None else head.method or "POST",
            "url": url,
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": _har_headers(request),
            "queryString": [{"name": name, "value": value} for name, value in _query(url)],
            "postData": {"mimeType": "application/json", "text": request.text or ""},
            "headersSize": -1,
            "bodySize": request.sent_size,
        },
        "response": {
            "status": status,
            "statusText": "" if call.state == "answered" else call.state,
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": [] if response_head is None else _har_headers(response_head),
            "content": {
                "size": 0 if answer is None else answer.sent_size,
                "mimeType": "application/json",
                "text": reply,
            },
            "redirectURL": "",
            "headersSize": -1,
            "bodySize": -1 if answer is None else answer.sent_size,
        },
        "cache": {},
        "timings": {"send": 0, "wait": wait, "receive": 0},
        "comment": f"{call.method} {call.name}, id {call.id!r}, line {call.number}".replace(" ,", ","),
    }


def _query(url: str) -> list[tuple[str, str]]:
    return parse_qsl(url.partition("#")[0].partition("?")[2], keep_blank_values=True)


def _har_headers(record: Record) -> list[dict[str, str]]:
    headers = record.http.headers or [] if record.http is not None else []
    return [{"name": name, "value": value} for name, value in headers]


def _date(header: Header, t: float) -> str:
    nanoseconds = _nanoseconds(header, t)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(nanoseconds // 10**9)) + (
        f".{nanoseconds % 10**9 // 10**6:03d}Z"
    )


def _nanoseconds(header: Header, t: float) -> int:
    """Return the Unix time of a record."""
    whole, _, fraction = header.started.rstrip("Z").partition(".")
    try:
        start = calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) * 10**9
        start += int(f"{fraction:0<9}"[:9])
    except ValueError:
        start = 0
    # A damaged recording may have any time.
    return start + int(min(max(t, -_LONGEST_SESSION), _LONGEST_SESSION) * 1e9)


# --- OTLP ---

_CLIENT_SPAN, _SERVER_SPAN = 3, 2
_OK, _ERROR = 1, 2
_HEX = 16
#: Version, trace, span and flags; ids of zeros alone are invalid.
_TRACE_PARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}")


def _as_otlp(session: SessionReader, records: dict[int, Record]) -> Iterator[bytes]:
    """Yield the calls as spans, in the JSON form of OTLP, named as OpenTelemetry names those of MCP."""
    header, transcript = session.header, session.transcript
    spans = [_span(header, call, records) for call in transcript.calls()]
    resource = {"service.name": transcript.server.name or header.name or "mcp-server"}
    if transcript.server.version:
        resource["service.version"] = transcript.server.version
    scope = {"scope": _CREATOR, "spans": spans}
    document = {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}]}
    yield _document(document)


def _span(header: Header, call: Call, records: dict[int, Record]) -> dict[str, Any]:
    trace_id, parent = _parent(records[call.number])
    end = call.answered if call.answered is not None else call.cancelled if call.cancelled is not None else call.last
    has_failed = call.state in ("failed", "lost") or call.is_tool_error
    named = {
        "mcp.method.name": call.method,
        "jsonrpc.request.id": str(call.id),
        "mcp.protocol.version": call.revision,
        "network.transport": "pipe" if header.transport == "stdio" else "tcp",
        "mcplumb.recording.id": header.id,
        "mcplumb.recording.line": call.number,
    }
    if call.method in ("tools/call", "prompts/get") and call.name:
        named["gen_ai.tool.name" if call.method == "tools/call" else "gen_ai.prompt.name"] = call.name
    elif call.name:
        named["mcp.resource.uri"] = call.name
    if call.code is not None:
        named["rpc.response.status_code"] = str(call.code)
    if has_failed:
        named["error.type"] = "tool_error" if call.is_tool_error else str(call.code or call.state)
    span = {
        "traceId": trace_id or sha256(header.id.encode()).hexdigest()[: 2 * _HEX],
        "spanId": sha256(f"{header.id} {call.number} {call.id!r}".encode()).hexdigest()[:_HEX],
        "name": f"{call.method} {call.name}".strip() if call.method in ("tools/call", "prompts/get") else call.method,
        "kind": _SERVER_SPAN if call.sender == "client" else _CLIENT_SPAN,
        "startTimeUnixNano": str(_nanoseconds(header, call.t)),
        "endTimeUnixNano": str(_nanoseconds(header, max(end, call.t))),
        "attributes": _attributes({key: value for key, value in named.items() if value is not None}),
        "events": list(_span_events(header, call, records)),
        "status": {"code": _ERROR, "message": call.error} if has_failed else {"code": _OK},
    }
    if parent:
        span["parentSpanId"] = parent
    return span


def _span_events(header: Header, call: Call, records: dict[int, Record]) -> Iterator[dict[str, Any]]:
    for number in call.notes:
        if number in records:
            record = records[number]
            name = text_of(members(record.line).get("method")) or "notification"
            yield {"timeUnixNano": str(_nanoseconds(header, record.t)), "name": name, "attributes": []}


def _parent(record: Record) -> tuple[str, str]:
    """Return the trace and the span that a request names as its parent; empty if it names none."""
    meta = members(members(members(record.line).get("params")).get("_meta"))
    found = _TRACE_PARENT.fullmatch(text_of(meta.get(TRACEPARENT)) or "")
    return (found[1], found[2]) if found is not None else ("", "")


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}}
        for key, value in values.items()
    ]


#: The formats by name.
FORMATS: dict[str, Callable[[SessionReader, dict[int, Record]], Iterator[bytes]]] = {
    "json": _as_json,
    "html": _as_html,
    "har": _as_har,
    "otlp": _as_otlp,
}
