"""Prompts: messages that a server prepares for a user to send to a model."""

from __future__ import annotations

from typing import Any

import msgspec

from mcplumb.types.base import CacheableResult, Icon, Payload, Result, RetryParams, Role
from mcplumb.types.content import ContentBlock

__all__ = [
    "GetPromptParams",
    "GetPromptResult",
    "ListPromptsResult",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
]


class _ArgumentDetails(Payload, frozen=True, kw_only=True):
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class PromptArgument(_ArgumentDetails, frozen=True):
    """A value that a prompt can take; all values are strings."""

    name: str


class _PromptDetails(Payload, frozen=True, kw_only=True):
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class Prompt(_PromptDetails, frozen=True):
    """One prompt in a server's list."""

    name: str


class PromptMessage(Payload, frozen=True):
    """One message of a prompt."""

    role: Role
    content: ContentBlock


class ListPromptsResult(CacheableResult, frozen=True, kw_only=True):
    """A page of a server's prompts."""

    prompts: list[Prompt]
    next_cursor: str | None = None


class GetPromptParams(RetryParams, frozen=True):
    """Asks for the messages of a prompt."""

    name: str
    arguments: dict[str, str] | None = None


class GetPromptResult(Result, frozen=True):
    """The messages of a prompt."""

    messages: list[PromptMessage]
    description: str | None = None
