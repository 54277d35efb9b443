"""Read values of shapes from plain data: constraints, paths, pydantic models, and errors in words.

Pydantic is imported when one of them is met, and never otherwise.

msgspec reads most types by itself, and faster. This reads those that it refuses, and finds all that is wrong with a
value, where msgspec stops at the first fault.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from functools import cache, reduce
from itertools import islice
from operator import or_
from typing import Annotated, Any, TypeAlias, get_args, get_origin

import msgspec
from msgspec.structs import replace

from mcplumb.errors import UsageError
from mcplumb.server.schema.shapes import (
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
    "Reading",
    "adapter_of",
    "as_text",
    "class_adapter",
    "closest",
    "counted",
    "cut",
    "expected",
    "in_words",
    "is_model",
    "is_path",
    "limited",
    "listed",
    "located",
    "model_schema",
    "plain_model",
    "read_custom",
    "read_model",
    "shown",
    "unfit_limits",
    "union_of",
    "write_custom",
]


# Schemas and values in words: short, and as a model that wrote the JSON would name them.


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


# The types of pydantic, which describe, read and write themselves.


def is_model(kind: Any) -> bool:
    """Whether pydantic has to be asked about a type, or about what stands beside a type in ``Annotated``."""
    return hasattr(kind, "__get_pydantic_core_schema__") or hasattr(kind, "__pydantic_validator__")


def adapter_of(kind: Any) -> Any:
    """The pydantic ``TypeAdapter`` of a type; a UsageError if it cannot have one."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        return TypeAdapter(kind)
    except PydanticUserError as error:
        raise UsageError(f"Pydantic cannot use {kind!r}: {error.message}.") from error


@cache
def class_adapter(kind: Any) -> Any:
    """``adapter_of`` a class, made once."""
    return adapter_of(kind)


