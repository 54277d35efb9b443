"""Shapes as JSON Schema."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import math
import uuid
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Literal

import msgspec
import pytest
from typing_extensions import TypeAliasType

from mcplumb.server.schema.type_codec import reader_of, schema_of, write
from tests.server.types_in_use import (
    INTEGER,
    STRING,
    Author,
    Book,
    Box,
    Cat,
    Colour,
    Level,
    Measured,
    Movie,
    Odd,
    Options,
    Pair,
    Point,
    Row,
    Short,
    Size,
    Tree,
    UserId,
    Wheel,
    validator,
)

POINT = {
    "type": "object",
    "description": "A place.",
    "properties": {
        "x": {"type": "integer", "description": "Across."},
        "y": {"type": "number", "description": "Up.", "default": 0.0},
    },
    "required": ["x"],
}


SIZE = {"type": "object", "properties": {"x": INTEGER, "z": INTEGER}, "required": ["x", "z"]}


TREE = {
    "type": "object",
    "properties": {"name": STRING, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "default": []}},
    "required": ["name"],
}


CAT = {"type": "object", "properties": {"type": {"const": "cat"}, "name": STRING}, "required": ["type", "name"]}


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (Any, {}),
        (object, {}),
        (None, {"type": "null"}),
        (bool, {"type": "boolean"}),
        (float, {"type": "number"}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (dt.date, {"type": "string", "format": "date"}),
        (dt.time, {"type": "string", "format": "time"}),
        (dt.timedelta, {"type": "string", "format": "duration"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (decimal.Decimal, {"type": "string", "format": "decimal"}),
        (PurePosixPath, {"type": "string", "format": "path"}),
        (list, {"type": "array"}),
        (set[int], {"type": "array", "items": INTEGER, "uniqueItems": True}),
        (tuple[int, str], {"type": "array", "prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2}),
        (tuple[()], {"type": "array", "minItems": 0, "maxItems": 0}),
        (dict, {"type": "object"}),
        (dict[str, Any], {"type": "object"}),
        (dict[int, str], {"type": "object", "propertyNames": {"pattern": "^(0|-?[1-9][0-9]*)$"},
                          "additionalProperties": STRING}),
        (dict[Short, int], {"type": "object", "additionalProperties": INTEGER,
                            "propertyNames": {"minLength": 1, "maxLength": 3, "description": "A code."}}),
        (dict[Level, int], {"type": "object", "propertyNames": {"enum": ["1", "2"]}, "additionalProperties": INTEGER}),
        (dict[Level | Short, int], {"type": "object", "additionalProperties": INTEGER, "propertyNames": {"anyOf": [
            {"enum": ["1", "2"]}, {"minLength": 1, "maxLength": 3, "description": "A code."}]}}),
        (int | None, {"anyOf": [INTEGER, {"type": "null"}]}),
        (Literal["b", "a"], {"type": "string", "enum": ["b", "a"]}),
        (Literal["b", 1], {"enum": ["b", 1]}),
        (Colour, {"type": "string", "enum": ["#f00", "#00f"], "description": "What it looks like."}),
        (Level, {"type": "integer", "enum": [1, 2]}),
        (Odd, {"enum": [0.5, None, True]}),
        (UserId, INTEGER),
        (Short, {"type": "string", "minLength": 1, "maxLength": 3, "description": "A code."}),
        (Annotated[bytes, msgspec.Meta(max_length=4)], {"type": "string", "contentEncoding": "base64", "maxLength": 8}),
        (Annotated[int, "How many."], {"type": "integer", "description": "How many."}),
        (Point, POINT),
        (list[Point], {"type": "array", "items": {"$ref": "#/$defs/Point"}, "$defs": {"Point": POINT}}),
        (Annotated[Point, "There."], {**POINT, "description": "There."}),
        (Point | Size, {"anyOf": [{"$ref": "#/$defs/Point"}, {"$ref": "#/$defs/Size"}],
                        "$defs": {"Point": POINT, "Size": SIZE}}),
        (Tree, {**TREE, "$defs": {"Tree": TREE}}),
        (Box[int], {"type": "object", "required": ["content"],
                    "properties": {"content": INTEGER, "more": {"type": "array", "items": INTEGER, "default": []}}}),
        (Cat, CAT),
        (Options, {"type": "object", "properties": {"maxItems": INTEGER, "isFast": {"type": "boolean"}},
                   "required": ["maxItems"], "additionalProperties": False}),
        (Row, {"type": "array", "prefixItems": [INTEGER, {**STRING, "default": ""}], "minItems": 1}),
        (Movie, {"type": "object", "properties": {"title": STRING, "year": INTEGER}, "required": ["title"]}),
        (Pair, {"type": "array", "prefixItems": [INTEGER, {**STRING, "default": ""}], "minItems": 1, "maxItems": 2}),
        (Final[int], INTEGER),
        (Wheel, {"type": "object",
                 "properties": {"size": INTEGER, "spokes": {**INTEGER, "default": 28},
                                "tags": {"type": "array", "items": STRING, "default": []}},
                 "required": ["size"]}),
    ],
    ids=str,
)  # fmt: skip
def test_schemas(kind: Any, schema: dict[str, Any]) -> None:
    assert schema_of(kind) == schema


def test_a_time_without_a_zone_has_no_format_when_it_is_written() -> None:
    for kind in (dt.datetime, dt.time, dt.timedelta):
        assert schema_of(kind, output=True) == {"type": "string"}
    assert schema_of(dt.date, output=True) == {"type": "string", "format": "date"}


def test_fields_that_are_only_written_are_in_the_output_only() -> None:
    assert schema_of(Measured) == {"type": "object", "properties": {"width": INTEGER}, "required": ["width"]}
    assert schema_of(Measured, output=True)["properties"] == {"width": INTEGER, "area": {**INTEGER, "default": 0}}
    assert reader_of(Measured)({"width": 3, "area": 5}).area == 9
    assert msgspec.json.decode(write(Measured(3))) == {"width": 3, "area": 9}


def test_defaults_are_shown_if_they_are_json() -> None:
    @dataclasses.dataclass
    class Settings:
        path: Path = Path("a")
        colour: Colour = Colour.RED
        size: float = math.inf
        thing: Any = dataclasses.field(default_factory=object)
        other: Any = len
        when: Any = dataclasses.field(default_factory=lambda: pytest.fail("It is called."))
        nothing: None = None

    properties = schema_of(Settings)["properties"]
    shown = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
    assert shown == {"path": "a", "colour": "#f00", "nothing": None}


def test_definitions_with_the_same_name_are_told_apart() -> None:
    def made(kind: Any) -> Any:
        return dataclasses.make_dataclass("Thing", [("x", kind)])

    things: Any = tuple
    schema = schema_of(things[made(int), made(str), made(int)])
    assert [place["$ref"] for place in schema["prefixItems"]] == ["#/$defs/Thing", "#/$defs/Thing_2", "#/$defs/Thing_3"]
    assert schema["$defs"]["Thing_2"]["properties"] == {"x": STRING}
    assert list(schema_of(list[Box[Point]])["$defs"]) == ["Box_Point", "Point"]


def test_models_that_have_the_same_name_as_others_are_told_apart() -> None:
    @dataclasses.dataclass
    class Author:
        age: int

    schema = schema_of(tuple[Author, Book])
    assert schema["$defs"]["Author"]["properties"] == {"age": INTEGER}
    assert schema["$defs"]["Book.Book"]["properties"]["author"] == {"$ref": "#/$defs/Book.Author"}
    check = validator(schema)
    book = {"title": "a", "author": {"fullName": "b"}}
    assert check.is_valid([{"age": 1}, book])
    assert not check.is_valid([{"age": 1}, {"title": "a", "author": {"age": 1}}])


def test_models_describe_themselves() -> None:
    schema = schema_of(Book)
    assert schema["type"] == "object"
    assert schema["properties"]["author"] == {"$ref": "#/$defs/Author"}
    assert schema["$defs"]["Author"]["properties"]["fullName"]["minLength"] == 1
    assert schema_of(Author)["description"] == "Who wrote it."
    assert "required" not in schema_of(list[Author])
    both = schema_of(tuple[Author, Book, Author])
    assert [place["$ref"] for place in both["prefixItems"]] == ["#/$defs/Author", "#/$defs/Book", "#/$defs/Author"]
    assert list(both["$defs"]) == ["Author", "Book"]


def test_aliases_are_defined_once() -> None:
    nested: Any = TypeAliasType("nested", "int | list[nested]")
    schema = schema_of(tuple[nested, nested], scope={"nested": nested})
    assert schema["prefixItems"] == [{"$ref": "#/$defs/nested"}] * 2
    assert list(schema["$defs"]) == ["nested"]


def test_aliases_that_contain_themselves_are_definitions() -> None:
    nested: Any = TypeAliasType("nested", "int | list[nested]")
    inner = {"anyOf": [INTEGER, {"type": "array", "items": {"$ref": "#/$defs/nested"}}]}
    assert schema_of(nested, scope={"nested": nested}) == {**inner, "$defs": {"nested": inner}}
