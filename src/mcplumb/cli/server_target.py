"""The options that select a server, and the base of all commands that need one.

Such a command is declared with `server_command`::

    @server_command()
    @click.argument("name")
    async def call(target: Target, name: str) -> int | None:
        \"\"\"Call a tool.\"\"\"
        async with target.connect() as client:
            ...

It takes ``-- COMMAND...`` or ``-s ADDRESS|NAME`` and the options for starting or reaching that server; its function
gets a `Target` in their place. In this module, ``command`` is the words after ``--``, or None, and ``given`` are the
values of the options by name.
"""
# pathlib is avoided: importing it would slow down the start of every command.
# ruff: noqa: PTH103, PTH110, PTH116, PTH118, PTH120

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from mcplumb.cli.command_group import BaseCommand, pop_values
from mcplumb.cli.command_runner import GlobalOptions
from mcplumb.errors import UsageError
from mcplumb.transports.address import read_address

if TYPE_CHECKING:
    from mcplumb.client.client import Client
    from mcplumb.client.connector import Connecting

__all__ = [
    "ServerCommand",
    "Target",
    "find_server",
    "named_values",
    "repeat_server_options",
    "seconds",
    "seconds_or_none",
    "server_command",
    "server_params",
]


_MAX_SECONDS = 1e9
#: Options for servers that are started, and for servers over HTTP.
_FOR_COMMANDS = ("env", "inherit_env", "cwd")
_FOR_HTTP = ("header", "token_file", "sse")
#: Options with named values that may be secret, and the separator of name and value.
_SEPARATORS = {"env": "=", "header": ":"}
#: A host name with a dot in it.
_HOST = re.compile(r"[\w-]+(?:\.[\w-]+)+", re.ASCII)
_WAYS = {2: "two", 3: "three"}
#: Commands without a hint at `mcplumb probe`: what fails at the start of the last three is an address to listen at.
_WITHOUT_HINT = ("probe", "bridge", "tap", "view")
#: The key of the server's command in a click context.
_COMMAND = "mcplumb.cli.command"


# --- Options ---


def seconds(text: str) -> float:
    """Parse a positive number of seconds; the click type of timeouts."""
    number = _number(text)
    if not 0 < number <= _MAX_SECONDS:
        raise click.BadParameter(f"{text!r} is not a number of seconds above 0.")
    return number


def seconds_or_none(text: str) -> float:
    """Parse a number of seconds, which may be 0; the click type of times to wait."""
    number = _number(text)
    if not 0 <= number <= _MAX_SECONDS:
        raise click.BadParameter(f"{text!r} is not a number of seconds, at least 0.")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def server_params() -> list[click.Parameter]:
    """Return the options that select a server and say how it is started or reached."""
    option = click.Option
    return [
        option(
            ["-s", "--server"], metavar="ADDRESS|NAME", help="Its address (http://…, tcp://…, unix:/…), or its name."
        ),
        option(["-y", "--yes"], is_flag=True, help="Do not ask before using a project's server."),
        option(["-e", "--env"], metavar="NAME=VALUE", multiple=True, help="An environment variable for the command."),
        option(
            ["--inherit-env"], metavar="NAME", multiple=True, help="An environment variable to pass on to the command."
        ),
        option(["--cwd"], metavar="FOLDER", help="The folder to start the command in."),
        option(["--header"], metavar="NAME:VALUE", multiple=True, help="A header for each request over HTTP."),
        option(["--token-file"], metavar="FILE", help="A file with the bearer token for HTTP."),
        option(["--ca-file"], metavar="FILE", help="Certificates to trust for TLS, instead of the system's."),
        option(["--sse"], is_flag=True, help="Speak the old HTTP+SSE transport from the start."),
        option(["--timeout"], type=seconds, metavar="SECONDS", help="Time limit for its start, and for each response."),
        option(["--revision"], metavar="DATE", multiple=True, help="A protocol revision to allow; by default all."),
        option(["--no-restart"], is_flag=True, help="Do not restart it, or reconnect, when it is lost."),
        option(
            [
                "--record",
            ],
            metavar="FILE",
            help="Record the session to this file, or to a new file in this folder.",
        ),
        option(["-q", "--quiet"], is_flag=True, help="Do not show its stderr."),
    ]


