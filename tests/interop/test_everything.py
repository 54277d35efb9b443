"""Our client with @modelcontextprotocol/server-everything, over each of its transports."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from mcplumb import Client, RemoteError, RequestTimeout
from mcplumb.client.input_handlers import Elicitation
from mcplumb.protocol.subscription_state import Change
from mcplumb.types.client_features import CreateMessageParams
from mcplumb.types.content import EmbeddedResource, ImageContent, ResourceLink, TextContent
from mcplumb.types.notification_params import LogMessageParams
from tests.interop.environments import TYPESCRIPT_V1
from tests.interop.serving import calling, serving
from tests.interop.visiting import IMPATIENT, LEGACY, complain_not, read, said, visiting

#: Connects to the server; takes the options of ``connect``.
Visits: TypeAlias = Callable[..., AbstractAsyncContextManager[Client]]

PROGRAM = "mcp-server-everything"


@pytest.fixture(params=["stdio", "streamableHttp", "sse"])
def everything(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Visits]:
    program = TYPESCRIPT_V1.executable(PROGRAM)
    if request.param == "stdio":
        yield partial(visiting, [program])
        return
    with serving(["env", "PORT={port}", program, request.param], tmp_path / "log") as server:
        yield partial(calling, server.url("/sse" if request.param == "sse" else "/mcp"))


def test_it_is_found_to_be_legacy(everything: Visits) -> None:
    async def go() -> None:
        async with everything() as client:
            assert str(client.revision) == LEGACY
            assert client.server_info is not None
            assert client.server_info.name == "mcp-servers/everything"
            assert client.instructions is not None
            assert client.instructions.startswith("# Everything Server")
            complain_not(client)

    asyncio.run(go())


def test_tools(everything: Visits) -> None:
    async def go() -> None:
        async with everything() as client:
            names = {tool.name for tool in await client.list_tools()}
            assert {"echo", "get-sum", "get-tiny-image", "trigger-long-running-operation"} <= names
            assert said(await client.call_tool("echo", {"message": "Åse"})) == "Echo: Åse"
            assert said(await client.call_tool("get-sum", {"a": 2, "b": 3})) == "The sum of 2 and 3 is 5."
            weather = await client.call_tool("get-structured-content", {"location": "Chicago"})
            assert weather.structured_content == {
                "temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82,
            }  # fmt: skip
            image = await client.call_tool("get-tiny-image")
            [picture] = [block for block in image.content if isinstance(block, ImageContent)]
            assert base64.b64decode(picture.data).startswith(b"\x89PNG")
            links = await client.call_tool("get-resource-links", {"count": 2})
            assert sum(isinstance(block, ResourceLink) for block in links.content) == 2
            reference = await client.call_tool("get-resource-reference", {"resourceType": "Text", "resourceId": 1})
            assert any(isinstance(block, EmbeddedResource) for block in reference.content)
            wrong = await client.call_tool("get-sum", {"a": "two"})
            assert wrong.is_error
            complain_not(client)

    asyncio.run(go())


@pytest.mark.req("LIF-12")
def test_it_sees_no_variable_that_it_was_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTEROP_SECRET", "not for servers")

    async def go() -> None:
        async with visiting([TYPESCRIPT_V1.executable(PROGRAM)], env={"INTEROP_GIVEN": "for this one"}) as client:
            variables = json.loads(said(await client.call_tool("get-env")))
            assert variables["INTEROP_GIVEN"] == "for this one"
            assert variables["PATH"] == os.environ["PATH"]
            assert "INTEROP_SECRET" not in variables

    asyncio.run(go())


def test_resources_and_prompts(everything: Visits) -> None:
    async def go() -> None:
        async with everything() as client:
            resources = await client.list_resources()
            assert await read(client, resources[0].uri)
            templates = {template.uri_template for template in await client.list_resource_templates()}
            assert templates == {
                "demo://resource/dynamic/text/{resourceId}", "demo://resource/dynamic/blob/{resourceId}",
            }  # fmt: skip
            text = await read(client, "demo://resource/dynamic/text/7")
            assert text is not None
            assert text.startswith("Resource 7: This is a plaintext resource")
            blob = await read(client, "demo://resource/dynamic/blob/7")
            assert blob is not None
            assert base64.b64decode(blob).startswith(b"Resource 7: This is a base64 blob")
            with pytest.raises(RemoteError):
                await client.read_resource("demo://nowhere")
            assert "args-prompt" in {prompt.name for prompt in await client.list_prompts()}
            prompt = await client.get_prompt("args-prompt", {"city": "Oslo"})
            assert prompt.messages[0].content == TextContent("What's weather in Oslo?")
            departments = await client.complete("completable-prompt", "department", "S")
            assert departments.values == ["Sales", "Support"]
            people = await client.complete("completable-prompt", "name", "", {"department": "Sales"})
            assert people.values == ["David", "Eve", "Frank"]
            complain_not(client)

    asyncio.run(go())


def test_progress(everything: Visits) -> None:
    async def go() -> None:
        steps: list[tuple[float, float | None]] = []
        async with everything() as client:
            result = await client.call_tool(
                "trigger-long-running-operation",
                {"duration": 0.6, "steps": 6},
                on_progress=lambda progress, total, _: steps.append((progress, total)),
            )
            assert "completed" in said(result)
            assert steps == [(step, 6) for step in range(1, 7)]
            complain_not(client)

    asyncio.run(go())


def test_calls_that_are_given_up_do_no_harm(everything: Visits) -> None:
    # This tool does not look at its cancellation: it goes on reporting progress, and keeps the server alive.
    async def go() -> None:
        async with everything(stop=IMPATIENT) as client:
            long: dict[str, Any] = {"duration": 600, "steps": 6000}
            begun = asyncio.Event()
            call = asyncio.create_task(
                client.call_tool("trigger-long-running-operation", long, on_progress=lambda *_: begun.set())
            )
            await begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            with pytest.raises(RequestTimeout):
                await client.call_tool("trigger-long-running-operation", long, timeout=0.2)
            assert said(await client.call_tool("echo", {"message": "still here"})) == "Echo: still here"

    asyncio.run(go())


def test_it_asks_the_user_a_model_and_for_the_roots(everything: Visits, tmp_path: Path) -> None:
    def elicit(question: Elicitation) -> dict[str, Any]:
        assert question.schema is not None
        assert question.schema["required"] == ["name"]
        return {"name": "Åse", "integer": 7}

    def sample(params: CreateMessageParams) -> str:
        return "Oslo, I think."

    async def go() -> None:
        async with everything(on_elicit=elicit, on_sample=sample, roots=[tmp_path]) as client:
            # It adds these tools when it has heard what its client can do, and announces that.
            assert {"trigger-elicitation-request", "trigger-sampling-request", "get-roots-list"} <= {
                tool.name for tool in await client.list_tools()
            }
            answered = said(await client.call_tool("trigger-elicitation-request"))
            assert "- Name: Åse" in answered
            assert "- Favorite Integer: 7" in answered
            sampled = said(await client.call_tool("trigger-sampling-request", {"prompt": "The capital?"}))
            assert "Oslo, I think." in sampled
            assert tmp_path.as_uri() in said(await client.call_tool("get-roots-list"))
            complain_not(client)

    asyncio.run(go())


def test_changes_and_log_messages(everything: Visits) -> None:
    async def go() -> None:
        uri = "demo://resource/dynamic/text/1"
        log: asyncio.Queue[LogMessageParams] = asyncio.Queue()
        async with everything(on_log=log.put_nowait) as client:
            await client.set_log_level("debug")
            async with client.listen(resources=[uri]) as changes:
                # It logs each subscription.
                assert uri in str((await log.get()).data)
                await client.call_tool("toggle-subscriber-updates")
                assert await anext(changes) == Change("updates", uri)
            await client.call_tool("toggle-subscriber-updates")
            complain_not(client)

    asyncio.run(go())
