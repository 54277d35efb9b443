"""How a command is told which server it is for.

Every command that needs a server is made with `server_command`::

    @server_command()
    @click.argument("name")
    async def call(target: Target, name: str) -> int | None:
        \"\"\"Call a tool.\"\"\"
        async with target.connect() as client:
            ...

It then takes ``-- COMMAND...`` or ``-s ADDRESS|NAME`` and the options that say how to start or reach that, and its
function gets a `Target`, as an argument of that name, in their place.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from mcplumb.cli.everywhere import OwnCommand, values_of
from mcplumb.cli.naming import find_server, name_again, server_params
from mcplumb.cli.running import GlobalOptions
from mcplumb.errors import UsageError

if TYPE_CHECKING:
    from mcplumb.client.connecting import Connecting

__all__ = ["ServerCommand", "Target", "server_command"]

_COMMAND = "mcplumb.cli.command"


class Target:
    """The server that a command was given.

    ``place`` and ``options`` are what `mcplumb.connect` takes; ``title`` is what the server is called in messages: its
    command, its address or its name.
    """

    def __init__(self, place: Any, options: dict[str, Any], *, title: str) -> None:
        self.place = place
        self.options = options
        self.title = title

    @property
    def is_started(self) -> bool:
        """Whether the server is a process that we start."""
        return not isinstance(self.place, str)

    def connect(self, **more: Any) -> Connecting:
        """``async with target.connect() as client``. ``more`` are options of `mcplumb.connect`, and come first.

        What the server writes to its stderr is shown on ours, line by line and cleaned, unless the user wants
        that to be quiet or ``stderr=`` says otherwise.
        """
        from mcplumb.client.connecting import connect

        options = {**self.options, **more}
        if not self.is_started:
            options.pop("stderr", None)
        return connect(self.place, **options)


def server_command(name: str | None = None, **attributes: Any) -> Callable[[Callable[..., Any]], ServerCommand]:
    """Make a command of a function, as ``click.command`` does, that gets the server it is for as ``target``.

    An async function is run in an event loop, see `mcplumb.cli.running.run`. What either returns is the exit code.
    """
    return click.command(name, cls=ServerCommand, **attributes)


class ServerCommand(OwnCommand):
    """A command that is for a server."""

    global_names = (*OwnCommand.global_names, "config")

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.server_params = server_params()
        self.params += self.server_params

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What stands behind the first ``--`` is the server's command, and none of our business."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if _COMMAND not in ctx.meta and error.message.startswith("Got unexpected extra argument"):
                said = f"{error.message}. The command that starts a server stands behind --."
                raise click.UsageError(said, ctx) from None
            raise

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage, with the server in it."""
        return [*super().collect_usage_pieces(ctx), "-- COMMAND..."]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options in three parts: the command's own, the server's, and those of all commands."""
        parts = (
            ("Options", [*self.own_params]),
            ("The server", self.server_params),
            ("Everywhere", [*self.global_params, *filter(None, [self.get_help_option(ctx)])]),
        )
        for title, params in parts:
            records = [record for param in params if (record := param.get_help_record(ctx)) is not None and record[1]]
            if title == "The server":
                records.insert(0, ("-- COMMAND...", "The command that starts it, with its arguments."))
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def prepare(self, ctx: click.Context) -> None:
        """Find out which server is meant."""
        options = ctx.ensure_object(GlobalOptions)
        given = values_of(self.server_params, ctx)
        command = ctx.meta.get(_COMMAND)
        if not command and given["server"] is None:
            raise UsageError(self._three_ways(ctx))
        place, known = find_server(command, given, options.config)
        options.shows_stderr = not given["quiet"]
        if options.trace:
            known["trace"] = lambda direction, line: options.tracer and options.tracer(direction, line)
        if self.name != "probe":
            again = shlex.join(name_again(command, given, options.config))
            options.hint = f"To find out more: mcplumb probe {again}"
        title = shlex.join(command) if command else given["server"].partition("?")[0]
        ctx.params["target"] = Target(place, known, title=title)

    def _three_ways(self, ctx: click.Context) -> str:
        needed = [param for param in self.own_params if isinstance(param, click.Argument) and param.required]
        path = " ".join([ctx.command_path, *(param.make_metavar(ctx) for param in needed)])
        begin = "There is no command behind the --." if _COMMAND in ctx.meta else "Which server?"
        ways = [
            (f"{path} -- python weather.py", "a command that starts it"),
            (f"{path} -s http://127.0.0.1:8000/mcp", "its address, also unix:/… or tcp://…"),
            (f"{path} -s weather", "its name in a config file; 'mcplumb servers' lists them"),
        ]
        width = max(len(way) for way, _ in ways)
        lines = [f"  {way:{width}}  {what}" for way, what in ways]
        return "\n".join([f"{begin} Name it in one of three ways:", "", *lines])
