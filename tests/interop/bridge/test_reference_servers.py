"""The reference servers behind the bridge, and our client of either era in front of it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcplumb import Client
from mcplumb.client.input_handlers import Elicitation
from mcplumb.protocol.subscription_state import Change
from mcplumb.types.client_features import CreateMessageParams
from mcplumb.types.content import ImageContent, ResourceLink, TextContent
from tests.interop.environments import TYPESCRIPT_V1
from tests.interop.serving import calling, serving
from tests.interop.visiting import LEGACY, MODERN, complain_not, read, said, visiting

BRIDGE = [sys.executable, "-m", "mcplumb", "bridge"]
EVERYTHING = "mcp-server-everything"
FILESYSTEM = "mcp-server-filesystem"

each_era = pytest.mark.parametrize("era", [LEGACY, MODERN])
each_way = pytest.mark.parametrize("way", ["stdio", "http"])


@asynccontextmanager
async def bridged(server: Sequence[str], era: str, way: str, scratch: Path, **options: Any) -> AsyncIterator[Client]:
    """A client of an era, through a bridge in front of a server over stdio."""
    options["revisions"] = [era]
    if way == "stdio":
        async with visiting([*BRIDGE, "--", *server], **options) as client:
            yield client
        return
    with serving([*BRIDGE, "--http", "127.0.0.1:{port}", "--", *server], scratch / "log") as bridge:
        async with calling(bridge.url("/mcp"), **options) as client:
            yield client


@each_era
@each_way
@pytest.mark.req("BRG-1")
async def test_everything(era: str, way: str, tmp_path: Path) -> None:
    async with bridged([TYPESCRIPT_V1.executable(EVERYTHING)], era, way, tmp_path) as client:
        assert str(client.revision) == era
        assert client.server_info is not None
        assert client.server_info.name == "mcp-servers/everything"
        assert {"echo", "get-sum", "get-tiny-image"} <= {tool.name for tool in await client.list_tools()}
        assert said(await client.call_tool("echo", {"message": "Åse"})) == "Echo: Åse"
        weather = await client.call_tool("get-structured-content", {"location": "Chicago"})
        assert weather.structured_content is not None
        assert weather.structured_content["humidity"] == 82
        image = await client.call_tool("get-tiny-image")
        assert any(isinstance(block, ImageContent) for block in image.content)
        links = await client.call_tool("get-resource-links", {"count": 2})
        assert sum(isinstance(block, ResourceLink) for block in links.content) == 2
        assert said(await client.call_tool("get-sum", {"a": "two"})).startswith("error: ")

        steps: list[tuple[float, float | None]] = []
        long = await client.call_tool(
            "trigger-long-running-operation",
            {"duration": 0.3, "steps": 3},
            on_progress=lambda progress, total, _: steps.append((progress, total)),
        )
        assert "completed" in said(long)
        assert steps == [(1, 3), (2, 3), (3, 3)]

        assert len(await client.list_resource_templates()) == 2
        text = await read(client, "demo://resource/dynamic/text/7")
        assert text is not None
        assert text.startswith("Resource 7: ")
        prompt = await client.get_prompt("args-prompt", {"city": "Oslo"})
        assert prompt.messages[0].content == TextContent("What's weather in Oslo?")
        departments = await client.complete("completable-prompt", "department", "S")
        assert departments.values == ["Sales", "Support"]

        uri = "demo://resource/dynamic/text/1"
        async with client.listen(resources=[uri]) as changes:
            await client.call_tool("toggle-subscriber-updates")
            assert await anext(changes) == Change("updates", uri)
        await client.call_tool("toggle-subscriber-updates")
        complain_not(client)


@each_era
@each_way
@pytest.mark.req("BRG-2")
async def test_everything_asks_the_user_a_model_and_for_the_roots(era: str, way: str, tmp_path: Path) -> None:
    def elicit(question: Elicitation) -> dict[str, Any]:
        assert question.schema is not None
        assert question.schema["required"] == ["name"]
        return {"name": "Åse", "integer": 7}

    def sample(_: CreateMessageParams) -> str:
        return "Oslo, I think."

    options: dict[str, Any] = {"on_elicit": elicit, "on_sample": sample, "roots": [tmp_path]}
    async with bridged([TYPESCRIPT_V1.executable(EVERYTHING)], era, way, tmp_path, **options) as client:
        answered = said(await client.call_tool("trigger-elicitation-request"))
        assert "- Name: Åse" in answered
        assert "- Favorite Integer: 7" in answered
        sampled = said(await client.call_tool("trigger-sampling-request", {"prompt": "The capital?"}))
        assert "Oslo, I think." in sampled
        assert tmp_path.as_uri() in said(await client.call_tool("get-roots-list"))
        complain_not(client)


@each_era
@each_way
@pytest.mark.req("BRG-1")
async def test_filesystem(era: str, way: str, tmp_path: Path) -> None:
    folder = (tmp_path / "files").resolve()
    folder.mkdir()
    note = folder / "note.txt"
    async with bridged([TYPESCRIPT_V1.executable(FILESYSTEM), str(folder)], era, way, tmp_path) as client:
        assert str(folder) in said(await client.call_tool("list_allowed_directories"))
        await client.call_tool("write_file", {"path": str(note), "content": "Bring a coat."})
        assert note.read_text() == "Bring a coat."
        assert said(await client.call_tool("read_text_file", {"path": str(note)})) == "Bring a coat."
        refused = await client.call_tool("read_text_file", {"path": str(tmp_path / "secret.txt")})
        assert refused.is_error
        complain_not(client)
