from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop import toolchains
from tests.interop.environments import NotInstalled, NoToolchain
from tests.interop.toolchains import GO, PROJECTS, Program, Project, Toolchain

#: What a registry of one machine would leave in a lock file, besides the public ones.
PUBLIC = ("github.com", "crates.io", "apache.org", "w3.org")


def program(folder: Path, name: str, says: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{says}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that programs are found in."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose build counts its runs."""
    source = tmp_path / "small"
    source.mkdir()
    (source / "manifest").write_text("sdk v1.2.3\n")
    monkeypatch.setattr(toolchains, "HERE", tmp_path)

    def build(_source: Path, folder: Path, shared: Path) -> None:
        shared.mkdir(exist_ok=True)
        (shared / f"build-{len(list(shared.iterdir()))}").touch()
        (folder / "server").touch()

    def start(folder: Path, name: Program) -> list[str]:
        return [str(folder / name)]

    return Project("small", "Small SDK", "manifest", r"sdk v(\S+)", ("legacy",), (), build, start)


def test_without_the_toolchain_it_says_what_is_needed(path: Path, tmp_path: Path) -> None:
    with pytest.raises(NoToolchain, match=r"Go SDK needs 'go' 1\.25 or newer on the PATH, and there is none\."):
        GO.made(tmp_path)


def test_a_toolchain_that_is_too_old_is_refused(path: Path, tmp_path: Path) -> None:
    program(path, "go", "echo go version go1.21.4 linux/amd64")
    with pytest.raises(NoToolchain, match=r"and it is 'go version go1\.21\.4 linux/amd64'\."):
        GO.made(tmp_path)


def test_a_newer_toolchain_will_do(path: Path) -> None:
    program(path, "go", "echo go version go2.0 linux/amd64")
    Toolchain(("go", "version"), (1, 25)).check("It")


def test_what_the_compiler_said_is_shown(path: Path, tmp_path: Path) -> None:
    program(path, "go", 'test "$1" = version && echo go1.30 && exit; echo it does not compile >&2; exit 1')
    program(path, "env", 'shift 2; exec "$@"')
    with pytest.raises(NotInstalled, match="it does not compile"):
        GO.made(tmp_path)


def test_a_project_is_built_again_only_when_a_file_changes(project: Project, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert project.command("server", cache) == project.command("server", cache)
    assert len(list((cache / "small-shared").iterdir())) == 1
    first = project.made(cache)
    (project.source / "manifest").write_text("sdk v1.2.4\n")
    assert project.made(cache) != first
    assert len(list((cache / "small-shared").iterdir())) == 2
    assert str(project) == "Small SDK 1.2.4"


def test_a_manifest_without_a_version_is_an_error(project: Project) -> None:
    (project.source / "manifest").write_text("nothing\n")
    with pytest.raises(LookupError, match="has no version of the SDK"):
        _ = project.version


@pytest.mark.parametrize("each", PROJECTS, ids=lambda each: each.name)
def test_the_files_name_no_registry_of_one_machine(each: Project) -> None:
    for file in each.source.rglob("*"):
        if file.is_file() and file.suffix not in (".go", ".rs", ".java"):
            for host in re.findall(r"https?://([^/\"\s<]+)", file.read_text(encoding="utf-8")):
                assert host.endswith(PUBLIC), f"{file}: {host}"
