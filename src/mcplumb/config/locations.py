"""Where config files are, and which dialect each program writes."""
# Without pathlib, which nothing here needs more of than this:
# ruff: noqa: PTH119, PTH120
# Without pathlib, as this is all that it would be used for:
# ruff: noqa: PTH111, PTH117, PTH118, PTH120

from __future__ import annotations

import os
import sys
from typing import Any, Literal, TypeAlias

import msgspec

from mcplumb.config.files import ConfigError

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
    "ConfigLocation",
    "Dialect",
    "Scope",
    "config_locations",
    "find_dialect",
    "home",
    "project_folder",
    "server_tables",
    "trust_file",
    "user_config_file",
    "with_tilde",
]


# Whose file it is: programs that start servers agree on the outline of their config files, but not on the details.


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


# Where config files are: ours by the XDG rules, those of other programs where they keep them, and a project's own.


#: Whose word it is: the user's own, that of a project somebody works in, or that of whoever named the file.
Scope: TypeAlias = Literal["user", "project", "named"]

_PROJECT_FILES = (
    (".mcp.json", CLAUDE_CODE),
    (".vscode/mcp.json", VSCODE),
    (".cursor/mcp.json", CURSOR),
    (".gemini/settings.json", GEMINI),
)


class ConfigLocation(msgspec.Struct, frozen=True):
    """A file that may be there, and how it is to be read."""

    path: str
    dialect: Dialect
    scope: Scope
    #: What relative paths and ``${workspaceFolder}`` in it mean.
    folder: str
    #: The keys that lead to the part of the file that counts.
    inside: tuple[str, ...] = ()


def user_config_file() -> str:
    """The file that ``mcplumb add`` and ``mcplumb remove`` edit."""
    return os.path.join(_base("XDG_CONFIG_HOME", ".config"), "mcplumb", "servers.json")


def trust_file() -> str:
    """The file that remembers which servers of projects the user has agreed to."""
    return os.path.join(_base("XDG_STATE_HOME", ".local/state"), "mcplumb", "trusted.json")


def home() -> str:
    """The user's folder."""
    return os.path.expanduser("~")


def with_tilde(path: str) -> str:
    """A path as people write it: with ``~`` for their own folder."""
    mine = home()
    return f"~{path[len(mine) :]}" if path.startswith(f"{mine}{os.sep}") else path


def config_locations(folder: str) -> list[ConfigLocation]:
    """All files that count for who works in that folder, in the order in which they are asked.

    Ours comes first: no project can take the place of a server that the user has added. A project is the nearest
    folder, from there up, that has one of the files, but not above the top of a repository.
    """
    top = _project(folder)
    mine = home()
    claude = os.path.join(_chosen("CLAUDE_CONFIG_DIR", mine), ".claude.json")
    apps = f"{mine}/Library/Application Support" if sys.platform == "darwin" else _base("XDG_CONFIG_HOME", ".config")
    copilot = _chosen("COPILOT_HOME", f"{mine}/.copilot")
    others = [
        ConfigLocation(claude, CLAUDE_CODE, "user", folder),
        ConfigLocation(f"{apps}/Claude/claude_desktop_config.json", CLAUDE_DESKTOP, "user", folder),
        ConfigLocation(f"{mine}/.cursor/mcp.json", CURSOR, "user", folder),
        ConfigLocation(f"{apps}/Code/User/mcp.json", VSCODE, "user", folder),
        ConfigLocation(f"{mine}/.codeium/windsurf/mcp_config.json", WINDSURF, "user", folder),
        ConfigLocation(f"{mine}/.gemini/settings.json", GEMINI, "user", folder),
        ConfigLocation(f"{copilot}/mcp-config.json", COPILOT, "user", folder),
    ]
    known = {place.path for place in others}
    return [
        ConfigLocation(user_config_file(), MCPLUMB, "user", folder),
        ConfigLocation(claude, CLAUDE_CODE, "user", top, ("projects", top)),
        *(
            ConfigLocation(path, dialect, "project", top)
            for name, dialect in _PROJECT_FILES
            # In the home folder, some have the names of the user's own.
            if (path := os.path.join(top, name)) not in known
        ),
        *others,
    ]


def _project(folder: str) -> str:
    names = (*(name for name, _ in _PROJECT_FILES), ".git")
    at = folder
    # What is in the home folder is the user's own, and no project around everything below.
    while at != home():
        if any(os.path.lexists(os.path.join(at, name)) for name in names):
            return at
        if (above := os.path.dirname(at)) == at:
            break
        at = above
    return folder


def _base(variable: str, usual: str) -> str:
    return _chosen(variable, os.path.join(home(), usual))


def _chosen(variable: str, usual: str) -> str:
    """The folder that a variable names. A relative one is ignored, as XDG says: a project could have it, too."""
    chosen = os.environ.get(variable, "")
    return chosen if os.path.isabs(chosen) else usual
