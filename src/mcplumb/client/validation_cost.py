"""An upper bound for the cost of validating a value against a JSON Schema, computed before validation starts.

Why it exists: jsonschema-rs cannot be interrupted and holds the GIL, so a thread with a timeout would not bound it, and
a process per check would cost far more than the check. A hostile server could send a schema that takes for ever.

How it works: the schema alone determines how often the validator can visit a value at a given depth; the rest is to
count the values at each depth. The bound is loose for schemas that branch at every level, but fast to compute. The
prices were measured with jsonschema-rs 0.60, on schemas built to be slow and on random ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

__all__ = ["ENDLESS", "Cost", "SchemaRefused", "size_of"]

#: Stands for every number of steps that is too large.
ENDLESS = 10**12

#: The number of subschemas. Schemas generated from the types of real programs have a few hundred.
_MAX_PARTS = 1000
#: The number of different patterns. Each may take some milliseconds to compile.
_MAX_PATTERNS = 32
#: The number of costs kept for one schema: one for each subschema on each level.
_MAX_NUMBERS = 20_000
#: How many schemas `unevaluatedProperties` and `unevaluatedItems` may look through; each is compiled again for them.
_MAX_UNEVALUATED = 1000
#: The nesting depth of schemas times values. All of them are on the stack at once, with up to 500 bytes each.
_MAX_NESTED = 1000
#: Numbers outside these bounds are compared digit by digit, which can take milliseconds.
_MAX_INTEGER = 2**63 - 1
_SMALLEST, _LARGEST = 1e-30, 1e30

# Prices in steps; everything else costs 1.
_COUNTING = 8  # to count a value
_COMPARING = 16  # to compare a value with one in the schema, or an item with the others
_BOUNDING = 60  # to compare a number with a bound
_DIVIDING = 100  # to divide a number
_FRACTION = 8  # the factor for a bound or divisor that is not an integer of common size
_MATCHING = 2  # to match a character of a text with one of a pattern
#: An enum of up to this many strings is searched in sequence; a longer one is hashed.
_FEW_STRINGS = 10

# Keywords with subschemas: for the same value, for its members, for its items. A member or an item is checked against
# one of the _ONE_ keywords, and against all of the _ALL_ keywords.
_HERE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_ONE_MEMBER = ("properties", "additionalProperties")
_ALL_MEMBERS = ("patternProperties", "unevaluatedProperties")
_ONE_ITEM = ("prefixItems", "items", "additionalItems")
_ALL_ITEMS = ("contains", "unevaluatedItems")
_BY_NAME = frozenset(("properties", "patternProperties", "dependentSchemas", "dependencies"))
#: These examine every member.
_BY_ANY_NAME = ("additionalProperties", "patternProperties", "propertyNames", "unevaluatedProperties")
#: The last character of a group or of a repetition.
_ENDS = frozenset(")}*+?")
_NOT_FOLLOWED = ("$dynamicRef", "$recursiveRef")


class SchemaRefused(Exception):
    """The schema cannot be used. The text says why, as the end of a sentence."""


class Cost:
    """The cost of validation against one schema. Raises `SchemaRefused` if it is too large or cannot be followed.

    The unit is a step, which takes about 10 ns at most.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        parts = _read(schema)
        order = _ordered(parts)
        #: Whether the schema has alternatives, so that one error has many causes.
        self.has_choices = any("anyOf" in part.schema or "oneOf" in part.schema for part in parts)
        self._height = max(part.height for part in parts)
        steps, names = [part.steps for part in parts], [part.name_steps for part in parts]
        self._per_value = _Levels(parts, order, steps, names, _COMPARING)
        steps, names = [part.pattern for part in parts], [part.name_pattern for part in parts]
        self._per_character = _Levels(parts, order, steps, names, 1)

    def of(self, value: Any, most: int) -> int:
        """Return an upper bound of the steps for a value. Counting stops beyond ``most``."""
        steps = depth = 0
        dicts: list[dict[str, Any]] = []
        lists: list[list[Any]] = [[value]]
        while (each := self._per_value.at(depth)) and (count := sum(map(len, dicts)) + sum(map(len, lists))):
            steps += (each + _COUNTING) * count
            if steps > most:
                break
            above, dicts, lists = (dicts, lists), [], []
            characters = 0
            for found in _within(*above):
                kind = type(found)
                if kind is str:
                    characters += len(found)
                elif kind is dict:
                    dicts.append(found)
                elif kind is list:
                    lists.append(found)
                elif kind is int:
                    if not -_MAX_INTEGER <= found <= _MAX_INTEGER:
                        return ENDLESS
                elif kind is float and found and not _SMALLEST < abs(found) < _LARGEST:
                    return ENDLESS
            if each_character := self._per_character.at(depth):
                steps += each_character * (characters + sum(map(len, chain.from_iterable(above[0]))))
            depth += 1
            if depth * self._height > _MAX_NESTED:
                return ENDLESS
        return steps


