from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from mcplumb import types as t
from mcplumb.errors import DecodeError, NotInRevision
from mcplumb.protocol.translation import (
    answer_for_server,
    asks_for_input,
    error_for_client,
    is_input_required,
    members_of,
    meta_for_server,
    params_for_server,
    params_with_meta,
    question_for_client,
    read_input_required,
    result_for_client,
    urls_to_visit,
)
from mcplumb.revisions import LATEST, LATEST_LEGACY, LEGACY, REVISIONS, Revision
from mcplumb.types.meta import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    SERVER_INFO,
)
from mcplumb.wire.messages import INVALID_PARAMS, URL_ELICITATION_REQUIRED, ErrorDetail
from tests.types.strategies import payloads

_2026_07_28, _2025_11_25, _2025_06_18, _2025_03_26, _2024_11_05 = REVISIONS

#: The results whose parts differ between revisions, and the member that has the items.
RESULTS: dict[str, tuple[type[t.Payload], str]] = {
    "tools/list": (t.ListToolsResult, "tools"),
    "tools/call": (t.CallToolResult, "content"),
    "resources/list": (t.ListResourcesResult, "resources"),
    "resources/templates/list": (t.ListResourceTemplatesResult, "resourceTemplates"),
    "resources/read": (t.ReadResourceResult, "contents"),
    "prompts/list": (t.ListPromptsResult, "prompts"),
    "prompts/get": (t.GetPromptResult, "messages"),
    "completion/complete": (t.CompleteResult, "completion"),
}
#: What a modern result has, and a legacy one does not.
FILLED_IN = {"resultType", "ttlMs", "cacheScope", "_meta"}
#: Bytes that no encoder of this package writes, so they have not been decoded and written again.
ODD = b'{ "deep" : [1E2,  "\\u0041", {"b":1, "a":2} ] }'
INFO = t.Implementation("peer", "1", title="A peer")

pairs = st.sampled_from(list(product(REVISIONS, REVISIONS)))
each_pair = pytest.mark.parametrize(("front", "back"), list(product(REVISIONS, REVISIONS)), ids=str)


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(value if isinstance(value, bytes) else msgspec.json.encode(value))


def written(value: Any) -> bytes:
    return msgspec.json.encode(value)


def plain(value: Any) -> Any:
    return msgspec.json.decode(written(value))


@st.composite
def results(draw: st.DrawFn) -> tuple[str, msgspec.Raw, Revision, Revision]:
    """A result of a server, as its revision has it, and the revisions of the client and the server."""
    method = draw(st.sampled_from(sorted(RESULTS)))
    front, back = draw(pairs)
    payload = draw(payloads(RESULTS[method][0]))
    return method, raw(t.for_revision(payload, back)), front, back


# --- Results ---


@pytest.mark.req("BRG-1", "BRG-4")
@given(results())
def test_there_and_back_is_the_same_for_what_both_revisions_have(
    case: tuple[str, msgspec.Raw, Revision, Revision],
) -> None:
    method, result, front, back = case
    there = raw(result_for_client(result, method, front=front, back=back))
    again = raw(result_for_client(there, method, front=back, back=front))
    assert plain(result_for_client(again, method, front=front, back=back)) == plain(there)
    if front is back:
        assert result_for_client(result, method, front=front, back=back) is result


@pytest.mark.req("BRG-4")
@given(results())
def test_nothing_is_invented(case: tuple[str, msgspec.Raw, Revision, Revision]) -> None:
    method, result, front, back = case
    before, after = plain(result), plain(result_for_client(result, method, front=front, back=back))
    added = after.keys() - before.keys()
    assert added <= (FILLED_IN - {"_meta"} if front.has_result_types and not back.has_result_types else set())
    name = RESULTS[method][1]
    old, new = before[name], after[name]
    if not isinstance(old, list):
        assert new == old
        return
    if method == "tools/call" and not old and new:
        # A result that had only structured content, which the revision lacks.
        assert new == [{"type": "text", "text": new[0]["text"]}]
        assert msgspec.json.decode(new[0]["text"]) == before["structuredContent"]
        return
    assert len(new) == len(old)
    for one, other in zip(old, new, strict=True):
        if one.get("type") != other.get("type"):
            assert other["type"] == "text"
        else:
            # The title of a tool moves into its annotations where there is no other place for it.
            assert other.keys() - one.keys() <= {"annotations"}


