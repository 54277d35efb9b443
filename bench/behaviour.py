"""What servers do when things go wrong: ours and the official SDK's, driven with the same raw bytes.

Nothing here is a judgement: each row of the table says what was observed, and in how many runs if runs may differ.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import msgspec

from bench.environments import CONTENDERS, python_with
from bench.traffic import LEGACY, MODERN, Era, Failed
from bench.watched import BOUND, PATIENCE, Command, Message, is_answer, opened, started

__all__ = ["run"]

#: How long a server may go on to speak before it counts as silent.
SILENCE = 1.0
#: What is repeated because runs may differ.
RUNS = 3

MARCH = LEGACY._replace(name="2025-03-26", opening=LEGACY.opening.replace(b"2025-11-25", b"2025-03-26"))
CALLS, SLOW = 20, 0.2
BLOCKED = 100
#: What is replaced in a call so that it asks for progress.
TOKENS = {
    LEGACY.name: (b'"params":{', b'"params":{"_meta":{"progressToken":1},'),
    MODERN.name: (b'"_meta":{', b'"_meta":{"progressToken":1,'),
}


def run() -> None:
    """Prints the table."""
    if sys.platform != "linux":
        print("==> how servers behave is observed on Linux only")
        return
    ours, official = python_with("mcplumb"), python_with("mcp-2.3.0")
    # A shell has background jobs ignore it, and so would the servers that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    commands = [ours, str(CONTENDERS / "ours_behaviour.py")], [official, str(CONTENDERS / "official_behaviour.py")]
    print("==> how servers behave, driven with the same bytes")
    show("", f"mcplumb {version('mcplumb')}", "mcp 2.3.0")
    for what, observed in SCENARIOS.items():
        show(what, *map(observed, commands))


def show(what: str, ours: str, official: str) -> None:
    print(f"  {what:<50} | {ours:<42} | {official}", flush=True)


def call(number: int, tool: str, era: Era = LEGACY, **arguments: Any) -> bytes:
    head = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{' % number
    return head + era.meta + b'"name":"%b","arguments":%b}}\n' % (tool.encode(), msgspec.json.encode(arguments))


def outcome(answer: Message | None) -> str:
    match answer:
        case None:
            return "no answer"
        case {"error": {"code": code}}:
            return f"error {code}"
        case _:
            return "result"


def stray_output(command: Command, way: str) -> str:
    """Where it goes what a tool writes to standard output."""
    with opened(command) as process:
        process.send(call(1, "stray", way=way))
        process.must_answer(1)
        process.hear_all(SILENCE)
        early = bool(process.stray)
        process.end_input()
        process.hear_all(BOUND)
        if process.stray:
            return "to the client" if early else "to the client, at exit"
        return "to stderr" if b"stray" in process.stderr else "nowhere"


def malformed(command: Command, line: bytes) -> str:
    """What comes for something that is no request, but has the id 1."""
    with opened(command) as process:
        process.send(line + call(2, "echo", text="next"))
        process.must_answer(2)
        process.hear_all(SILENCE)
        return outcome(process.answer_to(1, 0))


def batch(command: Command) -> str:
    with opened(command, MARCH) as process:
        calls = [call(number, "echo", text="batch").strip() for number in (1, 2)]
        process.send(b"[" + b",".join(calls) + b"]\n" + call(3, "echo", text="next"))
        process.must_answer(3)
        process.hear_all(SILENCE)
        return f"{sum('result' in (process.answer_to(number, 0) or {}) for number in (1, 2))} answers"


def from_file(command: Command, tool: str, **arguments: Any) -> str:
    """How many calls are answered when all of the input is there at once, and then ends."""
    numbers = range(1, CALLS + 1)
    counts = []
    for _ in range(RUNS):
        with tempfile.TemporaryFile() as file:
            file.write(LEGACY.opening + LEGACY.opened)
            file.writelines(call(number, tool, **arguments) for number in numbers)
            file.seek(0)
            with started(command, file) as process:
                process.hear_all(PATIENCE)
                process.must_answer(0)
                counts.append(sum("result" in (process.answer_to(number, 0) or {}) for number in numbers))
    return f"answers: {', '.join(map(str, counts))}"


def interrupted(command: Command) -> str:
    with opened(command) as process:
        process.hear_all(SILENCE)
        process.signal(signal.SIGINT)
        return process.ending()


def unread(command: Command) -> str:
    """The client reads no more, and sends one more call."""
    with opened(command) as process:
        process.stop_reading()
        process.send(call(1, "echo", text="nobody reads this"))
        return process.ending()


def blocked(command: Command) -> str:
    """How long an async tool takes while plain ones sleep for a second each."""
    with opened(command) as process:
        process.send(b"".join(call(number, "block", seconds=1) for number in range(1, BLOCKED + 1)))
        sent = time.monotonic()
        process.send(call(0xA51, "echo", text="quick"))
        process.must_answer(0xA51)
        return f"{(time.monotonic() - sent) * 1000:,.0f} ms"


def bad_bytes(command: Command) -> str:
    with opened(command) as process:
        process.send(b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}\n' + call(2, "echo", text="next"))
        return "answered" if process.answer_to(2, BOUND) else "no answer"


def cancelled(command: Command, era: Era) -> str:
    """What is sent for a request once it is cancelled. The answer to the next call shows that the server knows."""
    with opened(command, era) as process:
        process.send(call(1, "report", era).replace(*TOKENS[era.name]))
        if not process.hear(lambda message: message.get("method") == "notifications/progress"):
            raise Failed(f"no progress came: {process.stderr[-2000:]!r}")
        process.send(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}\n')
        process.send(call(2, "echo", era, text="next"))
        process.must_answer(2)
        process.hear_all(SILENCE)
        known = next(place for place, message in enumerate(process.messages) if is_answer(message, 2))
        reports = sum("method" in message for message in process.messages[known:])
        return f"{outcome(process.answer_to(1, 0))}, {reports} notifications"


SCENARIOS: dict[str, Callable[[Command], str]] = {
    "a tool prints and does not flush": partial(stray_output, way="print"),
    "a tool prints and flushes": partial(stray_output, way="flush"),
    "a tool's child process prints": partial(stray_output, way="child"),
    "a tool calls os.write(1, ...)": partial(stray_output, way="write"),
    "answer to a request without a method": partial(malformed, line=b'{"jsonrpc":"2.0","id":1}\n'),
    'answer to a request with "jsonrpc": "1.0"': partial(malformed, line=b'{"jsonrpc":"1.0","id":1,"method":"ping"}\n'),
    "a batch of 2 calls, 2025-03-26": batch,
    f"server < file, {CALLS} quick calls, {RUNS} runs": partial(from_file, tool="echo", text="quick"),
    f"server < file, {CALLS} calls of {SLOW} s, {RUNS} runs": partial(from_file, tool="wait", seconds=SLOW),
    "SIGINT while idle: ends": interrupted,
    "the client stops reading, then calls: ends": unread,
    f"an async tool while {BLOCKED} plain ones block 1 s each": blocked,
    "a call after a line of invalid UTF-8": bad_bytes,
    "sent for a cancelled request, legacy": partial(cancelled, era=LEGACY),
    "sent for a cancelled request, modern": partial(cancelled, era=MODERN),
}
