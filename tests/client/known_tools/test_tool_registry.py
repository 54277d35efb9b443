from __future__ import annotations

import pytest

from mcplumb.client import known_tools
from mcplumb.client.known_tools import ToolRegistry
from mcplumb.types.tools import Tool


def test_it_knows_what_was_listed_last() -> None:
    box = ToolRegistry()
    first, second = Tool("x", {}), Tool("x", {"type": "object"})
    assert box.find("x") is None
    box.learn([first, Tool("y", {})])
    box.learn([second])
    assert box.find("x") is second
    assert box.find("y") is not None
    box.clear()
    assert box.find("x") is None


def test_it_does_not_grow_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_tools, "_MAX_TOOLS", 2)
    box = ToolRegistry()
    box.learn(Tool(name, {}) for name in "abc")
    box.learn([Tool("b", {}), Tool("d", {})])
    assert [name for name in "abcd" if box.find(name)] == ["b", "d"]


def test_it_knows_which_arguments_are_told_in_headers() -> None:
    box = ToolRegistry()
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    assert box.param_headers("x") is None
    box.learn([Tool("x", schema), Tool("y", {"type": "object"})])
    found = box.param_headers("x")
    assert found is not None
    assert box.param_headers("x") is found
    assert box.param_headers("y") is None
    box.learn([Tool("x", {"type": "object"})])
    assert box.param_headers("x") is None
    box.clear()
    assert box.param_headers("x") is None
