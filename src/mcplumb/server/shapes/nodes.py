"""The nodes of the trees that types are taken apart into.

They are data only: ``looking`` makes them from annotations, ``schemas`` describes them, ``readings`` reads by them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

__all__ = [
    "NO_DEFAULT",
    "Alias",
    "Array",
    "Field",
    "Leaf",
    "Model",
    "Noted",
    "Object",
    "Path",
    "Record",
    "Shape",
    "Tuple",
    "Union",
    "Values",
]

#: Where in a value something is: the names and numbers that lead there.
Path: TypeAlias = tuple[str | int, ...]

#: For a field that has no default, or none that could be shown.
NO_DEFAULT: Any = object()


class _Node(msgspec.Struct, eq=False, kw_only=True):
    #: What msgspec is given to read the type.
    kind: Any


class Noted(_Node, eq=False, kw_only=True):
    """A type, and what its author noted about it where it is used: a description, examples …"""

    inner: Shape
    notes: dict[str, Any]


class Alias(_Node, eq=False, kw_only=True):
    """A type that contains itself, by the name of an alias."""

    name: str
    inner: Shape


class Leaf(_Node, eq=False, kw_only=True):
    """A type without parts, which msgspec reads."""

    schema: dict[str, Any]
    #: The keys of the schema that cannot be promised for a value that is written.
    loose: tuple[str, ...] = ()


class Values(_Node, eq=False, kw_only=True):
    """A choice of constants: the JSON of each, and what it stands for."""

    options: list[tuple[Any, Any]]
    description: str = ""
    #: Finds what else a value may stand for; a ValueError if nothing.
    find: Callable[[Any], Any] | None = None


class Array(_Node, eq=False, kw_only=True):
    """A collection of items that are all alike."""

    item: Shape
    make: Callable[[list[Any]], Any]
    limits: dict[str, int] = {}


class Tuple(_Node, eq=False, kw_only=True):
    """An array with a type for each place."""

    items: list[Shape]


class Object(_Node, eq=False, kw_only=True):
    """An object with any names, whose members are all alike."""

    key: Shape
    item: Shape
    limits: dict[str, int] = {}


class Union(_Node, eq=False, kw_only=True):
    """Several types: a value is of the first that it fits."""

    members: list[Shape]


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a record."""

    #: Its name in JSON.
    key: str
    #: Its name as an argument of what makes the record; None if it is not read.
    argument: str | None
    shape: Shape
    required: bool
    description: str = ""
    default: Any = NO_DEFAULT
    is_written: bool = True


class Record(_Node, eq=False, kw_only=True):
    """An object with known members or, for named tuples and their like, an array of them."""

    name: str
    make: Callable[..., Any]
    fields: list[Field]
    description: str = ""
    #: The member that says which type it is, and what it says.
    tag: tuple[str, Any] | None = None
    #: Whether other members are refused.
    is_closed: bool = False
    is_array: bool = False

    @property
    def keys(self) -> list[str]:
        """The names of all members, in the order of an array of them."""
        return ([self.tag[0]] if self.tag else []) + [field.key for field in self.fields]


class Model(_Node, eq=False, kw_only=True):
    """A type of pydantic, which describes and reads itself."""

    #: Empty if it has none.
    name: str
    #: Pydantic's ``TypeAdapter``.
    adapter: Any


Shape: TypeAlias = Noted | Alias | Leaf | Values | Array | Tuple | Object | Union | Record | Model
