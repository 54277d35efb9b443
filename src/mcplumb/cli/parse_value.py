"""Convert text to the value that a JSON Schema asks for.

The schema comes from a server and may be anything. Whatever it does not say clearly is allowed: the server validates
the arguments again.
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

#: References that are followed, alternatives that are considered, and parts of ``allOf`` that are merged. The limits
#: end cycles.
_MAX_HOPS = 16
_MAX_OPTIONS = 64
_MAX_PARTS = 16
#: Constants, and characters of each, that a description lists.
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
#: The order in which types are tried. Any text is a valid string, so that comes last.
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
    "maximum": ("of at most {}", lambda value, limit: value <= limit),
    "exclusiveMinimum": ("above {}", lambda value, limit: value > limit),
    "exclusiveMaximum": ("below {}", lambda value, limit: value < limit),
}
_LENGTHS: dict[str, tuple[str, Callable[[_Number, _Number], bool]]] = {
    "minLength": ("with at least {} character", lambda value, limit: value >= limit),
    "maxLength": ("with at most {} character", lambda value, limit: value <= limit),
}
_NOT_JSON = (msgspec.DecodeError, UnicodeError, RecursionError)


class InvalidText(UsageError):
    """A text does not fit the schema. The message lacks its subject: ``must be an integer, not 'x'``."""


class SchemaView:
    """A schema with its references resolved and its ``allOf`` merged."""

    def __init__(self, schema: Any, root: Any = None) -> None:
        self._root = schema if root is None else root
        self.schema = _resolve(schema, self._root, _MAX_HOPS)

    @property
    def options(self) -> list[SchemaView]:
        """The alternatives of this schema; only itself if it has none."""
        return list(islice(self._options(_MAX_HOPS), _MAX_OPTIONS))

    @property
    def type(self) -> str:
        """The type of one option: a JSON type, ``constant`` for an enumeration, or ``any``."""
        if self.constants is not None:
            return "constant"
        name = self.schema.get("type")
        if isinstance(name, str) and name in _TYPES:
            return name
        return "object" if "properties" in self.schema else "array" if "items" in self.schema else "any"

    @property
    def constants(self) -> list[Any] | None:
        """The values of an enumeration or constant; None for other schemas."""
        if "const" in self.schema:
            return [self.schema["const"]]
        constants = self.schema.get("enum")
        return constants if isinstance(constants, list) and constants else None

    # --- Objects and lists ---

    @property
    def names(self) -> list[str]:
        """The names of the known members."""
        return list(_dict(self.schema.get("properties")))

    @property
    def members(self) -> list[tuple[str, SchemaView]]:
        """The known members with their names."""
        return [(name, SchemaView(part, self._root)) for name, part in _dict(self.schema.get("properties")).items()]

    @property
    def needed(self) -> list[str]:
        """The names of the required members."""
        needed = self.schema.get("required")
        return [name for name in needed if isinstance(name, str)] if isinstance(needed, list) else []

    def part(self, name: str) -> SchemaView | None:
        """Return a member of an object by name; None if it is not allowed.

        If the schema does not say whether other members are allowed, they are not: a typing mistake is more likely.
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
        """The schema of a list's items."""
        return SchemaView(self.schema.get("items"), self._root)

    # --- Texts ---

    def read(self, text: str) -> Any:
        """Convert the text to a value; raise InvalidText if no option fits.

        If several types are possible, string is tried last. A list can be given as JSON or as a single item.
        """
        lists = [option.items for option in self.options if option.type == "array"]
        for view, wrap in ((self, False), *((items, True) for items in lists)):
            try:
                value = view._first(text)
            except InvalidText:
                continue
            return [value] if wrap else value
        shown = text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…"
        raise InvalidText(f"must be {self.words}, not {shown!r}")

    @property
    def words(self) -> str:
        """A description of the values: ``an integer of at least 1 or null``."""
        return " or ".join(dict.fromkeys(option._words for option in self.options))

    def _first(self, text: str) -> Any:
        options = sorted(self.options, key=lambda option: _ORDER.index(option.type))
        for option in options:
            if option.type == "boolean" and options[-1].type in ("any", "string") and text not in ("true", "false"):
                continue  # if any text is allowed, "no" may be a country code
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
                    chosen = _resolve(part, self._root, hops)
                    yield from SchemaView(_merge(rest, chosen), self._root)._options(hops // 2)
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
            return f"a list (each item: {items[0]._words})" if is_simple else "a list"
        name = _FORMATS.get(_text(self.schema.get("format"))) if kind == "string" else None
        name = name or _TYPES.get(kind, "any value")
        limits = {"integer": _LIMITS, "number": _LIMITS, "string": _LENGTHS}.get(kind, {})
        said = [counted(words, limit) for key, (words, _) in limits.items() if (limit := self._limit(key)) is not None]
        low, high = self._limit("minimum"), self._limit("maximum")
        if limits is _LIMITS and low is not None and high is not None:
            said = [f"from {low} to {high}", *said[2:]]
        return " ".join([name, " and ".join(said)]) if said else name


# --- Schemas ---


def _resolve(schema: Any, root: Any, hops: int) -> dict[str, Any]:
    """Resolve the references of a schema, and merge its ``allOf``."""
    found = _dict(schema)
    while hops and isinstance(found.get("$ref"), str):
        hops -= 1
        rest = {key: part for key, part in found.items() if key != "$ref"}
        found = _merge(_dict(_referred(found["$ref"], root)), rest)
    parts = found.get("allOf")
    if isinstance(parts, list) and hops:
        found = {key: part for key, part in found.items() if key != "allOf"}
        for part in parts[:_MAX_PARTS]:
            found = _merge(_resolve(part, root, hops // 4), found)
    return found


def _merge(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Merge two schemas; the second takes precedence."""
    joined = {**first, **second}
    if "properties" in first and "properties" in second:
        joined["properties"] = {**_dict(first["properties"]), **_dict(second["properties"])}
    if isinstance(first.get("required"), list) and isinstance(second.get("required"), list):
        joined["required"] = [*first["required"], *second["required"]]
    return joined


def _referred(reference: str, root: Any) -> Any:
    """Return the target of a reference within the schema; None for a reference to another document."""
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
    """Return the decoded JSON, or the text itself if it is not JSON."""
    try:
        return _json(text, object)
    except InvalidText:
        return text
