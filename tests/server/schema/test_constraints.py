"""Shapes with limits."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import msgspec
import pytest
from annotated_types import Ge, MinLen

from mcplumb.errors import UsageError
from mcplumb.server.schema.constraints import unsupported_limits, with_limits
from mcplumb.server.schema.type_codec import reader_of, schema_of
from mcplumb.server.schema.type_tree import Leaf
from tests.server.types_in_use import (
    INTEGER,
    Short,
    UserId,
    refused,
)


def test_the_zone_of_a_time_can_be_required_or_forbidden() -> None:
    zoned = Annotated[dt.datetime, msgspec.Meta(tz=True)]
    assert schema_of(zoned) == schema_of(zoned, output=True) == {"type": "string", "format": "date-time"}
    naive = Annotated[dt.datetime, msgspec.Meta(tz=False)]
    assert schema_of(naive) == {"type": "string"}
    refused(reader_of(zoned), "1999-12-31T23:59:59")
    refused(reader_of(naive), "1999-12-31T23:59:59Z")


def test_limits_are_for_those_members_that_can_have_them() -> None:
    kind = Annotated[int | str | list[int] | dict[str, int] | None, Ge(1), MinLen(2)]
    assert schema_of(kind) == {
        "anyOf": [
            {"type": "integer", "minimum": 1},
            {"type": "string", "minLength": 2},
            {"type": "array", "items": INTEGER, "minItems": 2},
            {"type": "object", "additionalProperties": INTEGER, "minProperties": 2},
            {"type": "null"},
        ]
    }
    read = reader_of(kind)
    assert [read(value) for value in (1, "ab", [0, 0], None)] == [1, "ab", [0, 0], None]
    for value in (0, "a", [0], {"a": 1}):
        refused(read, value)
    noted = Annotated[Short | None, Ge(1)]
    with pytest.raises(UsageError):
        schema_of(noted)
    longer = Annotated[UserId | Short, MinLen(2)]
    assert schema_of(longer)["anyOf"][1] == {"type": "string", "minLength": 2, "maxLength": 3, "description": "A code."}


def test_limits_of_bytes_are_said_in_characters_of_base64() -> None:
    kind = Annotated[bytes, msgspec.Meta(min_length=1, max_length=4)]
    assert schema_of(kind) == {"type": "string", "contentEncoding": "base64", "minLength": 4, "maxLength": 8}
    assert reader_of(kind)("aGk=") == b"hi"
    refused(reader_of(kind), "")


def test_limits_that_make_no_sense() -> None:
    integer = Leaf(kind=int, schema={"type": "integer"})
    assert unsupported_limits(integer, {"ge": 1, "min_length": 1}) == {"min_length"}
    assert unsupported_limits(Leaf(kind=None, schema={"type": "null"}), {"ge": 1}) == {"ge"}
    for limits in ({"ge": 1.5}, {"ge": "a"}, {"ge": 2**70}):
        with pytest.raises(UsageError, match="The limits for an integer are invalid: "):
            with_limits(integer, limits)
    with pytest.raises(UsageError, match="The limits for a string are invalid: "):
        with_limits(Leaf(kind=str, schema={"type": "string"}), {"pattern": "("})
    assert with_limits(integer, {}) is integer
