"""How a server refuses over HTTP: what it says is repeated once, with what can be done about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcplumb import connect
from mcplumb.errors import ConnectError, HttpError
from tests.kit.web import Reply, web_server

TOKEN = "s3cret-of-the-user"


async def refused(answer: Callable[[Any], Reply], path: str = "/mcp", **options: Any) -> str:
    with web_server(answer, answers_get=True) as url, pytest.raises(ConnectError) as caught:
        async with connect(url.replace("/mcp", path), **options):
            raise AssertionError
    return str(caught.value).replace(url.removesuffix("/mcp"), "http://HOST").replace(url[7:-4], "HOST")


async def test_a_wrong_path_is_one_sentence() -> None:
    said = await refused(lambda _: Reply(404, "Nothing here."), "/wrong")
    assert said == (
        "The server answered with HTTP 404 Not Found: 'Nothing here.'. Is the path of the address right? "
        "The server is at http://HOST/wrong."
    )


@pytest.mark.parametrize("revisions", [["2026-07-28"], ["2025-06-18"]])
async def test_a_wrong_path_is_one_sentence_for_one_revision_too(revisions: list[str]) -> None:
    said = await refused(lambda _: Reply(404, ""), revisions=revisions)
    assert said.startswith("The server answered with HTTP 404 Not Found. Is the path of the address right? ")
    assert said.count("404") == 1


async def test_the_path_of_an_mcp_server_is_right() -> None:
    error = {"code": -32001, "message": "Session not found"}

    def answer(body: Any) -> Reply:
        return Reply(404, {"jsonrpc": "2.0", "id": None, "error": error})

    assert "path" not in await refused(answer, revisions=["2025-06-18"])


async def test_a_request_that_is_refused_later_has_the_right_path() -> None:
    def answer(body: Any) -> Reply:
        if body["method"] == "initialize":
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": None,
            }
            return Reply(200, {"jsonrpc": "2.0", "id": body["id"], "result": result})
        return Reply(405, "Not today.")

    with web_server(answer) as url:
        async with connect(url, revisions=["2025-06-18"]) as client:
            with pytest.raises(HttpError) as caught:
                await client.list_tools()
    assert (
        str(caught.value)
        == "tools/list was refused. The server answered with HTTP 405 Method Not Allowed: 'Not today.'."
    )


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (
            "text/html; charset=utf-8",
            "<html><head><title>x</title></head><body><h1>No</h1>\n<p>entry.</p>",
            "'No entry.'",
        ),
        ("", "Access is only allowed at localhost:9001", "'Access is only allowed at localhost:9001'"),
        ("application/problem+json", '{"title": "No"}', """'{"title": "No"}'"""),
        ("text/plain", "\x1b[2Jno\x07 \u202eon", r"'\x1b[2Jno\x07 \u202eon'"),
        ("text/plain", "x" * 9999, f"'{'x' * 200}…'"),
        ("application/octet-stream", "\0\1\2", ""),
        ("text/html", "<script>alert(1)</script><!-- x -->", ""),
    ],
    ids=range(7),
)
async def test_what_it_says_is_quoted_whatever_its_type(kind: str, body: str, words: str) -> None:
    said = await refused(lambda _: Reply(500, body, {"Content-Type": kind}))
    quoted = f": {words}" if words else ""
    assert said == f"The server answered with HTTP 500 Internal Server Error{quoted}. The server is at http://HOST/mcp."


async def test_what_was_to_be_kept_secret_is_not_quoted() -> None:
    echo = f"POST /mcp?key=my-key-7 Authorization: Bearer {TOKEN} X-Key: {TOKEN}-2, my-key-7"
    echo += ", other: Basic YWRhOmxvdmVsYWNl"
    said = await refused(lambda _: Reply(500, echo), "/mcp?key=my-key-7", token=TOKEN, headers={"X-Key": f"{TOKEN}-2"})
    assert "POST /mcp?*** Authorization: *** X-Key: ***, ***, other: Basic ***" in said
    for secret in (TOKEN, "my-key-7", "YWRhOmxvdmVsYWNl"):
        assert secret not in said


@pytest.mark.req("AUT-8")
async def test_a_json_rpc_error_does_not_quote_them_either() -> None:
    body = f'{{"jsonrpc": "2.0", "id": null, "error": {{"code": -32000, "message": "Is {TOKEN} right?"}}}}'
    said = await refused(lambda _: Reply(403, body, {"Content-Type": "application/json"}), token=TOKEN)
    assert "Is *** right?" in said
    assert TOKEN not in said


async def test_the_host_is_named_where_it_is_this_machine() -> None:
    said = await refused(lambda _: Reply(403, "Access is only allowed at localhost:9001", {"Content-Type": ""}))
    assert said == (
        "The handshake failed. The server answered with HTTP 403 Forbidden: "
        "'Access is only allowed at localhost:9001'. The request named the Host HOST, which it may not allow: "
        "try localhost in the address. The server is at http://HOST/mcp."
    )


async def test_a_server_that_asks_for_a_token_does_not_mind_the_host() -> None:
    said = await refused(lambda _: Reply(403, "No.", {"WWW-Authenticate": "Bearer"}))
    assert "Host" not in said
    assert "token" in said
