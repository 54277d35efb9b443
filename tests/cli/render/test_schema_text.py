"""Schemas in words."""

from __future__ import annotations

from typing import Any

import pytest

from mcplumb.cli.parse_value import SchemaView
from mcplumb.cli.render.schema_text import Field, fields_of, kind_of, signature_of

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
        ({"allOf": [{"$ref": "#/$defs/City"}]}, "string"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, "integer (1 to 5)"),
        ({"type": "number", "minimum": 0.5}, "number (from 0.5)"),
        ({"type": ["integer", "null"], "maximum": 5}, "integer (up to 5) | null"),
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
    assert kind_of(SchemaView(schema, ROOT)) == words


def test_circles_have_an_end() -> None:
    circle: dict[str, Any] = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert kind_of(SchemaView({"$ref": "#/$defs/a"}, circle)) == "any"
    tree: dict[str, Any] = {"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}
    assert kind_of(SchemaView({"$ref": "#/$defs/t"}, tree)) == "list of list of list of list of list of any"


def test_a_signature_is_how_one_would_call_it() -> None:
    assert signature_of("forecast", ROOT) == 'forecast(city, units="C", days?, broken?)'
    assert signature_of("forecast", ROOT, 24) == "forecast(city, …)"


def test_what_is_within_an_object_is_told_as_it_can_be_given() -> None:
    address = {"type": "object", "properties": {"city": {"default": "Oslo"}, "street": {"type": "string"}}}
    customer = {"type": "object", "properties": {"born": {}, "name": {}, "at": address}, "required": ["name"]}
    deep: Any = {"properties": {"a": {"properties": {"b": {"properties": {"c": {"properties": {"d": {}}}}}}}}}
    schema = {
        "properties": {"friend": {"anyOf": [customer, {"type": "null"}]}, "customer": customer, "deep": deep},
        "required": ["customer"],
    }
    fields = fields_of(schema)
    assert [field.name for field in fields if field.is_required] == ["customer.name"]
    assert [field.name for field in fields] == [
        *["customer.name", "customer.born", "customer.at.city", "customer.at.street"],
        *["friend.name", "friend.born", "friend.at.city", "friend.at.street", "deep.a.b"],
    ]
    assert fields[-1].kind == "object"
    assert signature_of("order", schema) == "order(customer, friend?, deep?)"


def test_a_schema_within_itself_has_an_end() -> None:
    assert len(fields_of({"properties": {f"p{number}": {"$ref": "#"} for number in range(100)}})) == 5000


def test_a_field_has_words() -> None:
    assert Field("a", "string", True, "", "A city.").words == "string, required. A city."
    assert Field("a", "string", False, '"x"', "").words == 'string, default "x".'
    assert Field("a", "string", False, "", "Any").words == "string. Any."
