"""What the types have that some revision lacks: one table, read by ``for_revision``.

Each flag is an attribute of ``Revision``. A type's entries hold for the types that inherit from it, too.
"""

from __future__ import annotations

from typing import Any

from mcplumb.types import content
from mcplumb.types.base import (
    COMPLETE,
    INPUT_REQUIRED,
    Annotations,
    CacheableResult,
    Implementation,
    Payload,
    Result,
    RetryParams,
)
from mcplumb.types.capabilities import (
    ClientCapabilities,
    ElicitationCapability,
    RootsCapability,
    SamplingCapability,
    ServerCapabilities,
)
from mcplumb.types.completion import CompleteParams, PromptReference
from mcplumb.types.elicitation import ElicitationCompleteParams, ElicitParams, ElicitResult
from mcplumb.types.input import InputRequiredResult
from mcplumb.types.lifecycle import DiscoverResult, InitializeParams, InitializeResult
from mcplumb.types.log import SetLevelParams
from mcplumb.types.progress import ProgressParams
from mcplumb.types.prompts import Prompt, PromptArgument
from mcplumb.types.resources import Resource, ResourceContents, ResourceParams, ResourceTemplate
from mcplumb.types.roots import ListRootsResult, Root
from mcplumb.types.sampling import CreateMessageParams, SamplingMessage
from mcplumb.types.subscriptions import AcknowledgedParams, ListenParams, ListenResult
from mcplumb.types.tools import CallToolResult, Tool

__all__ = ["FIELDS", "FILLED", "PAYLOADS"]

_DESCRIBED = {"title": "has_titles", "icons": "has_icons", "meta": "has_item_meta"}
_ITEM = {"meta": "has_item_meta"}
# Where input is asked for within a result, the question and most answers have no _meta of their own.
_ASKED = {"meta": "has_server_requests"}

#: Fields, and what a revision must have for them to be written. They are left out otherwise.
FIELDS: dict[type[Payload], dict[str, str]] = {
    Annotations: {"last_modified": "has_last_modified"},
    Implementation: {
        "title": "has_titles",
        "icons": "has_icons",
        "description": "has_implementation_details",
        "website_url": "has_implementation_details",
    },
    ClientCapabilities: {
        "elicitation": "has_elicitation",
        "extensions": "has_extensions",
        "tasks": "has_tasks",
    },
    RootsCapability: {"list_changed": "has_roots_list_changed"},
    SamplingCapability: {"context": "has_sampling_tools", "tools": "has_sampling_tools"},
    ElicitationCapability: {"form": "has_url_elicitation", "url": "has_url_elicitation"},
    ServerCapabilities: {
        "completions": "has_completions_capability",
        "extensions": "has_extensions",
        "tasks": "has_tasks",
    },
    Result: {"result_type": "has_result_types"},
    CacheableResult: {"ttl_ms": "has_cache_hints", "cache_scope": "has_cache_hints"},
    RetryParams: {"input_responses": "has_input_required", "request_state": "has_input_required"},
    Tool: _DESCRIBED
    | {
        "output_schema": "has_structured_content",
        "annotations": "has_tool_annotations",
        "execution": "has_tasks",
    },
    CallToolResult: {"structured_content": "has_structured_content"},
    Resource: _DESCRIBED,
    ResourceTemplate: _DESCRIBED,
    ResourceContents: _ITEM,
    Prompt: _DESCRIBED,
    PromptArgument: {"title": "has_titles"},
    content.TextContent: _ITEM,
    content.ImageContent: _ITEM,
    content.AudioContent: _ITEM,
    content.EmbeddedResource: _ITEM,
    Root: _ITEM,
    ListRootsResult: _ASKED,
    # A message to a model got its _meta together with tools.
    SamplingMessage: {"meta": "has_sampling_tools"},
    CreateMessageParams: _ASKED | {"tools": "has_sampling_tools", "tool_choice": "has_sampling_tools"},
    ElicitParams: _ASKED | {"mode": "has_url_elicitation", "elicitation_id": "has_elicitation_ids"},
    ElicitResult: _ASKED,
    PromptReference: {"title": "has_titles"},
    CompleteParams: {"context": "has_completion_context"},
    ProgressParams: {"message": "has_progress_message"},
}

#: Fields that a revision which has them requires, and what to write there if nothing else is said.
FILLED: dict[type[Payload], dict[str, Any]] = {
    Result: {"result_type": COMPLETE},
    InputRequiredResult: {"result_type": INPUT_REQUIRED},
    CacheableResult: {"ttl_ms": 0, "cache_scope": "private"},
}

#: Whole payloads, what a revision must have for them to be written, and what they are called. It is an error otherwise.
PAYLOADS: dict[type[Payload], tuple[str, str]] = {
    InitializeParams: ("has_handshake", "initialize"),
    InitializeResult: ("has_handshake", "initialize"),
    DiscoverResult: ("has_discover", "server/discover"),
    SetLevelParams: ("has_set_level", "logging/setLevel"),
    ResourceParams: ("has_resource_subscribe", "resources/subscribe"),
    ListenParams: ("has_listen", "subscriptions/listen"),
    ListenResult: ("has_listen", "subscriptions/listen"),
    AcknowledgedParams: ("has_listen", "subscriptions/listen"),
    InputRequiredResult: ("has_input_required", "results that ask for input"),
    ElicitParams: ("has_elicitation", "elicitation"),
    ElicitResult: ("has_elicitation", "elicitation"),
    ElicitationCompleteParams: ("has_elicitation_ids", "notifications/elicitation/complete"),
    content.ToolUseContent: ("has_sampling_tools", "tool calls in sampling messages"),
    content.ToolResultContent: ("has_sampling_tools", "tool results in sampling messages"),
}
