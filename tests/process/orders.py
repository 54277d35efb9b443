"""What the tests of functions that ask have in common: orders, and the answers to what they ask."""

from __future__ import annotations

from typing import Any

from tests.process.harness import Message

#: The capabilities of a client that can be asked for anything.
EVERYTHING: Message = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
MODEL = {"role": "assistant", "content": {"type": "text", "text": "The soup."}, "model": "m", "stopReason": "endTurn"}
#: Tools that ask for something else than a form: what for, the answer, and what the tool makes of it.
OTHER_QUESTIONS: list[tuple[str, str, Message, str]] = [
    ("advise", "sampling/createMessage", MODEL, "The soup."),
    ("plain_advise", "sampling/createMessage", MODEL, "The soup."),
    ("folders", "roots/list", {"roots": [{"uri": "file:///a"}]}, '["file:///a"]'),
    ("pay", "elicitation/create", {"action": "accept"}, "accept"),
]


def order(dish: str = "soup", tool: str = "order") -> Message:
    """The params of a call that asks two things, one after the other."""
    return {"name": tool, "arguments": {"dish": dish}}


def accept(**content: Any) -> Message:
    """A user who fills in a form."""
    return {"action": "accept", "content": content}
