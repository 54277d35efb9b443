"""Describe the JSON Schemas of tools for people: type, default and meaning of each argument."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from mcplumb.cli.parse_value import SchemaView

__all__ = ["Field", "fields_of", "kind_of", "signature_of"]

#: Nesting of types and of arguments, and the number of arguments, that are described. The limits end cycles.
_MAX_TYPE_DEPTH = 5
_MAX_FIELD_DEPTH = 3
_MAX_FIELDS = 5000
#: Values of a choice that are listed.
_MAX_VALUES = 8


class Field(msgspec.Struct, frozen=True):
    """One argument of a tool or a prompt. The name of a member of an object is a path: ``place.city``."""

    name: str
    #: Its type in a few words.
    kind: str
    is_required: bool
    #: Its default, as JSON; empty if there is none.
    default: str
    description: str

    @property
    def words(self) -> str:
        """A description in one line, without the name."""
        needed = f", default {self.default}" if self.default else ", required" if self.is_required else ""
        return f"{self.kind}{needed}. {self.description}".rstrip(" .") + "."


def fields_of(schema: Any) -> list[Field]:
    """Return the arguments of a schema, required ones first; empty if it has no properties.

    An object with known members is replaced by these, because they can be given one by one.
    """
    return list(islice(_fields(SchemaView(schema), "", _MAX_FIELD_DEPTH, is_required=True), _MAX_FIELDS))


def kind_of(view: SchemaView, depth: int = 0) -> str:
    """Describe a type in a few words: ``string``, ``list of integer``, ``'a' | 'b'``."""
    kinds = [_kind(option, depth) for option in view.options[:_MAX_VALUES]]
    return " | ".join(dict.fromkeys(kinds))


def signature_of(name: str, schema: Any, longest: int | None = None) -> str:
    """Return a tool's signature, such as ``forecast(city, days=3, units?)``, cut after ``longest`` characters."""
    words: list[str] = []
    view = SchemaView(schema)
    for member, part, is_needed in _members(view):
        default = _default(part)
        words.append(member + (f"={default}" if default else "" if is_needed else "?"))
        if longest is not None and len(f"{name}({', '.join(words)})") > longest:
            words[-1] = "…"
            break
    return f"{name}({', '.join(words)})"


def _fields(view: SchemaView, place: str, depth: int, *, is_required: bool) -> Iterator[Field]:
    for member, part, is_needed in _members(view):
        name, needed = f"{place}{member}", is_required and is_needed
        options = [option for option in part.options if option.type != "null"]
        inner = [option for option in options if option.names and depth > 1]
        is_expanded = bool(inner) and len(inner) == len(options)
        if not is_expanded:
            yield Field(name, kind_of(part), needed, _default(part), _text(part, "description"))
        for option in inner[:1]:
            yield from _fields(option, f"{name}.", depth - 1, is_required=needed and is_expanded)


def _members(view: SchemaView) -> list[tuple[str, SchemaView, bool]]:
    """Return the members of an object and whether they are required, required ones first."""
    needed = set(view.needed)
    found = [(name, part, name in needed) for name, part in view.members]
    return sorted(found, key=lambda member: not member[2])


def _kind(option: SchemaView, depth: int) -> str:
    if (values := option.constants) is not None:
        more = " | …" if len(values) > _MAX_VALUES else ""
        return " | ".join(map(_value, values[:_MAX_VALUES])) + more
    match option.type:
        case "array" if "items" in option.schema:
            return f"list of {kind_of(option.items, depth + 1) if depth < _MAX_TYPE_DEPTH - 1 else 'any'}"
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
