"""The five protocol revisions: one frozen record of features for each.

This is the only module that compares revision names; all other code checks a feature (``revision.has_batches``).
The tests check each record against that revision's official schema wherever the schema shows the feature.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from mcplumb.errors import UsageError

__all__ = [
    "LATEST",
    "LATEST_LEGACY",
    "LEGACY",
    "MODERN",
    "REVISIONS",
    "Era",
    "Revision",
    "allowed_revisions",
    "choose_revision",
    "find_revision",
    "get_revision",
    "newest_first",
]

Era = Literal["modern", "legacy"]


class Revision(msgspec.Struct, frozen=True, kw_only=True):
    """The features of one protocol revision. ``str(revision)`` is its date."""

    name: str
    #: ``modern``: every request carries its own metadata. ``legacy``: a session is opened with ``initialize``.
    era: Era

    # Messages
    #: Several messages in one JSON array.
    has_batches: bool = False
    #: Error responses without an id, for input whose id cannot be read.
    has_idless_errors: bool = False
    #: The server may send requests of its own.
    has_server_requests: bool = False
    #: ``resultType`` in every result.
    has_result_types: bool = False
    #: The error code for a resource that does not exist.
    resource_not_found: int = -32002

    # Methods
    #: ``initialize`` and ``notifications/initialized``.
    has_handshake: bool = False
    #: ``server/discover``.
    has_discover: bool = False
    #: ``ping``, both ways.
    has_ping: bool = False
    #: ``logging/setLevel``; without it, each request carries the log level.
    has_set_level: bool = False
    #: ``resources/subscribe`` and ``resources/unsubscribe``.
    has_resource_subscribe: bool = False
    #: ``subscriptions/listen``.
    has_listen: bool = False
    #: ``notifications/roots/list_changed``.
    has_roots_list_changed: bool = False
    #: Results that ask the client for input (``input_required``) instead of requests from the server.
    has_input_required: bool = False
    #: Tasks as an experimental part of the core protocol.
    has_tasks: bool = False

    # Results
    #: ``ttlMs`` and ``cacheScope``.
    has_cache_hints: bool = False
    #: ``structuredContent`` in tool results and ``outputSchema`` on tools.
    has_structured_content: bool = False
    #: Structured content may be any JSON value, and an output schema any schema; before, objects only.
    has_any_structured_content: bool = False

    # Content
    has_audio: bool = False
    has_resource_links: bool = False
    #: ``lastModified`` in annotations.
    has_last_modified: bool = False
    #: ``_meta`` on tools, resources, prompts, roots and content, not only on params and results.
    has_item_meta: bool = False

    # Descriptions
    #: ``title`` beside ``name``.
    has_titles: bool = False
    has_icons: bool = False
    #: ``description`` and ``websiteUrl`` of a client or server.
    has_implementation_details: bool = False
    #: Hints such as ``readOnlyHint`` on tools.
    has_tool_annotations: bool = False
    #: ``$schema`` in a tool's or a form's schema.
    has_schema_dialects: bool = False
    #: A tool's input schema may use every keyword of JSON Schema.
    has_any_input_schema: bool = False

    # Completion, progress
    #: The capability ``completions`` (the method itself is in every revision).
    has_completions_capability: bool = False
    #: ``context`` in completion requests: the values that other arguments already have.
    has_completion_context: bool = False
    #: ``message`` in progress notifications.
    has_progress_message: bool = False

    # Client input
    has_elicitation: bool = False
    #: ``mode`` in elicitation requests, with ``url`` as one of the modes.
    has_url_elicitation: bool = False
    #: ``elicitationId`` in URL elicitation, ``notifications/elicitation/complete``, and error -32042.
    has_elicitation_ids: bool = False
    #: Defaults for strings, numbers and choices in forms (booleans had them from the start).
    has_form_defaults: bool = False
    #: Choices with titles (``oneOf``) and choices of several values in forms.
    has_form_choices: bool = False
    #: Tools in sampling requests, and several content blocks in one sampling message.
    has_sampling_tools: bool = False

    # Capabilities
    #: ``extensions`` in capabilities.
    has_extensions: bool = False

    # HTTP
    #: The HTTP+SSE transport with its two endpoints.
    has_http_sse: bool = False
    has_streamable_http: bool = False
    #: ``Mcp-Session-Id`` and the stream opened with GET.
    has_session_ids: bool = False
    #: Streams resumed with ``Last-Event-ID``.
    has_resumption: bool = False
    #: Streams that begin with an event that has only an id, and may end early: the client reconnects for the rest.
    has_priming_events: bool = False
    #: The header ``MCP-Protocol-Version``.
    has_version_header: bool = False
    #: The headers ``Mcp-Method``, ``Mcp-Name`` and ``Mcp-Param-*``, which mirror the body.
    has_mirrored_headers: bool = False

    @property
    def is_modern(self) -> bool:
        """Whether requests carry their own metadata."""
        return self.era == "modern"

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Revision({self.name!r})"


_2024_11_05 = Revision(
    name="2024-11-05",
    era="legacy",
    has_server_requests=True,
    has_handshake=True,
    has_ping=True,
    has_set_level=True,
    has_resource_subscribe=True,
    has_roots_list_changed=True,
    has_http_sse=True,
)

_2025_03_26 = msgspec.structs.replace(
    _2024_11_05,
    name="2025-03-26",
    has_batches=True,
    has_audio=True,
    has_tool_annotations=True,
    has_completions_capability=True,
    has_progress_message=True,
    has_http_sse=False,
    has_streamable_http=True,
    has_session_ids=True,
    has_resumption=True,
)

_2025_06_18 = msgspec.structs.replace(
    _2025_03_26,
    name="2025-06-18",
    has_batches=False,
    has_structured_content=True,
    has_resource_links=True,
    has_last_modified=True,
    has_item_meta=True,
    has_titles=True,
    has_completion_context=True,
    has_elicitation=True,
    has_version_header=True,
)

_2025_11_25 = msgspec.structs.replace(
    _2025_06_18,
    name="2025-11-25",
    has_idless_errors=True,
    has_tasks=True,
    has_icons=True,
    has_implementation_details=True,
    has_schema_dialects=True,
    has_url_elicitation=True,
    has_elicitation_ids=True,
    has_form_defaults=True,
    has_form_choices=True,
    has_sampling_tools=True,
    has_priming_events=True,
)

_2026_07_28 = msgspec.structs.replace(
    _2025_11_25,
    name="2026-07-28",
    era="modern",
    has_server_requests=False,
    has_result_types=True,
    resource_not_found=-32602,
    has_handshake=False,
    has_discover=True,
    has_ping=False,
    has_set_level=False,
    has_resource_subscribe=False,
    has_listen=True,
    has_roots_list_changed=False,
    has_input_required=True,
    has_tasks=False,
    has_cache_hints=True,
    has_any_structured_content=True,
    has_any_input_schema=True,
    has_elicitation_ids=False,
    has_extensions=True,
    has_session_ids=False,
    has_resumption=False,
    has_priming_events=False,
    has_mirrored_headers=True,
)

#: All revisions, newest first: the order of preference.
REVISIONS: tuple[Revision, ...] = (_2026_07_28, _2025_11_25, _2025_06_18, _2025_03_26, _2024_11_05)
MODERN: tuple[Revision, ...] = tuple(r for r in REVISIONS if r.is_modern)
LEGACY: tuple[Revision, ...] = tuple(r for r in REVISIONS if not r.is_modern)
LATEST: Revision = REVISIONS[0]
LATEST_LEGACY: Revision = LEGACY[0]

_BY_NAME = {revision.name: revision for revision in REVISIONS}


def find_revision(name: object) -> Revision | None:
    """Return the revision called ``name``, or None if it does not exist."""
    return _BY_NAME.get(name) if isinstance(name, str) else None


def get_revision(name: str) -> Revision:
    """Return the revision called ``name``; raise UsageError if it does not exist."""
    revision = find_revision(name)
    if revision is None:
        raise UsageError(f"There is no protocol revision {name!r}. The known ones are {', '.join(_BY_NAME)}.")
    return revision


def allowed_revisions(names: Iterable[str] | None) -> tuple[Revision, ...]:
    """Return the revisions with these dates, newest first; all revisions for None."""
    if names is None:
        return REVISIONS
    if isinstance(names, str):
        names = (names,)
    wanted = [get_revision(name) for name in names]
    if not wanted:
        raise UsageError(
            f"An empty list of protocol revisions allows nothing. The known ones are {', '.join(_BY_NAME)}."
        )
    return newest_first(wanted)


def newest_first(revisions: Iterable[Revision]) -> tuple[Revision, ...]:
    """Return the revisions in the order of preference, without duplicates."""
    by_name = {revision.name: revision for revision in revisions}
    return tuple(by_name[name] for name in sorted(by_name, reverse=True))


def choose_revision(ours: Iterable[Revision], theirs: Iterable[object]) -> Revision | None:
    """Return the newest of ``ours`` whose name is in ``theirs``, or None. Elements that are not strings are ignored."""
    names = {name for name in theirs if isinstance(name, str)}
    return next((revision for revision in newest_first(ours) if revision.name in names), None)
