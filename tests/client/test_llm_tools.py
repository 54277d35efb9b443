"""The shapes are those of the providers' own API references and the types of their SDKs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mcplumb import Server, connect_all, result_for_anthropic, result_for_openai, tools_for_anthropic, tools_for_openai
from mcplumb.errors import UsageError
from mcplumb.types import CallToolResult, Tool
from mcplumb.types.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    UnknownContent,
)
from mcplumb.types.resources import ResourceContents

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
FORECAST = Tool("weather_forecast", SCHEMA, description="The weather of the next days.")
BARE = Tool("weather_now", {})
PNG = ImageContent("iVBORw0KGgo=", "image/png")


def result(*content: ContentBlock, **more: Any) -> CallToolResult:
    return CallToolResult(list(content), **more)


def test_tools_for_chat_completions() -> None:
    assert tools_for_openai([FORECAST, BARE]) == [
        {
            "type": "function",
            "function": {
                "name": "weather_forecast",
                "description": "The weather of the next days.",
                "parameters": SCHEMA,
            },
        },
        {
            "type": "function",
            "function": {"name": "weather_now", "parameters": {"type": "object", "properties": {}}},
        },
    ]


def test_tools_for_responses() -> None:
    assert tools_for_openai([FORECAST, BARE], api="responses") == [
        {
            "type": "function",
            "name": "weather_forecast",
            "description": "The weather of the next days.",
            "parameters": SCHEMA,
            "strict": False,
        },
        {
            "type": "function",
            "name": "weather_now",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
    ]


def test_tools_for_messages() -> None:
    assert tools_for_anthropic([FORECAST, BARE]) == [
        {"name": "weather_forecast", "description": "The weather of the next days.", "input_schema": SCHEMA},
        {"name": "weather_now", "input_schema": {"type": "object"}},
    ]


@pytest.mark.parametrize("convert", [tools_for_openai, tools_for_anthropic])
@pytest.mark.parametrize("name", ["", "a.b", "ü", "x" * 65, "a b"])
def test_a_name_that_providers_refuse_is_refused_here(convert: Any, name: str) -> None:
    with pytest.raises(UsageError, match="LLM providers do not allow the tool name"):
        convert([Tool(name, {})])


async def test_the_tools_of_a_group_are_always_allowed() -> None:
    server = Server("any")
    for name in ("very.cool/tool", "x" * 128, "plain"):
        server.add_tool(lambda: "", name=name)
    async with connect_all({"a server": server}) as group:
        tools = await group.list_tools()
        assert len(tools_for_openai(tools)) == len(tools_for_anthropic(tools)) == 3


def test_a_text_result() -> None:
    texts = result(TextContent("Sun."), TextContent(""), TextContent("Then rain."))
    assert result_for_openai(texts, "call_1") == {
        "role": "tool",
        "tool_call_id": "call_1",
        "content": "Sun.\nThen rain.",
    }
    assert result_for_openai(texts, "call_1", api="responses") == {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": "Sun.\nThen rain.",
    }
    assert result_for_anthropic(texts, "toolu_1") == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "Sun."}, {"type": "text", "text": "Then rain."}],
    }


def test_without_an_id_the_rest_is_the_same() -> None:
    text = result(TextContent("Sun."))
    assert result_for_openai(text) == {"role": "tool", "content": "Sun."}
    assert result_for_openai(text, api="responses") == {"type": "function_call_output", "output": "Sun."}
    assert result_for_anthropic(text) == {"type": "tool_result", "content": [{"type": "text", "text": "Sun."}]}


def test_an_image() -> None:
    chart = result(TextContent("A chart:"), PNG)
    assert result_for_openai(chart)["content"] == "A chart:\n[An image of type image/png, which is not shown here.]"
    assert result_for_openai(chart, api="responses")["output"] == [
        {"type": "input_text", "text": "A chart:"},
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
    ]
    assert result_for_anthropic(chart)["content"] == [
        {"type": "text", "text": "A chart:"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
    ]


def test_an_error() -> None:
    failed = result(TextContent("The well is dry."), is_error=True)
    assert result_for_openai(failed)["content"] == "Error:\nThe well is dry."
    assert result_for_openai(failed, api="responses")["output"] == "Error:\nThe well is dry."
    assert result_for_anthropic(failed) == {
        "type": "tool_result",
        "content": [{"type": "text", "text": "The well is dry."}],
        "is_error": True,
    }


def test_an_error_without_text_has_one() -> None:
    failed = result(is_error=True)
    said = "The tool failed, and its result has no text."
    assert result_for_openai(failed)["content"] == f"Error: {said}"
    assert result_for_anthropic(failed)["content"] == [{"type": "text", "text": said}]


def test_data_without_text_is_json() -> None:
    data = result(TextContent(""), structured_content={"celsius": 21.5})
    assert result_for_openai(data)["content"] == '{"celsius":21.5}'
    assert result_for_anthropic(data)["content"] == [{"type": "text", "text": '{"celsius":21.5}'}]
    both = result(TextContent("Warm."), structured_content={"celsius": 21.5})
    assert result_for_openai(both)["content"] == "Warm."


def test_nothing_at_all() -> None:
    assert result_for_openai(result()) == {"role": "tool", "content": ""}
    assert result_for_anthropic(result()) == {"type": "tool_result", "content": []}


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (ImageContent("PHN2Zz4=", "image/svg+xml"), "[An image of type image/svg+xml, which cannot be shown.]"),
        (AudioContent("AAAA", "audio/wav"), "[A recording of type audio/wav, which cannot be played.]"),
        (ResourceLink("notes://1", name="first"), "[The resource 'first': notes://1]"),
        (EmbeddedResource(ResourceContents("notes://1", text="Milk.")), "Milk."),
        (
            EmbeddedResource(ResourceContents("files://1", blob="AAAA", mime_type="application/zip")),
            "[The resource files://1, of type application/zip, which cannot be shown.]",
        ),
        (
            EmbeddedResource(ResourceContents("files://1", blob="AAAA")),
            "[The resource files://1, of type unknown, which cannot be shown.]",
        ),
        (UnknownContent("hologram", {"type": "hologram"}), "[Content of the unknown type 'hologram'.]"),
    ],
)
def test_other_content_becomes_text(block: ContentBlock, text: str) -> None:
    assert result_for_openai(result(block))["content"] == text
    assert result_for_openai(result(block), api="responses")["output"] == text
    assert result_for_anthropic(result(block))["content"] == [{"type": "text", "text": text}]


def test_an_embedded_image_is_an_image() -> None:
    embedded = EmbeddedResource(ResourceContents("files://1", blob=PNG.data, mime_type="image/png"))
    assert result_for_anthropic(result(embedded)) == result_for_anthropic(result(PNG))


def test_all_is_plain_data() -> None:
    chart = result(TextContent("A chart:"), PNG, is_error=True)
    for shape in (
        tools_for_openai([FORECAST]),
        tools_for_anthropic([FORECAST]),
        result_for_openai(chart, "1", api="responses"),
        result_for_anthropic(chart, "1"),
    ):
        assert msgspec.json.decode(msgspec.json.encode(shape)) == shape


@pytest.mark.parametrize(
    "convert", [lambda api: tools_for_openai([], api=api), lambda api: result_for_openai(result(), api=api)]
)
def test_there_are_two_apis_of_openai(convert: Any) -> None:
    with pytest.raises(UsageError, match="api is 'assistants': choose 'chat' or 'responses'"):
        convert("assistants")
