"""Types to schemas, JSON to values of types, and values to JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import decimal
import functools
import math
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from hypothesis import given

from mcplumb.errors import EncodeError, UsageError
from mcplumb.server.schema.type_codec import BadValue, reader_of, schema_of, write
from tests.kit.products import examples
from tests.server.types_in_use import (
    JSON,
    NATIVE,
    OTHERS,
    Author,
    Box,
    Cat,
    Colour,
    Dog,
    Either,
    IntBox,
    Level,
    Measured,
    Mood,
    Movie,
    Odd,
    Options,
    Pair,
    Point,
    Row,
    Size,
    Tree,
    Wheel,
    refused,
    validator,
)

KINDS = NATIVE | OTHERS


@functools.cache
def agreed(name: str, *, output: bool = False) -> Callable[[Any], bool]:
    return validator(schema_of(KINDS[name], output=output)).is_valid


@functools.cache
def reader(name: str, *, strict: bool = True) -> Callable[[Any], Any]:
    return reader_of(KINDS[name], strict=strict)


@pytest.mark.parametrize("name", KINDS)
def test_every_schema_is_one_and_complete_in_itself(name: str) -> None:
    for output in (False, True):
        schema = schema_of(KINDS[name], output=output)
        validator(schema).is_valid(1)
        assert "$ref" not in schema
        assert msgspec.json.decode(msgspec.json.encode(schema)) == schema


@examples(300)
@given(value=JSON)
def test_what_the_schema_accepts_is_read_and_nothing_else(value: Any) -> None:
    """The types in the tables are those of which this is true. The others, on purpose:

    * More is read than the schema says: numbers for a Decimal, duplicates for a set, times without a zone, UUIDs
      without hyphens, a tagged Struct that stands alone without its tag, and what a pydantic model is lenient about.
    * Less is read: bytes that are not base64, texts that are not numbers for a Decimal, durations in weeks, months and
      years, leap seconds; what Python's types cannot hold, as a float of 400 digits; and what a class refuses itself.
    """
    for name in KINDS:
        accepted = agreed(name)(value)
        for form in (value, msgspec.Raw(msgspec.json.encode(value))):
            try:
                reader(name)(form)
            except BadValue:
                assert not accepted, name
            else:
                assert accepted, name


@given(value=JSON)
def test_whatever_comes_is_read_or_refused(value: Any) -> None:
    for name in KINDS:
        with contextlib.suppress(BadValue):
            reader(name, strict=False)(value)


@examples(300)
@given(value=JSON)
def test_what_was_read_can_be_written_and_read_again(value: Any) -> None:
    for name in KINDS:
        try:
            made = reader(name)(value)
        except BadValue:
            continue
        written = msgspec.json.decode(write(made))
        assert agreed(name, output=True)(written), name
        assert reader(name)(written) == made, name


@pytest.mark.parametrize(
    ("kind", "json", "value"),
    [
        (int, "3.0", 3),
        (int, "123456789012345678901234567890", 123456789012345678901234567890),
        (float, "3", 3.0),
        (list[int], "[1, 2.0]", [1, 2]),
        (set[int], "[1, 1]", {1}),
        (frozenset[str], '["a"]', frozenset({"a"})),
        (tuple[int, ...], "[1, 2]", (1, 2)),
        (dict[int, str], '{"3": "a"}', {3: "a"}),
        (dict[Level, int], '{"2": 5}', {Level.HIGH: 5}),
        (bytes, '"aGk="', b"hi"),
        (dt.datetime, '"1999-12-31T23:59:59Z"', dt.datetime(1999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)),
        (dt.datetime, '"1999-12-31T23:59:59"', dt.datetime(1999, 12, 31, 23, 59, 59)),
        (dt.date, '"1999-12-31"', dt.date(1999, 12, 31)),
        (dt.time, '"23:59:59"', dt.time(23, 59, 59)),
        (dt.timedelta, '"P1DT2H"', dt.timedelta(days=1, hours=2)),
        (uuid.UUID, f'"{uuid.UUID(int=5)}"', uuid.UUID(int=5)),
        (decimal.Decimal, '"1.50"', decimal.Decimal("1.50")),
        (decimal.Decimal, "1.50", decimal.Decimal("1.50")),
        (Path, '"a/b"', Path("a/b")),
        (Colour, '"#f00"', Colour.RED),
        (Level, "2.0", Level.HIGH),
        (Mood, '"wild"', Mood.WILD),
        (Odd, "0.5", Odd.HALF),
        (Odd, "true", Odd.YES),
        (Literal[Colour.RED], '"#f00"', Colour.RED),
        (Point, '{"x": 1}', Point(1)),
        (Point | Size, '{"x": 1, "z": 2}', Size(1, 2)),
        (Point | Size, '{"x": 1, "y": 2}', Point(1, 2.0)),
        (Annotated[Point, "a"] | Annotated[Size | Pair, "b"], '{"x": 1, "z": 2}', Size(1, 2)),
        (Size | Point, '{"x": 1}', Point(1)),
        (Point | dict[str, int], '{"x": 1, "q": 2}', {"x": 1, "q": 2}),
        (int | dt.date | decimal.Decimal, '"1999-12-31"', dt.date(1999, 12, 31)),
        (int | dt.date | decimal.Decimal, '"1.5"', decimal.Decimal("1.5")),
        (int | dt.date | decimal.Decimal, "1", 1),
        (list[int] | set[str], "[1]", [1]),
        (list[int] | set[str], '["a"]', {"a"}),
        (Either, '{"one": {"x": 1, "z": 2}, "when": "1.5"}', Either(Size(1, 2), decimal.Decimal("1.5"))),
        (Tree, '{"name": "a", "children": [{"name": "b"}]}', Tree("a", [Tree("b")])),
        (Box[Point], '{"content": {"x": 1}}', Box(Point(1))),
        (Box[Point | Size], '{"content": {"x": 1, "z": 2}}', Box(Size(1, 2))),
        (IntBox, '{"content": 1, "label": "a"}', IntBox(1, [], "a")),
        (Cat | Dog, '{"type": "dog", "name": "a"}', Dog("a")),
        (Cat | Point, '{"type": "cat", "name": "a"}', Cat("a")),
        (Options, '{"maxItems": 3}', Options(3)),
        (Row, "[1]", Row(1)),
        (Row | str, '[1, "a"]', Row(1, "a")),
        (Movie, '{"title": "a"}', {"title": "a"}),
        (Pair, '[1, "a"]', Pair(1, "a")),
        (Pair | Point, '[1, "a"]', Pair(1, "a")),
        (Wheel, '{"size": 1, "spokes": 2}', Wheel(1, 2)),
        (Wheel | Point, '{"size": 1, "spokes": 2}', Wheel(1, 2)),
        (Measured, '{"width": 3}', Measured(3)),
    ],
    ids=str,
)
def test_values(kind: Any, json: str, value: Any) -> None:
    read = reader_of(kind)
    for form in (msgspec.Raw(json.encode()), msgspec.json.decode(json)):
        made = read(form)
        assert made == value
        assert type(made) is type(value)


def test_a_reason_has_its_place_apart() -> None:
    error = refused(reader_of(list[int]), [1, None])
    assert (error.path, error.reason) == ("[1]", "expected an integer, got null")
    error = refused(reader_of(int), None)
    assert (error.path, error.reason) == ("", "expected an integer, got null")


def test_names_of_local_types_are_found_in_the_scope() -> None:
    @dataclasses.dataclass
    class Inner:
        x: int

    @dataclasses.dataclass
    class Outer:
        inner: Inner

    scope = {"Inner": Inner}
    assert schema_of(Outer, scope=scope)["properties"] == {"inner": {"$ref": "#/$defs/Inner"}}
    assert reader_of(Outer, scope=scope)({"inner": {"x": 1}}) == Outer(Inner(1))
    assert reader_of("list[Inner]", scope=scope)([{"x": 1}]) == [Inner(1)]
    with pytest.raises(UsageError, match=r"Outer name 'Inner', which cannot be found: define or import it at the top"):
        schema_of(Outer)

    class Local(msgspec.Struct):
        inner: Inner

    with pytest.raises(UsageError, match="Local name 'Inner', which cannot be found"):
        schema_of(Local)
    with pytest.raises(UsageError, match="A type names 'Nobody', which cannot be found"):
        schema_of("Nobody")
    with pytest.raises(UsageError, match="A type is annotated with 'a text', which is not a type"):
        schema_of("a text")


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (Path("a/b"), '"a/b"'),
        (float("nan"), "null"),
        ([math.inf], "[null]"),
        (10**30, "1" + "0" * 30),
        ({1: Colour.RED}, '{"1":"#f00"}'),
        (Point(1, 2), '{"x":1,"y":2}'),
        (Cat("a"), '{"type":"cat","name":"a"}'),
        (decimal.Decimal("1.50"), '"1.50"'),
        (dt.timedelta(days=1, seconds=1.5), '"P1DT1.5S"'),
        (b"hi", '"aGk="'),
        ({"a": {1}}, '{"a":[1]}'),
        (Author(fullName="A"), '{"fullName":"A","born":null}'),
        ([Box(Author(fullName="A"))], '[{"content":{"fullName":"A","born":null},"more":[]}]'),
        (pydantic.AnyUrl("http://a/"), '"http://a/"'),
    ],
)  # fmt: skip
def test_writing(value: Any, json: str) -> None:
    assert write(value).decode() == json


def test_what_cannot_be_written_is_said() -> None:
    with pytest.raises(
        EncodeError, match="A value of type 'list' cannot be written as JSON: JSON has no form for 'object'"
    ):
        write([object()])
    with pytest.raises(EncodeError, match="surrogates"):
        write("\ud800")
    with pytest.raises(EncodeError, match="A value of type 'dict'"):
        write({None: 1})
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(EncodeError, match="cannot be written as JSON: it is nested too deeply, or contains itself"):
        write(endless)


@pytest.mark.parametrize("library", ["pydantic", "attrs", "attr", "dataclasses", "pathlib", "json", "difflib"])
def test_no_library_is_loaded_that_the_types_do_not_need(library: str) -> None:
    program = (
        "import sys; from mcplumb.server.schema.type_codec import *; from mcplumb.server.schema.signature import *; "
        "schema_of(dict[str, int | None]); reader_of(list[int])([1]); "
        "inspect_function(lambda x: x, context=type(sys)); "
        f"sys.exit({library!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-I", "-c", program], check=False).returncode == 0
