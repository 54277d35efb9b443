"""Tools with schemas that their author wrote."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypedDict

import msgspec
import pytest

from mcplumb.errors import UsageError
from mcplumb.server.catalog import EntryOptions, ToolEntry
from mcplumb.server.context import Context
from mcplumb.server.schema.signature import BadArguments
from mcplumb.server.server import Server
from mcplumb.types.content import TextContent
from mcplumb.types.tools import CallToolResult
from tests.kit.loop import run
from tests.kit.results import text_of
from tests.server.harness import ALL_REVISIONS, Plain, make_server, raw_client

#: With everything in it that a schema of ours would never have.
SCHEMA: Plain = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"city": {"type": "string"}}}},
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "phone": {"type": "string", "x-unknown": [1, None]},
        "email": {"type": "string", "format": "email"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"name": {"const": "phone"}}, "required": ["name"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
NUMBERS: Plain = {"type": "object", "properties": {"sums": {"type": "array", "items": {"type": "number"}}}}


async def echo(arguments: dict[str, Any]) -> str:
    """Say it again."""
    return msgspec.json.encode(arguments).decode()


def tool(function: Callable[..., Any] = echo, structured: bool | None = None, **schemas: Any) -> ToolEntry:
    return ToolEntry(function, EntryOptions(), annotations=None, structured=structured, **schemas)


def read(schema: Plain, arguments: bytes | None) -> dict[str, Any]:
    return tool(input_schema=schema).read(None if arguments is None else msgspec.Raw(arguments))


@pytest.fixture
def without_validator(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if jsonschema-rs were not installed."""
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)


def served(server: Server, arguments: Plain) -> Plain:
    async def main() -> Plain:
        async with raw_client(server) as peer:
            return await peer.call("echo", arguments)

    return run(main())


# Input


@pytest.mark.parametrize("revision", ALL_REVISIONS, ids=str)
async def test_the_schema_is_listed_as_it_is(revision: Any) -> None:
    server = make_server()
    server.add_tool(echo, input_schema=SCHEMA)

    async with raw_client(server, revision) as peer:
        (listed,) = (await peer.result("tools/list"))["tools"]
        expected = SCHEMA if revision.has_schema_dialects else {k: v for k, v in SCHEMA.items() if k != "$schema"}
        assert listed["inputSchema"] == expected
        assert list(listed["inputSchema"]) == list(expected)
        assert listed["description"] == "Say it again."


def test_it_does_not_change_with_the_author_s_dict() -> None:
    schema: Plain = {"type": "object", "properties": {}}
    entry = tool(input_schema=schema)
    schema["properties"]["late"] = {"type": "string"}
    assert entry.payload.input_schema == {"type": "object", "properties": {}}


def test_the_function_gets_all_arguments_as_one_dict() -> None:
    server = make_server()

    @server.tool(input_schema=SCHEMA)
    def echo(given: dict[str, Any], ctx: Context) -> str:
        return f"{ctx.request_id} {sorted(given)}"

    assert text_of(served(server, {"name": "a", "email": "b"})) == "1 ['email', 'name']"


def test_wrong_arguments_are_an_error_that_names_them() -> None:
    server = make_server()
    server.add_tool(echo, input_schema=SCHEMA)
    result = served(server, {"name": 5, "email": "b", "address": {"city": 1}})
    assert result["isError"] is True
    assert sorted(text_of(result).splitlines()) == [
        "Argument 'address', at .city: 1 is not of type \"string\".",
        "Argument 'name': 5 is not of type \"string\".",
    ]
    result = served(server, {"email": "b", "more": 1})
    assert (
        text_of(result) == "The arguments are invalid: Additional properties are not allowed ('more' was unexpected)."
    )


@pytest.mark.parametrize(
    ("arguments", "values"), [(None, {}), (b"null", {}), (b"{}", {}), (b'{"a":[1,null]}', {"a": [1, None]})]
)
def test_arguments_that_are_read(arguments: bytes | None, values: Plain) -> None:
    assert read({"type": "object"}, arguments) == {"arguments": values}


@pytest.mark.parametrize("arguments", [b"[]", b"5", b'"x"', b"false", b"0"])
def test_arguments_that_are_no_object(arguments: bytes) -> None:
    with pytest.raises(BadArguments, match=r"^The arguments are invalid: expected an object, got .*\.$"):
        read({"type": "object"}, arguments)


def test_arguments_that_python_cannot_hold() -> None:
    with pytest.raises(BadArguments, match=r"^The arguments cannot be read: Number out of range.*\.$"):
        read({"type": "object"}, b'{"a": 1e999}')


def test_not_all_that_is_wrong_is_told() -> None:
    schema: Plain = {"type": "object", "additionalProperties": {"type": "string"}}
    with pytest.raises(BadArguments) as refused:
        read(schema, msgspec.json.encode({str(number): number for number in range(1000)}))
    lines = str(refused.value).splitlines()
    assert len(lines) == 11
    assert lines[-1] == "There are more errors."
    with pytest.raises(BadArguments) as refused:
        read(schema, msgspec.json.encode({"a": ["x" * 100_000]}))
    assert len(str(refused.value)) < 1000


