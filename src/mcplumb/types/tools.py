"""Payloads of tools: functions of a server that a model can call."""

from __future__ import annotations

from typing import Any

import msgspec

from mcplumb.types.base import CacheableResult, Icon, Payload, Result, RetryParams
from mcplumb.types.content import ContentBlock

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
    is_error: bool | None = None


class CallToolResult(_CallToolDetails, frozen=True):
    """The result of a tool call: what the tool returned, or its error."""

    content: list[ContentBlock]
