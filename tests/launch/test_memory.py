"""Which era a server belongs to is remembered: by the process, and by a file for those that follow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcplumb import connect
from tests.kit.loop import run
from tests.kit.products import spread
from tests.launch.harness import HASTY_WAITS, LEGACY, MODERN, ROOT, Stage, say

PROBE, INITIALIZE = "server/discover", "initialize"

#: A program of its own, which remembers nothing but what the file says.
MEET = """
import asyncio, json, sys
from mcplumb import connect

async def main():
    async with connect(json.loads(sys.argv[1]), era_memory=sys.argv[2]) as client:
        print(client.revision)

asyncio.run(main())
"""


async def meet(command: list[str], **options: Any) -> str:
    async with connect(command, waits=HASTY_WAITS, **options) as client:
        assert await say(client, "echo", text="hello") == "hello"
        return str(client.revision)


def meet_elsewhere(command: list[str], memory: Path) -> str:
    """Connect in another process, and return the revision."""
    host = [sys.executable, "-c", MEET, json.dumps(command), str(memory)]
    return subprocess.run(host, check=True, capture_output=True, text=True, cwd=ROOT, timeout=60).stdout.strip()


def openings(stage: Stage) -> list[str]:
    """The first question that each process was asked."""
    return [stage.log.methods(pid)[0] for pid in stage.log.pids]


@pytest.mark.req("ERA-7")
def test_this_process_remembers(stage: Stage) -> None:
    command = stage.command("eras", revisions=[LEGACY[0]], on_probe="exit")
    for _ in range(3):
        assert run(meet(command)) == LEGACY[0]
    assert openings(stage) == [PROBE, INITIALIZE, INITIALIZE, INITIALIZE]


@pytest.mark.req("ERA-7")
def test_another_command_or_environment_is_another_server(stage: Stage) -> None:
    command = stage.command("good", revisions=[LEGACY[0]])
    run(meet(command))
    run(meet(command, env={"MODE": "other"}))
    run(meet([*command, "more"]))
    run(meet(command, cwd="/"))
    assert openings(stage) == [PROBE] * 4


@pytest.mark.req("ERA-7")
def test_a_file_remembers_for_other_processes(stage: Stage) -> None:
    memory = stage.folder / "deep" / "eras.json"
    command = stage.command("eras", revisions=[LEGACY[1]], on_probe="exit")
    assert [meet_elsewhere(command, memory) for _ in range(2)] == [LEGACY[1]] * 2
    assert openings(stage) == [PROBE, INITIALIZE, INITIALIZE]
    assert memory.stat().st_mode & 0o077 == 0
    assert "eras" not in memory.read_text(encoding="utf-8")


@pytest.mark.req("ERA-7")
@pytest.mark.parametrize(("before", "after"), [(LEGACY[2], MODERN), (MODERN, LEGACY[2])])
def test_a_wrong_memory_is_noticed_and_corrected(stage: Stage, before: str, after: str) -> None:
    memory = stage.folder / "eras.json"
    command = stage.command("eras", each=[{"revisions": [before]}, {"revisions": [after]}])
    assert [meet_elsewhere(command, memory) for _ in range(3)] == [before, after, after]
    assert len(stage.log.pids) == 3
    assert openings(stage)[2] == (PROBE if after == MODERN else INITIALIZE)
    assert stage.log.methods(stage.log.pids[2]).count(PROBE) == (after == MODERN)


@pytest.mark.req("ERA-7")
def test_a_memory_of_a_server_that_dies_of_the_wrong_question(stage: Stage) -> None:
    memory = stage.folder / "eras.json"
    each = [{"revisions": [LEGACY[2]]}, {"revisions": [MODERN], "on_initialize": "exit"}]
    command = stage.command("eras", each=each)
    assert [meet_elsewhere(command, memory) for _ in range(3)] == [LEGACY[2], MODERN, MODERN]
    assert openings(stage) == [PROBE, INITIALIZE, PROBE, PROBE]


@pytest.mark.req("ERA-7")
@pytest.mark.parametrize(
    "rubbish", spread([b"", b"{", b"\xff", b"[]", b'{"servers": 3}', b'{"servers": {"x": {"era": 1}}}'], 2)
)
def test_a_file_that_cannot_be_understood_is_no_reason_to_fail(stage: Stage, rubbish: bytes) -> None:
    memory = stage.folder / "eras.json"
    memory.write_bytes(rubbish)
    assert run(meet(stage.command("good"), era_memory=memory)) == MODERN


@pytest.mark.req("ERA-7")
def test_a_file_that_cannot_be_written_is_no_reason_to_fail(stage: Stage) -> None:
    assert run(meet(stage.command("good"), era_memory=Path(os.devnull) / "eras.json")) == MODERN
