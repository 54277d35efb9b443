"""A child that a function forked is no server."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mcpipe.server import forks
from mcpipe.server.forks import end_fork, generation
from tests.server.harness import PATIENCE

SCRIPT = """
import os, sys
from mcpipe.server.forks import end_fork, generation
before = generation()
end_fork(before)
if os.fork() == 0:
    end_fork(before)
    os._exit(7)
_, status = os.wait()
end_fork(before)
print("the child ended with", os.waitstatus_to_exitcode(status))
"""


def test_a_fork_ends_and_its_parent_does_not() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "the child ended with 1\n"


def test_a_fork_is_known_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(forks, "_generation", before := generation())
    end_fork(before)
    assert codes == []
    forks._note_fork()
    assert generation() == before + 1
    end_fork(before)
    assert codes == [1]
