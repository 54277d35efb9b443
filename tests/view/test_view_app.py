"""The application: files of the page, answers of the API, and what happens when something goes wrong."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from mcplumb.errors import ConnectError
from mcplumb.view.api_routes import ApiCall, ApiError, Download, Route
from tests.kit.leaks import leaves_nothing
from tests.view.visitor import TestSection, visiting

pytestmark = leaves_nothing


class Sum(msgspec.Struct):
    a: int
    b: int


async def add(call: ApiCall) -> Any:
    numbers = await call.body(Sum)
    return {"sum": numbers.a + numbers.b, "of": call.params["what"], "query": call.query}


async def fail(call: ApiCall) -> Any:
    raise {
        "api": ApiError(409, "Not now."),
        "server": ConnectError("The server cannot be reached."),
        "bug": ZeroDivisionError("secret detail"),
    }[call.params["how"]]


async def picture(_: ApiCall) -> Any:
    return Download(b"\x89PNG", "image/png")


SECTION = (Route("POST", "sums/{what}", add), Route("GET", "fail/{how}", fail), Route("GET", "picture", picture))


@pytest.mark.req("VIW-1")
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b'{"a": "\xff"}', b'{"a": 1, "b": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", b"[]", b"\xff\xfe{\0"],
    ids=["empty", "torn", "no UTF-8", "deep", "list", "UTF-16"],
)
async def test_a_body_that_makes_no_sense_gets_a_sentence(body: bytes) -> None:
    async with visiting(lambda _: [TestSection(*SECTION)]) as visitor:
        got = await visitor.ask("api/sums/x", "POST", data=body)
        assert got.status == 400
        assert got.json["error"].startswith("The body of the request is not as expected")


async def test_files_have_their_types_and_cannot_be_changed() -> None:
    async with visiting() as visitor:
        kinds = {"": "text/html", "scripts/main.js": "text/javascript", "styles/frame.css": "text/css"}
        for path, kind in kinds.items():
            got = await visitor.ask(path)
            assert got.headers["content-type"].startswith(kind)
            assert (await visitor.ask(path, "HEAD")).body == b""
            assert (await visitor.ask(path, "POST")).status == 405
        for path in ("../access.py", "..%2faccess.py", "%2e%2e/access.py", "scripts", "scripts/", "nothing.js"):
            assert (await visitor.ask(path)).status == 404, path


async def test_the_slash_after_the_secret_is_added() -> None:
    async with visiting() as visitor:
        got = await visitor.ask("", at=visitor.served.url.rstrip("/"))
        assert got.status == 308
        assert visitor.served.url.endswith(got.headers["location"])


async def test_a_section_answers() -> None:
    section = TestSection(*SECTION)
    async with visiting(lambda _: [section]) as visitor:
        assert section.states == ["open"]
        got = await visitor.ask("api/sums/a%2Fb?x=1&y=", "POST", data=b'{"a":1,"b":2}')
        assert got.json == {"sum": 3, "of": "a/b", "query": {"x": "1", "y": ""}}
        got = await visitor.ask("api/picture")
        assert (got.headers["content-type"], got.body) == ("image/png", b"\x89PNG")
    assert section.states[:2] == ["open", "closed"]


async def test_errors_are_sentences() -> None:
    async with visiting(lambda _: [TestSection(*SECTION)]) as visitor:
        for path, method, status, sentence in (
            ("api/fail/api", "GET", 409, "Not now."),
            ("api/nothing", "GET", 404, "There is nothing at this address."),
            ("api/sums/x", "GET", 405, "This can be asked for with POST."),
        ):
            got = await visitor.ask(path, method)
            assert (got.status, got.json["error"]) == (status, sentence)
        got = await visitor.ask("api/fail/server")  # which browsers do not write on the console
        assert (got.status, got.json["failed"]) == (200, "The server cannot be reached.")
        for body in (b"", b"{", b'{"a":1}', b'{"a":1,"b":"2"}', b"\xff"):
            got = await visitor.ask("api/sums/x", "POST", data=body)
            assert got.status == 400
            assert got.json["error"].startswith("The body of the request is not as expected: ")


async def test_a_bug_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    async with visiting(lambda _: [TestSection(*SECTION)]) as visitor:
        got = await visitor.ask("api/fail/bug")
    assert got.status == 500
    assert b"secret detail" not in got.body
    assert "secret detail" in caplog.text


async def test_the_secret_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with visiting() as visitor:
        for path in ("", "nothing", "api/nothing"):
            await visitor.ask(path)
        secret = visitor.served.url.rstrip("/").rpartition("/")[2]
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("mcplumb")]
    assert ours
    assert not any(secret in text for text in ours)


async def test_numbers_of_a_query_are_checked() -> None:
    async def number(call: ApiCall) -> Any:
        return call.number("n", 7, most=100)

    async with visiting(lambda _: [TestSection(Route("GET", "number", number))]) as visitor:
        for query, wanted in (("", 7), ("?n=0", 0), ("?n=100", 100), ("?n=101", 100)):
            assert (await visitor.ask(f"api/number{query}")).json == wanted
        for query in ("?n=", "?n=-1", "?n=1.5", "?n=x", "?n=" + "9" * 5000, "?n=%D9%A1"):
            assert (await visitor.ask(f"api/number{query}")).status == 400, query