def test_a_type_with_fields_may_stand_for_the_dict() -> None:
    class Point(TypedDict):
        x: int
        y: int

    class Place(msgspec.Struct):
        x: int

    async def by_dict(point: Point) -> None:
        """Nothing."""

    async def by_struct(place: Place) -> None:
        """Nothing."""

    by_dict.__annotations__["point"], by_struct.__annotations__["place"] = Point, Place
    given = msgspec.Raw(b'{"x":1,"y":2}')
    assert tool(by_dict, input_schema={"type": "object"}).read(given) == {"point": {"x": 1, "y": 2}}
    assert tool(by_struct, input_schema={"type": "object"}).read(given) == {"place": Place(1)}
    with pytest.raises(BadArguments, match=r"^Argument 'x': missing, expected an integer\.$"):
        tool(by_struct, input_schema={"type": "object"}).read(msgspec.Raw(b"{}"))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda: None, "It takes 0."),
        (lambda a, b: None, "It takes 2."),
    ],
)
def test_functions_that_take_something_else(function: Callable[..., Any], words: str) -> None:
    function.__name__ = "wrong"
    with pytest.raises(UsageError, match="its function must take one parameter, a dict") as refused:
        tool(function, input_schema={"type": "object"})
    assert str(refused.value).endswith(words)


def test_a_parameter_that_cannot_hold_them() -> None:
    async def wrong(name: str) -> None:
        """Nothing."""

    with pytest.raises(UsageError, match="gets all the arguments in 'name': annotate that with dict"):
        tool(wrong, input_schema={"type": "object"})


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({}, "must have 'type': 'object'"),
        ({"type": "array"}, "must have 'type': 'object'"),
        (["type"], "cannot be written as a JSON object"),
        ({"type": "object", "default": object()}, "cannot be written as a JSON object"),
        (
            {"type": "object", "properties": {"a": {"type": "text"}}},
            "is not a valid JSON Schema, at .properties.a.type: ",
        ),
        ({"type": "object", "pattern": "("}, "is not a valid JSON Schema"),
        ({"type": "object", "$ref": "https://example.com/other"}, "is not a valid JSON Schema: "),
    ],
)
def test_schemas_that_are_refused_at_once(schema: Any, words: str) -> None:
    with pytest.raises(UsageError, match=r"^The input schema of the tool 'echo' ") as refused:
        tool(input_schema=schema)
    assert words in str(refused.value)


def test_a_schema_that_contains_itself_is_refused() -> None:
    schema: Plain = {"type": "object"}
    schema["properties"] = schema
    with pytest.raises(UsageError, match="cannot be written as a JSON object"):
        tool(input_schema=schema)


@pytest.mark.usefixtures("without_validator")
def test_without_the_validator_arguments_only_have_to_be_an_object() -> None:
    assert read(SCHEMA, b'{"name":5}') == {"arguments": {"name": 5}}
    with pytest.raises(BadArguments, match="expected an object"):
        read(SCHEMA, b"[]")


# Output


async def test_what_a_tool_with_an_output_schema_gives() -> None:
    server = make_server()

    @server.tool(output_schema=NUMBERS)
    async def echo(numbers: list[float]) -> dict[str, Any]:
        return {"sums": [sum(numbers)]}

    async with raw_client(server) as peer:
        (listed,) = (await peer.result("tools/list"))["tools"]
        assert listed["outputSchema"] == NUMBERS
        result = await peer.call("echo", {"numbers": [1, 2.5]})
        assert result["structuredContent"] == {"sums": [3.5]}
        assert text_of(result) == '{"sums":[3.5]}'


def test_a_result_that_does_not_fit_is_a_fault_of_the_server_s() -> None:
    result_of = tool(output_schema=NUMBERS).result_of
    words = (
        r"^The tool 'echo' returned a value that does not match its output schema, at \.sums\[1\]: \"x\" is not of type"
    )
    with pytest.raises(UsageError, match=words):
        result_of({"sums": [1, "x"]})
    with pytest.raises(UsageError, match='does not match its output schema: 5 is not of type "object"'):
        result_of(5)
    ready = CallToolResult([TextContent("Ready.")])
    assert result_of(ready) is ready


def test_an_output_schema_of_something_else_than_objects() -> None:
    result = tool(output_schema={"type": "integer"}).result_of(5)
    assert result == CallToolResult([TextContent("5")], structured_content=msgspec.Raw(b"5"))


def test_structure_cannot_be_described_and_forbidden() -> None:
    with pytest.raises(UsageError, match="so it cannot have structured=False"):
        tool(output_schema=NUMBERS, structured=False)
    assert tool(output_schema=NUMBERS, structured=True).payload.output_schema == NUMBERS
    with pytest.raises(UsageError, match=r"^The output schema of the tool 'echo' is not a valid JSON Schema"):
        tool(output_schema={"type": 5})


@pytest.mark.usefixtures("without_validator")
def test_without_the_validator_results_are_not_checked() -> None:
    assert tool(output_schema=NUMBERS).result_of(5).structured_content == msgspec.Raw(b"5")
