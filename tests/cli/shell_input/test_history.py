"""The history: bounded, private, without what begins with a space."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from mcplumb.cli.shell_input import MAX_HISTORY, History
from mcplumb.errors import UsageError


def test_lines_are_kept_for_later_and_for_nobody_else(tmp_path: Path) -> None:
    file = tmp_path / "new" / "history"
    history = History(str(file))
    assert history.load() == []
    assert history.add("tools")
    assert not history.add("tools")
    assert not history.add(" call login password=secret")
    assert not history.add("  ")
    assert not history.add("x" * 10_001)
    assert history.add("ping ü\udc80")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert History(str(file)).load() == ["tools", "ping ü?"]


def test_a_file_that_others_can_read_does_not_stay_so(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_text("tools\n")
    file.chmod(0o644)
    assert History(str(file)).load() == ["tools"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_it_does_not_grow_without_end(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_text("".join(f"{number}\n" for number in range(2 * MAX_HISTORY)))
    assert len(History(str(file)).load()) == MAX_HISTORY
    assert len(file.read_text().splitlines()) == 2 * MAX_HISTORY
    with file.open("a") as opened:
        opened.write("last\n")
    assert History(str(file)).load()[-1] == "last"
    assert len(file.read_text().splitlines()) == MAX_HISTORY
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_place_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        History(str(tmp_path / "file" / "history")).add("tools")
    with pytest.raises(UsageError):
        History(str(tmp_path)).load()
