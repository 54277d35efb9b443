"""Shapes with limits: how long a text may be, how large a number, how many items."""

from __future__ import annotations

import re
from functools import reduce
from operator import or_
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec.structs import replace

from mcplumb.errors import UsageError
from mcplumb.server.shapes.nodes import Array, Leaf, Noted, Object, Shape, Union
from mcplumb.server.shapes.readings import expected

__all__ = ["limited", "unfit_limits", "union_of"]

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
