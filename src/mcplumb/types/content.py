"""Content blocks: the parts of tool results, prompts and sampling messages.

The member ``type`` distinguishes the blocks. ``read`` returns a block of an unknown type as ``UnknownContent``, so one
new kind of block does not make the rest of a result unreadable.
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
    """A text."""

    text: str


class ImageContent(_AnnotatedBlock, frozen=True, tag="image"):
    """An image, in base64."""

    data: str
    mime_type: str


class AudioContent(_AnnotatedBlock, frozen=True, tag="audio"):
    """An audio recording, in base64."""

    data: str
    mime_type: str


class ResourceLink(Resource, frozen=True, tag_field="type", tag="resource_link"):
    """A link to a resource, which the client can read separately."""


class EmbeddedResource(_AnnotatedBlock, frozen=True, tag="resource"):
    """A resource together with its contents."""

    resource: ResourceContents


class UnknownContent(Payload, frozen=True, tag_field="type", tag="mcplumb/unknown"):
    """A block of an unknown type. It is never sent as such: ``for_revision`` replaces it with a text."""

    #: The block's ``type``.
    kind: str
    #: The whole block.
    data: dict[str, Any]


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | UnknownContent


class ToolUseContent(_Block, frozen=True, tag="tool_use"):
    """A model's request to call a tool."""

    id: str
    name: str
    input: dict[str, Any]


class _ToolResultDetails(_Block, frozen=True, kw_only=True):
    #: None if absent; use ``NULL`` to write a null.
    structured_content: Any = None
    is_error: bool | None = None


class ToolResultContent(_ToolResultDetails, frozen=True, tag="tool_result"):
    """The result of a tool call, for a model to read."""

    tool_use_id: str
    content: list[ContentBlock]


#: The blocks of a sampling message.
SamplingContent: TypeAlias = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | UnknownContent
)
