"""JSON schemas of tools, in words for people: what each argument is, whether it is needed, and what it means."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["Field", "fields_of", "kind_of", "resolved", "signature_of"]

#: How deep a type is told, and how many references are followed: enough for people, and an end to circles.
_DEEPEST = 5
_MOST_REFERENCES = 20
#: How many values a choice names.
_MOST_VALUES = 8


class Field(msgspec.Struct, frozen=True):
    """One argument: of a tool, as its schema has it, or of a prompt."""

    name: str
    #: What it takes, in a few words.
    kind: str
    is_required: bool
    #: Its default, as JSON; empty if there is none.
    default: str
    description: str


def fields_of(schema: Any) -> list[Field]:
    """The properties of an object's schema, those that are required first; none if it is not such a schema."""
    schema = resolved(schema, schema)
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return []
    needed = set(map(str, required)) if isinstance(required, list) else set()
    found = []
    for name, inner in properties.items():
        full = resolved(inner, schema)
        default = msgspec.json.encode(full["default"]).decode() if "default" in full else ""
        found.append(Field(str(name), kind_of(inner, schema), name in needed, default, _text(full.get("description"))))
    return sorted(found, key=lambda field: not field.is_required)


def kind_of(schema: Any, root: Any, depth: int = 0) -> str:
    """What a value of this schema is, in a few words: ``string``, ``list of integer``, ``'a' | 'b'``."""
    schema = resolved(schema, root)
    if depth >= _DEEPEST:
        return "any"
    for word in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(word), list) and choices:
            return _either(kind_of(choice, root, depth + 1) for choice in choices[:_MOST_VALUES])
    if "const" in schema:
        return _value(schema["const"])
    if isinstance(values := schema.get("enum"), list) and values:
        more = " | …" if len(values) > _MOST_VALUES else ""
        return " | ".join(map(_value, values[:_MOST_VALUES])) + more
    kind = schema.get("type")
    if isinstance(kind, list):
        return _either(kind_of({**schema, "type": each}, root, depth + 1) for each in kind[:_MOST_VALUES])
    if kind == "array":
        return f"list of {kind_of(schema['items'], root, depth + 1)}" if "items" in schema else "list"
    if kind == "string" and isinstance(schema.get("format"), str):
        return f"string ({schema['format']})"
    return kind if isinstance(kind, str) else "any"


def signature_of(name: str, schema: Any, longest: int | None = None) -> str:
    """A tool as one would call it: ``forecast(city, days=3, units?)``. Arguments beyond a length are left out."""
    words: list[str] = []
    for field in fields_of(schema):
        mark = "" if field.is_required else f"={field.default}" if field.default else "?"
        words.append(field.name + mark)
        if longest is not None and len(f"{name}({', '.join(words)})") > longest:
            words[-1] = "…"
            break
    return f"{name}({', '.join(words)})"


def resolved(schema: Any, root: Any) -> dict[str, Any]:
    """The schema that is meant, where it refers to another one in the same document; nothing is fetched."""
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, dict):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        rest = {name: value for name, value in schema.items() if name != "$ref"}
        found = _find(root, reference)
        schema = {**found, **rest} if isinstance(found, dict) else rest
    return {}


def _find(root: Any, reference: str) -> Any:
    start, *steps = reference.split("/")
    if start != "#":
        return None
    for step in steps:
        root = root.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(root, dict) else None
    return root


def _either(kinds: Any) -> str:
    return " | ".join(dict.fromkeys(kinds))


def _value(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else msgspec.json.encode(value).decode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
