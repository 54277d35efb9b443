"""The conformance server and this project's own client, over each way and in each era."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import pytest

from mcplumb import Client, RemoteError, connect
from mcplumb.client import Change, Elicitation
from mcplumb.types import EmbeddedResource, ImageContent, TextContent
from tests.conformance.conftest import WAYS
from tests.conformance.ways import LEGACY, MODERN, SERVER
from tests.kit.results import success_text_of

Joined: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(params=[(way, era) for way in WAYS for era in (LEGACY, MODERN)], ids="-".join)
def joined(request: pytest.FixtureRequest) -> Joined:
    """Connects a client that is given these options."""
    way, era = request.param
    target = [sys.executable, str(SERVER), "--stdio"] if way == "stdio" else request.getfixturevalue("url")

    @asynccontextmanager
    async def join(**options: Any) -> AsyncIterator[Client]:
        async with connect(target, revisions=[era], **options) as client:
            assert str(client.revision) == era
            yield client

    return join


def says_alice(question: Elicitation) -> dict[str, Any]:
    assert question.schema is not None
    known = {"name": "Alice", "ok": True, "username": "alice", "email": "alice@example.com", "context": "tea"}
    return {name: known[name] for name in question.schema["properties"]}


ANSWERS: dict[str, Any] = {
    "on_elicit": says_alice,
    "on_sample": lambda question: "Paris",
    "roots": ["file:///test/root"],
}


async def test_content_of_every_kind(joined: Joined) -> None:
    async with joined() as client:
        text, image, resource = (await client.call_tool("test_multiple_content_types")).content
        assert text == TextContent("Multiple content types test:")
        assert isinstance(image, ImageContent)
        assert isinstance(resource, EmbeddedResource)
        assert resource.resource.text == '{"test":"data","value":123}'
        failed = await client.call_tool("test_error_handling")
        assert failed.is_error
        assert success_text_of(await client.call_tool("test_x_mcp_header", {"region": " Zürich\n"})) == (
            "The region is  Zürich\n."
        )


async def test_lists_resources_and_prompts(joined: Joined) -> None:
    async with joined() as client:
        assert len(await client.list_tools()) > 20
        assert [template.uri_template for template in await client.list_resource_templates()] == [
            "test://template/{id}/data"
        ]
        read = await client.read_resource("test://template/123/data")
        assert read.contents[0].text == '{"id":"123","templateTest":true,"data":"Data for ID: 123"}'
        with pytest.raises(RemoteError):
            await client.read_resource("test://nonexistent-resource-for-conformance-testing")
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        assert prompt.messages[0].content == TextContent("Prompt with arguments: arg1='a', arg2='b'")
        completed = await client.complete("test_prompt_with_arguments", "arg1", "test")
        assert completed.values == ["testValue1", "testValue2"]


async def test_progress_and_log_messages(joined: Joined) -> None:
    logged: asyncio.Queue[object] = asyncio.Queue()
    seen: list[tuple[float, float | None]] = []
    async with joined(on_log=lambda log: logged.put_nowait(log.data)) as client:
        await client.call_tool(
            "test_tool_with_progress", on_progress=lambda progress, total, message: seen.append((progress, total))
        )
        assert seen == [(0, 100), (50, 100), (100, 100)]
        await client.set_log_level("info")
        await client.call_tool("test_tool_with_logging")
        async with asyncio.timeout(60):
            assert [await logged.get() for _ in range(3)] == [
                "Tool execution started",
                "Tool processing data",
                "Tool execution completed",
            ]


EXPECTED = {
    "elicitation": "Hello, Alice!",
    "sampling": "The model says: Paris",
    "list_roots": "Your roots: file:///test/root",
    "request_state": "state-ok, and the answer is accept",
    "multiple_inputs": "Paris Alice, with 1 roots.",
    "multi_round": "Both steps are done: accept, accept.",
    "capabilities": "Answers: ['accept', 'Paris']",
}


async def test_questions_are_answered(joined: Joined) -> None:
    async with joined(**ANSWERS) as client:
        for name, text in EXPECTED.items():
            assert success_text_of(await client.call_tool(f"test_input_required_result_{name}")) == text
        prompt = await client.get_prompt("test_input_required_result_prompt")
        assert prompt.messages[0].content == TextContent("Help me with tea.")
        assert success_text_of(await client.call_tool("test_sampling", {"prompt": "Where?"})) == "LLM response: Paris"
        assert "alice@example.com" in success_text_of(await client.call_tool("test_elicitation", {"message": "Who?"}))


async def test_a_client_that_cannot_be_asked_is_told_what_is_missing(joined: Joined) -> None:
    async with joined() as client:
        if client.revision.has_input_required:
            with pytest.raises(RemoteError) as caught:
                await client.call_tool("test_missing_capability")
            assert caught.value.code == -32021
        else:
            assert (await client.call_tool("test_missing_capability")).is_error


async def test_changes_are_heard(joined: Joined) -> None:
    async with joined() as client, client.listen(tools=True) as changes:
        await client.call_tool("test_trigger_tool_change")
        async with asyncio.timeout(60):
            assert await anext(changes) == Change("tools")


async def test_a_response_stream_that_is_let_go_of_is_found_again(joined: Joined) -> None:
    async with joined() as client:
        assert success_text_of(await client.call_tool("test_reconnection")) == "You came back."
