"""Write shapes as JSON Schema 2020-12.

Classes and recursive aliases become definitions under ``$defs``; all other types are inlined.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mcplumb.server.schema.read_value import as_text, model_schema, write_custom
from mcplumb.server.schema.type_tree import (
    NO_DEFAULT,
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
)

__all__ = ["schema_for"]

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_for(shape: Shape, *, output: bool = False) -> dict[str, Any]:
    """Return the self-contained schema of a shape: of the JSON to be read or, with ``output``, to be written."""
    writer = _Writer(output=output)
    schema = writer.inline(shape)
    return {**schema, "$defs": writer.definitions} if writer.definitions else schema


class _Writer:
    """The state while one schema is written: its definitions, and their names."""

    def __init__(self, *, output: bool) -> None:
        self.output = output
        self.definitions: dict[str, dict[str, Any]] = {}
        #: By type, because the same type may have several shapes.
        self._names: dict[Any, str] = {}

    def schema(self, shape: Shape) -> dict[str, Any]:
        """Return the schema to use for a shape: a reference to its definition if the shape has a name."""
        match shape:
            case Noted():
                return self.schema(shape.inner) | shape.notes
            case Record() | Alias():
                return self._reference(shape)
            case Model():
                return self._model_reference(shape)
        return self.inline(shape)

    def inline(self, shape: Shape) -> dict[str, Any]:
        """Return the schema of a shape itself, never a reference."""
        match shape:
            case Noted():
                return self.inline(shape.inner) | shape.notes
            case Alias():
                return self.inline(shape.inner)
            case Leaf():
                return {key: part for key, part in shape.schema.items() if not self.output or key not in shape.loose}
            case Values():
                return _values(shape)
            case Array():
                unique = {"uniqueItems": True} if shape.make in (set, frozenset) else {}
                return {"type": "array", **_unless_empty("items", self.schema(shape.item)), **unique, **shape.limits}
            case Tuple():
                count = len(shape.items)
                places = _unless_empty("prefixItems", [self.schema(item) for item in shape.items])
                return {"type": "array", **places, "minItems": count, "maxItems": count}
            case Object():
                names = _unless_empty("propertyNames", _key_schema(self.schema(shape.key)))
                members = _unless_empty("additionalProperties", self.schema(shape.item))
                return {"type": "object", **names, **members, **shape.limits}
            case Union():
                return {"anyOf": [self.schema(member) for member in shape.members]}
            case Record():
                return self._record(shape)
            case _:
                return self._model(shape)

    def _record(self, record: Record) -> dict[str, Any]:
        fields = [f for f in record.fields if (f.is_written if self.output else f.argument is not None)]
        properties = {field.key: self._field(field) for field in fields}
        required = [field.key for field in fields if field.required]
        if record.tag is not None:
            properties = {record.tag[0]: {"const": record.tag[1]}, **properties}
            required.insert(0, record.tag[0])
        described = _unless_empty("description", record.description)
        if record.is_array:
            places = _unless_empty("prefixItems", list(properties.values()))
            most = {"maxItems": len(properties)} if record.is_closed else {}
            return {"type": "array", **described, **places, "minItems": len(required), **most}
        closed = {"additionalProperties": False} if record.is_closed else {}
        return {
            "type": "object",
            **described,
            "properties": properties,
            **_unless_empty("required", required),
            **closed,
        }

    def _field(self, field: Field) -> dict[str, Any]:
        schema = self.schema(field.shape)
        if field.description and not (isinstance(field.shape, Noted) and "description" in field.shape.notes):
            schema = {**schema, "description": field.description}
        default = _as_json(field.default)
        return schema if default is NO_DEFAULT else {**schema, "default": default}

    def _reference(self, shape: Record | Alias) -> dict[str, Any]:
        name = self._names.get(shape.kind)
        if name is None:
            name = self._names[shape.kind] = self._free_name(shape.name)
            self.definitions[name] = {}  # reserves the name while the contents are written
            self.definitions[name] = self.inline(shape)
        return {"$ref": f"#/$defs/{name}"}

    def _model_reference(self, model: Model) -> dict[str, Any]:
        schema, preferred = self._model_schema(model), _safe(model.name)
        if not preferred or schema.get("type") != "object":
            return schema
        name = preferred if self.definitions.get(preferred) == schema else self._free_name(preferred)
        self.definitions[name] = schema
        return {"$ref": f"#/$defs/{name}"}

    def _model(self, model: Model) -> dict[str, Any]:
        schema = self._model_schema(model)
        name = schema.get("$ref", "").rpartition("/")[2]  # for a model that contains itself
        return self.definitions.get(name, schema)

    def _model_schema(self, model: Model) -> dict[str, Any]:
        """Return pydantic's schema, with its definitions added to ours: under longer names if theirs are in use."""
        schema, parts = model_schema(model.adapter, output=self.output)
        if any(self.definitions.get(name, part) != part for name, part in parts.items()):
            schema, parts = model_schema(model.adapter, self._free_name(model.name) + ".", output=self.output)
        self.definitions.update(parts)
        return schema

    def _free_name(self, preferred: str) -> str:
        name = safe = _safe(preferred)
        number = 1
        while name in self.definitions:
            number += 1
            name = f"{safe}_{number}"
        return name


def _values(shape: Values) -> dict[str, Any]:
    constants = [constant for constant, _ in shape.options]
    types = {_TYPES[type(constant)] for constant in constants}
    typed = {"type": types.pop()} if len(types) == 1 else {}
    return {**typed, "enum": constants, **_unless_empty("description", shape.description)}


def _key_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object's keys, from the schema of the type that they are converted to."""
    if "anyOf" in schema:
        return {"anyOf": [_key_schema(option) for option in schema["anyOf"]]}
    if "enum" in schema:
        return {"enum": [as_text(constant) for constant in schema["enum"]]}
    if schema.get("type") == "integer":
        return {"pattern": "^(0|-?[1-9][0-9]*)$"}
    return {key: part for key, part in schema.items() if key != "type"}


def _as_json(default: Any) -> Any:
    """Return a default as plain JSON data; ``NO_DEFAULT`` if JSON cannot represent it."""
    if default is NO_DEFAULT or default is msgspec.UNSET:
        return NO_DEFAULT
    try:
        plain = msgspec.json.decode(msgspec.json.encode(default, enc_hook=write_custom))
    except (TypeError, ValueError, RecursionError):
        return NO_DEFAULT
    # NaN and the infinities are written as null.
    return NO_DEFAULT if plain is None and default is not None else plain


def _unless_empty(key: str, value: Any) -> dict[str, Any]:
    return {key: value} if value else {}


def _safe(name: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "_" for char in name).strip("_")
