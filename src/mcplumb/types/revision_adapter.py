"""Adapt payloads to one protocol revision before they are sent.

The payload types cover all revisions; ``for_revision`` removes, replaces or adds what one revision requires. The tables
``FIELDS``, ``DEFAULTS`` and ``PAYLOADS`` say which ``Revision`` flag each part needs. They have the names of types, so
that types that a program does not use are not loaded, and an entry also applies to the subclasses of its type.
``ADAPTERS`` has the functions for what no table can express. A payload that a revision cannot represent at all raises
``NotInRevision``.

``for_revision`` compiles the tables into one plan per type and revision, and then follows the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from mcplumb import types
from mcplumb.errors import EncodeError, NotInRevision
from mcplumb.revisions import Revision
from mcplumb.types.base import COMPLETE, INPUT_REQUIRED, Payload
from mcplumb.types.content import TextContent
from mcplumb.types.tools import ToolAnnotations

if TYPE_CHECKING:
    from mcplumb.types.client_features import CreateMessageResult, ElicitParams, ElicitResult, SamplingMessage
    from mcplumb.types.content import AudioContent, ResourceLink, SamplingContent, ToolResultContent, UnknownContent
    from mcplumb.types.lifecycle import ClientCapabilities
    from mcplumb.types.notification_params import CancelledParams
    from mcplumb.types.tools import CallToolResult, Tool

__all__ = [
    "ADAPTERS",
    "DEFAULTS",
    "FIELDS",
    "PAYLOADS",
    "Adapt",
    "for_revision",
    "wrap_result",
    "wrap_result_schema",
]


# The tables.

_DESCRIBED = {"title": "has_titles", "icons": "has_icons", "meta": "has_item_meta"}
_ITEM = {"meta": "has_item_meta"}
# Input requests within a result, and most of their responses, have no _meta of their own.
_ASKED = {"meta": "has_server_requests"}

#: Fields, and the flag that a revision must have for them to be sent. Without it they are left out.
FIELDS: dict[str, dict[str, str]] = {
    "Annotations": {"last_modified": "has_last_modified"},
    "Implementation": {
        "title": "has_titles",
        "icons": "has_icons",
        "description": "has_implementation_details",
        "website_url": "has_implementation_details",
    },
    "ClientCapabilities": {
        "elicitation": "has_elicitation",
        "extensions": "has_extensions",
        "tasks": "has_tasks",
    },
    "RootsCapability": {"list_changed": "has_roots_list_changed"},
    "SamplingCapability": {"context": "has_sampling_tools", "tools": "has_sampling_tools"},
    "ElicitationCapability": {"form": "has_url_elicitation", "url": "has_url_elicitation"},
    "ServerCapabilities": {
        "completions": "has_completions_capability",
        "extensions": "has_extensions",
        "tasks": "has_tasks",
    },
    "Result": {"result_type": "has_result_types"},
    "CacheableResult": {"ttl_ms": "has_cache_hints", "cache_scope": "has_cache_hints"},
    "RetryParams": {"input_responses": "has_input_required", "request_state": "has_input_required"},
    "Tool": _DESCRIBED
    | {
        "output_schema": "has_structured_content",
        "annotations": "has_tool_annotations",
        "execution": "has_tasks",
    },
    "CallToolResult": {"structured_content": "has_structured_content"},
    "Resource": _DESCRIBED,
    "ResourceTemplate": _DESCRIBED,
    "ResourceContents": _ITEM,
    "Prompt": _DESCRIBED,
    "PromptArgument": {"title": "has_titles"},
    "TextContent": _ITEM,
    "ImageContent": _ITEM,
    "AudioContent": _ITEM,
    "EmbeddedResource": _ITEM,
    "Root": _ITEM,
    "ListRootsResult": _ASKED,
    # Sampling messages got their _meta in the same revision as tools.
    "SamplingMessage": {"meta": "has_sampling_tools"},
    "CreateMessageParams": _ASKED | {"tools": "has_sampling_tools", "tool_choice": "has_sampling_tools"},
    "ElicitParams": _ASKED | {"mode": "has_url_elicitation", "elicitation_id": "has_elicitation_ids"},
    "ElicitResult": _ASKED,
    "PromptReference": {"title": "has_titles"},
    "CompleteParams": {"context": "has_completion_context"},
    "ProgressParams": {"message": "has_progress_message"},
}

#: Fields that are required in a revision that has them, and their default values.
DEFAULTS: dict[str, dict[str, Any]] = {
    "Result": {"result_type": COMPLETE},
    "InputRequiredResult": {"result_type": INPUT_REQUIRED},
    "CacheableResult": {"ttl_ms": 0, "cache_scope": "private"},
}

#: Payloads, the flag that a revision must have for them to be sent, and their name in the error otherwise.
PAYLOADS: dict[str, tuple[str, str]] = {
    "InitializeParams": ("has_handshake", "initialize"),
    "InitializeResult": ("has_handshake", "initialize"),
    "DiscoverResult": ("has_discover", "server/discover"),
    "SetLevelParams": ("has_set_level", "logging/setLevel"),
    "ResourceParams": ("has_resource_subscribe", "resources/subscribe"),
    "ListenParams": ("has_listen", "subscriptions/listen"),
    "ListenResult": ("has_listen", "subscriptions/listen"),
    "AcknowledgedParams": ("has_listen", "subscriptions/listen"),
    "InputRequiredResult": ("has_input_required", "results that ask for input"),
    "ElicitParams": ("has_elicitation", "elicitation"),
    "ElicitResult": ("has_elicitation", "elicitation"),
    "ElicitationCompleteParams": ("has_elicitation_ids", "notifications/elicitation/complete"),
    "ToolUseContent": ("has_sampling_tools", "tool calls in sampling messages"),
    "ToolResultContent": ("has_sampling_tools", "tool results in sampling messages"),
}


# The functions for payloads that a revision can represent only in another form.

#: Members of a schema that references and validators expect at its root.
_ROOT_KEYS = ("$schema", "$defs", "definitions")
_DEFINITIONS = ("#/$defs/", "#/definitions/")

#: Returns the payload to send, which may be of another type, or raises ``NotInRevision``.
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
        output_schema: dict[str, Any] | None = tool.output_schema
        if not revision.has_any_structured_content and tool.output_schema.get("type") != "object":
            output_schema = None if _may_be_object(tool.output_schema, ()) else wrap_result_schema(tool.output_schema)
        if output_schema is not None:
            output_schema = _plain_schema(output_schema, revision)
        if output_schema is not tool.output_schema:
            changes["output_schema"] = output_schema
    if tool.title is not None and not revision.has_titles and revision.has_tool_annotations:
        annotations = tool.annotations or ToolAnnotations()
        if annotations.title is None:
            changes["annotations"] = replace(annotations, title=tool.title)
    return replace(tool, **changes) if changes else tool


def wrap_result_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object whose member ``result`` has this schema."""
    root: dict[str, Any] = _moved_references({key: schema[key] for key in _ROOT_KEYS if key in schema})
    inner = {key: value for key, value in schema.items() if key not in _ROOT_KEYS}
    return root | {
        "type": "object",
        "properties": {"result": _moved_references(inner)},
        "required": ["result"],
        # By this, the clients of fastmcp recognise what to unwrap.
        "x-fastmcp-wrap-result": True,
    }