@pytest.mark.req("BRG-4")
@given(results())
def test_what_no_revision_knows_keeps_its_bytes(case: tuple[str, msgspec.Raw, Revision, Revision]) -> None:
    method, result, front, back = case
    members = members_of(result)
    name = RESULTS[method][1]
    if members[name].__class__ is msgspec.Raw and bytes(members[name]).startswith(b"["):
        items = msgspec.json.decode(members[name], type=list[dict[str, msgspec.Raw]])
        kinds = [item.get("type") for item in items]
        members[name] = raw([item | {"x-item": raw(ODD)} for item in items])
    else:
        kinds = []
    after = result_for_client(raw(members | {"x-result": raw(ODD)}), method, front=front, back=back)
    text = written(after)
    assert b'"x-result":' + ODD in text
    now = [item.get("type") for item in plain(after).get(name, [])] if kinds else []
    kept = sum(bytes(old or b"") == written(new) if old else new is None for old, new in zip(kinds, now, strict=False))
    assert text.count(b'"x-item":' + ODD) >= kept


@pytest.mark.req("BRG-4")
@each_pair
def test_unknown_content_keeps_its_bytes(front: Revision, back: Revision) -> None:
    block = b'{ "type" :"video", "frames": [1E2 ] , "_meta": {"a":1}}'
    call = raw(b'{"content":[' + block + b',{"type":"text","text":"x","_meta":{"k":1}}]}')
    assert block in written(result_for_client(call, "tools/call", front=front, back=back))
    prompt = raw(b'{"messages":[{"role":"user","content":' + block + b"}]}")
    assert block in written(result_for_client(prompt, "prompts/get", front=front, back=back))
    asked = raw(b'{"maxTokens":1,"messages":[{"role":"user","content":' + block + b"}]}")
    assert block in written(question_for_client(asked, "sampling/createMessage", front, new_id="x"))


@pytest.mark.req("BRG-4")
@each_pair
def test_results_of_extensions_keep_their_bytes(front: Revision, back: Revision) -> None:
    result = raw(b'{"answer":' + ODD + b"}")
    assert b'"answer":' + ODD in written(result_for_client(result, "example.com/ask", front=front, back=back))
    params = {"question": raw(ODD), "_meta": raw({})}
    assert written(params_for_server(params, "example.com/ask", back)) == b'{"question":' + ODD + b"}"


def test_a_part_deep_within_keeps_what_no_revision_knows() -> None:
    prompt = {"name": "p", "arguments": [{"name": "a", "title": "A", "x-deep": raw(ODD)}], "title": "P"}
    after = result_for_client(raw({"prompts": [prompt]}), "prompts/list", front=_2024_11_05, back=_2025_06_18)
    assert plain(after) == {"prompts": [{"name": "p", "arguments": [{"name": "a", "x-deep": plain(raw(ODD))}]}]}
    assert b'"x-deep":' + ODD in written(after)


def test_an_unchanged_item_keeps_its_bytes() -> None:
    old = b'{ "name":"a", "inputSchema":{"type":"object"} }'
    new = b'{"name":"b","title":"B","inputSchema":{"type":"object"}}'
    result = raw(b'{"tools":[' + old + b"," + new + b"]}")
    after = written(result_for_client(result, "tools/list", front=_2024_11_05, back=_2025_06_18))
    assert after == b'{"tools":[' + old + b',{"name":"b","inputSchema":{"type":"object"}}]}'


@each_pair
@pytest.mark.parametrize("items", [b"7", b'"text"', b'{"a":1}', b'[7,"x",null,{"no":"name"}]'])
def test_what_cannot_be_read_passes(front: Revision, back: Revision, items: bytes) -> None:
    result = raw(b'{"tools":' + items + b"}")
    assert b'"tools":' + items in written(result_for_client(result, "tools/list", front=front, back=back))


@pytest.mark.parametrize("result", [b"7", b"[1]", b"null", b"\xff", b'{"a":'])
def test_a_result_that_is_no_object_is_refused(result: bytes) -> None:
    with pytest.raises(DecodeError, match="is not a JSON object"):
        result_for_client(raw(result), "tools/list", front=LATEST, back=LATEST_LEGACY)


