"""Functions that fork and come back twice, in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mcplumb.rpc.thread_pool import end_fork, forks
from tests.server.harness import lines

FORKING = """
import os
from mcplumb import Server

server = Server("forking")


@server.tool
{kind}def fork() -> str:
    return "parent" if os.fork() else "child"


server.run()
"""


@pytest.mark.req("FRM-2")
@pytest.mark.parametrize("kind", ["async ", ""])
def test_the_child_of_a_function_that_forks_says_nothing_and_is_gone(kind: str, tmp_path: Path) -> None:
    program = tmp_path / "forking.py"
    program.write_text(FORKING.format(kind=kind))
    call = {"method": "tools/call", "params": {"name": "fork", "arguments": {}}}
    done = subprocess.run(
        [sys.executable, program], input=lines(call, call), capture_output=True, timeout=60, check=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(answer["id"] for answer in answers) == [0, 1]
    assert {answer["result"]["content"][0]["text"] for answer in answers} == {"parent"}
    assert b"Traceback" not in done.stderr


def test_a_server_may_run_in_a_fork(tmp_path: Path) -> None:
    program = tmp_path / "forked.py"
    code = FORKING.format(kind="async ").replace(
        "server.run()", "if os.fork() == 0:\n    server.run()\nelse:\n    os.wait()"
    )
    program.write_text(code.replace('"parent" if os.fork() else "child"', '"here"'))
    call = {"method": "tools/call", "params": {"name": "fork", "arguments": {}}}
    done = subprocess.run([sys.executable, program], input=lines(call), capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout)["result"]["content"][0]["text"] == "here"


def test_a_fork_is_noticed_in_the_child() -> None:
    if (pid := os.fork()) == 0:
        os._exit(len(forks))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == len(forks) + 1


def test_a_fork_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    end_fork()
    assert codes == [1]
