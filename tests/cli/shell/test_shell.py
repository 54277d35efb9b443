"""``mcplumb shell``, as its users run it: at a terminal, and with commands from a pipe."""

from __future__ import annotations

import io
import json
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, cast

import click
import pytest

from mcplumb.cli.input_prompts import InputPrompter
from mcplumb.cli.shell import ShellSession
from mcplumb.cli.shell_input import Complete, History
from tests.cli.kit import LEGACY, PYTHON, SERVERS, WEATHER, Done, here, mcplumb, on_terminal, serving
from tests.repo.source import ROOT

KITCHEN = ["--", PYTHON, str(SERVERS / "kitchen.py")]
CHANGING = ["--", PYTHON, str(SERVERS / "changing.py")]
FALLING = ["--", PYTHON, str(SERVERS / "falling.py")]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def piped(monkeypatch: pytest.MonkeyPatch, *lines: str, server: list[str] = WEATHER) -> Done:
    """The shell in this process, with these lines from a pipe."""
    text = "".join(f"{line}\n" for line in lines)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    words = server if server[0] != "--" else ["-q", *server]
    return here("shell", *words)


# --- Pipes ---


def test_commands_come_through_a_pipe() -> None:
    done = mcplumb("shell", *WEATHER, stdin="call forecast city=Oslo\n\n# a note\nread weather://Oslo/today\n")
    assert done == (0, '["snow","sun","snow"]\nsnow', "")


def test_each_answer_has_lines_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(monkeypatch, "read weather://Oslo/today", "read weather://Rome/today", "call forecast city=Oslo")
    assert done == (0, 'snow\nsun\n["snow","sun","snow"]\n', "")


def test_the_exit_code_is_that_of_the_last_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(monkeypatch, "call forecast city=Paris", "ping")
    assert done.code == 1
    assert done.err == "Error: There is no forecast for Paris. Known are Oslo, Rome.\n"
    assert done.out.startswith("1: answered in ")
    assert piped(monkeypatch, "call forecast city=Paris", "call nothing", "ping").code == 2
    assert piped(monkeypatch, "read nothing://", "ping").code == 4


