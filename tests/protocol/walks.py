"""Showing that the examples of a machine take every row of its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from mcplumb.protocol.transition_table import Table


def rows_taken(
    table: Table[Any, Any], examples: Iterable[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> set[tuple[str, str]]:
    """Run the examples and return the rows of ``table`` that they took."""
    taken: set[tuple[str, str]] = set()
    lookup = Table.after

    def after(self: Table[Any, Any], state: Any, event: Any) -> Any:
        following = lookup(self, state, event)
        if self is table:
            taken.add((state, event))
        return following

    with monkeypatch.context() as patch:
        patch.setattr(Table, "after", after)
        for example in examples:
            example()
    return taken
