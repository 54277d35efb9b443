"""Config files, one or all that are found."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mcplumb
from mcplumb import connect
from mcplumb.config import ConfigError, ServerEntry, UnknownServer, discover_config, load_config
from mcplumb.config.locations import CLAUDE_DESKTOP, COMMON, GEMINI, VSCODE, ConfigLocation
from mcplumb.config.parse import read_entries
from mcplumb.errors import UsageError
from tests.config.writing import write
from tests.repo.source import ROOT

X = {"command": "x"}


def test_a_file_is_a_mapping(project: Path) -> None:
    config = load_config(write(project / "f.json", {"mcpServers": {"a": X, "bad": {}, "b": {"url": "http://y"}}}))
    assert isinstance(config, Mapping)
    assert list(config) == ["a", "b"]
    assert len(config) == 2
    assert config["a"].command == "x"
    assert config.get("c") is None
    assert "a" in config
    assert "bad" not in config
    assert 1 not in config
    assert config.files == [f"{project}/f.json"]
    assert repr(config) == "<Config with a, b>"
    assert repr(load_config(write(project / "f.json", {"mcpServers": {}}))) == "<Config with no servers>"


def test_what_is_wrong_is_told_on_use(project: Path) -> None:
    config = load_config(write(project / "f.json", {"mcpServers": {"a": X, "bad": {}}}))
    assert [fault.entry for fault in config.faults] == ["bad"]
    for _ in range(2):
        with pytest.raises(ConfigError, match="server 'bad': it needs a"):
            config["bad"]
    with pytest.raises(UnknownServer, match=r"There is no server 'c' in the config files\. There are: a\."):
        config["c"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is not valid JSON"),
        ("[]", "it must be a JSON object"),
        ("{}", 'there is neither "mcpServers" nor "servers" in it.'),
        ('{"servers": 1}', "key 'servers': it must be an object"),
    ],
)
def test_a_file_that_cannot_be_read(project: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(write(project / "f.json", text))


def test_a_mapping_is_read_like_a_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNITS", "metric")
    servers: dict[str, Any] = {
        "a": {"command": "x", "args": ["-u", "${UNITS}"], "env": {"HERE": "${workspaceFolder}"}, "cwd": "sub"},
        "off": {**X, "disabled": True},
        "unset": {"url": "${THIS_IS_NOT_SET}"},
        "bad": {"command": "x", "args": "no list"},
    }
    given: dict[str, Any] = {"mcpServers": servers, "theme": "dark"}
    config = load_config(given)
    from_file = load_config(write(project / "f.json", given))
    assert list(config) == list(from_file) == ["a", "off", "unset"]
    assert config["a"].connect_arguments() == from_file["a"].connect_arguments()
    assert config["a"].connect_arguments() == (
        ["x", "-u", "metric"],
        {"env": {"HERE": str(project)}, "cwd": f"{project}/sub"},
    )
    assert config["off"].disabled
    assert config.files == []
    with pytest.raises(ConfigError, match=r"^In the given mapping, server 'unset': it needs the variable THIS_IS_NOT"):
        config["unset"].connect_arguments()
    with pytest.raises(ConfigError, match=r"^In the given mapping, server 'bad', key 'args': it must be a list of "):
        config["bad"]
    servers["a"]["args"].append("later")
    assert config["a"].args == ("-u", "${UNITS}")


def test_a_mapping_may_have_the_key_and_the_inputs_of_vscode(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config({"servers": {"a": {"command": "x", "args": ["${input:key}"]}}, "inputs": [{"id": "key"}]})
    assert [one.id for one in config["a"].unanswered_inputs()] == ["key"]
    monkeypatch.setenv("MCPLUMB_INPUT_KEY", "7")
    assert config["a"].connect_arguments()[0] == ["x", "7"]


def test_a_mapping_may_have_the_values_that_python_has(project: Path) -> None:
    given = {"command": Path("/bin/x"), "args": ("-p", project, 7), "cwd": project, "env": MappingProxyType({"A": 1})}
    config = load_config(MappingProxyType({"mcpServers": MappingProxyType({"a": given})}))
    assert config["a"].connect_arguments() == (
        ["/bin/x", "-p", str(project), "7"],
        {"env": {"A": "1"}, "cwd": str(project)},
    )


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({"command": b"x"}, "key 'command': it must be a string, not a bytes"),
        ({"command": "x", "args": {"-u"}}, "key 'args': it must be a list of strings, not a set"),
        ({"command": "x", "env": {"A": object()}}, r"key 'env\.A': it must be a string, not an object"),
        ({"command": "x", "env": {7: "x"}}, "key 'env': its names must be strings, not 7"),
        (object(), "it must be an object with a command or a url, not an object"),
        (["x"], "it must be an object with a command or a url, not a list"),
    ],
)
def test_values_that_json_does_not_have_are_refused(raw: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^In the given mapping, server 'it'(: |, ){said}"):
        load_config({"mcpServers": {"it": raw}})["it"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, 'there is neither "mcpServers" nor "servers" in it.'),
        ({"mcpServers": 1}, "key 'mcpServers': it must be an object that maps names to servers."),
    ],
)
def test_a_mapping_that_is_no_config(given: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^In the given mapping[:,] {said}"):
        load_config(given)


def test_a_mapping_that_contains_itself() -> None:
    given: dict[str, Any] = {"mcpServers": {}}
    given["mcpServers"]["a"] = given
    with pytest.raises(ConfigError, match=r"^In the given mapping: its values are nested too deeply\."):
        load_config(given)


def test_a_file_that_is_not_there(project: Path, home: Path) -> None:
    with pytest.raises(ConfigError, match=f"In {project}/gone.json: there is no such file."):
        load_config("gone.json")
    with pytest.raises(ConfigError, match=f"In {home}/gone.json: there is no such file."):
        load_config("~/gone.json")


def test_nothing_is_found() -> None:
    config = discover_config()
    assert dict(config) == {}
    assert (config.files, config.faults, config.hidden) == ([], [], [])
    with pytest.raises(UnknownServer, match="There are none: add one"):
        config["x"]


def test_all_dialects_are_found(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    common = "mcpServers"
    documents: dict[Path, Any] = {
        home / ".config/mcplumb/servers.json": {common: {"own": X}},
        project / ".mcp.json": {common: {"code": X}},
        project / ".vscode/mcp.json": '{"servers": {"vs": {"command": "x"},}, /* yes */}',
        project / ".cursor/mcp.json": {common: {"cursor": X}},
        project / ".gemini/settings.json": {"theme": "dark", common: {"gemini": X}},
        home / ".claude.json": {common: {"claude": X}, "projects": {str(project): {common: {"local": X}}}},
        home / ".config/Claude/claude_desktop_config.json": {common: {"desktop": X}},
        home / ".cursor/mcp.json": {common: {"my-cursor": X}},
        home / ".config/Code/User/mcp.json": {"servers": {"my-vs": X}},
        home / ".codeium/windsurf/mcp_config.json": {common: {"windsurf": {"serverUrl": "http://x"}}},
        home / ".gemini/settings.json": {"mcp": {"allowed": []}},
        home / ".copilot/mcp-config.json": {common: {"copilot": {"type": "local", **X}}},
    }
    for path, document in documents.items():
        write(path, document)
    config = discover_config()
    assert config.faults == []
    assert {name: (one.dialect.label, one.scope) for name, one in config.items()} == {
        "own": ("mcplumb", "user"),
        "local": ("Claude Code", "user"),
        "code": ("Claude Code", "project"),
        "vs": ("VS Code", "project"),
        "cursor": ("Cursor", "project"),
        "gemini": ("Gemini CLI", "project"),
        "claude": ("Claude Code", "user"),
        "desktop": ("Claude Desktop", "user"),
        "my-cursor": ("Cursor", "user"),
        "my-vs": ("VS Code", "user"),
        "windsurf": ("Windsurf", "user"),
        "copilot": ("Copilot CLI", "user"),
    }
    assert len(config.files) == len(documents) - 1
    assert list(load_config()) == list(config)
    # One of the user's own means the same, named or found; one of a project's is agreed to by who names it.
    assert load_config(home / ".cursor/mcp.json")["my-cursor"] == config["my-cursor"]
    assert load_config(home / ".claude.json")["claude"] == config["claude"]
    assert load_config(".mcp.json")["code"] == config["code"].with_consent()


def test_the_first_has_the_name(home: Path, project: Path) -> None:
    write(home / ".cursor/mcp.json", {"mcpServers": {"a": X, "b": X, "bad": X}})
    write(home / ".gemini/settings.json", {"mcpServers": {"a": {}}})
    write(project / ".mcp.json", {"mcpServers": {"a": X, "b": X, "bad": {}}})
    write(home / ".config/mcplumb/servers.json", {"mcpServers": {"a": X}})
    config = discover_config()
    assert [config[name].dialect.label for name in "ab"] == ["mcplumb", "Claude Code"]
    assert [(one.name, one.dialect.label) for one in config.hidden] == [
        ("a", "Claude Code"),
        ("a", "Cursor"),
        ("b", "Cursor"),
        ("bad", "Cursor"),
    ]
    with pytest.raises(ConfigError, match="server 'bad'"):
        config["bad"]


def test_a_bad_file_is_passed_over_and_told(home: Path, project: Path) -> None:
    write(home / ".cursor/mcp.json", {"mcpServers": {"a": X}})
    write(project / ".mcp.json", "{")
    write(home / ".claude.json", {"projects": []})
    config = discover_config()
    assert list(config) == ["a"]
    assert [fault.file for fault in config.faults] == [f"{project}/.mcp.json"]
    with pytest.raises(UnknownServer, match=r"It may be in a file that was not read\. In .*: it is not valid JSON"):
        config["c"]


def test_pipes_and_folders_are_passed_over(project: Path) -> None:
    os.mkfifo(project / ".mcp.json")
    (project / ".vscode" / "mcp.json").mkdir(parents=True)
    assert discover_config().faults == []


def test_another_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project / "inner" / ".mcp.json", {"mcpServers": {"a": X}})
    assert list(discover_config()) == []
    assert list(discover_config("inner")) == ["a"]
    assert discover_config("inner")["a"].folder == f"{project}/inner"


def test_a_folder_that_is_gone(project: Path) -> None:
    gone = project / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match="The current directory does not exist any more"):
        discover_config()
    for place in ("f.json", {"mcpServers": {"a": X}}):
        with pytest.raises(UsageError, match="The current directory does not exist any more"):
            load_config(place)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["", "x", "${A:-1}", "${", "http://x", "sse"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["A", "id", "type", ""]), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = ("command", "args", "env", "envFile", "cwd", "url", "headers", "type", "inheritEnv", "disabled")
ENTRIES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6) | VALUES


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the folders are only there to be empty
@given(st.dictionaries(st.text(max_size=3), ENTRIES, max_size=3), VALUES)
def test_whatever_is_in_a_file_is_used_or_told(servers: Any, inputs: Any) -> None:
    for dialect in (COMMON, GEMINI, CLAUDE_DESKTOP, VSCODE):
        found = read_entries({"mcpServers": servers, "inputs": inputs}, ConfigLocation("/f", dialect, "named", "/"))
        assert found is not None
        assert list(found) == list(servers)
        for one in found.values():
            if isinstance(one, ServerEntry):
                with contextlib.suppress(ConfigError):
                    target, options = one.connect_arguments()
                    assert target
                    assert set(options) <= {"env", "cwd", "inherit_env", "headers", "http_sse"}
                    assert len(one.digest()) == 64


def test_a_client_takes_an_entry(project: Path) -> None:
    shutil.copy(ROOT / "examples" / "weather.py", project)
    servers = {"weather": {"command": sys.executable, "args": ["weather.py"], "env": {"A": "1"}}}
    config = mcplumb.load_config(write(project / ".mcp.json", {"mcpServers": servers}))

    async def main() -> str:
        async with connect(config["weather"]) as client:
            return client.server_info.name if client.server_info else ""

    assert asyncio.run(main()) == "weather"