def test_no_server_no_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(monkeypatch, "ping", server=["--", PYTHON, "-c", "raise SystemExit(9)"])
    assert (done.code, done.out) == (3, "")
    assert "mcplumb probe" in done.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tols", "There is no command 'tols'. Did you mean 'tools'?"),
        ("xyz", "There is no command 'xyz'. 'help' lists them."),
        ("forecast city=Oslo", "forecast is a tool: write 'call forecast'."),
        ("call 'forecast", "The line cannot be parsed: No closing quotation."),
        ("help xyz", "There is no command, tool or prompt 'xyz'."),
        ("call", "Missing argument 'TOOL'."),
        ("log loud", "'loud' is not one of"),
        ("unlisten 3", "There is no subscription 3."),
        ("tools -s other", "No such option"),
    ],
)
def test_what_is_wrong_is_explained(monkeypatch: pytest.MonkeyPatch, line: str, said: str) -> None:
    done = piped(monkeypatch, line)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_help_is_inline(monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(monkeypatch, "help", "help call", "help forecast", "help plan", "ping -h")
    assert done.code == 0
    assert "call       Call a tool.\n" in done.out
    assert "\n  call forecast city=Oslo days=3\n" in done.out
    assert "mcplumb" not in done.out
    assert "city      string   yes" in done.out
    assert "plan(city)" in done.out
    assert "Usage: ping [OPTIONS]" in done.out


def test_lists_and_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(
        monkeypatch, "tools", "resources", "prompts", "prompt plan city=Rome", "complete plan city=R", "exit", "xyz"
    )
    assert (done.code, done.err) == (0, "There are no completions for 'city=R'.\n")
    assert "forecast(city, days=3)" in done.out
    assert "weather://{city}/today" in done.out
    assert "Plan a day in Rome" in done.out


def test_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(monkeypatch, "info", "quit")
    assert "identity      weather 1.0\n" in done.out
    assert "restarts      0\n" in done.out
    legacy = piped(monkeypatch, "info", server=LEGACY)
    assert "(legacy)" in legacy.out
    assert "capabilities  tools" in legacy.out


def test_a_server_at_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving("--http", "127.0.0.1:0") as (address,):
        done = piped(monkeypatch, "info", "call forecast city=Rome", server=["-s", address])
    assert done.code == 0
    assert f"server        {address}\n" in done.out
    assert "process" not in done.out


def test_connecting_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(monkeypatch, "info", "reconnect", "info", "call forecast city=Rome")
    pids = [line.split()[1] for line in done.out.splitlines() if line.startswith("process")]
    assert len(set(pids)) == 2
    assert done.out.endswith('["sun","sun","rain"]\n')


def test_answers_are_given_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(monkeypatch, "call order --answer name=Ada --answer size=small", server=KITCHEN)
    assert json.loads(done.out)["data"]["name"] == "Ada"
    whole = piped(monkeypatch, "call order", server=["--answer", "name=Bob", "--answer", "size=large", *KITCHEN])
    assert json.loads(whole.out)["data"]["name"] == "Bob"
    none = piped(monkeypatch, "call order", "ping", server=KITCHEN)
    assert none.code == 2
    assert "asks: How do you take it?" in none.err
    assert "--answer has no name." in none.err


def test_the_log_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(monkeypatch, "call cook steps=1", "log debug", "call cook steps=1", server=KITCHEN)
    assert done.out == "soup\nsoup\n"
    assert done.err.count('{"dish":"soup"}') == 2
    assert done.err.count("smells good") == 1


def test_listening_goes_on_beside_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(
        monkeypatch, "listen --tools", "listen changing://now -n 3", "unlisten 1", "unlisten 1", server=CHANGING
    )
    assert done.code == 2
    assert "Listening for changes of tools. 'unlisten 1' ends it.\n" in done.err
    assert "There is no subscription 1." in done.err
    assert done.out.count("The resource changing://now changed.\n") == 3
    assert "The list of tools changed.\n" in done.out


def test_nothing_is_listened_to_that_the_server_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ["--", PYTHON, str(SERVERS / "partial.py"), "nothing"]
    done = piped(monkeypatch, "listen --prompts", "unlisten 1", server=server)
    assert done.err == (
        "Error: The server does not report changes of prompts: there is nothing to listen to.\n"
        "Error: There is no subscription 1.\n"
    )


def test_listening_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(monkeypatch, *["listen"] * 17, "unlisten", "listen", server=CHANGING)
    assert done.err.count("Error: There are 16 subscriptions already") == 1
    assert done.err.count("'unlisten 1' ends it.") == 2


def test_a_subscription_that_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(monkeypatch, "listen --tools", "ping", "ping", server=["--", PYTHON, str(SERVERS / "partial.py")])
    assert "The server ended the subscription." in done.err


def test_a_server_that_crashes_is_told_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    done = piped(monkeypatch, "call fall", "call wait_for_news", "info", server=FALLING)
    assert done.code == 3
    assert "Error: " in done.err
    assert "The server exited with code 7, after " in done.err
    assert "It was started again, as process " in done.err
    assert "restarts      1\n" in done.out


def test_a_lost_server_ends_a_subscription(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ["--no-restart", *FALLING]
    done = piped(monkeypatch, "listen --tools", "call fall", "ping", "reconnect", "ping", server=server)
    assert done.code == 3
    assert done.err.count("Error: ") >= 2
    assert done.out.startswith("1: answered in ")


# --- Whoever types ---


class Typing:
    """Somebody who types lines, and presses Tab, Ctrl-C and Ctrl-D."""

    is_asking = True
    script: ClassVar[list[str | type[BaseException]]] = []
    found: ClassVar[list[list[str]]] = []

    def __init__(self, complete: Complete, history: History | None) -> None:
        self.complete = complete

    def shared(self) -> AbstractContextManager[None]:
        return nullcontext()

    def read(self, prompt: str) -> str:
        step = self.script.pop(0)
        if not isinstance(step, str):
            raise step
        if step.endswith("\t"):
            before, _, word = step[:-1].rpartition(" ")
            self.found.append(self.complete(f"{before} ", word))
            return ""
        return step


def typing(monkeypatch: pytest.MonkeyPatch, *script: str | type[BaseException], server: list[str] = WEATHER) -> Done:
    monkeypatch.setattr("mcplumb.cli.shell.LineReader", Typing)
    Typing.script[:], Typing.found[:] = script, []
    return here("shell", "-q", *server)


def test_one_ctrl_c_stays_and_two_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    stay = typing(monkeypatch, KeyboardInterrupt, "ping", KeyboardInterrupt, "call nothing", EOFError)
    assert stay.code == 0
    assert stay.err.count("Cancelled. Ctrl-C again, or Ctrl-D, leaves.") == 2
    assert typing(monkeypatch, "ping", KeyboardInterrupt, KeyboardInterrupt).code == 130


def test_tab_in_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    assert typing(monkeypatch, "call fore\t", "exit").code == 0
    assert Typing.found == [["forecast "]]
    typing(monkeypatch, "call fall", "call fal\t", "exit", server=["--no-restart", *FALLING])
    assert Typing.found == [[]]


def test_a_command_that_is_aborted_is_a_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def abort(*_: object, **__: object) -> None:
        raise click.Abort

    session = ShellSession(cast("Any", None), InputPrompter("x"), cast("Any", None))
    session.commands["stop"] = click.Command("stop", callback=abort)
    with pytest.raises(KeyboardInterrupt):
        session._run_line("stop")


# --- Terminals ---


def test_a_session_at_a_terminal(home: Path) -> None:
    done = on_terminal(
        "shell",
        *WEATHER,
        typed=[
            ("weather> ", "call forecast city=Oslo\n"),
            ('"snow"', ""),
            ("weather> ", "  call forecast city=Secret\n"),
            ("no forecast for Secret", ""),
            ("weather> ", "\x04"),
        ],
    )
    assert done.code == 0, done.out
    assert "Connected to weather, " in done.out
    file = home / "state" / "mcplumb" / "shell_history"
    assert file.read_text() == "call forecast city=Oslo\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = on_terminal("shell", *WEATHER, typed=[("weather> ", "\x1b[A\n"), ('"snow"', ""), ("weather> ", "exit\n")])
    assert again.code == 0


def test_no_history_is_kept_if_that_is_not_wanted(home: Path) -> None:
    done = on_terminal(
        "shell",
        "--no-history",
        *WEATHER,
        typed=[("weather> ", "ping\n"), ("answered", ""), ("weather> ", "\x1b[A\n"), ("answered", "exit\n")],
    )
    assert done.code == 0
    assert not (home / "state" / "mcplumb" / "shell_history").exists()


def test_tab_completes() -> None:
    done = on_terminal(
        "shell",
        *KITCHEN,
        typed=[
            ("kitchen> ", "cal\ttyp\tuni\t"),
            ("unit=", "f\ttext=a\n"),
            ('"unit": "f"', ""),
            ("kitchen> ", "prompt pl\tmeal=l\t\n"),
            ("Plan a lunch for two.", ""),
            ("kitchen> ", "read kitchen://so\t\n"),
            ("Cook the soup.", ""),
            ("kitchen> ", "exit\n"),
        ],
    )
    assert done.code == 0, done.out


def test_ctrl_c_cancels_the_call_and_a_second_one_leaves(tmp_path: Path) -> None:
    file = tmp_path / "noted"
    done = on_terminal(
        "shell",
        *KITCHEN,
        typed=[
            ("kitchen> ", f"call wait file={file}\n"),
            ("waiting", "\x03"),
            ("Cancelled.", ""),
            ("kitchen> ", "ping\n"),
            ("answered in", ""),
            ("kitchen> ", "something\x03"),
            ("Cancelled.", ""),
            ("kitchen> ", "\x03"),
        ],
    )
    assert done.code == 130, done.out
    assert file.read_text() == "cancelled"


def test_what_comes_meanwhile_stands_above_the_line() -> None:
    done = on_terminal(
        "shell",
        *CHANGING,
        typed=[
            ("changing> ", "listen changing://now\n"),
            ("changing> ", "pin"),
            ("The resource changing://now changed.\n", ""),
            # The line is drawn again, and goes on where it was.
            ("changing> pin", "g\n"),
            ("answered in", "exit\n"),
        ],
    )
    assert done.code == 0, done.out


def test_a_question_is_asked_at_the_terminal() -> None:
    done = on_terminal(
        "shell",
        *KITCHEN,
        typed=[("kitchen> ", "call confirm\n"), ("Send it?", "y\n"), ("accept", ""), ("kitchen> ", "\x04")],
    )
    assert done.code == 0, done.out


def test_a_hostile_server_cannot_drive_the_terminal() -> None:
    done = on_terminal(
        "shell",
        *KITCHEN,
        typed=[
            ("kitchen> ", "call evil\n"),
            ("owned", ""),
            ("kitchen> ", "read kitchen://so\t\t"),
            ("kitchen://so", "\x15exit\n"),
        ],
    )
    assert done.code == 0
    assert "\x1b]0;" not in done.out
    assert "\x1b[2J" not in done.out


def test_without_readline_it_still_works(tmp_path: Path) -> None:
    (tmp_path / "readline.py").write_text("raise ImportError\n")
    done = on_terminal(
        "shell",
        *WEATHER,
        typed=[("weather> ", "call forecast city=Rome\n"), ('"rain"', ""), ("weather> ", "\x04")],
        env={"PYTHONPATH": str(tmp_path)},
    )
    assert done.code == 0, done.out


def test_the_examples_work(tmp_path: Path) -> None:
    done = on_terminal("shell", *WEATHER, typed=[("weather> ", "exit\n")], cwd=ROOT / "examples")
    assert done.code == 0
    assert "echo 'call forecast city=Oslo' | mcplumb shell -- python weather.py" in here("shell", "--help").out


# --- Signals ---


def test_a_signal_that_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """See tests/attacks/test_terminals.py for what it does to a terminal."""
    for end, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)):

        def use(self: ShellSession, lines: object, end: signal.Signals = end) -> int:
            signal.raise_signal(end)
            return 0

        monkeypatch.setattr(ShellSession, "use", use)
        assert piped(monkeypatch).code == code
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_signal_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        monkeypatch.setattr(ShellSession, "use", lambda *_: next(_hung_up()))
        assert piped(monkeypatch).code == 7
    finally:
        signal.signal(signal.SIGHUP, before)


def _hung_up() -> Iterator[int]:
    signal.raise_signal(signal.SIGHUP)
    yield 7
