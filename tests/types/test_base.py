from __future__ import annotations

import msgspec
import pytest

from mcplumb import types as t


def test_attributes_are_in_snake_case_and_the_json_in_camel_case() -> None:
    result = t.CacheableResult(ttl_ms=5, cache_scope="public", result_type="complete", meta={"a": 1})
    assert msgspec.to_builtins(result) == {
        "_meta": {"a": 1},
        "resultType": "complete",
        "ttlMs": 5,
        "cacheScope": "public",
    }


def test_what_is_none_is_absent() -> None:
    assert msgspec.json.encode(t.Params()) == b"{}"
    assert msgspec.json.encode(t.PageParams()) == b"{}"
    assert t.read(t.PageParams, b'{"cursor":null}') == t.PageParams()


def test_null_can_be_written() -> None:
    result = t.CallToolResult([], structured_content=t.NULL)
    assert msgspec.json.encode(result) == b'{"content":[],"structuredContent":null}'


def test_the_obvious_can_be_given_by_position() -> None:
    assert t.Implementation("me", "1.0") == t.Implementation(name="me", version="1.0")
    assert t.Icon("a:b").src == "a:b"


@pytest.mark.parametrize("number", [0, 1, 1.0, 2.5, 2**70])
def test_numbers_keep_what_they_are(number: float) -> None:
    read = t.read(t.CacheableResult, msgspec.json.encode({"ttlMs": number})).ttl_ms
    assert read == number
    assert type(read) is type(number)


def test_a_new_hint_is_read() -> None:
    assert t.read(t.Icon, b'{"src":"a:b","theme":"sepia"}').theme == "sepia"
    assert t.read(t.Annotations, b'{"audience":["robot"]}').audience == ["robot"]
