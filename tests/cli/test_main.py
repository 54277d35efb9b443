"""The console script: what it says when something is missing or wrong."""

from __future__ import annotations

import sys
from typing import Any

import click
import pytest

from mcpipe.cli import commands
from mcpipe.cli.main import main
from mcpipe.errors import UsageError
from mcpipe.version import __version__


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    """The code, or the words, that the program ends with."""
    monkeypatch.setattr(sys, "argv", ["anything", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_teaches(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str) -> None:
    assert run(monkeypatch, option) == 0
    out = capsys.readouterr().out
    assert out.startswith("Usage: mcpipe ")
    assert "serve" in out


def test_the_version_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "--version") == 0
    assert __version__ in capsys.readouterr().out


def test_an_unknown_command_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "nothing") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "nothing" in captured.err


def test_an_error_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fail() -> None:
        raise UsageError("That cannot work.")

    monkeypatch.setattr(commands, "cli", fail)
    assert run(monkeypatch) == "Error: That cannot work."


def test_other_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fail() -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(commands, "cli", fail)
    monkeypatch.setattr(sys, "argv", ["anything"])
    with pytest.raises(ValueError, match="a bug"):
        main()


def test_without_its_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mcpipe.cli.commands")
    monkeypatch.setitem(sys.modules, "click", None)
    said = run(monkeypatch)
    assert said == "The command line needs one more package. Install it with: pip install 'mcpipe[cli]'"


def test_another_module_that_is_missing_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mcpipe.cli.commands")
    monkeypatch.setitem(sys.modules, "mcpipe.server.logs", None)
    with pytest.raises(ModuleNotFoundError):
        main()
