"""Values of shapes from plain data, and what is wrong with it."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import functools
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.server.schema.from_annotation import ParsedType, parse_type
from mcplumb.server.schema.read_value import ValueReader, expected, read_custom
from mcplumb.server.schema.type_codec import reader_of
from tests.kit.products import examples
from tests.server.types_in_use import (
    JSON,
    NATIVE,
    Author,
    Cat,
    Colour,
    Dog,
    Level,
    Measured,
    Options,
    Pair,
    Point,
    Short,
    Size,
    Tree,
    refused,
)


@functools.cache
def looked_at(name: str) -> ParsedType:
    looked = parse_type(NATIVE[name], {})
    assert looked.is_native
    return looked


def has_whole_floats(value: Any) -> bool:
    match value:
        case list():
            return any(map(has_whole_floats, value))
        case dict():
            return any(map(has_whole_floats, value.values()))
    return isinstance(value, float) and value.is_integer()


@examples(300)
@given(value=JSON, strict=st.booleans())
def test_both_ways_of_reading_give_the_same(value: Any, strict: bool) -> None:
    for name in NATIVE:
        looked = looked_at(name)
        reader = ValueReader(strict=strict)
        slow = reader.read_whole(looked.shape, value)
        try:
            fast = msgspec.convert(value, looked.shape.kind, strict=strict, dec_hook=read_custom, str_keys=True)
        except msgspec.ValidationError:
            # msgspec does not take 2.0 for 2, nor a text for the list that it holds.
            assert reader.faults or not strict or has_whole_floats(value), name
        else:
            assert not reader.faults, name
            assert not strict or (slow, type(slow)) == (fast, type(fast)), name


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    pass


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (int, "three", 'expected an integer, got the string "three"'),
        (int, True, "expected an integer, got true"),
        (int, 2.5, "expected an integer, got the number 2.5"),
        (int, None, "expected an integer, got null"),
        (int, [1], "expected an integer, got an array of 1 item"),
        (int, {}, "expected an integer, got an empty object"),
        (int, {"a": 1, "b": 2}, 'expected an integer, got an object with "a", "b"'),
        (str, 3, "expected a string, got the number 3"),
        (bool, 1, "expected true or false, got the number 1"),
        (None, 1, "expected null, got the number 1"),
        (bytes, "?", 'expected a string in base64, got the string "?"'),
        (dt.date, "soon", 'expected a date such as 1999-12-31, got the string "soon"'),
        (Path, 1, "expected a path, got the number 1"),
        (list[int], {}, "expected an array, got an empty object"),
        (tuple[int, int], [1], "expected an array of 2 items, got an array of 1 item"),
        (dict[str, int], [], "expected an object, got an array of 0 items"),
        (Point, 1, "expected an object, got the number 1"),
        (Pair, 1, "expected an array, got the number 1"),
        (Literal["a", "b"], "c", 'expected one of "a", "b", got the string "c"'),
        (Literal["a"], "c", 'expected "a", got the string "c"'),
        (Literal[1], True, "expected 1, got true"),
        (Colour, "red", 'expected one of "#f00", "#00f", got the string "red"'),
        (int | None, "x", 'expected an integer or null, got the string "x"'),
        (Annotated[int, msgspec.Meta(ge=2, le=5)], 1,
         "expected an integer from 2 to 5, got the number 1"),
        (Annotated[int, msgspec.Meta(gt=2, lt=5)], 2, "expected an integer above 2 and below 5, got the number 2"),
        (Annotated[int, msgspec.Meta(multiple_of=2)], 1,
         "expected an integer that is a multiple of 2, got the number 1"),
        (Annotated[str, msgspec.Meta(pattern="^a")], "b", 'expected a string that matches ^a, got the string "b"'),
        (Short, "", 'expected a string with at least 1 character and with at most 3 characters, got the string ""'),
        (Annotated[list[int], msgspec.Meta(min_length=1)], [],
         "expected an array with at least 1 item, got an array of 0 items"),
        (Annotated[dict[str, int], msgspec.Meta(max_length=0)], {"a": 1},
         'expected an object with at most 0 members, got an object with "a"'),
        (list[int], [1, "b"], 'at [1]: expected an integer, got the string "b"'),
        (dict[str, int], {"a b": "c"}, 'at ["a b"]: expected an integer, got the string "c"'),
        (dict[int, str], {"a": "b"}, 'at .a: the key is invalid: expected an integer, got the string "a"'),
        (Point, {}, "at .x: missing, expected an integer"),
        (Pair, [], "at [0]: missing, expected an integer"),
        (Pair, [1, 2], "at [1]: expected a string, got the number 2"),
        (Pair, [1, "a", 3], "expected an array, got an array of 3 items"),
        (Options, {"maxItems": 1, "maxitem": 2}, 'at .maxitem: unknown, did you mean "maxItems"?'),
        (Nothing, {"x": 1}, "at .x: unknown, none is known"),
        (Annotated[Point, "There."], None, "expected an object, got null"),
        (Options, {"maxItems": 1, "q": 2}, 'at .q: unknown, known are "maxItems", "isFast"'),
        (list[Tree], [{"name": "a", "children": [{"name": 3}]}],
         "at [0].children[0].name: expected a string, got the number 3"),
        (Cat | Dog, {"type": "cow"}, 'expected an object, got an object with "type"'),
        (Cat | Dog, {"name": "a"}, 'expected an object, got an object with "name"'),
        (Cat | int, {"type": "cow", "name": "a"}, 'at .type: expected "cat", got the string "cow"'),
        (Cat | Path, {"name": "a"}, 'at .type: expected "cat", got nothing'),
        (Point | int, {"x": "a"}, 'at .x: expected an integer, got the string "a"'),
        (Measured, {"width": -1}, "the width is negative"),
        (set[Any], [[1]], "a list or an object cannot be an item of a set"),
        (int, msgspec.Raw(b"1e999"), "this JSON cannot be read: Number out of range"),
        (int, object(), "expected an integer, got a Python object"),
        (int, {object(): 1}, "expected an integer, got an object with a Python object"),
        (int, "x" * 1000, f'expected an integer, got the string "{"x" * 80}"…'),
        (int, {str(i): i for i in range(20)},
         'expected an integer, got an object with ' + ", ".join(f'"{i}"' for i in range(12)) + " and 8 more"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(kind: Any, value: Any, said: str) -> None:
    assert str(refused(reader_of(kind), value)) == said


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "3", 3),
        (float, "2.5", 2.5),
        (bool, "true", True),
        (str, "3", "3"),
        (int | None, "3", 3),
        (int | None, "null", None),
        (Level, "2", Level.HIGH),
        (Colour, "#f00", Colour.RED),
        (Literal[1, "a"], "1", 1),
        (Literal[True], "true", True),
        (dt.date, "1999-12-31", dt.date(1999, 12, 31)),
        (list[int], "[1, 2]", [1, 2]),
        (list[int], '["1"]', [1]),
        (tuple[int, str], '[1, "a"]', (1, "a")),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Point, '{"x": 1}', Point(1)),
        (Author, '{"fullName": "A"}', Author(fullName="A")),
        (list[int] | None, "[1]", [1]),
        (Path | int, "3", Path("3")),
        (int | Path, "3", 3),
    ],
)
def test_texts_may_stand_for_values(kind: Any, text: str, value: Any) -> None:
    assert reader_of(kind, strict=False)(text) == value
    if kind not in (str, dt.date, Colour, Path | int, int | Path):
        refused(reader_of(kind), text)


@pytest.mark.parametrize(
    ("kind", "text"), [(int, "x"), (list[int], "x"), (list[int], "3"), (Point, "{"), (Author, "x"), (Author, "{}")]
)
def test_texts_that_stand_for_nothing_are_refused(kind: Any, text: str) -> None:
    refused(reader_of(kind, strict=False), text)


def test_values_of_other_types_are_passed_through() -> None:
    when = dt.datetime(1999, 12, 31, tzinfo=dt.UTC)
    assert reader_of(dt.datetime)(when) == when


def test_unions_that_contain_themselves_do_not_take_forever() -> None:
    @dataclasses.dataclass
    class Left:
        child: Left | Right | None

    @dataclasses.dataclass
    class Right:
        child: Left | Right | None

    value: Any = {"child": 3}
    for _ in range(60):
        value = {"child": value}
    refused(reader_of(Left | Right, scope={"Left": Left, "Right": Right}), value)


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep = msgspec.Raw(b'{"name": "", "children": [' * 480 + b"]}" * 480)
    value: Any = {"name": "", "children": []}
    for _ in range(100_000):
        value = {"name": "", "children": [value]}
    assert "nested too deeply" in str(refused(reader_of(Tree), value))
    assert "nested too deeply" in str(refused(reader_of(Tree | Path), deep))


def test_many_faults_are_not_all_looked_for() -> None:
    for kind, value in (
        (list[int], ["x"] * 1000),
        (dict[str, int], dict.fromkeys(map(str, range(1000)), "x")),
        (dict[int, int], dict.fromkeys((f"x{i}" for i in range(1000)), 1)),
        (Options, dict.fromkeys(map(str, range(1000)), 1)),
    ):
        reader = ValueReader(strict=True)
        reader.read_whole(parse_type(kind, {}).shape, value)
        assert 20 <= len(reader.faults) <= 21


def test_an_enum_that_finds_values_by_itself_does() -> None:
    class Loose(enum.Enum):
        A = "a"
        N = 1.5

        @classmethod
        def _missing_(cls, value: object) -> Any:
            return cls.A if value == "A" else None

    read = reader_of(Loose)
    assert read("A") is Loose.A
    refused(read, "B")
    refused(read, None)


def test_what_is_expected_of_shapes_with_notes() -> None:
    assert expected(parse_type(Annotated[int, "Some."], {}).shape) == "an integer"


def test_unions_prefer_what_leaves_out_least() -> None:
    read = reader_of(Annotated[Point, "a"] | Annotated[Size | Pair, "b"])
    assert read({"x": 1, "z": 2}) == Size(1, 2)
    assert read({"x": 1, "q": 2}) == Point(1)
    assert reader_of(Point | Cat | Path)({"type": "cat", "name": "a"}) == Cat("a")
