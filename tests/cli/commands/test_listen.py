"""``mcplumb listen``, as its users run it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from mcplumb import Server
from mcplumb.cli.commands.listen import listen
from mcplumb.cli.server_target import Target
from tests.cli.kit import LEGACY, PYTHON, SERVERS, WEATHER, here, on_terminal
from tests.kit.loop import PATIENCE
from tests.repo.source import ROOT

CHANGING = ["--", PYTHON, str(SERVERS / "changing.py")]
LEGACY_CHANGING = ["--revision", "2025-06-18", *CHANGING]
PARTIAL = ["--", PYTHON, str(SERVERS / "partial.py")]
MISSED = "Changes may have been missed."

both = pytest.mark.parametrize("server", [CHANGING, LEGACY_CHANGING], ids=["modern", "legacy"])


@both
def test_each_change_is_a_line(server: list[str]) -> None:
    done = here("listen", "--tools", "--count", "3", *server)
    assert (done.code, done.out) == (0, "The list of tools changed.\n" * 3)
    assert done.err == "Listening for changes of tools. Ctrl-C ends it.\n"


@both
def test_each_change_is_a_document(server: list[str]) -> None:
    done = here("listen", "changing://now", "--json", "-n", "2", *server)
    assert done.code == 0
    assert [json.loads(line) for line in done.out.splitlines()] == [{"topic": "updates", "uri": "changing://now"}] * 2
    tools = here("listen", "--tools", "--json", "-n", "1", *server)
    assert json.loads(tools.out) == {"topic": "tools"}


def test_a_resource_is_named() -> None:
    done = here("listen", "changing://now", "-n", "1", *CHANGING)
    assert done.out == "The resource changing://now changed.\n"


def test_without_a_wish_it_is_all_lists() -> None:
    done = here("listen", "-n", "1", *CHANGING)
    assert done.err.startswith("Listening for changes of tools, prompts, resources.")


def test_what_was_missed_is_shown(tmp_path: Path) -> None:
    # The first process announces less than that before it ends.
    done = here("listen", "--tools", "-n", "150", *CHANGING, str(tmp_path / "ended"))
    assert done.code == 0
    assert (tmp_path / "ended").exists()
    assert set(done.out.splitlines()) == {"The list of tools changed.", MISSED}


def test_a_reader_of_a_pipe_gets_each_line_at_once(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [PYTHON, "-m", "mcplumb", "listen", "--tools", "--json", *CHANGING, str(tmp_path / "ended")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line) == {"topic": "missed"}:
                break
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert "Traceback" not in err


@pytest.mark.parametrize("count", [None, 3])
def test_cancelled_it_is_done_unless_there_was_a_count(count: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    async def listens() -> None:
        listening = asyncio.Event()
        monkeypatch.setattr("mcplumb.cli.commands.listen.say", lambda *_, **__: listening.set())
        target = Target(Server("x"), {}, title="x")
        options = {"uris": (), "tools": True, "prompts": False, "resources": False, "as_json": False}
        assert listen.callback is not None
        task = asyncio.create_task(listen.callback(target, count=count, **options))
        await listening.wait()
        task.cancel()
        await task

    if count is None:
        asyncio.run(listens())
    else:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(listens())


def test_the_examples_of_the_help_work_as_they_are_printed(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "weather.py", tmp_path)
    path = f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}"
    lines = [line.strip() for line in here("listen", "--help").out.splitlines() if " mcplumb listen " in line]
    examples = [line.split() for line in lines if not line.startswith("Usage")]
    assert examples
    for words in examples:
        typed = [("Listening for changes of ", "\x03")]
        done = on_terminal(*words[1:], typed=typed, columns=100, cwd=tmp_path, env={"PATH": path})
        assert done.code == (130 if "--count" in words else 0), done.out


def test_ctrl_c_is_how_it_ends() -> None:
    done = on_terminal("listen", *WEATHER, typed=[("Ctrl-C ends it", "\x03")])
    assert done.code == 0, done.out


def test_ctrl_c_before_the_count_is_an_interruption() -> None:
    done = on_terminal("listen", "-n", "1", *WEATHER, typed=[("Ctrl-C ends it", "\x03")])
    assert done.code == 130, done.out


def test_a_server_that_announces_nothing() -> None:
    done = here("listen", *LEGACY)
    assert done == (2, "", "Error: The server announces no changes of its lists: give the URI of a resource.\n")


def test_what_the_server_does_not_tell_is_said() -> None:
    done = here("listen", "--prompts", "--tools", "-n", "1", *PARTIAL)
    assert done.err.splitlines()[:3] == [
        "Listening for changes of tools. Ctrl-C ends it.",
        "The server does not report changes of prompts.",
        "Error: The server ended the subscription.",
    ]
    assert (done.code, done.out) == (3, "")


def test_a_server_that_tells_nothing_is_not_waited_for() -> None:
    done = here("listen", "--prompts", "--tools", *PARTIAL, "nothing")
    said = "Error: The server does not report changes of tools, prompts: there is nothing to listen to.\n"
    assert done == (2, "", said)
    assert "changes of a:b" in here("listen", "a:b", *LEGACY).err