def model_schema(adapter: Any, prefix: str = "", *, output: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON schema of an adapter's type, and the definitions that it needs, with a prefix to their names."""
    from pydantic.errors import PydanticUserError

    try:
        schema = adapter.json_schema(
            mode="serialization" if output else "validation", ref_template=f"#/$defs/{prefix}{{model}}"
        )
    except PydanticUserError as error:
        raise UsageError(f"Pydantic cannot describe {adapter!r}: {error.message}.") from error
    return schema, {prefix + name: part for name, part in schema.pop("$defs", {}).items()}


def read_model(adapter: Any, value: Any) -> tuple[Any, list[tuple[tuple[str | int, ...], str]]]:
    """A value of an adapter's type from plain data, and what is wrong with it: where, and why."""
    from pydantic import ValidationError

    try:
        # By way of JSON, as a model may be stricter about Python's values.
        return adapter.validate_json(msgspec.json.encode(value)), []
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        return None, [(fault["loc"], fault["msg"]) for fault in faults]


def plain_model(value: Any) -> Any:
    """A value of a type of pydantic as plain data, with the names that its schema has."""
    kind: Any = type(value)
    return class_adapter(kind).dump_python(value, mode="json", by_alias=True)


# The types that msgspec leaves to others: paths, and what pydantic knows.


def is_path(kind: Any) -> bool:
    """Whether a type is one of paths, which are made from texts."""
    return isinstance(kind, type) and issubclass(kind, os.PathLike) and kind is not os.PathLike


def read_custom(kind: type, value: Any) -> Any:
    """A value of such a type from plain data: the hook of msgspec's decoders."""
    if is_model(kind):
        made, faults = read_model(class_adapter(kind), value)
        if faults:
            raise ValueError(faults[0][1])
        return made
    if is_path(kind) and isinstance(value, str):
        return kind(value)
    raise ValueError(f"{shown(value)} is no {kind.__name__}")


def write_custom(value: Any) -> Any:
    """A value of such a type as plain data: the hook of msgspec's encoders."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if is_model(type(value)):
        return plain_model(value)
    raise TypeError(f"JSON has no form for {type(value).__name__!r}")


# Values of shapes from plain data, piece by piece.


#: Where something is wrong, and what.
Fault: TypeAlias = tuple[Path, str]

#: So many faults in one list or object are enough. Without an end, finding them all could take a peer's time and ours.
_ENOUGH = 20


class Reading:
    """One walk over one value. Unless ``strict``, a text may stand for another value: ``"3"`` for 3, JSON for a list.

    What is wrong is gathered in ``faults``, each with its place. If there are any, what was read is of no use.
    """

    __slots__ = ("_known", "faults", "strict")

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.faults: list[Fault] = []
        #: What became of a value as a union, by the ids of both, and the value, so that its id stays its own. Without
        #: it, unions that contain themselves would be tried on a value twice as often for each level above it.
        self._known: dict[tuple[int, int], tuple[Any, Any, list[Fault]]] = {}

    def whole(self, shape: Shape, value: Any) -> Any:
        """A value of a shape's type from plain data or ``msgspec.Raw``."""
        try:
            return self.read(shape, msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value, ())
        except msgspec.DecodeError as error:
            self._fault((), f"this JSON cannot be read: {str(error).partition(' - at')[0]}")
        except RecursionError:
            self._fault((), "it is nested too deeply")

    def read(self, shape: Shape, value: Any, at: Path) -> Any:
        """A value of a shape's type from plain data that is found at a place."""
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
            if isinstance(value, float) and value.is_integer():  # to JSON Schema, 3.0 is an integer
                return self._leaf(shape, int(value), at)
            return self._unlike(shape, value, at)

    def _values(self, shape: Values, value: Any, at: Path) -> Any:
        for constant, meaning in shape.options:
            if _is_same(constant, value) or (not self.strict and value == as_text(constant)):
                return meaning
        if shape.find is not None and type(value) in (str, int):
            try:
                return shape.find(value)
            except ValueError:
                pass
        return self._unlike(shape, value, at)

    def _array(self, shape: Array, value: Any, at: Path) -> Any:
        value = self._opened(value)
        if not isinstance(value, list):
            return self._unlike(shape, value, at)
        before = len(self.faults)
        items = []
        for i, item in enumerate(value):
            items.append(self.read(shape.item, item, (*at, i)))
            if len(self.faults) - before >= _ENOUGH:
                break
        if len(self.faults) > before:
            return None
        try:
            made = shape.make(items)
        except TypeError as error:  # what cannot be hashed cannot be in a set
            return self._fault(at, str(error))
        return made if _is_within(len(made), shape.limits) else self._unlike(shape, value, at)

    def _tuple(self, shape: Tuple, value: Any, at: Path) -> Any:
        value = self._opened(value)
        if not isinstance(value, list) or len(value) != len(shape.items):
            return self._unlike(shape, value, at)
        return tuple(self.read(item, value[i], (*at, i)) for i, item in enumerate(shape.items))

    def _object(self, shape: Object, value: Any, at: Path) -> Any:
        value = self._opened(value)
        if not isinstance(value, dict) or not _is_within(len(value), shape.limits):
            return self._unlike(shape, value, at)
        names = Reading(strict=False)
        made = {}
        before = len(self.faults)
        for name, item in value.items():
            key = names.read(shape.key, name, (*at, name))
            made[key] = self.read(shape.item, item, (*at, name))
            if len(self.faults) + len(names.faults) - before >= _ENOUGH:
                break
        self.faults += [(there, f"the name is wrong: {reason}") for there, reason in names.faults]
        return made

    def _union(self, shape: Union, value: Any, at: Path) -> Any:
        if not isinstance(value, list | dict):
            made, faults = self._first_fit(shape, value, at)
        elif (key := (id(shape), id(value))) in self._known:
            _, made, faults = self._known[key]
        else:
            made, faults = self._first_fit(shape, value, at)
            self._known[key] = value, made, faults
        self.faults += faults
        return made

    def _first_fit(self, shape: Union, value: Any, at: Path) -> tuple[Any, list[Fault]]:
        members = shape.members
        if isinstance(value, dict):  # first those that leave out the least of it, otherwise in their order
            members = sorted(members, key=lambda member: _left_out(member, value))
        alike = []
        for member in members:
            trial = Reading(strict=self.strict)
            trial._known = self._known
            made = trial.read(member, value, at)
            if not trial.faults:
                return made, []
            if any(there != at for there, _ in trial.faults):
                alike.append(trial.faults)
        if len(alike) == 1:  # only one of the types is like the value at all: its complaint is the one that helps
            return None, alike[0]
        return None, [(at, f"expected {expected(shape)}, got {shown(value)}")]

    def _record(self, record: Record, value: Any, at: Path) -> Any:
        value = self._opened(value)
        members = _members(record, value)
        if members is None:
            return self._unlike(record, value, at)
        before = len(self.faults)
        places: dict[str, Path] = {key: (*at, i if record.is_array else key) for i, key in enumerate(record.keys)}
        if record.tag is not None:
            key, said = record.tag
            if key not in members or members[key] != said:
                came = shown(members[key]) if key in members else "nothing"
                self._fault(places[key], f"expected {in_words({'enum': [said]})}, got {came}")
        arguments: dict[str, Any] = {}
        for field in record.fields:
            if field.argument is None:
                continue
            if field.key in members:
                arguments[field.argument] = self.read(field.shape, members[field.key], places[field.key])
            elif field.required:
                self._fault(places[field.key], f"missing, expected {expected(field.shape)}")
        if record.is_closed:
            for key in islice((key for key in members if key not in places), _ENOUGH):
                self._fault((*at, key), f"unknown{closest(key, places)}")
        if len(self.faults) > before:
            return None
        try:
            return record.make(**arguments)
        except (TypeError, ValueError) as error:
            return self._fault(at, str(error))

    def _model(self, model: Model, value: Any, at: Path) -> Any:
        made, faults = read_model(model.adapter, value)
        if faults and self._opened(value) is not value:
            made, faults = read_model(model.adapter, self._opened(value))
        self.faults += [((*at, *path), reason) for path, reason in faults]
        return made

    def _fault(self, at: Path, reason: str) -> None:
        self.faults.append((at, reason))

    def _unlike(self, shape: Shape, value: Any, at: Path) -> None:
        self._fault(at, f"expected {expected(shape)}, got {shown(value)}")

    def _opened(self, value: Any) -> Any:
        """The value; where a text may stand for it, the JSON that the text holds."""
        if not self.strict and isinstance(value, str):
            try:
                return msgspec.json.decode(value)
            except ValueError:
                pass
        return value


def expected(shape: Shape) -> str:
    """What a value has to be, in words."""
    match shape:
        case Noted() | Alias():
            return expected(shape.inner)
        case Leaf():
            return in_words(shape.schema)
        case Values():
            return in_words({"enum": [constant for constant, _ in shape.options]})
        case Array():
            return in_words({"type": "array", **shape.limits})
        case Tuple():
            return counted("an array of {} item", len(shape.items))
        case Object():
            return in_words({"type": "object", **shape.limits})
        case Union():
            return " or ".join(dict.fromkeys(map(expected, shape.members)))
        case Record(is_array=True):
            return "an array"
    return "an object"


def _members(record: Record, value: Any) -> dict[str, Any] | None:
    """The members by their names, whether they came as an object or as an array; None if as neither."""
    if not record.is_array:
        return value if isinstance(value, dict) else None
    keys = record.keys
    if not isinstance(value, list) or (record.is_closed and len(value) > len(keys)):
        return None
    return dict(zip(keys, value, strict=False))


def _left_out(shape: Shape, members: dict[str, Any]) -> int:
    """How many members of an object reading it as this shape would drop."""
    match shape:
        case Noted() | Alias():
            return _left_out(shape.inner, members)
        case Union():
            return min(_left_out(member, members) for member in shape.members)
        case Record():
            return len(members.keys() - set(shape.keys))
    return 0


def _is_same(constant: Any, value: Any) -> bool:
    """Whether two JSON values are the same: 1 and 1.0 are, 1 and true are not."""
    return bool(constant == value) and isinstance(constant, bool) == isinstance(value, bool)


def _is_within(count: int, limits: dict[str, int]) -> bool:
    return all(count >= bound if name.startswith("min") else count <= bound for name, bound in limits.items())


# Shapes with limits: how long a text may be, how large a number, how many items.


_NUMBER = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_STRING = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
_BYTES = {"min_length": "minLength", "max_length": "maxLength"}
_ARRAY = {"min_length": "minItems", "max_length": "maxItems"}
_OBJECT = {"min_length": "minProperties", "max_length": "maxProperties"}
_TIME = {"tz": "has a zone"}

_annotated: Any = Annotated  # not for the type checker: what it is given is known at run time only


def union_of(members: list[Shape]) -> Union:
    """Several shapes as one."""
    return Union(kind=reduce(or_, (member.kind for member in members)), members=members)


def unfit_limits(shape: Shape, limits: dict[str, Any]) -> set[str]:
    """Those of the limits, by msgspec's names for them, that a shape cannot have."""
    return limits.keys() - _fitting(shape).keys()


def limited(shape: Shape, limits: dict[str, Any]) -> Shape:
    """A shape with limits. Those that it cannot have are passed over: of a union, they are for other members."""
    fitting = _fitting(shape)
    limits = {name: bound for name, bound in limits.items() if name in fitting}
    said = {fitting[name]: bound for name, bound in limits.items()}
    try:
        match shape:
            case Union():
                return union_of([limited(member, limits) for member in shape.members])
            case Noted():
                inner = limited(shape.inner, limits)
                return Noted(kind=inner.kind, inner=inner, notes=shape.notes)
            case Array() | Object() if limits:
                return replace(shape, kind=_with_meta(shape.kind, limits), limits=shape.limits | said)
            case Leaf() if limits:
                return _limited_leaf(shape, limits, said)
    except (TypeError, ValueError, re.error) as error:
        raise UsageError(f"The limits of {expected(shape)} do not work: {error}.") from error
    return shape


def _fitting(shape: Shape) -> dict[str, str]:
    """The limits that a shape can have, and what its schema calls them."""
    match shape:
        case Noted():
            return _fitting(shape.inner)
        case Union():
            return {name: key for member in shape.members for name, key in _fitting(member).items()}
        case Array():
            return _ARRAY
        case Object():
            return _OBJECT
        case Leaf(schema={"type": "integer" | "number"}):
            return _NUMBER
        case Leaf(schema={"contentEncoding": _}):
            return _BYTES
        case Leaf(schema={"format": "date-time" | "time"}):
            return _TIME
        case Leaf(schema={"type": "string", **others}) if "format" not in others:
            return _STRING
    return {}


def _limited_leaf(shape: Leaf, limits: dict[str, Any], said: dict[str, Any]) -> Leaf:
    if shape.schema["type"] == "integer":
        limits = {name: int(bound) if bound % 1 == 0 else bound for name, bound in limits.items()}
    kind = _with_meta(shape.kind, limits)
    msgspec.json.Decoder(kind)
    if "tz" in limits:
        # With a zone, what is written has the format, too; without one, not even what is read has it.
        schema = {key: part for key, part in shape.schema.items() if limits["tz"] or key != "format"}
        return Leaf(kind=kind, schema=schema)
    if "contentEncoding" in shape.schema:
        said = {key: (count + 2) // 3 * 4 for key, count in said.items()}
    return Leaf(kind=kind, schema=shape.schema | said)


def _with_meta(kind: Any, limits: dict[str, Any]) -> Any:
    """What msgspec is given for a type with limits: one ``Meta``, as it would not have two that say the same."""
    if get_origin(kind) is Annotated:
        kind, meta = get_args(kind)
        known = {name: getattr(meta, name) for name in (*_NUMBER, *_STRING, *_TIME)}
        limits = {name: bound for name, bound in known.items() if bound is not None} | limits
    return _annotated[kind, msgspec.Meta(**limits)]
