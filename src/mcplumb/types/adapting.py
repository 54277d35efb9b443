"""What is said in another way to a revision that lacks the best way: the part of writing that no table can hold.

Each function takes a payload and a revision and gives the payload to be written, which may be of another type. It
raises ``NotInRevision`` for what the revision cannot say at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from mcplumb.errors import EncodeError, NotInRevision
from mcplumb.revisions import Revision
from mcplumb.types.base import Payload
from mcplumb.types.capabilities import ClientCapabilities
from mcplumb.types.content import (
    AudioContent,
    ResourceLink,
    SamplingContent,
    TextContent,
    ToolResultContent,
    UnknownContent,
)
from mcplumb.types.elicitation import ElicitParams, ElicitResult
from mcplumb.types.progress import CancelledParams
from mcplumb.types.sampling import CreateMessageResult, SamplingMessage
from mcplumb.types.tools import CallToolResult, Tool, ToolAnnotations

__all__ = ["ADAPTED", "Adapt"]

#: From a payload and a revision to the payload to be written.
Adapt = Callable[[Any, Revision], Payload]


def _audio(block: AudioContent, _: Revision) -> TextContent:
    size = len(block.data) * 3 // 4 - block.data[-2:].count("=")
    return TextContent(f"[audio: {block.mime_type}, {size} bytes]", annotations=block.annotations)


def _link(block: ResourceLink, _: Revision) -> TextContent:
    return TextContent(f"{block.name}: {block.uri}", annotations=block.annotations)


def _unknown(block: UnknownContent, _: Revision) -> TextContent:
    return TextContent(f"[content of the unknown type {block.kind!r}]")


def _tool(tool: Tool, revision: Revision) -> Tool:
    changes: dict[str, Any] = {}
    input_schema = _plain_schema(tool.input_schema, revision)
    if input_schema is not tool.input_schema:
        changes["input_schema"] = input_schema
    if tool.output_schema is not None:
        can_be_said = revision.has_any_structured_content or tool.output_schema.get("type") == "object"
        output_schema = _plain_schema(tool.output_schema, revision) if can_be_said else None
        if output_schema is not tool.output_schema:
            changes["output_schema"] = output_schema
    if tool.title is not None and not revision.has_titles and revision.has_tool_annotations:
        annotations = tool.annotations or ToolAnnotations()
        if annotations.title is None:
            changes["annotations"] = replace(annotations, title=tool.title)
    return replace(tool, **changes) if changes else tool


def _plain_schema(schema: dict[str, Any], revision: Revision) -> dict[str, Any]:
    """The same schema, without its dialect and with an object as each property's schema where that is needed."""
    if "$schema" in schema and not revision.has_schema_dialects:
        schema = {key: value for key, value in schema.items() if key != "$schema"}
    properties = None if revision.has_any_input_schema else schema.get("properties")
    if isinstance(properties, dict) and any(isinstance(value, bool) for value in properties.values()):
        plain = {name: _plain_property(value) for name, value in properties.items()}
        schema = schema | {"properties": plain}
    return schema


def _plain_property(schema: Any) -> Any:
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def _tool_result(result: CallToolResult, revision: Revision) -> CallToolResult:
    structured = result.structured_content
    if structured is None or (revision.has_structured_content and _is_object(structured)):
        return result
    if result.content:
        return replace(result, structured_content=None)
    # The text form is normally there already. Without it, nothing at all would be left of the result.
    return replace(result, structured_content=None, content=[TextContent(_written(structured).decode())])


def _tool_result_block(block: ToolResultContent, _: Revision) -> ToolResultContent:
    structured = block.structured_content
    return block if structured is None or _is_object(structured) else replace(block, structured_content=None)


def _is_object(value: Any) -> bool:
    """Whether a value is an object once it is written."""
    if isinstance(value, dict):
        return True
    written = value if isinstance(value, msgspec.Raw) else _written(value)
    return bytes(memoryview(written)[:64]).lstrip().startswith(b"{")


def _written(structured: Any) -> bytes:
    try:
        return msgspec.json.encode(structured)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise EncodeError(f"The structured content of a tool's result cannot be written as JSON: {error}.") from error


