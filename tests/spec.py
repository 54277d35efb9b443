"""The official schemas and examples: loading them, and checking values against them."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema_rs

DATA = Path(__file__).parent / "data" / "spec"

#: Properties whose objects may have any key, whatever the schema lists.
_OPEN = {"_meta", "experimental", "inputSchema", "metadata", "outputSchema"}


@functools.cache
def schema(revision: str) -> dict[str, Any]:
    """A revision's whole schema."""
    loaded: dict[str, Any] = json.loads((DATA / revision / "schema.json").read_text())
    return loaded


def definitions(revision: str) -> dict[str, Any]:
    """A revision's definitions by name."""
    found: dict[str, Any] = schema(revision)[_place(revision)]
    return found


def properties(revision: str, definition: str) -> dict[str, Any]:
    """The properties of a definition; none if the revision does not have it."""
    found: dict[str, Any] = definitions(revision).get(definition, {}).get("properties", {})
    return found


@functools.cache
def methods(revision: str) -> dict[str, str]:
    """The name of the definition that each method has."""
    return {
        definition["properties"]["method"]["const"]: name
        for name, definition in definitions(revision).items()
        if "const" in definition.get("properties", {}).get("method", {})
        # Where a union has one member only, the schema repeats that member under the union's name.
        and name not in {"ClientNotification", "ServerNotification"}
    }


def union(revision: str, definition: str) -> set[str]:
    """The methods of the requests or notifications that a union such as ClientRequest is made of."""
    found = definitions(revision).get(definition, {})
    names = {member["$ref"].rpartition("/")[2] for member in found.get("anyOf", [])} or {definition}
    return {properties(revision, name)["method"]["const"] for name in names if properties(revision, name)}


@functools.cache
def validator(revision: str, definition: str) -> jsonschema_rs.Validator:
    """Checks values against a definition, as strictly as it reads: a key that is not listed is an error.

    The official schemas let most objects have more keys than they list, so by themselves they could not show that
    something was left out.
    """
    place = _place(revision)
    closed = {name: _closed(inner, opened=name.endswith("MetaObject")) for name, inner in definitions(revision).items()}
    whole = {"$schema": schema(revision)["$schema"], place: closed, "$ref": f"#/{place}/{definition}"}
    return jsonschema_rs.validator_for(whole)


@functools.cache
def official_validator(revision: str, definition: str) -> jsonschema_rs.Validator:
    """Checks values against a definition as it is."""
    return jsonschema_rs.validator_for(schema(revision) | {"$ref": f"#/{_place(revision)}/{definition}"})


def examples(revision: str) -> list[tuple[str, Path]]:
    """The official examples: the type's name and the file."""
    return [(path.parent.name, path) for path in sorted((DATA / revision / "examples").glob("*/*.json"))]


def _place(revision: str) -> str:
    return "$defs" if "$defs" in schema(revision) else "definitions"


def _closed(node: Any, *, opened: bool = False) -> Any:
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    closed = {key: value if key == "properties" else _closed(value) for key, value in node.items()}
    if "properties" in node:
        closed["properties"] = {
            name: _closed(_with_meta(inner) if name == "params" else inner, opened=name in _OPEN)
            for name, inner in node["properties"].items()
        }
        if not opened:
            closed.setdefault("additionalProperties", False)
    return closed


def _with_meta(params: dict[str, Any]) -> dict[str, Any]:
    """Every request and notification may have ``_meta``; older schemas say so in the base definition only."""
    if "properties" not in params:
        return params
    return params | {"properties": {"_meta": {}} | params["properties"]}
