"""Completion: a server proposes values for an argument while it is typed."""

from __future__ import annotations

from typing import TypeAlias

from mcplumb.types.base import Number, Params, Payload, Result

__all__ = [
    "CompleteParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "PromptReference",
    "Reference",
    "ResourceTemplateReference",
]


class PromptReference(Payload, frozen=True, tag_field="type", tag="ref/prompt"):
    """The argument is one of a prompt's."""

    name: str
    title: str | None = None


class ResourceTemplateReference(Payload, frozen=True, tag_field="type", tag="ref/resource"):
    """The argument is a variable of a resource template."""

    uri: str


Reference: TypeAlias = PromptReference | ResourceTemplateReference


class CompletionArgument(Payload, frozen=True):
    """The argument, and what has been typed so far."""

    name: str
    value: str


class CompletionContext(Payload, frozen=True):
    """The values that other arguments already have."""

    arguments: dict[str, str] | None = None


class CompleteParams(Params, frozen=True):
    """Asks for proposals."""

    ref: Reference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Payload, frozen=True):
    """At most 100 values, the best first."""

    values: list[str]
    #: How many there are in all.
    total: Number | None = None
    has_more: bool | None = None


class CompleteResult(Result, frozen=True):
    """The proposals."""

    completion: Completion
