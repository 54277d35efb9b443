"""The wire layer against the fastest thing that Python has for the same job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bench.contenders.orders import META
from bench.lineup import Lineup
from bench.measure import Row, best_of, show
from bench.results import Part
from mcplumb.wire.lines import LineSplitter
from mcplumb.wire.message_decoder import decode_line
from mcplumb.wire.messages import Error, Message, Notification, Request, Result, encode_line

__all__ = ["run"]

CHUNK = 64 * 1024
MIB = 1024 * 1024

CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{' + META + b',"name":"forecast","arguments":%b}}'
OLD_CALL = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"forecast","arguments":%b}}'
ANSWER = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%b}],"resultType":"complete"}}'
NUMBERS = range(1000, 2000)
# The same messages in the other ways that peers write them: in another order, with spaces, and not in English.
METHOD_FIRST = b'{"method":"tools/call","params":{"name":"forecast","arguments":%b},"jsonrpc":"2.0","id":%d}'
SPACED = b'{"jsonrpc": "2.0", "id": %d, "method": "tools/call", "params": {"name": "forecast", "arguments": %b}}'
NOTIFICATION = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":%b}}'
ERROR = b'{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,"message":%b}}'


def run(_: Lineup) -> Part:
    """What lines and messages cost by themselves."""
    lines, messages = [*split_rows(), endless_row()], [*decode_rows(), *encode_rows()]
    show("lines in chunks of 64 KiB, against bytes.split", lines)
    show("messages, against bare msgspec to and from the same types", messages)
    return Part(rows=[*lines, *messages])


def split_rows() -> list[Row]:
    return [
        split_row("lines of 100 bytes", 100, 32 * MIB, aim=None),
        split_row("lines of 10 kB", 10_000, 64 * MIB, aim=0.5),
        split_row("lines of 100 MB", 100_000_000, 200_000_000, aim=None),
    ]


def split_row(name: str, size: int, total: int, *, aim: float | None) -> Row:
    data = (b"x" * (size - 1) + b"\n") * (total // size)
    chunks = cut(data)

    def baseline() -> None:
        if size > CHUNK:
            # Lines over many chunks: what joins them is part of the job.
            b"".join(chunks).split(b"\n")
        else:
            for chunk in chunks:
                chunk.split(b"\n")

    plain, ours = best_of(7, baseline, lambda: feed(chunks, max(64 * MIB, size)))
    measure = f"{total / size / ours:,.0f} lines/s {total / ours / 1e6:,.0f} MB/s"
    return Row(name, measure, plain / ours, aim)


def endless_row() -> Row:
    small, large = (cut(b"x" * (size * MIB - 1) + b"\n") for size in (64, 256))
    short, long = best_of(5, lambda: feed(small, 256 * MIB), lambda: feed(large, 256 * MIB))
    measure = f"{long * 1000:.0f} ms against {short * 1000:.0f} ms"
    return Row("one line of 256 MiB, of 64 MiB", measure, long / short, aim=5, less_is_better=True)


def cut(data: bytes) -> list[bytes]:
    return [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]


def feed(chunks: Sequence[bytes], max_line: int) -> None:
    splitter = LineSplitter(max_line)
    for chunk in chunks:
        splitter.feed(chunk)


def decode_rows() -> list[Row]:
    small, large = b'{"city":"Oslo","days":3}', b'{"text":"' + b"x" * 10_000 + b'"}'
    accented = '{"city":"Tromsø","days":3}'.encode()
    spaced = b'{"city": "Oslo", "days": 3}'
    sentence = b'"It will rain, and then it will rain again."'
    cjk = '"{}"'.format("明日は雨" * 1000).encode()
    return [
        decode_row("decode a request", Request, numbered(CALL, small), aim=0.5),
        decode_row("decode a request of 10 kB", Request, numbered(CALL, large), aim=0.5),
        decode_row("decode a request without metadata", Request, numbered(OLD_CALL, small)),
        decode_row("decode a request, method first", Request, [METHOD_FIRST % (small, n) for n in NUMBERS]),
        decode_row("decode a request, one non-ASCII letter", Request, numbered(OLD_CALL, accented)),
        decode_row("decode a request, json.dumps spacing", Request, numbered(SPACED, spaced)),
        decode_row("decode a notification", Notification, numbered(NOTIFICATION, b"0.5")),
        decode_row("decode a result", Result, numbered(ANSWER, sentence)),
        decode_row("decode a result, 12 kB of CJK text", Result, numbered(ANSWER, cjk)),
        decode_row("decode an error", Error, numbered(ERROR, sentence)),
    ]


def numbered(template: bytes, payload: bytes) -> list[bytes]:
    return [template % (number, payload) for number in NUMBERS]


def decode_row(name: str, kind: type[Message], lines: Sequence[bytes], *, aim: float | None = None) -> Row:
    """The side that reads results and errors expects results, the other one requests, which is the default."""
    bare = msgspec.json.Decoder(kind).decode
    assert all(isinstance(decode_line(line), kind) for line in lines)

    def ours() -> None:
        for line in lines:
            decode_line(line, expect=Result)

    def ours_by_default() -> None:
        for line in lines:
            decode_line(line)

    def baseline() -> None:
        for line in lines:
            bare(line)

    return message_row(name, lines, baseline, ours if kind in (Result, Error) else ours_by_default, aim)


def encode_rows() -> list[Row]:
    payloads: list[tuple[str, Any]] = [
        ("encode a request", {"name": "forecast", "arguments": {"city": "Oslo", "days": 3}}),
        ("encode a request of 10 kB", {"name": "forecast", "arguments": {"text": "x" * 10_000}}),
    ]
    return [
        encode_row(name, [Request(number, "tools/call", value) for number in range(1000)]) for name, value in payloads
    ]


def encode_row(name: str, messages: Sequence[Message]) -> Row:
    bare = msgspec.json.Encoder().encode

    def ours() -> None:
        for message in messages:
            encode_line(message)

    def baseline() -> None:
        for message in messages:
            bare(message)

    return message_row(name, [encode_line(message) for message in messages], baseline, ours, None)


def message_row(
    name: str, lines: Sequence[bytes], baseline: Callable[[], None], ours: Callable[[], None], aim: float | None
) -> Row:
    bare, best = best_of(200 if len(lines[0]) < 1000 else 30, baseline, ours)
    measure = f"{len(lines) / best:,.0f} messages/s of {len(lines[0])} B"
    return Row(name, measure, bare / best, aim)
