"""The fields that a class declares: of dataclasses, Structs, typed dicts, named tuples and attrs classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import get_annotations
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from mcplumb.errors import UsageError
from mcplumb.server.shapes.nodes import NO_DEFAULT

__all__ = ["Declared", "bind", "declared_fields", "is_named_tuple", "is_record", "is_typed_dict"]

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
