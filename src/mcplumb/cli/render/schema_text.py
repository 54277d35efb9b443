"""JSON schemas of tools, in words for people: what each argument is, whether it is needed, and what it means."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from mcplumb.cli.parse_value import SchemaView

__all__ = ["Field", "fields_of", "kind_of", "signature_of"]

#: How deep types are told, and arguments within arguments, and how many these are: enough for people, and an end to
#: circles.
_DEEPEST_TYPE = 5
_DEEPEST_FIELD = 3
_MOST_FIELDS = 5000
#: How many values a choice names.
_MOST_VALUES = 8


class Field(msgspec.Struct, frozen=True):
    """One argument: of a tool, as its schema has it, or of a prompt. Within an object it is called ``place.city``."""

    name: str
    #: What it takes, in a few words.
    kind: str
    is_required: bool
    #: Its default, as JSON; empty if there is none.
    default: str
    description: str

    @property
    def words(self) -> str:
        """All of that in one line, without the name."""
        needed = ", required" if self.is_required else f", {self.default} if left out" if self.default else ""
        return f"{self.kind}{needed}. {self.description}".rstrip(" .") + "."


def fields_of(schema: Any) -> list[Field]:
    """The arguments that a schema has, those that are required first; none if it is not such a schema.

    An object whose members are known is told by these, as they can be given one by one.
    """
    return list(islice(_fields(SchemaView(schema), "", _DEEPEST_FIELD, is_required=True), _MOST_FIELDS))


def kind_of(view: SchemaView, depth: int = 0) -> str:
    """What a value is, in a few words: ``string``, ``list of integer``, ``'a' | 'b'``."""
    kinds = [_kind(option, depth) for option in view.options[:_MOST_VALUES]]
    return " | ".join(dict.fromkeys(kinds))


def signature_of(name: str, schema: Any, longest: int | None = None) -> str:
    """A tool as one would call it: ``forecast(city, days=3, units?)``. Arguments beyond a length are left out."""
    words: list[str] = []
    view = SchemaView(schema)
    for member, part, is_needed in _members(view):
        default = _default(part)
        words.append(member + ("" if is_needed else f"={default}" if default else "?"))
        if longest is not None and len(f"{name}({', '.join(words)})") > longest:
            words[-1] = "…"
            break
    return f"{name}({', '.join(words)})"


def _fields(view: SchemaView, place: str, depth: int, *, is_required: bool) -> Iterator[Field]:
    for member, part, is_needed in _members(view):
        name, needed = f"{place}{member}", is_required and is_needed
        options = [option for option in part.options if option.type != "null"]
        inner = [option for option in options if option.names and depth > 1]
        is_told_by_parts = bool(inner) and len(inner) == len(options)
        if not is_told_by_parts:
            yield Field(name, kind_of(part), needed, _default(part), _text(part, "description"))
        for option in inner[:1]:
            yield from _fields(option, f"{name}.", depth - 1, is_required=needed and is_told_by_parts)


def _members(view: SchemaView) -> list[tuple[str, SchemaView, bool]]:
    """The members of an object, and whether they are needed; those first."""
    needed = set(view.needed)
    found = [(name, part, name in needed) for name, part in view.members]
    return sorted(found, key=lambda member: not member[2])


def _kind(option: SchemaView, depth: int) -> str:
    if (values := option.constants) is not None:
        more = " | …" if len(values) > _MOST_VALUES else ""
        return " | ".join(map(_value, values[:_MOST_VALUES])) + more
    match option.type:
        case "array" if "items" in option.schema:
            return f"list of {kind_of(option.items, depth + 1) if depth < _DEEPEST_TYPE - 1 else 'any'}"
        case "array":
            return "list"
        case "string" if form := _text(option, "format"):
            return f"string ({form})"
        case "integer" | "number" as name:
            return name + _bounds(option.schema.get("minimum"), option.schema.get("maximum"))
        case name:
            return name


def _bounds(low: Any, high: Any) -> str:
    match low, high:
        case int() | float(), int() | float():
            return f" ({low} to {high})"
        case int() | float(), _:
            return f" (from {low})"
        case _, int() | float():
            return f" (up to {high})"
    return ""


def _default(view: SchemaView) -> str:
    return msgspec.json.encode(view.schema["default"]).decode() if "default" in view.schema else ""


def _value(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else msgspec.json.encode(value).decode()


def _text(view: SchemaView, key: str) -> str:
    value = view.schema.get(key)
    return value if isinstance(value, str) else ""
