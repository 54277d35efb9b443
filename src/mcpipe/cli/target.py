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

import inspect
import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from mcpipe.cli.running import GlobalOptions, run
from mcpipe.errors import UsageError

if TYPE_CHECKING:
    from mcpipe.client.connecting import Connecting

__all__ = ["ServerCommand", "Target", "seconds", "server_command"]

_COMMAND = "mcpipe.cli.command"
_LONGEST_WAIT = 1e9


def seconds(text: str) -> float:
    """The type of an option that takes a time."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number <= _LONGEST_WAIT:
        raise click.BadParameter(f"{text!r} is not a number of seconds above 0.")
    return number


class Target:
    """The server that a command was given.

    ``place`` and ``options`` are what `mcpipe.connect` takes; ``title`` is what the server is called in messages: its
    command, its address or its name. ``words`` are the arguments that name it again on a command line.
    """

    def __init__(self, place: Any, options: dict[str, Any], *, title: str, words: Sequence[str]) -> None:
        self.place = place
        self.options = options
        self.title = title
        self.words = list(words)

    @property
    def is_started(self) -> bool:
        """Whether the server is a process that we start."""
        return not isinstance(self.place, str)

    def connect(self, **more: Any) -> Connecting:
        """``async with target.connect() as client``. ``more`` are options of `mcpipe.connect`, and come first.

        What the server writes to its stderr is shown on ours, line by line and cleaned, unless the user wants
        that to be quiet or ``stderr=`` says otherwise.
        """
        from mcpipe.client.connecting import connect

        options = {**self.options, **more}
        if not self.is_started:
            options.pop("stderr", None)
        return connect(self.place, **options)


def server_command(name: str | None = None, **attributes: Any) -> Callable[[Callable[..., Any]], ServerCommand]:
    """Make a command of a function, as ``click.command`` does, that gets the server it is for as ``target``.

    An async function is run in an event loop, see `mcpipe.cli.running.run`. What either returns is the exit code.
    """
    return click.command(name, cls=ServerCommand, **attributes)


class ServerCommand(click.Command):
    """A command that is for a server."""

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.own_params = list(self.params)
        self.server_params = _server_params()
        self.global_params = _global_params()
        self.params += [*self.server_params, *self.global_params]

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

    def invoke(self, ctx: click.Context) -> Any:
        """Find out which server is meant, and run."""
        options = ctx.ensure_object(GlobalOptions)
        given = {param.name: ctx.params.pop(param.name or "") for param in self.server_params}
        said = {param.name or "": ctx.params.pop(param.name or "") for param in self.global_params}
        from mcpipe.cli.app import remember_globals

        remember_globals(options, **said)
        target = ctx.params["target"] = _target(ctx, options, **given)
        if ctx.command.name != "probe":
            options.hint = f"To find out more: mcpipe probe {shlex.join(target.words)}"
        result = super().invoke(ctx)
        return run(result) if inspect.iscoroutine(result) else result


def _server_params() -> list[click.Parameter]:
    option = click.Option
    return [
        option(
            ["-s", "--server"], metavar="ADDRESS|NAME", help="Its address (http://…, tcp://…, unix:/…), or its name."
        ),
        option(["-y", "--yes"], is_flag=True, help="Use a project's server without being asked."),
        option(["-e", "--env"], metavar="NAME=VALUE", multiple=True, help="A variable for the command."),
        option(["--inherit-env"], metavar="NAME", multiple=True, help="A variable of ours to pass on to the command."),
        option(["--cwd"], metavar="FOLDER", help="The folder to start the command in."),
        option(["--header"], metavar="NAME:VALUE", multiple=True, help="A header for each request over HTTP."),
        option(["--token-file"], metavar="FILE", help="A file with the bearer token to show over HTTP."),
        option(["--ca-file"], metavar="FILE", help="Whom to trust over TLS, if not whom the system trusts."),
        option(["--sse"], is_flag=True, help="Speak the old HTTP+SSE transport from the start."),
        option(["--timeout"], type=seconds, metavar="SECONDS", help="What it has for its start, and for each answer."),
        option(["--revision"], metavar="DATE", multiple=True, help="A protocol revision to allow, if not all."),
        option(["--no-restart"], is_flag=True, help="Do not start it again, or reconnect, when it is lost."),
        option(["-q", "--quiet"], is_flag=True, help="Do not show what it writes to its stderr."),
    ]


def _global_params() -> list[click.Parameter]:
    from mcpipe.cli.app import cli

    wanted = ("verbose", "trace", "log_file", "config", "no_color")
    return [param for param in cli.params if param.name in wanted]


def _target(
    ctx: click.Context,
    globals_: GlobalOptions,
    *,
    server: str | None,
    yes: bool,
    env: tuple[str, ...],
    inherit_env: tuple[str, ...],
    cwd: str | None,
    header: tuple[str, ...],
    token_file: str | None,
    ca_file: str | None,
    sse: bool,
    timeout: float | None,
    revision: tuple[str, ...],
    no_restart: bool,
    quiet: bool,
) -> Target:
    command = ctx.meta.get(_COMMAND)
    options: dict[str, Any] = {}
    place: Any
    if command and server is not None:
        raise UsageError("The server is named twice: give -s, or a command behind --.")
    if command:
        place, title, words = command, shlex.join(command), ["--", *command]
    elif server is not None:
        place, options = _named(server, globals_.config, yes=yes)
        title, words = server.partition("?")[0], ["-s", server]
    else:
        raise UsageError(_three_ways(ctx.command_path, is_empty=command is not None))
    is_started = not isinstance(place, str)
    if is_started:
        options["stderr"] = "capture" if quiet else _show_stderr
        globals_.shows_stderr = not quiet
    if env:
        options["env"] = {**(options.get("env") or {}), **_pairs(env, "=", "--env", "NAME=VALUE")}
    if inherit_env and options.get("inherit_env") is not True:
        options["inherit_env"] = (*(options.get("inherit_env") or ()), *inherit_env)
    if cwd is not None:
        options["cwd"] = cwd
    if header:
        options["headers"] = {**(options.get("headers") or {}), **_pairs(header, ":", "--header", "NAME:VALUE")}
    if token_file is not None:
        options["token"] = _token(token_file)
    if ca_file is not None:
        from mcpipe.transports.tls import client_tls

        options["tls"] = client_tls(ca_file)
    if sse:
        options["http_sse"] = True
    if timeout is not None:
        from mcpipe.protocol.era import EraWaits

        options |= {"timeout": timeout, "waits": EraWaits(patience=timeout)}
    if revision:
        options["revisions"] = revision
    if no_restart:
        options["restart"] = False
    if globals_.trace:
        options["trace"] = lambda direction, line: globals_.tracer and globals_.tracer(direction, line)
    return Target(place, options, title=title, words=words)


def _named(server: str, config: str | None, *, yes: bool) -> tuple[Any, dict[str, Any]]:
    """What ``-s`` means: an address, or a name from a config file."""
    from mcpipe.transports.addresses import read_address

    if read_address(server) is not None:
        return server, {}
    from mcpipe.cli.configured import find_entry

    place, options = find_entry(server, config, yes=yes).connect_arguments()
    return place, dict(options)


def _show_stderr(line: str) -> None:
    from mcpipe.cli.output import say

    say(line, style="dim")


def _pairs(texts: Sequence[str], mark: str, option: str, form: str) -> dict[str, str]:
    found = {}
    for text in texts:
        name, between, value = text.partition(mark)
        if not between or not name.strip():
            # Not repeated in the message: a secret may be in it.
            raise UsageError(f"{option} takes {form}, and one of them is not that.")
        found[name.strip()] = value.strip() if mark == ":" else value
    return found


def _token(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - one line does not need a path object
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The token file {path} cannot be read: {getattr(error, 'strerror', '') or error}.") from None
    tokens = [line for line in lines if line and not line.startswith("#")]
    if len(tokens) != 1:
        raise UsageError(f"{path} has {len(tokens)} tokens: write one, on a line of its own.")
    return tokens[0]


def _three_ways(path: str, *, is_empty: bool) -> str:
    begin = "There is no command behind the --." if is_empty else "Which server?"
    ways = [
        (f"{path} -- python weather.py", "a command that starts it"),
        (f"{path} -s http://127.0.0.1:8000/mcp", "its address, also unix:/… or tcp://…"),
        (f"{path} -s weather", "its name in a config file; 'mcpipe servers' lists them"),
    ]
    width = max(len(way) for way, _ in ways)
    return f"{begin} Name it in one of three ways:\n\n" + "\n".join(f"  {way:{width}}  {what}" for way, what in ways)
