"""Changing our own file."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from mcplumb.cli.commands.servers import add_server, remove_server
from mcplumb.config import ConfigError, UnknownServer, discover_config
from mcplumb.config.locations import user_config_file
from mcplumb.errors import UsageError
from tests.config.writing import write

X = {"command": "x", "args": ["a"]}
ODD = """{
  "$schema": "kept",
  "mcpServers": {
    "z": {"command": "z", "unknown": {"n": 1.0, "big": 123456789012345678901234567890, "e": 1E5, "s": "\\u00e4"}},
    "a": {"command": "a"}
  },
  "more": [1, {"b": null}]
}"""


def test_a_server_is_added_and_removed() -> None:
    assert add_server("it", {"command": "x"}) == user_config_file()
    file = Path(user_config_file())
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert discover_config()["it"].raw == {"command": "x"}
    indented = ("{", '  "mcpServers": {', '    "it": {', '      "command": "x"', "    }", "  }", "}", "")
    assert file.read_text() == "\n".join(indented)
    assert remove_server("it") == user_config_file()
    assert file.read_text() == '{\n  "mcpServers": {}\n}\n'
    assert [path.name for path in file.parent.iterdir()] == ["servers.json"]


def test_a_name_that_is_taken_is_replaced_on_demand_only() -> None:
    add_server("it", X)
    add_server("other", X)
    with pytest.raises(UsageError, match=f"There is a server 'it' in {user_config_file()} already"):
        add_server("it", {"url": "http://y"})
    assert discover_config()["it"].raw == X
    add_server("it", {"url": "http://y"}, replace=True)
    assert discover_config()["it"].raw == {"url": "http://y"}
    assert list(discover_config()) == ["it", "other"]


def test_what_mcplumb_does_not_know_stays_to_the_digit() -> None:
    file = write(Path(user_config_file()), ODD)
    add_server("new", X)
    remove_server("new")
    assert "".join(file.read_text().split()) == "".join(ODD.split())
    remove_server("z")
    assert "".join(file.read_text().split()) == (
        '{"$schema":"kept","mcpServers":{"a":{"command":"a"}},"more":[1,{"b":null}]}'
    )


def test_the_key_of_the_file_is_used() -> None:
    file = write(Path(user_config_file()), '\ufeff{"servers": {}}')
    add_server("it", {"command": "x"})
    assert "".join(file.read_text().split()) == '{"servers":{"it":{"command":"x"}}}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is not valid JSON"),
        ("[]", "it must be a JSON object"),
        ('{"mcpServers": []}', "it must be an object"),
        ('{"mcpServers": {}} // mine', "it has comments or trailing commas, which would be lost"),
    ],
)
def test_a_file_that_is_wrong_is_left_alone(text: str, said: str) -> None:
    file = write(Path(user_config_file()), text)
    with pytest.raises(ConfigError, match=said):
        add_server("it", X)
    with pytest.raises(ConfigError, match=said):
        remove_server("it")
    assert file.read_text() == text
    assert [path.name for path in file.parent.iterdir()] == ["servers.json"]


def test_an_empty_file_is_as_none() -> None:
    write(Path(user_config_file()), "")
    add_server("it", X)
    assert list(discover_config()) == ["it"]


@pytest.mark.parametrize("name", ["", "a b", "-x", "a\n", "\x1b[1m"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(UsageError, match="use letters, digits, dots, dashes and underscores"):
        add_server(name, X)
    assert not Path(user_config_file()).exists()


@pytest.mark.parametrize("name", ["stdio", "http://x", "unix:x"])
def test_names_that_are_addresses(name: str) -> None:
    with pytest.raises(UsageError, match="-s would take it for an address"):
        add_server(name, X)


@pytest.mark.parametrize("raw", [{}, {"command": "${config:x}"}, {"command": "x", "args": 1}])
def test_servers_that_are_wrong(raw: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="server 'it'"):
        add_server("it", raw)
    assert not Path(user_config_file()).exists()


def test_a_server_that_is_not_there() -> None:
    add_server("it", X)
    with pytest.raises(
        UnknownServer, match=r"There is no server 'other' in ~/.config/mcplumb/servers.json\. There are: it\."
    ):
        remove_server("other")


def test_a_link_stays_one(home: Path) -> None:
    real = write(home / "dotfiles" / "servers.json", "{}")
    file = Path(user_config_file())
    file.parent.mkdir(parents=True)
    file.symlink_to(real)
    add_server("it", X)
    assert file.is_symlink()
    assert '"it"' in real.read_text()
    assert list(real.parent.iterdir()) == [real]
