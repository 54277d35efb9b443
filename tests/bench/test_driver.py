"""The driver against real processes: good servers, and those that do wrong what a figure relies on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from bench.driver import driven
from bench.environments import CONTENDERS
from bench.figures import FIGURES
from bench.loads import Driver, cost_of_calls, cost_of_large_calls
from bench.machine import ForeignWork, cpu_seconds, family, pinned, resident_megabytes
from bench.traffic import LEGACY, MODERN, Calls, Era, Failed

BARE = [sys.executable, str(CONTENDERS / "bare.py")]

# What the servers below have in common: the first line is answered, then `calls` gives the calls as they come.
COMMON = """
import json, os, sys
def answer(call, text=None, size=1 << 20):
    text = call["params"]["arguments"]["text"] if text is None else text
    line = json.dumps({"id": call["id"], "result": {"content": [{"type": "text", "text": text}]}}).encode() + b"\\n"
    for at in range(0, len(line), size):
        os.write(1, line[at : at + size])
sys.stdin.buffer.readline()
os.write(1, b'{"result":{}}\\n')
calls = (json.loads(line) for line in sys.stdin.buffer)
"""


def server(code: str) -> list[str]:
    return [sys.executable, "-c", COMMON + code]


@pytest.mark.parametrize("era", [MODERN, LEGACY], ids=lambda era: era.name)
def test_the_loop_written_by_hand_serves_both_tools_in_both_eras(era: Era) -> None:
    with driven(BARE, era) as process:
        assert b'"result"' in process.greeting
        assert b'"echo"' in process.ask(b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}\n')
        process.in_flight(Calls.echo(era, range(100, 200)), 64)
        assert len(process.one_at_a_time(Calls.add(era, range(200, 210)))) == 10


def test_the_minimal_process_answers_a_line() -> None:
    with driven([sys.executable, str(CONTENDERS / "minimal.py")], MODERN) as process:
        assert process.cold_start > 0
        assert process.greeting.endswith(b"\n")


def test_the_window_is_kept_full_and_never_overrun() -> None:
    # It answers only when five calls are open, the newest first, and dies if there is ever one more.
    code = """
open_calls, seen, rest = [], 0, b""
while data := os.read(0, 1 << 20):
    *lines, rest = (rest + data).split(b"\\n")
    open_calls += map(json.loads, lines)
    seen += len(lines)
    assert len(open_calls) <= 5
    while len(open_calls) == 5 or (seen == 40 and open_calls):
        answer(open_calls.pop())
"""
    with driven(server(code), MODERN) as process:
        assert process.in_flight(Calls.echo(MODERN, range(1, 41)), 5) > 0


def test_a_window_beyond_what_pipes_hold_does_not_block() -> None:
    with driven(BARE, MODERN) as process:
        process.in_flight(Calls.echo(MODERN, range(1, 5001)), 5000)


def test_answers_may_come_in_pieces() -> None:
    with driven(server("for call in calls: answer(call, size=7)"), MODERN) as process:
        assert len(process.one_at_a_time(Calls.echo(MODERN, range(1, 6)))) == 5
        process.in_flight(Calls.echo(MODERN, range(6, 50)), 8)


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("for call in calls: call['id'] = 1; answer(call)", "came twice"),
        ("for call in calls: call['id'] += 99; answer(call)", "belongs to no call"),
        ("for call in calls: answer(call, 'something else')", "should have been answered with 'hello from call 1'"),
        ('for call in calls: os.write(1, b\'{"id":1,"error":{}}\\n\')', "no answer to a call"),
        ("for call in calls: answer(call); sys.exit('enough of this')", "last words: enough of this"),
        ("for call in calls: answer(call)\nos.write(1, b'one more thing')", "after its last answer"),
    ],
)
def test_what_a_server_does_wrong_is_found(code: str, complaint: str) -> None:
    with pytest.raises(Failed, match=complaint), driven(server(code), MODERN) as process:
        process.in_flight(Calls.echo(MODERN, range(1, 11)), 2)


def test_a_server_that_does_not_start_is_found() -> None:
    with (
        pytest.raises(Failed, match="No module named no_such_module"),
        driven([sys.executable, "-m", "no_such_module"], MODERN),
    ):
        pass


def test_an_unanswered_call_is_found() -> None:
    with pytest.raises(Failed, match="2 of 3 calls were not answered"):
        Calls.echo(MODERN, range(1, 4)).check(
            b'{"id":2,"result":{"content":[{"type":"text","text":"hello from call 2"}]}}\n'
        )


def test_large_texts_come_back_whole() -> None:
    with driven(BARE, MODERN) as process:
        assert process.in_flight(Calls.echo(MODERN, range(1, 3), size=2_000_000), 1) > 0


def test_a_driver_gives_its_calls_ids_of_their_own() -> None:
    with driven(BARE, MODERN) as process:
        driver = Driver(process, partial(Calls.echo, MODERN))
        assert len(driver.alone(3)) == 3
        assert driver.in_flight(100, 8) > 0
        assert driver.large(1_000_000) > 0


def test_the_cost_of_calls() -> None:
    with driven(BARE, MODERN) as process:
        driver = Driver(process, partial(Calls.echo, MODERN))
        figures = {**cost_of_calls(driver, [process.pid]), **cost_of_large_calls(driver)}
    assert set(figures) <= set(FIGURES)
    assert all(value > 0 for value in figures.values())
    assert figures["p50"] <= figures["p99"]


def test_the_figures_of_a_process() -> None:
    before, between, after = time.process_time(), cpu_seconds(os.getpid()), time.process_time()
    assert before <= between <= after
    assert 1 < resident_megabytes(os.getpid()) < 10_000
    # The two clocks behind it are not the same.
    assert -0.01 <= ForeignWork().share() <= 1.01


def test_a_family_is_a_process_and_its_descendants() -> None:
    child = "import os, subprocess, sys; os.write(1, b'x'); subprocess.run(['cat'], stdin=sys.stdin)"
    with subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.read(1)
        process.stdin.write(b"until cat is there")
        process.stdin.flush()
        process.stdout.read(1)
        own, grandchild = family(process.pid)
        assert own == process.pid
        assert Path(f"/proc/{grandchild}/comm").read_text() == "cat\n"
        process.stdin.close()


def test_pinning_holds_for_children_and_ends() -> None:
    cores = os.sched_getaffinity(0)
    with pinned(), driven(BARE, MODERN) as process:
        assert len(os.sched_getaffinity(process.pid)) == 1
    assert os.sched_getaffinity(0) == cores
