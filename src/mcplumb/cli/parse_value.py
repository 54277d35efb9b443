"""A text as the value that a schema wants.

The schema is a server's, so it may be anything. What it does not say clearly is taken to allow everything: the server
has the last word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec

from mcplumb.errors import UsageError
from mcplumb.server.schema.read_value import as_text, counted

__all__ = ["InvalidText", "SchemaView"]

#: References that are followed, alternatives that are looked at, and parts that are put together. Nobody needs as many;
#: a cycle needs more.
_MAX_HOPS = 16
_MAX_OPTIONS = 64
_MAX_PARTS = 16
#: Constants and characters that are repeated in words.
_MAX_NAMED = 12
_MAX_QUOTED = 80

_TYPES = {
    "null": "null",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "string": "a text",
}
#: What is tried in turn. Any text can be a text, so that comes last.
_ORDER = ["constant", "null", "integer", "number", "boolean", "array", "object", "any", "string"]
_FORMATS = {
    "date": "a date such as 1999-12-31",
    "date-time": "a date and time such as 1999-12-31T23:59:59Z",
    "email": "an email address",
    "uri": "an address such as https://example.org",
}
_BOOLEANS = {
    "true": True,
    "yes": True,
    "y": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "n": False,
    "off": False,
    "0": False,
}

_Number = int | float
_LIMITS: dict[str, tuple[str, Callable[[_Number, _Number], bool]]] = {
    "minimum": ("of at least {}", lambda value, limit: value >= limit),
    "exclusiveMinimum": ("above {}", lambda value, limit: value > limit),
    "maximum": ("of at most {}", lambda value, limit: value <= limit),
    "exclusiveMaximum": ("below {}", lambda value, limit: value < limit),
}
_LENGTHS: dict[str, tuple[str, Callable[[_Number, _Number], bool]]] = {
    "minLength": ("with at least {} character", lambda value, limit: value >= limit),
    "maxLength": ("with at most {} character", lambda value, limit: value <= limit),
}
_NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)


class InvalidText(UsageError):
    """A text is not what the schema wants. The sentence lacks its beginning: ``has to be an integer, and not 'x'``."""


class SchemaView:
    """A schema, as far as it says which values there are: its references followed, its parts put together."""

    def __init__(self, schema: Any, root: Any = None) -> None:
        self._root = schema if root is None else root
        self.schema = _put_together(schema, self._root, _MAX_HOPS)

    @property
    def options(self) -> list[SchemaView]:
        """The views that this one is a choice of; only itself if it is none."""
        return list(islice(self._options(_MAX_HOPS), _MAX_OPTIONS))

    @property
    def type(self) -> str:
        """What one option is: a type of JSON, ``constant`` for one of a few values, or ``any``."""
        if self.constants is not None:
            return "constant"
        name = self.schema.get("type")
        if isinstance(name, str) and name in _TYPES:
            return name
        return "object" if "properties" in self.schema else "array" if "items" in self.schema else "any"

    @property
    def constants(self) -> list[Any] | None:
        """The few values that there are; None if these are not counted one by one."""
        if "const" in self.schema:
            return [self.schema["const"]]
        constants = self.schema.get("enum")
        return constants if isinstance(constants, list) and constants else None

    # --- Objects and lists ---

    @property
    def names(self) -> list[str]:
        """The names of the members that are known."""
        return list(_dict(self.schema.get("properties")))

    @property
    def members(self) -> list[tuple[str, SchemaView]]:
        """The members that are known, by their names."""
        return [(name, SchemaView(part, self._root)) for name, part in _dict(self.schema.get("properties")).items()]

    @property
    def needed(self) -> list[str]:
        """The names of the members that must be there."""
        needed = self.schema.get("required")
        return [name for name in needed if isinstance(name, str)] if isinstance(needed, list) else []

    def part(self, name: str) -> SchemaView | None:
        """A member of an object by its name; None if it is not allowed.

        Where the schema does not say whether there may be others than those that it names, there may not: it is rather
        a mistake in the name.
        """
        members = _dict(self.schema.get("properties"))
        if name in members:
            return SchemaView(members[name], self._root)
        more = self.schema.get("additionalProperties")
        if more is None:
            more = "properties" not in self.schema or "patternProperties" in self.schema
        return None if more is False else SchemaView(more, self._root)

    @property
    def items(self) -> SchemaView:
        """What the items of a list are."""
        return SchemaView(self.schema.get("items"), self._root)

    # --- Texts ---

    def read(self, text: str) -> Any:
        """The value that the text stands for; InvalidText if it stands for none.

        If several are possible, a text is what remains when it is nothing else. A list can be JSON, or a single item.
        """
        lists = [option.items for option in self.options if option.type == "array"]
        for view, wrap in ((self, False), *((items, True) for items in lists)):
            try:
                value = view._first(text)
            except InvalidText:
                continue
            return [value] if wrap else value
        shown = text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"
        raise InvalidText(f"has to be {self.words}, and not {shown!r}")

    @property
    def words(self) -> str:
        """What values there are: ``an integer of at least 1 or null``."""
        return " or ".join(dict.fromkeys(option._words for option in self.options))

    def _first(self, text: str) -> Any:
        options = sorted(self.options, key=lambda option: _ORDER.index(option.type))
        for option in options:
            if option.type == "boolean" and options[-1].type in ("any", "string") and text not in ("true", "false"):
                continue  # where any text is possible, "no" may be the name of a country
            try:
                return option._read(text)
            except InvalidText:
                continue
        raise InvalidText

    # --- One option ---

    def _options(self, hops: int) -> Iterator[SchemaView]:
        for key in ("anyOf", "oneOf"):
            parts = self.schema.get(key)
            if isinstance(parts, list) and parts and hops:
                rest = {name: part for name, part in self.schema.items() if name != key}
                for part in parts:
                    chosen = _put_together(part, self._root, hops)
                    yield from SchemaView(_joined(rest, chosen), self._root)._options(hops // 2)
                return
        types = self.schema.get("type")
        if isinstance(types, list) and self.constants is None:
            yield from (SchemaView({**self.schema, "type": name}, self._root) for name in types)
        else:
            yield self

    def _read(self, text: str) -> Any:
        match self.type:
            case "constant":
                return _constant(text, self.constants or [])
            case "null":
                return _constant(text, [None])
            case "integer":
                return self._within(_integer(text), _LIMITS)
            case "number":
                return self._within(_number(text), _LIMITS)
            case "boolean":
                return _boolean(text)
            case "array":
                return _json(text, list)
            case "object":
                return _json(text, dict)
            case "string":
                self._within(len(text), _LENGTHS)
                return text
            case _:
                return _anything(text)

    def _within(self, value: _Number, limits: dict[str, Any]) -> _Number:
        for key, (_, holds) in limits.items():
            limit = self._limit(key)
            if limit is not None and not holds(value, limit):
                raise InvalidText
        return value

    def _limit(self, key: str) -> _Number | None:
        limit = self.schema.get(key)
        return limit if isinstance(limit, int | float) and not isinstance(limit, bool) else None

    @property
    def _words(self) -> str:
        if self.constants is not None:
            return ("" if len(self.constants) == 1 else "one of ") + _listed(self.constants)
        kind = self.type
        if kind == "array":
            items = self.items.options
            is_simple = len(items) == 1 and items[0].type not in ("any", "array")
            return f"a list (of: {items[0]._words})" if is_simple else "a list"
        name = _FORMATS.get(_text(self.schema.get("format"))) if kind == "string" else None
        name = name or _TYPES.get(kind, "any value")
        limits = {"integer": _LIMITS, "number": _LIMITS, "string": _LENGTHS}.get(kind, {})
        said = [counted(words, limit) for key, (words, _) in limits.items() if (limit := self._limit(key)) is not None]
        return " ".join([name, " and ".join(said)]) if said else name


# --- Schemas ---


def _put_together(schema: Any, root: Any, hops: int) -> dict[str, Any]:
    """The schema without references, and with all that must hold at once in one place."""
    found = _dict(schema)
    while hops and isinstance(found.get("$ref"), str):
        hops -= 1
        rest = {key: part for key, part in found.items() if key != "$ref"}
        found = _joined(_dict(_referred(found["$ref"], root)), rest)
    parts = found.get("allOf")
    if isinstance(parts, list) and hops:
        found = {key: part for key, part in found.items() if key != "allOf"}
        for part in parts[:_MAX_PARTS]:
            found = _joined(_put_together(part, root, hops // 4), found)
    return found


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both schemas in one; where they differ, the second is right."""
    joined = {**first, **second}
    if "properties" in first and "properties" in second:
        joined["properties"] = {**_dict(first["properties"]), **_dict(second["properties"])}
    if isinstance(first.get("required"), list) and isinstance(second.get("required"), list):
        joined["required"] = [*first["required"], *second["required"]]
    return joined


