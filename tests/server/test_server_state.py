"""What all connections share: how results are written for each revision, and what is kept between them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from mcplumb.errors import EncodeError, StateRefused, UsageError
from mcplumb.limits import DEFAULT_LIMITS
from mcplumb.revisions import LATEST, LATEST_LEGACY, REVISIONS, Revision
from mcplumb.rpc.thread_pool import ThreadPool
from mcplumb.server.catalog import Catalog, CompletionEntry, EntryOptions, ResourceEntry
from mcplumb.server.results import TextResult
from mcplumb.server.server_state import SharedState
from mcplumb.types.base import Annotations, Icon, Implementation, Result
from mcplumb.types.client_features import InputRequiredResult
from mcplumb.types.content import TextContent
from mcplumb.types.meta import SERVER_INFO
from mcplumb.types.revision_adapter import for_revision
from mcplumb.types.tools import CallToolResult

IDENTITY = Implementation("clock", "1", title="A clock", icons=[Icon("https://example.com/clock.png")])


def make_shared(**options: Any) -> SharedState:
    settings: dict[str, Any] = {
        "identity": IDENTITY,
        "instructions": None,
        "revisions": REVISIONS,
        "limits": DEFAULT_LIMITS,
        "catalog": Catalog(lambda _: None),
        "thread_pool": ThreadPool(1),
        "page_size": 10,
        "ttl_ms": 0,
        "cache_scope": "private",
        "extensions": None,
        "experimental": None,
        "state_keys": [],
    }
    return SharedState(**{**settings, **options})


def written(outcome: Any, revision: Revision, shared: SharedState | None = None) -> dict[str, Any]:
    result = (shared or make_shared()).written(outcome, revision)
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(result))
    return plain


def resource(uri: str) -> ResourceEntry:
    return ResourceEntry(
        uri,
        lambda x="": x,
        EntryOptions(name="r"),
        mime_type=None,
        annotations=None,
        size=None,
        ttl_ms=None,
        cache_scope=None,
    )


# Capabilities


def test_a_server_says_what_it_has_and_may_have_later() -> None:
    shared = make_shared(extensions={"com.example/x": {}}, experimental={"y": {}})
    catalog = shared.catalog
    assert msgspec.to_builtins(shared.capabilities) == {
        "tools": {"listChanged": True},
        "resources": {"listChanged": True, "subscribe": True},
        "prompts": {"listChanged": True},
        "logging": {},
        "extensions": {"com.example/x": {}},
        "experimental": {"y": {}},
    }
    catalog.completions["p", "a"] = CompletionEntry("p", "a", lambda typed: [])
    assert msgspec.to_builtins(shared.capabilities)["completions"] == {}


# Results


@pytest.mark.req("META-5", "DIR-4")
def test_a_modern_result_names_the_server_and_its_own_kind() -> None:
    result = written(Result(), LATEST)
    assert result["resultType"] == "complete"
    assert result["_meta"][SERVER_INFO] == msgspec.to_builtins(IDENTITY)


@pytest.mark.req("LEG-5")
def test_a_legacy_result_does_not() -> None:
    assert written(Result(), LATEST_LEGACY) == {}


@pytest.mark.parametrize("revision", REVISIONS, ids=str)
def test_the_author_s_metadata_stays(revision: Revision) -> None:
    result = written(CallToolResult([TextContent("x")], meta={"example.com/a": 1}), revision)
    assert result["_meta"]["example.com/a"] == 1
    assert (SERVER_INFO in result["_meta"]) == revision.has_result_types


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize("revision", REVISIONS, ids=str)
@pytest.mark.parametrize(
    "result",
    [
        TextResult([TextContent("x")]),
        CallToolResult([TextContent("x")]),
        CallToolResult([TextContent("x")], is_error=True),
        CallToolResult([TextContent("x"), TextContent("y")]),
        CallToolResult([TextContent("x", annotations=Annotations(priority=1, last_modified="2025-01-12T15:00:58Z"))]),
        CallToolResult([TextContent("x", meta={"a": 1})]),
        CallToolResult([TextContent("x")], structured_content={"a": 1}),
        CallToolResult([]),
    ],
)
def test_the_short_way_for_plain_text_leads_to_the_same(revision: Revision, result: CallToolResult) -> None:
    shared = make_shared()
    expected = msgspec.to_builtins(for_revision(result, revision))
    if revision.has_result_types:
        expected["_meta"] = {SERVER_INFO: msgspec.to_builtins(for_revision(IDENTITY, revision))}
    for _ in range(2):  # the first time, the server's name is written
        assert written(result, revision, shared) == expected


def test_metadata_is_not_shared_between_results() -> None:
    shared = make_shared()
    shared.written(Result(meta={"a": 1}), LATEST)
    assert set(written(Result(), LATEST, shared)["_meta"]) == {SERVER_INFO}


def test_a_result_that_asks_is_marked_as_such() -> None:
    assert written(InputRequiredResult(request_state="s"), LATEST)["resultType"] == "input_required"


def test_an_extension_s_own_kind_of_result_stays() -> None:
    assert written(CallToolResult([], result_type="task"), LATEST)["resultType"] == "task"


@dataclass
class Point:
    x: int


@pytest.mark.parametrize(
    ("value", "plain"),
    [(None, {}), ({"a": [1]}, {"a": [1]}), (Point(1), {"x": 1})],
)
def test_a_handler_s_own_result(value: Any, plain: dict[str, Any]) -> None:
    assert written(value, LATEST_LEGACY) == plain
    modern = written(value, LATEST)
    assert modern.pop("resultType") == "complete"
    assert set(modern.pop("_meta")) == {SERVER_INFO}
    assert modern == plain


def test_a_handler_s_own_result_may_say_more() -> None:
    given = {"resultType": "partial", "_meta": {"a": 1}}
    modern = written(given, LATEST)
    assert modern["resultType"] == "partial"
    assert modern["_meta"]["a"] == 1
    assert SERVER_INFO in modern["_meta"]
    assert given == {"resultType": "partial", "_meta": {"a": 1}}


@pytest.mark.parametrize("value", [5, "text", [1], True])
def test_a_result_is_an_object(value: Any) -> None:
    with pytest.raises(UsageError, match="A result must be an object, not a"):
        make_shared().written(value, LATEST)


def test_a_result_has_to_be_written() -> None:
    with pytest.raises(EncodeError):
        make_shared().written({"a": object()}, LATEST)


def test_what_is_written_already_passes() -> None:
    raw = msgspec.Raw(b"{}")
    assert make_shared().written(raw, LATEST) is raw


@pytest.mark.req("LEG-5")
@pytest.mark.parametrize("revision", REVISIONS, ids=str)
def test_the_server_s_name_is_as_the_revision_has_it(revision: Revision) -> None:
    shared = make_shared()
    meta = msgspec.json.decode(msgspec.json.encode(shared.result_meta(revision)))
    assert meta[SERVER_INFO]["name"] == "clock"
    assert ("title" in meta[SERVER_INFO]) == revision.has_titles
    assert ("icons" in meta[SERVER_INFO]) == revision.has_icons
    assert shared.result_meta(revision) is shared.result_meta(revision)
    assert make_shared(identity=Implementation("other", "2")).result_meta(revision) != shared.result_meta(revision)


# Pages


def test_pages_are_kept_until_their_list_changes() -> None:
    shared = make_shared()
    kept = shared.pages("tools", 0, LATEST)
    assert shared.pages("tools", 0, LATEST) is kept
    assert shared.pages("prompts", 0, LATEST) is not kept
    assert shared.pages("tools", 0, LATEST_LEGACY) is not kept
    assert make_shared().pages("tools", 0, LATEST) is not kept
    assert shared.pages("tools", 0, LATEST) is kept
    assert shared.pages("tools", 1, LATEST) is not kept
    assert shared.pages("tools", 0, LATEST) is not kept


# Sealing

CALL: dict[str, Any] = {"method": "tools/call", "params": {}, "principal": None}


@pytest.mark.req("MRT-3")
def test_servers_with_the_same_keys_open_each_other_s_state() -> None:
    old, new = b"o" * 32, b"n" * 32
    one, other, stranger = make_shared(state_keys=[old]), make_shared(state_keys=[new, old]), make_shared()
    token = one.sealer.seal(b"state", now=one.now(), **CALL)
    assert other.sealer.open(token, now=other.now(), **CALL) == b"state"
    assert one.sealer is one.sealer
    with pytest.raises(StateRefused):
        stranger.sealer.open(token, now=stranger.now(), **CALL)
    with pytest.raises(StateRefused):
        make_shared().sealer.open(stranger.sealer.seal(b"", now=1.0, **CALL), now=1.0, **CALL)


@pytest.mark.req("MRT-3")
def test_state_lives_as_long_as_the_server_says() -> None:
    shared = make_shared(state_ttl=5.0)
    token = shared.sealer.seal(b"state", now=1000.0, **CALL)
    assert shared.sealer.open(token, now=1004.0, **CALL) == b"state"
    with pytest.raises(StateRefused):
        shared.sealer.open(token, now=1006.0, **CALL)


@pytest.mark.parametrize("options", [{"state_keys": [b"short"]}, {"state_keys": [b"k" * 32], "state_ttl": 0.0}])
def test_keys_can_be_checked_before_they_are_needed(options: dict[str, Any]) -> None:
    make_shared(state_keys=[b"k" * 32]).check_keys()
    with pytest.raises(UsageError):
        make_shared(**options).check_keys()


def test_the_time_is_the_one_that_processes_share() -> None:
    before = time.time()
    assert before <= make_shared().now() <= time.time()
