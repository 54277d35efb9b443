"""How a server is started: which program, with which arguments, in which surroundings; and what is said if it fails."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from mcplumb import ConnectError, ConnectTimeout, McplumbError, ServerExited, UsageError, connect
from mcplumb.protocol.era import EraWaits
from mcplumb.revisions import LATEST, LATEST_LEGACY
from tests.kit.loop import run
from tests.launch.harness import ERAS, HASTY_WAITS, MODERN, ROOT, Stage, say

#: What a shell would make something else of.
TRICKY = [
    "",
    " ",
    "$HOME",
    "$(touch owned)",
    "`id`",
    "; exit 1",
    "&& echo",
    "| cat",
    "> owned",
    "*",
    "a'b\"c\\d",
    "~",
    "#",
]


async def look(command: list[str] | str, **options: Any) -> dict[str, Any]:
    """What the server sees around itself."""
    async with connect(command, **options) as client:
        around: dict[str, Any] = json.loads(await say(client, "look"))
        assert client.process is not None
        assert client.process.pid == around["pid"]
        return around


def program(folder: Path, stage: Stage, name: str = "my-server") -> Path:
    """A program of its own, which can be found on a PATH."""
    path = folder / name
    folder.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\nexec {shlex.join(stage.command('good'))}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


# The command


@pytest.mark.req("LIF-1")
def test_arguments_arrive_as_they_are(stage: Stage) -> None:
    around = run(look([*stage.command("good"), *TRICKY]))
    assert around["argv"][3:] == TRICKY


@pytest.mark.req("LIF-1")
def test_a_string_is_split_as_a_shell_would_and_not_given_to_one(stage: Stage) -> None:
    around = run(look(shlex.join([*stage.command("good"), *TRICKY])))
    assert around["argv"][3:] == TRICKY
    around = run(look(shlex.join(stage.command("good")) + " one 'two  words' ; exit 1 && $HOME * > owned"))
    assert around["argv"][3:] == ["one", "two  words", ";", "exit", "1", "&&", "$HOME", "*", ">", "owned"]


@pytest.mark.req("LIF-1")
def test_paths_may_be_given_as_such(stage: Stage, tmp_path: Path) -> None:
    path = program(tmp_path / "bin", stage)
    assert run(look([path]))["argv"][1] == "good"  # type: ignore[list-item]


@pytest.mark.parametrize("bad", [[], "", "  ", "unclosed 'quote", [3], 3, None, ["a\0b"]])
def test_what_is_no_command_is_refused_at_once(bad: Any) -> None:
    with pytest.raises(UsageError):
        connect(bad)


@pytest.mark.req("LIF-1", "LIF-3")
def test_the_server_has_a_session_and_a_group_of_its_own(stage: Stage) -> None:
    around = run(look(stage.command("good")))
    assert around["session"] == around["group"] == around["pid"]
    assert around["session"] != os.getsid(0)


@pytest.mark.req("LIF-1")
def test_the_server_gets_no_descriptor_but_its_three(stage: Stage) -> None:
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    try:
        around = run(look(stage.command("good")))
    finally:
        os.close(ours)
        os.close(theirs)
    # Beside them its log, and the folder in which it looks.
    assert around["descriptors"] == [0, 1, 2, 3, 4]


# Its surroundings


@pytest.mark.req("LIF-12")
def test_the_server_gets_safe_variables_and_what_the_caller_adds(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("LD_PRELOAD_OF_SORTS", "x")
    environ = run(look(stage.command("good"), env={"GIVEN": "yes", "EMPTY": ""}))["environ"]
    assert environ["GIVEN"] == "yes"
    assert environ["EMPTY"] == ""
    assert environ["PATH"] == os.environ["PATH"]
    assert environ["HOME"] == os.environ["HOME"]
    assert not {"SOME_API_KEY", "PYTHONPATH", "LD_PRELOAD_OF_SORTS"} & set(environ)


@pytest.mark.req("LIF-12")
def test_more_of_the_environment_if_it_is_asked_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("ANOTHER_ONE", "too")
    environ = run(look(stage.command("good"), inherit_env=["SOME_API_KEY", "NOT_THERE"]))["environ"]
    assert environ["SOME_API_KEY"] == "secret"
    assert not {"ANOTHER_ONE", "NOT_THERE"} & set(environ)
    environ = run(look(stage.command("good"), inherit_env=True, env={"ANOTHER_ONE": "changed"}))["environ"]
    assert (environ["SOME_API_KEY"], environ["ANOTHER_ONE"]) == ("secret", "changed")


def test_the_working_directory(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    assert run(look(stage.command("good"), cwd=folder))["cwd"] == str(folder)
    assert run(look(stage.command("good"), cwd=str(folder)))["cwd"] == str(folder)
    assert run(look(stage.command("good")))["cwd"] == str(Path.cwd())


@pytest.mark.req("LIF-1")
def test_the_path_that_is_searched_is_that_of_the_server(stage: Stage, tmp_path: Path) -> None:
    folder = program(tmp_path / "bin", stage).parent
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    assert run(look(["my-server"], env={"PATH": path}))["environ"]["PATH"] == path


@pytest.mark.req("LIF-1")
def test_a_path_with_a_slash_is_not_searched_for(stage: Stage, tmp_path: Path) -> None:
    folder = program(tmp_path / "bin", stage).parent
    assert run(look(["./my-server"], cwd=folder))["cwd"] == str(folder)
    assert run(look(["bin/my-server"], cwd=folder.parent))["cwd"] == str(folder.parent)


# What is said if it fails


async def failure(command: Any, **options: Any) -> McplumbError:
    with pytest.raises(McplumbError) as caught:
        async with connect(command, **options):
            pass
    return caught.value


@pytest.mark.req("LIF-9")
def test_a_missing_program_is_named_with_the_path_that_was_searched(stage: Stage, tmp_path: Path) -> None:
    error = run(failure(["no-such-server", "--flag"], env={"PATH": f"/one/folder:{tmp_path}"}))
    assert isinstance(error, ConnectError)
    assert "no-such-server" in str(error)
    assert "/one/folder" in str(error)
    assert str(tmp_path) in str(error)


@pytest.mark.req("LIF-9")
def test_a_program_that_cannot_be_run_is_named_with_the_reason(stage: Stage, tmp_path: Path) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text("no program", encoding="utf-8")
    for target, word in ((str(plain), "execut"), (str(tmp_path), "director"), (str(tmp_path / "none"), "none")):
        error = run(failure([target]))
        assert isinstance(error, ConnectError)
        assert target in str(error)
        assert word in str(error)


@pytest.mark.req("LIF-9")
def test_a_program_that_the_system_refuses_to_run_is_named(stage: Stage, tmp_path: Path) -> None:
    for name, text in (("empty-interpreter", "#!/no/such/interpreter\n"), ("no-format", "\x7fELF and nothing else")):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        error = run(failure([str(path)]))
        assert isinstance(error, ConnectError)
        assert str(path) in str(error)


@pytest.mark.req("LIF-9")
def test_a_command_that_is_too_long_is_named(stage: Stage) -> None:
    error = run(failure([*stage.command("good"), "x" * (3 << 20)]))
    assert isinstance(error, ConnectError)
    assert sys.executable in str(error)
    assert len(str(error)) < 10_000
    assert stage.log.pids == []


@pytest.mark.req("LIF-9")
def test_a_missing_working_directory_is_named(stage: Stage, tmp_path: Path) -> None:
    error = run(failure(stage.command("good"), cwd=tmp_path / "none"))
    assert isinstance(error, ConnectError)
    assert str(tmp_path / "none") in str(error)
    assert stage.log.pids == []


@pytest.mark.req("LIF-9", "LIF-5")
def test_a_crash_while_starting_brings_the_end_of_stderr(stage: Stage) -> None:
    error = run(failure(stage.command("crashing", on="start", raises="there is no configuration")))
    assert isinstance(error, ServerExited)
    assert error.exit_code == 1
    assert error.signal is None
    assert error.phase == "spawn"
    assert "RuntimeError: there is no configuration" in error.stderr_tail
    for part in ("crashing", "exited with code 1 while starting", "RuntimeError: there is no configuration"):
        assert part in str(error)


@pytest.mark.req("LIF-9")
@pytest.mark.parametrize("pinned", ERAS)
def test_a_signal_while_starting_is_named(stage: Stage, pinned: str) -> None:
    command = stage.command("crashing", on="*", signal="SIGABRT", says="out of cheese\n")
    error = run(failure(command, revisions=[pinned]))
    assert isinstance(error, ServerExited)
    assert (error.exit_code, error.signal) == (None, "SIGABRT")
    assert error.phase == ("probe" if pinned == MODERN else "handshake")
    assert "SIGABRT" in str(error)
    assert "out of cheese" in str(error)


@pytest.mark.req("LIF-9")
def test_one_that_exits_at_once_without_a_word(stage: Stage) -> None:
    error = run(failure([sys.executable, "-S", "-c", "pass"]))
    assert isinstance(error, ServerExited)
    assert error.exit_code == 0
    assert error.stderr_tail == ""


@pytest.mark.req("LIF-9", "LIF-4")
def test_one_that_never_answers_is_given_up_and_its_stderr_shown(stage: Stage) -> None:
    words = "import sys; print('waiting for a licence', file=sys.stderr, flush=True); sys.stdin.read()"
    command = [sys.executable, "-S", "-c", words]
    error = run(failure(command, waits=EraWaits(quiet=0.05, patience=2.0)))
    assert isinstance(error, ConnectError)
    assert "waiting for a licence" in str(error)
    assert "sys.stdin.read" in str(error)


# What the client shows of it


async def test_the_process_is_shown(stage: Stage) -> None:
    command = stage.command("good")
    async with connect(command) as client:
        process = client.process
        assert process is not None
        assert process.pid == stage.log.pids[0]
        assert "good" in process.command
        assert process.uptime is not None
        assert process.uptime > 0
        assert (process.restarts, process.exits) == (0, ())
        assert str(process.pid) in repr(process)
    assert process.pid is None
    assert process.uptime is None
    assert process.exits == ()


@pytest.mark.req("FRM-4")
async def test_a_banner_on_stdout_is_passed_over(stage: Stage) -> None:
    banner = "Welcome to the server!\n\n  {not: json}\n[1, 2]\n"
    async with connect(stage.command("garbling", first=banner), waits=HASTY_WAITS) as client:
        assert await say(client, "echo", text="hello") == "hello"
        assert client.stats.bad_lines >= 2


async def test_a_program_that_is_no_server_is_known_by_what_it_says() -> None:
    command = ["sh", "-c", "echo Hello; echo World; cat > /dev/null"]
    said = "The server wrote 2 lines that are not messages, the first of them: 'Hello'. The line is not JSON"
    with pytest.raises(ConnectTimeout, match=said):
        async with connect(command, waits=EraWaits(quiet=0.1, patience=0.5)):
            pass


async def test_an_error_is_not_its_own_cause() -> None:
    with pytest.raises(ServerExited) as caught:
        async with connect(["true"]):
            pass
    assert caught.value.__cause__ is None


async def test_one_that_crashes_before_it_reads_is_not_started_again(tmp_path: Path) -> None:
    with pytest.raises(ServerExited) as caught:
        async with connect(["sh", "-c", f"echo x >> {tmp_path}/starts; exit 3"]):
            pass
    assert (caught.value.phase, caught.value.exit_code) == ("spawn", 3)
    assert (tmp_path / "starts").read_text() == "x\n"


@pytest.mark.req("ERA-7")
async def test_a_revision_that_was_pinned_is_not_what_the_server_is() -> None:
    command = [sys.executable, str(ROOT / "examples" / "weather.py")]
    async with connect(command, revisions=[str(LATEST_LEGACY)]) as client:
        assert client.revision == LATEST_LEGACY
    async with connect(command) as client:
        assert client.revision == LATEST
