"""Content blocks: the parts of tool results, prompts and sampling messages.

The member ``type`` distinguishes the blocks. ``read`` returns a block of an unknown type as ``UnknownContent``, so one
new kind of block does not make the rest of a result unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from mcplumb.types.base import Annotations, Payload, flag
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
    "display",
]


class _Block(Payload, frozen=True, kw_only=True, tag_field="type"):
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class _AnnotatedBlock(_Block, frozen=True, kw_only=True):
    annotations: Annotations | None = None


class TextContent(_AnnotatedBlock, frozen=True, tag="text"):
    """A text."""

    text: str


class ImageContent(_AnnotatedBlock, frozen=True, tag="image"):
    """An image, in base64. A notebook displays it."""

    data: str
    mime_type: str

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return display((self,))


class AudioContent(_AnnotatedBlock, frozen=True, tag="audio"):
    """An audio recording, in base64. A notebook displays a player."""

    data: str
    mime_type: str

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return display((self,))


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


# Notebooks.

_BITMAPS = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# Not compiled here: only notebooks use them.
_PLAYABLE = r"(image|audio)/[a-z0-9][a-z0-9.+-]*"
_BASE64 = r"[A-Za-z0-9+/=\s]*"


def display(blocks: Sequence[ContentBlock]) -> dict[str, str]:
    """Return how a notebook displays content: a MIME bundle. It is empty if there is neither an image nor audio.

    Servers are not trusted: images and players refer to ``data:`` URLs, in which no script runs, and text is escaped.
    """
    parts: list[str] = []
    bundle: dict[str, str] = {}
    for block in blocks:
        if isinstance(block, TextContent):
            parts.append(f"<pre>{_escaped(block.text)}</pre>")
        elif isinstance(block, ImageContent | AudioContent):
            kind = re.fullmatch(_PLAYABLE, block.mime_type.lower())
            if kind is None or re.fullmatch(_BASE64, block.data) is None:
                continue
            url = f"data:{kind[0]};base64,{block.data}"
            parts.append(f'<img src="{url}">' if kind[1] == "image" else f'<audio controls src="{url}"></audio>')
            bundle["text/html"] = ""
            if kind[0] in _BITMAPS:
                bundle.setdefault(kind[0], block.data)
    if bundle:
        bundle["text/html"] = "\n".join(parts)
    return bundle


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class ToolUseContent(_Block, frozen=True, tag="tool_use"):
    """A model's request to call a tool."""

    id: str
    name: str
    input: dict[str, Any]


class _ToolResultDetails(_Block, frozen=True, kw_only=True):
    #: None if absent; use ``NULL`` to write a null.
    structured_content: Any = None
    if TYPE_CHECKING:
        is_error: bool = False
    else:
        is_error: bool | None = None


flag(_ToolResultDetails, "is_error")


class ToolResultContent(_ToolResultDetails, frozen=True, tag="tool_result"):
    """The result of a tool call, for a model to read."""

    tool_use_id: str
    content: list[ContentBlock]


#: The blocks of a sampling message.
SamplingContent: TypeAlias = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | UnknownContent
)
