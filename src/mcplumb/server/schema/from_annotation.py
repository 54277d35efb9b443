"""Parse type annotations into shapes.

``parse_type`` is the entry point: it resolves string annotations, aliases and generics, reads the metadata of
``Annotated`` (limits and notes), and returns the shape of a type, and whether ``msgspec`` can read the type without
help.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import types
import typing
import uuid
from collections import abc
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args, get_origin

import msgspec

from mcplumb.errors import UsageError
from mcplumb.server.schema.constraints import unsupported_limits, with_limits
from mcplumb.server.schema.docstrings import Docstring, read_docstring
from mcplumb.server.schema.read_value import (
    adapter_of,
    class_adapter,
    is_model,
    is_path,
    read_custom,
    write_custom,
)
from mcplumb.server.schema.type_tree import (
    Alias,
    Array,
    Field,
    Leaf,
    Model,
    Noted,
    Object,
    Record,
    Shape,
    Tuple,
    Union,
    Values,
    declared_fields,
    is_named_tuple,
    is_record,
    is_typed_dict,
    substitute,
    union_of,
)

__all__ = ["Metadata", "ParsedType", "is_field_info", "parse_type", "read_metadata", "resolve_annotation"]


# The metadata of ``Annotated``: limits for values, and notes for the schema.

_LIMITS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
_NOTES = ("title", "description", "examples")


class Metadata(msgspec.Struct):
    """The metadata of an annotation, under msgspec's names."""

    limits: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    #: Whether some of the limits are in a form that msgspec ignores.
    is_foreign: bool = False


def read_metadata(items: Iterable[Any]) -> Metadata:
    """Read msgspec's ``Meta``, plain strings, the types of annotated_types, and pydantic's ``Field``.

    A later item overrides an earlier one. Unknown items are ignored.
    """
    found = Metadata()
    for item in _flattened(items):
        if isinstance(item, str):
            found.notes["description"] = item
            continue
        is_meta = isinstance(item, msgspec.Meta)
        for name in (*_LIMITS, "tz") if is_meta else _LIMITS:
            value = getattr(item, name, None)
            if value is not None:
                found.limits[name] = getattr(value, "pattern", value)  # a pattern may be compiled
                found.is_foreign |= not is_meta
        notes = {name: getattr(item, name, None) for name in _NOTES}
        notes["description"] = notes["description"] or getattr(item, "documentation", None)
        extra = getattr(item, "extra_json_schema" if is_meta else "json_schema_extra", None)
        notes.update(extra if isinstance(extra, dict) else {})
        plain = msgspec.to_builtins(notes, enc_hook=write_custom, str_keys=True)
        found.notes.update({name: note for name, note in plain.items() if note is not None})
    return found


def is_field_info(value: Any) -> bool:
    """Return whether a value is the result of pydantic's ``Field``, which may be used in place of a default."""
    return hasattr(value, "is_required") and hasattr(value, "default_factory") and hasattr(value, "metadata")


