"""What the workbench can connect to: configured servers need consent and inputs, and show no secret."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcplumb.config.trust import is_trusted
from mcplumb.errors import UsageError
from mcplumb.view.api_routes import ApiError
from mcplumb.view.workbench.server_choice import ServerChoice, choose_server, list_configured
from tests.view.workbench.bench import SERVER, working


def write(file: Path, servers: dict[str, Any], **more: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.encode({"mcpServers": servers, **more}))


def test_a_server_of_the_user_needs_nothing(home: Path) -> None:
    write(home / ".config/mcplumb/servers.json", {"tea": {"command": "tea", "args": ["--api-key", "geheim", "x"]}})
    [shown] = list_configured()["servers"]
    assert (shown["name"], shown["summary"], shown["program"]) == ("tea", "tea --api-key '***' x", "mcplumb")
    assert ("consent" not in shown, shown["inputs"]) == (True, [])
    chosen = choose_server(ServerChoice(kind="configured", name="tea"), None)
    assert (chosen.place, chosen.words) == (["tea", "--api-key", "geheim", "x"], ("-s", "tea"))
    assert chosen.command == ["tea", "--api-key", "***", "x"]


@pytest.mark.req("VIW-1")
def test_a_server_of_a_project_is_shown_before_it_is_used(project: Path) -> None:
    file = project / ".mcp.json"
    write(file, {"tea": {"command": "tea", "args": ["now"], "env": {"TOKEN": "geheim"}}})
    [shown] = list_configured()["servers"]
    assert shown["consent"]["actions"] == ["tea now", f"in {project}", "with TOKEN: ***"]
    assert "geheim" not in str(shown)
    with pytest.raises(UsageError, match="have not agreed"):
        choose_server(ServerChoice(kind="configured", name="tea"), None)
    with pytest.raises(ApiError, match="has changed since"):
        choose_server(ServerChoice(kind="configured", name="tea", consent="0" * 64), None)
    digest = shown["consent"]["digest"]
    assert not is_trusted(digest)
    chosen = choose_server(ServerChoice(kind="configured", name="tea", consent=digest), None)
    assert (chosen.place, chosen.options["env"]) == (["tea", "now"], {"TOKEN": "geheim"})
    assert is_trusted(digest)
    assert "consent" not in list_configured()["servers"][0]
    write(file, {"tea": {"command": "evil"}})
    with pytest.raises(ApiError, match="has changed since"):
        choose_server(ServerChoice(kind="configured", name="tea", consent=digest), None)


def test_inputs_are_asked_for(project: Path) -> None:
    inputs = [
        {"id": "key", "type": "promptString", "description": "The key", "password": True, "default": "geheim"},
        {"id": "size", "type": "pickString", "options": ["s", "m"], "default": "m"},
    ]
    file = project / "own.json"
    write(file, {"tea": {"command": "tea", "args": ["${input:key}", "${input:size}"]}}, inputs=inputs)
    [shown] = list_configured(str(file))["servers"]
    assert [(each["id"], each["isSecret"], each["default"]) for each in shown["inputs"]] == [
        ("key", True, None),
        ("size", False, "m"),
    ]
    with pytest.raises(UsageError, match="needs the input 'key'"):
        choose_server(ServerChoice(kind="configured", name="tea"), None, str(file))
    answers = {"key": "k", "size": "s"}
    chosen = choose_server(ServerChoice(kind="configured", name="tea", answers=answers), None, str(file))
    assert chosen.place == ["tea", "k", "s"]


def test_what_is_wrong_is_said(home: Path) -> None:
    write(
        home / ".config/mcplumb/servers.json",
        {"bad": 3, "url": {"url": "https://user:geheim@tea.example/mcp?key=geheim"}, "var": {"command": "${NO_SUCH}"}},
    )
    found = list_configured()
    assert len(found["faults"]) == 1
    by_name = {each["name"]: each for each in found["servers"]}
    assert "geheim" not in str(by_name["url"])
    assert by_name["var"]["fault"] == "It needs NO_SUCH, not set in the environment of mcplumb view."


def test_secrets_are_not_shown_in_words() -> None:
    choice = ServerChoice(kind="command", command="tea --token geheim", folder="/srv", env={"KEY": "geheim"})
    chosen = choose_server(choice, None)
    assert chosen.place == ["tea", "--token", "geheim"]
    assert chosen.words == ("--cwd", "/srv", "-e", "KEY=…", "--", "tea", "--token", "***")
    address = ServerChoice(kind="address", address="https://tea.example/mcp", headers={"Authorization": "geheim"})
    chosen = choose_server(address, None)
    assert chosen.words == ("-s", "https://tea.example/mcp", "--header", "Authorization: …")
    assert chosen.options == {"headers": {"Authorization": "geheim"}}


async def test_a_configured_server_is_connected(home: Path) -> None:
    write(home / ".config/mcplumb/servers.json", {"bench": {"command": SERVER[0], "args": SERVER[1:]}})
    async with working() as bench:
        assert [each["name"] for each in (await bench.ask("/configured"))["servers"]] == ["bench"]
        opened = await bench.connect(kind="configured", name="bench")
        assert (opened["state"], opened["title"]) == ("open", "bench")
    assert os.environ["HOME"] == str(home)
