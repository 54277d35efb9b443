"""Help: every command teaches with examples, and they work as they are printed."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest

from mcplumb.cli.command_group import cli
from mcplumb.cli.main import COMMANDS, OVERVIEW
from tests.cli.kit import here, mcplumb, serving
from tests.kit.products import sampled
from tests.repo.source import ROOT

# Their examples ask, or do not end by themselves: they are run where these commands are tested.
INTERACTIVE = {"shell", "bridge", "demo", "serve", "listen", "login", "logout", "view", "tap", "wrap", "unwrap"}
ADDRESS = "http://127.0.0.1:8000/mcp"


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def examples(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith("mcplumb ")]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_begins_with_what_the_command_does_and_has_an_example(name: str) -> None:
    done = here(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: mcplumb {name} ")
    assert [line for line in examples(done.out) if line.startswith(f"mcplumb {name}")], done.out
    assert here(name, "-h") == done


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    for param in command(name).params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.help, param.name
            assert param.help.rstrip("]").endswith((".", ")")) or "[" in param.help, param.help


#: Commands whose examples need recordings.
RECORDED = {"sessions", "show", "diff", "replay", "export"}


def record(folder: Path, env: dict[str, str]) -> None:
    """Record the sessions that the examples speak of."""
    for place in ([], *(["--record", f"{name}.mcp.jsonl"] for name in ("weather", "before", "after"))):
        tap = ["mcplumb", "tap", "--name", "weather", *place, "--", "python", "weather.py"]
        assert mcplumb("tools", "--inherit-env", "XDG_STATE_HOME", "--", *tap, cwd=folder, env=env).code == 0


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Path, str]]:
    """A folder with the server that the examples speak of, and the address of one that runs."""
    with TemporaryDirectory() as name, serving("--http", "127.0.0.1:0") as (address,):
        folder = Path(name)
        shutil.copy(ROOT / "examples" / "weather.py", folder)
        yield folder, address


@pytest.mark.parametrize("name", sampled([*sorted(set(COMMANDS) - INTERACTIVE), "overview"], ("overview", "call")))
def test_the_examples_work_as_they_are_printed(name: str, place: tuple[Path, str]) -> None:
    folder, address = place
    env = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    for line in examples(OVERVIEW if name == "overview" else here(name, "--help").out):
        words = shlex.split(line.replace(ADDRESS, address))[1:]
        if name in ("overview", "remove", "servers"):
            mcplumb("add", "weather", "--", "python", "weather.py", cwd=folder, env=env)
        if name in RECORDED and not (folder / "weather.mcp.jsonl").exists():
            record(folder, env)
        if name == "add":
            mcplumb("remove", words[1], cwd=folder, env=env)
        done = mcplumb(*words, cwd=folder, env=env)
        assert done.code == 0, (line, done)
        # That server has nothing to complete.
        assert done.out or name in ("add", "remove", "complete", "export"), line
