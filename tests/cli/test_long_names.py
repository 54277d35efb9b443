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


def test_a_command_may_have_a_long_argument(home: Path) -> None:
    done = here("add", "db", "--", "python", "db.py", LONG)
    assert done.code == 0
    entry = json.loads((home / ".config" / "mcplumb" / "servers.json").read_text("utf-8"))["mcpServers"]["db"]
    assert entry == {"command": "python", "args": ["db.py", LONG]}
