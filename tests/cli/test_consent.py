"""What a person is shown, and asked for, before a server of a project is used."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from mcplumb.cli import consent, input_prompts
from mcplumb.cli.consent import prepare_entry
from mcplumb.config import NotTrusted, discover_config
from mcplumb.errors import UsageError
from tests.cli.kit import PYTHON, Done, mcplumb, on_terminal

WEATHER = '''
import os, sys
from mcplumb import Server

server = Server("weather")

@server.tool
def variables() -> str:
    """What it was given."""
    return f"A={os.environ.get('A')} B={os.environ.get('B')} in {os.getcwd()}"

server.run()
'''
ALLOW = "Allow this, now and in the future? [y/N]: "


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".vscode").mkdir(parents=True)
    (folder / "weather.py").write_text(WEATHER)
    monkeypatch.chdir(folder)
    return folder


def configure(project: Path, inputs: list[Any] | None = None, **raw: Any) -> None:
    entry = {"command": PYTHON, "args": ["weather.py"], **raw}
    document = {"servers": {"it": entry}, "inputs": inputs or []}
    (project / ".vscode" / "mcp.json").write_bytes(msgspec.json.encode(document))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a person in front of this process says, one after the other."""
    given: list[Any] = []
    monkeypatch.setattr(consent, "is_terminal", lambda: True)
    monkeypatch.setattr(click, "confirm", lambda *_, **__: given.pop(0))
    monkeypatch.setattr(click, "prompt", lambda *_, **__: given.pop(0))
    monkeypatch.setattr(input_prompts, "discard_typed_input", lambda: None)
    return given


def at_terminal(*words: str, typed: list[tuple[str, str]]) -> Done:
    done = on_terminal(*words, typed=typed, columns=300)
    return Done(done.code, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done.out))


def test_a_command_is_shown_confirmed_and_remembered(project: Path, home: Path) -> None:
    configure(project, env={"A": "plain", "KEY": "hunter2", "B": "${GONE:-default}"}, inheritEnv=["V"])
    done = at_terminal("call", "variables", "-s", "it", typed=[(ALLOW, "y\n")])
    assert done.code == 0
    shown = done.out.partition(ALLOW)[0].splitlines()
    assert shown == [
        f"{project}/.vscode/mcp.json, a file of this project, names the server 'it' and wants to run:",
        "",
        f"  {PYTHON} weather.py",
        f"  in {project}",
        "  with V of your environment",
        "  with A: plain",
        "  with KEY: ***",
        "  with B: ${GONE:-default}",
        "",
    ]
    assert f"A=plain B=default in {project}" in done.out
    file = home / ".local" / "state" / "mcplumb" / "trusted.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    # From now on it is used without a word, at a terminal or not.
    assert ALLOW not in at_terminal("call", "variables", "-s", "it", typed=[]).out
    assert mcplumb("call", "variables", "-s", "it").code == 0
    # Until it is another one.
    configure(project, env={"A": "other"})
    assert mcplumb("call", "variables", "-s", "it").code == 2


@pytest.mark.parametrize("answer", ["n\n", "\n"])
def test_what_is_not_allowed_does_not_run(project: Path, home: Path, answer: str) -> None:
    configure(project)
    done = at_terminal("tools", "-s", "it", typed=[(ALLOW, answer)])
    assert done.code == 2
    assert "Error: The server 'it' was not used, because you did not allow it." in done.out
    assert not (home / ".local").exists()