@pytest.mark.parametrize("back", LEGACY, ids=str)
def test_a_modern_client_gets_the_type_the_hints_and_the_server(back: Revision) -> None:
    listed = raw({"tools": [], "_meta": {"k": 1}})
    after = result_for_client(listed, "tools/list", front=LATEST, back=back, server_info=INFO)
    assert plain(after) == {
        "tools": [],
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"k": 1, SERVER_INFO: {"name": "peer", "version": "1", "title": "A peer"}},
    }
    called = plain(result_for_client(raw({"content": []}), "tools/call", front=LATEST, back=back))
    assert called == {"content": [], "resultType": "complete"}
    odd = result_for_client(raw({"content": [], "_meta": None}), "tools/call", front=LATEST, back=back)
    assert plain(odd) == {"content": [], "_meta": None, "resultType": "complete"}
    named = result_for_client(raw({"_meta": 7}), "tools/call", front=LATEST, back=back, server_info=INFO)
    assert list(plain(named)["_meta"]) == [SERVER_INFO]
    # A server that says something else itself keeps it.
    own = raw({"resultType": "own", "ttlMs": 5, "cacheScope": "public", "_meta": {SERVER_INFO: {"name": "x"}}})
    after = result_for_client(own, "tools/list", front=LATEST, back=back, server_info=INFO)
    assert plain(after) == plain(own)


