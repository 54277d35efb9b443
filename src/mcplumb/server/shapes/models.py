"""The types of pydantic, which describe, read and write themselves.

Pydantic is imported when one of them is met, and never otherwise.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from mcplumb.errors import UsageError

__all__ = ["adapter_of", "class_adapter", "is_model", "model_schema", "plain_model", "read_model"]


def is_model(kind: Any) -> bool:
    """Whether pydantic has to be asked about a type, or about what stands beside a type in ``Annotated``."""
    return hasattr(kind, "__get_pydantic_core_schema__") or hasattr(kind, "__pydantic_validator__")


def adapter_of(kind: Any) -> Any:
    """The pydantic ``TypeAdapter`` of a type; a UsageError if it cannot have one."""
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    try:
        return TypeAdapter(kind)
    except PydanticUserError as error:
        raise UsageError(f"Pydantic cannot use {kind!r}: {error.message}.") from error


@cache
def class_adapter(kind: Any) -> Any:
    """``adapter_of`` a class, made once."""
    return adapter_of(kind)


def model_schema(adapter: Any, prefix: str = "", *, output: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The JSON schema of an adapter's type, and the definitions that it needs, with a prefix to their names."""
    from pydantic.errors import PydanticUserError

    try:
        schema = adapter.json_schema(
            mode="serialization" if output else "validation", ref_template=f"#/$defs/{prefix}{{model}}"
        )
    except PydanticUserError as error:
        raise UsageError(f"Pydantic cannot describe {adapter!r}: {error.message}.") from error
    return schema, {prefix + name: part for name, part in schema.pop("$defs", {}).items()}


def read_model(adapter: Any, value: Any) -> tuple[Any, list[tuple[tuple[str | int, ...], str]]]:
    """A value of an adapter's type from plain data, and what is wrong with it: where, and why."""
    from pydantic import ValidationError

    try:
        # By way of JSON, as a model may be stricter about Python's values.
        return adapter.validate_json(msgspec.json.encode(value)), []
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        return None, [(fault["loc"], fault["msg"]) for fault in faults]


def plain_model(value: Any) -> Any:
    """A value of a type of pydantic as plain data, with the names that its schema has."""
    kind: Any = type(value)
    return class_adapter(kind).dump_python(value, mode="json", by_alias=True)
