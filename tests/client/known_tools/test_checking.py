from __future__ import annotations

import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcplumb.client.known_tools import OutputChecker
from mcplumb.errors import ProtocolError, UsageError
from mcplumb.types.tools import CallToolResult

OBJECT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def check(schema: dict[str, Any], content: Any, *, checker: OutputChecker | None = None, tool: str = "add") -> None:
    result = CallToolResult([], structured_content=content)
    (checker or OutputChecker(True)).check(tool, schema, result)


def mistake(schema: dict[str, Any], content: Any) -> str:
    with pytest.raises(ProtocolError) as broken:
        check(schema, content)
    return str(broken.value)


def nested(depth: int, value: Any) -> Any:
    for _ in range(depth):
        value = [value]
    return value


# What is right and what is wrong


def test_what_matches_passes() -> None:
    check(OBJECT, {"n": 1, "more": "x"})


def test_a_mistake_is_told_with_its_tool_place_and_kind() -> None:
    schema = {"properties": {"rows": {"items": OBJECT}}}
    assert mistake(schema, {"rows": [{"n": 1}, {"n": "two"}]}) == (
        "The tool 'add' gave structured content that does not match its output schema: "
        '"two" is not of type "integer", at /rows/1/n.'
    )
    assert mistake(OBJECT, {}).endswith('its output schema: "n" is a required property.')


def test_structured_content_must_be_there() -> None:
    assert mistake(OBJECT, None) == "The tool 'add' has an output schema, but gave no structured content."


def test_structured_content_may_be_any_json() -> None:
    check({"type": "array"}, [1])
    check({"type": "string"}, "x")
    # A null reads as nothing.
    check({"type": ["object", "null"]}, None)


def test_errors_of_the_tool_itself_are_not_checked() -> None:
    OutputChecker(True).check("add", OBJECT, CallToolResult([], is_error=True))
    OutputChecker(True).check("add", OBJECT, CallToolResult([], structured_content={"n": "x"}, is_error=True))


def test_messages_are_short() -> None:
    assert len(mistake({"type": "object"}, ["x" * 1000] * 1000)) < 400
    assert len(mistake({"additionalProperties": False}, {"x" * 10_000: 1})) < 400
    assert len(mistake({"additionalProperties": {"type": "string"}}, {"x" * 10_000: 1})) < 500
    assert len(mistake({"const": "y" * 10_000}, 1)) < 400
    with pytest.raises(ProtocolError) as broken:
        check({"type": "string"}, 1, tool="t" * 10_000)
    assert len(str(broken.value)) < 400


def test_formats_are_not_checked() -> None:
    check({"type": "string", "format": "regex"}, "(")
    check({"$schema": "http://json-schema.org/draft-07/schema#", "format": "email"}, "nobody")


