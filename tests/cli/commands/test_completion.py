"""``mcplumb completion``: the scripts, and what they ask.

They are run in bash, which is everywhere. ``tools/check_completion.py`` types into zsh and fish as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from mcplumb.cli.main import COMMANDS
from tests.cli.kit import PYTHON, here, mcplumb
from tests.kit.loop import PATIENCE

TRY = """
eval "$(mcplumb completion bash)"
complete -p mcplumb
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); COMPREPLY=(); _mcplumb_completion mcplumb; echo "${COMPREPLY[@]}"; }
try mcplumb to
try mcplumb tools --sch
try mcplumb -v completion z
try mcplumb tools -s ot
try mcplumb nothing xyz
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(*words: str) -> list[str]:
    """What bash is told: each possible word with its kind."""
    os.environ["COMP_WORDS"] = "\n".join(["mcplumb", *words])
    os.environ["COMP_CWORD"] = str(len(words))
    done = here()
    assert (done.code, done.err) == (0, "")
    return done.out.split()


@pytest.fixture
def _in_bash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MCPLUMB_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "")
    monkeypatch.setenv("COMP_CWORD", "")


def test_the_script_completes_in_bash(home: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    assert mcplumb("add", "other", "--", "true").code == 0
    program = home / "bin" / "mcplumb"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {PYTHON} -m mcplumb "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [bash, "--norc", "-c", TRY],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
        timeout=PATIENCE,
        check=True,
    )
    assert done.stderr == ""
    first, *found = done.stdout.splitlines()
    assert "-F _mcplumb_completion mcplumb" in first
    assert found == ["tools", "--schema", "zsh", "other", ""]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(shell: str) -> None:
    done = here("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert f"_MCPLUMB_COMPLETE={shell}_complete" in done.out
    assert "%" not in done.out.replace("'%s\\n'", "")  # nothing was left to fill in


def test_fish_splits_kind_and_word_at_the_first_comma_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "(string split --max 1 , -- $line)" in here("completion", "fish").out
    monkeypatch.setenv("_MCPLUMB_COMPLETE", "fish_complete")
    monkeypatch.setenv("COMP_WORDS", "mcplumb de")
    monkeypatch.setenv("COMP_CWORD", "de")
    assert here().out == "plain,demo\tTake a tour, with the built-in demo server.\n"


def test_another_shell_is_refused() -> None:
    done = here("completion", "tcsh")
    assert done.code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.err


@pytest.mark.usefixtures("_in_bash")
def test_commands_are_known_without_being_loaded() -> None:
    assert asked("") == [f"plain,{name}" for name in COMMANDS]
    program = (
        "import sys; from mcplumb.cli.commands.completion import commands; "
        "print(commands('to')[0].help); print(*sys.modules)"
    )
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=True)
    said, loaded = done.stdout.splitlines()
    assert said == "List the tools of a server."
    assert not {"rich", "asyncio", "mcplumb.client", "mcplumb.cli.commands.list_features"} & set(loaded.split())


@pytest.mark.usefixtures("_in_bash")
def test_options_and_their_values() -> None:
    assert "plain,--schema" in asked("tools", "--")
    assert "plain,--trace" in asked("--tr")
    assert asked("tools", "--revision", "2026") == ["plain,2026-07-28"]
    assert asked("--log-file", "a") == ["file,a"]
    assert asked("tools", "--cwd", "a") == ["dir,a"]
    assert asked("serve", "wea") == ["file,wea"]
    assert asked("call", "forecast", "--", "python", "wea") == ["file,wea"]
    assert asked("nothing", "xyz") == []


@pytest.mark.usefixtures("_in_bash")
def test_behind_the_dashes_there_are_programs_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = home / "bin"
    programs.mkdir()
    for name, mode in (("teapot", 0o755), ("tea.txt", 0o644), ("tea;cup", 0o755), ("cup", 0o755)):
        (programs / name).touch(mode)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{home / 'nothing'}")
    # In bash, a file drops the words before it: so it comes first.
    assert asked("tools", "--", "tea") == ["file,tea", "plain,teapot"]
    assert asked("tools", "--", "./tea") == ["file,./tea"]
    assert asked("tools", "--", "") == ["file,"]
    assert asked("tools", "--", "teapot", "cu") == ["file,cu"]


@pytest.mark.usefixtures("_in_bash")
def test_servers_are_known_by_name(home: Path) -> None:
    assert asked("tools", "-s", "") == []
    file = home / "servers.json"
    evil = ["a\x1b[2J", "a$(touch${IFS}it)", "a;b", "a b", "a`b`", "a*", "a'b", 'a"b', "a|b", "-a", "~a", "=a", "a\nb"]
    names = {name: {"command": "a"} for name in ["one", "other", "a.b-c_d/e:f@g+1", *evil]}
    file.write_text(json.dumps({"mcpServers": names}))
    assert asked("--config", str(file), "tools", "-s", "") == ["plain,one", "plain,other", "plain,a.b-c_d/e:f@g+1"]
    assert asked("--config", str(file), "tools", "-s", "o") == ["plain,one", "plain,other"]
    assert asked("--config", str(file), "tools", "--server", "-") == []
    assert asked("--config", str(home / "no.json"), "tools", "-s", "") == []
    assert asked("tools", "--config", "servers.json", "-s", "one") == ["plain,one"]
    assert asked("remove", "o") == []


@pytest.mark.parametrize("question", ["tcsh_complete", "bash_nothing", "bash"])
def test_what_is_no_question_gets_no_answer(question: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MCPLUMB_COMPLETE", question)
    assert here() == (1, "", "")


def test_zsh_and_fish_are_told_what_commands_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_MCPLUMB_COMPLETE", "fish_complete")
    monkeypatch.setenv("COMP_WORDS", "mcplumb to")
    monkeypatch.setenv("COMP_CWORD", "to")
    assert "List the tools of a server." in here().out
    monkeypatch.setenv("_MCPLUMB_COMPLETE", "zsh_complete")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert here().out == "plain\ntools\nList the tools of a server.\n"
