from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from mcplumb import types as t

BLOCKS: list[t.ContentBlock] = [
    t.TextContent("hi"),
    t.ImageContent("AAAA", "image/png"),
    t.AudioContent("AAAA", "audio/wav"),
    t.ResourceLink("a:b", "b", title="B", size=3),
    t.EmbeddedResource(t.ResourceContents("a:b", text="x"), annotations=t.Annotations(audience=["user"])),
]


def test_blocks_are_told_apart_by_their_type() -> None:
    encoded = msgspec.json.encode(BLOCKS)
    assert t.read(list[t.ContentBlock], encoded) == BLOCKS
    assert [block["type"] for block in msgspec.json.decode(encoded)] == [
        "text",
        "image",
        "audio",
        "resource_link",
        "resource",
    ]


def test_there_is_a_sample_of_each() -> None:
    assert {type(block) for block in BLOCKS} | {t.UnknownContent} == set(get_args(t.ContentBlock))


@pytest.mark.parametrize(
    "block",
    [
        t.ToolUseContent("1", "add", {"a": 1}),
        t.ToolResultContent("1", [t.TextContent("2")], structured_content=[2], is_error=False),
    ],
)
def test_blocks_about_tools(block: t.SamplingContent) -> None:
    message = t.SamplingMessage("user", [block])
    assert t.read(t.SamplingMessage, msgspec.json.encode(message)) == message
