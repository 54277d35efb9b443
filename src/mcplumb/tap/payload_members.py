"""Read single members of a payload, so that an invalid one does not hide the others. Never raises."""

from __future__ import annotations

from typing import Any

import msgspec

from mcplumb.wire.messages import RequestId

__all__ = ["id_of", "members", "number_of", "text_of", "value_of"]

_decode_object: Any = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_any: Any = msgspec.json.Decoder().decode


def members(raw: Any) -> dict[str, Any]:
    """Return the members of an object, undecoded; none if it is not one."""
    if raw is None or isinstance(raw, msgspec.UnsetType):
        return {}
    try:
        found: dict[str, Any] = _decode_object(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return found


def value_of(raw: Any) -> Any:
    """Return the value, decoded; None if it cannot be read."""
    if raw is None:
        return None
    try:
        return _decode_any(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def text_of(raw: Any) -> str | None:
    """Return a string; None if it is not one."""
    value = value_of(raw)
    return value if isinstance(value, str) else None


def number_of(raw: Any) -> float | None:
    """Return a number; None if it is not one."""
    value = value_of(raw)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def id_of(raw: Any) -> RequestId | None:
    """Return an id or a token; None if it is not one."""
    value = value_of(raw)
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None
