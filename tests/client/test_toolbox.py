from __future__ import annotations

import pytest

from mcpipe.client import toolbox
from mcpipe.client.toolbox import Toolbox
from mcpipe.types.tools import Tool


def test_it_knows_what_was_listed_last() -> None:
    box = Toolbox()
    first, second = Tool("x", {}), Tool("x", {"type": "object"})
    assert box.find("x") is None
    box.learn([first, Tool("y", {})])
    box.learn([second])
    assert box.find("x") is second
    assert box.find("y") is not None
    box.clear()
    assert box.find("x") is None


def test_it_does_not_grow_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolbox, "_MOST_TOOLS", 2)
    box = Toolbox()
    box.learn(Tool(name, {}) for name in "abc")
    box.learn([Tool("b", {}), Tool("d", {})])
    assert [name for name in "abcd" if box.find(name)] == ["b", "d"]
