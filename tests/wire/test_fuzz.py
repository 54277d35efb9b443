"""The fuzzer itself: it passes what is right, and finds what is planted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fuzz import runner
from fuzz.oracle import Verdict, agrees, judge
from fuzz.runner import Failure, run
from fuzz.targets import TARGETS, Target, events, lines, messages
from mcpipe.wire.decoding import BadMessage, decode_line
from mcpipe.wire.lines import End, LineSplitter, LineTooLong
from mcpipe.wire.messages import Request


def failure_of(target: Target, inputs: int) -> Failure | None:
    for report in run(target, inputs, seed="test"):
        if report.failure:
            return report.failure
    return None


@pytest.mark.req("FRM-4", "FRM-5", "FRM-7")
@pytest.mark.parametrize("make", TARGETS)
def test_what_is_right_passes(make: Callable[[], Target]) -> None:
    reports = list(run(make(), 600, seed="test"))
    assert [report.failure for report in reports] == [None]
    assert sum(report.inputs for report in reports) == 600
    assert len(reports[0].outcomes) > 4


class ForgetsTheCarriageReturn(LineSplitter):
    """Removes a ``\\r`` only if it came with its ``\\n``."""

    def feed(self, chunk: bytes) -> list[bytes | LineTooLong]:
        return super().feed(chunk.replace(b"\r\n", b"\n"))

    def end(self) -> End:
        return super().end()


class EndsWithoutARest(LineSplitter):
    """Raises at the end of a torn stream."""

    def end(self) -> End:
        end = super().end()
        if end.rest:
            raise KeyError(end.rest)
        return end


@pytest.mark.parametrize(
    ("splitter", "why"), [(ForgetsTheCarriageReturn, "the chunking shows"), (EndsWithoutARest, "KeyError")]
)
def test_a_planted_bug_in_the_splitter_is_found(splitter: type[LineSplitter], why: str) -> None:
    failure = failure_of(lines(splitter), 3000)
    assert failure is not None
    assert why in failure.why


def takes_the_last_key(line: bytes, **options: Any) -> Any:
    message = decode_line(line, **options)
    if isinstance(message, BadMessage) and "twice" in message.reason:
        return msgspec.json.decode(line, type=dict)
    return message


def answers_responses(line: bytes, **options: Any) -> Any:
    message = decode_line(line, **options)
    return msgspec.structs.replace(message, is_response=False) if isinstance(message, BadMessage) else message


def takes_every_id_for_a_text(line: bytes, **options: Any) -> Any:
    message = decode_line(line, **options)
    return msgspec.structs.replace(message, id=str(message.id)) if isinstance(message, Request) else message


@pytest.mark.parametrize("decode", [takes_the_last_key, answers_responses, takes_every_id_for_a_text])
def test_a_planted_bug_in_the_decoder_is_found(decode: Callable[..., Any]) -> None:
    assert failure_of(messages(decode), 3000) is not None


def test_growth_of_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PART", 100)
    monkeypatch.setattr(runner, "MAX_BLOCKS", 1000)
    kept: list[object] = []
    target = events()

    def leak(*args: Any) -> str:
        kept.append([object() for _ in range(20)])
        return target.check(*args)

    failure = failure_of(target._replace(check=leak), 300)
    assert failure is not None
    assert "memory grows" in failure.why


def test_the_oracle_says_when_it_cannot_say() -> None:
    deep = b"[" * 100_000
    assert judge(deep) == Verdict("too deep")
    assert agrees(decode_line(deep), judge(deep))
    assert not agrees(decode_line(b'{"jsonrpc":"2.0","id":1,"method":"m"}'), Verdict("request", "1", "m"))
