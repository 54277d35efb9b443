"""What is written for a revision is what that revision's schema lists, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb import types as t
from mcplumb.errors import NotInRevision
from mcplumb.revisions import LATEST, LEGACY, REVISIONS, Revision
from mcplumb.types.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION
from mcplumb.types.methods import METHODS, Method
from tests import spec
from tests.kit.products import examples
from tests.types.strategies import payloads

_2026_07_28, _2025_11_25, _2025_06_18, _2025_03_26, _2024_11_05 = REVISIONS

#: Requests that the newest revision has within results instead of as messages.
EMBEDDED = {"sampling/createMessage", "elicitation/create", "roots/list"}

#: The specification's name for a result, where it is another than ours.
RESULTS: dict[type[t.Payload], str] = {t.Result: "EmptyResult", t.ListenResult: "SubscriptionsListenResult"}


def written(payload: t.Payload, revision: Revision) -> Any:
    return json.loads(msgspec.json.encode(t.for_revision(payload, revision)))


def cannot_be_said(payload: t.Payload, revision: Revision) -> bool:
    """Whether a revision that has the method still has no way to say this."""
    match payload:
        case t.CancelledParams(request_id=None):
            return not revision.has_tasks
        case t.CreateMessageParams(messages=messages):
            return any(cannot_be_said(message, revision) for message in messages)
        case t.SamplingMessage() | t.CreateMessageResult():
            tools = any(isinstance(block, t.ToolUseContent | t.ToolResultContent) for block in payload.blocks)
            return not revision.has_sampling_tools and (tools or len(payload.blocks) != 1)
        case t.ElicitParams(mode="url"):
            without_id = revision.has_elicitation_ids and payload.elicitation_id is None
            return without_id or not revision.has_url_elicitation
        case t.ElicitParams():
            fields = payload.read_form().properties.values()
            several = any(isinstance(field, t.MultiSelectSchema) for field in fields)
            return several and not revision.has_form_choices
        case t.ElicitResult():
            several = any(isinstance(value, list) for value in (payload.content or {}).values())
            return several and not revision.has_form_choices
    return False


def with_request_meta(params: t.Params) -> t.Params:
    """A modern request needs its metadata, which the layer above knows."""
    if params.meta is not None:
        return params
    return msgspec.structs.replace(params, meta={PROTOCOL_VERSION: str(LATEST), CLIENT_CAPABILITIES: {}})


def message(method: Method, params: t.Params, revision: Revision) -> dict[str, Any]:
    """The message with as much of an envelope as the schema lists: older ones define it elsewhere."""
    envelope = {"jsonrpc": "2.0", "id": 1, "method": method.name}
    listed = spec.properties(str(revision), spec.methods(str(revision))[method.name])
    return {key: value for key, value in envelope.items() if key in listed} | {"params": written(params, revision)}


def check(definition: str, value: Any, revision: Revision) -> None:
    spec.official_validator(str(revision), definition).validate(value)
    spec.validator(str(revision), definition).validate(value)


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
@examples(50)
@given(data=st.data())
def test_params_are_valid_in_every_revision(method: Method, data: st.DataObject) -> None:
    params = data.draw(payloads(method.params))
    for revision in REVISIONS:
        definition = spec.methods(str(revision)).get(method.name)
        is_embedded = method.name in EMBEDDED and revision.has_input_required
        assert (definition is not None) == (method.in_revision(revision) or is_embedded)
        if definition is None:
            continue
        if revision.is_modern and not (method.is_notification or is_embedded):
            params = with_request_meta(params)
        if cannot_be_said(params, revision):
            with pytest.raises(NotInRevision, match=str(revision)):
                t.for_revision(params, revision)
        else:
            check(definition, message(method, params, revision), revision)


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize(
    "method", [method for method in METHODS.values() if not method.is_notification], ids=lambda method: method.name
)
@examples(50)
@given(data=st.data())
def test_results_are_valid_in_every_revision(method: Method, data: st.DataObject) -> None:
    assert method.result is not None
    result = data.draw(payloads(method.result))
    for revision in REVISIONS:
        if method.name not in spec.methods(str(revision)):
            continue
        if cannot_be_said(result, revision):
            with pytest.raises(NotInRevision, match=str(revision)):
                t.for_revision(result, revision)
            continue
        value = written(result, revision)
        check(RESULTS.get(method.result, method.result.__name__), value, revision)
        # The definition of the empty result is open to everything, so it would not notice this.
        assert ("resultType" in value) == (revision.has_result_types and isinstance(result, t.Result))


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize("kind", [t.ClientCapabilities, t.ServerCapabilities, t.Implementation])
@examples(50)
@given(data=st.data())
def test_what_is_sent_within_meta_is_valid_in_every_revision(kind: type[t.Payload], data: st.DataObject) -> None:
    part = data.draw(payloads(kind))
    for revision in REVISIONS:
        check(kind.__name__, written(part, revision), revision)


@pytest.mark.req("LEG-5")
@examples(60)
@given(payloads(t.InputRequiredResult))
def test_input_required_results_are_valid_in_the_revisions_that_have_them(result: t.InputRequiredResult) -> None:
    check("InputRequiredResult", written(result, LATEST), LATEST)
    for revision in LEGACY:
        with pytest.raises(NotInRevision, match=f"^Protocol revision {revision} has no results that ask for input.$"):
            t.for_revision(result, revision)


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
@examples(15)
@given(data=st.data())
def test_writing_twice_changes_nothing(method: Method, data: st.DataObject) -> None:
    kinds = [kind for kind in (method.params, method.result) if kind is not None]
    payload = data.draw(st.one_of(*(payloads(kind) for kind in kinds)))
    for revision in REVISIONS:
        try:
            once = t.for_revision(payload, revision)
        except NotInRevision:
            continue
        assert t.for_revision(once, revision) is once


def test_the_same_object_when_nothing_has_to_change() -> None:
    block = t.TextContent("hi", annotations=t.Annotations(priority=1))
    for revision in REVISIONS:
        assert t.for_revision(block, revision) is block
    result = t.CallToolResult([block], result_type="complete")
    assert t.for_revision(result, LATEST) is result
    result = t.CallToolResult([block], is_error=True)
    for revision in LEGACY:
        assert t.for_revision(result, revision) is result


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
def test_what_the_revision_requires_is_filled_in(revision: Revision) -> None:
    expected = {"tools": []} | (
        {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if revision.is_modern else {}
    )
    assert written(t.ListToolsResult(tools=[]), revision) == expected


def test_what_was_said_is_kept() -> None:
    result = t.ListToolsResult(tools=[], ttl_ms=5, cache_scope="public", result_type="other")
    assert t.for_revision(result, LATEST) is result
    assert written(result, _2025_11_25) == {"tools": []}


def test_a_result_that_asks_for_input_says_so() -> None:
    assert written(t.InputRequiredResult(request_state="s"), LATEST) == {
        "resultType": "input_required",
        "requestState": "s",
    }


def test_payloads_within_payloads_are_written_for_the_revision() -> None:
    icon = t.Icon("https://example.com/i.png")
    result = t.ListToolsResult(
        tools=[t.Tool("old", {"type": "object"}), t.Tool("new", {"type": "object"}, icons=[icon], meta={"a": 1})]
    )
    tools = t.for_revision(result, _2025_06_18).tools
    assert tools[0] is result.tools[0]
    assert tools[1] == t.Tool("new", {"type": "object"}, meta={"a": 1})
    assert result.tools[1].icons == [icon]


def test_answers_within_a_request_are_written_for_the_revision() -> None:
    raw = {"roots": [], "_meta": {"a": 1}}
    answers = {"typed": t.ListRootsResult([], meta={"a": 1}), "raw": raw}
    params = t.CallToolParams("f", input_responses=answers, request_state="s")
    assert t.for_revision(params, LATEST).input_responses == {"typed": t.ListRootsResult([]), "raw": raw}
    assert t.for_revision(params, _2025_11_25) == t.CallToolParams("f")
    untouched = t.CallToolParams("f", input_responses={"raw": raw})
    assert t.for_revision(untouched, LATEST) is untouched


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize(
    ("payload", "thing", "revisions"),
    [
        (t.DiscoverResult(supported_versions=[], capabilities=t.ServerCapabilities()), "server/discover", LEGACY),
        (t.ListenParams(t.SubscriptionFilter()), "subscriptions/listen", LEGACY),
        (t.AcknowledgedParams(t.SubscriptionFilter()), "subscriptions/listen", LEGACY),
        (t.ListenResult(), "subscriptions/listen", LEGACY),
        (t.SetLevelParams("info"), "logging/setLevel", [LATEST]),
        (t.ResourceParams("a:b"), "resources/subscribe", [LATEST]),
        (t.ElicitResult("cancel"), "elicitation", [_2025_03_26, _2024_11_05]),
        (t.ElicitParams.for_url("m", "a:b", "1"), "elicitation", [_2025_03_26, _2024_11_05]),
        (t.ElicitationCompleteParams("1"), "notifications/elicitation/complete", [LATEST, _2025_06_18]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_payload_that_a_revision_does_not_have_is_refused(
    payload: t.Payload, thing: str, revisions: list[Revision]
) -> None:
    for revision in revisions:
        with pytest.raises(NotInRevision, match=f"^Protocol revision {revision} has no {thing}.$"):
            t.for_revision(payload, revision)


def test_handshake_is_refused_where_there_is_none() -> None:
    me = t.Implementation("me", "1")
    opening = t.InitializeParams(protocol_version="x", capabilities=t.ClientCapabilities(), client_info=me)
    answer = t.InitializeResult(protocol_version="x", capabilities=t.ServerCapabilities(), server_info=me)
    for payload in (opening, answer):
        with pytest.raises(NotInRevision, match="has no initialize"):
            t.for_revision(payload, LATEST)


def test_a_block_may_come_back_as_one_of_another_type() -> None:
    link: t.Payload = t.ResourceLink("file:///a", "A", meta={"a": 1})
    assert t.for_revision(link, _2024_11_05) == t.TextContent("A: file:///a")


@pytest.mark.req("LEG-5")
def test_a_type_of_the_callers_own_is_written_as_the_one_it_comes_from() -> None:
    class MyTool(t.Tool, frozen=True):
        pass

    tools = t.ListToolsResult(tools=[MyTool("a", {"type": "object"}, title="A")])
    written = msgspec.json.encode(t.for_revision(tools, _2024_11_05))
    assert b"title" not in written


@pytest.mark.req("LEG-5")
def test_a_tuple_will_do_for_a_list() -> None:
    blocks: Any = (t.AudioContent("AAAA", "audio/wav"), t.TextContent("hi"))
    written = t.for_revision(t.CallToolResult(blocks), _2024_11_05)
    assert [type(block) for block in written.content] == [t.TextContent, t.TextContent]
