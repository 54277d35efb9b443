"""How much memory a server takes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcplumb.cli.commands import probe_report
from mcplumb.cli.commands.probe_report import memory_of
from tests.cli.kit import PYTHON

CHILD = "import subprocess, sys; p = subprocess.Popen(['sleep', '300']); print(p.pid, flush=True); sys.stdin.read()"


@pytest.fixture
def tree() -> Iterator[int]:
    process = subprocess.Popen(
        [PYTHON, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    yield process.pid
    os.kill(child, 9)
    process.communicate()


def test_all_processes_of_a_server_are_counted(tree: int) -> None:
    found = memory_of(tree)
    assert found is not None
    size, processes = found
    assert processes == 2
    assert 1024 * 1024 < size < 1024**3


def test_without_proc_the_system_is_asked(tree: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(probe_report, "_resident", lambda _: None)
    asked = f"#!/bin/sh\necho '{tree} 1000'\necho '{tree} 24'\necho '1 5'\necho 'x y z'\necho 'x 5'\n"
    program = tmp_path / "ps"
    program.write_text(asked, encoding="utf-8")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert memory_of(tree) == (1024 * 1024, 2)
    monkeypatch.setenv("PATH", "/nothing")
    assert memory_of(tree) is None


def test_a_process_that_is_no_server_is_not_looked_at() -> None:
    assert memory_of(os.getpid()) is None
    assert memory_of(2**22 + 1) is None


def test_a_process_that_has_just_ended_has_none() -> None:
    assert probe_report._resident(2**22 + 1) is None