def _referred(reference: str, root: Any) -> Any:
    """What a reference within the schema leads to. One that leads elsewhere is not followed: it says nothing."""
    if not reference.startswith("#"):
        return None
    found = root
    for step in filter(None, reference[1:].split("/")):
        found = _dict(found).get(step.replace("~1", "/").replace("~0", "~"))
    return found


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _listed(constants: list[Any]) -> str:
    names = ", ".join(as_text(constant)[:_MAX_QUOTED] for constant in constants[:_MAX_NAMED])
    return f"{names} and {len(constants) - _MAX_NAMED} more" if len(constants) > _MAX_NAMED else names


# --- Texts ---


def _constant(text: str, constants: list[Any]) -> Any:
    for constant in constants:
        if as_text(constant) == text:
            return constant
    raise InvalidText


def _boolean(text: str) -> bool:
    try:
        return _BOOLEANS[text.strip().lower()]
    except KeyError:
        raise InvalidText from None


def _integer(text: str) -> int:
    number = _number(text)
    if number != int(number):
        raise InvalidText
    return int(number)


def _number(text: str) -> _Number:
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if "_" in text or (isinstance(number, float) and not math.isfinite(number)):
            break
        return number
    raise InvalidText


def _json(text: str, kind: type) -> Any:
    try:
        value = msgspec.json.decode(text.encode())
    except _NOT_JSON:
        raise InvalidText from None
    if not isinstance(value, kind):
        raise InvalidText
    return value


def _anything(text: str) -> Any:
    """JSON if it is that, and otherwise the text itself."""
    try:
        return _json(text, object)
    except InvalidText:
        return text
