"""Servers and projects that attack whoever sits at a terminal, and people who do not wait."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.attacks.harness import ROOT
from tests.cli.kit import _AT_TERMINAL, PYTHON, on_terminal
from tests.kit.loop import PATIENCE
from tests.kit.products import spread

RUDE = str(ROOT / "tests" / "attacks" / "servers" / "rude.py")
#: What rich and readline themselves write: colours, the cursor of a bar, and its lines drawn again.
OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\r|\x1b\[\?2004[lh]")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def nobody_stays() -> Iterator[None]:
    """Also when a test has failed."""
    yield
    while Desk.opened:
        process = Desk.opened.pop().process
        if process.poll() is None:
            process.kill()
            process.wait()


def check(shown: str) -> None:
    """All that is shown can be seen, and was not obeyed."""
    assert "\r$ fake" not in shown
    rest = OURS.sub("", shown).replace("\n", "").replace("\t", "")
    assert rest.isprintable(), sorted({ascii(letter) for letter in rest if not letter.isprintable()})
    assert not set(rest) & set("\u3164\u034f\U000e0101")
    assert "Traceback" not in shown


COMMANDS = [
    ["probe", "--quick"],
    ["probe", "--quick", "--json"],
    ["tools"],
    ["tools", "--json"],
    ["tools", "--schema", "plain"],
    ["tools", "--schema", "gone"],
    ["resources"],
    ["resources", "--json"],
    ["prompts"],
    ["prompts", "--schema", "p"],
    ["call", "plain"],
    ["call", "plain", "--json"],
    ["call", "plain", "--trace"],
    ["call", "plain", "x=1"],
    ["call", "fails"],
    ["call", "wrong"],
    ["call", "progress"],
    ["call", "log", "-vv"],
    ["call", "files"],
    ["read", "x://a"],
    ["read", "x://a", "--json"],
    ["prompt", "p"],
    ["prompt", "p", "--json"],
    ["complete", "p", "a=b"],
    ["listen", "x://a", "--count", "1"],
    ["listen", "x://a", "--count", "1", "--json"],
]


@pytest.mark.parametrize("words", spread(COMMANDS, 9), ids=" ".join)
def test_no_command_lets_a_server_drive_the_terminal(words: list[str]) -> None:
    check(on_terminal(*words, "--", PYTHON, RUDE, "garbage", columns=100).out)


def test_questions_do_not_either() -> None:
    done = on_terminal(
        "call", "ask", "--", PYTHON, RUDE, typed=[("first", "\n"), ("1 to 2", "2\n"), ("Send it?", "\n")]
    )
    check(done.out)
    done = on_terminal("call", "page", "--", PYTHON, RUDE)
    check(done.out)
    assert "That is not the address of a web page, and was declined." in done.out


def test_the_shell_does_not_either() -> None:
    lines = ["call plain\n", "help plain\n", "info\n", "call log\n", "call t\t\t\x15read x\t\t\x15exit\n"]
    done = on_terminal("shell", "--", PYTHON, RUDE, typed=[("rude", ""), *(("> ", line) for line in lines)])
    check(done.out.replace("\x07", "").replace("\x08", ""))  # readline's bell and its way to delete


def test_files_are_where_and_what_they_should_be(tmp_path: Path) -> None:
    on_terminal("call", "files", "--", PYTHON, RUDE)
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert len(names) == 4
    assert all(name.startswith("files-") and name.endswith(".bin") for name in names)


# --- Who does not wait ---


class Desk:
    """``mcplumb`` at a terminal, with a server that says when it is gone."""

    opened: ClassVar[list[Desk]] = []

    def __init__(self, folder: Path, *words: str) -> None:
        self._pid = folder / "pid"
        self._ours, self._theirs = pty.openpty()
        self._before = termios.tcgetattr(self._theirs)
        self.shown = ""
        env = {**os.environ, "TERM": "xterm"}
        self.process = subprocess.Popen(
            [PYTHON, "-c", _AT_TERMINAL, "-m", "mcplumb", *words, f"@{self._pid}"],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env=env,
            start_new_session=True,
        )
        self.opened.append(self)

    def see(self, words: str | None, *, much: int = 0) -> None:
        """Read until that is shown, and so much; or, for None, until it has ended."""
        deadline = time.monotonic() + PATIENCE
        seen = 0
        while (self.process.poll() is None) if words is None else (words not in self.shown or seen < much):
            assert time.monotonic() < deadline, self.shown[-2000:]
            if select.select([self._ours], [], [], 0.05)[0]:
                chunk = os.read(self._ours, 65536)
                seen += len(chunk)
                self.shown = (self.shown + chunk.decode("utf-8", "replace"))[-100_000:]

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def hang_up(self) -> None:
        os.close(self._ours)
        self._ours = -1

    def ended(self) -> int:
        """Its exit code, once it has ended: alone, quietly, and with the terminal as it was."""
        if self._ours >= 0:
            self.see(None)
            assert termios.tcgetattr(self._theirs) == self._before
            assert self.shown.rfind("\x1b[?25l") <= self.shown.rfind("\x1b[?25h"), "the cursor is hidden"
            os.close(self._ours)
        code = self.process.wait(PATIENCE)
        os.close(self._theirs)
        assert "Traceback" not in self.shown
        deadline = time.monotonic() + PATIENCE
        while _lives(int(self._pid.read_text(encoding="ascii"))):
            assert time.monotonic() < deadline, "the server is left behind"
            time.sleep(0.05)
        return code


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("flood", "shown"), [("progress", "endless"), ("log", "error: "), ("stderr", "much"), ("garbage", "endless")]
)
def test_ctrl_c_ends_a_server_that_does_not_stop_talking(flood: str, shown: str, tmp_path: Path) -> None:
    words = ["call", "endless", *(["-v"] if flood == "log" else []), "--", PYTHON, RUDE, flood]
    desk = Desk(tmp_path, *words)
    desk.see(shown, much=0 if flood == "garbage" else 1000)
    desk.type("\x03")
    assert desk.ended() == 130


def test_a_shell_survives_a_server_that_does_not_stop_talking(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "shell", "--", PYTHON, RUDE, "log")
    desk.see("> ")
    desk.type("call endless\n")
    desk.see("error: ", much=10_000)
    desk.type("\x03")
    desk.see("Cancelled.")
    desk.shown = ""
    desk.see("> ")
    desk.type("\x04")
    assert desk.ended() == 0


@pytest.mark.parametrize(
    ("typed", "end"),
    [("", signal.SIGTERM), ("call pl", signal.SIGHUP), ("call endless\n", signal.SIGTERM), ("call endless\n", None)],
    ids=["waiting", "typing", "calling", "closed"],
)
def test_a_shell_that_is_ended_leaves_nothing_behind(typed: str, end: signal.Signals | None, tmp_path: Path) -> None:
    desk = Desk(tmp_path, "shell", "--", PYTHON, RUDE, "stderr", "stays")
    desk.see("> ")
    desk.type(typed)
    if typed:
        desk.see("much" if typed.endswith("\n") else typed)
    if end is None:
        desk.hang_up()
    else:
        desk.process.send_signal(end)
    assert desk.ended() == 128 + (end or signal.SIGHUP)
