"""What all commands have in common: the options that may stand before and behind their names."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import click

from mcplumb.cli.app import cli, remember_globals
from mcplumb.cli.running import GlobalOptions, run

__all__ = ["OwnCommand", "values_of"]


class OwnCommand(click.Command):
    """A command that takes the global options behind its name, too. An async function is run in an event loop."""

    #: Those that it takes: without the file of servers that have names, which not all commands use.
    global_names: ClassVar[tuple[str, ...]] = ("verbose", "trace", "log_file", "no_color")

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.own_params = list(self.params)
        self.global_params = [param for param in cli.params if param.name in self.global_names]
        self.params += self.global_params

    def invoke(self, ctx: click.Context) -> Any:
        """Remember those options, and run."""
        said = {"config": None, **values_of(self.global_params, ctx)}
        remember_globals(ctx.ensure_object(GlobalOptions), **said)
        self.prepare(ctx)
        result = super().invoke(ctx)
        return run(result) if inspect.iscoroutine(result) else result

    def prepare(self, ctx: click.Context) -> None:
        """What else is to be done, once the global options are known."""


def values_of(params: list[click.Parameter], ctx: click.Context) -> dict[str, Any]:
    """Take the values of these parameters, by their names: they are not for the command's function."""
    return {param.name or "": ctx.params.pop(param.name or "") for param in params}
