"""The group of commands: names only until one runs, near names, versions, and options in both places."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import click
import pytest

from mcplumb.cli.command_group import BaseCommand, cli, merge_global_options, versions
from mcplumb.cli.command_runner import GlobalOptions
from mcplumb.cli.main import COMMANDS, OVERVIEW
from mcplumb.revisions import REVISIONS
from mcplumb.version import __version__
from tests.cli.kit import LEGACY, PYTHON, here


def test_the_overview_has_every_command_with_its_own_words() -> None:
    context = click.Context(cli)
    assert cli.list_commands(context) == list(COMMANDS)
    at = 0
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None, name
        assert command.name == name
        line = f"  {name:<10}  {command.get_short_help_str(limit=100)}\n"
        assert line in OVERVIEW, line
        at = OVERVIEW.index(line, at)  # in the same order


def test_the_overview_has_every_option_with_its_own_words() -> None:
    shown = " ".join(OVERVIEW.partition("Options:\n")[2].split())
    context = click.Context(cli, help_option_names=["-h", "--help"])
    for param in cli.params:
        record = param.get_help_record(context)
        assert record is not None
        assert " ".join(record) in shown
    assert "-h, --help" in shown


def test_a_command_is_loaded_when_it_runs() -> None:
    program = "import sys; from mcplumb.cli import command_group; print(*sys.modules)"
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "mcplumb.cli.command_group" in loaded
    homes = {home.partition(":")[0] for home in COMMANDS.values()}
    assert loaded & {*homes, "rich", "asyncio", "mcplumb.client", "mcplumb.server"} == set()


def test_an_unknown_command_is_told_its_neighbour() -> None:
    assert cli.get_command(click.Context(cli), "nothing") is None
    assert "There is no command 'tool'. Did you mean 'tools'?" in here("tool").err
    assert "There is no command 'help'. Did you mean '--help'?" in here("help").err
    assert "There is no command 'xyz'. 'mcplumb --help' lists all of them." in here("xyz").err


def test_versions_are_those_of_everything_that_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    done = here("--version")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == f"mcplumb {__version__}"
    assert lines[1] == f"revisions: {', '.join(map(str, REVISIONS))}"
    assert lines[2].startswith(f"python {sys.version.split()[0]} on ")
    assert f"msgspec {version('msgspec')}" in lines
    monkeypatch.setattr("mcplumb.cli.command_group._PACKAGES", ("nothing-of-this-name",))
    assert versions().splitlines()[-1] == "nothing-of-this-name is not installed"


def test_options_add_up() -> None:
    options = GlobalOptions()
    merge_global_options(options, verbose=1, trace=True, log_file="a", config="c", no_color=False)
    merge_global_options(options, verbose=1, trace=False, log_file=None, config=None, no_color=False)
    assert options == GlobalOptions(verbose=2, trace=True, log_file="a", config="c")
    merge_global_options(options, verbose=0, trace=False, log_file="b", config="d", no_color=True)
    assert options == GlobalOptions(verbose=2, trace=True, log_file="b", config="d")


def test_completion_asks_for_no_version() -> None:
    context = cli.make_context("mcplumb", ["--version"], resilient_parsing=True)
    assert context.params["trace"] is False


def test_a_command_runs_and_its_code_is_returned() -> None:
    assert here("--config", "/nothing", "ping", *LEGACY).code == 0


def test_help_is_the_text_that_is_there() -> None:
    assert here("-v", "--help") == (0, OVERVIEW, "")


def test_completion_knows_commands_and_options() -> None:
    context = click.Context(cli, help_option_names=["-h", "--help"])
    assert [item.value for item in cli.shell_complete(context, "to")] == ["tools"]
    assert [item.value for item in cli.shell_complete(context, "--tr")] == ["--trace"]
    # Of what is not there, nothing is said while somebody types.
    typing = cli.make_context("mcplumb", ["nothing", "a"], resilient_parsing=True)
    assert cli.resolve_command(typing, ["nothing", "a"])[1] is None


def test_help_has_a_short_form_also_without_the_group() -> None:
    @click.command(cls=BaseCommand)
    def alone() -> None:
        """Do nothing."""

    alone.get_help_option(click.Context(alone))
    option = alone.get_help_option(click.Context(alone, parent=click.Context(cli, info_name="mcplumb")))
    assert option is not None
    assert option.opts == ["-h", "--help"]
