"""Elicitation forms: flat schemas from classes, and instances of the classes from the user's answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec

from mcplumb.errors import UsageError
from mcplumb.server.schema.from_annotation import parse_type
from mcplumb.server.schema.read_value import as_text
from mcplumb.server.schema.type_codec import reader_of, schema_of
from mcplumb.server.schema.type_tree import Array, Noted, Record, Shape, Union, Values
from mcplumb.types.client_features import FormSchema

__all__ = ["form_schema", "read_form"]

_COMMON = ("title", "description", "default")
_TEXT = ("title", "description", "minLength", "maxLength", "default")
_NUMBER = ("title", "description", "minimum", "maximum", "default")
_MULTIPLE = ("title", "description", "minItems", "maxItems", "default")
_FORMATS = ("email", "uri", "date", "date-time")
_ALLOWED = "texts, numbers, booleans, choices, and lists of choices"


def form_schema(kind: Any) -> dict[str, Any]:
    """Return the schema of a form as the protocol allows it: flat, with simple fields.

    ``kind`` is a class with fields, a pydantic model, a ``FormSchema``, or a schema as a dict, which is only checked.
    The user may leave a field empty if it may be None. Raises a UsageError that names a field that no form can have.
    """
    if isinstance(kind, FormSchema):
        return dict(msgspec.to_builtins(kind))
    if isinstance(kind, dict):
        try:
            msgspec.convert(kind, FormSchema)
        except msgspec.ValidationError as error:
            raise UsageError(f"The schema is not valid for a form, which has only {_ALLOWED}: {error}.") from error
        return kind
    return _form(kind).schema


def read_form(kind: Any, content: Mapping[str, Any]) -> Any:
    """Return the user's answers as an instance of the form's class, or as a dict for a schema; raise ``BadValue``.

    Some clients send strings for numbers and choices; these are converted.
    """
    if isinstance(kind, dict | FormSchema):
        return dict(content)
    form = _form(kind)
    return form.read({**dict.fromkeys(form.nullable), **content})


class _Form(msgspec.Struct, frozen=True):
    schema: dict[str, Any]
    #: The fields that are None if the user leaves them empty.
    nullable: list[str]
    read: Callable[[Any], Any]


@lru_cache(maxsize=256)
def _form(kind: Any) -> _Form:
    whole = schema_of(kind)
    name = getattr(kind, "__name__", str(kind))
    if "properties" not in whole:
        raise UsageError(f"{name} cannot be a form: use a class with fields.")
    titles = _titles_of_fields(parse_type(kind, {}).shape)
    properties = {}
    nullable = set()
    for field, schema in whole["properties"].items():
        schema, is_nullable = _simplify(schema, whole.get("$defs", {}))
        written = _field(schema, titles.get(field, {}))
        if written is None:
            raise UsageError(f"The field {field!r} of {name} cannot be in a form, which has only {_ALLOWED}.")
        properties[field] = written
        if is_nullable:
            nullable.add(field)
    needed = whole.get("required", [])
    required = [field for field in needed if field not in nullable]
    return _Form(
        {"type": "object", "properties": properties, **({"required": required} if required else {})},
        [field for field in needed if field in nullable],
        reader_of(kind, strict=False),
    )


def _simplify(schema: dict[str, Any], definitions: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return a schema without references and without null, and whether it allowed null."""
    if "$ref" in schema:
        definition = definitions[schema["$ref"].rpartition("/")[2]]
        return _simplify(definition | {key: part for key, part in schema.items() if key != "$ref"}, definitions)
    if "items" in schema:
        schema = {**schema, "items": _simplify(schema["items"], definitions)[0]}
    options = schema.get("anyOf", [])
    non_null = [option for option in options if option != {"type": "null"}]
    if len(non_null) == len(options):
        return schema, False
    if len(non_null) > 1:
        return {**schema, "anyOf": non_null}, True
    return _simplify(non_null[0] | {key: part for key, part in schema.items() if key != "anyOf"}, definitions)[0], True


def _field(schema: dict[str, Any], titles: dict[str, str]) -> dict[str, Any] | None:
    """Return the schema of one field of a form; None if no form can have such a field."""
    match schema:
        case {"const": constant}:
            return _field({"enum": [constant], **_kept(schema, _COMMON)}, titles)
        case {"enum": constants}:
            return {
                "type": "string",
                **_choices(constants, titles, "oneOf"),
                **_with_text_default(_kept(schema, _COMMON)),
            }
        case {"type": "array", "items": {"enum": constants}}:
            items = ({} if titles else {"type": "string"}) | _choices(constants, titles, "anyOf")
            return {"type": "array", "items": items, **_with_text_default(_kept(schema, _MULTIPLE))}
        case {"type": "string", "format": "decimal"}:
            return {"type": "number", **_with_numeric_default(_kept(schema, _COMMON))}
        case {"anyOf": [{"type": "number"} as number, {"type": "string"}]}:  # pydantic's schema for a decimal
            return {"type": "number", **_kept(number, _NUMBER), **_with_numeric_default(_kept(schema, _COMMON))}
        case {"type": "string"}:
            formatted = {"format": schema["format"]} if schema.get("format") in _FORMATS else {}
            return {"type": "string", **formatted, **_kept(schema, _TEXT)}
        case {"type": "integer"}:
            return {"type": "integer", **_kept(_inclusive(schema), _NUMBER)}
        case {"type": "number"}:
            return {"type": "number", **_kept(schema, _NUMBER)}
        case {"type": "boolean"}:
            return {"type": "boolean", **_kept(schema, _COMMON)}
    return None


def _kept(schema: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: schema[key] for key in keys if schema.get(key) is not None}


def _inclusive(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace the exclusive bounds of an integer with inclusive ones, as forms have no others."""
    bounds = {}
    if "exclusiveMinimum" in schema:
        bounds["minimum"] = schema["exclusiveMinimum"] + 1
    if "exclusiveMaximum" in schema:
        bounds["maximum"] = schema["exclusiveMaximum"] - 1
    return schema | bounds


def _choices(constants: list[Any], titles: dict[str, str], key: str) -> dict[str, Any]:
    """Return the constants as strings, which forms require: with titles under ``key``, without as an enum."""
    texts = [as_text(constant) for constant in constants]
    if not titles:
        return {"enum": texts}
    return {key: [{"const": text, "title": titles[text]} for text in texts]}


def _with_numeric_default(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "default": float(schema["default"])} if "default" in schema else schema


def _with_text_default(schema: dict[str, Any]) -> dict[str, Any]:
    match schema.get("default"):
        case None:
            return schema
        case list(constants):
            return {**schema, "default": [as_text(constant) for constant in constants]}
        case constant:
            return {**schema, "default": as_text(constant)}


def _titles_of_fields(shape: Shape) -> dict[str, dict[str, str]]:
    """Return the titles of the options of each field whose Enum has names that differ from its values."""
    if isinstance(shape, Noted):
        return _titles_of_fields(shape.inner)
    return {field.key: _titles(field.shape) for field in shape.fields} if isinstance(shape, Record) else {}


def _titles(shape: Shape) -> dict[str, str]:
    match shape:
        case Noted(inner=inner) | Array(item=inner):
            return _titles(inner)
        case Union(members=members):
            return {text: title for member in members for text, title in _titles(member).items()}
        case Values(options=options):
            named = {as_text(constant): member.name for constant, member in options if isinstance(member, Enum)}
            if any(_letters(text) != _letters(name) for text, name in named.items()):
                return {text: name.replace("_", " ").capitalize() for text, name in named.items()}
    return {}


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()