def size_of(value: Any, most: int = ENDLESS) -> int:
    """Return the number of values in a value, itself included. Counting stops beyond ``most``."""
    size = 0
    dicts: list[dict[str, Any]] = []
    lists: list[list[Any]] = [[value]]
    while size <= most and (count := sum(map(len, dicts)) + sum(map(len, lists))):
        size += count
        inner = [found for found in _within(dicts, lists) if isinstance(found, dict | list)]
        dicts = [found for found in inner if isinstance(found, dict)]
        lists = [found for found in inner if isinstance(found, list)]
    return size


def _within(dicts: list[dict[str, Any]], lists: list[list[Any]]) -> Iterator[Any]:
    return chain.from_iterable(chain(map(dict.values, dicts), lists))


class _Part:
    """A subschema. The subschemas that it leads to are given by their indexes."""

    __slots__ = (
        "all_items", "all_members", "height", "here", "is_unique", "looks_again", "name_pattern", "name_steps", "names",
        "one_item", "one_member", "pattern", "schema", "spread", "steps",
    )  # fmt: skip

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.here: list[int] = []
        self.one_member: list[int] = []
        self.all_members: list[int] = []
        self.one_item: list[int] = []
        self.all_items: list[int] = []
        self.names: list[int] = []
        self.steps = 1 + sum(_price(keyword, value) for keyword, value in schema.items())
        self.name_steps = int(any(keyword in schema for keyword in _BY_ANY_NAME))
        #: The steps per character: of the string itself, and of the names of members.
        self.pattern = _pattern_price(schema.get("pattern")) + ("contentMediaType" in schema)
        self.name_pattern = sum(map(_pattern_price, _names(schema.get("patternProperties"))))
        self.is_unique = schema.get("uniqueItems") is True
        self.looks_again = "unevaluatedProperties" in schema or "unevaluatedItems" in schema
        #: How many schemas apply to the same value, and how deep they are nested.
        self.spread = 1
        self.height = 1


class _Levels:
    """The cost of a value by its depth: one number for each part and level, computed on demand.

    ``own`` is the cost of each part by itself, ``names`` the cost of each member's name, and ``unique`` the cost of
    each value below an array with ``uniqueItems``.
    """

    def __init__(self, parts: list[_Part], order: list[int], own: list[int], names: list[int], unique: int) -> None:
        self._parts = parts
        self._order = order
        self._own = own
        self._names = names
        self._unique = unique
        self._rows = [self._top()]
        #: Whether all further levels equal the last one.
        self._is_steady = not any(own) and not any(names) and not any(part.is_unique for part in parts)

    def at(self, depth: int) -> int:
        """Return the steps for a value at this depth."""
        if depth < len(self._rows):
            return self._rows[depth][0]
        while depth >= len(self._rows) and not self._is_steady:
            if len(self._rows) * len(self._parts) > _MAX_NUMBERS:
                return ENDLESS
            row = self._next()
            self._is_steady = len(self._rows) > 1 and row == self._rows[-1]
            self._rows.append(row)
        return self._rows[min(depth, len(self._rows) - 1)][0]

    def _top(self) -> list[int]:
        row = [0] * len(self._parts)
        for number in self._order:
            part = self._parts[number]
            row[number] = _again(part, self._own[number] + _all(row, part.here))
        return row

    def _next(self) -> list[int]:
        above = self._rows[-1]
        members, items = [0] * len(above), [0] * len(above)
        for number in self._order:
            part = self._parts[number]
            member = _all(members, part.here) + _one(above, part.one_member) + _all(above, part.all_members)
            item = _all(items, part.here) + _one(above, part.one_item) + _all(above, part.all_items)
            if len(self._rows) == 1:
                member += self._names[number] + _all(above, part.names)
                if part.looks_again:
                    # Each of its parts is evaluated for each member or item.
                    member += above[number]
                    item += above[number]
            members[number] = _again(part, member)
            items[number] = _again(part, item + self._unique * part.is_unique)
        return [max(pair) for pair in zip(members, items, strict=True)]


def _all(row: list[int], numbers: list[int]) -> int:
    return sum([row[number] for number in numbers])


def _one(row: list[int], numbers: list[int]) -> int:
    return max([row[number] for number in numbers], default=0)


def _again(part: _Part, steps: int) -> int:
    # Finding what is unevaluated means evaluating everything again, once more per nesting level.
    return min(steps * (2 + part.height) if part.looks_again else steps, ENDLESS)


# --- Reading a schema ---


def _read(root: dict[str, Any]) -> list[_Part]:
    parts = [_Part(root)]
    numbers = {id(root): 0}
    patterns: set[str] = set()

    def number(schema: dict[str, Any]) -> int:
        if id(schema) not in numbers:
            if len(parts) == _MAX_PARTS:
                raise SchemaRefused(f"it has more than {_MAX_PARTS} subschemas")
            numbers[id(schema)] = len(parts)
            parts.append(_Part(schema))
        return numbers[id(schema)]

    def below(schema: dict[str, Any], keywords: Iterable[str]) -> list[int]:
        return [number(found) for keyword in keywords for found in _schemas(keyword, schema.get(keyword))]

    for part in parts:  # grows during the loop
        schema = part.schema
        _refuse(schema, is_root=schema is root)
        part.here = below(schema, _HERE)
        if "$ref" in schema and (target := _target(root, schema["$ref"])) is not None:
            part.here.append(number(target))
        part.one_member = below(schema, _ONE_MEMBER)
        part.all_members = below(schema, _ALL_MEMBERS)
        part.one_item = below(schema, _ONE_ITEM)
        part.all_items = below(schema, _ALL_ITEMS)
        part.names = below(schema, ("propertyNames",))
        patterns.update(_names(schema.get("patternProperties")))
        if isinstance(pattern := schema.get("pattern"), str):
            patterns.add(pattern)
        if len(patterns) > _MAX_PATTERNS:
            raise SchemaRefused(f"it has more than {_MAX_PATTERNS} patterns")
    return parts


