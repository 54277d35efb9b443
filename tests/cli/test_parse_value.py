"""Texts as the values that schemas want, whatever the schema is."""

from __future__ import annotations

from typing import Any

import pytest

from mcplumb.cli.parse_value import InvalidText, SchemaView

STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
DEFINITIONS = {
    "$defs": {"a/b": INTEGER, "loop": {"$ref": "#/$defs/loop"}},
    "properties": {
        "far": {"$ref": "#/$defs/a~1b"},
        "loop": {"$ref": "#/$defs/loop"},
        "gone": {"$ref": "#/$defs/gone/more"},
        "web": {"$ref": "https://example.org/schema"},
        "whole": {"$ref": "#"},
    },
}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (STRING, "3", "3"),
        (STRING, "", ""),
        (STRING, "null", "null"),
        (INTEGER, "3", 3),
        (INTEGER, "-3", -3),
        (INTEGER, "3.0", 3),
        (INTEGER, "1e3", 1000),
        ({"type": "number"}, "3", 3),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "No", False),
        ({"type": "boolean"}, "0", False),
        (NULL, "null", None),
        ({"type": "array", "items": INTEGER}, "[1, 2]", [1, 2]),
        ({"type": "array", "items": INTEGER}, "1", [1]),
        ({"type": "array", "items": STRING}, "[draft]", ["[draft]"]),
        ({"items": STRING}, "a", ["a"]),
        ({"type": "array"}, "a", ["a"]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"properties": {"a": INTEGER}}, '{"a": 1}', {"a": 1}),
        ({"enum": ["a", 1, None, True]}, "1", 1),
        ({"enum": ["a", 1, None, True]}, "true", True),
        ({"const": "x"}, "x", "x"),
        ({"enum": []}, "x", "x"),
        ({"enum": "a"}, "x", "x"),
        # Any value: JSON if it is that, otherwise the text.
        ({}, "3", 3),
        ({}, "Oslo", "Oslo"),
        (True, "[1]", [1]),
        (None, "x", "x"),
        ({"type": "made-up"}, "x", "x"),
        # One of several.
        ({"anyOf": [STRING, NULL]}, "null", None),
        ({"anyOf": [STRING, NULL]}, "3", "3"),
        ({"anyOf": [STRING, INTEGER]}, "3", 3),
        ({"type": ["integer", "null"]}, "null", None),
        ({"type": ["boolean", "null"]}, "yes", True),
        ({"type": ["boolean", "string"]}, "no", "no"),
        ({"type": ["boolean", "string"]}, "false", False),
        ({"oneOf": [{"type": "boolean"}, INTEGER]}, "1", 1),
        ({"anyOf": [STRING, {"type": "array", "items": STRING}]}, '["a"]', ["a"]),
        ({"anyOf": [STRING, {"type": "array", "items": STRING}]}, "a", "a"),
        ({"anyOf": [{"type": "array", "items": INTEGER}, NULL]}, "1", [1]),
        ({"anyOf": [{"anyOf": [INTEGER, NULL]}, {"type": "boolean"}]}, "true", True),
        ({"anyOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, "b", "b"),
        ({"type": ["string", "null"], "enum": ["a", None]}, "null", None),
        # All of several.
        ({"allOf": [{"type": "integer"}, {"minimum": 2}]}, "3", 3),
        ({"type": "integer", "anyOf": [{"minimum": 10}, {"maximum": 2}]}, "1", 1),
        # Limits.
        ({"type": "integer", "minimum": 1, "maximum": 3}, "3", 3),
        ({"type": "integer", "minimum": "1"}, "0", 0),
        ({"type": "string", "minLength": 2, "maxLength": 2}, "ab", "ab"),
    ],
)
def test_a_text_becomes_what_the_schema_wants(schema: Any, text: str, value: Any) -> None:
    found = SchemaView(schema).read(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("schema", "text", "words"),
    [
        (INTEGER, "x", "an integer"),
        (INTEGER, "2.5", "an integer"),
        (INTEGER, "1_000", "an integer"),
        (INTEGER, "9" * 5000, "an integer"),
        ({"type": "number"}, "nan", "a number"),
        ({"type": "number"}, "inf", "a number"),
        ({"type": "boolean"}, "maybe", "true or false"),
        (NULL, "x", "null"),
        ({"type": "object"}, "[1]", "an object"),
        ({"type": "object"}, "[" * 100_000, "an object"),
        ({"type": "array", "items": INTEGER}, "x", "a list (each item: an integer)"),
        ({"type": "array", "items": {"type": "array", "items": INTEGER}}, "x", "a list"),
        ({"type": "array", "items": {"type": ["integer", "null"]}}, "x", "a list"),
        ({"enum": ["a", "b"]}, "c", "one of a, b"),
        ({"const": "a"}, "c", "a"),
        (
            {"enum": [str(number) for number in range(20)]},
            "c",
            "one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 8 more",
        ),
        ({"anyOf": [INTEGER, NULL, INTEGER]}, "x", "an integer or null"),
        ({"type": "integer", "minimum": 1, "maximum": 14}, "15", "an integer from 1 to 14"),
        ({"type": "number", "minimum": 1, "exclusiveMaximum": 4}, "4", "a number of at least 1 and below 4"),
        ({"type": "number", "exclusiveMinimum": 0}, "0", "a number above 0"),
        ({"type": "number", "exclusiveMaximum": 0}, "0", "a number below 0"),
        ({"type": "string", "minLength": 2}, "a", "a text with at least 2 characters"),
        ({"type": "string", "maxLength": 1, "format": "email"}, "ab", "an email address with at most 1 character"),
    ],
)
def test_what_cannot_be_read_is_explained(schema: Any, text: str, words: str) -> None:
    with pytest.raises(InvalidText) as said:
        SchemaView(schema).read(text)
    shown = text if len(text) <= 80 else f"{text[:80]}…"
    assert str(said.value) == f"must be {words}, not {shown!r}"


