"""``mcplumb servers``, ``add`` and ``remove``: list the servers of config files, and change mcplumb's own file.

A change touches only the one server and replaces the file atomically. Unknown keys keep their order and their exact
text. A file that is not valid is not changed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from mcplumb.cli.command_runner import global_options
from mcplumb.cli.consent import prepare_entry
from mcplumb.cli.render.output import print_json, print_pairs, print_table, say
from mcplumb.cli.server_target import named_values
from mcplumb.config import Config, ConfigError, ServerEntry, UnknownServer, discover_config, load_config
from mcplumb.config.entry import looks_secret, mask_arguments, mask_url, mask_values
from mcplumb.config.files import decode_strict_json, locked, read_file, replace_file
from mcplumb.config.locations import MCPLUMB, ConfigLocation, home, server_tables, user_config_file, with_tilde
from mcplumb.config.parse import read_entries
from mcplumb.errors import AuthorizationError, UsageError
from mcplumb.transports.address import read_address

__all__ = ["add", "add_server", "find_entries", "find_entry", "remove", "remove_server", "servers"]

_SCHEMES = ("http:", "https:", "tcp:", "unix:")


def find_entry(name: str, config: str | None = None, *, yes: bool = False) -> ServerEntry:
    """Return the server of this name, from one config file or all discovered ones, ready for use.

    The user may be asked for consent and inputs, see `prepare_entry`.
    """
    try:
        entry = load_config(config)[name]
    except UnknownServer as error:
        if "/" in name or os.path.exists(name):  # noqa: PTH110 - it may be no path at all
            raise UsageError(f"{error} A command that starts a server goes after --, without -s.") from None
        raise
    return prepare_entry(entry, yes=yes)


def find_entries(
    names: Sequence[str], config: str | None = None, *, yes: bool = False, ask: bool = True
) -> dict[str, ServerEntry | ConfigError]:
    """Return the servers with these names, ready for use; see `prepare_entry`.

    Without names, return all that are not disabled. Those whose entries are broken are then errors.
    """
    from mcplumb.client.group_member import enabled_servers

    found = load_config(config)
    chosen = {name: found[name] for name in names} or enabled_servers(found)
    return {
        name: entry if isinstance(entry, ConfigError) else prepare_entry(entry, yes=yes, ask=ask)
        for name, entry in chosen.items()
    }


@click.command()
@click.argument("name", required=False)
@click.option("--config", metavar="FILE", help="Look into this file only.")
@click.option("--json", "as_json", is_flag=True, help="Print the output as one JSON document.")
def servers(name: str | None, config: str | None, *, as_json: bool) -> None:
    """List the servers of your config files.

    Those are mcplumb's own file, those of the current project, and those of Claude Code, Claude Desktop, Cursor, VS
    Code, Windsurf, Gemini CLI and Copilot CLI. With a NAME, shows everything about that server. Values of variables and
    headers are never shown. A note says where you are signed in, or where that has expired. Use a server with -s NAME.

    \b
    mcplumb servers
    mcplumb servers --json
    mcplumb servers weather
    """
    found = load_config(config or global_options().config)
    users, faults = _users()
    if name is not None:
        entry = found[name]
        notes = _notes(entry, users)
        if as_json:
            print_json(_described(entry, notes))
        else:
            _print_one(entry, notes)
        return
    listed = [(one, _notes(one, users)) for one in found.values()]
    listed += [(one, [_hidden(one, found)]) for one in found.hidden]
    faults = [*map(str, found.faults), *faults]
    if as_json:
        described = [_described(one, notes) for one, notes in listed]
        live = {address: each.signed_in for address, each in users.items() if each.signed_in}
        over = {address: each.expired for address, each in users.items() if each.expired}
        print_json({"servers": described, "signedIn": live, "signInExpired": over, "faults": faults})
        return
    if listed:
        rows = [(one.name, _summary(one), with_tilde(one.source), ", ".join(notes)) for one, notes in listed]
        has_notes = any(row[3] for row in rows)
        print_table(("NAME", "SERVER", "FILE", "NOTE")[: 3 + has_notes], [row[: 3 + has_notes] for row in rows])
    else:
        say("No server is configured. Add one with: mcplumb add NAME -- COMMAND")
    known = {_address(one) for one in found.values()} if users else set()
    for address, each in users.items():
        if address not in known and each.signed_in:
            say(f"{address} has no name here, but you are {_signed_in(each.signed_in)}.")
        elif address not in known:
            say(f"{address} has no name here, and your sign-in there has expired.")
    for fault in faults:
        say(f"Warning: {fault}", style="yellow")


@click.command()
@click.argument("name")
@click.argument("words", metavar="ADDRESS | -- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-e", "--env", metavar="NAME=VALUE", multiple=True, help="An environment variable for the command.")
@click.option("--inherit-env", metavar="NAME", multiple=True, help="An environment variable to pass on to the command.")
@click.option("--cwd", metavar="FOLDER", help="The folder to start the command in.")
@click.option("--header", metavar="NAME:VALUE", multiple=True, help="A header for each request over HTTP.")
@click.option("--sse", is_flag=True, help="The address speaks the old HTTP+SSE transport.")
@click.option("--replace", is_flag=True, help="Replace the server that has the name already.")
def add(
    name: str,
    words: tuple[str, ...],
    *,
    env: tuple[str, ...],
    inherit_env: tuple[str, ...],
    cwd: str | None,
    header: tuple[str, ...],
    sse: bool,
    replace: bool,
) -> None:
    """Save a server under a name.

    It is saved in mcplumb's own file, which only you can read. Variables such as ${TOKEN} are saved as they are and
    replaced on use, so the file need not contain secrets. Quote them, or your shell replaces them first.

    \b
    mcplumb add weather -- python weather.py
    mcplumb add docs https://example.com/mcp --header 'Authorization: Bearer ${TOKEN}'
    """
    _refuse_config("add")
    raw = _raw_entry(words, env=env, inherit_env=inherit_env, cwd=cwd, header=header, sse=sse)
    file = add_server(name, raw, replace=replace)
    say(f"Added to {with_tilde(file)}. Use it with: mcplumb tools -s {shlex.quote(name)}")
    if cwd is None and "cwd" in raw:
        say(f"It will run in {raw['cwd']}, because its command names a file there.")
    for secret, value in {**raw.get("env", {}), **raw.get("headers", {})}.items():
        if looks_secret(secret) and "${" not in value:
            say(f"The value of {secret} is in the file now. To keep it out, write ${{NAME}} of a variable instead.")


@click.command()
@click.argument("name")
def remove(name: str) -> None:
    """Delete a saved server.

    It is removed from mcplumb's own file, which 'mcplumb add' writes. Files of other programs are never changed.

    \b
    mcplumb remove weather
    """
    _refuse_config("remove")
    try:
        file = remove_server(name)
    except UnknownServer:
        found = discover_config()
        if name not in found:
            raise
        raise UsageError(
            f"The server {name!r} is in {found[name].source}, a file of {found[name].dialect.label}, which "
            "mcplumb does not change: remove it there."
        ) from None
    say(f"Removed from {with_tilde(file)}.")


# --- Output ---


def _summary(entry: ServerEntry) -> str:
    if entry.url is not None:
        return mask_url(entry.url)
    return shlex.join([entry.command or "", *mask_arguments(entry.args)])


class _Users(NamedTuple):
    """The users at one address."""

    signed_in: list[str]
    expired: list[str]


def _users() -> tuple[dict[str, _Users], list[str]]:
    """Return the users that have signed in, by address, and what is wrong with the store."""
    from mcplumb.cli.commands.login import sign_ins

    users: dict[str, _Users] = {}
    try:
        for address, user, is_live in sign_ins():
            each = users.setdefault(address, _Users([], []))
            (each.signed_in if is_live else each.expired).append(user)
    except (AuthorizationError, UsageError) as error:
        return {}, [str(error)]
    return users, []


def _signed_in(users: list[str]) -> str:
    return "signed in" if users == ["default"] else f"signed in as {', '.join(users)}"


def _expired(users: list[str]) -> str:
    return "sign-in expired" if users == ["default"] else f"sign-in expired of {', '.join(users)}"


def _address(entry: ServerEntry) -> str | None:
    """Return the address that tokens are kept under; None if the entry has none, or it is not known yet."""
    from mcplumb.protocol.oauth.discovery import canonical_resource

    try:
        url = entry.resolve().url
        return None if url is None else canonical_resource(url)
    except (ConfigError, ValueError):
        return None


def _notes(entry: ServerEntry, users: dict[str, _Users]) -> list[str]:
    notes = ["disabled"] if entry.disabled else []
    if users and (address := _address(entry)) in users:
        live, over = users[address]
        notes += [_signed_in(live)] if live else []
        notes += [_expired(over)] if over else []
    try:
        missing = entry.missing()
        if missing:
            notes.append(f"needs {', '.join(missing)}")
        if questions := entry.unanswered_inputs():
            notes.append(f"asks for {', '.join(one.id for one in questions)}")
        if not missing and not questions:
            entry.resolve()
        if not entry.is_allowed():
            notes.append("asks before its first use")
    except ConfigError as error:
        notes.append(str(error))
    return notes


def _hidden(entry: ServerEntry, config: Config) -> str:
    try:
        first = config[entry.name].source
    except ConfigError as error:
        first = error.file
    return f"not used: the name is taken in {with_tilde(first)}"


def _print_one(entry: ServerEntry, notes: list[str]) -> None:
    pairs = [("name", entry.name), ("type", entry.transport)]
    pairs.append(("command" if entry.url is None else "url", _summary(entry)))
    if entry.cwd is not None:
        pairs.append(("cwd", entry.cwd))
    pairs += [("env", f"{name}={value}") for name, value in mask_values(entry.env).items()]
    if entry.env_file is not None:
        pairs.append(("envFile", entry.env_file))
    pairs += [("header", f"{name}: {value}") for name, value in mask_values(entry.headers).items()]
    pairs += [("file", with_tilde(entry.source)), ("written for", entry.dialect.label)]
    pairs += [("note", note) for note in notes]
    print_pairs(pairs)


def _described(entry: ServerEntry, notes: list[str]) -> dict[str, Any]:
    described: dict[str, Any] = {"name": entry.name, "type": entry.transport}
    if entry.url is not None:
        described |= {"url": mask_url(entry.url), "headers": mask_values(entry.headers)}
    else:
        described |= {"command": entry.command, "args": mask_arguments(entry.args), "env": mask_values(entry.env)}
        described |= {"cwd": entry.cwd, "envFile": entry.env_file}
    described |= {"disabled": entry.disabled, "file": entry.source, "writtenFor": entry.dialect.label}
    return described | {"scope": entry.scope, "notes": notes}


# --- New entries ---


def _raw_entry(
    words: tuple[str, ...],
    *,
    env: tuple[str, ...],
    inherit_env: tuple[str, ...],
    cwd: str | None,
    header: tuple[str, ...],
    sse: bool,
) -> dict[str, Any]:
    """Return the entry as it is written to the config file."""
    if len(words) == 1 and (words[0].lower().startswith(_SCHEMES) or header or sse):
        if "${" not in words[0]:
            read_address(words[0])
        if env or inherit_env or cwd is not None:
            raise UsageError("--env, --inherit-env and --cwd are for a command, and this is an address.")
        raw: dict[str, Any] = {"type": "sse" if sse else "http", "url": words[0]}
        return raw | ({"headers": named_values(header, "header", "NAME:VALUE")} if header else {})
    if header or sse:
        raise UsageError("--header and --sse are for an address, and this is a command.")
    raw = {"command": words[0], "args": list(words[1:])}
    if env:
        raw["env"] = named_values(env, "env", "NAME=VALUE")
    if inherit_env:
        raw["inheritEnv"] = list(inherit_env)
    if cwd is not None:
        raw["cwd"] = str(Path(cwd).absolute())
    elif any(not Path(word).is_absolute() and os.path.isfile(word) for word in words):  # noqa: PTH113 - pathlib raises
        # The command has a relative path: it works only from this folder.
        raw["cwd"] = str(Path.cwd())
    return raw


def _refuse_config(command: str) -> None:
    if global_options().config is not None:
        raise UsageError(f"'mcplumb {command}' changes {user_config_file()} only: leave --config out.")


# Changes to mcplumb's own file


def add_server(name: str, raw: dict[str, Any], *, replace: bool = False) -> str:
    """Write a server to mcplumb's own file and return the file's path; ``raw`` is the entry as JSON data.

    Raises `UsageError` if the name is not valid or, without ``replace``, is taken; `ConfigError` if the file or the
    entry is not valid. The file is not changed then.
    """
    _check_name(name)
    file = user_config_file()
    entries = read_entries({"mcpServers": {name: raw}}, ConfigLocation(file, MCPLUMB, "user", home())) or {}
    for found in entries.values():
        if isinstance(found, ConfigError):
            raise found
        found.missing()  # raises if a variable reference is malformed
    try:
        encoded = msgspec.Raw(msgspec.json.encode(raw))
    except UnicodeEncodeError:
        raise UsageError(
            f"The server {name!r} cannot be added: a text in its entry is not valid UTF-8, and so cannot be written "
            "as JSON."
        ) from None

    def change(servers: dict[str, msgspec.Raw]) -> None:
        if name in servers and not replace:
            raise UsageError(f"There is a server {name!r} in {file} already: choose another name, or give --replace.")
        servers[name] = encoded

    _change(file, change)
    return file


def remove_server(name: str) -> str:
    """Remove a server from mcplumb's own file and return the file's path; raise `UnknownServer` if it is not there."""
    file = user_config_file()

    def change(servers: dict[str, msgspec.Raw]) -> None:
        if name not in servers:
            raise UnknownServer(name, servers, where=with_tilde(file))
        del servers[name]

    _change(file, change)
    return file


def _change(file: str, change: Callable[[dict[str, msgspec.Raw]], None]) -> None:
    with locked(file):
        data = read_file(file) or b"{}"
        document = decode_strict_json(data, file)
        server_tables(document, file)
        # Only the outline is decoded; the values are copied as raw JSON.
        outline = msgspec.json.decode(data.decode("utf-8-sig"), type=dict[str, msgspec.Raw])
        key = "servers" if "servers" in outline and "mcpServers" not in outline else "mcpServers"
        servers = msgspec.json.decode(outline.get(key, msgspec.Raw(b"{}")), type=dict[str, msgspec.Raw])
        change(servers)
        outline[key] = msgspec.Raw(msgspec.json.encode(servers))
        replace_file(file, msgspec.json.format(msgspec.json.encode(outline), indent=2) + b"\n")


def _check_name(name: str) -> None:
    if not name or not name.isprintable() or any(character.isspace() for character in name) or name.startswith("-"):
        raise UsageError(f"A server cannot have the name {name!r}: use letters, digits, dots, dashes and underscores.")
    if name == "stdio" or read_address(name) is not None:
        raise UsageError(f"A server cannot have the name {name!r}: -s would take it for an address.")
