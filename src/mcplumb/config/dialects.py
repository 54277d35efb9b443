"""Whose file it is: programs that start servers agree on the outline of their config files, but not on the details."""

# Without pathlib, which nothing here needs more of than this:
# ruff: noqa: PTH119, PTH120

from __future__ import annotations

import os
from typing import Any

import msgspec

from mcplumb.config.errors import ConfigError

__all__ = [
    "CLAUDE_CODE",
    "CLAUDE_DESKTOP",
    "COMMON",
    "COPILOT",
    "CURSOR",
    "GEMINI",
    "MCPLUMB",
    "VSCODE",
    "WINDSURF",
    "Dialect",
    "find_dialect",
    "project_folder",
    "server_tables",
]


class Dialect(msgspec.Struct, frozen=True):
    """How one program writes down servers."""

    #: What a person calls the program.
    label: str
    #: Whether ``${…}`` in values means something.
    expands: bool = True
    #: Whether ``$NAME`` without braces does.
    has_bare_names: bool = False
    #: Whether ``unix:`` addresses mean HTTP over a socket, and not lines.
    has_unix_http: bool = False


MCPLUMB = Dialect("mcplumb")
CLAUDE_DESKTOP = Dialect("Claude Desktop", expands=False)
CLAUDE_CODE = Dialect("Claude Code")
CURSOR = Dialect("Cursor")
VSCODE = Dialect("VS Code", has_unix_http=True)
WINDSURF = Dialect("Windsurf")
GEMINI = Dialect("Gemini CLI", has_bare_names=True)
COPILOT = Dialect("Copilot CLI")
#: A file that is nobody's, with ``mcpServers`` as most have it.
COMMON = Dialect("mcpServers")

_BY_NAME = {
    "claude_desktop_config.json": CLAUDE_DESKTOP,
    ".claude.json": CLAUDE_CODE,
    ".mcp.json": CLAUDE_CODE,
    "mcp_config.json": WINDSURF,
    "mcp-config.json": COPILOT,
}
_BY_FOLDER = {".cursor": CURSOR, ".vscode": VSCODE, ".gemini": GEMINI}


def find_dialect(path: str, document: dict[str, Any]) -> Dialect:
    """Whose file this is, by its name, the folder that it is in, and what is in it."""
    folder = os.path.basename(os.path.dirname(path))
    found = _BY_FOLDER.get(folder) or _BY_NAME.get(os.path.basename(path))
    if found is not None:
        return found
    return COMMON if "mcpServers" in document else VSCODE


def project_folder(path: str) -> str:
    """The folder of the project that a file belongs to: the one it is in, or above a folder like ``.vscode``."""
    folder = os.path.dirname(path)
    return os.path.dirname(folder) if os.path.basename(folder) in _BY_FOLDER else folder


def server_tables(document: Any, file: str) -> tuple[dict[str, Any], list[Any]] | None:
    """The servers of a file, still raw, and the inputs that they can ask for; None if it speaks of no servers."""
    if not isinstance(document, dict):
        raise ConfigError('there must be an object, in braces, and in it "mcpServers".', file=file)
    inner = document.get("mcp")  # where VS Code's settings have them
    for place, key in ((document, "mcpServers"), (document, "servers"), (inner, "servers")):
        if isinstance(place, dict) and key in place:
            servers = place[key]
            if not isinstance(servers, dict):
                raise ConfigError(
                    "it must be an object: names of servers, and what is to be known of each.", file=file, key=key
                )
            inputs = place.get("inputs")
            return servers, inputs if isinstance(inputs, list) else []
    return None
