"""Payloads of prompts, and of the completion of arguments."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from mcplumb.types.base import CacheableResult, Icon, Number, Params, Payload, Result, RetryParams, Role
from mcplumb.types.content import ContentBlock

__all__ = [
    "CompleteParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "GetPromptParams",
    "GetPromptResult",
    "ListPromptsResult",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptReference",
    "Reference",
    "ResourceTemplateReference",
]


# Prompts: message templates that a server offers.


class _ArgumentDetails(Payload, frozen=True, kw_only=True):
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class PromptArgument(_ArgumentDetails, frozen=True):
    """An argument of a prompt. All values are strings."""

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
    """The params of ``prompts/get``: the prompt, and its arguments."""

    name: str
    arguments: dict[str, str] | None = None


class GetPromptResult(Result, frozen=True):
    """The messages of a prompt."""

    messages: list[PromptMessage]
    description: str | None = None


# Completion: a server suggests values for an argument while the user types.


class PromptReference(Payload, frozen=True, tag_field="type", tag="ref/prompt"):
    """The completed argument belongs to a prompt."""

    name: str
    title: str | None = None


class ResourceTemplateReference(Payload, frozen=True, tag_field="type", tag="ref/resource"):
    """The completed argument is a variable of a resource template."""

    uri: str


Reference: TypeAlias = PromptReference | ResourceTemplateReference


class CompletionArgument(Payload, frozen=True):
    """The completed argument, and the text typed so far."""

    name: str
    value: str


class CompletionContext(Payload, frozen=True):
    """The values that other arguments already have."""

    arguments: dict[str, str] | None = None


class CompleteParams(Params, frozen=True):
    """The params of ``completion/complete``: which argument to complete."""

    ref: Reference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Payload, frozen=True):
    """The suggested values, at most 100, best first."""

    values: list[str]
    #: The total number of values that match.
    total: Number | None = None
    has_more: bool | None = None


class CompleteResult(Result, frozen=True):
    """The result of ``completion/complete``: the suggestions."""

    completion: Completion
