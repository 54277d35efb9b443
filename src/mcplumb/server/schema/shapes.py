"""Shapes: Python types as trees, with the fields of classes.

They are data only: ``looking`` makes them from annotations, ``schemas`` describes them, ``readings`` reads by them.

Where a default is an attribute of its class, msgspec takes it for one of the object that it makes, and leaves it out.
Such an object can be used, but is written without that field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from inspect import get_annotations, getattr_static
from typing import Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from mcplumb.errors import UsageError

__all__ = [
    "NO_DEFAULT",
    "Alias",
    "Array",
    "Completer",
    "Declared",
    "Field",
    "Leaf",
    "Model",
    "Noted",
    "Object",
    "Path",
    "Record",
    "Shape",
    "Tuple",
    "Union",
    "Values",
    "bind",
    "completer_of",
    "declared_fields",
    "is_named_tuple",
    "is_record",
    "is_typed_dict",
]


# The nodes of the trees that types are taken apart into.


#: Where in a value something is: the names and numbers that lead there.
Path: TypeAlias = tuple[str | int, ...]

#: For a field that has no default, or none that could be shown.
NO_DEFAULT: Any = object()


class _Node(msgspec.Struct, eq=False, kw_only=True):
    #: What msgspec is given to read the type.
    kind: Any


class Noted(_Node, eq=False, kw_only=True):
    """A type, and what its author noted about it where it is used: a description, examples …"""

    inner: Shape
    notes: dict[str, Any]


class Alias(_Node, eq=False, kw_only=True):
    """A type that contains itself, by the name of an alias."""

    name: str
    inner: Shape


class Leaf(_Node, eq=False, kw_only=True):
    """A type without parts, which msgspec reads."""

    schema: dict[str, Any]
    #: The keys of the schema that cannot be promised for a value that is written.
    loose: tuple[str, ...] = ()


class Values(_Node, eq=False, kw_only=True):
    """A choice of constants: the JSON of each, and what it stands for."""

    options: list[tuple[Any, Any]]
    description: str = ""
    #: Finds what else a value may stand for; a ValueError if nothing.
    find: Callable[[Any], Any] | None = None


class Array(_Node, eq=False, kw_only=True):
    """A collection of items that are all alike."""

    item: Shape
    make: Callable[[list[Any]], Any]
    limits: dict[str, int] = {}


class Tuple(_Node, eq=False, kw_only=True):
    """An array with a type for each place."""

    items: list[Shape]


class Object(_Node, eq=False, kw_only=True):
    """An object with any names, whose members are all alike."""

    key: Shape
    item: Shape
    limits: dict[str, int] = {}


class Union(_Node, eq=False, kw_only=True):
    """Several types: a value is of the first that it fits."""

    members: list[Shape]


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a record."""

    #: Its name in JSON.
    key: str
    #: Its name as an argument of what makes the record; None if it is not read.
    argument: str | None
    shape: Shape
    required: bool
    description: str = ""
    default: Any = NO_DEFAULT
    is_written: bool = True


class Record(_Node, eq=False, kw_only=True):
    """An object with known members or, for named tuples and their like, an array of them."""

    name: str
    make: Callable[..., Any]
    fields: list[Field]
    description: str = ""
    #: The member that says which type it is, and what it says.
    tag: tuple[str, Any] | None = None
    #: Whether other members are refused.
    is_closed: bool = False
    is_array: bool = False

    @property
    def keys(self) -> list[str]:
        """The names of all members, in the order of an array of them."""
        return ([self.tag[0]] if self.tag else []) + [field.key for field in self.fields]


class Model(_Node, eq=False, kw_only=True):
    """A type of pydantic, which describes and reads itself."""

    #: Empty if it has none.
    name: str
    #: Pydantic's ``TypeAdapter``.
    adapter: Any


Shape: TypeAlias = Noted | Alias | Leaf | Values | Array | Tuple | Object | Union | Record | Model


# The fields that a class declares: of dataclasses, Structs, typed dicts, named tuples and attrs classes.


# Calling others for a default that is shown could have effects, and give another value each time.
_PURE_FACTORIES = (list, dict, set, frozenset, tuple)


class Declared(msgspec.Struct, frozen=True):
    """One field of a class."""

    name: str
    kind: Any
    #: Its name in JSON.
    key: str
    #: Its name as an argument of the class, or None if it is not one.
    argument: str | None
    required: bool
    default: Any = NO_DEFAULT
    #: Whether msgspec reads it as the class does.
    is_native: bool = True
    #: Whether msgspec writes it.
    is_written: bool = True


def is_typed_dict(kind: Any) -> bool:
    """Whether a class is a ``TypedDict``."""
    return isinstance(kind, type) and issubclass(kind, dict) and hasattr(kind, "__total__")


