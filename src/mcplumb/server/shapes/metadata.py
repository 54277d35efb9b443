"""What stands beside a type in ``Annotated``: limits for its values, and notes for the reader of its schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from mcplumb.server.shapes.customs import write_custom

__all__ = ["Metadata", "is_field_info", "read_metadata"]

_LIMITS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
_NOTES = ("title", "description", "examples")


class Metadata(msgspec.Struct):
    """What was found, under msgspec's names for it."""

    limits: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    #: Whether some of the limits are said in a way that msgspec does not see.
    is_foreign: bool = False


def read_metadata(items: Iterable[Any]) -> Metadata:
    """Reads msgspec's ``Meta``, a plain text, the types of annotated_types, and pydantic's ``Field``.

    Where two say the same, the later one holds. What says nothing that is known is passed over.
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
                found.limits[name] = getattr(value, "pattern", value)  # which may be compiled
                found.is_foreign |= not is_meta
        notes = {name: getattr(item, name, None) for name in _NOTES}
        notes["description"] = notes["description"] or getattr(item, "documentation", None)
        extra = getattr(item, "extra_json_schema" if is_meta else "json_schema_extra", None)
        notes.update(extra if isinstance(extra, dict) else {})
        plain = msgspec.to_builtins(notes, enc_hook=write_custom, str_keys=True)
        found.notes.update({name: note for name, note in plain.items() if note is not None})
    return found


def is_field_info(value: Any) -> bool:
    """Whether a value is what pydantic's ``Field`` makes, which may stand where a default would."""
    return hasattr(value, "is_required") and hasattr(value, "default_factory") and hasattr(value, "metadata")


def _flattened(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        yield item
        if is_field_info(item):  # it keeps its limits as a list of others
            yield from item.metadata
