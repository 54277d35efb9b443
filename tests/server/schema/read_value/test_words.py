"""Schemas and values in words."""

from __future__ import annotations

from typing import Any

import pytest

from mcplumb.server.schema.read_value import (
    as_text,
    closest,
    counted,
    format_path,
    listed,
    schema_in_words,
    shorten,
    value_in_words,
)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({}, "another value"),
        ({"type": "string"}, "a string"),
        ({"type": "string", "format": "email"}, "a string"),
        ({"type": "string", "format": "uuid"}, "a UUID"),
        ({"type": "string", "contentEncoding": "base64", "maxLength": 8}, "a string in base64"),
        ({"type": "integer", "minimum": 2, "maximum": 5}, "an integer from 2 to 5"),
        ({"type": "number", "minimum": 2, "exclusiveMaximum": 5}, "a number of at least 2 and below 5"),
        ({"type": "array", "minItems": 2}, "an array with at least 2 items"),
        ({"enum": ["a"]}, '"a"'),
        ({"type": "string", "enum": ["a", None, 1]}, 'one of "a", null, 1'),
        ({"enum": list(range(14))}, "one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more"),
    ],
)
def test_schemas(schema: dict[str, Any], words: str) -> None:
    assert schema_in_words(schema) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        (True, "true"),
        (1, "the number 1"),
        (10**300, "the number 1" + "0" * 79 + "…"),
        (2.5, "the number 2.5"),
        ("a", 'the string "a"'),
        ("a" * 81, 'the string "' + "a" * 80 + '"…'),
        ("\n", r'the string "\n"'),
        ([], "an array of 0 items"),
        ([1], "an array of 1 item"),
        ({}, "an empty object"),
        ({"a": 1, "b": 2}, 'an object with "a", "b"'),
        (b"", "a Python bytes"),
        ("\ud800", "the string a Python str"),
    ],
)
def test_values(value: Any, words: str) -> None:
    assert value_in_words(value) == words


def test_what_is_counted_has_a_plural() -> None:
    assert [counted("{} item", number) for number in (0, 1, 2)] == ["0 items", "1 item", "2 items"]
    assert counted("above {}", 2) == "above 2"


def test_lists() -> None:
    assert listed([]) == ""
    assert listed(["a", 1]) == '"a", 1'


def test_texts_of_constants() -> None:
    assert [as_text(constant) for constant in ("a", 1, True, None)] == ["a", "1", "true", "null"]


def test_the_closest_name() -> None:
    assert closest("ctiy", ["days", "city"]) == ', did you mean "city"?'
    assert closest("zzz", ["days", "city"]) == ', known are "days", "city"'
    assert closest("zzz", []) == ", none is known"
    assert closest("a" * 1_000_000, ["a" * 80]) == f', did you mean "{"a" * 80}"?'


def test_long_texts_are_cut() -> None:
    assert shorten("a" * 400) == "a" * 400
    assert shorten("a" * 401) == "a" * 400 + "…"


def test_places() -> None:
    assert format_path(()) == ""
    assert format_path(("days", 2, "hour")) == ".days[2].hour"
    assert format_path(("a b", "")) == '["a b"][""]'
