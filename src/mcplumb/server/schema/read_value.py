"""Read values from plain data by their shape, and explain every fault in words.

msgspec reads most types itself, and faster. This module reads the types that msgspec does not support, and finds all
faults of a value, where msgspec stops at the first one.

The file has four parts: schemas and values in words, pydantic types, the ``msgspec`` hooks for paths and pydantic
types, and the reader itself. Pydantic is imported only when a type needs it. Limits are in `constraints`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from functools import cache
from itertools import islice
from typing import Any, TypeAlias

import msgspec

from mcplumb.errors import UsageError
from mcplumb.server.schema.type_tree import (
    Alias,
    Array,
    Leaf,
    Model,
    Noted,
    Object,
    Path,
    Record,
    Shape,
    Tuple,
    Union,
    Values,
)

__all__ = [
    "Fault",
    "ValueReader",
    "adapter_of",
    "as_text",
    "class_adapter",
    "closest",
    "counted",
    "dump_model",
    "expected",
    "format_path",
    "is_model",
    "is_path",
    "listed",
    "model_schema",
    "read_custom",
    "read_model",
    "schema_in_words",
    "shorten",
    "value_in_words",
    "write_custom",
]


# Schemas and values in words: short, and in JSON's terms, because the model that wrote the JSON reads them.

#: How many characters of a value, and names of a list, an error repeats: enough to recognise it.
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
    "maximum": "of at most {}",
    "exclusiveMinimum": "above {}",
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


def schema_in_words(schema: dict[str, Any]) -> str:
    """Return what a schema requires, for example ``an integer of at least 3``."""
    if "enum" in schema:
        options = schema["enum"]
        return f"one of {listed(options)}" if len(options) > 1 else listed(options)
    if "contentEncoding" in schema:
        return "a string in base64"
    name = _FORMATS.get(schema.get("format", "")) or _TYPES.get(schema.get("type", ""), "another value")
    limits = [counted(words, schema[key]) for key, words in _LIMITS.items() if key in schema]
    if "minimum" in schema and "maximum" in schema:
        limits = [f"from {schema['minimum']} to {schema['maximum']}", *limits[2:]]
    return " ".join([name, " and ".join(limits)]) if limits else name


def value_in_words(value: Any) -> str:
    """Return a description of a value: its JSON type and, shortened if it is long, the value."""
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
    """Return the words with the number inserted; if they end with a noun, it gets its plural."""
    return words.format(number) + ("s" if words[-1] != "}" and number != 1 else "")


def as_text(constant: Any) -> str:
    """Return a JSON constant as text: a string unchanged, any other constant as JSON."""
    return constant if isinstance(constant, str) else msgspec.json.encode(constant).decode()


def listed(values: Collection[Any]) -> str:
    """Return the first of some values, and the number of further ones."""
    first = ", ".join(map(_json, islice(values, _MAX_NAMES)))
    return f"{first} and {len(values) - _MAX_NAMES} more" if len(values) > _MAX_NAMES else first


def closest(name: str, names: Collection[str]) -> str:
    """Return a suggestion for an unknown name: the most similar known name, or all known names."""
    from difflib import get_close_matches

    if like := get_close_matches(name[:_MAX_TEXT], names, 1):
        return f", did you mean {_json(like[0])}?"
    return f", known are {listed(names)}" if names else ", none is known"


def shorten(text: str) -> str:
    """Return a text from outside, shortened if it is long."""
    return text if len(text) <= _MAX_LINE else text[:_MAX_LINE] + "…"


def format_path(path: Iterable[str | int]) -> str:
    """Return a path into a value as text, for example ``.days[2].hour``."""
    return "".join(f".{part}" if isinstance(part, str) and part.isidentifier() else f"[{_json(part)}]" for part in path)


def _json(value: Any) -> str:
    # A string is shortened before it is encoded: it may be as long as a message.
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        return _json(value[:_MAX_TEXT]) + "…"
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        text = f"a Python {type(value).__name__}"
    return text if len(text) <= 2 * _MAX_TEXT else text[:_MAX_TEXT] + "…"


# Pydantic types, which have their own schema, validation and serialization.


def is_model(kind: Any) -> bool:
    """Return whether pydantic must handle a type, or an item of ``Annotated`` metadata."""
    return hasattr(kind, "__get_pydantic_core_schema__") or hasattr(kind, "__pydantic_validator__")


def adapter_of(kind: Any) -> Any:
    """Return the pydantic ``TypeAdapter`` of a type; raise UsageError if pydantic cannot use the type."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        return TypeAdapter(kind)
    except PydanticUserError as error:
        raise UsageError(f"Pydantic cannot use {kind!r}: {error.message}.") from None