@pytest.mark.parametrize("front", LEGACY, ids=str)
def test_a_legacy_client_gets_none_of_them(front: Revision) -> None:
    info = {SERVER_INFO: {"name": "peer", "version": "1"}}
    modern = {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    after = result_for_client(raw(modern | {"_meta": info}), "tools/list", front=front, back=LATEST)
    assert plain(after) == {"tools": []}
    after = result_for_client(raw(modern | {"_meta": info | {"k": 1}}), "tools/list", front=front, back=LATEST)
    assert plain(after) == {"tools": [], "_meta": {"k": 1}}


def test_structured_content_is_wrapped_or_becomes_text() -> None:
    result = raw(b'{"content":[],"structuredContent":[1E2]}')
    after = result_for_client(result, "tools/call", front=_2025_06_18, back=LATEST)
    assert written(after) == b'{"content":[],"structuredContent":{"result":[1E2]}}'
    after = result_for_client(result, "tools/call", front=_2024_11_05, back=LATEST)
    assert plain(after) == {"content": [{"type": "text", "text": "[1E2]"}]}
    both = raw(b'{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":1}}')
    assert plain(result_for_client(both, "tools/call", front=_2025_06_18, back=LATEST)) == plain(both)
    after = plain(result_for_client(both, "tools/call", front=_2024_11_05, back=LATEST))
    assert after == {"content": [{"type": "text", "text": "x"}]}
    nothing = raw(b'{"content":[]}')
    assert plain(result_for_client(nothing, "tools/call", front=_2024_11_05, back=LATEST)) == {"content": []}


# --- Requests ---


@pytest.mark.parametrize("back", REVISIONS, ids=str)
def test_params_lose_what_the_server_lacks(back: Revision) -> None:
    params = {"name": raw(b'"a"'), "requestState": raw(b'"s"'), "inputResponses": raw(b"{}"), "_meta": raw(b"{}")}
    after = params_for_server(params, "tools/call", back)
    assert list(after) == (["name", "requestState", "inputResponses"] if back.is_modern else ["name"])
    asked = {"ref": raw(b"{}"), "context": raw(b"{}")}
    after = params_for_server(asked, "completion/complete", back)
    assert ("context" in after) is back.has_completion_context


@pytest.mark.parametrize("back", REVISIONS, ids=str)
def test_metadata_is_that_of_the_server_s_era(back: Revision) -> None:
    meta = {"own": 1, PROGRESS_TOKEN: 7, PROTOCOL_VERSION: "x", CLIENT_INFO: {"name": "n"}, LOG_LEVEL: "debug"}
    capabilities = t.ClientCapabilities(sampling=t.SamplingCapability())
    options: dict[str, Any] = {"capabilities": capabilities, "client_info": INFO, "log_level": "error"}
    after = plain(meta_for_server(meta, back, **options))
    if not back.is_modern:
        assert after == {"own": 1}
        return
    assert after == {
        "own": 1,
        PROTOCOL_VERSION: str(back),
        CLIENT_CAPABILITIES: {"sampling": {}},
        CLIENT_INFO: {"name": "n"},
        LOG_LEVEL: "error",
    }
    anonymous = plain(meta_for_server({}, back, capabilities=capabilities, client_info=None, log_level=None))
    assert anonymous == {PROTOCOL_VERSION: str(back), CLIENT_CAPABILITIES: {"sampling": {}}}
    legacy = plain(meta_for_server({}, back, **options))
    assert legacy[CLIENT_INFO] == {"name": "peer", "version": "1", "title": "A peer"}


def test_params_may_be_absent() -> None:
    assert members_of(UNSET) == {}
    with pytest.raises(DecodeError):
        members_of(7)


# --- Errors ---


@each_pair
def test_a_missing_resource_has_the_code_of_the_client_s_revision(front: Revision, back: Revision) -> None:
    missing = ErrorDetail(back.resource_not_found, "No such resource.", raw({"uri": "x:y"}))
    after = error_for_client(missing, "resources/read", front=front, back=back)
    assert after == ErrorDetail(front.resource_not_found, "No such resource.", missing.data)
    other = ErrorDetail(-1, "Something else.")
    assert error_for_client(other, "resources/read", front=front, back=back) is other
    assert error_for_client(missing, "tools/call", front=front, back=back) is missing


@pytest.mark.parametrize("data", [UNSET, {"field": "uri"}, raw(b"7"), object(), "uri"])
def test_other_invalid_params_are_not_taken_for_a_missing_resource(data: Any) -> None:
    invalid = ErrorDetail(INVALID_PARAMS, "The params are wrong.", data)
    assert error_for_client(invalid, "resources/read", front=LATEST_LEGACY, back=LATEST) is invalid


def test_the_data_of_a_missing_resource_may_be_decoded() -> None:
    missing = ErrorDetail(INVALID_PARAMS, "No such resource.", {"uri": "x:y"})
    assert error_for_client(missing, "resources/read", front=LATEST_LEGACY, back=LATEST).code == -32002


def test_pages_to_visit_are_read_from_an_error() -> None:
    page = {"mode": "url", "message": "Sign in.", "url": "https://a.example/", "elicitationId": "7"}
    error = ErrorDetail(URL_ELICITATION_REQUIRED, "Sign in first.", raw({"elicitations": [page]}))
    (asked,) = urls_to_visit(error) or []
    assert (asked.url, asked.message) == ("https://a.example/", "Sign in.")
    assert urls_to_visit(ErrorDetail(-1, "No.", error.data)) is None
    assert urls_to_visit(ErrorDetail(URL_ELICITATION_REQUIRED, "No.")) is None
    assert urls_to_visit(ErrorDetail(URL_ELICITATION_REQUIRED, "No.", raw({"elicitations": 7}))) is None


# --- Questions ---


@pytest.mark.req("BRG-2")
@each_pair
def test_a_question_and_its_answer_keep_what_both_have(front: Revision, back: Revision) -> None:
    asked = {"messages": [{"role": "user", "content": {"type": "text", "text": "x"}}], "maxTokens": 5, "x-own": 1}
    assert plain(question_for_client(raw(asked), "sampling/createMessage", front, new_id="n")) == asked
    answer = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "y"}, "x-own": 1}
    assert plain(answer_for_server(raw(answer), "sampling/createMessage", back)) == answer
    roots = {"roots": [{"uri": "file:///a"}]}
    assert plain(answer_for_server(raw(roots), "roots/list", back)) == roots
    assert question_for_client(UNSET, "roots/list", front, new_id="n") is UNSET
    own = raw(ODD)
    assert question_for_client(own, "example.com/ask", front, new_id="n") is own
    assert answer_for_server(own, "example.com/ask", back) is own


def test_a_page_to_visit_gets_an_id_where_one_is_needed() -> None:
    page = raw({"mode": "url", "message": "m", "url": "https://a.example/"})
    after = plain(question_for_client(page, "elicitation/create", LATEST_LEGACY, new_id="n"))
    assert after == {"mode": "url", "message": "m", "url": "https://a.example/", "elicitationId": "n"}
    named = raw({"mode": "url", "message": "m", "url": "https://a.example/", "elicitationId": "7"})
    assert plain(question_for_client(named, "elicitation/create", LATEST_LEGACY, new_id="n")) == plain(named)
    assert "elicitationId" not in plain(question_for_client(named, "elicitation/create", LATEST, new_id="n"))
    form = raw({"message": "m", "requestedSchema": {"type": "object", "properties": {}}})
    assert plain(question_for_client(form, "elicitation/create", LATEST_LEGACY, new_id="n")) == plain(form)
    with pytest.raises(NotInRevision):
        question_for_client(page, "elicitation/create", _2025_06_18, new_id="n")


