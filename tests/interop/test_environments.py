from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import environments
from tests.interop.environments import Environment, NotInstalled


def program(folder: Path, name: str, says: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{says}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that programs are found in, besides the shell's own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


TYPESCRIPT = Environment("typescript_v1", ("@modelcontextprotocol/sdk@0.0.0",))


def test_without_node_it_says_what_is_needed(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotInstalled, match=r"need Node\.js 20 or newer with npm on the PATH, and there is no 'node'\."):
        TYPESCRIPT.made(tmp_path)
    assert "installing" not in capsys.readouterr().out


def test_without_npm_it_says_what_is_needed(path: Path, tmp_path: Path) -> None:
    program(path, "node", "echo v22.1.0")
    with pytest.raises(NotInstalled, match=r"and there is no 'npm'\."):
        TYPESCRIPT.made(tmp_path)


def test_a_node_that_is_too_old_is_refused(path: Path, tmp_path: Path) -> None:
    program(path, "node", "echo v18.20.4")
    program(path, "npm", "exit 1")
    with pytest.raises(NotInstalled, match=r"and 'node' is v18\.20\.4\."):
        TYPESCRIPT.made(tmp_path)


def test_what_the_installer_said_is_shown(path: Path, tmp_path: Path) -> None:
    program(path, "node", "echo v20.0.0")
    program(path, "npm", "echo no such package >&2; exit 1")
    with pytest.raises(NotInstalled, match=r"This failed: npm install .*\nno such package"):
        TYPESCRIPT.made(tmp_path)


def test_an_environment_is_made_once_and_again_after_a_failure(path: Path, tmp_path: Path) -> None:
    program(path, "node", "echo v20.0.0")
    program(path, "npm", "exit 1")
    with pytest.raises(NotInstalled):
        TYPESCRIPT.made(tmp_path)
    program(path, "npm", "exit 0")
    folder = TYPESCRIPT.made(tmp_path)
    program(path, "npm", "exit 1")
    assert TYPESCRIPT.made(tmp_path) == folder
    with pytest.raises(NotInstalled):
        TYPESCRIPT._replace(packages=("@modelcontextprotocol/sdk@0.0.1",)).made(tmp_path)


def test_an_installer_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "INSTALL_SECONDS", 0.1)
    with pytest.raises(NotInstalled, match=r"This took longer than 0\.1 s: sleep 60"):
        environments.run("sleep", "60")


def test_programs_are_found_where_the_installer_puts_them(path: Path, tmp_path: Path) -> None:
    program(path, "node", "echo v20.0.0")
    program(path, "npm", "exit 0")
    folder = TYPESCRIPT.made(tmp_path)
    assert TYPESCRIPT.executable("server", tmp_path) == str(folder / "node_modules" / ".bin" / "server")
    own = tmp_path / "own.mjs"
    own.touch()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    for _ in range(2):
        assert TYPESCRIPT.command(own, scratch, tmp_path) == ["node", str(scratch / "own.mjs")]
    assert (scratch / "node_modules").readlink() == folder / "node_modules"
