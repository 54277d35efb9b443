"""Shapes: Python types as trees of nodes.

A shape is data only: ``from_annotation`` creates it, ``to_json_schema`` writes it as a schema, and ``read_value`` reads
values by it. The file has three parts: the nodes, the declared fields of classes, and the missing defaults of
dataclasses.

The last part works around ``msgspec``: if a dataclass field has a class attribute as its default, ``msgspec`` does not
set the field on the instances that it creates. Such an instance works, but is encoded without the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from mcplumb.errors import UsageError

__all__ = [
    "NO_DEFAULT",
    "Alias",
    "Array",
    "Completer",
    "DeclaredField",
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
    "completer_of",
    "declared_fields",
    "is_named_tuple",
    "is_record",
    "is_typed_dict",
    "substitute",
    "union_of",
]


# The nodes.

#: A path into a value: keys and indexes.
Path: TypeAlias = tuple[str | int, ...]

#: Marks a field without a default, or with one that JSON cannot represent.
NO_DEFAULT: Any = object()


class _Node(msgspec.Struct, eq=False, kw_only=True):
    #: The type for msgspec's decoders.
    kind: Any


class Noted(_Node, eq=False, kw_only=True):
    """A type with notes for its schema: a description, examples, and so on."""

    inner: Shape
    notes: dict[str, Any]


class Alias(_Node, eq=False, kw_only=True):
    """A recursive type alias."""

    name: str
    inner: Shape


class Leaf(_Node, eq=False, kw_only=True):
    """A scalar type, which msgspec reads."""

    schema: dict[str, Any]
    #: The keywords of the schema that encoded values may violate.
    loose: tuple[str, ...] = ()


class Values(_Node, eq=False, kw_only=True):
    """A choice of constants (``Literal``, ``Enum``): pairs of the JSON value and the Python value."""

    options: list[tuple[Any, Any]]
    description: str = ""
    #: Converts other JSON values (``Enum._missing_``), or raises ValueError.
    find: Callable[[Any], Any] | None = None


class Array(_Node, eq=False, kw_only=True):
    """A collection of items of one type."""

    item: Shape
    make: Callable[[list[Any]], Any]
    limits: dict[str, int] = {}


class Tuple(_Node, eq=False, kw_only=True):
    """An array with a type for each position."""

    items: list[Shape]


class Object(_Node, eq=False, kw_only=True):
    """An object with arbitrary keys, whose members have one type."""

    key: Shape
    item: Shape
    limits: dict[str, int] = {}


class Union(_Node, eq=False, kw_only=True):
    """Several types: a value is read as the first that accepts it."""

    members: list[Shape]


def union_of(members: list[Shape]) -> Union:
    """Return the union of several shapes."""
    return Union(kind=reduce(or_, (member.kind for member in members)), members=members)


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a record."""

    #: The name in JSON.
    key: str
    #: The name as an argument of the constructor; None if the field is not read.
    argument: str | None
    shape: Shape
    required: bool
    description: str = ""
    default: Any = NO_DEFAULT
    is_written: bool = True


class Record(_Node, eq=False, kw_only=True):
    """A class with fields: in JSON an object or, for named tuples and array-like Structs, an array."""

    name: str
    make: Callable[..., Any]
    fields: list[Field]
    description: str = ""
    #: The member that identifies the type, and its value.
    tag: tuple[str, Any] | None = None
    #: Whether unknown members are refused.
    is_closed: bool = False
    is_array: bool = False

    @property
    def keys(self) -> list[str]:
        """The names of all members, in their order in an array."""
        return ([self.tag[0]] if self.tag else []) + [field.key for field in self.fields]


class Model(_Node, eq=False, kw_only=True):
    """A type that pydantic handles."""

    #: Empty if the type has no name.
    name: str
    #: Pydantic's ``TypeAdapter``.
    adapter: Any


Shape: TypeAlias = Noted | Alias | Leaf | Values | Array | Tuple | Object | Union | Record | Model


# The declared fields of dataclasses, Structs, TypedDicts, NamedTuples and attrs classes.

# The default factories that are called for the schema. Others could have side effects, or return a new value each time.
_PURE_FACTORIES = (list, dict, set, frozenset, tuple)


class DeclaredField(msgspec.Struct, frozen=True):
    """One declared field of a class."""

    name: str
    kind: Any
    #: The name in JSON.
    key: str
    #: The name as an argument of the constructor; None if it is not an argument.
    argument: str | None
    required: bool
    default: Any = NO_DEFAULT
    #: Whether msgspec reads the field in the same way as the class.
    is_native: bool = True
    #: Whether msgspec encodes the field.
    is_written: bool = True