def wrap_result(structured: Any) -> Any:
    """Return structured content as the member ``result`` of an object."""
    if isinstance(structured, msgspec.Raw):
        return msgspec.Raw(b'{"result":%b}' % bytes(structured))
    return {"result": structured}


def _moved_references(schema: Any) -> Any:
    """Return a part of a schema that becomes the member ``result``, with its references to the root moved as well."""
    if isinstance(schema, list):
        return [_moved_references(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved_references(value) for key, value in schema.items()}
    target = schema.get("$ref")
    if isinstance(target, str) and (target == "#" or target.startswith("#/")) and not target.startswith(_DEFINITIONS):
        moved["$ref"] = f"#/properties/result{target[1:]}"
    return moved


def _may_be_object(schema: Any, within: tuple[str, ...], definitions: Any = None) -> bool:
    """Return whether a schema may describe an object. ``within`` has the references that led to it."""
    if not isinstance(schema, dict):
        return True
    definitions = schema.get("$defs", {}) if definitions is None else definitions
    if "type" in schema:
        kinds = schema["type"]
        return "object" in kinds if isinstance(kinds, list) else kinds == "object"
    target = schema.get("$ref")
    if isinstance(target, str):
        name = target.removeprefix("#/$defs/")
        return target in within or _may_be_object(definitions.get(name), (*within, target), definitions)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return any(_may_be_object(each, within, definitions) for each in schema[key])
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return not isinstance(values, list) or any(isinstance(value, dict) for value in values)


def _plain_schema(schema: dict[str, Any], revision: Revision) -> dict[str, Any]:
    """Return the schema without ``$schema``, and with objects in place of boolean schemas, if the revision needs it."""
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
    if revision.has_structured_content:
        return replace(result, structured_content=wrap_result(structured))
    if result.content:
        return replace(result, structured_content=None)
    # The text form is normally there already. Without it, the result would be empty.
    return replace(result, structured_content=None, content=[TextContent(_to_json(structured).decode())])


def _tool_result_block(block: ToolResultContent, _: Revision) -> ToolResultContent:
    structured = block.structured_content
    return block if structured is None or _is_object(structured) else replace(block, structured_content=None)


def _is_object(value: Any) -> bool:
    """Return whether a value is a JSON object once it is encoded."""
    if isinstance(value, dict):
        return True
    written = value if isinstance(value, msgspec.Raw) else _to_json(value)
    return bytes(memoryview(written)[:64]).lstrip().startswith(b"{")


def _to_json(structured: Any) -> bytes:
    try:
        return msgspec.json.encode(structured)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        reason = "it is nested too deeply, or contains itself" if isinstance(error, RecursionError) else error
        raise EncodeError(f"The structured content of a tool's result cannot be written as JSON: {reason}.") from error


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
    # Without its modes, the capability would mean that the client supports forms.
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
    # A form that the caller gave as a schema may contain anything; invalid fields are left unchanged.
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


#: The function for each type, and the flags of the revisions that do not need it (None: all revisions need it).
ADAPTERS: dict[str, tuple[tuple[str, ...] | None, Adapt]] = {
    "AudioContent": (("has_audio",), _audio),
    "ResourceLink": (("has_resource_links",), _link),
    "UnknownContent": (None, _unknown),
    "Tool": (("has_any_input_schema", "has_any_structured_content", "has_schema_dialects", "has_titles"), _tool),
    "CallToolResult": (("has_structured_content", "has_any_structured_content"), _tool_result),
    "ToolResultContent": (("has_any_structured_content",), _tool_result_block),
    "SamplingMessage": (("has_sampling_tools",), _message),
    "CreateMessageResult": (("has_sampling_tools",), _message),
    "ClientCapabilities": (("has_url_elicitation",), _client_capabilities),
    "ElicitParams": (None, _elicit),
    "ElicitResult": (("has_form_choices",), _elicit_result),
    "CancelledParams": (("has_tasks",), _cancelled),
}


# The adapter.

P = TypeVar("P", bound=Payload)

_LISTS = (list, tuple)
#: The package of the types that the tables name. A program may give its own types the same names.
_TYPES = f"{__package__}."
_NOTHING: Mapping[str, Any] = {}


class _Plan(msgspec.Struct, frozen=True):
    """The changes to payloads of one type for one revision."""

    #: The name of the payload, if the revision does not have it at all.
    refused: str | None
    adapt: Adapt | None
    left_out: tuple[str, ...]
    filled: tuple[tuple[str, Any], ...]
    #: The fields that may contain payloads with a plan of their own, and the types of those payloads.
    inner: tuple[tuple[str, tuple[type[Payload], ...]], ...]


# By the revision's name: hashing its record would cost more than adapting most payloads does.
_plans: dict[tuple[str, type[Payload]], _Plan | None] = {}


def for_revision(payload: P, revision: Revision, more: Mapping[str, Any] = _NOTHING) -> P:
    """Return the payload as this revision represents it: the same object if nothing changes, otherwise a copy.

    Fields that the revision lacks are left out, or replaced where another form keeps the meaning: a link or audio
    becomes a text that names it, titled choices become ``enumNames``. So a content block may change its type; params
    and results keep theirs. Fields that the revision requires are filled in: ``resultType``, and cache hints that
    forbid caching. ``_meta`` is not changed. The copy shares unchanged parts with the payload.

    ``more`` has values to set for fields of the payload itself. Raises ``NotInRevision`` if the revision cannot
    represent the payload.
    """
    try:
        plan = _plans[revision.name, type(payload)]
    except KeyError:
        plan = _plan_for(type(payload), revision)
    if plan is not None:
        return _apply(plan, payload, revision, more)  # type: ignore[no-any-return]
    return replace(payload, **more) if more else payload


def _plan_for(kind: type[Payload], revision: Revision) -> _Plan | None:
    try:
        return _plans[revision.name, kind]
    except KeyError:
        plan = _plans[revision.name, kind] = _make_plan(kind, revision)
        return plan


def _apply(plan: _Plan, payload: Any, revision: Revision, more: Mapping[str, Any]) -> Any:
    if plan.refused is not None:
        raise NotInRevision(f"Protocol revision {revision} has no {plan.refused}.")
    if plan.adapt is not None:
        adapted = plan.adapt(payload, revision)
        if type(adapted) is not type(payload):
            return for_revision(adapted, revision)
        payload = adapted
    changes = dict(more)
    for name, default in plan.filled:
        if name not in changes and getattr(payload, name) is None:
            changes[name] = default
    for name in plan.left_out:
        if getattr(payload, name) is not None:
            changes[name] = None
    for name, kinds in plan.inner:
        value = getattr(payload, name)
        if value is not None:
            written = _adapt_value(value, kinds, revision)
            if written is not value:
                changes[name] = written
    return replace(payload, **changes) if changes else payload


def _adapt_value(value: Any, kinds: tuple[type[Payload], ...], revision: Revision) -> Any:
    if isinstance(value, kinds):
        return for_revision(value, revision)
    if isinstance(value, _LISTS):
        # Most lists contain nothing to adapt.
        for item in value:
            if isinstance(item, kinds):
                break
        else:
            return value
        items = [for_revision(item, revision) if isinstance(item, kinds) else item for item in value]
        return value if all(map(is_, items, value)) else items
    if isinstance(value, dict):
        values = {key: _adapt_value(item, kinds, revision) for key, item in value.items()}
        return value if all(map(is_, values.values(), value.values())) else values
    return value


def _make_plan(kind: type[Payload], revision: Revision) -> _Plan | None:
    family = [parent for parent in kind.__mro__ if parent.__module__.startswith(_TYPES)]
    refused: str | None = None
    adapt: Adapt | None = None
    fields: dict[str, str] = {}
    defaults: dict[str, Any] = {}
    for parent in reversed(family):
        known = parent.__name__
        if known in PAYLOADS:
            flag, name = PAYLOADS[known]
            refused = None if getattr(revision, flag) else name
        if known in ADAPTERS:
            flags, adapt = ADAPTERS[known]
            if flags is not None and all(getattr(revision, flag) for flag in flags):
                adapt = None
        fields |= FIELDS.get(known, {})
        defaults |= DEFAULTS.get(known, {})
    left_out = tuple(name for name, flag in fields.items() if not getattr(revision, flag))
    filled = tuple((name, value) for name, value in defaults.items() if name not in left_out)
    inner = []
    for name, kinds in _inner_kinds(kind).items():
        planned = tuple(inner for inner in kinds if _plan_for(inner, revision) is not None)
        if planned and name not in left_out:
            inner.append((name, planned))
    if refused is None and adapt is None and not (left_out or filled or inner):
        return None
    return _Plan(refused, adapt, left_out, filled, tuple(inner))


def _inner_kinds(kind: type[Payload]) -> dict[str, list[type[Payload]]]:
    """Return the payload types that each field can contain, for the fields that can contain any."""
    found = {field.name: _payloads_in(field.type) for field in msgspec.structs.fields(kind)}
    if "input_responses" in found:
        # The annotation says Any: received values are dicts, but a caller may pass these types.
        found["input_responses"] = [types.CreateMessageResult, types.ElicitResult, types.ListRootsResult]
    return {name: kinds for name, kinds in found.items() if kinds}


def _payloads_in(annotation: Any) -> list[type[Payload]]:
    if isinstance(annotation, type) and issubclass(annotation, Payload):
        return [annotation]
    return [kind for part in get_args(annotation) for kind in _payloads_in(part)]
