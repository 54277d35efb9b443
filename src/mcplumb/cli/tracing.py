"""Every message as it goes by, with a time and without its secrets."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from mcplumb.cli.output import clean

__all__ = ["MASK", "Tracer", "masked"]

#: What stands in the place of a secret.
MASK = "***"
#: How much of a message is shown.
_LONGEST = 4000
#: How deep a message is looked through; what lies deeper is not shown at all.
_DEEPEST = 50

# Names of values that are nobody's business. A progress or page token is a number, not a key to anything.
_SECRET = re.compile(
    r"(?i)pass(word|wd|phrase)|secret|credential|api[_-]?key|access[_-]?key|private[_-]?key|authorization|cookie|"
    r"(^|[_-]|access|refresh|bearer|auth|id|session)token$"
)
_HARMLESS = frozenset(("progresstoken", "pagetoken", "nexttoken"))
# A secret that says itself what it is, wherever it stands.
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}")


class Tracer:
    """Shows each line of the protocol to ``write``: when, in which direction, and what, in one line."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._began = time.monotonic()

    def __call__(self, direction: Literal["in", "out"], line: bytes) -> None:
        """Show one line; it may be anything."""
        since = time.monotonic() - self._began
        arrow = "<--" if direction == "in" else "-->"
        self._write(f"{since:9.3f} {arrow} {masked(line)}")


def masked(line: bytes) -> str:
    """A line of the protocol as it may be shown: its secrets replaced, nothing in it obeyed, and not too long."""
    try:
        shown = msgspec.json.encode(_without_secrets(msgspec.json.decode(line), 0)).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        shown = line.decode("utf-8", "backslashreplace")
    shown = _BEARER.sub(rf"\1 {MASK}", shown)
    more = f" … ({len(line)} bytes)" if len(shown) > _LONGEST else ""
    return clean(shown[:_LONGEST]).replace("\n", "\\n").replace("\t", "\\t") + more


def _without_secrets(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {
            name: MASK
            if _is_secret(name) and isinstance(inner, str | int | float)
            else _without_secrets(inner, depth + 1)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_without_secrets(inner, depth + 1) for inner in value]
    return value


def _is_secret(name: str) -> bool:
    return _SECRET.search(name) is not None and name.lower().replace("_", "").replace("-", "") not in _HARMLESS