def is_typed_dict(kind: Any) -> bool:
    """Return whether a class is a ``TypedDict``."""
    return isinstance(kind, type) and issubclass(kind, dict) and hasattr(kind, "__total__")


def is_named_tuple(kind: Any) -> bool:
    """Return whether a class is a ``NamedTuple``."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def is_record(kind: Any) -> bool:
    """Return whether a class declares fields."""
    return isinstance(kind, type) and (
        issubclass(kind, msgspec.Struct)
        or hasattr(kind, "__dataclass_fields__")
        or hasattr(kind, "__attrs_attrs__")
        or is_typed_dict(kind)
        or is_named_tuple(kind)
    )


def declared_fields(kind: Any, scope: Mapping[str, Any]) -> list[DeclaredField]:
    """Return the fields of a class, or of a generic class with its type arguments, in their order.

    Names in its annotations that its module does not define are looked up in ``scope``.
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


def _of_struct(kind: Any, owner: Any) -> Iterator[DeclaredField]:
    try:
        fields = msgspec.structs.fields(kind)
    except NameError as error:
        raise _unresolved(owner, error) from None
    for field in fields:
        default = _default(field.default, field.default_factory, msgspec.NODEFAULT)
        yield DeclaredField(field.name, field.type, field.encode_name, field.name, field.required, default)


def _of_typed_dict(owner: Any, hints: dict[str, Any]) -> Iterator[DeclaredField]:
    for name, hint in hints.items():
        required = name in owner.__required_keys__
        # Python ignores these qualifiers if the annotations are strings.
        while (qualifier := str(get_origin(hint)).rpartition(".")[2]) in ("Required", "NotRequired", "ReadOnly"):
            required = qualifier == "Required" or (qualifier == "ReadOnly" and required)
            hint = get_args(hint)[0]
        yield DeclaredField(name, hint, name, name, required)


def _of_named_tuple(owner: Any, hints: dict[str, Any]) -> Iterator[DeclaredField]:
    for name in owner._fields:
        default = owner._field_defaults.get(name, NO_DEFAULT)
        yield DeclaredField(name, hints.get(name, Any), name, name, default is NO_DEFAULT, default)


def _of_dataclass(owner: Any, hints: dict[str, Any]) -> Iterator[DeclaredField]:
    from dataclasses import MISSING, InitVar, fields

    for name, hint in hints.items():
        if isinstance(hint, InitVar):
            raise UsageError(f"{owner.__name__}.{name} is an InitVar, which is not supported: make it a field.")
    for field in fields(owner):
        required = field.default is MISSING and field.default_factory is MISSING
        default = _default(field.default, field.default_factory, MISSING)
        argument = field.name if field.init else None
        yield DeclaredField(
            field.name,
            hints[field.name],
            field.name,
            argument,
            required=required and field.init,
            default=default,
            is_native=field.init,
        )


