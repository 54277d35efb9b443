"""Changing our own file: as a whole or not at all, and nothing in it but the one server that is meant.

What mcplumb does not know stays, in its order and to the digit. A file that is not what it should be is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mcplumb.config.files import ConfigError, UnknownServer, decode_strict_json, locked, read_file, replace_file
from mcplumb.config.locations import MCPLUMB, ConfigLocation, home, server_tables, user_config_file, with_tilde
from mcplumb.config.parse import read_entries
from mcplumb.errors import UsageError
from mcplumb.transports.address import read_address

__all__ = ["add_server", "remove_server"]


def add_server(name: str, raw: dict[str, Any], *, replace: bool = False) -> str:
    """Write a server into our own file, as a config file says it, and return the path of that.

    `UsageError` if the name cannot be one or, unless it is to be replaced, is taken; `ConfigError` if the file, or what
    is to be written, is wrong. Nothing is changed then.
    """
    _check_name(name)
    file = user_config_file()
    entries = read_entries({"mcpServers": {name: raw}}, ConfigLocation(file, MCPLUMB, "user", home())) or {}
    for found in entries.values():
        if isinstance(found, ConfigError):
            raise found
        found.missing()  # which says what is wrong with its variables

    def change(servers: dict[str, msgspec.Raw]) -> None:
        if name in servers and not replace:
            raise UsageError(f"There is a server {name!r} in {file} already: choose another name, or give --replace.")
        servers[name] = msgspec.Raw(msgspec.json.encode(raw))

    _change(file, change)
    return file


def remove_server(name: str) -> str:
    """Take a server out of our own file, and return the path of that; `UnknownServer` if it is not in there."""
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
        # Only the outline is understood: what is inside is copied as it is.
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
