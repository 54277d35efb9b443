"""Converters for hosts: tools and their results in the shapes that the APIs of LLM providers take.

Each function returns plain data for one provider: OpenAI's Chat Completions and Responses, and Anthropic's Messages.
The schemas of tools are passed on as they are, since servers decide what is in them.

The dicts are typed as ``Any``: each provider's package declares types of its own for them, and for type checkers a
``dict[str, Any]`` is none of these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from mcplumb.errors import UsageError
from mcplumb.types.content import AudioContent, ContentBlock, EmbeddedResource, ImageContent, ResourceLink, TextContent
from mcplumb.types.tools import CallToolResult, Tool

__all__ = ["OpenAIApi", "result_for_anthropic", "result_for_openai", "tools_for_anthropic", "tools_for_openai"]

OpenAIApi: TypeAlias = Literal["chat", "responses"]

_ALLOWED = re.compile(r"[a-zA-Z0-9_-]{1,64}")
#: The images that both providers accept.
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_NO_TEXT = "The tool failed, and its result has no text."


def tools_for_openai(tools: Iterable[Tool], *, api: OpenAIApi = "chat") -> list[Any]:
    """Return tools as dicts for ``tools=`` of OpenAI's Chat Completions, or with ``api="responses"`` of its Responses.

    Raises `UsageError` if a name is not allowed there; the names of a `Group` always are.
    """
    _check_api(api)
    converted: list[dict[str, Any]] = []
    for tool in tools:
        # OpenAI refuses the schema of an object without properties.
        function = {**_described(tool), "parameters": {"type": "object", "properties": {}, **tool.input_schema}}
        if api == "chat":
            converted.append({"type": "function", "function": function})
        else:
            # Strict is the default here, and refuses schemas with optional arguments.
            converted.append({"type": "function", **function, "strict": False})
    return converted


def tools_for_anthropic(tools: Iterable[Tool]) -> list[Any]:
    """Return tools as dicts for ``tools=`` of Anthropic's Messages.

    Raises `UsageError` if a name is not allowed there; the names of a `Group` always are.
    """
    return [{**_described(tool), "input_schema": {"type": "object", **tool.input_schema}} for tool in tools]


def result_for_openai(result: CallToolResult, call_id: str | None = None, *, api: OpenAIApi = "chat") -> Any:
    """Return a result as a dict: the message that answers a tool call, or with ``api="responses"`` the input item.

    ``call_id`` is the id of the call; without it, add ``tool_call_id`` or ``call_id`` yourself. The message of a failed
    tool begins with "Error:". Chat Completions take only text here: an image is replaced by a note.
    """
    _check_api(api)
    parts = list(_parts(result))
    if result.is_error:
        parts.insert(0, "Error:" if parts else f"Error: {_NO_TEXT}")
    if api == "chat":
        message: dict[str, Any] = {"role": "tool", "content": _text(parts)}
        return message if call_id is None else {**message, "tool_call_id": call_id}
    output: str | list[dict[str, str]] = _text(parts)
    if any(isinstance(part, ImageContent) for part in parts):
        output = [
            {"type": "input_text", "text": part}
            if isinstance(part, str)
            else {"type": "input_image", "image_url": f"data:{part.mime_type};base64,{part.data}"}
            for part in parts
        ]
    item: dict[str, Any] = {"type": "function_call_output", "output": output}
    return item if call_id is None else {**item, "call_id": call_id}


def result_for_anthropic(result: CallToolResult, tool_use_id: str | None = None) -> Any:
    """Return a result as a dict: a ``tool_result`` block for the next message of the user.

    ``tool_use_id`` is the id of the model's ``tool_use`` block; without it, add it yourself.
    """
    content: list[dict[str, Any]] = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "source": {"type": "base64", "media_type": part.mime_type, "data": part.data}}
        for part in _parts(result)
    ]
    block: dict[str, Any] = {"type": "tool_result", "content": content}
    if result.is_error:
        # Anthropic refuses an error without content.
        block.update(is_error=True, content=content or [{"type": "text", "text": _NO_TEXT}])
    return block if tool_use_id is None else {**block, "tool_use_id": tool_use_id}


def _check_api(api: str) -> None:
    if api not in ("chat", "responses"):
        raise UsageError(f"api is {api!r}: choose 'chat' or 'responses'.")


def _described(tool: Tool) -> dict[str, Any]:
    if not _ALLOWED.fullmatch(tool.name):
        raise UsageError(
            f"LLM providers do not allow the tool name {tool.name!r}: it may have up to 64 letters, digits, "
            "underscores and hyphens. The tools of connect_all have names that are allowed."
        )
    return {"name": tool.name} if tool.description is None else {"name": tool.name, "description": tool.description}


def _parts(result: CallToolResult) -> Iterator[str | ImageContent]:
    """Yield the content as texts, none of which is empty, and images of the accepted types."""
    parts = [_part(block) for block in result.content]
    if not any(parts) and result.structured_content is not None:
        parts = [msgspec.json.encode(result.structured_content).decode()]
    yield from (part for part in parts if part)


def _part(block: ContentBlock) -> str | ImageContent:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent):
        return block if block.mime_type in _IMAGES else f"[An image of type {block.mime_type}, which cannot be shown.]"
    if isinstance(block, AudioContent):
        return f"[A recording of type {block.mime_type}, which cannot be played.]"
    if isinstance(block, ResourceLink):
        return f"[The resource {block.name!r}: {block.uri}]"
    if isinstance(block, EmbeddedResource):
        contents = block.resource
        if contents.text is not None:
            return contents.text
        if contents.blob is not None and contents.mime_type in _IMAGES:
            return ImageContent(contents.blob, contents.mime_type)
        return f"[The resource {contents.uri}, of type {contents.mime_type or 'unknown'}, which cannot be shown.]"
    return f"[Content of the unknown type {block.kind!r}.]"


def _text(parts: list[str | ImageContent]) -> str:
    return "\n".join(
        part if isinstance(part, str) else f"[An image of type {part.mime_type}, which is not shown here.]"
        for part in parts
    )
