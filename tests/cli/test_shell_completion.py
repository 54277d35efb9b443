"""Suggestions: each kind, by each part of a line, from a server that has one of everything."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from examples.weather import server as weather
from mcplumb import Server, connect
from mcplumb.cli.shell import commands
from mcplumb.cli.shell_completion import _opened, suggest
from mcplumb.errors import RemoteError
from tests.cli.servers.kitchen import server as kitchen


def suggested(before: str, word: str, server: Server = kitchen) -> list[str]:
    async def ask() -> list[str]:
        async with connect(server) as client:
            session: Any = SimpleNamespace(client=client)
            return await suggest(client, commands(session), before, word)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("before", "word", "found"),
    [
        ("", "p", ["ping ", "prompt ", "prompts "]),
        ("nothing ", "", []),
        ("call ", "t", ["types "]),
        ("call ", "--a", ["--answer ", "--args "]),
        ("call --args ", "", []),
        ("call --args {} -o x --json ", "bu", ["burn "]),
        ("call types ", "p", ["part=", "place.city=", "place.lat=", "places="]),
        ("call types unit=c ", "u", []),
        ("call types ", "unit=", ["unit=c ", "unit=f "]),
        ("call types ", "hot=t", ["hot=true "]),
        ("call types ", "place.city=", []),
        ("call types ", "nothing.at.all=", []),
        ("call nothing ", "", []),
        ("tools --schema ", "ty", ["types "]),
        ("prompts --schema ", "", ["plan "]),
        ("help ", "pl", ["plan "]),
        ("log ", "de", ["debug "]),
        ("ping ", "", []),
        ("ping x ", "", []),
        ("prompt ", "", ["plan "]),
        ("prompt plan ", "", ["guests=", "meal="]),
        ("prompt plan meal=lunch ", "", ["guests="]),
        ("prompt plan ", "meal=br", ["meal=breakfast ", "meal=brunch "]),
        ("prompt plan meal=tea ", "guests=0", ["guests='0 for tea' "]),
        ("prompt plan meal=tea ", "guests='0", ["guests='0 for tea' "]),
        ("prompt plan ", "nothing=", []),
        ("prompt nothing ", "", []),
        ("complete ", "", ["'kitchen://{dish}/recipe' ", "plan "]),
        ("complete 'kitchen://{dish}/recipe' ", "", ["dish="]),
        # What wants to drive the terminal is left out.
        ("complete 'kitchen://{dish}/recipe' ", "dish=so", ["dish=soup "]),
        ("read ", "kitchen://m", ["kitchen://menu ", "kitchen://mup/recipe"]),
        ("read ", "ki", ["kitchen://", "kitchen://guest ", "kitchen://menu ", "kitchen://photo.png "]),
        ("read ", "other://", []),
        ("listen ", "kitchen://me", ["kitchen://menu "]),
        ("call 'types ", "a", []),
    ],
)
def test_each_kind(before: str, word: str, found: list[str]) -> None:
    assert suggested(before, word) == found


def test_a_server_that_does_not_complete_has_no_values() -> None:
    assert suggested("prompt plan ", "city=", weather) == []
    assert suggested("read ", "weather://O", weather) == []


def test_a_schema_may_be_anything() -> None:
    schema = {
        "type": "object",
        "properties": {
            "kind": {"const": "one"},
            "many": {"type": "array", "items": {"enum": ["a", 5, "b c"]}},
            "odd": {"enum": 7},
            "loop": {"$ref": "#"},
        },
    }

    class Told:
        revision = None

        async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
            return {
                "tools": [{"name": "odd", "inputSchema": schema}, {"name": 5}],
                "prompts": [{"name": "p", "arguments": 7}],
            }

    async def ask(before: str, word: str) -> list[str]:
        client = cast("Any", Told())
        return await suggest(client, commands(cast("Any", SimpleNamespace(client=client))), before, word)

    assert asyncio.run(ask("call odd ", "kind=")) == ["kind=one "]
    assert asyncio.run(ask("call odd ", "many=")) == ["many='b c' ", "many=a "]
    assert asyncio.run(ask("call odd ", "odd=")) == []
    assert "loop.loop.kind=" in asyncio.run(ask("call odd ", "loop"))
    assert asyncio.run(ask("prompt p ", "")) == []


def test_a_server_that_fails_is_not_hidden() -> None:
    class Refusing:
        async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
            raise RemoteError(-32603, "no")

    with pytest.raises(RemoteError):
        asyncio.run(suggest(cast("Any", Refusing()), commands(cast("Any", SimpleNamespace())), "call ", ""))


@pytest.mark.parametrize(
    ("template", "typed", "where"),
    [
        ("a://{x}/b/{y}", "", "a://"),
        ("a://{x}/b/{y}", "a:", "a://"),
        ("a://{x}/b/{y}", "c", None),
        ("a://{x}/b/{y}", "c://d", None),
        ("a://{x}/b/{y}", "a://1", ("a://", "x", "1", {}, "/b/")),
        ("a://{x}/b/{y}", "a://1/b/2", ("a://1/b/", "y", "2", {"x": "1"}, None)),
        ("a://{x}/b", "a://1/b", None),
        ("a://{+x}", "a://1", None),
    ],
)
def test_where_an_address_stops_in_a_template(template: str, typed: str, where: object) -> None:
    assert _opened(template, typed) == where