@pytest.mark.parametrize(
    ("dialect", "keyword"),
    [
        ("http://json-schema.org/draft-04/schema#", {"items": [{"type": "string"}]}),
        ("http://json-schema.org/draft-06/schema#", {"items": [{"type": "string"}]}),
        ("http://json-schema.org/draft-07/schema#", {"items": [{"type": "string"}]}),
        ("https://json-schema.org/draft/2019-09/schema", {"items": [{"type": "string"}]}),
        ("https://json-schema.org/draft/2020-12/schema", {"prefixItems": [{"type": "string"}]}),
    ],
)
def test_known_dialects(dialect: str, keyword: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    check({"$schema": dialect, **keyword}, ["x"])
    assert "at /0" in mistake({"$schema": dialect, **keyword}, [1])
    assert not caplog.messages


def test_without_a_dialect_it_is_the_newest(caplog: pytest.LogCaptureFixture) -> None:
    assert "at /0" in mistake({"prefixItems": [{"type": "string"}]}, [1])
    check({"items": [{"type": "string"}]}, [1])
    assert "are not checked" in caplog.messages[0]


# The switch


def test_off() -> None:
    checker = OutputChecker(False)
    assert not checker.is_active
    check(OBJECT, None, checker=checker)


def test_on_if_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert OutputChecker().is_active
    assert OutputChecker(None).is_active
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    checker = OutputChecker()
    assert not checker.is_active
    check(OBJECT, None, checker=checker)


def test_on_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(UsageError, match=r"needs jsonschema-rs: pip install 'mcplumb\[schema\]'"):
        OutputChecker(True)


# What is kept


def test_a_schema_that_changed_is_used_as_it_is_now() -> None:
    checker = OutputChecker(True)
    check({"const": 1}, 1, checker=checker)
    check({"const": 1}, 1, checker=checker)
    with pytest.raises(ProtocolError):
        check({"const": True}, 1, checker=checker)


def test_many_tools(caplog: pytest.LogCaptureFixture) -> None:
    checker = OutputChecker(True)
    for number in range(1001):
        check({"type": "strin"}, 1, checker=checker, tool=str(number))
    assert len(caplog.messages) == 1001
    check({"type": "strin"}, 1, checker=checker, tool="1")
    assert len(caplog.messages) == 1001, "it is known still"
    check({"type": "strin"}, 1, checker=checker, tool="0")
    assert len(caplog.messages) == 1002, "it was the one that was not used for the longest time"


# Schemas that cannot be used


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "strin"}, '"strin" is not valid'),
        ({"properties": 5}, '5 is not of type "object", at /properties'),
        ({"$schema": "http://example.com/dialect"}, "Unknown meta-schema: 'http://example.com/dialect'"),
        ({"pattern": "("}, '"(" is not a "regex", at /pattern'),
        ({"pattern": "(?=a)b"}, "is not a"),
        ({"pattern": "(a{1000}){1000}"}, "is not a"),
        ({"$ref": "#/$defs/none"}, "where there is nothing"),
        ({"description": "x" * 200_000}, "more than 131072 bytes"),
        ({"allOf": nested(100, {"type": "object"})}, "nested more than 64 deep"),
    ],
)
def test_a_schema_that_is_of_no_use_is_not_used(
    schema: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    checker = OutputChecker(True)
    for content in ({"n": 1}, None, [1]):
        check(schema, content, checker=checker)
    (warning,) = caplog.messages
    assert warning.startswith(
        "The results of the tool 'add' are not checked, because its output schema cannot be used: "
    )
    assert reason in warning
    assert warning.endswith(".")
    assert len(warning) < 500


@pytest.fixture
def web() -> Iterator[tuple[str, list[str]]]:
    """A web server that has a schema, and what it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "string"}')

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", asked
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "place",
    [
        lambda address: {"$ref": address},
        lambda address: {"properties": {"n": {"$ref": address + "#/a"}}},
        lambda address: {"$id": address, "$ref": "other.json"},
        lambda address: {"$id": address, "$defs": {"unused": {"$ref": "other.json"}}},
        lambda address: {"$defs": {"unused": {"$ref": address}}},
        lambda address: {"$schema": address},
        lambda address: {"$dynamicRef": address},
    ],
)
def test_nothing_is_fetched(
    place: Any, web: tuple[str, list[str]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address, asked = web
    for name in ("schema.json", "other.json"):
        (tmp_path / name).write_text('{"type": "string"}')
    for outside in (address, (tmp_path / "schema.json").as_uri()):
        check(place(outside), {"n": 1})
    assert asked == []
    assert len(caplog.messages) == 2


# Schemas that are made to be slow


def doubled(count: int, **more: Any) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}], **more} for i in range(count)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{count}": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "content"),
    [
        pytest.param(doubled(60), 1, id="choices within choices"),
        pytest.param(doubled(60, unevaluatedProperties=False), {}, id="unevaluated in choices"),
        pytest.param(
            {"oneOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}, nested(60, 1), id="choices on each level"
        ),
        pytest.param({"pattern": "(?:[ab]*a[ab]{400}){2}c"}, "ab" * 1_000_000, id="a large automaton"),
        pytest.param({"items": {"enum": [[i] for i in range(10_000)]}}, [[0]] * 10_000, id="a long list of arrays"),
        pytest.param({"items": {"multipleOf": 0.01}}, [1e29] * 100_000, id="long divisions"),
        pytest.param({"items": {"minimum": 0}}, [10**4000] * 1000, id="long numbers"),
        pytest.param({"items": {"type": "integer"}}, [1] * 6_000_000, id="a large value"),
        pytest.param({"type": ["array", "null"], "items": {"$ref": "#"}}, nested(3000, None), id="a deep value"),
    ],
)
def test_what_would_take_too_long_is_not_begun(
    schema: dict[str, Any], content: Any, caplog: pytest.LogCaptureFixture
) -> None:
    checker = OutputChecker(True)
    check(schema, content, checker=checker)
    check(schema, content, checker=checker)
    assert len(caplog.messages) == 1
    assert "checked" in caplog.messages[0]


def test_a_schema_that_is_too_slow_for_one_result_is_used_for_others(caplog: pytest.LogCaptureFixture) -> None:
    checker = OutputChecker(True)
    schema = {"items": {"type": "integer"}}
    check(schema, ["x"] * 6_000_000, checker=checker)
    assert caplog.messages[0] == (
        "A result of the tool 'add' is not checked: it is too large to be checked against its output schema."
    )
    with pytest.raises(ProtocolError):
        check(schema, ["x"], checker=checker)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(x+x+)+y", "(a|a)*b", "(.*a){20}b"])
def test_patterns_do_not_backtrack(pattern: str, caplog: pytest.LogCaptureFixture) -> None:
    assert mistake({"pattern": pattern}, "a" * 5000 + "!")
    assert not caplog.messages


def test_large_results_that_are_honest_are_checked(caplog: pytest.LogCaptureFixture) -> None:
    row = {"type": "object", "properties": {f"c{i}": {"type": ["integer", "null"]} for i in range(20)}}
    rows = [{f"c{i}": i for i in range(20)} for _ in range(10_000)]
    check({"properties": {"rows": {"items": row}}}, {"rows": rows})
    check({"properties": {"text": {"type": "string"}}}, {"text": "x" * 50_000_000})
    assert not caplog.messages


def test_mistakes_are_looked_for_in_large_results() -> None:
    schema = {"items": {"type": "integer"}}
    assert mistake(schema, [*range(50_000), "x"]).endswith("at /50000.")
    assert mistake(schema, [*range(200_000), "x"]).endswith("schema: it is too large to say where.")
    choice = {"items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}
    assert mistake(choice, [*range(100), "x"]).endswith("at /100.")
    assert mistake(choice, [*range(10_000), "x"]).endswith("schema: it is too large to say where.")


def test_mistakes_in_what_is_nested_deeply() -> None:
    assert mistake({"type": "object"}, nested(300, 1)).endswith("schema: it is nested too deeply to say where.")
