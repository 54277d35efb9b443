"""Requests whose headers say one thing and whose body says another, to get past whoever only looks at headers."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.attacks.harness import Fields, Target, post
from tests.process.harness import LEGACY, MODERN, Message, modern, modern_call, modern_meta

HEADER_MISMATCH = -32020

CALL = modern_call(1, "echo", text="hello")
READ = modern(1, "resources/read", {"uri": "target://thing"})
GET = modern(1, "prompts/get", {"name": "greeting"})
LIST = modern(1, "tools/list")
ROUTE = modern_call(1, "route", region="north", zone=7)
PARAMS = {"Mcp-Param-Region": "north", "Mcp-Param-Zone": "7"}


def encoded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


MISMATCHES: list[tuple[Message, Fields]] = [
    (CALL, {"MCP-Protocol-Version": LEGACY[-1]}),
    (LIST, {"MCP-Protocol-Version": LEGACY[0]}),
    (CALL, {"MCP-Protocol-Version": f"{MODERN}, {LEGACY[-1]}"}),
    (CALL, {"MCP-Protocol-Version": encoded(MODERN)}),
    (CALL, {"MCP-Protocol-Version": ""}),
    *[(CALL, {"Mcp-Method": value}) for value in ("tools/list", "Tools/Call", "tools/call, tools/list", "", None)],
    (CALL, {"Mcp-Method": encoded("tools/call")}),
    *[(LIST, {"Mcp-Method": value}) for value in ("tools/call", "", None)],
    *[(CALL, {"Mcp-Name": value}) for value in ("wait", "ECHO", "ech", "echo, wait", "", None)],
    *[(READ, {"Mcp-Name": value}) for value in ("target://other", "target://thing/", "TARGET://thing", "", None)],
    *[(GET, {"Mcp-Name": value}) for value in ("farewell", "", None)],
    (CALL, {"Mcp-Name": encoded("wait")}),
    (CALL, {"Mcp-Name": "=?base64?%%%?="}),
    (CALL, {"Mcp-Name": "=?BASE64?ZWNobw==?="}),
    (CALL, {"Mcp-Name": "=?base64?ZWNobw==?=?="}),
    (CALL, {"Mcp-Name": "=?base64?/////w==?="}),
    (CALL, {"Mcp-Name": "ech\xf6"}),
    *[
        (ROUTE, {**PARAMS, "Mcp-Param-Region": value})
        for value in ("south", "North", "", None, encoded("south"), "=?base64?!?=", "north, south", "n\xf6rth")
    ],
    *[
        (ROUTE, {**PARAMS, "Mcp-Param-Zone": value})
        for value in ("8", "", None, "seven", "7.5", "0x7", "7, 8", "7" * 400, "1e400", "nan", encoded("8"))
    ],
    # A value that is not in the body may not be in a header.
    (modern_call(1, "route", region="north"), PARAMS),
]


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize(("message", "fields"), MISMATCHES, ids=lambda value: value.get("method") or f"{value}"[:80])
def test_what_does_not_match_is_refused(target: Target, message: Message, fields: Fields) -> None:
    answer = target.ask(post(message, fields))
    assert (answer.status, answer.code) == (400, HEADER_MISMATCH), answer
    assert answer.message["id"] == 1


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize(
    "line", ["MCP-Protocol-Version: 2025-11-25", "Mcp-Method: tools/list", "Mcp-Name: wait", "mcp-name: wait"]
)
def test_a_header_cannot_be_given_twice(target: Target, line: str) -> None:
    """Whoever looks at the first and whoever looks at the last would see different things."""
    good = post(CALL)
    first = good.replace(b"Accept:", line.encode() + b"\r\nAccept:")
    last = good.replace(b"Content-Length:", line.encode() + b"\r\nContent-Length:")
    for data in (first, last):
        answer = target.ask(data)
        assert (answer.status, answer.code) == (400, HEADER_MISMATCH), answer


@pytest.mark.req("HTP-2")
def test_a_modern_body_needs_the_header_that_says_so(target: Target) -> None:
    """Otherwise it could be taken for an old request, of which headers repeat nothing."""
    answer = target.ask(post(CALL, {"MCP-Protocol-Version": None, "Mcp-Method": None, "Mcp-Name": None}))
    assert answer.status == 400, answer


@pytest.mark.req("HTP-2")
@pytest.mark.parametrize("version", ["2026-07-29", "1999-01-01", "x" * 500, "=?base64?", "\xff"])
def test_a_version_that_nobody_knows_is_refused(target: Target, version: str) -> None:
    params: dict[str, Any] = {"name": "echo", "arguments": {"text": "hi"}, "_meta": modern_meta(version=version)}
    message: Message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = target.ask(post(message, {"MCP-Protocol-Version": version}))
    assert answer.status == 400, answer


@pytest.mark.req("HTP-2")
def test_what_matches_is_served(target: Target) -> None:
    assert target.call("route", PARAMS, region="north", zone=7) == "north/7"
    assert target.call("route", {"Mcp-Param-Region": encoded("nörd")}, region="nörd") == "nörd/0"
    assert target.call("echo", {"Mcp-Name": encoded("echo")}, text="hello") == "hello"
    assert target.call("echo", {"mCp-NaMe": "echo", "Mcp-Name": None}, text="hello") == "hello"
    assert target.call("echo", {"Mcp-Param-Unknown": "what nobody asked for"}, text="hello") == "hello"


@pytest.mark.req("HTP-2")
def test_nothing_that_was_refused_was_done(target: Target) -> None:
    message = modern_call(1, "wait", name="mirrored")
    for fields in ({"Mcp-Name": "echo"}, {"Mcp-Method": "tools/list"}, {"MCP-Protocol-Version": LEGACY[-1]}):
        assert target.ask(post(message, fields)).status == 400
    assert target.events("mirrored began") == 0