def find_server(
    command: Sequence[str] | None, given: Mapping[str, Any], config: str | None
) -> tuple[str | list[str], dict[str, Any]]:
    """Return the arguments for `mcplumb.connect`: a command or an address, and options; may raise UsageError."""
    if not command:
        address, options = _look_up(given["server"], config, yes=given["yes"])
    elif given["server"] is None:
        address, options = list(command), {}
    else:
        raise UsageError("The server is named twice: give -s, or a command after --.")
    _check_options(address, given)
    options |= _http_options(options, given) if isinstance(address, str) else _process_options(options, given)
    return address, _with_sign_in(address, options) | _session_options(given)


def repeat_server_options(command: Sequence[str] | None, given: Mapping[str, Any], config: str | None) -> list[str]:
    """Return the command-line words that select the same server again, without values that may be secret."""
    words = [] if config is None else ["--config", config]
    for name, value in given.items():
        if not value or name in ("server", "no_restart", "quiet"):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            words.append(_option(name))
            if each is not True:
                separator = _SEPARATORS.get(name, "")
                text = f"{each.partition(separator)[0]}{separator}…" if separator else str(each).removesuffix(".0")
                words.append(text)
    return [*words, "--", *command] if command else [*words, "-s", _shown(given["server"])]


def _shown(server: str) -> str:
    from mcplumb.config.entry import mask_url

    return mask_url(server) if "?" in server else server


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# --- Names and addresses ---


def _look_up(server: str, config: str | None, *, yes: bool) -> tuple[Any, dict[str, Any]]:
    """Resolve the value of ``-s``: an address, or a name from a config file."""
    if read_address(server) is not None:
        return server, {}
    from mcplumb.cli.commands.servers import find_entry

    try:
        address, options = find_entry(server, config, yes=yes).connect_arguments()
    except UsageError:
        if corrected := _corrected_address(server):
            raise UsageError(
                f"{server!r} is not the name of a server. If it is an address, write {corrected}."
            ) from None
        raise
    return address, dict(options)


def _corrected_address(text: str) -> str | None:
    """Return an address with the scheme that the text lacks; None if it does not look like an address."""
    netloc, _, path = text.partition("/")
    host, _, port = netloc.rpartition(":")
    if host and port.isdecimal():
        return f"http://{netloc}/{path}" if path else f"http://{netloc}/mcp, or tcp://{netloc}"
    if path and _HOST.fullmatch(netloc) and not os.path.exists(text):
        return f"https://{text}"
    is_socket = os.path.exists(text) and stat.S_ISSOCK(os.stat(text).st_mode)
    return f"unix:{text}" if is_socket else None


def _check_options(address: str | list[str], given: Mapping[str, Any]) -> None:
    """Raise UsageError for options that do not apply to this kind of server."""
    is_started = not isinstance(address, str)
    for name in () if is_started else _FOR_COMMANDS:
        if given[name]:
            raise UsageError(f"{_option(name)} is only for a server that mcplumb starts, and this one has an address.")
    for name in () if isinstance(address, str) and address.lower().startswith("http") else _FOR_HTTP:
        if given[name]:
            raise UsageError(f"{_option(name)} is for a server with an http:// or https:// address.")


# --- Options for `mcplumb.connect`; ``known`` are those of the config file ---


def _process_options(known: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"stderr": "capture"}
    if given["env"]:
        options["env"] = {**known.get("env", {}), **named_values(given["env"], "env", "NAME=VALUE")}
    if given["inherit_env"] and known.get("inherit_env") is not True:
        options["inherit_env"] = (*known.get("inherit_env", ()), *given["inherit_env"])
    if given["cwd"] is not None:
        options["cwd"] = given["cwd"]
    return options


