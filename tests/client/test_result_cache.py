from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcplumb.client.result_cache import ResultCache
from mcplumb.protocol.subscription_state import Change, Missed, Topic
from mcplumb.types.base import CacheableResult
from mcplumb.types.resources import ReadResourceResult, ResourceContents
from mcplumb.types.tools import ListToolsResult, Tool

DAY = 24 * 60 * 60
LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]


def put(
    cache: ResultCache,
    method: str,
    params: dict[str, Any] | None = None,
    *,
    ttl_ms: float | None = 1000,
    size: int = 10,
    now: float = 0,
    **more: Any,
) -> CacheableResult:
    result = CacheableResult(ttl_ms=ttl_ms, **more)
    cache.put(method, params or {}, result, size=size, now=now, generation=cache.generation(method))
    return result


def has(cache: ResultCache, method: str, params: dict[str, Any] | None = None, now: float = 0) -> bool:
    return cache.get(method, params or {}, now) is not None


def read(*uris: str) -> ResultCache:
    """A cache that has what was read of these resources."""
    cache = ResultCache()
    for uri in uris:
        put(cache, "resources/read", {"uri": uri})
    return cache


def left(cache: ResultCache, *uris: str) -> list[str]:
    return [uri for uri in uris if has(cache, "resources/read", {"uri": uri})]


# How long


def test_a_result_is_fresh_until_its_time_is_over() -> None:
    cache = ResultCache()
    result = put(cache, "tools/list", ttl_ms=1500, now=100)
    assert cache.get("tools/list", {}, 100) is result
    assert cache.get("tools/list", {}, 101.499) is result
    assert cache.get("tools/list", {}, 101.5) is None
    assert (cache.hits, cache.misses, len(cache), cache.size) == (2, 1, 0, 0)


@pytest.mark.parametrize("ttl_ms", [None, 0, -1, -1e300])
def test_a_result_without_a_time_is_not_kept(ttl_ms: float | None) -> None:
    cache = ResultCache()
    put(cache, "tools/list", ttl_ms=ttl_ms)
    assert not has(cache, "tools/list")


@pytest.mark.parametrize("ttl_ms", [1e300, float("inf"), 10**400])
def test_a_result_is_kept_for_a_day_at_the_most(ttl_ms: float) -> None:
    cache = ResultCache()
    put(cache, "tools/list", ttl_ms=ttl_ms)
    assert has(cache, "tools/list", now=DAY - 1)
    assert not has(cache, "tools/list", now=DAY)


def test_a_newer_result_takes_the_place_of_an_older_one() -> None:
    cache = ResultCache()
    put(cache, "tools/list", size=10)
    newer = put(cache, "tools/list", size=7, now=0.5)
    assert cache.get("tools/list", {}, 1.2) is newer
    assert (len(cache), cache.size) == (1, 7)
    put(cache, "tools/list", ttl_ms=0)
    assert not has(cache, "tools/list"), "the server does not want that any more"


@pytest.mark.parametrize("scope", ["public", "private", None])
def test_both_scopes_are_kept(scope: Any) -> None:
    cache = ResultCache()
    put(cache, "tools/list", cache_scope=scope)
    assert has(cache, "tools/list")


# Which


@pytest.mark.parametrize("method", ["server/discover", *LISTS, "resources/read"])
def test_methods_whose_results_are_kept(method: str) -> None:
    cache = ResultCache()
    put(cache, method)
    assert has(cache, method)


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "completion/complete", "x/y"])
def test_methods_whose_results_are_not(method: str) -> None:
    cache = ResultCache()
    put(cache, method)
    assert not has(cache, method)
    assert (cache.hits, cache.misses) == (0, 0), "nothing was missed"
    cache.forget(method)


def test_other_params_are_another_request() -> None:
    cache = ResultCache()
    first, second = put(cache, "tools/list"), put(cache, "tools/list", {"cursor": "2"})
    assert first is not second
    assert cache.get("tools/list", {}, 0) is first
    assert cache.get("tools/list", {"cursor": "2"}, 0) is second
    assert not has(cache, "tools/list", {"cursor": "3"})
    assert not has(cache, "prompts/list")


def test_neither_metadata_nor_order_make_another_request() -> None:
    cache = ResultCache()
    result = put(cache, "resources/read", {"uri": "a:b", "x": "y", "_meta": {"traceparent": "1"}})
    assert cache.get("resources/read", {"_meta": msgspec.Raw(b"{}"), "x": "y", "uri": "a:b"}, 0) is result


@pytest.mark.parametrize("more", [{"inputResponses": {}}, {"requestState": "s"}, {"x": 1}, {"x": ["y"]}])
def test_what_depends_on_more_than_texts_is_not_kept(more: dict[str, Any]) -> None:
    cache = ResultCache()
    put(cache, "resources/read", {"uri": "a:b", **more})
    assert not has(cache, "resources/read", {"uri": "a:b", **more})
    assert not has(cache, "resources/read", {"uri": "a:b"})


def test_only_complete_results_are_kept() -> None:
    cache = ResultCache()
    put(cache, "resources/read", result_type="input_required")
    assert not has(cache, "resources/read")
    put(cache, "resources/read", result_type="complete")
    assert has(cache, "resources/read")


