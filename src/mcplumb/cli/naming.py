"""Which server is meant: from what a command line says to what `mcplumb.connect` takes.

``command`` is what stands behind ``--``, or None; ``given`` are the values of the options, by their names.
"""

# Without pathlib, which nothing here needs more of than this:
# ruff: noqa: PTH103, PTH110, PTH116, PTH118, PTH120, PTH123

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any

import click

from mcplumb.errors import UsageError
from mcplumb.transports.addresses import read_address

__all__ = ["find_server", "name_again", "named_values", "seconds", "server_params"]

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


def name_again(command: Sequence[str] | None, given: Mapping[str, Any], config: str | None) -> list[str]:
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
    from mcplumb.config.masking import shown_url

    return shown_url(server) if "?" in server else server


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# --- Names and addresses ---


def _named(server: str, config: str | None, *, yes: bool) -> tuple[Any, dict[str, Any]]:
    """What ``-s`` means: an address, or a name from a config file."""
    if read_address(server) is not None:
        return server, {}
    from mcplumb.cli.configured import find_entry

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
    from mcplumb.config.places import trust_file

    folder = os.path.dirname(trust_file())
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError:
        return None
    return os.path.join(folder, "eras.json") if os.access(folder, os.W_OK) else None


def _show_stderr(line: str) -> None:
    from mcplumb.cli.output import say

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
