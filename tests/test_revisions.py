"""The records say what the five schemas say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcplumb.errors import UsageError
from mcplumb.revisions import (
    LATEST,
    LATEST_LEGACY,
    LEGACY,
    MODERN,
    REVISIONS,
    Revision,
    allowed_revisions,
    choose_revision,
    find_revision,
    get_revision,
)
from tests import spec

NAMES = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]


def defines(name: str) -> Callable[[str], bool]:
    return lambda revision: name in spec.definitions(revision)


def lists(definition: str, *path: str) -> Callable[[str], bool]:
    """Whether a definition lists a property, or a property of a property."""

    def check(revision: str) -> bool:
        node: dict[str, Any] = spec.definitions(revision).get(definition, {})
        for name in path:
            node = node.get("properties", {}).get(name)
            if node is None:
                return False
        return True

    return check


def has_method(*names: str) -> Callable[[str], bool]:
    def check(revision: str) -> bool:
        found = [name in spec.methods(revision) for name in names]
        assert len(set(found)) == 1
        return found[0]

    return check


def together(*checks: Callable[[str], bool]) -> Callable[[str], bool]:
    """One flag for several things: a revision has all of them or none."""

    def check(revision: str) -> bool:
        found = [one(revision) for one in checks]
        assert len(set(found)) == 1
        return found[0]

    return check


def params(definition: str, *path: str) -> Callable[[str], bool]:
    """Whether a request's or notification's params list a property; they may have a definition of their own."""

    def check(revision: str) -> bool:
        return lists(definition, "params", *path)(revision) or lists(f"{definition}Params", *path)(revision)

    return check


def error_without_id(revision: str) -> bool:
    definitions = spec.definitions(revision)
    error = definitions.get("JSONRPCErrorResponse") or definitions["JSONRPCError"]
    return "id" not in error["required"]


def any_structured_content(revision: str) -> bool:
    content = spec.properties(revision, "CallToolResult").get("structuredContent")
    schema = spec.properties(revision, "Tool").get("outputSchema", {})
    free = content == {}
    assert free == (bool(schema) and "type" not in schema.get("required", []))
    return free


def any_input_schema(revision: str) -> bool:
    schema = spec.properties(revision, "Tool")["inputSchema"]
    return "additionalProperties" in schema


def item_meta(revision: str) -> bool:
    items = ["Tool", "Resource", "ResourceTemplate", "Prompt", "Root", "TextContent", "ImageContent"]
    return together(*(lists(item, "_meta") for item in [*items, "EmbeddedResource", "TextResourceContents"]))(revision)


#: For each flag, how a schema shows it.
VISIBLE: dict[str, Callable[[str], bool]] = {
    "is_modern": lists("RequestMetaObject", "io.modelcontextprotocol/protocolVersion"),
    "has_batches": together(defines("JSONRPCBatchRequest"), defines("JSONRPCBatchResponse")),
    "has_idless_errors": error_without_id,
    "has_server_requests": defines("ServerRequest"),
    "has_result_types": together(lists("Result", "resultType"), lists("CallToolResult", "resultType")),
    "has_handshake": has_method("initialize", "notifications/initialized"),
    "has_discover": has_method("server/discover"),
    "has_ping": has_method("ping"),
    "has_set_level": has_method("logging/setLevel"),
    "has_resource_subscribe": has_method("resources/subscribe", "resources/unsubscribe"),
    "has_listen": has_method("subscriptions/listen", "notifications/subscriptions/acknowledged"),
    "has_roots_list_changed": together(
        has_method("notifications/roots/list_changed"), lists("ClientCapabilities", "roots", "listChanged")
    ),
    "has_input_required": together(
        defines("InputRequiredResult"),
        lists("CallToolRequestParams", "inputResponses"),
        lists("CallToolRequestParams", "requestState"),
    ),
    "has_tasks": together(
        has_method("tasks/get", "tasks/cancel", "tasks/list", "tasks/result"),
        lists("ClientCapabilities", "tasks"),
        lists("ServerCapabilities", "tasks"),
        lists("Tool", "execution"),
    ),
    "has_cache_hints": together(
        *(
            lists(f"{name}Result", field)
            for name in ("ListTools", "ListPrompts", "ListResources", "ListResourceTemplates", "ReadResource")
            for field in ("ttlMs", "cacheScope")
        )
    ),
    "has_structured_content": together(lists("CallToolResult", "structuredContent"), lists("Tool", "outputSchema")),
    "has_any_structured_content": any_structured_content,
    "has_audio": defines("AudioContent"),
    "has_resource_links": defines("ResourceLink"),
    "has_last_modified": lists("Annotations", "lastModified"),
    "has_item_meta": item_meta,
    "has_titles": together(
        *(lists(name, "title") for name in ("Tool", "Resource", "ResourceTemplate", "Prompt", "PromptArgument")),
        *(lists(name, "title") for name in ("Implementation", "PromptReference")),
    ),
    "has_icons": together(
        *(lists(name, "icons") for name in ("Tool", "Resource", "ResourceTemplate", "Prompt", "Implementation"))
    ),
    "has_implementation_details": together(
        lists("Implementation", "description"), lists("Implementation", "websiteUrl")
    ),
    "has_tool_annotations": lists("Tool", "annotations"),
    "has_schema_dialects": lists("Tool", "inputSchema", "$schema"),
    "has_any_input_schema": any_input_schema,
    "has_completions_capability": lists("ServerCapabilities", "completions"),
    "has_completion_context": params("CompleteRequest", "context"),
    "has_progress_message": params("ProgressNotification", "message"),
    "has_elicitation": together(defines("ElicitRequest"), lists("ClientCapabilities", "elicitation")),
    "has_url_elicitation": together(
        lists("ElicitRequestFormParams", "mode"),
        lists("ElicitRequestURLParams", "mode"),
        lists("ClientCapabilities", "elicitation", "url"),
    ),
    "has_elicitation_ids": together(
        lists("ElicitRequestURLParams", "elicitationId"),
        has_method("notifications/elicitation/complete"),
        defines("URLElicitationRequiredError"),
    ),
    "has_form_defaults": together(lists("StringSchema", "default"), lists("NumberSchema", "default")),
    "has_form_choices": together(
        defines("TitledSingleSelectEnumSchema"),
        defines("UntitledMultiSelectEnumSchema"),
        defines("TitledMultiSelectEnumSchema"),
    ),
    "has_sampling_tools": together(
        params("CreateMessageRequest", "tools"),
        params("CreateMessageRequest", "toolChoice"),
        defines("ToolUseContent"),
        defines("ToolResultContent"),
        lists("SamplingMessage", "_meta"),
        lists("ClientCapabilities", "sampling", "tools"),
    ),
    "has_extensions": together(lists("ClientCapabilities", "extensions"), lists("ServerCapabilities", "extensions")),
}

#: Flags about HTTP, on which the schemas are silent.
INVISIBLE = {
    "has_http_sse",
    "has_streamable_http",
    "has_session_ids",
    "has_resumption",
    "has_priming_events",
    "has_version_header",
    "has_mirrored_headers",
}


@pytest.mark.req("LEG-5")
def test_every_flag_is_checked_or_known_to_be_invisible() -> None:
    flags = {name for name in Revision.__struct_fields__ if name.startswith("has_")}
    assert flags == (VISIBLE.keys() - {"is_modern"}) | INVISIBLE
    assert not VISIBLE.keys() & INVISIBLE
    assert set(Revision.__struct_fields__) - flags == {"name", "era", "resource_not_found"}


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize("revision", REVISIONS, ids=str)
@pytest.mark.parametrize("flag", VISIBLE)
def test_the_record_says_what_the_schema_says(flag: str, revision: Revision) -> None:
    assert getattr(revision, flag) == VISIBLE[flag](revision.name)


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize(
    ("flag", "names"),
    [
        ("has_http_sse", NAMES[4:]),
        ("has_streamable_http", NAMES[:4]),
        ("has_session_ids", NAMES[1:4]),
        ("has_resumption", NAMES[1:4]),
        ("has_priming_events", NAMES[1:2]),
        ("has_version_header", NAMES[:3]),
        ("has_mirrored_headers", NAMES[:1]),
    ],
)
def test_http(flag: str, names: list[str]) -> None:
    assert [revision.name for revision in REVISIONS if getattr(revision, flag)] == names


@pytest.mark.req("LEG-6")
def test_the_code_for_a_resource_that_is_not_found() -> None:
    assert {revision.resource_not_found for revision in MODERN} == {-32602}
    assert {revision.resource_not_found for revision in LEGACY} == {-32002}


def test_all_revisions_newest_first() -> None:
    assert [str(revision) for revision in REVISIONS] == NAMES
    assert MODERN == (LATEST,)
    assert REVISIONS[1:] == LEGACY
    assert LATEST.name == NAMES[0]
    assert LATEST_LEGACY.name == NAMES[1]
    assert [revision.era for revision in REVISIONS] == ["modern", "legacy", "legacy", "legacy", "legacy"]


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
def test_find_revision(revision: Revision) -> None:
    assert find_revision(revision.name) is revision


@pytest.mark.parametrize("name", ["2025-01-01", "", None, 20241105, [], {}])
def test_find_revision_that_does_not_exist(name: object) -> None:
    assert find_revision(name) is None


def test_a_revision_is_shown_by_its_name() -> None:
    assert str(LATEST) == "2026-07-28"
    assert repr(LATEST) == "Revision('2026-07-28')"


def test_get_revision() -> None:
    assert get_revision("2025-06-18") is REVISIONS[2]
    with pytest.raises(UsageError, match="There is no protocol revision '2025-06-19'"):
        get_revision("2025-06-19")


def test_allowed_revisions() -> None:
    assert allowed_revisions(None) == REVISIONS
    assert allowed_revisions(["2024-11-05", "2026-07-28", "2024-11-05"]) == (REVISIONS[0], REVISIONS[4])
    assert allowed_revisions(name for name in NAMES) == REVISIONS
    assert allowed_revisions("2025-06-18") == (REVISIONS[2],)


def test_allowed_revisions_must_exist() -> None:
    with pytest.raises(
        UsageError, match=r"^There is no protocol revision '2025-06-19'\. The known ones are 2026-07-28"
    ):
        allowed_revisions(["2025-06-18", "2025-06-19"])
    with pytest.raises(UsageError, match=r"^An empty list of protocol revisions allows nothing"):
        allowed_revisions([])


def test_choose_revision() -> None:
    assert choose_revision(REVISIONS, ["2024-11-05", "2025-11-25"]) is REVISIONS[1]
    assert choose_revision(LEGACY, NAMES) is LATEST_LEGACY
    assert choose_revision(REVISIONS, ["2099-01-01", None, 7, [], "2025-03-26"]) is REVISIONS[3]
    assert choose_revision([REVISIONS[2]], ["2025-03-26"]) is None
    assert choose_revision(REVISIONS, []) is None
    assert choose_revision([], NAMES) is None
