from __future__ import annotations

import msgspec

from mcplumb import types as t


def test_content_is_a_block_or_a_list_of_blocks() -> None:
    block = t.TextContent("hi")
    one = t.SamplingMessage("user", block)
    several = t.SamplingMessage("user", [block, block])
    assert one.blocks == [block]
    assert several.blocks == [block, block]
    for message in (one, several):
        assert t.read(t.SamplingMessage, msgspec.json.encode(message)) == message


def test_result_is_a_message() -> None:
    result = t.CreateMessageResult("assistant", t.TextContent("hi"), model="m", stop_reason="its own reason")
    assert result.blocks == [t.TextContent("hi")]
    assert msgspec.to_builtins(result)["stopReason"] == "its own reason"


def test_preferences() -> None:
    preferences = t.ModelPreferences(hints=[t.ModelHint("small")], cost_priority=1)
    assert msgspec.to_builtins(preferences) == {"hints": [{"name": "small"}], "costPriority": 1}