def test_an_answer_that_the_server_s_revision_lacks_is_refused() -> None:
    several = raw({"action": "accept", "content": {"a": ["x", "y"]}})
    assert plain(answer_for_server(several, "elicitation/create", LATEST_LEGACY)) == plain(several)
    with pytest.raises(NotInRevision):
        answer_for_server(several, "elicitation/create", _2025_06_18)


def test_a_sampling_message_of_one_block_becomes_that_block() -> None:
    block = {"type": "text", "text": "x"}
    asked = {"maxTokens": 1, "messages": [{"role": "user", "content": [block]}]}
    after = plain(question_for_client(raw(asked), "sampling/createMessage", _2025_06_18, new_id="n"))
    assert after == {"maxTokens": 1, "messages": [{"role": "user", "content": block}]}


@pytest.mark.req("BRG-2")
def test_results_that_ask_for_input_are_told_apart() -> None:
    asking = raw({"resultType": "input_required", "inputRequests": {"a": {"method": "roots/list"}}, "requestState": 7})
    assert is_input_required(asking, LATEST)
    assert not is_input_required(asking, LATEST_LEGACY)
    assert not is_input_required(raw({"content": []}), LATEST)
    assert not is_input_required(raw(b"7"), LATEST)
    asked = read_input_required(asking)
    assert asked.input_requests["a"].method == "roots/list"
    assert bytes(asked.input_requests["a"].params) == b"{}"
    assert asked.request_state == 7
    assert read_input_required(raw({})).request_state is UNSET
    with pytest.raises(DecodeError, match="asks for input"):
        read_input_required(raw({"inputRequests": 7}))


@pytest.mark.req("BRG-2")
@pytest.mark.parametrize(
    ("result", "asks"),
    [
        (b'{"resultType":"input_required"}', True),
        (b'{"resultType":"input\\u005frequired"}', True),
        (b'{"resultType":"complete"}', False),
        (b'{"resultType":"comp\\u006cete"}', False),
        (b'{"resultType":7}', False),
        (b"{}", False),
    ],
)
def test_members_tell_whether_a_result_asks_for_input(result: bytes, asks: bool) -> None:
    assert asks_for_input(members_of(raw(result))) is asks
    assert is_input_required(raw(result), LATEST) is asks


@pytest.mark.req("BRG-4")
@pytest.mark.parametrize(
    ("params", "after"),
    [
        (b"{}", b'{"_meta":{"k":1}}'),
        (b"{ \t}", b'{"_meta":{"k":1}}'),
        (b'{"a": 1E2 }', b'{"a": 1E2,"_meta":{"k":1}}'),
        (b'{"a":{}}', b'{"a":{},"_meta":{"k":1}}'),
        (b'{"a":"}"}', b'{"a":"}","_meta":{"k":1}}'),
    ],
)
def test_params_get_metadata_and_keep_their_bytes(params: bytes, after: bytes) -> None:
    assert bytes(params_with_meta(raw(params), b'{"k":1}')) == after


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.text() | st.integers(), st.lists, max_leaves=5)))
def test_params_with_metadata_are_the_params_and_the_metadata(params: dict[str, Any]) -> None:
    params.pop("_meta", None)
    assert plain(params_with_meta(raw(params), b'{"k":1}')) == params | {"_meta": {"k": 1}}


@pytest.mark.req("BRG-4")
def test_items_are_not_read_where_their_kind_is_the_same_in_both_revisions() -> None:
    # Resources have icons since 2025-11-25, and content has changed nothing since 2025-06-18 but links.
    unreadable = b'{"content":[{"type":"text","text":7}],"resources":[{"uri":"x:y","name":"x","icons":[]}]}'
    called = result_for_client(raw(unreadable), "tools/call", front=LATEST_LEGACY, back=LATEST)
    assert written(called) == unreadable
    listed = result_for_client(raw(unreadable), "resources/list", front=_2025_06_18, back=LATEST)
    assert written(listed) == unreadable.replace(b',"icons":[]', b"")
