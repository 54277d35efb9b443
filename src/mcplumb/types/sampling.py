"""Sampling: a server asks the client's model for a message."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mcplumb.types.base import Number, Params, Payload, Role
from mcplumb.types.content import SamplingContent
from mcplumb.types.tools import Tool

__all__ = [
    "CreateMessageParams",
    "CreateMessageResult",
    "ModelHint",
    "ModelPreferences",
    "SamplingMessage",
    "ToolChoice",
]


class _MessageDetails(Payload, frozen=True, kw_only=True):
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class _Message(_MessageDetails, frozen=True):
    role: Role
    content: SamplingContent | list[SamplingContent]

    @property
    def blocks(self) -> list[SamplingContent]:
        """The content as a list, however it was written."""
        return self.content if isinstance(self.content, list) else [self.content]


class SamplingMessage(_Message, frozen=True):
    """One message to or from a model: a block, or a list of blocks."""


class ModelHint(Payload, frozen=True):
    """A model's name, or a part of one."""

    name: str | None = None


class ModelPreferences(Payload, frozen=True, kw_only=True):
    """Which model the server would like; each priority is between 0 and 1."""

    hints: list[ModelHint] | None = None
    cost_priority: Number | None = None
    speed_priority: Number | None = None
    intelligence_priority: Number | None = None


class ToolChoice(Payload, frozen=True):
    """Whether the model may, must or must not call tools; ``auto`` when absent."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageParams(Params, frozen=True, kw_only=True):
    """Asks for a message from the client's model."""

    messages: list[SamplingMessage]
    max_tokens: Number
    system_prompt: str | None = None
    model_preferences: ModelPreferences | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: Number | None = None
    stop_sequences: list[str] | None = None
    metadata: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None


class CreateMessageResult(_Message, frozen=True, kw_only=True):
    """The message that the client's model gave."""

    model: str
    #: ``endTurn``, ``stopSequence``, ``maxTokens``, ``toolUse``, or the model's own word.
    stop_reason: str | None = None
