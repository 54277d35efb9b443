"""The console script: help at once, one message for what fails, and a clear word if something is not installed."""

from __future__ import annotations

import builtins
import subprocess
import sys
from typing import Any

import click
import pytest

from mcplumb.cli import command_group
from mcplumb.cli.main import NEEDS_PACKAGES, OVERVIEW
from mcplumb.errors import UsageError
from mcplumb.version import __version__
from tests.cli.kit import PYTHON, here, mcplumb, on_terminal


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_help_teaches(words: list[str]) -> None:
    assert here(*words) == (0, OVERVIEW, "")


@pytest.mark.parametrize("words", [["-v", "--help"], ["--no-color", "-h"]])
def test_help_is_the_same_behind_other_options(words: list[str]) -> None:
    assert here(*words) == (0, OVERVIEW, "")


def test_help_loads_none_of_the_libraries() -> None:
    program = (
        "import atexit, sys; sys.argv = ['mcplumb', '--help']; from mcplumb.cli.main import main; "
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    )
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == OVERVIEW
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert loaded & {"click", "rich", "msgspec", "asyncio", "json", "logging", "pathlib", "subprocess"} == set()


def test_help_fits_every_terminal() -> None:
    assert max(map(len, OVERVIEW.splitlines())) <= 80
    assert on_terminal("--help", columns=80).out == OVERVIEW


def test_it_runs_as_a_module_and_as_a_script() -> None:
    assert mcplumb("--version").out.startswith(f"mcplumb {__version__}\n")
    done = subprocess.run(
        [PYTHON, "-c", "from mcplumb.cli.main import main; main()", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(f"mcplumb {__version__}\n")


@pytest.mark.parametrize("words", [["nothing"], ["--nothing"], ["tools", "--nothing"], ["ping", "-n", "x"]])
def test_what_it_does_not_know_is_wrong_usage(words: list[str]) -> None:
    done = here(*words)
    assert (done.code, done.out) == (2, "")
    assert "Error: " in done.err
    assert "Try 'mcplumb" in done.err


def test_an_error_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    @click.argument("word")
    def fail(word: str) -> None:
        raise UsageError(f"{word} cannot work.")

    monkeypatch.setattr(command_group, "cli", fail)
    assert here("This") == (2, "", "Error: This cannot work.\n")


@pytest.mark.parametrize("library", ["click", "rich", "msgspec"])
def test_without_its_libraries_it_says_what_to_install(library: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; from mcplumb.cli.main import main; main()"
    for words, wanted in ((["tools"], (2, "", NEEDS_PACKAGES)), (["--help"], (0, OVERVIEW, ""))):
        done = subprocess.run([PYTHON, "-c", program, *words], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == wanted


def test_a_library_that_is_missing_is_named_by_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "mcplumb.cli.command_group":
            raise ModuleNotFoundError("No module named 'click'", name="click")
        return usual(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert here("tools") == (2, "", NEEDS_PACKAGES)


def test_another_module_that_is_missing_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcplumb.cli.command_runner", None)
    with pytest.raises(ModuleNotFoundError):
        here("tools")
