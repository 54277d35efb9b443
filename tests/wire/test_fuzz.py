"""The fuzzer itself: it passes what is right, and finds what is planted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from fuzz.__main__ import share
from fuzz.mutation import Mutator
from fuzz.oracle import Verdict, agrees, begins_like_a_response, judge, shown_keys
from fuzz.references import Events, Lines, plain_events, plain_lines
from fuzz.runner import Failure, run
from fuzz.targets import TARGETS, Target, events, lines, messages
from mcplumb.wire.lines import End, LineSplitter, LineTooLong
from mcplumb.wire.message_decoder import BadMessage, decode_line, too_long
from mcplumb.wire.messages import INVALID_REQUEST, Request
from mcplumb.wire.server_sent_events import Event, EventDecoder, EventTooLong

ROOT = Path(__file__).parents[2]
#: The inputs of the short run that every change has to pass.
SHORT_RUN = 60_000
BOM = b"\xef\xbb\xbf"


def failure_of(target: Target, inputs: int) -> Failure | None:
    for report in run(target, inputs, seed="test"):
        if report.failure:
            return report.failure
    return None


@pytest.mark.req("FRM-4", "FRM-5", "FRM-7")
@pytest.mark.parametrize("make", TARGETS)
def test_what_is_right_passes(make: Callable[[], Target]) -> None:
    reports = list(run(make(), 600, seed="test"))
    assert [report.failure for report in reports] == [None] * 4
    assert [report.inputs for report in reports] == [150] * 4
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


class GivesNothing(LineSplitter):
    def feed(self, chunk: bytes) -> list[bytes | LineTooLong]:
        super().feed(chunk)
        return []


class DropsSomeLines(LineSplitter):
    def feed(self, chunk: bytes) -> list[bytes | LineTooLong]:
        return [line for line in super().feed(chunk) if not (isinstance(line, bytes) and line.startswith(b"x"))]


class KeepsTheMark(LineSplitter):
    def __init__(self, max_line: int) -> None:
        super().__init__(max_line)
        self._first = False


class IsAlwaysClean(LineSplitter):
    def end(self) -> End:
        return End(clean=True, rest=b"")


class ShowsNoHead(LineSplitter):
    def feed(self, chunk: bytes) -> list[bytes | LineTooLong]:
        return [LineTooLong(self.max_line, b"") if isinstance(x, LineTooLong) else x for x in super().feed(chunk)]


@pytest.mark.parametrize(
    ("splitter", "why"),
    [
        (ForgetsTheCarriageReturn, "the chunking shows"),
        (EndsWithoutARest, "KeyError"),
        (GivesNothing, "the reference"),
        (DropsSomeLines, "the reference"),
        (KeepsTheMark, "the reference"),
        (IsAlwaysClean, "the reference"),
        (ShowsNoHead, "the reference"),
    ],
)
def test_a_planted_bug_in_the_splitter_is_found(splitter: type[LineSplitter], why: str) -> None:
    failure = failure_of(lines(splitter), 3000)
    assert failure is not None
    assert why in failure.why


class LosesSomeEvents(EventDecoder):
    def feed(self, chunk: bytes) -> list[Event | EventTooLong]:
        return [event for event in super().feed(chunk) if not (isinstance(event, Event) and len(event.data) == 2)]


class GivesNoEvents(EventDecoder):
    def feed(self, chunk: bytes) -> list[Event | EventTooLong]:
        super().feed(chunk)
        return []


class ForgetsTheId(EventDecoder):
    @property
    def last_event_id(self) -> str:
        return ""


class ComesToNoCleanEnd(EventDecoder):
    def end(self) -> bool:
        return False


@pytest.mark.parametrize("decoder", [LosesSomeEvents, GivesNoEvents, ForgetsTheId, ComesToNoCleanEnd])
def test_a_planted_bug_in_the_event_decoder_is_found(decoder: type[EventDecoder]) -> None:
    failure = failure_of(events(decoder), 3000)
    assert failure is not None
    assert "the reference" in failure.why or "read again" in failure.why


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


def overlooks_the_shortest_second_id(line: bytes, **options: Any) -> Any:
    """Only in a request without any spaces that has all its members, and the ids in this order."""
    message = decode_line(line, **options)
    if isinstance(message, BadMessage) and line.startswith(b'{"jsonrpc":"2.0","id":') and line.count(b',"id":2,') == 1:
        shorter = decode_line(line.replace(b',"id":2,', b","), **options)
        if isinstance(shorter, Request) and line.endswith(b',"params":{}}'):
            return shorter
    return message


def test_the_short_run_tries_messages_with_one_short_member_too_many() -> None:
    target = messages(overlooks_the_shortest_second_id)
    failure = failure_of(target, share(target, SHORT_RUN))
    assert failure is not None
    assert "the oracle" in failure.why


def test_many_messages_are_valid_but_for_one_member() -> None:
    target = messages()
    mutator = Mutator(target.seeds, target.tokens, Random(1), target.members, target.shapes)
    verdicts = [judge(mutator.next()) for _ in range(2000)]
    assert sum(verdict.repeats for verdict in verdicts) > 0.15 * len(verdicts)


def answers_every_line(event: LineTooLong) -> BadMessage:
    return BadMessage("It is too long.", INVALID_REQUEST)


def answers_every_id(event: LineTooLong) -> BadMessage:
    bad = too_long(event)
    return BadMessage("It is too long.", INVALID_REQUEST, bad.id)


def finds_an_id_in_every_line(event: LineTooLong) -> BadMessage:
    bad = too_long(event)
    return bad if bad.is_response else BadMessage("It is too long.", INVALID_REQUEST, 1)


def takes_every_line_for_a_response(event: LineTooLong) -> BadMessage:
    return msgspec.structs.replace(too_long(event), is_response=True)


@pytest.mark.parametrize(
    ("skip", "why"),
    [
        (answers_every_line, "an answer to what shows to be a response"),
        (answers_every_id, "an answer"),
        (finds_an_id_in_every_line, "the id of no request"),
        (takes_every_line_for_a_response, "a request, skipped as a response"),
    ],
)
def test_a_planted_bug_in_what_skips_a_line_is_found(skip: Callable[[LineTooLong], BadMessage], why: str) -> None:
    failure = failure_of(messages(skip=skip), 3000)
    assert failure is not None
    assert why in failure.why


@pytest.mark.parametrize("make", TARGETS)
def test_the_short_run_finds_growth_of_memory(make: Callable[[], Target]) -> None:
    kept: list[object] = []
    target = make()

    def leak(data: bytes, rng: Random) -> str:
        if rng.random() < 0.5:
            kept.append(object())
        return "leaks"

    failure = failure_of(target._replace(check=leak), share(target, SHORT_RUN))
    assert failure is not None
    assert "memory grows" in failure.why


def hangs() -> Target:
    """A target that never comes back from its first input."""

    def check(data: bytes, rng: Random) -> str:
        while True:
            pass

    return lines()._replace(check=check, seeds=[b"endless"], tokens=[b"endless"])


def fuzz(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """What a fuzzer does that is started by ``script``, in a folder of its own."""
    path = f"import sys; sys.path[:0] = [{str(ROOT)!r}]; from fuzz import __main__ as fuzz; "
    command = [sys.executable, "-c", path + script]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_an_input_that_hangs_ends_the_run(tmp_path: Path) -> None:
    script = (
        "from tests.wire.test_fuzz import hangs; sys.exit(fuzz.main(['--patience', '0.2', '--seed', '1'], [hangs]))"
    )
    done = fuzz(tmp_path, script)
    assert done.returncode == 1, done
    assert "FAILED: lines: The input did not come to an end within 0.2 seconds." in done.stdout
    (saved,) = (tmp_path / ".fuzz").iterdir()
    assert f"input: {saved.read_bytes().hex()}\n  saved: .fuzz/{saved.name}\n  seed:  1\n" in done.stdout


def test_a_run_that_was_stopped_says_so(tmp_path: Path) -> None:
    done = fuzz(tmp_path, "sys.exit(fuzz.main(['--inputs', '1000', '--seconds', '0']))")
    assert "STOPPED after 0 seconds: only 0 of 1000 inputs were tried." in done.stdout
    assert done.returncode == 0, done


def test_a_run_that_takes_too_long_has_failed(tmp_path: Path) -> None:
    done = fuzz(tmp_path, "fuzz.SECONDS = 0; sys.exit(fuzz.main(['--inputs', '1000']))")
    assert "STOPPED after 0 seconds: only 0 of 1000 inputs were tried." in done.stdout
    assert done.returncode == 1, done


def test_a_run_tries_as_many_inputs_as_it_was_told(tmp_path: Path) -> None:
    done = fuzz(tmp_path, "sys.exit(fuzz.main(['--inputs', '1000', '--seed', '1']))")
    assert "==> 1000 inputs in" in done.stdout
    assert "STOPPED" not in done.stdout
    assert done.returncode == 0, done


def test_a_worker_that_dies_fails_the_run(tmp_path: Path) -> None:
    script = "fuzz.work = lambda *_: sys.exit(3); sys.exit(fuzz.main(['--inputs', '1000', '--patience', '0.2']))"
    done = fuzz(tmp_path, script)
    assert "FAILED: a worker died" in done.stdout
    assert done.returncode == 1, done


def test_the_references_know_the_rules() -> None:
    stream = BOM + b"a\r\n \n12345\n" + BOM
    assert plain_lines(stream, 5) == Lines([b"a", b"12345"], End(clean=False, rest=BOM))
    assert plain_lines(stream, 4) == Lines([LineTooLong(4, b"a"), LineTooLong(4, b"1234")], End(clean=False, rest=BOM))
    stream = BOM + b": hi\r\nid: 1\rdata: a\ndata\n\nretry: 5\nevent: x\ndata:12345\n\n"
    assert plain_events(stream, 10) == Events(
        [Event(b"a\n", id="1"), Event(b"12345", "x", retry=5)], "1", 5, clean=True
    )
    assert plain_events(stream + b"data:123456", 10).events[2:] == [EventTooLong(10, b"12345")]
    assert plain_events(b"id: " + b"x" * 1025 + b"\n\n", 5000) == Events([], "", None, clean=True)


def test_the_oracle_knows_what_a_head_shows() -> None:
    assert shown_keys(rb'{"a":{"b":[{"c":1}]},"d\"":"e,\"f", "\u0067":["h"], "i') == ["a", 'd"', "g"]
    assert begins_like_a_response(b'{"id":1,"params":{},"error":')
    assert not begins_like_a_response(b'{"id":1,"method":"m","result":')
    assert not begins_like_a_response(b'{"id":{"result":1},"a":"result"')


def test_the_oracle_says_when_it_cannot_say() -> None:
    deep = b"[" * 100_000
    assert judge(deep) == Verdict("too deep")
    assert agrees(decode_line(deep), judge(deep))
    assert not agrees(decode_line(b'{"jsonrpc":"2.0","id":1,"method":"m"}'), Verdict("request", "1", "m"))
