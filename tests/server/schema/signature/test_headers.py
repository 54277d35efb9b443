"""Parameters of tools that HTTP clients repeat in headers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest

import mcplumb
from mcplumb.errors import UsageError
from mcplumb.protocol.http_headers import ParamHeader, ParamHeaders
from mcplumb.server.catalog import Described, ToolEntry
from mcplumb.server.schema.signature import Header
from tests.server.harness import make_server, raw_client


class Zone(Enum):
    NORTH = "north"


def tool(function: Callable[..., Any], input_schema: dict[str, Any] | None = None) -> ToolEntry:
    return ToolEntry(function, Described(), annotations=None, structured=None, input_schema=input_schema)


def test_it_is_at_the_top_of_the_package() -> None:
    assert mcplumb.Header is Header


@pytest.mark.req("HTP-2")
def test_annotated_parameters() -> None:
    async def query(
        text: str,
        region: Annotated[str, Header("Region"), "Where."],
        limit: Annotated[int, msgspec.Meta(ge=1), Header("Limit")] = 10,
        verbose: Annotated[bool, Header("X-Verbose")] = False,
    ) -> str:
        return text

    entry = tool(query)
    assert entry.param_headers == ParamHeaders(
        (
            ParamHeader("Mcp-Param-Region", ("region",)),
            ParamHeader("Mcp-Param-Limit", ("limit",)),
            ParamHeader("Mcp-Param-X-Verbose", ("verbose",)),
        )
    )
    assert entry.payload.input_schema["properties"] == {
        "text": {"type": "string"},
        "region": {"type": "string", "x-mcp-header": "Region", "description": "Where."},
        "limit": {"type": "integer", "minimum": 1, "x-mcp-header": "Limit", "default": 10},
        "verbose": {"type": "boolean", "x-mcp-header": "X-Verbose", "default": False},
    }
    arguments = msgspec.Raw(b'{"text":"a","region":"b"}')
    assert entry.read(arguments) == {"text": "a", "region": "b", "limit": 10, "verbose": False}


@pytest.mark.parametrize(
    ("kind", "default", "schema"),
    [
        (Annotated[str | None, Header("A")], None, {"type": "string"}),
        (Annotated[str, Header("A")], None, {"type": "string"}),
        (Annotated[str | None, Header("A")], "x", {"type": "string", "default": "x"}),
        (Annotated[int, Header("A")] | None, ..., {"type": "integer"}),
        (Annotated[int, Header("A")] | None, None, {"type": "integer"}),
        (Annotated[int, Header("A")] | str, None, None),
        (Annotated[int | None, Header("A")], ..., {"type": "integer"}),
        (Annotated[Literal["x", "y"] | None, Header("A")], None, {"type": "string", "enum": ["x", "y"]}),
        (Annotated[Zone, Header("A")], ..., {"type": "string", "enum": ["north"]}),
        (Annotated[dt.date, Header("A")], ..., {"type": "string", "format": "date"}),
        (Annotated[int | str, Header("A")], ..., None),
        (Annotated[float, Header("A")], ..., None),
        (Annotated[Any, Header("A")], ..., None),
        (Annotated[list[str], Header("A")], ..., None),
        (list[Annotated[str, Header("A")]], ..., None),
        (Annotated[str, Header("")], ..., None),
        (Annotated[str, Header("a b")], ..., None),
        (Annotated[str, Header("é")], ..., None),
        (Annotated[str, Header(5)], ..., None),  # type: ignore[arg-type]
    ],
)
def test_types_and_names(kind: Any, default: Any, schema: dict[str, Any] | None) -> None:
    """Without a schema, it is refused."""

    async def one(value: Any) -> None:
        """Nothing."""

    one.__annotations__["value"] = kind
    if default is not ...:
        one.__defaults__ = (default,)
    if schema is None:
        with pytest.raises(
            UsageError, match=r"HTTP clients would refuse the tool 'one'\. The annotation 'x-mcp-header'"
        ):
            tool(one)
    else:
        assert tool(one).payload.input_schema["properties"]["value"] == {**schema, "x-mcp-header": "A"}


def test_two_parameters_cannot_have_one_header() -> None:
    async def twice(a: Annotated[str, Header("Same")], b: Annotated[str, Header("SAME")]) -> None:
        """Nothing."""

    with pytest.raises(UsageError, match="must differ in more than their case"):
        tool(twice)


def test_fields_of_a_class_cannot_have_headers() -> None:
    """What is defined under a name, and referred to, is out of reach for clients."""

    @dataclass
    class Page:
        limit: Annotated[int, Header("Limit")]

    async def turn(page: Page) -> None:
        """Nothing."""

    turn.__annotations__["page"] = Page
    with pytest.raises(UsageError, match="not on a property that is reached through 'properties' alone"):
        tool(turn)


@pytest.mark.req("HTP-2")
def test_annotations_in_a_schema_of_the_author_s() -> None:
    async def query(arguments: dict[str, Any]) -> None:
        """Nothing."""

    page = {"type": "object", "properties": {"limit": {"type": "integer", "x-mcp-header": "Limit"}}}
    schema = {"type": "object", "properties": {"page": page, "who": {"type": ["string", "null"]}}}
    entry = tool(query, schema)
    assert entry.param_headers == ParamHeaders((ParamHeader("Mcp-Param-Limit", ("page", "limit")),))
    assert entry.payload.input_schema == schema
    with pytest.raises(UsageError, match="HTTP clients would refuse the tool 'query'"):
        tool(query, {"type": "object", "additionalProperties": {"type": "string", "x-mcp-header": "A"}})


def test_tools_without_annotations_have_no_headers() -> None:
    async def plain(a: str | None = None) -> None:
        """Nothing."""

    entry = tool(plain)
    assert entry.param_headers is None
    assert entry.payload.input_schema == entry.signature.schema


async def test_other_transports_take_no_notice() -> None:
    server = make_server()

    @server.tool
    async def query(region: Annotated[str | None, Header("Region")] = None) -> str:
        return f"in {region}"

    async with raw_client(server) as peer:
        assert await peer.text("query", {"region": "b"}) == "in b"
        assert await peer.text("query", {"region": None}) == "in None"
        assert await peer.text("query") == "in None"