def _flattened(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        yield item
        if is_field_info(item):  # its limits are a list of further items
            yield from item.metadata


# The parser.

_BASE64 = {"type": "string", "contentEncoding": "base64"}
_LEAVES: dict[Any, dict[str, Any]] = {
    Any: {},
    type(None): {"type": "null"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: _BASE64,
    bytearray: _BASE64,
    memoryview: _BASE64,
    dt.datetime: {"type": "string", "format": "date-time"},
    dt.date: {"type": "string", "format": "date"},
    dt.time: {"type": "string", "format": "time"},
    dt.timedelta: {"type": "string", "format": "duration"},
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {"type": "string", "format": "decimal"},
}
# Without a time zone, or with fractions, these are written in a form that no JSON Schema format allows.
_LOOSE = frozenset({dt.datetime, dt.time, dt.timedelta})
_EQUIVALENTS = {None: type(None), object: Any, typing.LiteralString: str}
_ARRAYS: dict[Any, Any] = {
    list: list,
    abc.Sequence: list,
    abc.MutableSequence: list,
    abc.Collection: list,
    abc.Iterable: list,
    set: set,
    abc.Set: set,
    abc.MutableSet: set,
    frozenset: frozenset,
}
_OBJECTS = frozenset({dict, abc.Mapping, abc.MutableMapping})
_ANYTHING = Leaf(kind=Any, schema={})
_CONSTANTS = {str, int, float, bool, type(None)}

# Typed as Any, because their type arguments are known at run time only.
_dict: Any = dict
_tuple: Any = tuple


class ParsedType(msgspec.Struct, frozen=True):
    """A parsed type: its shape, and whether msgspec can read the shape's ``kind`` without help."""

    shape: Shape
    is_native: bool


def parse_type(kind: Any, scope: Mapping[str, Any]) -> ParsedType:
    """Return the shape of a type; raise UsageError if JSON cannot represent it.

    Names in string annotations that their module does not define are looked up in ``scope``.
    """
    parser = _TypeParser(scope)
    shape = parser.parse(kind)
    return ParsedType(shape, parser.is_native and _is_supported_by_msgspec(shape.kind))


def _is_supported_by_msgspec(kind: Any) -> bool:
    try:
        msgspec.json.Decoder(kind, dec_hook=read_custom)
    except (AttributeError, KeyError, NameError, NotImplementedError, TypeError, ValueError):
        return False
    return True


class _TypeParser:
    def __init__(self, scope: Mapping[str, Any]) -> None:
        self.scope = scope
        #: Whether msgspec reads all parts of the type in the same way as their shapes do.
        self.is_native = True
        self.depth = 0
        self.records: dict[Any, Record] = {}
        #: The aliases that are being parsed, and the shapes that represent them inside themselves.
        self.aliases: dict[Any, Alias | None] = {}

    def parse(self, kind: Any) -> Shape:
        if isinstance(kind, str | typing.ForwardRef):
            kind = self.resolve(kind)
        origin = get_origin(kind)
        if origin is typing.Annotated:
            return self.of_annotated(kind)
        if _is_alias(kind) or _is_alias(origin):
            return self.of_alias(kind)
        if origin in (typing.Union, types.UnionType):
            return self.of_union(get_args(kind))
        if origin is typing.Literal:
            return self.of_literal(kind)
        if origin is typing.Final:
            return self.parse(get_args(kind)[0])
        if hasattr(kind, "__supertype__"):
            return self.parse(kind.__supertype__)
        if isinstance(kind, typing.TypeVar):
            return self.of_variable(kind)
        return self.of_plain(kind, origin or kind)

    def of_plain(self, kind: Any, origin: Any) -> Shape:
        try:
            kind = _EQUIVALENTS.get(kind, kind)
            schema = _LEAVES.get(kind)
        except TypeError:  # it is not hashable, so it is not a type
            raise _unsupported_type(kind) from None
        if schema is not None:
            return Leaf(kind=kind, schema=schema, loose=("format",) if kind in _LOOSE else ())
        if is_model(origin):
            return self.of_model(kind)
        args = get_args(kind)
        if origin in _ARRAYS:
            return self.of_array(_ARRAYS[origin], args[0] if args else Any)
        if origin is tuple:
            return self.of_tuple(args if args or kind is not tuple else (Any, ...))
        if origin in _OBJECTS:
            return self.of_object(*(args or (str, Any)))
        if is_record(origin):
            return self.records.get(kind) or self.of_record(kind, origin)
        if isinstance(kind, enum.EnumMeta):
            return self.of_enum(kind)
        if is_path(kind):
            return Leaf(kind=kind, schema={"type": "string", "format": "path"})
        raise _unsupported_type(kind)

    def of_annotated(self, kind: Any) -> Shape:
        inner, *items = get_args(kind)
        if any(map(is_model, items)):
            return self.of_model(kind)
        shape = self.parse(inner)
        found = read_metadata(items)
        if unsupported := unsupported_limits(shape, found.limits):
            if any(map(is_field_info, items)):
                return self.of_model(kind)
            raise UsageError(f"The limit {min(unsupported)!r} does not apply to {_type_name(inner)}: remove it.")
        if found.limits:
            shape = with_limits(shape, found.limits)
            # Inside a class, msgspec reads the original annotation.
            self.is_native &= not (found.is_foreign and self.depth)
        return Noted(kind=shape.kind, inner=shape, notes=found.notes) if found.notes else shape

    def of_model(self, kind: Any) -> Shape:
        if isinstance(kind, type):
            # msgspec would read a pydantic dataclass as a plain one.
            self.is_native &= not hasattr(kind, "__dataclass_fields__")
            return Model(kind=kind, name=kind.__name__, adapter=class_adapter(kind))
        self.is_native = False
        return Model(kind=kind, name="", adapter=adapter_of(kind))

    def of_alias(self, kind: Any) -> Shape:
        if kind in self.aliases:
            self.is_native = False
            shape = self.aliases[kind] = self.aliases[kind] or Alias(kind=kind, name=_name(kind), inner=_ANYTHING)
            return shape
        self.aliases[kind] = None
        origin = get_origin(kind) or kind
        inner = self.parse(
            substitute(origin.__value__, dict(zip(origin.__type_params__, get_args(kind), strict=False)))
        )
        named = self.aliases.pop(kind)
        if named is None:
            return inner
        named.inner = inner
        return named

    def of_union(self, kinds: tuple[Any, ...]) -> Shape:
        members = [self.parse(kind) for kind in kinds if kind is not msgspec.UnsetType]
        return members[0] if len(members) == 1 else union_of(members)

    def of_array(self, make: Any, kind: Any) -> Shape:
        item = self.parse(kind)
        if make is not list and getattr(get_origin(item.kind) or item.kind, "__hash__", True) is None:
            raise UsageError(f"A {make.__name__} cannot contain {_type_name(kind)}, which is not hashable: use a list.")
        return Array(kind=make[item.kind], item=item, make=make)

    def of_object(self, key_kind: Any, kind: Any) -> Shape:
        key, item = self.parse(key_kind), self.parse(kind)
        if not _can_be_key(key):
            raise UsageError(f"The keys of a JSON object cannot represent {_type_name(key_kind)}: use str or int.")
        return Object(kind=_dict[key.kind, item.kind], key=key, item=item)

    def of_tuple(self, kinds: tuple[Any, ...]) -> Shape:
        if len(kinds) == 2 and kinds[1] is ...:
            item = self.parse(kinds[0])
            return Array(kind=_tuple[item.kind, ...], item=item, make=tuple)
        items = [self.parse(kind) for kind in kinds]
        return Tuple(kind=_tuple[tuple(item.kind for item in items)], items=items)

    def of_literal(self, kind: Any) -> Shape:
        options = [(value.value if isinstance(value, enum.Enum) else value, value) for value in get_args(kind)]
        return self.of_values(kind, options, {str, int, type(None)})

    def of_enum(self, kind: Any) -> Shape:
        shape = self.of_values(kind, [(member.value, member) for member in kind], {str}, {int})
        doc = kind.__dict__.get("__doc__")
        if kind._missing_.__module__ != "enum":  # the class defines its own lookup
            shape.find = kind
        if doc and doc != "An enumeration.":
            shape.description = read_docstring(doc).description
        return shape

    def of_values(self, kind: Any, options: list[tuple[Any, Any]], *native: set[type]) -> Values:
        found = {type(constant) for constant, _ in options}
        if not found or not found <= _CONSTANTS:
            raise UsageError(
                f"{_type_name(kind)} has no values, or values that JSON cannot represent: use strings and numbers."
            )
        self.is_native &= any(found <= known for known in native)
        return Values(kind=kind, options=options)

    def of_variable(self, kind: Any) -> Shape:
        if kind.__constraints__:
            self.is_native &= not self.depth  # inside a class, msgspec treats it as Any
            return self.of_union(kind.__constraints__)
        return self.parse(kind.__bound__ or Any)

    def of_record(self, kind: Any, origin: Any) -> Shape:
        doc = _own_docstring(origin)
        record = self.records[kind] = Record(
            kind=kind,
            name=_name(kind),
            make=dict if is_typed_dict(origin) else origin,
            description=doc.description,
            fields=[],
            is_array=is_named_tuple(origin),
            is_closed=is_named_tuple(origin),
        )
        if issubclass(origin, msgspec.Struct):
            config = origin.__struct_config__
            record.is_closed = config.forbid_unknown_fields
            record.is_array = config.array_like
            if config.tag is not None:
                record.tag = (config.tag_field or "type", config.tag)
        fields = []
        self.depth += 1
        for field in declared_fields(kind, self.scope):
            self.is_native &= field.is_native
            fields.append(
                Field(
                    key=field.key,
                    argument=field.argument,
                    shape=self.parse(field.kind),
                    required=field.required,
                    description=doc.arguments.get(field.name, ""),
                    default=field.default,
                    is_written=field.is_written,
                )
            )
        self.depth -= 1
        record.fields = fields
        return record

    def resolve(self, name: str | typing.ForwardRef) -> Any:
        text = name if isinstance(name, str) else name.__forward_arg__
        return resolve_annotation(text, {}, self.scope, "A type")


def resolve_annotation(annotation: Any, names: dict[str, Any], scope: Mapping[str, Any], what: str) -> Any:
    """Return an annotation with its strings evaluated: names are looked up in ``scope``, then in ``names``.

    ``what`` is the beginning of the UsageError's sentence if a name cannot be found.
    """
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, names, dict(scope), include_extras=True)["it"]
    except NameError as error:
        raise UsageError(
            f"{what} names {error.name!r}, which cannot be found: define or import it at the top of the module."
        ) from None
    except (SyntaxError, TypeError, AttributeError) as error:
        raise UsageError(f"{what} is annotated with {annotation!r}, which is not a type: {error}.") from None


def _can_be_key(shape: Shape) -> bool:
    match shape:
        case Noted():
            return _can_be_key(shape.inner)
        case Union():
            return all(map(_can_be_key, shape.members))
        case Leaf():
            return shape.schema.get("type", "string") in ("string", "integer", "number")
    return isinstance(shape, Values)


def _is_alias(kind: Any) -> bool:
    return hasattr(kind, "__value__") and hasattr(kind, "__type_params__")


def _name(kind: Any) -> str:
    origin = get_origin(kind)
    if origin is None:
        return str(getattr(kind, "__name__", kind))
    return "_".join(map(_name, (origin, *get_args(kind))))


def _type_name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")


def _own_docstring(owner: type) -> Docstring:
    """Return the docstring of the class itself: neither generated by ``dataclass`` and others, nor inherited."""
    text = owner.__dict__.get("__doc__") or ""
    return read_docstring("" if text.startswith(f"{owner.__name__}(") else text)


def _unsupported_type(kind: Any) -> UsageError:
    return UsageError(
        f"The type {_type_name(kind)} cannot be represented in JSON: use builtin types, dataclasses, TypedDicts, "
        "msgspec Structs, attrs classes or pydantic models."
    )
