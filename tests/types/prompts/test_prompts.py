from __future__ import annotations

import msgspec

from mcplumb import types as t


def test_prompt() -> None:
    prompt = t.Prompt("plan", arguments=[t.PromptArgument("city", required=True)])
    assert msgspec.to_builtins(prompt) == {"name": "plan", "arguments": [{"name": "city", "required": True}]}


def test_messages() -> None:
    result = t.GetPromptResult([t.PromptMessage("user", t.TextContent("hi"))], "a greeting")
    assert t.read(t.GetPromptResult, msgspec.json.encode(result)) == result
