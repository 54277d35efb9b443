"""``mcplumb wrap`` and ``unwrap``: put the tap into a host's config file, and take it out again."""

from __future__ import annotations

import difflib
import os
import shlex
import sys
from pathlib import Path

import click

from mcplumb.cli.command_group import BaseCommand
from mcplumb.cli.command_runner import global_options
from mcplumb.cli.render.output import is_terminal, print_text, say
from mcplumb.config.files import ConfigError, UnknownServer, decode_json, locked, read_file, replace_file
from mcplumb.config.load_config import load_config
from mcplumb.config.locations import COMMON, ConfigLocation, config_locations, server_tables, with_tilde
from mcplumb.errors import UsageError
from mcplumb.recording.mask_secrets import mask_text

__all__ = ["unwrap", "wrap"]

#: The end of the name of the copy that is made before a file is changed.
_BACKUP = ".before-wrap"


class _ConfigCommand(BaseCommand):
    global_names = (*BaseCommand.global_names, "config")


@click.command(cls=_ConfigCommand)
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Change the file without asking.")
def wrap(name: str, *, yes: bool) -> None:
    """Put the tap into the config file of a host.

    The next time the host starts the server NAME, it starts the tap instead, which starts the server and records what
    the two say. The file to change is the first one with this server, in the order of 'mcplumb servers', or the one
    named with --config. The change is shown before it is made. Formatting and comments stay, and a copy of the old file
    is kept beside it.

    \b
    mcplumb wrap weather
    mcplumb wrap weather --config ~/.cursor/mcp.json --yes
    mcplumb unwrap weather
    """
    from mcplumb.tap.wrap_entry import wrap_entry

    location = _locate(name)
    with locked(location.path):
        before = _read(location.path)
        after = wrap_entry(before, location.path, name, _tap_program(), location.inside)
        if not _is_agreed(location.path, before, after, yes=yes):
            return
        _check_unchanged(location.path, before)
        backup = Path(f"{location.path}{_BACKUP}")
        if backup.is_symlink():
            # In a project of somebody else, it could lead to any file of the user.
            backup.unlink()
        # After another server of this file was wrapped, the copy from before that is kept.
        if not backup.is_file() or backup.read_bytes() != _without_taps(before, location).encode():
            _write(str(backup), before, like=location.path)
        _write(location.path, after, like=location.path)
    say(f"Changed. The file as it was is {with_tilde(str(backup))}.")
    say(f"Restart the host, use the server, and then: mcplumb show {shlex.quote(name)}")


@click.command(cls=_ConfigCommand)
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Change the file without asking.")
def unwrap(name: str, *, yes: bool) -> None:
    """Remove the tap from the config file.

    The entry becomes what it was before 'mcplumb wrap', byte for byte.

    \b
    mcplumb unwrap weather
    """
    from mcplumb.tap.wrap_entry import unwrap_entry

    location = _locate(name, is_wrapped=True)
    with locked(location.path):
        before = _read(location.path)
        after = unwrap_entry(before, location.path, name, location.inside)
        if not _is_agreed(location.path, before, after, yes=yes):
            return
        _check_unchanged(location.path, before)
        _write(location.path, after, like=location.path)
        backup = Path(f"{location.path}{_BACKUP}")
        if backup.is_file() and backup.read_bytes() == after.encode():
            backup.unlink()
    say("Changed back. Restart the host.")


def _locate(name: str, *, is_wrapped: bool = False) -> ConfigLocation:
    """Return the place of the server: in the named file, or in the first that has it."""
    from mcplumb.tap.wrap_entry import is_wrapped as has_tap

    locations = config_locations(str(Path.cwd()))
    config = global_options().config
    if config is not None:
        file = str(Path(config).expanduser().absolute())
        # A file may have a part for the project, besides.
        part = next((each for each in locations if each.inside and each.path == file and _has(each, name)), None)
        if part is not None:
            return part
        load_config(file)[name]  # raises if there is none, or if it is broken
        return ConfigLocation(file, COMMON, "named", str(Path(file).parent))
    found = [each for each in locations if _has(each, name)]
    if is_wrapped:
        wrapped = [each for each in found if has_tap(_read(each.path), each.path, name, each.inside)]
        found = wrapped or found
    if not found:
        raise UnknownServer(name, load_config())
    for other in found[1:]:
        if other.path != found[0].path:
            say(f"The server is also in {with_tilde(other.path)}: give --config for that file.")
    return found[0]


def _has(location: ConfigLocation, name: str) -> bool:
    """Return whether a file that can be read has this server."""
    if not os.path.isfile(location.path):  # noqa: PTH113 - False, too, if its folder cannot be read
        return False
    try:
        return name in _servers(read_file(location.path) or b"{}", location.path, location.inside)
    except ConfigError:
        return False


def _servers(data: bytes, file: str, inside: tuple[str, ...]) -> list[str]:
    """Return the names of the servers in a part of a file."""
    document = decode_json(data, file)
    for key in inside:
        document = document.get(key) if isinstance(document, dict) else None
    tables = None if document is None else server_tables(document, file)
    return [] if tables is None else [*tables[0]]


def _without_taps(text: str, location: ConfigLocation) -> str:
    """Return the text of a config file without any tap, as far as it applies to the current folder."""
    from mcplumb.tap.wrap_entry import is_wrapped, unwrap_entry

    file = location.path
    parts = {location.inside, *(each.inside for each in config_locations(str(Path.cwd())) if each.path == file)}
    for inside in parts:
        for name in _servers(text.encode(), file, inside):
            if is_wrapped(text, file, name, inside):
                text = unwrap_entry(text, file, name, inside)
    return text


def _read(file: str) -> str:
    data = read_file(file)
    if data is None:
        raise ConfigError("there is no such file.", file=file)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"it is not UTF-8 text (byte {error.start}).", file=file) from None


def _check_unchanged(file: str, before: str) -> None:
    """Raise `ConfigError` if a host has written its file while the user was asked; hosts take no locks."""
    if _read(file) != before:
        raise ConfigError("it was changed by another program just now. Nothing was written: try again.", file=file)


def _write(file: str, text: str, *, like: str) -> None:
    """Replace a file, and give it the mode of another one."""
    mode = os.stat(like).st_mode & 0o777  # noqa: PTH116 - a path as text
    replace_file(file, text.encode())
    Path(file).chmod(mode)


def _is_agreed(file: str, before: str, after: str, *, yes: bool) -> bool:
    """Show a change, and return whether the user agrees to it."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), file, file, lineterm="", n=1)
    for line in lines:
        print_text(mask_text(line), "green" if line.startswith("+") else "red" if line.startswith("-") else None)
    if yes:
        return True
    if not is_terminal():
        raise UsageError("There is no terminal to ask in: give --yes to change the file.")
    if click.confirm("Change the file?", err=True):
        return True
    say("Nothing was changed.")
    return False


def _tap_program() -> list[str]:
    """Return how a host starts this mcplumb: with a whole path, because hosts have other search paths than shells."""
    script = Path(sys.executable).with_name("mcplumb")
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "mcplumb"]