def test_what_comes_out_is_frozen() -> None:
    cache = ResultCache()
    page = ListToolsResult(tools=[Tool("add", {"type": "object"})], ttl_ms=1000)
    contents = ReadResourceResult([ResourceContents("a:b", text="x")], ttl_ms=1000)
    cache.put("tools/list", {}, page, size=1, now=0, generation=0)
    cache.put("resources/read", {"uri": "a:b"}, contents, size=1, now=0, generation=0)
    for result in (cache.get("tools/list", {}, 0), cache.get("resources/read", {"uri": "a:b"}, 0)):
        with pytest.raises(AttributeError):
            result.ttl_ms = 5  # type: ignore[union-attr, misc]  # which is what is tested
    assert cache.get("tools/list", {}, 0) is page


# How much


def test_those_not_used_for_the_longest_time_go_first() -> None:
    cache = ResultCache(max_entries=3)
    for uri in ("a:1", "a:2", "a:3"):
        put(cache, "resources/read", {"uri": uri})
    assert has(cache, "resources/read", {"uri": "a:1"})
    put(cache, "resources/read", {"uri": "a:4"})
    assert left(cache, "a:1", "a:2", "a:3", "a:4") == ["a:1", "a:3", "a:4"]


def test_bytes_are_bounded() -> None:
    cache = ResultCache(max_bytes=100)
    for number in range(10):
        put(cache, "resources/read", {"uri": f"a:{number}"}, size=40)
    assert (len(cache), cache.size) == (2, 80)
    put(cache, "resources/read", {"uri": "a:10"}, size=100)
    assert (len(cache), cache.size) == (1, 100)
    put(cache, "resources/read", {"uri": "a:11"}, size=101)
    assert left(cache, "a:10", "a:11") == ["a:10"]


# Changes


@pytest.mark.parametrize(
    ("topic", "stale"),
    [
        ("tools", ["tools/list"]),
        ("prompts", ["prompts/list"]),
        ("resources", ["resources/list", "resources/templates/list"]),
    ],
)
def test_a_change_of_a_list_drops_all_its_pages(topic: Topic, stale: list[str]) -> None:
    cache = read("a:b")
    put(cache, "server/discover")
    for method in LISTS:
        put(cache, method)
        put(cache, method, {"cursor": "2"})
    cache.changed(Change(topic))
    for method in LISTS:
        assert has(cache, method) == has(cache, method, {"cursor": "2"}) == (method not in stale)
    assert has(cache, "server/discover")
    assert left(cache, "a:b") == ["a:b"]


@pytest.mark.parametrize(
    ("updated", "stale"),
    [
        (
            "file:///p/src/main.rs",
            ["file:///p/src/main.rs", "file:///p/src", "file:///p/src/", "file:///p", "file:///"],
        ),
        ("file:///p/src", ["file:///p/src", "file:///p", "file:///"]),
        ("file:///p?q=1", ["file:///p", "file:///"]),
        ("file:///p#part", ["file:///p", "file:///"]),
        ("file:///pp", ["file:///"]),
        ("other:x", []),
    ],
)
def test_an_update_drops_the_resource_and_what_it_is_a_part_of(updated: str, stale: list[str]) -> None:
    uris = ("file:///p/src/main.rs", "file:///p/src", "file:///p/src/", "file:///p", "file:///")
    cache = read(*uris)
    put(cache, "resources/list")
    cache.changed(Change("updates", updated))
    assert left(cache, *uris) == [uri for uri in uris if uri not in stale]
    assert has(cache, "resources/list")


def test_an_update_of_nobody_knows_what_drops_all_that_was_read() -> None:
    cache = read("a:1", "a:2")
    put(cache, "resources/list")
    cache.changed(Change("updates"))
    assert left(cache, "a:1", "a:2") == []
    assert has(cache, "resources/list")


@pytest.mark.parametrize("how", ["missed", "cleared"])
def test_everything_can_be_dropped(how: str) -> None:
    cache = read("a:1", "a:2")
    for method in ("server/discover", *LISTS):
        put(cache, method)
    assert len(cache) == 7
    if how == "missed":
        cache.changed(Missed())
    else:
        cache.clear()
    assert (len(cache), cache.size) == (0, 0)


def test_the_pages_of_one_list_can_be_dropped() -> None:
    cache = ResultCache()
    put(cache, "tools/list")
    put(cache, "tools/list", {"cursor": "2"})
    put(cache, "prompts/list")
    cache.forget("tools/list")
    assert len(cache) == 1


@pytest.mark.parametrize(
    ("change", "is_kept"),
    [
        (Change("updates", "a:b"), False),
        (Change("updates", "a:c"), False),
        (Change("updates"), False),
        (Missed(), False),
        (Change("tools"), True),
        (None, True),
    ],
)
def test_a_result_on_its_way_when_something_changes_is_not_kept(change: Change | Missed | None, is_kept: bool) -> None:
    cache = ResultCache()
    generation = cache.generation("resources/read")
    if change is not None:
        cache.changed(change)
    result = CacheableResult(ttl_ms=1000)
    cache.put("resources/read", {"uri": "a:b"}, result, size=1, now=0, generation=generation)
    assert has(cache, "resources/read", {"uri": "a:b"}) == is_kept


def test_what_is_not_kept_on_its_way_leaves_what_is_fresh() -> None:
    cache = ResultCache()
    before = cache.generation("tools/list")
    cache.changed(Change("tools"))
    newer = put(cache, "tools/list")
    cache.put("tools/list", {}, CacheableResult(ttl_ms=1000), size=1, now=0, generation=before)
    assert cache.get("tools/list", {}, 0) is newer
