"""``mcplumb call``, as its users run it."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.kit import PYTHON, SERVERS, WEATHER, here, mcplumb, on_terminal, serving
from tests.cli.servers.kitchen import EVIL, PNG
from tests.kit.loop import PATIENCE

KITCHEN = ["--", PYTHON, str(SERVERS / "kitchen.py")]
LEGACY_KITCHEN = ["--revision", "2025-11-25", *KITCHEN]


@pytest.mark.parametrize("server", [KITCHEN, LEGACY_KITCHEN], ids=["modern", "legacy"])
def test_arguments_are_typed_by_the_schema(server: list[str]) -> None:
    words = ["text=3", "count=3", "part=0.5", "hot=yes", "unit=f", "tags=a", "tags=b", "place.city=Oslo"]
    done = here("call", "types", *words, 'places:={"home": {"city": "Rome"}}', *server)
    assert (done.code, done.err) == (0, "")
    assert done.json == {
        "text": "3",
        "count": 3,
        "part": 0.5,
        "hot": True,
        "unit": "f",
        "tags": ["a", "b"],
        "place": "Oslo",
        "places": ["home"],
    }


def test_a_pipe_gets_the_text_and_nothing_else() -> None:
    done = mcplumb("call", "forecast", "--args", "-", *WEATHER, stdin='{"city": "Oslo", "days": 2}')
    assert done == (0, '["snow","sun"]\n', "")


def test_the_whole_result_is_one_document() -> None:
    result = here("call", "forecast", "city=Rome", "days=1", "--json", *WEATHER).json
    assert result["structuredContent"] == ["sun"]
    assert result["content"] == [{"type": "text", "text": '["sun"]'}]


# --- Mistakes ---


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["types", "txt=a"],
            "Error: There is no argument 'txt', did you mean \"text\"?\nThe argument 'text' is missing.\n\ntypes(",
        ),
        (["types"], "Error: The argument 'text' is missing.\n\ntypes(text, count=1, "),
        (["types", "text=a", "count=x"], "Error: count must be an integer, not 'x'.\n\n"),
        (["types", "text=a", "unit=k"], "Error: unit must be one of c, f, not 'k'.\n\n"),
        (["type"], "Error: The server has no tool 'type'. Did you mean types?\n"),
        (["types", "text"], "Error: 'text' is not an argument: write key=value, key:=JSON or key@FILE.\n"),
        (["types", "-o", "gone/"], "Error: --output gone/: there is no folder 'gone'.\n"),
        (["types", "--answer", "x"], "Error: 'x' is not an argument: write "),
        (["types", "--args", "["], "Error: The value of --args is not valid JSON: "),
    ],
)
def test_mistakes_are_explained_before_anything_is_sent(words: list[str], said: str) -> None:
    done = here("call", *words, *KITCHEN)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(said)


def test_a_root_has_to_be_a_folder() -> None:
    done = here("call", "folders", "--root", "gone", *KITCHEN)
    assert done.code == 2
    assert "Directory 'gone' does not exist" in done.err


def test_the_description_of_an_argument_is_shown() -> None:
    assert (
        "\n  text        string, required. Any text.\n  count       integer, default 1. How many.\n"
        in here("call", "types", *KITCHEN).err
    )


def test_unchecked_the_server_has_its_say() -> None:
    done = here("call", "types", "txt=a", "--no-check", *KITCHEN)
    assert (done.code, done.out) == (1, "")
    assert "txt" in done.err


# --- Failures ---


def test_a_tool_that_fails_says_so_on_stderr() -> None:
    done = here("call", "burn", *KITCHEN)
    assert (done.code, done.out) == (1, "")
    assert done.err == "Error: It is burnt.\\x1b]0;owned\\x07\\x1b[2J[red]x[/red]\n"


def test_a_tool_that_fails_is_a_result_for_programs() -> None:
    done = here("call", "burn", "--json", *KITCHEN)
    assert (done.code, done.err) == (1, "")
    assert done.json["isError"] is True


def test_time_is_limited(tmp_path: Path) -> None:
    done = here("call", "wait", f"file={tmp_path / 'note'}", "--timeout", "6", "-q", *KITCHEN)
    assert done.code == 5
    assert done.err.startswith("Error: tools/call 'wait' was not answered in time (6 s), and has been cancelled.")
    assert (tmp_path / "note").read_text(encoding="utf-8") == "cancelled"


# --- Ctrl-C ---


@pytest.mark.parametrize("server", [KITCHEN, LEGACY_KITCHEN], ids=["modern", "legacy"])
def test_an_interrupt_cancels_on_the_wire(server: list[str], tmp_path: Path) -> None:
    words = ["call", "wait", f"file={tmp_path / 'note'}", "--trace", *server]
    process = subprocess.Popen(
        [PYTHON, "-m", "mcplumb", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "waiting" in line:
                break
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (130, "")
    sent = [line for line in err.splitlines() if "-->" in line]
    assert any("notifications/cancelled" in line for line in sent), err
    assert "Traceback" not in err
    assert (tmp_path / "note").read_text(encoding="utf-8") == "cancelled"


def test_ctrl_c_at_a_terminal(tmp_path: Path) -> None:
    words = ["call", "wait", f"file={tmp_path / 'note'}", *KITCHEN]
    done = on_terminal(*words, typed=[("waiting", "\x03")])
    assert done.code == 130, done.out
    assert "Traceback" not in done.out
    assert (tmp_path / "note").read_text(encoding="utf-8") == "cancelled"


class Interrupted(io.BytesIO):
    def read(self, *_: Any) -> bytes:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()  # which would take the interrupt for itself
        raise KeyboardInterrupt


@pytest.mark.parametrize("words", [["call", "types", "text@-"], ["prompt", "plan", "--args", "-"]])
def test_ctrl_c_while_an_argument_is_typed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Interrupted()))
    assert here(*words, *KITCHEN).code == 130


def test_an_argument_can_be_typed() -> None:
    done = on_terminal("call", "types", "text@-", *KITCHEN, typed=[("with Ctrl-D:", "soup\n\x04")])
    assert '"text": "soup\\n"' in done.out


# --- Progress ---


def test_progress_is_a_bar_at_a_terminal() -> None:
    done = on_terminal("call", "cook", "steps=3", *KITCHEN)
    assert done.code == 0
    assert "step 3" in done.out
    assert " 3/3 " in done.out
    assert done.out.endswith("\x1b[2Ksoup\n")
    assert "\x1b]" not in done.out


def test_progress_is_lines_elsewhere_for_those_who_want_them() -> None:
    quiet = here("call", "cook", "steps=2", *KITCHEN)
    assert (quiet.out, quiet.err) == ("soup\n", "")
    loud = here("call", "cook", "steps=2", "-v", *KITCHEN)
    shown = "\\x1b]0;owned\\x07\\x1b[2J[red]x[/red]"
    assert loud.out == "soup\n"
    assert f"cook: 1/2, {shown} step 1\ncook: 2/2, {shown} step 2\n" in loud.err
    assert 'info: {"dish":"soup"}\n' in loud.err
    assert "smells good" not in loud.err
    assert "debug: smells good\n" in here("call", "cook", "steps=1", "-vv", *KITCHEN).err


# --- Questions ---


@pytest.mark.parametrize("server", [KITCHEN, LEGACY_KITCHEN], ids=["modern", "legacy"])
def test_questions_are_answered_beforehand(server: list[str]) -> None:
    done = here("call", "order", "--answer", "name=Ada", "--answer", "size=large", "--answer", "hot=no", *server)
    data = {"name": "Ada", "size": "large", "hot": False, "pieces": 2}
    assert (done.code, done.err) == (0, "")
    assert done.json == {"action": "accept", "data": data}


@pytest.mark.parametrize("server", [KITCHEN, LEGACY_KITCHEN], ids=["modern", "legacy"])
def test_a_question_that_is_not_answered_is_wrong_usage(server: list[str]) -> None:
    done = here("call", "order", "--answer", "name=Ada", *server)
    assert (done.code, done.json) == (2, {"action": "cancel", "data": None})
    assert "asks: How do you take it?\n--answer has no size.\n\nform(name, size, " in done.err


def test_who_cannot_be_asked_says_so() -> None:
    assert here("call", "abilities", *KITCHEN).out == "elicitation: none, sampling: False, roots: False\n"
    words = ["call", "abilities", "--answer", "a=b", "--root", str(SERVERS), *KITCHEN]
    assert here(*words).out == "elicitation: form, sampling: False, roots: True\n"
    done = here("call", "order", *KITCHEN)
    assert done.code == 4
    assert done.err.startswith("The server wants to ask you: run this at a terminal, or give --answer KEY=VALUE")


def test_roots_are_the_folders_that_were_given(tmp_path: Path) -> None:
    done = here("call", "folders", "--root", str(tmp_path), "--root", str(SERVERS), *KITCHEN)
    assert done.json == [tmp_path.as_uri(), SERVERS.as_uri()]


# --- Content ---


def test_several_things_at_once(tmp_path: Path) -> None:
    done = here("call", "album", *KITCHEN, cwd=tmp_path)
    assert (done.code, done.out) == (0, "see:\nkitchen://menu  The menu (text/plain)\n")
    assert done.err.count("Saved ") == 4
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["album-1.png", "album-1.wav", "album-2.png", "bill.pdf"]


def test_a_picture_can_go_into_a_pipe() -> None:
    command = [PYTHON, "-m", "mcplumb", "call", "picture", "-o", "-", *KITCHEN]
    assert subprocess.run(command, capture_output=True, timeout=PATIENCE, check=True).stdout == PNG


def test_text_drives_no_terminal() -> None:
    assert mcplumb("call", "evil", *KITCHEN).out == f"{EVIL}\n"
    done = on_terminal("call", "evil", *KITCHEN)
    assert done.out == "\\x1b]0;owned\\x07\\x1b[2J[red]x[/red]\n"


# --- Places ---


def test_a_server_at_an_address_is_called_in_the_same_way() -> None:
    with serving("--http", ":0", file=SERVERS / "kitchen.py") as (address,):
        done = here("call", "types", "text=a", "-s", address)
        assert (done.code, done.err) == (0, "")
        assert done.json["text"] == "a"
        done = here("call", "order", "--answer", "name=Ada", "--answer", "size=small", "-s", address)
        assert (done.code, done.err) == (0, "")
        assert done.json["action"] == "accept"
