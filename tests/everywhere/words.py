"""What results say."""

from __future__ import annotations

from typing import Any

import msgspec

from mcplumb.types import CallToolResult, TextContent


def text(result: CallToolResult) -> str:
    """The text of a result that is nothing else."""
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def structured(result: CallToolResult) -> Any:
    """What a result means: its structured content, or its text where the revision has no such thing."""
    assert not result.is_error, result
    meant = msgspec.json.decode(text(result))
    assert result.structured_content in (None, meant)
    return meant
