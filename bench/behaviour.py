"""What servers do when things go wrong: ours and the official SDK's, driven with the same raw bytes.

Nothing here is a judgement: each row of the table says what was observed, and in how many runs if runs may differ.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import IO, Any, TypeAlias

import msgspec

from bench.driver import ENVIRONMENT
from bench.environments import CONTENDERS, python_with
from bench.traffic import LEGACY, MODERN, Era, Failed

__all__ = ["run"]

Command: TypeAlias = Sequence[str]
Message: TypeAlias = dict[str, Any]

CHUNK = 64 * 1024
#: How long an answer may take that every server should give.
PATIENCE = 20.0
#: How long a server has to end, once it should and once more when its input has ended.
BOUND = 5.0
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
    ours, official = python_with("mcpipe"), python_with("mcp-2.3.0")
    if not ours or not official:
        return
    # A shell has background jobs ignore it, and so would the servers that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    commands = [ours, str(CONTENDERS / "ours_behaviour.py")], [official, str(CONTENDERS / "official_behaviour.py")]
    print("==> how servers behave, driven with the same bytes")
    show("", f"mcpipe {version('mcpipe')}", "mcp 2.3.0")
    for what, observed in SCENARIOS.items():
        show(what, *map(observed, commands))


def show(what: str, ours: str, official: str) -> None:
    print(f"  {what:<50} | {ours:<42} | {official}", flush=True)


class Process:
    """A server process, and what came from it so far."""

    def __init__(self, command: Command, stdin: int | IO[bytes], stderr: IO[bytes]) -> None:
        self._popen = subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, bufsize=0, env=ENVIRONMENT
        )
        self._stderr = stderr
        self._unfinished = b""
        #: All messages, those of a batch one by one.
        self.messages: list[Message] = []
        #: Whatever else was on standard output.
        self.stray: list[bytes] = []

    def send(self, data: bytes) -> None:
        """Writes all of it, which must fit into a pipe."""
        assert self._popen.stdin
        self._popen.stdin.write(data)

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def end_input(self) -> None:
        if self._popen.stdin:
            self._popen.stdin.close()

    def stop_reading(self) -> None:
        assert self._popen.stdout
        self._popen.stdout.close()

    def hear(self, last: Callable[[Message], bool], seconds: float = PATIENCE) -> bool:
        """Whether the message that is waited for came, before the end of the output and of the time."""
        assert self._popen.stdout
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._popen.stdout], [], [], left)[0]:
                return False
            chunk = os.read(self._popen.stdout.fileno(), CHUNK)
            # What the output ends with is a line, even without a newline.
            *lines, self._unfinished = (self._unfinished + (chunk or b"\n")).split(b"\n")
            heard = [message for line in lines if line for message in self._sorted(line)]
            if any(map(last, heard)):
                return True
            if not chunk:
                return False
        return False

    def _sorted(self, line: bytes) -> list[Message]:
        try:
            messages = msgspec.json.decode(line, type=Message | list[Message])
        except msgspec.MsgspecError:
            self.stray.append(line)
            return []
        messages = messages if isinstance(messages, list) else [messages]
        self.messages += messages
        return messages

    def hear_all(self, seconds: float) -> None:
        self.hear(lambda _: False, seconds)

    def answer_to(self, number: int, seconds: float = PATIENCE) -> Message | None:
        """The answer to a request, if it came or comes in time."""
        answers = partial(is_answer, number=number)
        if not any(map(answers, self.messages)):
            self.hear(answers, seconds)
        return next(filter(answers, self.messages), None)

    def must_answer(self, number: int) -> None:
        if not (answer := self.answer_to(number)) or "result" not in answer:
            raise Failed(f"request {number} got no result: {answer}, {self.stderr[-2000:]!r}")

    @property
    def stderr(self) -> bytes:
        self._stderr.seek(0)
        return self._stderr.read()

    def ending(self) -> str:
        """How the process ends: now, or else when its input does."""
        if ended := self._ended():
            return ended
        self.end_input()
        return f"not in {BOUND:g} s; at end of input {self._ended() or 'neither'}"

    def _ended(self) -> str | None:
        started = time.monotonic()
        try:
            code = self._popen.wait(BOUND)
        except subprocess.TimeoutExpired:
            return None
        seconds = time.monotonic() - started
        lines = self.stderr.splitlines()
        traceback = next((lines[number:] for number, line in enumerate(lines) if b"Traceback" in line), [])
        told = f"traceback of {len(traceback)} lines" if traceback else "no traceback"
        return f"in {seconds:.1f} s, code {code}, {told}"

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait()
        for pipe in filter(None, (self._popen.stdin, self._popen.stdout)):
            pipe.close()


@contextmanager
def started(command: Command, stdin: int | IO[bytes] = subprocess.PIPE) -> Iterator[Process]:
    with tempfile.TemporaryFile() as stderr:
        process = Process(command, stdin, stderr)
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def opened(command: Command, era: Era = LEGACY) -> Iterator[Process]:
    """A server whose handshake is done."""
    with started(command) as process:
        process.send(era.opening)
        process.must_answer(0)
        process.send(era.opened)
        yield process


def call(number: int, tool: str, era: Era = LEGACY, **arguments: Any) -> bytes:
    head = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{' % number
    return head + era.meta + b'"name":"%b","arguments":%b}}\n' % (tool.encode(), msgspec.json.encode(arguments))


def is_answer(message: Message, number: int) -> bool:
    return "method" not in message and message.get("id") == number


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
