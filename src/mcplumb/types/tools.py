"""Payloads of tools: functions of a server that a model can call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import msgspec

from mcplumb.errors import ToolFailed
from mcplumb.types.base import CacheableResult, Icon, Payload, Result, RetryParams, flag
from mcplumb.types.content import ContentBlock, TextContent, display

__all__ = ["CallToolParams", "CallToolResult", "ListToolsResult", "Tool", "ToolAnnotations"]


class ToolAnnotations(Payload, frozen=True, kw_only=True):
    """Hints about a tool's behaviour, as trustworthy as the server that gives them."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class _ToolDetails(Payload, frozen=True, kw_only=True):
    title: str | None = None
    description: str | None = None
    #: The JSON Schema of ``structured_content``.
    output_schema: dict[str, Any] | None = None
    annotations: ToolAnnotations | None = None
    icons: list[Icon] | None = None
    #: Experimental in one revision (tasks), kept unchanged.
    execution: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class Tool(_ToolDetails, frozen=True):
    """One tool in a server's list."""

    name: str
    #: The JSON Schema of the arguments, of type ``object``.
    input_schema: dict[str, Any]


class ListToolsResult(CacheableResult, frozen=True, kw_only=True):
    """A page of a server's tools."""

    tools: list[Tool]
    next_cursor: str | None = None


class CallToolParams(RetryParams, frozen=True):
    """The params of ``tools/call``: the tool, and its arguments."""

    name: str
    arguments: dict[str, Any] | None = None


class _CallToolDetails(Result, frozen=True, kw_only=True):
    #: Any JSON value: plain data, a Struct or ``msgspec.Raw``. None if absent; use ``NULL`` to write a null.
    structured_content: Any = None
    if TYPE_CHECKING:
        #: Whether the tool failed; False if the server leaves it out.
        is_error: bool = False
    else:
        is_error: bool | None = None


flag(_CallToolDetails, "is_error")


class CallToolResult(_CallToolDetails, frozen=True):
    """The result of a tool call: what the tool returned, or its error."""

    content: list[ContentBlock]

    @property
    def text(self) -> str:
        """The text blocks of the content, joined with newlines; empty if there are none."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return display(self.content)

    def raise_for_error(self) -> Self:
        """Raise ``ToolFailed`` with the tool's text if the tool failed; otherwise return the result itself."""
        if self.is_error:
            raise ToolFailed(self.text, self)
        return self
