"""The fields that a class declares."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, Generic, NotRequired, Required, TypedDict, TypeVar

import attr
import attrs
import msgspec
import pytest
import typing_extensions

from mcplumb.errors import UsageError
from mcplumb.server.schema.type_codec import reader_of, schema_of, write
from mcplumb.server.schema.type_tree import (
    NO_DEFAULT,
    DeclaredField,
    declared_fields,
    is_named_tuple,
    is_record,
    is_typed_dict,
)
from tests.server.types_in_use import (
    INTEGER,
    STRING,
    Author,
    Box,
    IntBox,
    Movie,
    Options,
    Pair,
    Point,
    T,
    Wheel,
)


def fields_of(kind: Any) -> dict[str, DeclaredField]:
    return {field.name: field for field in declared_fields(kind, {})}


def test_the_sorts_of_classes() -> None:
    assert all(map(is_record, (Point, Options, Movie, Pair, Wheel)))
    assert not any(map(is_record, (int, dict, tuple, Box[int], Author)))
    assert is_typed_dict(Movie)
    assert not is_typed_dict(dict)
    assert is_named_tuple(Pair)
    assert not is_named_tuple(tuple)


def test_what_is_declared() -> None:
    assert declared_fields(Options, {}) == [
        DeclaredField("max_items", int, "maxItems", "max_items", True),
        DeclaredField("is_fast", bool | msgspec.UnsetType, "isFast", "is_fast", False, msgspec.UNSET),
    ]
    assert declared_fields(Movie, {}) == [
        DeclaredField("title", str, "title", "title", True),
        DeclaredField("year", int, "year", "year", False),
    ]
    assert declared_fields(Pair, {}) == [
        DeclaredField("left", int, "left", "left", True),
        DeclaredField("right", str, "right", "right", False, ""),
    ]
    assert declared_fields(IntBox, {}) == [
        DeclaredField("content", int, "content", "content", True),
        DeclaredField("more", list[int], "more", "more", False, []),
        DeclaredField("label", str, "label", "label", False, ""),
    ]
    assert declared_fields(Wheel, {}) == [
        DeclaredField("size", int, "size", "size", True),
        DeclaredField("spokes", int, "spokes", "spokes", False, 28),
        DeclaredField("tags", list[str], "tags", "tags", False, []),
    ]


def test_what_is_required_of_a_typed_dict() -> None:
    class Loose(TypedDict, total=False):
        a: int
        b: Required[int]

    class Heir(Loose):
        c: NotRequired[int]
        d: int

    assert {name for name, field in fields_of(Heir).items() if field.required} == {"b", "d"}
    assert {field.kind for field in fields_of(Heir).values()} == {int}


def test_the_words_of_newer_pythons_are_known() -> None:
    class Locked(typing_extensions.TypedDict):
        a: typing_extensions.ReadOnly[int]
        b: typing_extensions.ReadOnly[NotRequired[int]]

    found = fields_of(Locked)
    assert [found[name].required for name in "ab"] == [True, False]
    assert {field.kind for field in found.values()} == {int}


def test_defaults_of_structs_that_are_made_are_shown_if_that_is_safe() -> None:
    class Made(msgspec.Struct):
        a: list[int] = []
        b: object = msgspec.field(default_factory=object)

    assert fields_of(Made)["a"].default == []
    assert fields_of(Made)["b"].default is NO_DEFAULT


def test_what_cannot_be_used_is_refused() -> None:
    @dataclasses.dataclass
    class Initial:
        x: dataclasses.InitVar[int]

    with pytest.raises(UsageError, match=r"Initial\.x is an InitVar, which is not supported: make it a field"):
        fields_of(Initial)


def test_names_are_looked_up_in_the_scope() -> None:
    @dataclasses.dataclass
    class Local:
        inner: Inner  # type: ignore[name-defined] # noqa: F821 - found in the scope

    class LocalStruct(msgspec.Struct):
        inner: Inner  # type: ignore[name-defined] # noqa: F821 - not found at all

    (field,) = declared_fields(Local, {"Inner": int})
    assert field.kind is int
    Local.__type_params__ = (TypeVar("Inner"),)  # type: ignore[attr-defined] # as newer Pythons do by themselves
    (field,) = declared_fields(Local, {"Inner": int})
    assert isinstance(field.kind, TypeVar)
    Local.__type_params__ = ()  # type: ignore[attr-defined]
    for kind in (Local, LocalStruct):
        with pytest.raises(
            UsageError, match=f"{kind.__name__} name 'Inner', which cannot be found: define or import it"
        ):
            fields_of(kind)


def test_private_attributes_are_only_read() -> None:
    @attrs.define
    class Wheel:
        _spokes: int

    assert schema_of(Wheel) == {"type": "object", "properties": {"_spokes": INTEGER}, "required": ["_spokes"]}
    assert schema_of(Wheel, output=True) == {"type": "object", "properties": {}}
    assert reader_of(Wheel)({"_spokes": 3}) == reader_of(Wheel | Point)({"_spokes": 3}) == Wheel(3)
    assert write(Wheel(3)) == b"{}"


def upper(text: str) -> str:
    return text.upper()


def test_a_converter_is_used() -> None:
    @attrs.define
    class Name:
        text: str = attrs.field(converter=upper)
        twice: str = attrs.field(default=attrs.Factory(lambda self: self.text * 2, takes_self=True))

    assert reader_of(Name)({"text": "a"}) == Name("a", "AA")
    assert schema_of(Name)["required"] == ["text"]


def test_attributes_without_a_type_may_be_anything() -> None:
    thing: Any = attr.make_class("Thing", {"size": attr.ib(type=int), "rest": attr.ib(default=None)})

    assert schema_of(thing)["properties"] == {"size": INTEGER, "rest": {"default": None}}
    assert reader_of(thing)({"size": 1, "rest": [2]}) == thing(1, [2])
    bare = collections.namedtuple("bare", "a b", defaults=[1])  # noqa: PYI024 - it is in use, too
    assert schema_of(bare) == {"type": "array", "prefixItems": [{}, {"default": 1}], "minItems": 1, "maxItems": 2}


def test_parents_may_use_the_same_variable_for_other_things() -> None:
    @dataclasses.dataclass
    class Base(Generic[T]):
        one: T

    @dataclasses.dataclass
    class Heir(Base[int], Generic[T]):
        two: T

    assert schema_of(Heir[str])["properties"] == {"one": INTEGER, "two": STRING}

    class Generous(TypedDict, Generic[T]):
        one: T
        two: T | None

    assert schema_of(Generous[int])["properties"]["one"] == INTEGER
    assert schema_of(Generous[int])["properties"]["two"]["anyOf"][0] == INTEGER
