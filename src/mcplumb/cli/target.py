"""Which server a command is for: its options, and what they mean for ``connect``.

``command`` is what stands behind ``--``, or None; ``given`` are the values of the options, by their names.

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
# Without pathlib, which nothing here needs more of than this:
# ruff: noqa: PTH103, PTH110, PTH116, PTH118, PTH120, PTH123

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from mcplumb.cli.app import BaseCommand, pop_values
from mcplumb.cli.command_runner import GlobalOptions
from mcplumb.errors import UsageError
from mcplumb.transports.address import read_address

if TYPE_CHECKING:
    from mcplumb.client.connector import Connecting

__all__ = [
    "ServerCommand",
    "Target",
    "find_server",
    "named_values",
    "repeat_server_options",
    "seconds",
    "server_command",
    "server_params",
]


# Which server is meant: from what a command line says to what `mcplumb.connect` takes.


_LONGEST_WAIT = 1e9
#: Options that are only for some servers.
_FOR_COMMANDS = ("env", "inherit_env", "cwd")
_FOR_HTTP = ("header", "token_file", "sse")
#: Options whose values may be secret, and what stands before these.
_MARKS = {"env": "=", "header": ":"}


def seconds(text: str) -> float:
    """The type of an option that takes a time."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 < number <= _LONGEST_WAIT:
        raise click.BadParameter(f"{text!r} is not a number of seconds above 0.")
    return number


def server_params() -> list[click.Parameter]:
    """The options that say which server, and how it is started or reached."""
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


def find_server(
    command: Sequence[str] | None, given: Mapping[str, Any], config: str | None
) -> tuple[str | list[str], dict[str, Any]]:
    """What to call `mcplumb.connect` with: a command or an address, and options. UsageError if something is wrong."""
    if not command:
        place, options = _named(given["server"], config, yes=given["yes"])
    elif given["server"] is None:
        place, options = list(command), {}
    else:
        raise UsageError("The server is named twice: give -s, or a command behind --.")
    _refuse_misfits(place, given)
    options |= _to_reach(options, given) if isinstance(place, str) else _to_start(options, given)
    return place, options | _to_talk(given)


def repeat_server_options(command: Sequence[str] | None, given: Mapping[str, Any], config: str | None) -> list[str]:
    """The words that name the same server once more, on another command line; without what may be secret."""
    words = [] if config is None else ["--config", config]
    for name, value in given.items():
        if not value or name in ("server", "no_restart", "quiet"):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            words.append(_option(name))
            if each is not True:
                mark = _MARKS.get(name, "")
                words.append(f"{each.partition(mark)[0]}{mark}…" if mark else str(each).removesuffix(".0"))
    return [*words, "--", *command] if command else [*words, "-s", _shown(given["server"])]


def _shown(server: str) -> str:
    from mcplumb.config.entry import mask_url

    return mask_url(server) if "?" in server else server


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# --- Names and addresses ---


def _named(server: str, config: str | None, *, yes: bool) -> tuple[Any, dict[str, Any]]:
    """What ``-s`` means: an address, or a name from a config file."""
    if read_address(server) is not None:
        return server, {}
    from mcplumb.cli.commands.servers import find_entry

    try:
        place, options = find_entry(server, config, yes=yes).connect_arguments()
    except UsageError:
        if meant := _meant_address(server):
            raise UsageError(f"{server!r} is no name of a server. If it is an address, write {meant}.") from None
        raise
    return place, dict(options)


def _meant_address(text: str) -> str | None:
    """An address, as it should have been written; None if it looks like none."""
    place, _, path = text.partition("/")
    host, _, port = place.rpartition(":")
    if host and port.isdecimal():
        return f"http://{place}/{path}" if path else f"http://{place}/mcp, or tcp://{place}"
    is_socket = os.path.exists(text) and stat.S_ISSOCK(os.stat(text).st_mode)
    return f"unix:{text}" if is_socket else None


def _refuse_misfits(place: str | list[str], given: Mapping[str, Any]) -> None:
    """Options that mean nothing for this server are a mistake."""
    is_started = not isinstance(place, str)
    for name in () if is_started else _FOR_COMMANDS:
        if given[name]:
            raise UsageError(f"{_option(name)} is for a server that is started, and this is the address of one.")
    for name in () if isinstance(place, str) and place.lower().startswith("http") else _FOR_HTTP:
        if given[name]:
            raise UsageError(f"{_option(name)} is for a server with an http:// or https:// address.")


