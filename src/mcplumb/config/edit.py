"""Add servers to mcplumb's own config file, and remove them.

A change touches only the one server and replaces the file atomically. Unknown keys keep their order and their exact
text. A file that is not valid is not changed.
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

    def change(servers: dict[str, msgspec.Raw]) -> None:
        if name in servers and not replace:
            raise UsageError(f"There is a server {name!r} in {file} already: choose another name, or give --replace.")
        servers[name] = msgspec.Raw(msgspec.json.encode(raw))

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