def _refuse(schema: dict[str, Any], *, is_root: bool) -> None:
    for keyword in _NOT_FOLLOWED:
        if keyword in schema:
            raise SchemaRefused(f"it uses {keyword}, which is not followed")
    if not is_root and (isinstance(schema.get("$id"), str) or isinstance(schema.get("id"), str)):
        raise SchemaRefused("a part of it has an $id of its own, which is not followed")
    divisor = schema.get("multipleOf")
    if isinstance(divisor, int | float) and not 1e-15 <= divisor <= 1e15:
        raise SchemaRefused(f"it asks for multiples of {divisor!a:.40}")


def _schemas(keyword: str, value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        value = list(value.values()) if keyword in _BY_NAME else [value]
    if isinstance(value, list):
        yield from (schema for schema in value if isinstance(schema, dict))


def _target(root: dict[str, Any], reference: Any) -> dict[str, Any] | None:
    """Return the schema that a reference leads to; None if it is a boolean."""
    quoted = f"{reference!a:.100}"
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise SchemaRefused(f"it refers to {quoted}, and only references like '#/$defs/name' are followed")
    if "%" in reference:
        from urllib.parse import unquote

        reference = unquote(reference)
    found: Any = root
    for step in reference.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isascii() and name.isdigit() and _limited(name) < len(found):
            found = found[int(name)]
        else:
            raise SchemaRefused(f"it refers to {quoted}, where there is nothing")
    if isinstance(found, dict):
        return found
    if not isinstance(found, bool):
        raise SchemaRefused(f"it refers to {quoted}, which is no schema")
    return None


def _ordered(parts: list[_Part]) -> list[int]:
    """Return the indexes of the parts, each after the parts that check the same value for it."""
    users: list[list[int]] = [[] for _ in parts]
    waits = [len(part.here) for part in parts]
    for user, part in enumerate(parts):
        for number in part.here:
            users[number].append(user)
    ready = [number for number, wait in enumerate(waits) if not wait]
    for number in ready:  # grows during the loop
        for user in users[number]:
            parts[user].spread = min(parts[user].spread + parts[number].spread, ENDLESS)
            parts[user].height = max(parts[user].height, parts[number].height + 1)
            waits[user] -= 1
            if not waits[user]:
                ready.append(user)
    if len(ready) < len(parts):
        raise SchemaRefused("it refers to itself without an end")
    if sum(part.spread for part in parts if part.looks_again) > _MAX_UNEVALUATED:
        raise SchemaRefused("its unevaluatedProperties or unevaluatedItems look through too many schemas")
    return ready


# --- Prices ---


def _price(keyword: str, value: Any) -> int:
    """Return the maximum cost of a keyword for one value."""
    if keyword in ("const", "enum"):
        if keyword == "enum" and isinstance(value, list) and all(isinstance(item, str | None) for item in value):
            return min(len(value), _FEW_STRINGS)
        return _COMPARING * size_of(value)
    if keyword in ("dependentRequired", "dependencies"):
        return size_of(value)
    if keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"):
        price = _DIVIDING if keyword == "multipleOf" else _BOUNDING
        return price if isinstance(value, int) and -(2**53) <= value <= 2**53 else price * _FRACTION
    return 1 + (len(value) if isinstance(value, list | dict) else 0)


def _pattern_price(pattern: Any) -> int:
    """Return the cost of a pattern per character: at least its length with repetitions written out."""
    if not isinstance(pattern, str):
        return 0
    import re

    if re.search(r"\(\?[\w-]", pattern):
        raise SchemaRefused("it has a pattern with flags")
    length, last = 0, ""
    for match in re.finditer(r"\\.|\[(?:\\.|[^\\\]])*\]|\{\s*([0-9]+)\s*(?:,\s*([0-9]*)\s*)?\}|.", pattern, re.DOTALL):
        if match[1] is None:
            length += 1
        else:
            times = max(_limited(match[1]), _limited(match[2] or "0"), 1)
            # The repeated element is a character, a class, or a group, which is no longer than all before it.
            length = length * times if last in _ENDS else length + times
        last = match[0][-1]
    return _MATCHING * min(length, ENDLESS)


def _limited(digits: str) -> int:
    return int(digits) if len(digits) < 10 else ENDLESS


def _names(value: Any) -> Iterable[str]:
    return value if isinstance(value, dict) else ()
