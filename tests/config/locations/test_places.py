"""Where config files are looked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mcplumb.config.locations import config_locations, trust_file, user_config_file, with_tilde


def project_of(folder: Path) -> Path:
    return Path(next(place.folder for place in config_locations(str(folder)) if place.scope == "project"))


def test_our_own_files_follow_the_xdg_rules(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_config_file() == f"{home}/.config/mcplumb/servers.json"
    assert trust_file() == f"{home}/.local/state/mcplumb/trusted.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert user_config_file() == "/c/mcplumb/servers.json"
    assert trust_file() == "/s/mcplumb/trusted.json"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("XDG_STATE_HOME", "")
    assert user_config_file() == f"{home}/.config/mcplumb/servers.json"
    assert trust_file() == f"{home}/.local/state/mcplumb/trusted.json"


def test_paths_are_shown_as_people_write_them(home: Path) -> None:
    assert with_tilde(f"{home}/x/y") == "~/x/y"
    assert with_tilde(f"{home}2/x") == f"{home}2/x"
    assert with_tilde("/etc/x") == "/etc/x"


def test_all_places_in_their_order(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    (project / ".git").mkdir()
    found = [(place.path, place.dialect.label, place.scope) for place in config_locations(str(project))]
    assert found == [
        (f"{home}/.config/mcplumb/servers.json", "mcplumb", "user"),
        (f"{home}/.claude.json", "Claude Code", "user"),
        (f"{project}/.mcp.json", "Claude Code", "project"),
        (f"{project}/.vscode/mcp.json", "VS Code", "project"),
        (f"{project}/.cursor/mcp.json", "Cursor", "project"),
        (f"{project}/.gemini/settings.json", "Gemini CLI", "project"),
        (f"{home}/.claude.json", "Claude Code", "user"),
        (f"{home}/.config/Claude/claude_desktop_config.json", "Claude Desktop", "user"),
        (f"{home}/.cursor/mcp.json", "Cursor", "user"),
        (f"{home}/.config/Code/User/mcp.json", "VS Code", "user"),
        (f"{home}/.codeium/windsurf/mcp_config.json", "Windsurf", "user"),
        (f"{home}/.gemini/settings.json", "Gemini CLI", "user"),
        (f"{home}/.copilot/mcp-config.json", "Copilot CLI", "user"),
    ]
    assert config_locations(str(project))[1].inside == ("projects", str(project))


def test_other_systems_and_moved_folders(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/claude")
    monkeypatch.setenv("COPILOT_HOME", "/copilot")
    paths = [place.path for place in config_locations(str(project))]
    assert f"{home}/Library/Application Support/Claude/claude_desktop_config.json" in paths
    assert f"{home}/Library/Application Support/Code/User/mcp.json" in paths
    assert paths.count("/claude/.claude.json") == 2
    assert "/copilot/mcp-config.json" in paths


def test_a_relative_folder_could_be_a_projects(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", ".")
    monkeypatch.setenv("COPILOT_HOME", "x")
    paths = [place.path for place in config_locations(str(project))]
    assert f"{home}/.claude.json" in paths
    assert f"{home}/.copilot/mcp-config.json" in paths
    assert all(path.startswith("/") for path in paths)


@pytest.mark.parametrize("file", [".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json", ".gemini/settings.json", ".git"])
def test_the_project_is_the_nearest_folder_with_a_file(project: Path, file: str) -> None:
    below = project / "src" / "deep"
    below.mkdir(parents=True)
    assert project_of(below) == below
    (project / file).parent.mkdir(exist_ok=True)
    (project / file).write_text("{}")
    assert project_of(below) == project
    (project / "src" / ".mcp.json").write_text("{}")
    assert project_of(below) == project / "src"


def test_a_repository_ends_the_search(project: Path) -> None:
    (project / ".mcp.json").write_text("{}")
    inner = project / "inner" / "src"
    inner.mkdir(parents=True)
    (project / "inner" / ".git").mkdir()
    assert project_of(inner) == project / "inner"


def test_the_home_folder_is_no_project(home: Path) -> None:
    for name in (".cursor", ".gemini", "work"):
        (home / name).mkdir()
    (home / ".cursor" / "mcp.json").write_text("{}")
    (home / ".mcp.json").write_text("{}")
    assert project_of(home / "work") == home / "work"
    in_home = [place for place in config_locations(str(home)) if place.scope == "project"]
    assert [place.path for place in in_home] == [f"{home}/.mcp.json", f"{home}/.vscode/mcp.json"]
    assert project_of(Path("/")) == Path("/")
