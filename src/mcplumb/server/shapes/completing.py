"""Dataclasses with all their fields.

Where a default is an attribute of its class, msgspec takes it for one of the object that it makes, and leaves it out.
Such an object can be used, but is written without that field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import getattr_static
from typing import Any, TypeAlias

import msgspec

from mcplumb.server.shapes.nodes import Alias, Array, Field, Noted, Object, Record, Shape, Tuple, Union

__all__ = ["Completer", "completer_of"]

#: Gives all dataclasses in a value, which msgspec made, their defaults.
Completer: TypeAlias = Callable[[Any], None]

# The same for a part of it. What was seen is known by its id: authors may tie what they get into a knot. They may also
# replace what is in a field, so that what is of another type is left alone.
_Part: TypeAlias = Callable[[Any, set[int]], None]


def completer_of(shape: Shape) -> Completer | None:
    """What completes the values of a shape; None if msgspec leaves nothing out of them."""
    if not _is_forgetful(shape, set()):
        return None
    complete = _part(shape, {})
    return lambda value: complete(value, set())


def _is_forgetful(shape: Shape, seen: set[int]) -> bool:
    """Whether a dataclass in it loses defaults; what was ``seen`` is being looked at."""
    if id(shape) in seen:
        return False
    seen.add(id(shape))
    return (isinstance(shape, Record) and bool(_forgotten(shape))) or any(
        _is_forgetful(part, seen) for part in _parts(shape)
    )


def _parts(shape: Shape) -> list[Shape]:
    match shape:
        case Noted() | Alias():
            return [shape.inner]
        case Array() | Object():
            return [shape.item]
        case Tuple():
            return shape.items
        case Union():
            return shape.members
        case Record():
            return [field.shape for field in shape.fields]
    return []


def _forgotten(record: Record) -> dict[str, Any]:
    """The defaults that are attributes of the class, and not those that stand behind slots or in factories."""
    known: dict[str, Any] = getattr(record.make, "__dataclass_fields__", {})
    return {
        name: field.default
        for name, field in known.items()
        if field.init and getattr_static(record.make, name, field) is field.default
    }


def _part(shape: Shape, known: dict[int, _Part]) -> _Part:
    """``known`` are those of the records that it is part of: they may contain themselves."""
    match shape:
        case Record():
            return known.get(id(shape)) or _of_record(shape, known)
        case Array():
            return _of_items(_part(shape.item, known), (list, tuple, set, frozenset), iter)
        case Object():
            return _of_items(_part(shape.item, known), (dict,), dict.values)
        case Tuple():
            of_places = [(i, _part(shape.items[i], known)) for i in _forgetful_in(shape)]
            return _of_places(len(shape.items), of_places)
    of_parts = [_part(_parts(shape)[i], known) for i in _forgetful_in(shape)]
    return of_parts[0] if len(of_parts) == 1 else _of_members(of_parts)


def _of_record(record: Record, known: dict[int, _Part]) -> _Part:
    kind: Any = record.make
    defaults = _forgotten(record)
    of_fields: list[tuple[Callable[[Any], Any], _Part]] = []

    def complete(value: Any, seen: set[int]) -> None:
        if isinstance(value, kind) and id(value) not in seen:
            seen.add(id(value))
            for name, default in defaults.items():
                vars(value).setdefault(name, default)
            for get, of_field in of_fields:
                of_field(get(value), seen)

    known[id(record)] = complete
    for i in _forgetful_in(record):
        field = record.fields[i]
        of_fields.append((_getter(kind, field), _part(field.shape, known)))
    return complete


def _getter(kind: Any, field: Field) -> Callable[[Any], Any]:
    """What finds a field in a record; None where it is not."""
    if kind is dict:
        return lambda value: value.get(field.key)
    # Of the others, a Struct alone may call it otherwise in JSON.
    name = field.argument if issubclass(kind, msgspec.Struct) else field.key
    return lambda value: getattr(value, str(name), None)


def _of_items(complete: _Part, kinds: tuple[type, ...], items: Callable[[Any], Iterable[Any]]) -> _Part:
    def complete_items(value: Any, seen: set[int]) -> None:
        if isinstance(value, kinds):
            for item in items(value):
                complete(item, seen)

    return complete_items


def _of_places(count: int, of_places: list[tuple[int, _Part]]) -> _Part:
    def complete(value: Any, seen: set[int]) -> None:
        if isinstance(value, tuple) and len(value) == count:
            for i, of_place in of_places:
                of_place(value[i], seen)

    return complete


def _of_members(of_members: list[_Part]) -> _Part:
    def complete(value: Any, seen: set[int]) -> None:
        for of_member in of_members:
            of_member(value, seen)

    return complete


def _forgetful_in(shape: Shape) -> list[int]:
    """Which of its parts."""
    return [i for i, part in enumerate(_parts(shape)) if _is_forgetful(part, set())]
