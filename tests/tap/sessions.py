"""Sessions in short: lines that begin with who speaks, as records, transcripts and findings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from mcplumb.recording.recording_format import Header, Http, Record
from mcplumb.tap.findings import Finding, Findings
from mcplumb.tap.transcript import Step, Transcript

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
META: dict[str, Any] = {VERSION: "2026-07-28", CAPABILITIES: {}}


def header(**more: Any) -> Header:
    return Header(
        format="mcplumb-recording",
        version=1,
        id="20260101T000000Z-000000",
        started="2026-01-01T00:00:00.000000Z",
        by="tap",
        transport="stdio",
        **more,
    )


def message(**members: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", **members})


def ask(id_: Any, method: str, meta: dict[str, Any] | None = META, **params: Any) -> str:
    """A modern request; with ``meta=None``, a legacy one."""
    return message(id=id_, method=method, params=params if meta is None else {**params, "_meta": meta})


def tell(method: str, **params: Any) -> str:
    return message(method=method, params=params)


def answer(id_: Any, **result: Any) -> str:
    return message(id=id_, result={"resultType": "complete", **result})


def plain(id_: Any, **result: Any) -> str:
    return message(id=id_, result=result)


def fail(id_: Any, code: int = -32603) -> str:
    return message(id=id_, error={"code": code, "message": "no"})


def called(id_: Any, **more: Any) -> str:
    return answer(id_, content=[{"type": "text", "text": "done"}], **more)


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


DISCOVER = [
    ("client", ask(0, "server/discover")),
    ("server", answer(0, supportedVersions=["2026-07-28"], capabilities={"tools": {}}, ttlMs=0, cacheScope="public")),
]


def listed(id_: Any, *tools: dict[str, Any], **more: Any) -> str:
    return answer(id_, tools=list(tools), ttlMs=0, cacheScope="public", **more)


def handshake(version: str = "2025-11-25", **capabilities: Any) -> list[tuple[str, str]]:
    said = {"protocolVersion": version, "clientInfo": {"name": "c", "version": "1"}, "capabilities": capabilities}
    result = {"protocolVersion": version, "serverInfo": {"name": "s", "version": "1"}, "capabilities": {"tools": {}}}
    return [
        ("client", ask(0, "initialize", None, **said)),
        ("server", plain(0, **result)),
        ("client", tell("notifications/initialized")),
    ]


def records(lines: Iterable[Any]) -> list[Record]:
    """Records a tenth of a second apart: pairs of who and what, ``(seconds, who, what)``, or records."""
    found: list[Record] = []
    t = 0.0
    for line in lines:
        t += 0.2
        match line:
            case Record():
                found.append(line)
                t = line.t
            case (float() | int() as wait, who, what):
                t += wait
                found.append(Record(t=t, sender=who, text=what))
            case ("stderr", what):
                found.append(Record(t=t, stderr=what))
            case ("event", what):
                found.append(Record(t=t, **what))
            case (who, dict() as http, what):
                found.append(Record(t=t, sender=who, text=what, http=Http(**http)))
            case (who, what):
                found.append(Record(t=t, sender=who, text=what))
    return found


def read(lines: Iterable[Any]) -> tuple[Transcript, list[Step], list[Finding]]:
    transcript = Transcript(header())
    findings = Findings(transcript)
    steps = []
    for number, record in enumerate(records(lines), 2):
        step = transcript.feed(number, record)
        findings.feed(step)
        steps.append(step)
    findings.check_time(transcript.now)
    return transcript, steps, findings.found
