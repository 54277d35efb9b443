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


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        (t.ImageContent("aGk=", "image/svg+xml"), {"text/html": '<img src="data:image/svg+xml;base64,aGk=">'}),
        (
            t.AudioContent("aGk=", "audio/wav"),
            {"text/html": '<audio controls src="data:audio/wav;base64,aGk="></audio>'},
        ),
        (
            t.ImageContent("aGk=", "image/png"),
            {"text/html": '<img src="data:image/png;base64,aGk=">', "image/png": "aGk="},
        ),
        (t.ImageContent('aGk="><script>', "image/png"), {}),
        (t.ImageContent("aGk=", 'image/png"><script>'), {}),
        (t.ImageContent("aGk=", "text/html"), {}),
    ],
)
def test_a_notebook_displays_media_and_runs_nothing(
    block: t.ImageContent | t.AudioContent, shown: dict[str, str]
) -> None:
    assert block._repr_mimebundle_() == shown
    link = t.ResourceLink("file:///x", "x")
    assert t.CallToolResult([t.TextContent("<x>"), link, block])._repr_mimebundle_() == {
        kind: f"<pre>&lt;x&gt;</pre>\n{data}" if kind == "text/html" else data for kind, data in shown.items()
    }