def _http_options(known: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
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


def _with_sign_in(address: str | list[str], options: dict[str, Any]) -> dict[str, Any]:
    """Add the user's sign-in to the options for a server over HTTP that has no other credentials."""
    names = {name.lower() for name in options.get("headers", ())}
    if not isinstance(address, str) or "token" in options or "authorization" in names:
        return options
    from mcplumb.cli.commands.login import default_sign_in

    auth = default_sign_in(address)
    return options if auth is None else {**options, "auth": auth}


def _session_options(given: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if given["timeout"] is not None:
        from mcplumb.protocol.era import EraWaits

        options |= {"timeout": given["timeout"], "waits": EraWaits(patience=given["timeout"])}
    if given["revision"]:
        options["revisions"] = given["revision"]
    if given["no_restart"]:
        options["restart"] = False
    if given["record"] is not None:
        options["record"] = given["record"]
    if (file := _era_memory_file()) is not None:
        options["era_memory"] = file
    return options


def _era_memory_file() -> str | None:
    """Return the file that stores the era of each server; None if the folder is not writable.

    Probing the era makes some old servers log errors, and others need a second start: it is done once.
    """
    from mcplumb.config.locations import trust_file

    folder = os.path.dirname(trust_file())
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError:
        return None
    return os.path.join(folder, "eras.json") if os.access(folder, os.W_OK) else None


def named_values(texts: Sequence[str], name: str, form: str) -> dict[str, str]:
    """Parse the named values of an option, such as ``NAME=VALUE``; raise `UsageError` if one is malformed."""
    separator, found = _SEPARATORS[name], {}
    for text in texts:
        key, between, value = text.partition(separator)
        if not between or not key.strip():
            # The message does not quote the text, which may contain a secret.
            raise UsageError(f"{_option(name)} takes {form}; one of the values does not have that form.")
        found[key.strip()] = value.strip() if separator == ":" else value
    return found


def _token(path: str) -> str:
    from mcplumb.cli.serve_options import tokens_in

    tokens = tokens_in(path)
    if len(tokens) != 1:
        raise UsageError(f"{path} has {len(tokens)} tokens: write one, on a line of its own.")
    return tokens[0]


# --- Commands ---


class Target:
    """The server that a command is for.

    ``place`` (a command or an address) and ``options`` are arguments of `mcplumb.connect`; ``title`` names the server
    in messages: its command, its address or its name. ``words`` select it again on a command line, without secrets.
    """

    def __init__(self, place: Any, options: dict[str, Any], *, title: str, words: Sequence[str] = ()) -> None:
        self.place = place
        self.options = options
        self.title = title
        self.words = words

    @property
    def is_started(self) -> bool:
        """Whether the server is a process that mcplumb starts."""
        return not isinstance(self.place, str)

    def connect(self, **more: Any) -> _Connecting:
        """Connect: ``async with target.connect() as client``. ``more`` overrides options of `mcplumb.connect`.

        The server's stderr is shown on stderr from the first contact on, line by line with control characters escaped,
        except with ``--quiet`` or another ``stderr=``. See `ServerStderr` for what came before.
        """
        from mcplumb.client.connector import connect

        options = {**self.options, **more}
        if not self.is_started:
            options.pop("stderr", None)
        return _Connecting(connect(self.place, **options), options.get("stderr"), self.title)


class _Connecting:
    """Like what `mcplumb.connect` returns; until the first contact, a spinner is shown, and stderr is kept."""

    def __init__(self, connecting: Connecting, stderr: Any, title: str) -> None:
        self._connecting = connecting
        self._stderr = stderr
        self._title = title

    async def __aenter__(self) -> Client:
        from mcplumb.cli.log_output import ServerStderr
        from mcplumb.cli.render.progress_bar import ProgressBar

        with ProgressBar(f"Waiting for {self._title}"):
            if not isinstance(self._stderr, ServerStderr):
                return await self._connecting.__aenter__()
            with self._stderr.first_contact():
                client = await self._connecting.__aenter__()
            try:
                await self._stderr.contacted()
            except BaseException:
                await client.close()
                raise
            return client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connecting.__aexit__(kind, error, trace)

    def __await__(self) -> Generator[Any, Any, Client]:
        return self.__aenter__().__await__()


def server_command(name: str | None = None, **attributes: Any) -> Callable[[Callable[..., Any]], ServerCommand]:
    """Decorate a function as a command that gets its server as ``target``; otherwise like ``click.command``.

    An async function is run in an event loop, see `mcplumb.cli.command_runner.run`. Its result is the exit code.
    ``only_http`` offers no command that starts a server; ``listen_option`` is what an address needs, which then must
    be one of HTTP; ``without`` names options of the server that do not apply.
    """
    return click.command(name, cls=ServerCommand, **attributes)


class ServerCommand(BaseCommand):
    """A command that needs a server."""

    global_names = (*BaseCommand.global_names, "config")

    def __init__(
        self,
        *args: Any,
        only_http: bool = False,
        listen_option: str = "",
        without: Sequence[str] = (),
        **attributes: Any,
    ) -> None:
        super().__init__(*args, **attributes)
        self.only_http = only_http
        self.listen_option = listen_option
        self.without = without
        self.server_params = server_params()
        for param in self.server_params:
            # They are read all the same, so that the error can say what is wrong.
            if isinstance(param, click.Option) and param.name in (*without, *(_FOR_COMMANDS if only_http else ())):
                param.hidden = True
            if isinstance(param, click.Option) and param.name == "server" and (only_http or listen_option):
                param.help = "Its address (http://… or https://…), or its name."
        self.params += self.server_params

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split off the words after the first ``--``, which are the server's command, and parse the rest."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = args[at + 1 :]
            args = args[:at]
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if _COMMAND not in ctx.meta and error.message.startswith("Got unexpected extra argument"):
                message = f"{error.message}. The command that starts a server goes after --."
                raise click.UsageError(message, ctx) from None
            raise

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Add the server's command to the usage line."""
        return [*super().collect_usage_pieces(ctx), "-s ADDRESS|NAME" if self.only_http else "-- COMMAND..."]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in three sections: the command's own, the server's, and the global ones."""
        parts = (
            ("Options", [*self.own_params]),
            ("The server", self.server_params),
            ("Global options", [*self.global_params, *filter(None, [self.get_help_option(ctx)])]),
        )
        for title, params in parts:
            records = [record for param in params if (record := param.get_help_record(ctx)) is not None and record[1]]
            if title == "The server" and not self.only_http:
                records.insert(0, ("-- COMMAND...", "The command that starts it, with its arguments."))
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def prepare(self, ctx: click.Context) -> None:
        """Select the server and pass it to the function as ``target``."""
        options = ctx.ensure_object(GlobalOptions)
        given = pop_values(self.server_params, ctx)
        command = ctx.meta.get(_COMMAND)
        if useless := [_option(name) for name in self.without if given[name]]:
            raise UsageError(f"{ctx.command_path} does not take {useless[0]}.")
        if not command and given["server"] is None:
            raise UsageError(self._three_ways(ctx))
        place, known = find_server(command, given, options.config)
        if not given["quiet"] and not isinstance(place, str):
            from mcplumb.cli.log_output import ServerStderr

            known["stderr"] = options.stderr = ServerStderr(is_live=options.verbose > 0)
        if options.trace:
            known["trace"] = lambda direction, line: options.tracer and options.tracer(direction, line)
        words = repeat_server_options(command, given, options.config)
        if self.name not in _WITHOUT_HINT:
            options.hint = f"To find out more: mcplumb probe {shlex.join(words)}"
        title = shlex.join(command) if command else given["server"].partition("?")[0]
        ctx.params["target"] = Target(place, known, title=title, words=words)

    def is_named(self, ctx: click.Context) -> bool:
        """Return whether the command line names a server."""
        return bool(ctx.meta.get(_COMMAND)) or ctx.params.get("server") is not None

    def _three_ways(self, ctx: click.Context) -> str:
        needed = [param for param in self.own_params if isinstance(param, click.Argument) and param.required]
        path = " ".join([ctx.command_path, *(param.make_metavar(ctx) for param in needed)])
        begin = "There is no command after the --." if _COMMAND in ctx.meta else "Which server?"
        if self.listen_option:
            address, words = f"{self.listen_option} -s", f"its address, and where the {self.name} listens"
        else:
            address, words = "-s", f"its address{'' if self.only_http else ', also unix:/… or tcp://…'}"
        ways = [
            (f"{path} -- python weather.py", "a command that starts it"),
            (f"{path} {address} http://127.0.0.1:8000/mcp", words),
            (f"{path} -s weather", "its name in a config file; 'mcplumb servers' lists them"),
        ][self.only_http :]
        width = max(len(way) for way, _ in ways)
        lines = [f"  {way:{width}}  {what}" for way, what in ways]
        return "\n".join([f"{begin} Name it in one of {_WAYS[len(ways)]} ways:", "", *lines])
