"""A server process, what it is sent, and what came from it, for whoever looks how it behaves."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import IO, Any, TypeAlias

import msgspec

from bench.driver import CHUNK, ENVIRONMENT
from bench.traffic import LEGACY, Era, Failed

__all__ = ["BOUND", "PATIENCE", "Command", "Message", "Process", "is_answer", "opened", "started"]

Command: TypeAlias = Sequence[str]
Message: TypeAlias = dict[str, Any]

#: How long an answer may take that every server should give.
PATIENCE = 20.0
#: How long a server has to end, once it should and once more when its input has ended.
BOUND = 5.0


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


def is_answer(message: Message, number: int) -> bool:
    return "method" not in message and message.get("id") == number
