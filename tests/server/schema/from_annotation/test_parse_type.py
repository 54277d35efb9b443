"""From annotations to the tree of types."""

from __future__ import annotations

import dataclasses
import decimal
import enum
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
import pydantic
import pytest
from annotated_types import Ge, MinLen
from typing_extensions import TypeAliasType

from mcplumb.errors import UsageError
from mcplumb.server.schema.from_annotation import parse_type, resolve_annotation
from mcplumb.server.schema.type_codec import reader_of, schema_of
from mcplumb.server.schema.type_tree import Model
from tests.server.types_in_use import (
    INTEGER,
    NATIVE,
    OTHERS,
    STRING,
    Author,
    Box,
    Point,
    T,
    refused,
    validator,
)


@pytest.mark.parametrize("name", NATIVE | OTHERS)
def test_what_msgspec_can_read_is_known(name: str) -> None:
    assert parse_type((NATIVE | OTHERS)[name], {}).is_native == (name in NATIVE)


@dataclasses.dataclass
class WithInitVar:
    x: dataclasses.InitVar[int]


class Bits(enum.Enum):
    A = (1, 2)


class Empty(enum.Enum):
    pass


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (complex, "The type complex cannot be represented in JSON: use builtin types, dataclasses,"),
        (list[complex], "The type complex cannot be represented in JSON"),
        (Callable[[int], str], "The type collections.abc.Callable[[int], str] cannot be represented"),
        (type[int], "The type type[int] cannot be represented in JSON"),
        ([int], "cannot be represented in JSON"),
        (3, "The type 3 cannot be represented in JSON"),
        (dict[tuple[int, int], str], "The keys of a JSON object cannot represent tuple[int, int]: use str or int."),
        (dict[bool, str], "The keys of a JSON object cannot represent bool"),
        (set[list[int]], "A set cannot contain list[int], which is not hashable: use a list."),
        (frozenset[Point], "A frozenset cannot contain Point, which is not hashable"),
        (Bits, "Bits has no values, or values that JSON cannot represent: use strings and numbers."),
        (Empty, "Empty has no values, or"),
        (Literal[b"a"], "Literal[b'a'] has no values, or values that JSON cannot represent"),
        (WithInitVar, "WithInitVar.x is an InitVar, which is not supported: make it a field."),
        (Annotated[str, msgspec.Meta(ge=1)], "The limit 'ge' does not apply to str: remove it."),
        (Annotated[decimal.Decimal, Ge(1)], "The limit 'ge' does not apply to Decimal: remove it."),
        (Annotated[int, Ge(1.5)], "The limits for an integer are invalid"),
        (Annotated[int, Ge("a")], "The limits for an integer are invalid"),
        (Annotated[str, pydantic.Field(pattern="(")], "The limits for a string are invalid"),
        (Annotated[list[int], MinLen(-1)], "The limits for an array are invalid"),
    ],
)
def test_what_has_no_schema_is_refused(kind: Any, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        schema_of(kind)
    assert said in str(caught.value)


def test_type_variables_that_nobody_binds_are_what_they_may_be() -> None:
    assert schema_of(Box)["properties"]["content"] == {}
    bound = TypeVar("bound", bound=Point)
    assert schema_of(list[bound]) == schema_of(list[Point])  # type: ignore[valid-type] # made here, for the test
    either = TypeVar("either", int, str)
    assert schema_of(either) == {"anyOf": [INTEGER, STRING]}


def test_limits_of_other_libraries_hold_inside_of_classes() -> None:
    @dataclasses.dataclass
    class Child:
        age: Annotated[int, Ge(0)]

    assert reader_of(Child)({"age": 1}) == Child(1)
    assert (
        str(refused(reader_of(Child), {"age": -1})) == "at .age: expected an integer of at least 0, got the number -1"
    )


def test_constrained_variables_hold_inside_of_classes() -> None:
    either = TypeVar("either", int, str)

    @dataclasses.dataclass
    class Holder(Generic[either]):
        content: either

    assert reader_of(Holder, scope={"either": either})({"content": 1}) == Holder(1)
    refused(reader_of(Holder, scope={"either": either}), {"content": None})


def test_aliases_mean_what_they_stand_for() -> None:
    name = TypeAliasType("name", str)
    item: Any = T
    two: Any = TypeAliasType("two", tuple[T, T], type_params=(item,))
    assert schema_of(name) == STRING
    assert schema_of(two[int]) == schema_of(tuple[int, int])
    assert reader_of(two[int])([1, 2]) == (1, 2)


def test_aliases_may_contain_themselves() -> None:
    nested: Any = TypeAliasType("nested", "int | list[nested] | dict[str, nested]")
    scope = {"nested": nested}
    schema = schema_of(nested, scope=scope)
    assert schema["anyOf"][1] == {"type": "array", "items": {"$ref": "#/$defs/nested"}}
    check = validator(schema)
    read = reader_of(nested, scope=scope)
    values: list[Any] = [1, [1, [2, {"a": [3]}]], {}]
    for value in values:
        assert check.is_valid(value)
        assert read(value) == value
    assert not check.is_valid([[None]])
    assert str(refused(read, [[None]])) == "at [0][0]: expected an integer or an array or an object, got null"
    assert schema_of(list[nested], scope=scope)["items"] == {"$ref": "#/$defs/nested"}


def test_words_around_a_type_are_passed_over() -> None:
    assert schema_of(Final[int]) == INTEGER


def test_what_pydantic_has_a_say_in_is_left_to_it() -> None:
    for kind in (
        Annotated[int, pydantic.AfterValidator(abs)],
        Annotated[decimal.Decimal, pydantic.Field(gt=0)],
        pydantic.dataclasses.dataclass(dataclasses.make_dataclass("Checked", [("x", int)])),
    ):
        looked = parse_type(kind, {})
        assert isinstance(looked.shape, Model)
        assert not looked.is_native
    assert parse_type(Author, {}).is_native


def test_an_enum_may_find_values_by_itself() -> None:
    class Loose(enum.Enum):
        A = "a"

        @classmethod
        def _missing_(cls, value: object) -> Any:
            return cls.A

    assert reader_of(Loose)("b") is Loose.A
    assert reader_of(Loose | Path)("b") is Loose.A


def test_strings_are_resolved() -> None:
    assert resolve_annotation("list[a]", {"a": int}, {}, "It") == list[int]
    assert resolve_annotation("a", {"a": int}, {"a": str}, "It") is str
    assert resolve_annotation(int, {}, {}, "It") is int
    assert parse_type("a", {"a": int}).shape.kind is int
    with pytest.raises(UsageError, match="It names 'b', which cannot be found: define or import it at the top"):
        resolve_annotation("list[b]", {}, {}, "It")
    for text in ("a text", "1.a", "list[int"):
        with pytest.raises(UsageError, match=r"It is annotated with .* which is not a type"):
            resolve_annotation(text, {}, {}, "It")
    for text in ("a.b", "a[1, 2, 3]"):
        with pytest.raises(UsageError, match=r"It is annotated with .* which is not a type"):
            resolve_annotation(text, {"a": int}, {}, "It")


def test_keys_may_be_noted() -> None:
    assert schema_of(dict[Annotated[str, "A name."], int])["propertyNames"] == {"description": "A name."}