def _message(message: SamplingMessage | CreateMessageResult, revision: Revision) -> Payload:
    blocks: list[SamplingContent] = message.blocks
    if len(blocks) != 1:
        raise NotInRevision(
            f"Protocol revision {revision} has exactly one content block in a sampling message; this one has "
            f"{len(blocks)}."
        )
    return replace(message, content=blocks[0]) if isinstance(message.content, list) else message


def _client_capabilities(capabilities: ClientCapabilities, _: Revision) -> ClientCapabilities:
    elicitation = capabilities.elicitation
    if elicitation is None or elicitation.has_form:
        return capabilities
    # Without its modes the capability would promise forms.
    return replace(capabilities, elicitation=None)


def _elicit(params: ElicitParams, revision: Revision) -> ElicitParams:
    if params.is_url:
        if not revision.has_url_elicitation:
            raise NotInRevision(f"Protocol revision {revision} has no elicitation in url mode.")
        if revision.has_elicitation_ids and params.elicitation_id is None:
            raise NotInRevision(
                f"Protocol revision {revision} has no elicitation in url mode without an id. Give it an elicitation_id."
            )
        return params
    if not (params.is_form or revision.has_url_elicitation):
        raise NotInRevision(f"Protocol revision {revision} has no modes of elicitation, such as {params.mode!r}.")
    form = params.requested_schema
    if form is None:
        return params
    plain = dict(form)
    if not revision.has_schema_dialects:
        plain.pop("$schema", None)
    properties = form.get("properties")
    if isinstance(properties, dict):
        plain["properties"] = {name: _field(name, field, revision) for name, field in properties.items()}
    return params if plain == form else replace(params, requested_schema=plain)


def _field(name: str, field: Any, revision: Revision) -> Any:
    # A form that the caller gave as a schema may have anything in it: what no form can have is left as it is.
    if not isinstance(field, dict):
        return field
    kind = field.get("type")
    plain = dict(field)
    if not revision.has_form_defaults and kind != "boolean":
        plain.pop("default", None)
    if not revision.has_form_choices:
        if kind == "array":
            raise NotInRevision(
                f"Protocol revision {revision} has no choice of several values in forms, which the field {name!r} asks "
                "for."
            )
        choices = field.get("oneOf")
        if isinstance(choices, list) and all(isinstance(choice, dict) and "const" in choice for choice in choices):
            del plain["oneOf"]
            plain["enum"] = [choice["const"] for choice in choices]
            plain["enumNames"] = [choice.get("title", choice["const"]) for choice in choices]
    return plain


def _elicit_result(result: ElicitResult, revision: Revision) -> ElicitResult:
    for name, value in (result.content or {}).items():
        if isinstance(value, list):
            raise NotInRevision(
                f"Protocol revision {revision} has no choice of several values in forms, as the field {name!r} is."
            )
    return result


def _cancelled(params: CancelledParams, revision: Revision) -> CancelledParams:
    if params.request_id is None:
        raise NotInRevision(f"Protocol revision {revision} has no cancellation without a request id.")
    return params


#: The flags of a revision that can do without the function (None: no revision can), and the function.
ADAPTED: dict[type[Payload], tuple[tuple[str, ...] | None, Adapt]] = {
    AudioContent: (("has_audio",), _audio),
    ResourceLink: (("has_resource_links",), _link),
    UnknownContent: (None, _unknown),
    Tool: (("has_any_input_schema", "has_any_structured_content", "has_schema_dialects", "has_titles"), _tool),
    CallToolResult: (("has_structured_content", "has_any_structured_content"), _tool_result),
    ToolResultContent: (("has_any_structured_content",), _tool_result_block),
    SamplingMessage: (("has_sampling_tools",), _message),
    CreateMessageResult: (("has_sampling_tools",), _message),
    ClientCapabilities: (("has_url_elicitation",), _client_capabilities),
    ElicitParams: (None, _elicit),
    ElicitResult: (("has_form_choices",), _elicit_result),
    CancelledParams: (("has_tasks",), _cancelled),
}
