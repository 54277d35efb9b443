"""The commands that pages show, with what they print, print that.

In a block fenced as ``sh``, a line that begins with ``$`` is a command, and what follows is its output, on stdout and
stderr together. A line that is ``…`` stands for any lines, and a ``…`` in a line for any text. Commands run in a folder
of their own with ``weather.py``, and with each file that the page names just before a block of Python.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.repo.source import ROOT

DOCS = ROOT / "docs"
#: This one has a test of its own, with a terminal.
ELSEWHERE = {DOCS / "howto" / "call-from-the-terminal.md"}
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
JSON_BLOCK = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`(\w+\.py)`:\n\n```(?:py|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PATIENCE = 120


class Shown(NamedTuple):
    page: Path
    command: str
    output: str

    def __str__(self) -> str:
        return f"{self.page.stem}: {self.command}"


def sessions(page: Path) -> Iterator[Shown]:
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield Shown(page, command, output)


def pattern(output: str) -> re.Pattern[str]:
    lines = []
    for line in output.splitlines(keepends=True):
        if line.strip() == "…":
            lines.append(r"(?:[^\n]*\n)*?")
        else:
            lines.append("[^\n]*".join(map(re.escape, line.split("…"))))
    return re.compile("".join(lines))


def run_in_shell(command: str, folder: Path) -> str:
    """Run a command in the folder, and return its stdout and stderr."""
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
    return subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env={**os.environ, **home, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    ).stdout


PAGES = [ROOT / "README.md", *sorted(set(DOCS.glob("**/*.md")) - ELSEWHERE)]
SHOWN = [shown for page in PAGES for shown in sessions(page)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "examples" / "weather.py", tmp_path)
    (tmp_path / "bin").mkdir()
    for name, words in (("python", ""), ("mcplumb", "-m mcplumb")):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("shown", SHOWN, ids=str)
def test_a_command_prints_what_the_page_shows(shown: Shown, folder: Path) -> None:
    for name, program in FILE.findall(shown.page.read_text(encoding="utf-8")):
        (folder / name).write_text(program, encoding="utf-8")
    printed = run_in_shell(shown.command, folder)
    assert pattern(shown.output).fullmatch(printed), printed


def test_a_server_prints_the_messages_that_the_tutorial_shows(folder: Path) -> None:
    page = (DOCS / "tutorial" / "first-server.md").read_text(encoding="utf-8")
    command = next(block for block in BLOCK.findall(page) if "<<'EOF'" in block)
    shown = JSON_BLOCK.search(page, page.index(command))
    assert shown is not None
    answers = shown[1].splitlines()
    assert len(answers) == 2
    assert [line for line in run_in_shell(command, folder).splitlines() if line in answers] == answers


def test_there_are_such_commands_on_the_pages_for_newcomers() -> None:
    assert {"README", "debug-a-server", "first-server", "test-your-server"} <= {shown.page.stem for shown in SHOWN}


def test_what_is_left_out_is_left_out_and_nothing_else() -> None:
    some = pattern("a\n…\nb … c\n")
    assert some.fullmatch("a\nb x c\n")
    assert some.fullmatch("a\n1\n2\nb x y c\n")
    assert not some.fullmatch("a\nb\nc\n")
    assert not some.fullmatch("a\nb x c\nmore\n")
