from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import msgspec
import pytest

from mcplumb import ToolFailed
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


@pytest.mark.parametrize("kind", [t.CallToolResult, t.ToolResultContent])
@pytest.mark.parametrize("given", [{}, {"isError": False}, {"isError": True}])
def test_whether_a_tool_failed_is_a_bool_and_is_written_as_it_was_read(kind: type[Any], given: dict[str, bool]) -> None:
    block = {"type": "tool_result", "toolUseId": "u"} if kind is t.ToolResultContent else {}
    result = t.read(kind, json.dumps({"content": [], **block, **given}).encode())
    assert result.is_error is given.get("isError", False)
    assert msgspec.to_builtins(result) == {"content": [], **block, **given}


def test_a_null_means_that_the_tool_did_not_fail() -> None:
    assert t.read(t.CallToolResult, b'{"content":[],"isError":null}').is_error is False


def test_a_result_that_is_made_has_a_bool_too() -> None:
    assert t.CallToolResult([]).is_error is False
    assert t.CallToolResult([], is_error=True).is_error is True
    with pytest.raises(AttributeError):
        t.CallToolResult([]).is_error = True  # type: ignore[misc]
    copied = copy.deepcopy(pickle.loads(pickle.dumps(t.CallToolResult([], is_error=True))))  # noqa: S301
    assert copied.is_error is True
    assert msgspec.structs.replace(copied, is_error=False).is_error is False


def test_the_repr_shows_only_what_is_there() -> None:
    assert repr(t.CallToolResult([t.TextContent("Hi")])) == "CallToolResult(content=[TextContent(text='Hi')])"


def test_the_text_of_a_result_is_its_text_blocks_in_lines() -> None:
    image = t.ImageContent("aGk=", "image/png")
    assert t.CallToolResult([]).text == ""
    assert t.CallToolResult([t.TextContent("sun")]).text == "sun"
    assert t.CallToolResult([t.TextContent("sun"), image, t.TextContent("rain")]).text == "sun\nrain"


def test_a_failed_result_raises_what_the_tool_said() -> None:
    fine = t.CallToolResult([t.TextContent("sun")])
    assert fine.raise_for_error() is fine
    failed = t.CallToolResult([t.TextContent("There is no forecast for Atlantis.")], is_error=True)
    with pytest.raises(ToolFailed, match=r"The tool failed: There is no forecast for Atlantis\.") as caught:
        failed.raise_for_error()
    assert caught.value.text == "There is no forecast for Atlantis."
    assert caught.value.result is failed
    with pytest.raises(ToolFailed, match=r"The tool failed, and its result has no text\."):
        t.CallToolResult([], is_error=True).raise_for_error()


def test_a_notebook_displays_a_result() -> None:
    assert t.CallToolResult([t.TextContent("hi")])._repr_mimebundle_() == {}
    assert "text/html" in t.CallToolResult([t.ImageContent("aGk=", "image/png")])._repr_mimebundle_()
