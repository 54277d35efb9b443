"""The types that msgspec leaves to others: paths, and what pydantic knows."""

from __future__ import annotations

import os
from typing import Any

from mcplumb.server.shapes.models import class_adapter, is_model, plain_model, read_model
from mcplumb.server.shapes.words import shown

__all__ = ["is_path", "read_custom", "write_custom"]


def is_path(kind: Any) -> bool:
    """Whether a type is one of paths, which are made from texts."""
    return isinstance(kind, type) and issubclass(kind, os.PathLike) and kind is not os.PathLike


def read_custom(kind: type, value: Any) -> Any:
    """A value of such a type from plain data: the hook of msgspec's decoders."""
    if is_model(kind):
        made, faults = read_model(class_adapter(kind), value)
        if faults:
            raise ValueError(faults[0][1])
        return made
    if is_path(kind) and isinstance(value, str):
        return kind(value)
    raise ValueError(f"{shown(value)} is no {kind.__name__}")


def write_custom(value: Any) -> Any:
    """A value of such a type as plain data: the hook of msgspec's encoders."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if is_model(type(value)):
        return plain_model(value)
    raise TypeError(f"JSON has no form for {type(value).__name__!r}")
