"""Words that are longer than the name of a file can be: they are the names of none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.kit import WEATHER, here
from tests.kit.home import home, project

__all__ = ["home", "project"]

LONG = "x" * 5000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", LONG], "There is no recording 'xxx"),
        (["export", LONG, "--as", "html"], "There is no recording 'xxx"),
        (["diff", LONG, LONG], "There is no recording 'xxx"),
        (["sessions", LONG], "There is no folder xxx"),
        (["serve", LONG, "--http", "127.0.0.1:0"], "There is no file 'xxx"),
        (["serve", f"{LONG}:app", "--http", "127.0.0.1:0"], "There is no file 'xxx"),
        (["call", "forecast", "city=Oslo", "-o", f"{LONG}/file", *WEATHER], "there is no folder 'xxx"),
        (["read", "weather://Oslo/today", "-o", LONG, *WEATHER], "cannot be written: File name too long."),
    ],
)
def test_it_is_a_mistake_like_any_other(words: list[str], said: str) -> None:
    done = here(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("words", [["sessions"], ["show"], ["show", "weather"], ["diff", "a", "b"]])
def test_a_folder_of_recordings_that_cannot_be_read_is_reported(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", f"/{LONG}")
    done = here(*words)
    assert (done.code, done.out) == (4, "")
    assert done.err.startswith("Error: The folder /xxx")
    assert done.err.endswith("/mcplumb/recordings cannot be read: File name too long.\n")


@pytest.mark.parametrize("words", [["servers"], ["wrap", "weather"], ["tools", "-s", "weather"]])
def test_folders_of_settings_that_cannot_be_read_are_passed_over(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, f"/{LONG}")
    done = here(*words)
    assert done.code == (0 if words == ["servers"] else 2)
    assert ("There is no server 'weather'" in done.err) == (words != ["servers"])
    assert ("The tokens cannot be read: [Errno 36] File name too long" in done.err) == (words == ["servers"])


def test_a_command_may_have_a_long_argument(home: Path) -> None:
    done = here("add", "db", "--", "python", "db.py", LONG)
    assert done.code == 0
    entry = json.loads((home / ".config" / "mcplumb" / "servers.json").read_text("utf-8"))["mcpServers"]["db"]
    assert entry == {"command": "python", "args": ["db.py", LONG]}
