"""Commands that are for no server in particular, with the options that all commands have."""

from __future__ import annotations

import inspect
from typing import Any

import click

from mcpipe.cli.app import cli, remember_globals
from mcpipe.cli.running import GlobalOptions, run

__all__ = ["OwnCommand"]

#: Without the file of servers that have names: these commands use none.
_EVERYWHERE = ("verbose", "trace", "log_file", "no_color")


class OwnCommand(click.Command):
    """A command that takes the global options behind its name, too. An async function is run in an event loop."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._everywhere = [param for param in cli.params if param.name in _EVERYWHERE]
        self.params += self._everywhere

    def invoke(self, ctx: click.Context) -> Any:
        """Remember those options, and run."""
        said = {param.name or "": ctx.params.pop(param.name or "") for param in self._everywhere}
        remember_globals(ctx.ensure_object(GlobalOptions), config=None, **said)
        result = super().invoke(ctx)
        return run(result) if inspect.iscoroutine(result) else result
