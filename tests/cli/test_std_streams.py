"""Streams that cannot be used: closed, full, or read by nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mcplumb.cli.main import OVERVIEW
from tests.cli.kit import LEGACY, PYTHON
from tests.kit.loop import PATIENCE

COMMANDS = [
    *[(["--help"], ""), (["--version"], ""), (["tools", "--help"], "1"), (["tools", *LEGACY], "")],
    *[(["tools", "--json", *LEGACY], ""), (["tools", "--json", *LEGACY], "1")],
]


@pytest.mark.parametrize(("words", "unbuffered"), COMMANDS, ids=range(len(COMMANDS)))
def test_a_reader_that_has_gone_is_no_error(words: list[str], unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert _run(words, "", stdout=writing, env={"PYTHONUNBUFFERED": unbuffered}) == (141, "", "")
    finally:
        os.close(writing)


@pytest.mark.parametrize(("words", "unbuffered"), COMMANDS, ids=range(len(COMMANDS)))
@pytest.mark.parametrize(("how", "why"), [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")])
def test_output_that_cannot_be_written_is_told(words: list[str], how: str, why: str, unbuffered: str) -> None:
    if how == ">/dev/full" and not Path("/dev/full").exists():
        return  # which only some systems have
    done = _run(words, how, env={"PYTHONUNBUFFERED": unbuffered})
    assert done == (74, "", f"Error: The output cannot be written: {why}.\n")


@pytest.mark.parametrize("how", ["2>&-", "2>/dev/full", "<&- 2>&-"])
def test_messages_that_nobody_can_read_change_nothing(how: str) -> None:
    assert _run(["--help"], how) == (0, OVERVIEW, "")
    assert _run(["nothing"], how) == (2, "", "")
    assert _run(["ping", "--", "sh", "-c", "echo said >&2; exit 1"], how) == (3, "", "")


def test_input_that_is_closed_is_empty() -> None:
    code, out, err = _run(["call", "nothing", "--args", "-", *LEGACY], "<&-")
    assert (code, out) == (2, "")
    assert "is not valid JSON" in err


def test_all_of_them_may_be_closed() -> None:
    assert _run(["tools", *LEGACY], "<&- >&- 2>&-") == (74, "", "")


def test_output_that_does_not_block_is_waited_for() -> None:
    """As it is left by a program that shares the pipe: much more is printed than it can hold."""
    program = (
        "import os, subprocess, sys; os.set_blocking(1, False); "
        "sys.exit(subprocess.run([sys.executable, '-m', 'mcplumb', *sys.argv[1:]]).returncode)"
    )
    count = 20_000
    process = subprocess.Popen(
        [PYTHON, "-c", program, "tools", "--", PYTHON, "-c", MANY, str(count)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    lines = process.stdout.readlines()
    assert process.wait(PATIENCE) == 0
    process.stdout.close()
    assert len(lines) == count + 1


MANY = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    tools = {"tools": [{"name": f"tool{n}", "inputSchema": {}} for n in range(int(sys.argv[1]))]}
    agreed = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
    answer = {"initialize": {"result": agreed}, "tools/list": {"result": tools}}
    refused = {"error": {"code": -32601, "message": "no"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer.get(asked["method"], refused)}), flush=True)
"""


def _run(
    words: Sequence[str], how: str, *, stdout: int = subprocess.PIPE, env: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """``mcplumb`` with redirections, as a shell writes them: its exit code, its output and its messages."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {how}', "sh", sys.executable, "-m", "mcplumb", *words],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=PATIENCE,
        check=False,
    )
    return done.returncode, done.stdout or "", done.stderr
