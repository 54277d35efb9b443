"""Content: what tools return, what prompts are made of, what models read and write.

Blocks are told apart by their ``type``. A block of a type that is not known here is read as ``UnknownContent`` (by
``read``), so that one new kind of block does not make the rest of an answer unreadable.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from mcplumb.types.base import Annotations, Payload
from mcplumb.types.resources import Resource, ResourceContents

__all__ = [
    "AudioContent",
    "ContentBlock",
    "EmbeddedResource",
    "ImageContent",
    "ResourceLink",
    "SamplingContent",
    "TextContent",
    "ToolResultContent",
    "ToolUseContent",
    "UnknownContent",
]


class _Block(Payload, frozen=True, kw_only=True, tag_field="type"):
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class _AnnotatedBlock(_Block, frozen=True, kw_only=True):
    annotations: Annotations | None = None


class TextContent(_AnnotatedBlock, frozen=True, tag="text"):
    """Text."""

    text: str


class ImageContent(_AnnotatedBlock, frozen=True, tag="image"):
    """A picture, in base64."""

    data: str
    mime_type: str


class AudioContent(_AnnotatedBlock, frozen=True, tag="audio"):
    """Sound, in base64."""

    data: str
    mime_type: str


class ResourceLink(Resource, frozen=True, tag_field="type", tag="resource_link"):
    """The address of a resource that can be read when it is wanted."""


class EmbeddedResource(_AnnotatedBlock, frozen=True, tag="resource"):
    """A resource together with its contents."""

    resource: ResourceContents


class UnknownContent(Payload, frozen=True, tag_field="type", tag="mcplumb/unknown"):
    """A block of a type that is not known here. It is never written as such: ``for_revision`` makes a note of it."""

    #: The block's ``type``.
    kind: str
    #: The whole block.
    data: dict[str, Any]


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | UnknownContent


class ToolUseContent(_Block, frozen=True, tag="tool_use"):
    """A model wants a tool to be called."""

    id: str
    name: str
    input: dict[str, Any]


class _ToolResultDetails(_Block, frozen=True, kw_only=True):
    #: None when absent; ``NULL`` to write a null.
    structured_content: Any = None
    is_error: bool | None = None


class ToolResultContent(_ToolResultDetails, frozen=True, tag="tool_result"):
    """What a tool returned, told to a model."""

    tool_use_id: str
    content: list[ContentBlock]


#: What a message to or from a model may hold.
SamplingContent: TypeAlias = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | UnknownContent
)