@cache
def class_adapter(kind: Any) -> Any:
    """Return the cached ``TypeAdapter`` of a class."""
    return adapter_of(kind)


def model_schema(adapter: Any, prefix: str = "", *, output: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON Schema of an adapter's type, and its definitions, with a prefix to their names."""
    from pydantic.errors import PydanticUserError

    try:
        schema = adapter.json_schema(
            mode="serialization" if output else "validation", ref_template=f"#/$defs/{prefix}{{model}}"
        )
    except PydanticUserError as error:
        raise UsageError(f"Pydantic cannot describe {adapter!r}: {error.message}.") from None
    return schema, {prefix + name: part for name, part in schema.pop("$defs", {}).items()}


def read_model(adapter: Any, value: Any) -> tuple[Any, list[tuple[tuple[str | int, ...], str]]]:
    """Convert plain data to a value of an adapter's type; return the value, and the faults with their paths."""
    from pydantic import ValidationError

    try:
        # Through JSON, because a model may be stricter with Python values.
        return adapter.validate_json(msgspec.json.encode(value)), []
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        return None, [(fault["loc"], fault["msg"]) for fault in faults]


def dump_model(value: Any) -> Any:
    """Return a value of a pydantic type as plain data, with the names from its schema."""
    kind: Any = type(value)
    return class_adapter(kind).dump_python(value, mode="json", by_alias=True)


# The msgspec hooks for types that it does not support: paths and pydantic types.


def is_path(kind: Any) -> bool:
    """Return whether a type is a path class."""
    return isinstance(kind, type) and issubclass(kind, os.PathLike) and kind is not os.PathLike


def read_custom(kind: type, value: Any) -> Any:
    """Convert plain data to a path or a pydantic type: the hook of msgspec's decoders."""
    if is_model(kind):
        made, faults = read_model(class_adapter(kind), value)
        if faults:
            raise ValueError(faults[0][1])
        return made
    if is_path(kind) and isinstance(value, str):
        return kind(value)
    raise ValueError(f"{value_in_words(value)} is not of type {kind.__name__}")


def write_custom(value: Any) -> Any:
    """Convert a path or a value of a pydantic type to plain data: the hook of msgspec's encoders."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if is_model(type(value)):
        return dump_model(value)
    raise TypeError(f"JSON has no form for {type(value).__name__!r}")


# The reader.

#: The path of a fault in a value, and its description.
Fault: TypeAlias = tuple[Path, str]

#: The number of faults in one list or object after which reading stops: the time to find them all has no limit.
_MAX_FAULTS_PER_ITEM = 20


class ValueReader:
    """Reads one value. Unless ``strict``, strings are converted: ``"3"`` to 3, and JSON in a string to a list.

    ``faults`` collects the faults with their paths. If there are any, the returned value must not be used.
    """

    __slots__ = ("_unions", "faults", "strict")

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.faults: list[Fault] = []
        #: Results of reading unions, by the ids of the union and the value; the entry keeps the value alive, so that
        #: its id stays unique. Without this cache, the time for recursive unions would double with each level.
        self._unions: dict[tuple[int, int], tuple[Any, Any, list[Fault]]] = {}

    def read_whole(self, shape: Shape, value: Any) -> Any:
        """Read a whole value of a shape's type from plain data or ``msgspec.Raw``."""
        try:
            return self.read(shape, msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value, ())
        except msgspec.DecodeError as error:
            self._fault((), f"this JSON cannot be read: {str(error).partition(' - at')[0]}")
        except RecursionError:
            self._fault((), "it is nested too deeply")

    def read(self, shape: Shape, value: Any, at: Path) -> Any:
        """Read a value of a shape's type from the plain data at a path."""
        match shape:
            case Noted() | Alias():
                return self.read(shape.inner, value, at)
            case Leaf():
                return self._leaf(shape, value, at)
            case Values():
                return self._values(shape, value, at)
            case Array():
                return self._array(shape, value, at)
            case Tuple():
                return self._tuple(shape, value, at)
            case Object():
                return self._object(shape, value, at)
            case Union():
                return self._union(shape, value, at)
            case Record():
                return self._record(shape, value, at)
            case _:
                return self._model(shape, value, at)

    def _leaf(self, shape: Leaf, value: Any, at: Path) -> Any:
        try:
            return msgspec.convert(value, shape.kind, strict=self.strict, dec_hook=read_custom)
        except msgspec.ValidationError:
            if isinstance(value, float) and value.is_integer():  # in JSON Schema, 3.0 is an integer
                return self._leaf(shape, int(value), at)
            return self._mismatch(shape, value, at)

    def _values(self, shape: Values, value: Any, at: Path) -> Any:
        for constant, meaning in shape.options:
            if _is_same(constant, value) or (not self.strict and value == as_text(constant)):
                return meaning
        if shape.find is not None and type(value) in (str, int):
            try:
                return shape.find(value)
            except ValueError:
                pass
        return self._mismatch(shape, value, at)

    def _array(self, shape: Array, value: Any, at: Path) -> Any:
        value = self._parsed(value)
        if not isinstance(value, list):
            return self._mismatch(shape, value, at)
        before = len(self.faults)
        items = []
        for i, item in enumerate(value):
            items.append(self.read(shape.item, item, (*at, i)))
            if len(self.faults) - before >= _MAX_FAULTS_PER_ITEM:
                break
        if len(self.faults) > before:
            return None
        try:
            made = shape.make(items)
        except TypeError:
            return self._fault(at, "a list or an object cannot be an item of a set")
        return made if _is_within(len(made), shape.limits) else self._mismatch(shape, value, at)

    def _tuple(self, shape: Tuple, value: Any, at: Path) -> Any:
        value = self._parsed(value)
        if not isinstance(value, list) or len(value) != len(shape.items):
            return self._mismatch(shape, value, at)
        return tuple(self.read(item, value[i], (*at, i)) for i, item in enumerate(shape.items))

    def _object(self, shape: Object, value: Any, at: Path) -> Any:
        value = self._parsed(value)
        if not isinstance(value, dict) or not _is_within(len(value), shape.limits):
            return self._mismatch(shape, value, at)
        names = ValueReader(strict=False)
        made = {}
        before = len(self.faults)
        for name, item in value.items():
            key = names.read(shape.key, name, (*at, name))
            made[key] = self.read(shape.item, item, (*at, name))
            if len(self.faults) + len(names.faults) - before >= _MAX_FAULTS_PER_ITEM:
                break
        self.faults += [(there, f"the key is invalid: {reason}") for there, reason in names.faults]
        return made

    def _union(self, shape: Union, value: Any, at: Path) -> Any:
        if not isinstance(value, list | dict):
            made, faults = self._first_fit(shape, value, at)
        elif (key := (id(shape), id(value))) in self._unions:
            _, made, faults = self._unions[key]
        else:
            made, faults = self._first_fit(shape, value, at)
            self._unions[key] = value, made, faults
        self.faults += faults
        return made

    def _first_fit(self, shape: Union, value: Any, at: Path) -> tuple[Any, list[Fault]]:
        members = shape.members
        if isinstance(value, dict):  # first the members that drop the fewest keys, otherwise in their order
            members = sorted(members, key=lambda member: _dropped_keys(member, value))
        similar = []
        for member in members:
            trial = ValueReader(strict=self.strict)
            trial._unions = self._unions
            made = trial.read(member, value, at)
            if not trial.faults:
                return made, []
            if any(there != at for there, _ in trial.faults):
                similar.append(trial.faults)
        if len(similar) == 1:  # only one of the types is similar to the value: its faults are the helpful ones
            return None, similar[0]
        return None, [(at, f"expected {expected(shape)}, got {value_in_words(value)}")]

    def _record(self, record: Record, value: Any, at: Path) -> Any:
        value = self._parsed(value)
        members = _members(record, value)
        if members is None:
            return self._mismatch(record, value, at)
        before = len(self.faults)
        places: dict[str, Path] = {key: (*at, i if record.is_array else key) for i, key in enumerate(record.keys)}
        if record.tag is not None:
            key, tag = record.tag
            if key not in members or members[key] != tag:
                received = value_in_words(members[key]) if key in members else "nothing"
                self._fault(places[key], f"expected {schema_in_words({'enum': [tag]})}, got {received}")
        arguments: dict[str, Any] = {}
        for field in record.fields:
            if field.argument is None:
                continue
            if field.key in members:
                arguments[field.argument] = self.read(field.shape, members[field.key], places[field.key])
            elif field.required:
                self._fault(places[field.key], f"missing, expected {expected(field.shape)}")
        if record.is_closed:
            for key in islice((key for key in members if key not in places), _MAX_FAULTS_PER_ITEM):
                self._fault((*at, key), f"unknown{closest(key, places)}")
        if len(self.faults) > before:
            return None
        try:
            return record.make(**arguments)
        except (TypeError, ValueError) as error:
            return self._fault(at, str(error))

    def _model(self, model: Model, value: Any, at: Path) -> Any:
        made, faults = read_model(model.adapter, value)
        if faults and self._parsed(value) is not value:
            made, faults = read_model(model.adapter, self._parsed(value))
        self.faults += [((*at, *path), reason) for path, reason in faults]
        return made

    def _fault(self, at: Path, reason: str) -> None:
        self.faults.append((at, reason))

    def _mismatch(self, shape: Shape, value: Any, at: Path) -> None:
        self._fault(at, f"expected {expected(shape)}, got {value_in_words(value)}")

    def _parsed(self, value: Any) -> Any:
        """Return the value, or, unless ``strict``, the decoded JSON if it is a string that contains JSON."""
        if not self.strict and isinstance(value, str):
            try:
                return msgspec.json.decode(value)
            except ValueError:
                pass
        return value


def expected(shape: Shape) -> str:
    """Return what a value of a shape must be, in words."""
    match shape:
        case Noted() | Alias():
            return expected(shape.inner)
        case Leaf():
            return schema_in_words(shape.schema)
        case Values():
            return schema_in_words({"enum": [constant for constant, _ in shape.options]})
        case Array():
            return schema_in_words({"type": "array", **shape.limits})
        case Tuple():
            return counted("an array of {} item", len(shape.items))
        case Object():
            return schema_in_words({"type": "object", **shape.limits})
        case Union():
            return " or ".join(dict.fromkeys(map(expected, shape.members)))
        case Record(is_array=True):
            return "an array"
    return "an object"


def _members(record: Record, value: Any) -> dict[str, Any] | None:
    """Return the members of a record by name, from an object or an array; None if the value is neither."""
    if not record.is_array:
        return value if isinstance(value, dict) else None
    keys = record.keys
    if not isinstance(value, list) or (record.is_closed and len(value) > len(keys)):
        return None
    return dict(zip(keys, value, strict=False))


def _dropped_keys(shape: Shape, members: dict[str, Any]) -> int:
    """Return how many keys of an object are lost if it is read as this shape."""
    match shape:
        case Noted() | Alias():
            return _dropped_keys(shape.inner, members)
        case Union():
            return min(_dropped_keys(member, members) for member in shape.members)
        case Record():
            return len(members.keys() - set(shape.keys))
    return 0


def _is_same(constant: Any, value: Any) -> bool:
    """Return whether two JSON values are equal: 1 and 1.0 are, 1 and true are not."""
    return bool(constant == value) and isinstance(constant, bool) == isinstance(value, bool)


def _is_within(count: int, limits: dict[str, int]) -> bool:
    return all(count >= bound if name.startswith("min") else count <= bound for name, bound in limits.items())