def _of_attrs(owner: Any, hints: dict[str, Any]) -> Iterator[DeclaredField]:
    import attrs

    made_by: Any = attrs.Factory
    for field in owner.__attrs_attrs__:
        is_made = isinstance(field.default, made_by)
        default = _default(attrs.NOTHING, field.default.factory, attrs.NOTHING) if is_made else field.default
        yield DeclaredField(
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
    """Return the default for the schema; ``NO_DEFAULT`` if there is none, or its factory must not be called."""
    if value is not absent:
        return value
    return factory() if factory in _PURE_FACTORIES else NO_DEFAULT


def _hints(kind: Any, owner: Any, scope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations of a class, with its type variables substituted."""
    try:
        hints = get_type_hints(owner, include_extras=True)
    except NameError:
        hints = _hints_in_scope(owner, scope)
    bound = _bindings(kind, {})
    return {name: substitute(hint, _of_owner(owner, name, bound)) for name, hint in hints.items()}


def _hints_in_scope(owner: Any, scope: Mapping[str, Any]) -> dict[str, Any]:
    own = {parameter.__name__: parameter for parameter in getattr(owner, "__type_params__", ())}
    try:
        return get_type_hints(owner, localns={**scope, **own}, include_extras=True)
    except NameError as error:
        raise _unresolved(owner, error) from None


def _unresolved(owner: Any, error: NameError) -> UsageError:
    return UsageError(
        f"The annotations of {owner.__qualname__} name {error.name!r}, which cannot be found: define or import it at "
        "the top of the module."
    )


def _of_owner(owner: Any, name: str, bound: dict[Any, dict[Any, Any]]) -> dict[Any, Any]:
    """Return the type variable bindings of the class in the MRO that declares a field."""
    from inspect import get_annotations  # it takes long to load, and most tools take no records

    declaring = next((parent for parent in owner.__mro__ if name in get_annotations(parent)), owner)
    return bound.get(declaring, {})


def _bindings(kind: Any, outer: dict[Any, Any]) -> dict[Any, dict[Any, Any]]:
    """Return the type variable bindings of a class and of its generic bases."""
    owner = get_origin(kind) or kind
    own = dict(
        zip(getattr(owner, "__parameters__", ()), (substitute(arg, outer) for arg in get_args(kind)), strict=False)
    )
    found = {owner: own}
    if isinstance(owner, type):  # the bases TypedDict and NamedTuple are functions
        for parent in vars(owner).get("__orig_bases__", owner.__bases__):
            found = _bindings(parent, own) | found
    return found


def substitute(hint: Any, meanings: dict[Any, Any]) -> Any:
    """Return a type with its type variables substituted."""
    if isinstance(hint, TypeVar):
        return meanings.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    if not meanings or not parameters or isinstance(hint, type):
        return hint
    return hint[tuple(meanings.get(parameter, parameter) for parameter in parameters)]


# The missing defaults of dataclasses.

#: Sets the missing defaults of all dataclasses in a value that msgspec created.
Completer: TypeAlias = Callable[[Any], None]

# Sets the missing defaults in a part of a value. The set has the ids of visited objects, because ``__post_init__`` may
# create cycles. It may also replace field values, so values of unexpected types are skipped.
_Part: TypeAlias = Callable[[Any, set[int]], None]


def completer_of(shape: Shape) -> Completer | None:
    """Return a function that sets the missing defaults in values of a shape; None if msgspec sets all of them."""
    if not _loses_defaults(shape, set()):
        return None
    complete = _part(shape, {})
    return lambda value: complete(value, set())


def _loses_defaults(shape: Shape, seen: set[int]) -> bool:
    """Return whether a dataclass in the shape loses defaults; ``seen`` has the ids of visited shapes."""
    if id(shape) in seen:
        return False
    seen.add(id(shape))
    return (isinstance(shape, Record) and bool(_lost_defaults(shape))) or any(
        _loses_defaults(part, seen) for part in _parts(shape)
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


def _lost_defaults(record: Record) -> dict[str, Any]:
    """Return the defaults that msgspec does not set: those that are class attributes, without slots or factories."""
    known: dict[str, Any] = getattr(record.make, "__dataclass_fields__", {})
    if not known:
        return {}
    from inspect import getattr_static  # dataclasses have loaded it

    return {
        name: field.default
        for name, field in known.items()
        if field.init and getattr_static(record.make, name, field) is field.default
    }


def _part(shape: Shape, known: dict[int, _Part]) -> _Part:
    """Return the function for a part; ``known`` has the functions of the enclosing records, which may be recursive."""
    match shape:
        case Record():
            return known.get(id(shape)) or _of_record(shape, known)
        case Array():
            return _of_items(_part(shape.item, known), (list, tuple, set, frozenset), iter)
        case Object():
            return _of_items(_part(shape.item, known), (dict,), dict.values)
        case Tuple():
            of_places = [(i, _part(shape.items[i], known)) for i in _incomplete_parts(shape)]
            return _of_places(len(shape.items), of_places)
    of_parts = [_part(_parts(shape)[i], known) for i in _incomplete_parts(shape)]
    return of_parts[0] if len(of_parts) == 1 else _of_members(of_parts)


def _of_record(record: Record, known: dict[int, _Part]) -> _Part:
    kind: Any = record.make
    defaults = _lost_defaults(record)
    of_fields: list[tuple[Callable[[Any], Any], _Part]] = []

    def complete(value: Any, seen: set[int]) -> None:
        if isinstance(value, kind) and id(value) not in seen:
            seen.add(id(value))
            for name, default in defaults.items():
                vars(value).setdefault(name, default)
            for get, of_field in of_fields:
                of_field(get(value), seen)

    known[id(record)] = complete
    for i in _incomplete_parts(record):
        field = record.fields[i]
        of_fields.append((_getter(kind, field), _part(field.shape, known)))
    return complete


def _getter(kind: Any, field: Field) -> Callable[[Any], Any]:
    """Return a function that returns a field of a record, or None if it is missing."""
    if kind is dict:
        return lambda value: value.get(field.key)
    # Only a Struct may have another name for the field in JSON.
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


def _incomplete_parts(shape: Shape) -> list[int]:
    """Return the indexes of the parts that lose defaults."""
    return [i for i, part in enumerate(_parts(shape)) if _loses_defaults(part, set())]
