"""Schemas in words."""

from __future__ import annotations

from typing import Any

import pytest

from mcpipe.cli.schemas import Field, fields_of, kind_of, resolved, signature_of

ROOT: dict[str, Any] = {
    "type": "object",
    "$defs": {"City": {"type": "string", "description": "A city."}, "a/b~c": {"type": "null"}},
    "properties": {
        "units": {"enum": ["C", "F"], "default": "C"},
        "city": {"$ref": "#/$defs/City"},
        "days": {"type": "integer", "description": "How many."},
        "broken": 5,
    },
    "required": ["city"],
}


def test_fields_are_told_with_the_required_ones_first() -> None:
    assert fields_of(ROOT) == [
        Field("city", "string", True, "", "A city."),
        Field("units", "'C' | 'F'", False, '"C"', ""),
        Field("days", "integer", False, "", "How many."),
        Field("broken", "any", False, "", ""),
    ]


@pytest.mark.parametrize("schema", [None, 5, [], {}, {"type": "object"}, {"properties": 5}, {"$ref": "#/nothing"}])
def test_what_has_no_fields_has_none(schema: Any) -> None:
    assert fields_of(schema) == []
    assert signature_of("f", schema) == "f()"


def test_a_list_of_required_fields_may_be_nonsense() -> None:
    assert not fields_of({"properties": {"a": {}}, "required": 5})[0].is_required


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date"}, "string (date)"),
        ({"type": "array"}, "list"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}, "list of list of number"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}, {"type": "integer"}]}, "integer | null"),
        ({"oneOf": [{"$ref": "#/$defs/City"}, {"const": 1}]}, "string | 1"),
        ({"const": "x"}, "'x'"),
        ({"enum": [1, None, "a", True]}, "1 | null | 'a' | true"),
        ({"enum": list(range(20))}, "0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | …"),
        ({"enum": [], "anyOf": []}, "any"),
        ({"type": 5}, "any"),
        (True, "any"),
        ({"$ref": "#/$defs/a~1b~0c"}, "null"),
        ({"$ref": "https://x.y/z"}, "any"),
        ({"$ref": "#/$defs/City/type/deeper"}, "any"),
        ({"$ref": "#/$defs/City", "type": "integer"}, "integer"),
    ],
)
def test_a_type_is_told_in_a_few_words(schema: Any, words: str) -> None:
    assert kind_of(schema, ROOT) == words


def test_circles_have_an_end() -> None:
    circle: dict[str, Any] = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert resolved({"$ref": "#/$defs/a"}, circle) == {}
    tree: dict[str, Any] = {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}
    assert kind_of({"$ref": "#/$defs/t"}, tree) == "list of list of list of list of list of any"


def test_a_signature_is_how_one_would_call_it() -> None:
    assert signature_of("forecast", ROOT) == 'forecast(city, units="C", days?, broken?)'
    assert signature_of("forecast", ROOT, 24) == "forecast(city, …)"
