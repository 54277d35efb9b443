"""From what a file says of a server to an entry."""

from __future__ import annotations

from typing import Any

import pytest

from mcplumb.config.entry import Input, ServerEntry
from mcplumb.config.files import ConfigError
from mcplumb.config.locations import COMMON, ConfigLocation
from mcplumb.config.parse import read_entries

PLACE = ConfigLocation("/p/f.json", COMMON, "named", "/p")


def read(raw: Any) -> ServerEntry:
    found = (read_entries({"mcpServers": {"it": raw}}, PLACE) or {})["it"]
    if isinstance(found, ConfigError):
        raise found
    return found


@pytest.mark.parametrize(
    ("raw", "command", "args"),
    [
        ({"command": "x"}, "x", ()),
        ({"command": "x", "args": None, "env": None, "cwd": None}, "x", ()),
        ({"command": "x", "args": ["a", 1, 2.0, 2.5, True, False]}, "x", ("a", "1", "2", "2.5", "true", "false")),
        ({"type": "stdio", "command": "x"}, "x", ()),
        ({"type": "local", "command": "x", "tools": ["*"]}, "x", ()),
        ({"transport": "stdio", "command": "x"}, "x", ()),
        ({"command": ["x", "a"], "args": ["b"]}, "x", ("a", "b")),
        ({"type": "stdio", "command": "x", "url": "http://no"}, "x", ()),
    ],
)
def test_commands(raw: Any, command: str, args: tuple[str, ...]) -> None:
    entry = read(raw)
    assert (entry.transport, entry.command, entry.args, entry.url) == ("stdio", command, args, None)
    assert (entry.name, entry.source, entry.raw) == ("it", "/p/f.json", raw)


@pytest.mark.parametrize(
    ("raw", "transport"),
    [
        ({"url": "http://x"}, "http"),
        ({"serverUrl": "http://x"}, "http"),
        ({"httpUrl": "http://x"}, "http"),
        ({"type": "http", "url": "http://x"}, "http"),
        ({"type": "streamable-http", "url": "http://x"}, "http"),
        ({"type": "streamableHttp", "url": "http://x"}, "http"),
        ({"type": "sse", "url": "http://x"}, "sse"),
        ({"transport": "sse", "url": "http://x"}, "sse"),
        ({"type": "http", "url": "http://x", "command": "no"}, "http"),
    ],
)
def test_addresses(raw: Any, transport: str) -> None:
    entry = read(raw)
    assert (entry.transport, entry.url, entry.command) == (transport, "http://x", None)


def test_everything_else() -> None:
    entry = read(
        {
            "command": "x",
            "env": {"A": "1", "B": 2, "C": None, "D": True},
            "envFile": ".env",
            "cwd": "sub",
            "inheritEnv": ["E"],
            "disabled": True,
        }
    )
    assert entry.env == {"A": "1", "B": "2", "D": "true"}
    assert (entry.env_file, entry.cwd, entry.inherit_env, entry.disabled) == (".env", "sub", ("E",), True)
    assert read({"url": "http://x", "headers": {"A": "b"}}).headers == {"A": "b"}
    assert read({"command": "x", "inheritEnv": True}).inherit_env is True
    assert read({"command": "x", "enabled": False}).disabled
    assert not read({"command": "x", "enabled": True, "disabled": False}).disabled


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (None, ": it must be an object with a command or a url, not null."),
        ("x", ": it must be an object with a command or a url, not a string."),
        ({}, ': it needs a "command" that starts it, or the "url" where it is.'),
        (
            {"command": "x", "url": "y"},
            ': it has a command and a url: say which counts, with "type": "stdio" or "http".',
        ),
        (
            {"type": "ws", "url": "y"},
            ", key 'type': mcplumb does not know the type 'ws': it knows stdio, http and sse.",
        ),
        ({"transport": {"type": "http"}, "url": "y"}, ", key 'transport': it must be a string, not an object."),
        ({"type": "stdio", "url": "y"}, ': a server of the type stdio needs a "command" that starts it.'),
        ({"type": "sse", "command": "y"}, ': a server of the type sse needs the "url" where it is.'),
        ({"command": 1}, ", key 'command': it must be a string, not a number."),
        ({"command": ""}, ", key 'command': it is empty."),
        ({"command": []}, ", key 'command': it must be a string, not a list."),
        ({"command": "x", "args": "a"}, ", key 'args': it must be a list of strings, not a string."),
        ({"command": ["x"], "args": "a"}, ", key 'args': it must be a list of strings, not a string."),
        ({"command": "x", "args": ["a", None]}, ", key 'args': all items must be strings: number 2 is not."),
        ({"command": "x", "env": []}, ", key 'env': it must be an object of names and values, not a list."),
        ({"command": "x", "env": {"A": {}}}, ", key 'env.A': it must be a string, not an object."),
        ({"command": "x", "cwd": True}, ", key 'cwd': it must be a string, not a truth value."),
        ({"command": "x", "envFile": ""}, ", key 'envFile': it is empty."),
        (
            {"command": "x", "inheritEnv": [1]},
            ", key 'inheritEnv': it must be true, false, or a list of names of variables.",
        ),
        ({"url": 1.5}, ", key 'url': it must be a string, not a number."),
        ({"url": "x", "headers": {"A": []}}, ", key 'headers.A': it must be a string, not a list."),
    ],
)
def test_what_is_wrong_is_told_with_its_place(raw: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(raw)
    assert str(caught.value) == f"In /p/f.json, server 'it'{said}"


def test_one_that_is_wrong_does_no_harm_to_others() -> None:
    found = read_entries({"mcpServers": {"bad": 1, "good": {"command": "x"}}}, PLACE) or {}
    assert isinstance(found["bad"], ConfigError)
    assert isinstance(found["good"], ServerEntry)
    assert read_entries({"theme": "dark"}, PLACE) is None


def test_inputs() -> None:
    inputs = [
        {"id": "a", "type": "promptString", "description": "The key", "password": True},
        {"id": "b", "type": "pickString", "default": "x", "options": ["x", {"label": "Y", "value": "y"}]},
        {"id": "c", "description": 1, "default": 2, "options": 3},
        {"type": "promptString"},
        1,
    ]
    found = (read_entries({"servers": {"it": {"command": "x"}}, "inputs": inputs}, PLACE) or {})["it"]
    assert isinstance(found, ServerEntry)
    assert found.inputs == (
        Input("a", "The key", None, True),
        Input("b", "", "x", False, ("x", "y")),
        Input("c"),
    )
