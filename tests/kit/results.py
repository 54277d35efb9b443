"""What a tool's result says."""

from __future__ import annotations

from typing import Any

from mcplumb.types import CallToolResult


def success_text_of(result: CallToolResult | dict[str, Any]) -> str:
    """Return the text of a tool's result, which must not be an error."""
    is_error = result.get("isError") if isinstance(result, dict) else result.is_error
    assert not is_error, result
    return text_of(result)


def text_of(result: CallToolResult | dict[str, Any]) -> str:
    """Return the text of a tool's result, or of the response that carries it, which must have just one block."""
    if isinstance(result, dict):
        (block,) = result.get("result", result)["content"]
        text = block["text"]
    else:
        (found,) = result.content
        text = getattr(found, "text")  # noqa: B009 - a failure to have it is a failure of the test
    assert isinstance(text, str)
    return text
