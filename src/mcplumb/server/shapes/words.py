"""Schemas and values in words: short, and as a model that wrote the JSON would name them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any

import msgspec

__all__ = ["as_text", "closest", "counted", "cut", "in_words", "listed", "located", "shown"]

#: Characters of a value, and names in a list, that are repeated in an error: enough to recognise it by.
_MAX_TEXT = 80
_MAX_NAMES = 12
_MAX_LINE = 400

_TYPES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}
_FORMATS = {
    "date": "a date such as 1999-12-31",
    "date-time": "a date and time such as 1999-12-31T23:59:59Z",
    "time": "a time such as 23:59:59",
    "duration": "a duration such as P1DT2H30M",
    "uuid": "a UUID",
    "decimal": "a decimal number such as 12.50",
    "path": "a path",
}
_LIMITS = {
    "minimum": "of at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "of at most {}",
    "exclusiveMaximum": "below {}",
    "multipleOf": "that is a multiple of {}",
    "minLength": "with at least {} character",
    "maxLength": "with at most {} character",
    "pattern": "that matches {}",
    "minItems": "with at least {} item",
    "maxItems": "with at most {} item",
    "minProperties": "with at least {} member",
    "maxProperties": "with at most {} member",
}


def in_words(schema: dict[str, Any]) -> str:
    """What a schema asks for: ``an integer of at least 3``."""
    if "enum" in schema:
        options = schema["enum"]
        return f"one of {listed(options)}" if len(options) > 1 else listed(options)
    if "contentEncoding" in schema:
        return "a string in base64"
    name = _FORMATS.get(schema.get("format", "")) or _TYPES.get(schema.get("type", ""), "another value")
    limits = [counted(words, schema[key]) for key, words in _LIMITS.items() if key in schema]
    return " ".join([name, " and ".join(limits)]) if limits else name


def shown(value: Any) -> str:
    """What came: its JSON type and, cut where it is long, its value."""
    match value:
        case None | bool():
            return _json(value)
        case str():
            return f"the string {_json(value)}"
        case int() | float():
            return f"the number {_json(value)}"
        case list():
            return counted("an array of {} item", len(value))
        case dict() if value:
            return f"an object with {listed(value)}"
        case dict():
            return "an empty object"
        case _:
            return f"a Python {type(value).__name__}"


def counted(words: str, number: Any) -> str:
    """The words with the number in them and, if they end with what it counts, the plural of that."""
    return words.format(number) + ("s" if words[-1] != "}" and number != 1 else "")


def as_text(constant: Any) -> str:
    """A JSON constant as a text: a text itself, of others their JSON."""
    return constant if isinstance(constant, str) else msgspec.json.encode(constant).decode()


def listed(values: Collection[Any]) -> str:
    """The first of some values, and how many more there are."""
    first = ", ".join(map(_json, islice(values, _MAX_NAMES)))
    return f"{first} and {len(values) - _MAX_NAMES} more" if len(values) > _MAX_NAMES else first


def closest(name: str, names: Collection[str]) -> str:
    """What to use instead of an unknown name: the known one that is most like it, or any."""
    from difflib import get_close_matches

    if like := get_close_matches(name[:_MAX_TEXT], names, 1):
        return f", did you mean {_json(like[0])}?"
    return f", known are {listed(names)}" if names else ", none is known"


def cut(text: str) -> str:
    """A text that others wrote, without its end if it is long."""
    return text if len(text) <= _MAX_LINE else text[:_MAX_LINE] + "…"


def located(path: Iterable[str | int]) -> str:
    """A place in a value: ``.days[2].hour``."""
    return "".join(f".{part}" if isinstance(part, str) and part.isidentifier() else f"[{_json(part)}]" for part in path)


def _json(value: Any) -> str:
    # A text is cut before it is written: it may be as long as a message.
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return _json(value[:_MAX_TEXT]) + "…"
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        text = f"a Python {type(value).__name__}"
    return text if len(text) <= 2 * _MAX_TEXT else text[:_MAX_TEXT] + "…"
