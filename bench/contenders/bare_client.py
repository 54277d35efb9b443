"""The floor: a client written by hand for these two tools, which checks no message and can do nothing else."""

import os
import subprocess
import time
from collections.abc import Callable

import msgspec

from bench.contenders.orders import META, asked, orders, tell, text_of

clock = time.perf_counter


class Text(msgspec.Struct):
    text: str


class Content(msgspec.Struct):
    content: list[Text]


class Answer(msgspec.Struct):
    id: int
    result: Content


DISCOVER = b'{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{' + META + b"}}\n"
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"example","version":"1.0.0"}}}\n'
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":%b}'

decode = msgspec.json.Decoder(Answer).decode
encode = msgspec.json.encode


class Bare:
    def __init__(self, era: str, command: list[str]) -> None:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert process.stdin
        assert process.stdout
        self._stdin, self._stdout = process.stdin.fileno(), process.stdout.fileno()
        self._process = process
        is_modern = era == "modern"
        self._call = CALL + (b"," + META if is_modern else b"") + b"}}\n"
        os.write(self._stdin, DISCOVER if is_modern else INITIALIZE)
        self._line()
        if not is_modern:
            os.write(self._stdin, INITIALIZED)

    def alone(self, count: int) -> list[float]:
        return [self.echo(number, text_of(number)) for number in range(count)]

    def echo(self, number: int, text: str) -> float:
        started = clock()
        os.write(self._stdin, self._call % (number, encode(text)))
        answer = decode(self._line())
        seconds = clock() - started
        check(answer, number, text)
        return seconds

    def in_flight(self, count: int, window: int) -> list[float]:
        started = clock()
        self._ask(range(min(window, count)))
        asked, answered, rest = min(window, count), 0, b""
        while answered < count:
            *lines, rest = (rest + self._read()).split(b"\n")
            more = range(asked, min(asked + len(lines), count))
            self._ask(more)
            asked += len(more)
            answered += len(lines)
            for answer in map(decode, lines):
                check(answer, answer.id, text_of(answer.id))
        return [clock() - started]

    def large(self, size: int) -> list[float]:
        return [self.echo(0, "x" * size)]

    def close(self) -> None:
        with self._process as process:
            assert process.stdin
            process.stdin.close()

    def _ask(self, numbers: range) -> None:
        calls = [self._call % (number, encode(text_of(number))) for number in numbers]
        os.write(self._stdin, b"".join(calls))

    def _line(self) -> bytes:
        line = self._read()
        if line.endswith(b"\n"):
            return line
        pieces = [line]
        while not pieces[-1].endswith(b"\n"):
            pieces.append(self._read())
        return b"".join(pieces)

    def _read(self) -> bytes:
        if chunk := os.read(self._stdout, 65536):
            return chunk
        raise SystemExit("The server has ended.")


def check(answer: Answer, number: int, text: str) -> None:
    if answer.id != number or [block.text for block in answer.result.content] != [text]:
        raise SystemExit(f"The result of {number} should have been {text[:100]!r}: {repr(answer)[:200]}")


def main() -> None:
    started = clock()
    client = Bare(*asked())
    client.echo(0, text_of(0))
    tell([clock() - started])
    work: dict[str, Callable[..., list[float]]] = {
        "alone": client.alone,
        "in_flight": client.in_flight,
        "large": client.large,
    }
    for what, numbers in orders():
        tell(work[what](*numbers))
    client.close()


main()
