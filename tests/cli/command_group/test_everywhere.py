"""Commands that are for no server in particular take the global options on both sides of their name."""

from __future__ import annotations

import click
import pytest

from mcplumb.cli.command_group import BaseCommand
from mcplumb.cli.command_runner import GlobalOptions, global_options


@click.command(cls=BaseCommand)
@click.option("--name", default="nobody", help="A name.")
def greet(*, name: str) -> str:
    return f"{name} {global_options().verbose} {global_options().trace} {global_options().log_file}"


@click.command(cls=BaseCommand)
async def wait() -> int:
    return 3


@pytest.mark.parametrize(
    ("words", "options", "said"),
    [
        ([], GlobalOptions(), "nobody 0 False None"),
        (["-v", "--trace", "--log-file", "x", "--name", "me"], GlobalOptions(), "me 1 True x"),
        (["-v"], GlobalOptions(verbose=1, log_file="y", config="z"), "nobody 2 False y"),
    ],
)
def test_options_of_both_places_add_up(words: list[str], options: GlobalOptions, said: str) -> None:
    config = options.config
    assert greet.main(words, standalone_mode=False, obj=options) == said
    assert options.config == config


def test_an_async_function_is_run() -> None:
    assert wait.main([], standalone_mode=False) == 3


def test_there_is_no_config_where_no_name_is_looked_up() -> None:
    with pytest.raises(click.NoSuchOption):
        greet.main(["--config", "x"], standalone_mode=False)
