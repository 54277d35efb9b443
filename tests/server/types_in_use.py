"""Types of every sort that authors may use, for the tests of what is made of them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict, TypeVar

import attrs
import jsonschema_rs
import msgspec
import pydantic
import pytest
from annotated_types import Ge, Le, MinLen
from hypothesis import strategies as st

from mcplumb.server.schema.type_codec import BadValue

T = TypeVar("T")

INTEGER = {"type": "integer"}
STRING = {"type": "string"}


class Colour(enum.Enum):
    """What it looks like."""

    RED = "#f00"
    BLUE = "#00f"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    CALM = "calm"
    WILD = "wild"


class Odd(enum.Enum):
    HALF = 0.5
    NONE = None
    YES = True


@dataclasses.dataclass
class Point:
    """A place.

    Attributes:
        x: Across.
    """

    x: int
    y: Annotated[float, "Up."] = 0.0


@dataclasses.dataclass(frozen=True)
class Size:
    x: int
    z: int


@dataclasses.dataclass
class Tree:
    name: str
    children: list[Tree] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Either:
    one: Point | Size
    when: dt.date | decimal.Decimal | None = None


@dataclasses.dataclass
class Box(Generic[T]):
    content: T
    more: list[T] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class IntBox(Box[int]):
    label: str = ""


@dataclasses.dataclass
class Measured:
    width: int
    area: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.width < 0:
            raise ValueError("the width is negative")
        self.area = self.width**2


class Cat(msgspec.Struct, tag="cat"):
    name: str


class Dog(msgspec.Struct, tag="dog"):
    name: str
    age: int = 0


class Options(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    max_items: int
    is_fast: bool | msgspec.UnsetType = msgspec.UNSET


class Row(msgspec.Struct, array_like=True):
    x: int
    name: str = ""


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str = ""


@attrs.define
class Wheel:
    size: int
    spokes: int = 28
    tags: list[str] = attrs.Factory(list)


class Author(pydantic.BaseModel):
    """Who wrote it."""

    full_name: str = pydantic.Field(alias="fullName", min_length=1)
    born: dt.date | None = None


class Book(pydantic.BaseModel):
    title: str
    author: Author
    sequel: Book | None = None


UserId = NewType("UserId", int)
Short = Annotated[str, msgspec.Meta(min_length=1, max_length=3, description="A code.")]

#: Types that msgspec reads by itself, and for which the schema and the reader agree on every value.
NATIVE: dict[str, Any] = {
    "Any": Any,
    "object": object,
    "None": None,
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "list": list,
    "list of int": list[int],
    "sequence": Sequence[bool],
    "iterable": Iterable[int],
    "tuple": tuple,
    "tuple of int": tuple[int, ...],
    "tuple of two": tuple[int, str],
    "empty tuple": tuple[()],
    "dict": dict,
    "dict of int": dict[str, int],
    "mapping": Mapping[str, list[int]],
    "dict of choices": dict[Literal["a", "b"], int],
    "optional": Optional[int],  # noqa: UP045 - the older form is in use, too
    "union": int | str | list[int],
    "literal": Literal["b", "a", 3] | None,
    "enum": Colour,
    "int enum": Level,
    "str enum": Mood,
    "new type": UserId,
    "path": Path,
    "optional path": Path | None,
    "at least": Annotated[int, msgspec.Meta(ge=2)],
    "between": Annotated[float, msgspec.Meta(gt=0, lt=3)],
    "limits of others": Annotated[int, Ge(0), Le(2)],
    "multiple": Annotated[int, msgspec.Meta(multiple_of=2)],
    "short": Short,
    "pattern": Annotated[str, msgspec.Meta(pattern="^a")],
    "at least of optional": Annotated[int | None, msgspec.Meta(ge=2)],
    "filled list": Annotated[list[int], MinLen(1)],
    "small dict": Annotated[dict[str, int], msgspec.Meta(max_length=1)],
    "dataclass": Point,
    "recursive": Tree,
    "generic": Box[int],
    "heir of generic": IntBox,
    "list of dataclasses": list[Point],
    "dict of dataclasses": dict[str, Size],
    "struct": Options,
    "array struct": Row,
    "tagged structs": Cat | Dog,
    "tagged structs and more": list[Cat | Dog | None],
    "typed dict": Movie,
    "named tuple": Pair,
    "attrs": Wheel,
}

#: Types that msgspec refuses, or would read otherwise.
OTHERS: dict[str, Any] = {
    "two dataclasses": Point | Size,
    "field with two dataclasses": Either,
    "collections": list[int] | tuple[str, str],
    "path or int": Path | int,
    "mixed enum": Odd,
    "literal bool": Literal[True, "a"],
    "literal enum": Literal[Colour.RED],
    "two of pydantic": list[Author | Book],
    "enum keys": dict[Colour | Literal["x"], int],
}

# The names, texts and numbers are those that the types above are about, so that many of the values nearly fit.
_NAMES = st.sampled_from([
    "x", "y", "z", "name", "children", "content", "more", "label", "type", "age", "maxItems", "isFast", "title", "year",
    "size", "spokes", "tags", "one", "when", "fullName", "author", "a", "b", "#f00",
])  # fmt: skip
_LEAVES = st.sampled_from([
    None, True, False, 0, 1, 2, 3, -1, 0.5, 2.0, 2.5, 1e300, 10**30, "", "a", "b", "abcd", "3", "cat", "dog", "#f00",
    "calm", "1999-12-31", "null", "ä",
])  # fmt: skip
JSON = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4), max_leaves=10
)


def validator(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    """Checks values and, when it is made, the schema itself."""
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


def refused(read: Callable[[Any], Any], value: Any) -> BadValue:
    with pytest.raises(BadValue) as caught:
        read(value)
    return caught.value
