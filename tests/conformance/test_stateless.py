"""The rules for modern requests, which carry everything that they need: the suite's ``server-stateless``."""

from __future__ import annotations

import pytest

from tests.conformance.ways import MODERN, Exchange, Message, Wire

PREFIX = "io.modelcontextprotocol/"


def refused(exchange: Exchange, code: int, status: int) -> Message:
    """The error, which must have this code and, over HTTP, this status."""
    assert exchange.error["code"] == code
    assert exchange.status in (None, status)
    return exchange.error


@pytest.mark.req("HTP-5")
@pytest.mark.parametrize("missing", ["protocolVersion", "clientCapabilities"])
def test_a_request_without_its_metadata_is_refused(modern: Wire, missing: str) -> None:
    refused(modern.exchange("server/discover", meta=modern.meta(**{missing: None})), -32602, 400)


def test_the_client_need_not_say_who_it_is(modern: Wire) -> None:
    assert modern.exchange("server/discover", meta=modern.meta(clientInfo=None)).result["supportedVersions"]


def test_the_server_says_what_it_is(modern: Wire) -> None:
    result = modern.exchange("server/discover").result
    assert MODERN in result["supportedVersions"]
    assert result["capabilities"]["tools"] == result["capabilities"]["prompts"] == {"listChanged": True}
    assert {"resources", "completions"} <= result["capabilities"].keys()
    assert result["_meta"][PREFIX + "serverInfo"]["name"] == "conformance"
    assert "serverInfo" not in result


@pytest.mark.req("HTP-5")
def test_an_unknown_version_is_refused_with_those_that_are_known(modern: Wire) -> None:
    supported = modern.exchange("server/discover").result["supportedVersions"]
    error = refused(modern.exchange("server/discover", meta=modern.meta(protocolVersion="v999.0.0")), -32022, 400)
    assert error["data"]["requested"] == "v999.0.0"
    assert error["data"]["supported"]
    assert set(error["data"]["supported"]) <= set(supported)


@pytest.mark.req("HTP-5")
def test_a_missing_capability_is_named(modern: Wire) -> None:
    error = refused(modern.call("test_missing_capability", meta=modern.meta(clientCapabilities={})), -32021, 400)
    assert error["data"]["requiredCapabilities"] == {"sampling": {}}


@pytest.mark.req("HTP-5")
@pytest.mark.parametrize(
    "method",
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "unknown/method"],
)
def test_what_is_not_modern_is_not_found(modern: Wire, method: str) -> None:
    refused(modern.exchange(method), -32601, 404)


def test_a_question_is_no_request(modern: Wire) -> None:
    exchange = modern.call("test_streaming_elicitation", meta=modern.meta() | {"progressToken": 1})
    assert exchange.requests == []
    assert exchange.result["resultType"] == "input_required"


def test_nothing_is_logged_unless_asked_for(modern: Wire) -> None:
    assert modern.call("test_logging_tool").notifications == []


def heard(modern: Wire, topic: str, *tools: str) -> list[str]:
    """What a subscription to this topic hears while the tools are called, up to the first change that it wants."""
    stream = modern.request("subscriptions/listen", {"notifications": {topic: True}})
    methods: list[str] = []
    try:
        methods.append(stream.next()["method"])
        for tool in tools:
            modern.call(tool)
        while len(methods) < 2:
            message = stream.next()
            assert PREFIX + "subscriptionId" in message["params"]["_meta"]
            methods.append(message["method"])
    finally:
        stream.close()
    return methods


def test_changes_of_tools_are_heard(modern: Wire) -> None:
    methods = heard(modern, "toolsListChanged", "test_trigger_tool_change")
    assert methods == ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"]


def test_changes_of_prompts_are_heard_and_those_of_tools_are_not(modern: Wire) -> None:
    methods = heard(modern, "promptsListChanged", "test_trigger_tool_change", "test_trigger_prompt_change")
    assert methods == ["notifications/subscriptions/acknowledged", "notifications/prompts/list_changed"]
