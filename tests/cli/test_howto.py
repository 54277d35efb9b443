"""The commands on the page about calls from the terminal give what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import PYTHON, on_terminal
from tests.kit.loop import PATIENCE
from tests.repo.source import ROOT
from tools.doc_examples import PYTHON as CODE

PAGE = (ROOT / "docs" / "howto" / "call-from-the-terminal.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def sessions(kind: str) -> Iterator[tuple[str, str]]:
    """Each command that stands behind a ``$``, and what is shown below it."""
    for block in BLOCK.finditer(PAGE):
        if block[1] == kind:
            for part in re.split(r"^\$ ", block[2], flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                yield command, shown


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Has the server of the page, and the two programs that its commands need."""
    (tmp_path / "kitchen.py").write_text("\n".join(block[1] for block in CODE.finditer(PAGE)), encoding="utf-8")
    (tmp_path / "bin").mkdir()
    for name, words in (("python", ""), ("mcplumb", "-m mcplumb")):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{PYTHON}" {words} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    return tmp_path


SHOWN = list(sessions("sh"))


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_command_gives_what_the_page_shows(command: str, shown: str, folder: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout == shown


def test_a_form_looks_as_the_page_shows(folder: Path) -> None:
    [(command, shown)] = sessions("text")
    words = command.split()[1:]
    typed = [("size (1 to 2): ", "2\n"), ("sugar (y/n) [n]: ", "y\n"), ("edit]: ", "\n")]
    done = on_terminal(*words, typed=typed, columns=100, cwd=folder, env={**environment(folder), "TERM": "dumb"})
    assert (done.code, done.out) == (0, shown)


@pytest.mark.parametrize(
    "words",
    [
        line.partition("#")[0].split()[1:]
        for block in BLOCK.finditer(PAGE)
        if block[1] == "sh"
        for line in block[2].splitlines()
        if line.startswith("mcplumb ")
    ],
    ids=" ".join,
)
def test_listening_begins_as_the_page_says(words: list[str], folder: Path) -> None:
    typed = [("Listening for changes of ", "\x03")]
    done = on_terminal(*words, typed=typed, columns=100, cwd=folder, env=environment(folder))
    assert done.code == (130 if "--count" in words else 0), done.out
