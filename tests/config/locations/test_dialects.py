"""Whose file it is."""

from __future__ import annotations

from typing import Any

import pytest

from mcplumb.config.files import ConfigError
from mcplumb.config.locations import (
    CLAUDE_CODE,
    CLAUDE_DESKTOP,
    COMMON,
    COPILOT,
    CURSOR,
    GEMINI,
    VSCODE,
    WINDSURF,
    Dialect,
    find_dialect,
    project_folder,
    server_tables,
)


@pytest.mark.parametrize(
    ("path", "document", "dialect"),
    [
        ("/a/claude_desktop_config.json", {}, CLAUDE_DESKTOP),
        ("/a/.mcp.json", {}, CLAUDE_CODE),
        ("/a/.claude.json", {}, CLAUDE_CODE),
        ("/a/.cursor/mcp.json", {}, CURSOR),
        ("/a/.vscode/mcp.json", {"mcpServers": {}}, VSCODE),
        ("/a/.codeium/windsurf/mcp_config.json", {}, WINDSURF),
        ("/a/.gemini/settings.json", {}, GEMINI),
        ("/a/.copilot/mcp-config.json", {}, COPILOT),
        ("/a/my.json", {"mcpServers": {}}, COMMON),
        ("/a/mcp.json", {"servers": {}}, VSCODE),
        ("/a/settings.json", {"mcp": {"servers": {}}}, VSCODE),
    ],
)
def test_a_file_is_known_by_its_name_or_by_what_is_in_it(path: str, document: dict[str, Any], dialect: Dialect) -> None:
    assert find_dialect(path, document) is dialect


@pytest.mark.parametrize(
    ("path", "folder"),
    [("/p/.mcp.json", "/p"), ("/p/.vscode/mcp.json", "/p"), ("/p/.cursor/mcp.json", "/p"), ("/p/q/x.json", "/p/q")],
)
def test_the_folder_of_a_project(path: str, folder: str) -> None:
    assert project_folder(path) == folder


@pytest.mark.parametrize(
    ("document", "tables"),
    [
        ({"mcpServers": {"a": 1}}, ({"a": 1}, [])),
        ({"servers": {"a": 1}, "inputs": [2]}, ({"a": 1}, [2])),
        ({"mcp": {"servers": {"a": 1}, "inputs": [2]}}, ({"a": 1}, [2])),
        ({"mcpServers": {"a": 1}, "servers": {"b": 1}, "inputs": {}}, ({"a": 1}, [])),
        ({"mcp": {"allowed": []}, "theme": "dark"}, None),
        ({"mcp": 1}, None),
    ],
)
def test_where_the_servers_are(document: Any, tables: Any) -> None:
    assert server_tables(document, "f") == tables


@pytest.mark.parametrize("document", [[], None, "x", 1])
def test_a_file_that_is_no_object(document: Any) -> None:
    with pytest.raises(ConfigError, match="In f: it must be a JSON object"):
        server_tables(document, "f")


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_servers_that_are_no_object(key: str) -> None:
    with pytest.raises(ConfigError, match=f"In f, key '{key}': it must be an object"):
        server_tables({key: []}, "f")