def test_any_value_has_words_too() -> None:
    assert SchemaView({}).words == "any value"


def test_references_are_followed_within_the_schema_only() -> None:
    whole = SchemaView(DEFINITIONS)
    parts = [whole.part(name) for name in whole.names]
    assert [part.words for part in parts if part is not None] == ["an integer", *["any value"] * 3, "an object"]


def test_members_are_those_that_are_allowed() -> None:
    known = SchemaView({"properties": {"a": INTEGER}, "required": ["a", 3]})
    assert (known.names, known.needed, known.part("b")) == (["a"], ["a"], None)
    assert SchemaView({"properties": {}}).part("b") is None
    assert SchemaView({"properties": {}, "additionalProperties": True}).part("b") is not None
    assert SchemaView({"properties": {}, "patternProperties": {"^x": {}}}).part("b") is not None
    assert SchemaView({"properties": 3, "required": "a"}).needed == []
    more = SchemaView({"additionalProperties": INTEGER}).part("b")
    assert more is not None
    assert more.read("3") == 3
    assert SchemaView({"additionalProperties": False}).part("b") is None


def test_parts_of_all_are_put_together() -> None:
    both = SchemaView(
        {"allOf": [{"properties": {"a": INTEGER}, "required": ["a"]}, {"properties": {"b": STRING}, "required": ["b"]}]}
    )
    assert (both.names, sorted(both.needed)) == (["b", "a"], ["a", "b"])


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"x": {"allOf": [{"$ref": "#/$defs/x"}] * 50}}, "$ref": "#/$defs/x"},
        {"$defs": {"x": {"anyOf": [{"$ref": "#/$defs/x"}] * 50}}, "$ref": "#/$defs/x"},
        {"type": "array", "items": {"$ref": "#"}},
        {"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}}]},
    ],
)
def test_a_schema_without_an_end_has_one_here(schema: Any) -> None:
    view = SchemaView(schema)
    assert view.words
    assert view.read("[3]") == [3]