# --- What `mcplumb.connect` is told; ``known`` is what a config file says already ---


def _to_start(known: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"stderr": "capture" if given["quiet"] else _show_stderr}
    if given["env"]:
        options["env"] = {**known.get("env", {}), **named_values(given["env"], "env", "NAME=VALUE")}
    if given["inherit_env"] and known.get("inherit_env") is not True:
        options["inherit_env"] = (*known.get("inherit_env", ()), *given["inherit_env"])
    if given["cwd"] is not None:
        options["cwd"] = given["cwd"]
    return options


def _to_reach(known: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if given["header"]:
        options["headers"] = {**known.get("headers", {}), **named_values(given["header"], "header", "NAME:VALUE")}
    if given["token_file"] is not None:
        options["token"] = _token(given["token_file"])
    if given["ca_file"] is not None:
        from mcplumb.transports.tls import client_tls

        options["tls"] = client_tls(given["ca_file"])
    if given["sse"]:
        options["http_sse"] = True
    return options


def _to_talk(given: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if given["timeout"] is not None:
        from mcplumb.protocol.era import EraWaits

        options |= {"timeout": given["timeout"], "waits": EraWaits(patience=given["timeout"])}
    if given["revision"]:
        options["revisions"] = given["revision"]
    if given["no_restart"]:
        options["restart"] = False
    if (file := _memory_file()) is not None:
        options["era_memory"] = file
    return options


def _memory_file() -> str | None:
    """Where it is kept which era a server belongs to; None where nothing can be kept.

    Some old servers complain at length when they are asked, and others have to be started twice: once is enough.
    """
    from mcplumb.config.locations import trust_file

    folder = os.path.dirname(trust_file())
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError:
        return None
    return os.path.join(folder, "eras.json") if os.access(folder, os.W_OK) else None


def _show_stderr(line: str) -> None:
    from mcplumb.cli.render.output import say

    say(line, style="dim")


def named_values(texts: Sequence[str], name: str, form: str) -> dict[str, str]:
    """The values of an option that gives each a name, by these; `UsageError` if one is not of the form."""
    mark, found = _MARKS[name], {}
    for text in texts:
        key, between, value = text.partition(mark)
        if not between or not key.strip():
            # Not repeated in the message: a secret may be in it.
            raise UsageError(f"{_option(name)} takes {form}, and one of them is not that.")
        found[key.strip()] = value.strip() if mark == ":" else value
    return found


def _token(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The token file {path} cannot be read: {getattr(error, 'strerror', '') or error}.") from None
    tokens = [line for line in lines if line and not line.startswith("#")]
    if len(tokens) != 1:
        raise UsageError(f"{path} has {len(tokens)} tokens: write one, on a line of its own.")
    return tokens[0]


# How a command is told which server it is for.


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
        from mcplumb.client.connector import connect

        options = {**self.options, **more}
        if not self.is_started:
            options.pop("stderr", None)
        return connect(self.place, **options)


def server_command(name: str | None = None, **attributes: Any) -> Callable[[Callable[..., Any]], ServerCommand]:
    """Make a command of a function, as ``click.command`` does, that gets the server it is for as ``target``.

    An async function is run in an event loop, see `mcplumb.cli.command_runner.run`. Its result is the exit code.
    """
    return click.command(name, cls=ServerCommand, **attributes)


class ServerCommand(BaseCommand):
    """A command that is for a server."""

    global_names = (*BaseCommand.global_names, "config")

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
        given = pop_values(self.server_params, ctx)
        command = ctx.meta.get(_COMMAND)
        if not command and given["server"] is None:
            raise UsageError(self._three_ways(ctx))
        place, known = find_server(command, given, options.config)
        options.shows_stderr = not given["quiet"]
        if options.trace:
            known["trace"] = lambda direction, line: options.tracer and options.tracer(direction, line)
        if self.name != "probe":
            again = shlex.join(repeat_server_options(command, given, options.config))
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
