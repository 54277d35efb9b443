"""How findings name requests, and quote what was said."""

from __future__ import annotations

from typing import Any

import msgspec

from mcplumb.tap.transcript import Call

__all__ = ["change_of", "short", "words_of"]

_LONGEST_QUOTE = 100


def words_of(call: Call) -> str:
    """Return the words for a request: its method, what it names, and its id."""
    named = f" {short(repr(call.name))}" if call.name else ""
    return f"{call.method}{named} (id {short(repr(call.id))})"


def short(text: str) -> str:
    """Return the beginning of a text."""
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"


def change_of(before: bytes, tool: dict[str, Any]) -> str:
    """Return the words for what differs in the definition of a tool."""
    old = msgspec.json.decode(before)
    keys = [key for key in {**old, **tool} if old.get(key) != tool.get(key)]
    return f"has another {' and '.join(keys)}"
