"""CONTRIBUTING.md is true: the files that it names exist, and so do the targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from mcplumb.types import METHODS
from tests.repo.source import ROOT

PAGE = ROOT / "CONTRIBUTING.md"
QUOTED = re.compile(r"`([^`\s]+)`")
TARGET = re.compile(r"`make ([a-z-]+)")
#: How the names of files end that are quoted without a folder.
SUFFIXES = (".py", ".md", ".toml")


def missing_paths(text: str, root: Path) -> Iterator[str]:
    """Each quoted path below the root that does not exist: one that begins with a folder there, or names a file."""
    folders = {path.name for path in root.iterdir() if path.is_dir()}
    for quoted in QUOTED.findall(text):
        if quoted in METHODS:
            continue
        first, slash, _ = quoted.partition("/")
        if ((slash and first in folders) or quoted.endswith(SUFFIXES)) and not (root / quoted).exists():
            yield quoted


def test_the_paths_exist() -> None:
    assert list(missing_paths(PAGE.read_text(encoding="utf-8"), ROOT)) == []


def test_the_targets_exist() -> None:
    named = set(TARGET.findall(PAGE.read_text(encoding="utf-8")))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert named
    assert named - targets == set()


def test_the_guard_finds_missing_paths(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "src" / "there.py").touch()
    text = "`src/there.py` `src/` `src/gone/` `other/x` `tools/call` `gone.py` `make test` `gone`"
    assert list(missing_paths(text, tmp_path)) == ["src/gone/", "gone.py"]
