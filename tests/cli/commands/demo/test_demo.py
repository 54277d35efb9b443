"""``mcplumb demo``: the tour at a terminal and through a pipe, when it fails, and its picture."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from mcplumb.cli.commands import demo
from mcplumb.cli.commands.demo import NEXT, STEPS, Step, StepFailed, Tour
from mcplumb.cli.main import COMMANDS
from mcplumb.errors import RequestTimeout, UsageError
from tests.cli.kit import here, mcplumb, on_terminal, serving
from tests.cli.reading import path_with_mcplumb
from tests.kit.results import text_of
from tests.repo.source import ROOT
from tests.server.harness import lines, standard_streams
from tools.record_demo import picture

PICTURE = ROOT / "docs" / "demo.svg"
MEASURED = ("start-up ", "a call over stdio ", "a call over a Unix socket ", "a call over HTTP ", "restarts ")
ESCAPE = "\x1b"


def test_through_a_pipe_it_is_plain_and_complete() -> None:
    done = mcplumb("demo")
    assert done.code == 0, done
    assert ESCAPE not in done.out + done.err
    for number, step in enumerate(STEPS, 1):
        assert f"\n{number}. {step.title}\n$ {step.command}\n" in done.out
    lines = done.out.splitlines()
    assert sum(line.startswith("✓ ") for line in lines) == len(STEPS)
    assert not [line for line in lines if line.startswith("✗") or line != line.rstrip()]
    for name in (*MEASURED, "this tour "):
        assert [line for line in lines if line.startswith(name)], name
    for command, what in NEXT:
        assert [line for line in lines if line.startswith(f"{what} ") and line.endswith(f" {command}")], command
    assert done.err.splitlines() == [f"brew: {cup}/4, cup {cup}" for cup in (1, 2, 3, 4)]


def test_at_a_terminal_there_are_colours_and_a_bar_that_moves() -> None:
    done = on_terminal("demo", columns=100)
    assert done.code == 0, done
    assert f"{ESCAPE}[32m✓ " in done.out
    assert "cup 1" in done.out  # in the bar
    assert f"{ESCAPE}[2K" in done.out  # which is gone afterwards
    assert done.out.count("✓ ") == len(STEPS)


async def _fails(_: Tour) -> str:
    raise StepFailed("The pot is broken.")


async def _hangs(_: Tour) -> str:
    await asyncio.Event().wait()
    raise AssertionError


async def _misused(_: Tour) -> str:
    raise UsageError("There is no pot.")


async def _late(_: Tour) -> str:
    raise RequestTimeout("The tea is late.")


async def _works(_: Tour) -> str:
    return "Tea."


@pytest.mark.parametrize(
    ("steps", "code", "said"),
    [
        ([_works], 0, []),
        ([_works, _fails, _works], 4, ["✗ The pot is broken."]),
        ([_misused, _fails], 2, ["✗ There is no pot.", "✗ The pot is broken."]),
        ([_late], 5, ["✗ The tea is late."]),
        ([_hangs, _works], 5, ["✗ This took longer than 0 seconds."]),
    ],
)
def test_a_step_that_fails_is_told_and_the_others_are_taken(
    steps: list[object], code: int, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "PATIENCE", 0.2)
    monkeypatch.setattr(demo, "STEPS", [Step("Tea", "mcplumb tea", step) for step in steps])  # type: ignore[arg-type]
    done = here("demo")
    assert done.code == code
    assert [line for line in done.out.splitlines() if line.startswith("✗")] == said
    assert done.out.count("✓ Tea.") == steps.count(_works)
    last = done.out.splitlines()[-1]
    assert last == (f"{len(said)} of {len(steps)} steps failed." if said else f"{NEXT[-1][1]}  {NEXT[-1][0]}")


def test_with_trace_every_message_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "STEPS", STEPS[1:2])
    done = here("demo", "--trace")
    assert done.code == 0
    assert ' --> {"jsonrpc":"2.0","id":1,"method":"server/discover"' in done.err


def test_it_can_be_the_server_or_its_source() -> None:
    done = here("demo", "--source")
    assert done.out == (ROOT / "src/mcplumb/cli/commands/demo_server.py").read_text(encoding="utf-8")
    with standard_streams() as streams:
        streams.feed(lines({"method": "tools/call", "params": {"name": "minutes", "arguments": {"tea": "assam"}}}))
        streams.end()
        assert demo.demo.main(["--server"], standalone_mode=False) == 0
        (answer,) = streams.messages()
    assert text_of(answer["result"]) == "4"


def test_the_examples_work_as_they_are_printed(tmp_path: Path) -> None:
    examples = [line.strip() for line in here("demo", "--help").out.splitlines() if line.startswith("  mcplumb")]
    assert examples[0] == "mcplumb demo"
    env = {"PATH": path_with_mcplumb(tmp_path)}
    for example in examples[2:]:  # the first two are run above
        words = shlex.split(example.partition(" > ")[0])
        done = mcplumb(*words[1:], env=env, cwd=tmp_path)
        assert (done.code, bool(done.out)) == (0, True), example


def test_what_to_try_next_can_be_tried(tmp_path: Path) -> None:
    assert {shlex.split(command)[1] for command, _ in NEXT} <= set(COMMANDS)
    file = tmp_path / "teahouse.py"
    file.write_text(mcplumb("demo", "--source").out, encoding="utf-8")
    with serving("--http", ":0", file=file) as (address,):
        assert "brew(tea, cups=4)" in mcplumb("tools", "-s", address).out


def test_the_picture_shows_the_tour_of_today() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    assert PICTURE.stat().st_size < 200_000
    shown = " ".join(" ".join(ET.fromstring(svg).itertext()).replace("\xa0", " ").split())  # noqa: S314
    for number, step in enumerate(STEPS, 1):
        assert f"{number}. {step.title}" in shown, "make the picture anew: python -m tools.record_demo"
        assert f"$ {step.command}" in shown
    assert shown.count("✓") == len(STEPS)
    assert "@font-face" not in svg


def test_a_picture_has_what_was_shown() -> None:
    svg = picture({"tea": "one\n\x1b[32m✓ two\x1b[0m\n"}, title="t", name="n")
    shown = " ".join(ET.fromstring(svg).itertext())  # noqa: S314
    assert "one" in shown
    assert "✓\xa0two" in shown
