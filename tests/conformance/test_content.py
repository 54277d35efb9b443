"""Tools, resources, prompts and completions, as the suite's scenarios of the same names want them, in both eras."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from tests.conformance.ways import Message, Wire


def one_block(wire: Wire, tool: str) -> Message:
    (block,) = wire.call(tool).result["content"]
    found: Message = block
    return found


def read(wire: Wire, uri: str) -> Message:
    (contents,) = wire.exchange("resources/read", {"uri": uri}).result["contents"]
    assert contents["uri"] == uri
    found: Message = contents
    return found


def get(wire: Wire, prompt: str, **arguments: str) -> list[Message]:
    params = {"name": prompt, "arguments": arguments} if arguments else {"name": prompt}
    messages: list[Message] = wire.exchange("prompts/get", params).result["messages"]
    assert {message["role"] for message in messages} == {"user"}
    return [message["content"] for message in messages]


def is_png(block: Message, key: str = "data") -> bool:
    return base64.b64decode(block[key], validate=True).startswith(b"\x89PNG") and block["mimeType"] == "image/png"


# tools-list


def test_every_tool_is_described(wire: Wire) -> None:
    for tool in wire.exchange("tools/list").result["tools"]:
        assert tool["description"]
        assert tool["inputSchema"]["type"] == "object"
        assert re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", tool["name"])


def test_tools_are_listed_in_the_same_order_each_time(wire: Wire) -> None:
    first, second, third = (wire.exchange("tools/list").result["tools"] for _ in range(3))
    assert first == second == third


def test_a_schema_of_the_authors_is_listed_as_it_is(wire: Wire) -> None:  # json-schema-2020-12
    tools = {tool["name"]: tool for tool in wire.exchange("tools/list").result["tools"]}
    schema = tools["json_schema_2020_12_tool"]["inputSchema"]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$defs"]["address"]["$anchor"] == "addressDef"
    assert schema["additionalProperties"] is False
    assert schema["allOf"] == [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}]
    assert (schema["if"]["required"], schema["then"], schema["else"]) == (
        ["contactMethod"],
        {"required": ["phone"]},
        {"required": ["email"]},
    )


def test_a_parameter_may_be_marked_for_a_header(wire: Wire) -> None:
    tools = {tool["name"]: tool for tool in wire.exchange("tools/list").result["tools"]}
    assert tools["test_x_mcp_header"]["inputSchema"]["properties"]["region"]["x-mcp-header"] == "Region"


# tools-call-*


@pytest.mark.req("HTP-1", "HTP-6")
def test_text(wire: Wire) -> None:
    assert one_block(wire, "test_simple_text") == {
        "type": "text",
        "text": "This is a simple text response for testing.",
    }


def test_an_image(wire: Wire) -> None:
    block = one_block(wire, "test_image_content")
    assert block["type"] == "image"
    assert is_png(block)


def test_a_sound(wire: Wire) -> None:
    block = one_block(wire, "test_audio_content")
    assert (block["type"], block["mimeType"]) == ("audio", "audio/wav")
    assert base64.b64decode(block["data"], validate=True).startswith(b"RIFF")


def test_an_embedded_resource(wire: Wire) -> None:
    assert one_block(wire, "test_embedded_resource") == {
        "type": "resource",
        "resource": {
            "uri": "test://embedded-resource",
            "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        },
    }


def test_mixed_content(wire: Wire) -> None:
    text, image, resource = wire.call("test_multiple_content_types").result["content"]
    assert text == {"type": "text", "text": "Multiple content types test:"}
    assert is_png(image)
    assert resource["resource"] == {
        "uri": "test://mixed-content-resource",
        "mimeType": "application/json",
        "text": '{"test":"data","value":123}',
    }


def test_an_error_of_a_tool_is_a_result(wire: Wire) -> None:
    result = wire.call("test_error_handling").result
    assert result["isError"] is True
    assert result["content"][0]["text"] == "This tool intentionally returns an error for testing"


@pytest.mark.req("HTP-1", "HTP-6")
def test_progress_comes_before_the_result_under_the_token(wire: Wire) -> None:
    meta = (wire.meta() if wire.is_modern else {}) | {"progressToken": "progress-test-1"}
    exchange = wire.call("test_tool_with_progress", meta=meta)
    assert exchange.result["content"]
    progress = exchange.notified("notifications/progress")
    assert {params["progressToken"] for params in progress} == {"progress-test-1"}
    assert [(params["progress"], params["total"]) for params in progress] == [(0, 100), (50, 100), (100, 100)]


def test_there_is_no_progress_unless_asked_for(wire: Wire) -> None:
    assert wire.call("test_tool_with_progress").notifications == []


LOGGED = ["Tool execution started", "Tool processing data", "Tool execution completed"]


def test_a_legacy_client_sets_the_level_of_log_messages(legacy: Wire) -> None:
    assert legacy.exchange("logging/setLevel", {"level": "info"}).result == {}
    logged = legacy.call("test_tool_with_logging").notified("notifications/message")
    assert [(params["level"], params["data"]) for params in logged] == [("info", text) for text in LOGGED]
    assert legacy.exchange("logging/setLevel", {"level": "error"}).result == {}
    assert legacy.call("test_tool_with_logging").notifications == []


def test_a_modern_client_asks_for_log_messages_with_each_request(modern: Wire) -> None:
    assert modern.call("test_tool_with_logging").notifications == []
    logged = modern.call("test_tool_with_logging", meta=modern.meta(logLevel="debug"))
    assert [params["data"] for params in logged.notified("notifications/message")] == LOGGED


# resources-*


def test_every_resource_has_a_name_and_can_be_read(wire: Wire) -> None:
    resources = wire.exchange("resources/list").result["resources"]
    assert {"test://static-text", "test://static-binary", "test://watched-resource"} == {
        resource["uri"] for resource in resources
    }
    for resource in resources:
        assert resource["name"]
        assert read(wire, resource["uri"])["mimeType"] == resource["mimeType"]


def test_a_text_is_read(wire: Wire) -> None:
    assert read(wire, "test://static-text")["text"] == "This is the content of the static text resource."


def test_bytes_are_read(wire: Wire) -> None:
    assert is_png(read(wire, "test://static-binary"), "blob")


def test_a_template_is_listed_and_read(wire: Wire) -> None:
    (template,) = wire.exchange("resources/templates/list").result["resourceTemplates"]
    assert template["uriTemplate"] == "test://template/{id}/data"
    contents = read(wire, "test://template/123/data")
    assert contents["mimeType"] == "application/json"
    assert contents["text"] == '{"id":"123","templateTest":true,"data":"Data for ID: 123"}'


def test_an_unknown_resource_is_an_error(wire: Wire) -> None:  # sep-2164-resource-not-found
    uri = "test://nonexistent-resource-for-conformance-testing"
    error = wire.exchange("resources/read", {"uri": uri}).error
    assert error["code"] == (-32602 if wire.is_modern else -32002)
    assert error["data"]["uri"] == uri


def test_a_legacy_client_subscribes_and_unsubscribes(legacy: Wire) -> None:
    for method in ("resources/subscribe", "resources/unsubscribe"):
        assert legacy.exchange(method, {"uri": "test://watched-resource"}).result == {}


# prompts-*, completion-complete


def test_every_prompt_is_described(wire: Wire) -> None:
    for prompt in wire.exchange("prompts/list").result["prompts"]:
        assert prompt["name"]
        assert prompt["description"]


def test_a_simple_prompt(wire: Wire) -> None:
    assert get(wire, "test_simple_prompt") == [{"type": "text", "text": "This is a simple prompt for testing."}]


def test_a_prompt_with_arguments(wire: Wire) -> None:
    (block,) = get(wire, "test_prompt_with_arguments", arg1="testValue1", arg2="testValue2")
    assert block["text"] == "Prompt with arguments: arg1='testValue1', arg2='testValue2'"


def test_a_prompt_with_a_resource(wire: Wire) -> None:
    embedded, text = get(wire, "test_prompt_with_embedded_resource", resourceUri="test://example-resource")
    assert embedded["resource"] == {
        "uri": "test://example-resource",
        "mimeType": "text/plain",
        "text": "Embedded resource content for testing.",
    }
    assert text["text"] == "Please process the embedded resource above."


def test_a_prompt_with_an_image(wire: Wire) -> None:
    image, text = get(wire, "test_prompt_with_image")
    assert is_png(image)
    assert text["text"] == "Please analyze the image above."


def test_arguments_of_prompts_are_completed(wire: Wire) -> None:
    params = {
        "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
        "argument": {"name": "arg1", "value": "test"},
    }
    completion = wire.exchange("completion/complete", params).result["completion"]
    assert completion["values"] == ["testValue1", "testValue2"]


# server-initialize, ping, caching


def test_the_session_says_what_the_server_can_do(legacy: Wire) -> None:
    capabilities = legacy.opened["capabilities"]
    assert capabilities["tools"] == capabilities["prompts"] == {"listChanged": True}
    assert capabilities["resources"]["subscribe"] is True
    assert {"logging", "completions"} <= capabilities.keys()
    assert legacy.opened["serverInfo"]["name"] == "conformance"


def test_a_legacy_server_answers_pings(legacy: Wire) -> None:
    assert legacy.exchange("ping").result == {}


CACHEABLE: list[tuple[str, dict[str, Any]]] = [
    ("tools/list", {}),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "test://static-text"}),
]


@pytest.mark.parametrize(("method", "params"), CACHEABLE, ids=[method for method, _ in CACHEABLE])
def test_modern_results_say_how_long_they_may_be_kept(modern: Wire, method: str, params: Message) -> None:
    result = modern.exchange(method, params).result
    assert type(result["ttlMs"]) is int
    assert result["ttlMs"] >= 0
    assert result["cacheScope"] in ("public", "private")
