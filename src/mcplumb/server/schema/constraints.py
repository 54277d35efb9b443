"""Limits of a type: the length of strings, the range of numbers, the number of items.

``Annotated`` metadata has them under msgspec's names (``min_length``), JSON Schema under its keywords (``minLength``).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec.structs import replace

from mcplumb.errors import UsageError
from mcplumb.server.schema.read_value import expected
from mcplumb.server.schema.type_tree import Array, Leaf, Noted, Object, Shape, Union, union_of

__all__ = ["unsupported_limits", "with_limits"]

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

_annotated: Any = Annotated  # typed as Any, because its arguments are known at run time only


def unsupported_limits(shape: Shape, limits: dict[str, Any]) -> set[str]:
    """Return the limits, by msgspec's names, that a shape cannot have."""
    return limits.keys() - _fitting(shape).keys()


def with_limits(shape: Shape, limits: dict[str, Any]) -> Shape:
    """Return a shape with limits added. Limits that it cannot have are ignored: they apply to other union members."""
    fitting = _fitting(shape)
    limits = {name: bound for name, bound in limits.items() if name in fitting}
    keywords = {fitting[name]: bound for name, bound in limits.items()}
    try:
        match shape:
            case Union():
                return union_of([with_limits(member, limits) for member in shape.members])
            case Noted():
                inner = with_limits(shape.inner, limits)
                return Noted(kind=inner.kind, inner=inner, notes=shape.notes)
            case Array() | Object() if limits:
                return replace(shape, kind=_with_meta(shape.kind, limits), limits=shape.limits | keywords)
            case Leaf() if limits:
                return _limited_leaf(shape, limits, keywords)
    except (TypeError, ValueError, re.error) as error:
        raise UsageError(f"The limits for {expected(shape)} are invalid: {error}.") from None
    return shape


def _fitting(shape: Shape) -> dict[str, str]:
    """Return the limits that a shape can have, and their JSON Schema keywords."""
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


def _limited_leaf(shape: Leaf, limits: dict[str, Any], keywords: dict[str, Any]) -> Leaf:
    if shape.schema["type"] == "integer":
        limits = {name: int(bound) if bound % 1 == 0 else bound for name, bound in limits.items()}
    kind = _with_meta(shape.kind, limits)
    msgspec.json.Decoder(kind)
    if "tz" in limits:
        # With a time zone, the output matches the format, too; without one, not even the input does.
        schema = {key: part for key, part in shape.schema.items() if limits["tz"] or key != "format"}
        return Leaf(kind=kind, schema=schema)
    if "contentEncoding" in shape.schema:
        keywords = {key: (count + 2) // 3 * 4 for key, count in keywords.items()}
    return Leaf(kind=kind, schema=shape.schema | keywords)


def _with_meta(kind: Any, limits: dict[str, Any]) -> Any:
    """Return a type with limits for msgspec: with one ``Meta``, as msgspec refuses two with the same limit."""
    if get_origin(kind) is Annotated:
        kind, meta = get_args(kind)
        known = {name: getattr(meta, name) for name in (*_NUMBER, *_STRING, *_TIME)}
        limits = {name: bound for name, bound in known.items() if bound is not None} | limits
    return _annotated[kind, msgspec.Meta(**limits)]
