from __future__ import annotations

import pytest

from mcplumb import types as t
from mcplumb.errors import DecodeError


def test_contents_are_told_apart_by_what_they_have() -> None:
    text = t.read(t.ResourceContents, b'{"uri":"a:b","text":""}')
    assert text.is_text
    assert text.blob is None
    blob = t.read(t.ResourceContents, b'{"uri":"a:b","blob":""}')
    assert not blob.is_text
    assert blob.text is None


@pytest.mark.parametrize("contents", [b'{"uri":"a:b"}', b'{"uri":"a:b","text":"","blob":""}'])
def test_contents_are_text_or_bytes(contents: bytes) -> None:
    with pytest.raises(DecodeError, match="either 'text' or 'blob', not both"):
        t.read(t.ResourceContents, contents)


def test_contents_are_checked_when_made() -> None:
    with pytest.raises(ValueError, match="either 'text' or 'blob'"):
        t.ResourceContents("a:b")


def test_list() -> None:
    page = t.read(t.ListResourcesResult, b'{"resources":[{"uri":"a:b","name":"b","size":1}],"nextCursor":"2"}')
    assert page.resources == [t.Resource("a:b", "b", 1)]
    assert page.next_cursor == "2"
