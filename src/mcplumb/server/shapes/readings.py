"""Values of shapes from plain data, piece by piece.

msgspec reads most types by itself, and faster. This reads those that it refuses, and finds all that is wrong with a
value, where msgspec stops at the first fault.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, TypeAlias

import msgspec

from mcplumb.server.shapes.customs import read_custom
from mcplumb.server.shapes.models import read_model
from mcplumb.server.shapes.nodes import (
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
from mcplumb.server.shapes.words import as_text, closest, counted, in_words, shown

__all__ = ["Fault", "Reading", "expected"]

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