def test_an_address_is_shown_and_confirmed(project: Path) -> None:
    document = {"servers": {"it": {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer ${PATH}"}}}}
    (project / ".vscode" / "mcp.json").write_bytes(msgspec.json.encode(document))
    done = at_terminal("tools", "-s", "it", typed=[(ALLOW, "n\n")])
    assert "names the server 'it' and wants to reach:\n\n  http://127.0.0.1:1/mcp\n" in done.out
    assert "  with Authorization: Bearer ${PATH}\n" in done.out


def test_everything_that_has_an_effect_is_shown(project: Path) -> None:
    (project / ".env").write_text("LD_PRELOAD=x")
    configure(project, args=["-c", "print(1)\nprint(2)"], cwd="sub\x1b[2K", envFile=".env", inheritEnv=True)
    done = on_terminal("tools", "-s", "it", typed=[(ALLOW, "n\n")], columns=300)
    assert f"  {PYTHON} -c 'print(1)\\nprint(2)'\n  in sub\\x1b[2K\n" in done.out
    assert "  with the variables in .env\n    LD_PRELOAD: x\n  with all variables of your environment\n" in done.out


def test_nothing_in_a_file_looks_like_a_line_of_ours(project: Path) -> None:
    # At a terminal of 80 columns, this would begin lines with what the project wants to be seen there.
    fake = "  in /usr/share/good".ljust(80) + "  with A: b".ljust(80) + "Allow this, now and in the future? [y/N]: y"
    configure(project, args=["-c", " " * (77 - len(PYTHON)) + fake + " " * 80 * 100 + "\nx"])
    done = on_terminal("tools", "-s", "it", typed=[(ALLOW, ""), (ALLOW, "n\n")], columns=80)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done.out).splitlines()
    assert all(len(line) < 80 for line in lines if "Error" not in line)
    (where,) = (line.removeprefix("  in ") for line in lines if line.startswith("  in "))
    assert str(project).startswith(where)  # a long path is folded
    assert not [line for line in lines if line.startswith("  with")]
    assert [line.startswith("Allow") for line in lines].count(True) == 1
    assert any(line.startswith("  That was long, 1") and line.endswith("read all of it.") for line in lines)


def test_letters_that_look_like_others_are_told(project: Path) -> None:
    configure(project, type="http", url="https://gіthub.com/mcp", headers={"A": "a\u200db"})  # noqa: RUF001 - that is it
    done = at_terminal("tools", "-s", "it", typed=[(ALLOW, "n\n")])
    assert "  (in ASCII: https://g\\u0456thub.com/mcp)\n" in done.out
    assert "  (in ASCII: with A: a\\u200db)\n" in done.out


def test_a_folder_with_a_strange_name_fakes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a\n  ls\n"
    (folder / ".vscode").mkdir(parents=True)
    monkeypatch.chdir(folder)
    configure(folder)
    done = at_terminal("tools", "-s", "it", typed=[(ALLOW, "n\n")])
    assert done.out.startswith(f"{tmp_path}/a\\n  ls\\n/.vscode/mcp.json, a file of this project")


def test_the_variables_of_a_file_are_shown_without_secrets(project: Path) -> None:
    (project / ".env").write_text("KEY=hunter2\nDB=postgres://me:hunter2@host/x\nPATH=./bin\n")
    configure(project, envFile=".env")
    done = at_terminal("tools", "-s", "it", typed=[(ALLOW, "n\n")])
    assert "  with the variables in .env\n    KEY: ***\n    DB: postgres://***@host/x\n    PATH: ./bin\n" in done.out


def test_what_changes_while_somebody_reads_is_not_agreed_to(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / ".env").write_text("A=1")
    configure(project, envFile=".env")
    entry = discover_config()["it"]

    def confirm(*_: Any, **__: Any) -> bool:
        (project / ".env").write_text("LD_PRELOAD=./evil.so")
        return True

    monkeypatch.setattr(consent, "is_terminal", lambda: True)
    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr(input_prompts, "discard_typed_input", lambda: None)
    with pytest.raises(NotTrusted):
        prepare_entry(entry).connect_arguments()
    (project / ".env").write_text("A=1")
    assert entry.connect_arguments()[1]["env"] == {"A": "1"}


def test_what_was_typed_before_the_question_is_no_answer(project: Path) -> None:
    configure(project)
    early = "import select, sys; sys.stderr.write('typing'); sys.stderr.flush(); select.select([0], [], [], 60)"
    (project / "sitecustomize.py").write_text(early)
    done = on_terminal("tools", "-s", "it", typed=[("typing", "y\n"), (ALLOW, "n\n")], env={"PYTHONPATH": str(project)})
    assert done.code == 2


def test_without_a_terminal_it_is_refused_with_what_to_do(project: Path) -> None:
    configure(project)
    done = mcplumb("tools", "-s", "it", stdin="y\n")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"Error: In {project}/.vscode/mcp.json, server 'it': a project's file wants to start a command, and you have "
        "not agreed to that. Use it once in a terminal, where you are asked: mcplumb probe -s it. Or allow it with "
        "--yes, or name the file: --config on the command line, load_config(path) in Python.\n"
    )


def test_yes_is_for_once(project: Path) -> None:
    configure(project)
    assert mcplumb("tools", "--yes", "-s", "it").code == 0
    assert mcplumb("tools", "-s", "it").code == 2


def test_inputs_are_asked_for(project: Path) -> None:
    inputs = [
        {"id": "a", "type": "promptString", "description": "Your \x1b[2Jkey", "password": True},
        {"id": "b", "type": "pickString", "options": ["x", "y"], "default": "y"},
        {"id": "c", "default": "\x1b]0;c\x07"},
        {"id": "d", "options": ["\x1b]0;d\x07"]},
    ]
    configure(project, inputs, env={"A": "${input:a}", "B": "${input:b}", "C": "${input:c}", "D": "${input:d}"})
    typed = [("Your \\x1b[2Jkey: ", "hunter2\n"), ("b (x, y) [y]: ", "z\n"), ("b (x, y) [y]: ", "\n")]
    typed += [("c [\\x1b]0;c\\x07]: ", "\n"), ("d (\\x1b]0;d\\x07): ", "z\n"), ("d (", "\x1b]0;d\x07\n")]
    done = at_terminal("call", "variables", "-s", "it", typed=[(ALLOW, "y\n"), *typed])
    assert done.code == 0
    assert "A=hunter2 B=y" in done.out
    assert done.out.count("hunter2") == 1  # the answer of the server, and no echo of what was typed


def test_inputs_without_a_terminal_are_variables(project: Path) -> None:
    configure(project, [{"id": "my-key"}], env={"A": "${input:my-key}"})
    done = mcplumb("call", "variables", "--yes", "-s", "it")
    assert done.code == 2
    assert "it needs the input 'my-key'. Use it in a terminal, where you are asked, or set MCPLUMB_INPUT" in done.err
    assert "A=1" in mcplumb("call", "variables", "--yes", "-s", "it", env={"MCPLUMB_INPUT_MY_KEY": "1"}).out


# --- The same in this process ---


def test_an_entry_is_settled(project: Path, answers: list[Any]) -> None:
    (project / ".env").write_text("")
    configure(project, [{"id": "a"}], env={"A": "${input:a}"}, envFile=".env", inheritEnv=["V"])
    entry = discover_config()["it"]
    answers += [False]
    with pytest.raises(UsageError, match="The server 'it' was not used, because you did not allow it"):
        prepare_entry(entry)
    answers += [True, "1"]
    _, options = prepare_entry(entry).connect_arguments()
    assert options == {"env": {"A": "1"}, "cwd": str(project), "inherit_env": ("V",)}
    answers += ["2"]
    assert prepare_entry(entry).resolve().env == {"A": "2"}
    assert answers == []


def test_addresses_and_whole_environments_are_settled(project: Path, answers: list[Any]) -> None:
    for inherited in (True, False):
        configure(project, inheritEnv=inherited)
        answers += [True]
        assert prepare_entry(discover_config()["it"]).is_allowed()
    configure(project, type="http", url="http://x", headers={"A": "b"})
    answers += [True]
    assert prepare_entry(discover_config()["it"]).connect_arguments() == ("http://x", {"headers": {"A": "b"}})


def test_what_is_long_is_to_be_read(project: Path, answers: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".env").write_text("".join(f"A{number}=ü\n" for number in range(20)))
    configure(project, envFile=".env")
    answers += [True]
    prepare_entry(discover_config()["it"])
    assert "  That was long, 43 lines: scroll up and read all of it.\n" in capsys.readouterr().err


def test_what_is_asked_is_cleaned(project: Path, answers: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def prompt(text: str, **_: Any) -> str:
        asked.append(text)
        return "x"

    monkeypatch.setattr(click, "prompt", prompt)
    inputs: list[dict[str, Any]] = [
        {"id": "a", "options": ["\x1b"] * 40},
        {"id": "b", "default": "\x1b"},
        {"id": "c", "default": "secret", "password": True},
    ]
    configure(project, inputs, args=["${input:a}${input:b}${input:c}"])
    answers += [True]
    prepare_entry(discover_config()["it"])
    assert asked == ["a (" + "\\x1b, " * 30 + "…)", "b [\\x1b]", "c"]


def test_nobody_is_asked_without_a_terminal(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consent, "is_terminal", lambda: False)
    configure(project, [{"id": "a", "options": ["x"]}], env={"A": "${input:a}"})
    entry = discover_config()["it"]
    assert prepare_entry(entry) == entry
    with pytest.raises(NotTrusted):
        prepare_entry(entry).connect_arguments()
    assert prepare_entry(entry, yes=True) == entry.with_consent()


def test_the_users_own_are_not_asked_about(home: Path) -> None:
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").write_text('{"mcpServers": {"mine": {"command": "x"}}}')
    entry = discover_config()["mine"]
    assert prepare_entry(entry) == entry
