"""Where config files are, and which dialect each program writes.

mcplumb's own files follow the XDG rules; those of other programs and of projects are where these keep them. The
programs agree on the outline of their files but not on the details, which `Dialect` records.
"""
# pathlib is avoided: importing it would slow down the start of every command.
# ruff: noqa: PTH111, PTH117, PTH118, PTH119, PTH120

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


# --- Dialects ---


class Dialect(msgspec.Struct, frozen=True):
    """The config format of one program."""

    #: The program's display name.
    label: str
    #: Whether ``${…}`` in values is expanded.
    expands: bool = True
    #: Whether ``$NAME`` without braces is expanded.
    has_bare_names: bool = False
    #: Whether ``unix:`` addresses mean HTTP over a socket instead of newline-delimited messages.
    has_unix_http: bool = False


MCPLUMB = Dialect("mcplumb")
CLAUDE_DESKTOP = Dialect("Claude Desktop", expands=False)
CLAUDE_CODE = Dialect("Claude Code")
CURSOR = Dialect("Cursor")
VSCODE = Dialect("VS Code", has_unix_http=True)
WINDSURF = Dialect("Windsurf")
GEMINI = Dialect("Gemini CLI", has_bare_names=True)
COPILOT = Dialect("Copilot CLI")
#: A file of no known program, with the common ``mcpServers`` key.
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
    """Return the dialect of a file, judged by its folder, its name and its contents."""
    folder = os.path.basename(os.path.dirname(path))
    found = _BY_FOLDER.get(folder) or _BY_NAME.get(os.path.basename(path))
    if found is not None:
        return found
    return COMMON if "mcpServers" in document else VSCODE


def project_folder(path: str) -> str:
    """Return the folder of the project that a file belongs to: its own, or the parent of one like ``.vscode``."""
    folder = os.path.dirname(path)
    return os.path.dirname(folder) if os.path.basename(folder) in _BY_FOLDER else folder


def server_tables(document: Any, file: str) -> tuple[dict[str, Any], list[Any]] | None:
    """Return the raw servers and the raw inputs of a file; None if the file has no servers key."""
    if not isinstance(document, dict):
        raise ConfigError('it must be a JSON object with "mcpServers".', file=file)
    inner = document.get("mcp")  # in the settings of VS Code
    for table, key in ((document, "mcpServers"), (document, "servers"), (inner, "servers")):
        if isinstance(table, dict) and key in table:
            servers = table[key]
            if not isinstance(servers, dict):
                raise ConfigError("it must be an object that maps names to servers.", file=file, key=key)
            inputs = table.get("inputs")
            return servers, inputs if isinstance(inputs, list) else []
    return None


# --- Locations ---

#: The origin of a file: the user's own, the current project's, or named explicitly (which counts as consent).
Scope: TypeAlias = Literal["user", "project", "named"]

_PROJECT_FILES = (
    (".mcp.json", CLAUDE_CODE),
    (".vscode/mcp.json", VSCODE),
    (".cursor/mcp.json", CURSOR),
    (".gemini/settings.json", GEMINI),
)


class ConfigLocation(msgspec.Struct, frozen=True):
    """The path of a config file that may exist, and how it is read."""

    path: str
    dialect: Dialect
    scope: Scope
    #: The folder that relative paths and ``${workspaceFolder}`` in it refer to.
    folder: str
    #: The keys that lead to the part of the file that applies.
    inside: tuple[str, ...] = ()


def user_config_file() -> str:
    """Return the path of mcplumb's own file, which ``mcplumb add`` and ``mcplumb remove`` edit."""
    return os.path.join(_xdg_folder("XDG_CONFIG_HOME", ".config"), "mcplumb", "servers.json")


def trust_file() -> str:
    """Return the path of the file that stores the user's consents to servers of projects."""
    return os.path.join(_xdg_folder("XDG_STATE_HOME", ".local/state"), "mcplumb", "trusted.json")


def home() -> str:
    """Return the user's home folder."""
    return os.path.expanduser("~")


def with_tilde(path: str) -> str:
    """Return the path with ``~`` for the home folder."""
    base = home()
    return f"~{path[len(base) :]}" if path.startswith(f"{base}{os.sep}") else path


def config_locations(folder: str) -> list[ConfigLocation]:
    """Return all files that apply to a folder, in order of precedence.

    mcplumb's own file comes first, so that no project can replace a server that the user has added. The project is the
    nearest folder upwards that has a project file or is the root of a Git repository.
    """
    top = _project(folder)
    home_folder = home()
    claude = os.path.join(_folder_from_env("CLAUDE_CONFIG_DIR", home_folder), ".claude.json")
    apps = (
        f"{home_folder}/Library/Application Support"
        if sys.platform == "darwin"
        else _xdg_folder("XDG_CONFIG_HOME", ".config")
    )
    copilot = _folder_from_env("COPILOT_HOME", f"{home_folder}/.copilot")
    others = [
        ConfigLocation(claude, CLAUDE_CODE, "user", folder),
        ConfigLocation(f"{apps}/Claude/claude_desktop_config.json", CLAUDE_DESKTOP, "user", folder),
        ConfigLocation(f"{home_folder}/.cursor/mcp.json", CURSOR, "user", folder),
        ConfigLocation(f"{apps}/Code/User/mcp.json", VSCODE, "user", folder),
        ConfigLocation(f"{home_folder}/.codeium/windsurf/mcp_config.json", WINDSURF, "user", folder),
        ConfigLocation(f"{home_folder}/.gemini/settings.json", GEMINI, "user", folder),
        ConfigLocation(f"{copilot}/mcp-config.json", COPILOT, "user", folder),
    ]
    known = {location.path for location in others}
    return [
        ConfigLocation(user_config_file(), MCPLUMB, "user", folder),
        ConfigLocation(claude, CLAUDE_CODE, "user", top, ("projects", top)),
        *(
            ConfigLocation(path, dialect, "project", top)
            for name, dialect in _PROJECT_FILES
            # If the project is the home folder, some project files are the user's own files.
            if (path := os.path.join(top, name)) not in known
        ),
        *others,
    ]


def _project(folder: str) -> str:
    names = (*(name for name, _ in _PROJECT_FILES), ".git")
    current = folder
    # Files in the home folder are the user's own; they do not make a project of everything below it.
    while current != home():
        if any(os.path.lexists(os.path.join(current, name)) for name in names):
            return current
        if (parent := os.path.dirname(current)) == current:
            break
        current = parent
    return folder


def _xdg_folder(variable: str, default: str) -> str:
    return _folder_from_env(variable, os.path.join(home(), default))


def _folder_from_env(variable: str, default: str) -> str:
    """Return the folder that a variable names. As XDG demands, a relative path is ignored: it could be a project's."""
    chosen = os.environ.get(variable, "")
    return chosen if os.path.isabs(chosen) else default