def is_named_tuple(kind: Any) -> bool:
    """Whether a class is a ``NamedTuple``."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_record(kind: Any) -> bool:
    """Whether a class declares fields."""
    return isinstance(kind, type) and (
        issubclass(kind, msgspec.Struct)
        or hasattr(kind, "__dataclass_fields__")
        or hasattr(kind, "__attrs_attrs__")
        or is_typed_dict(kind)
        or is_named_tuple(kind)
    )


def declared_fields(kind: Any, scope: Mapping[str, Any]) -> list[Declared]:
    """The fields of a class, or of a generic class with its arguments, in their order.

    Names in its annotations that its module does not have are looked up in ``scope``.
    """
    owner: Any = get_origin(kind) or kind
    if issubclass(owner, msgspec.Struct):
        return list(_of_struct(kind, owner))
    hints = _hints(kind, owner, scope)
    if is_typed_dict(owner):
        return list(_of_typed_dict(owner, hints))
    if is_named_tuple(owner):
        return list(_of_named_tuple(owner, hints))
    if hasattr(owner, "__dataclass_fields__"):
        return list(_of_dataclass(owner, hints))
    return list(_of_attrs(owner, hints))


def _of_struct(kind: Any, owner: Any) -> Iterator[Declared]:
    try:
        fields = msgspec.structs.fields(kind)
    except NameError as error:
        raise _unresolved(owner, error) from error
    for field in fields:
        default = _default(field.default, field.default_factory, msgspec.NODEFAULT)
        yield Declared(field.name, field.type, field.encode_name, field.name, field.required, default)


def _of_typed_dict(owner: Any, hints: dict[str, Any]) -> Iterator[Declared]:
    for name, hint in hints.items():
        required = name in owner.__required_keys__
        # Python overlooks these words where the annotations are strings.
        while (word := str(get_origin(hint)).rpartition(".")[2]) in ("Required", "NotRequired", "ReadOnly"):
            required = word == "Required" or (word == "ReadOnly" and required)
            hint = get_args(hint)[0]
        yield Declared(name, hint, name, name, required)


def _of_named_tuple(owner: Any, hints: dict[str, Any]) -> Iterator[Declared]:
    for name in owner._fields:
        default = owner._field_defaults.get(name, NO_DEFAULT)
        yield Declared(name, hints.get(name, Any), name, name, default is NO_DEFAULT, default)


def _of_dataclass(owner: Any, hints: dict[str, Any]) -> Iterator[Declared]:
    from dataclasses import MISSING, InitVar, fields

    for name, hint in hints.items():
        if isinstance(hint, InitVar):
            raise UsageError(f"{owner.__name__}.{name} is an InitVar, which is not supported: make it a field.")
    for field in fields(owner):
        required = field.default is MISSING and field.default_factory is MISSING
        default = _default(field.default, field.default_factory, MISSING)
        argument = field.name if field.init else None
        yield Declared(
            field.name,
            hints[field.name],
            field.name,
            argument,
            required=required and field.init,
            default=default,
            is_native=field.init,
        )


def _of_attrs(owner: Any, hints: dict[str, Any]) -> Iterator[Declared]:
    import attrs

    made_by: Any = attrs.Factory
    for field in owner.__attrs_attrs__:
        is_made = isinstance(field.default, made_by)
        default = _default(attrs.NOTHING, field.default.factory, attrs.NOTHING) if is_made else field.default
        yield Declared(
            field.name,
            hints.get(field.name, field.type or Any),
            field.name,
            field.alias if field.init else None,
            required=field.init and field.default is attrs.NOTHING,
            default=NO_DEFAULT if default is attrs.NOTHING else default,
            is_native=field.init and field.converter is None,
            is_written=not field.name.startswith("_"),
        )


def _default(value: Any, factory: Any, absent: Any) -> Any:
    """The default to be shown, if there is one that can be."""
    if value is not absent:
        return value
    return factory() if factory in _PURE_FACTORIES else NO_DEFAULT


def _hints(kind: Any, owner: Any, scope: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of a class, with its type variables replaced by what they stand for."""
    try:
        hints = get_type_hints(owner, include_extras=True)
    except NameError:
        hints = _hints_in_scope(owner, scope)
    bound = _bindings(kind, {})
    return {name: bind(hint, _of_owner(owner, name, bound)) for name, hint in hints.items()}


def _hints_in_scope(owner: Any, scope: Mapping[str, Any]) -> dict[str, Any]:
    own = {parameter.__name__: parameter for parameter in getattr(owner, "__type_params__", ())}
    try:
        return get_type_hints(owner, localns={**scope, **own}, include_extras=True)
    except NameError as error:
        raise _unresolved(owner, error) from error


def _unresolved(owner: Any, error: NameError) -> UsageError:
    return UsageError(
        f"The annotations of {owner.__qualname__} name {error.name!r}, which cannot be found: define or import it at "
        "the top of the module."
    )


def _of_owner(owner: Any, name: str, bound: dict[Any, dict[Any, Any]]) -> dict[Any, Any]:
    """What the type variables stand for in the class that declares a field."""
    declaring = next((parent for parent in owner.__mro__ if name in get_annotations(parent)), owner)
    return bound.get(declaring, {})


def _bindings(kind: Any, outer: dict[Any, Any]) -> dict[Any, dict[Any, Any]]:
    """What the type variables of a class, and of its generic parents, stand for."""
    owner = get_origin(kind) or kind
    own = dict(zip(getattr(owner, "__parameters__", ()), (bind(arg, outer) for arg in get_args(kind)), strict=False))
    found = {owner: own}
    if isinstance(owner, type):  # TypedDict and NamedTuple, as parents, are functions
        for parent in vars(owner).get("__orig_bases__", owner.__bases__):
            found = _bindings(parent, own) | found
    return found


def bind(hint: Any, meanings: dict[Any, Any]) -> Any:
    """A type with its type variables replaced by what they stand for."""
    if isinstance(hint, TypeVar):
        return meanings.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if not meanings or not parameters or isinstance(hint, type):
        return hint
    return hint[tuple(meanings.get(parameter, parameter) for parameter in parameters)]


# Dataclasses with all their fields.


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
