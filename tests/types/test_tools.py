from __future__ import annotations

import msgspec

from mcplumb import types as t


def test_tool() -> None:
    tool = t.Tool(
        "add",
        {"type": "object", "x-own": 1},
        title="Add",
        output_schema={"type": "number"},
        annotations=t.ToolAnnotations(read_only_hint=True),
        execution={"taskSupport": "optional"},
    )
    assert msgspec.to_builtins(tool) == {
        "name": "add",
        "inputSchema": {"type": "object", "x-own": 1},
        "title": "Add",
        "outputSchema": {"type": "number"},
        "annotations": {"readOnlyHint": True},
        "execution": {"taskSupport": "optional"},
    }


def test_call() -> None:
    params = t.CallToolParams("add", {"a": 1}, request_state="s")
    assert msgspec.to_builtins(params) == {"name": "add", "arguments": {"a": 1}, "requestState": "s"}


def test_absence_of_an_error_is_not_the_same_as_no_error() -> None:
    assert t.read(t.CallToolResult, b'{"content":[]}').is_error is None
    assert t.read(t.CallToolResult, b'{"content":[],"isError":false}').is_error is False
