"""Recordings for the tests of the page: what is said in them is made up, and the recorder writes it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcplumb.recording.recorder import RecordingWriter, new_header
from mcplumb.recording.recording_format import Header, Host, Record, Side, Target
from mcplumb.revisions import MODERN

__all__ = ["Story", "hostile", "long_session", "weather"]

_PREFIX = "io.modelcontextprotocol/"
META = {
    f"{_PREFIX}protocolVersion": MODERN[0].name,
    f"{_PREFIX}clientCapabilities": {"elicitation": {"form": {}}},
    f"{_PREFIX}clientInfo": {"name": "desk-assistant", "version": "4.2.0"},
}
SERVER_INFO = {f"{_PREFIX}serverInfo": {"name": "weather", "version": "1.3.0"}}
FORECAST = {
    "name": "forecast",
    "description": "The weather of the next days.",
    "inputSchema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city"],
    },
    "outputSchema": {"type": "object", "properties": {"high": {"type": "number"}}, "required": ["high"]},
}


def header(name: str, command: list[str] | None = None, *, program: str = "desk-assistant", now: float) -> Header:
    target = Target(command=command or ["python", f"{name}.py"])
    return new_header("tap", "stdio", name=name, target=target, host=Host(pid=4711, program=program), now=now)


class Story:
    """A session that is written down message by message."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.last_id = 0

    def line(self, t: float, sender: Side, text: str, **more: Any) -> None:
        self.records.append(Record(t=round(t, 6), sender=sender, text=text, **more))

    def say(self, t: float, sender: Side, **message: Any) -> None:
        self.line(t, sender, json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"), ensure_ascii=False))

    def request(self, t: float, method: str, **params: Any) -> int:
        self.last_id += 1
        self.say(
            t, "client", id=self.last_id, method=method, params={**params, "_meta": {**META, **params.get("_meta", {})}}
        )
        return self.last_id

    def result(self, t: float, id_: int, **result: Any) -> None:
        self.say(t, "server", id=id_, result={"resultType": "complete", **result, "_meta": SERVER_INFO})

    def text(self, t: float, id_: int, text: str, **more: Any) -> None:
        self.result(t, id_, content=[{"type": "text", "text": text}], **more)

    def stderr(self, t: float, text: str) -> None:
        self.records.append(Record(t=t, stderr=text))

    def write(self, header: Header, folder: Path) -> Path:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        writer = RecordingWriter(header, folder)
        writer.write(self.records)
        writer.close()
        assert writer.path is not None
        return writer.path


def weather(*, ends: bool = True) -> Story:
    """A session with a bit of everything: progress, a question, errors, a cancellation, a slow and a hanging call."""
    story = Story()
    story.stderr(0.031, "INFO weather 1.3.0 is ready")
    first = story.request(0.04, "server/discover")
    story.result(
        0.0437, first, supportedVersions=[MODERN[0].name], capabilities={"tools": {}, "resources": {}},
        serverInfo={"name": "weather", "version": "1.3.0"},
    )  # fmt: skip
    tools = story.request(0.06, "tools/list")
    story.result(0.0621, tools, tools=[FORECAST], ttlMs=60000, cacheScope="private")
    plain = story.request(1.2, "tools/call", name="forecast", arguments={"city": "Oslo", "days": 2})
    story.text(1.2123, plain, "Oslo: sun, for 2 days.", structuredContent={"high": 21.5})
    resource = story.request(1.9, "resources/read", uri="weather://stations/oslo")
    story.result(
        1.933, resource, contents=[{"uri": "weather://stations/oslo", "text": "Blindern, 94 m"}], ttlMs=0,
        cacheScope="private",
    )  # fmt: skip
    wrong = story.request(3.1, "tools/call", name="forecast", arguments={"city": "Oslo", "days": "two"})
    story.text(3.1044, wrong, "days must be an integer, not 'two'.", isError=True)
    slow = story.request(
        4.5, "tools/call", name="forecast", arguments={"city": "Bergen"}, _meta={"progressToken": "p1"}
    )
    for step in range(1, 6):
        done = {"progressToken": "p1", "progress": step, "total": 5, "message": f"Station {step} of 5"}
        story.say(4.5 + 2.3 * step, "server", method="notifications/progress", params=done)
    story.stderr(9.2, "WARNING station 3 answers slowly")
    beside = [
        story.request(6.0 + 0.01 * n, "tools/call", name="forecast", arguments={"city": c})
        for n, c in enumerate(CITIES)
    ]
    for n, id_ in enumerate(beside):
        story.text(6.3 + 0.17 * n, id_, f"{CITIES[n]}: rain, for 3 days.", structuredContent={"high": 8.5 + n})
    story.text(16.4, slow, "Bergen: rain, for 3 days.", structuredContent={"high": "12"})
    asking = story.request(17.0, "tools/call", name="forecast", arguments={"city": "Springfield"})
    story.say(
        17.012, "server", id=asking, result={
            "resultType": "input_required", "requestState": "c3ByaW5n", "inputRequests": {"which": {
                "method": "elicitation/create", "params": {"mode": "form", "message": "Which Springfield?",
                "requestedSchema": {"type": "object", "properties": {"state": {"type": "string"}}}},
            }},
        },
    )  # fmt: skip
    answer = story.request(
        21.5, "tools/call", name="forecast", arguments={"city": "Springfield"}, requestState="c3ByaW5n",
        inputResponses={"which": {"action": "accept", "content": {"state": "Illinois"}}},
    )  # fmt: skip
    story.text(21.52, answer, "Springfield, Illinois: wind.", structuredContent={"high": 17})
    story.line(22.0, "server", "DEBUG cache refreshed")
    unknown = story.request(22.4, "tools/call", name="foercast", arguments={"city": "Oslo"})
    story.say(22.401, "server", id=unknown, error={"code": -32602, "message": "There is no tool 'foercast'."})
    cancelled = story.request(23.0, "tools/call", name="forecast", arguments={"city": "Tromsø"})
    story.say(
        24.1,
        "client",
        method="notifications/cancelled",
        params={"requestId": cancelled, "reason": "The user stopped it."},
    )
    story.request(25.0, "tools/call", name="forecast", arguments={"city": "Atlantis"})
    later = story.request(40.0, "tools/call", name="forecast", arguments={"city": "Rome"})
    story.text(40.02, later, "Rome: sun, for 3 days.", structuredContent={"high": 27})
    if ends:
        story.records.append(Record(t=91.0, event="end_of_input", sender="client"))
        story.records.append(Record(t=91.2, event="exit", sender="server", code=0))
    story.records.sort(key=lambda record: record.t)
    return story


CITIES = ("Paris", "Lisbon", "Vienna", "Kyiv")


def long_session(messages: int) -> Iterator[list[Record]]:
    """Yield the records of a session of so many messages, some thousand at a time."""
    chance = random.Random(1)
    story, t = Story(), 0.0
    for number in range(messages // 2):
        t += chance.random() * 0.01
        id_ = story.request(
            t, "tools/call", name=chance.choice(("forecast", "search", "resize")), arguments={"n": number}
        )
        if number % 997 == 500:
            story.say(t + 0.001, "server", id=id_, error={"code": -32602, "message": f"No {number}"})
        else:
            story.text(t + 0.004 * chance.random(), id_, f"answer {number}")
        if len(story.records) >= 4000:
            yield story.records
            story.records = []
    yield story.records


ATTACKS = (
    '<img src=x onerror="window.attacked=1">',
    "<script>window.attacked=2</script>",
    '"><svg onload=window.attacked=3>',
    "javascript:window.attacked=4",
    "{{constructor.constructor('window.attacked=5')()}}",
    "</textarea></title><iframe srcdoc='<script>parent.attacked=6</script>'></iframe>",
    "\u202egnp.exe\u202c \u2066hidden\u2069 a\u200bb \ufeff",
    "\x1b[2J\x1b]0;title\x07\x1b[31mred",
    "\u0000\u0008\u009b31m",
    "__proto__",
    "data:text/html,<script>window.attacked=7</script>",
    "url(https://evil.example/x) @import 'https://evil.example/y'",
    "${window.attacked=8}",
    "A" * 100_000,
    "\U000e0041\U000e0042 tags \U0001f600",
)


def hostile() -> Story:
    """A session in which every string of the server, and of the client, is an attack."""
    story = Story()
    t = 0.0
    for number, attack in enumerate(ATTACKS):
        t += 0.1
        story.stderr(t, attack)
        story.say(t, "client", id=attack[:200], method=attack[:300], params={attack: attack})
        story.say(t + 0.01, "server", id=attack[:200], result={attack: {"__proto__": attack, "constructor": [attack]}})
        call = story.request(t + 0.02, "tools/call", name=attack, arguments={attack: attack})
        story.say(t + 0.03, "server", method="notifications/message", params={"level": attack, "data": attack})
        if number % 2:
            story.say(t + 0.04, "server", id=call, error={"code": -32000, "message": attack, "data": attack})
        else:
            story.text(t + 0.04, call, attack, isError=True)
        story.line(t + 0.05, "server", attack.replace("\n", " "))
        story.say(t + 0.06, "server", method="notifications/resources/updated", params={"uri": attack})
    story.line(t + 1, "server", "[" * 400 + "]" * 400)
    story.records.append(Record(t=t + 2, event=ATTACKS[0], sender="server", reason=ATTACKS[1], signal=ATTACKS[2]))
    return story
