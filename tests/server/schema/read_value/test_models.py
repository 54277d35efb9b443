"""The types of pydantic."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
from collections.abc import Callable
from typing import Annotated

import msgspec
import pydantic
import pytest

from mcplumb.errors import UsageError
from mcplumb.server.schema.type_codec import reader_of, schema_of, write
from tests.server.types_in_use import (
    Author,
    Book,
    Point,
    refused,
    validator,
)


def test_models_read_themselves() -> None:
    read = reader_of(dict[str, Book])
    book = {"title": "a", "author": {"fullName": "b", "born": "1999-12-31"}}
    assert read({"x": book})["x"].author.born == dt.date(1999, 12, 31)
    error = refused(read, {"x": {"title": 1, "author": {"fullName": ""}}})
    assert str(error) == "at .x.title: Input should be a valid string"
    error = refused(read, {"x": {"title": "", "author": {"fullName": ""}}})
    assert str(error) == "at .x.author.fullName: String should have at least 1 character"


def test_strict_models_take_the_texts_that_json_has_for_their_types() -> None:
    class Strict(pydantic.BaseModel, strict=True):
        when: dt.date
        size: int

    assert reader_of(Strict)({"when": "1999-12-31", "size": 1}) == Strict(when=dt.date(1999, 12, 31), size=1)
    refused(reader_of(Strict), {"when": "1999-12-31", "size": "1"})


def test_models_can_be_anywhere() -> None:
    @dataclasses.dataclass
    class Shelf:
        books: list[Book]
        owner: Author | Point | None = None

    book = {"title": "a", "author": {"fullName": "b"}}
    made = reader_of(Shelf)({"books": [book], "owner": {"x": 1}})
    assert made.owner == Point(1)
    assert made.books == [Book(title="a", author=Author(fullName="b"))]
    assert msgspec.json.decode(write(made))["books"][0]["author"] == {"fullName": "b", "born": None}
    assert validator(schema_of(Shelf, output=True)).is_valid(msgspec.json.decode(write(made)))


def test_dataclasses_of_pydantic_are_checked_by_it() -> None:
    @pydantic.dataclasses.dataclass
    class Checked:
        size: Annotated[int, pydantic.Field(gt=0)]

    assert reader_of(list[Checked])([{"size": 1}]) == [Checked(1)]
    refused(reader_of(list[Checked]), [{"size": 0}])
    assert write(Checked(1)) == b'{"size":1}'


def test_other_types_of_pydantic_are_read_by_it() -> None:
    assert reader_of(pydantic.AnyUrl)("http://a") == pydantic.AnyUrl("http://a")
    assert schema_of(pydantic.AnyUrl)["format"] == "uri"
    even = Annotated[int, pydantic.AfterValidator(lambda number: number * 2)]
    assert reader_of(even)(2) == reader_of(even)(msgspec.Raw(b"2")) == 4
    price = Annotated[decimal.Decimal, pydantic.Field(gt=0)]
    assert reader_of(price)("1.5") == decimal.Decimal("1.5")
    refused(reader_of(price), "0")
    validator(schema_of(price)).is_valid(1)
    assert reader_of(pydantic.RootModel[list[int]])([1]).root == [1]


def test_what_pydantic_cannot_do_is_a_usage_error() -> None:
    class Unknown(pydantic.BaseModel):
        other: Nobody  # type: ignore[name-defined] # noqa: F821 - that is the point

    with pytest.raises(UsageError, match="Pydantic cannot describe"):
        schema_of(Unknown)

    class Foreign:
        pass

    class Callback(pydantic.BaseModel):
        call: Callable[[], None]

    with pytest.raises(UsageError, match="Pydantic cannot describe"):
        schema_of(Callback)
    with pytest.raises(UsageError, match="Pydantic cannot use"):
        schema_of(Annotated[Foreign, pydantic.AfterValidator(str)])
