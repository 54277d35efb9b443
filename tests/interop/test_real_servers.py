"""Our client with servers that people run: the reference servers, as the registries have them."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mcpipe import Client, RemoteError, RequestTimeout
from mcpipe.client.inputs import Elicitation
from mcpipe.protocol.listening import Change
from mcpipe.types.content import EmbeddedResource, ImageContent, ResourceLink, TextContent
from mcpipe.types.log import LogMessageParams
from mcpipe.types.sampling import CreateMessageParams
from tests.interop.environments import PYTHON_V2, TYPESCRIPT_V1, run
from tests.interop.visiting import IMPATIENT, LEGACY, MODERN, read, said, visiting


def everything() -> list[str]:
    return [TYPESCRIPT_V1.executable("mcp-server-everything")]


def complain_not(client: Client) -> None:
    """Everything that came was understood."""
    stats = client.stats
    assert (stats.bad_lines, stats.violations, stats.unknown_answers) == (0, 0, 0)


class TestEverything:
    """@modelcontextprotocol/server-everything"""

    def test_it_is_found_to_be_legacy(self) -> None:
        async def go() -> None:
            async with visiting(everything()) as client:
                assert str(client.revision) == LEGACY
                assert client.server_info is not None
                assert client.server_info.name == "mcp-servers/everything"
                assert client.instructions is not None
                assert client.instructions.startswith("# Everything Server")
                complain_not(client)

        asyncio.run(go())

    def test_tools(self) -> None:
        async def go() -> None:
            async with visiting(everything()) as client:
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
    def test_it_sees_no_variable_that_it_was_not_given(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INTEROP_SECRET", "not for servers")

        async def go() -> None:
            async with visiting(everything(), env={"INTEROP_GIVEN": "for this one"}) as client:
                variables = json.loads(said(await client.call_tool("get-env")))
                assert variables["INTEROP_GIVEN"] == "for this one"
                assert variables["PATH"] == os.environ["PATH"]
                assert "INTEROP_SECRET" not in variables

        asyncio.run(go())

    def test_resources_and_prompts(self) -> None:
        async def go() -> None:
            async with visiting(everything()) as client:
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

    def test_progress(self) -> None:
        async def go() -> None:
            steps: list[tuple[float, float | None]] = []
            async with visiting(everything()) as client:
                result = await client.call_tool(
                    "trigger-long-running-operation",
                    {"duration": 0.6, "steps": 6},
                    on_progress=lambda progress, total, _: steps.append((progress, total)),
                )
                assert "completed" in said(result)
                assert steps == [(step, 6) for step in range(1, 7)]
                complain_not(client)

        asyncio.run(go())

    def test_calls_that_are_given_up_do_no_harm(self) -> None:
        # This tool does not look at its cancellation: it goes on reporting progress, and keeps the server alive.
        async def go() -> None:
            async with visiting(everything(), stop=IMPATIENT) as client:
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

    def test_it_asks_the_user_a_model_and_for_the_roots(self, tmp_path: Path) -> None:
        def elicit(question: Elicitation) -> dict[str, Any]:
            assert question.schema is not None
            assert question.schema["required"] == ["name"]
            return {"name": "Åse", "integer": 7}

        def sample(params: CreateMessageParams) -> str:
            return "Oslo, I think."

        async def go() -> None:
            async with visiting(everything(), on_elicit=elicit, on_sample=sample, roots=[tmp_path]) as client:
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

    def test_changes_and_log_messages(self) -> None:
        async def go() -> None:
            uri = "demo://resource/dynamic/text/1"
            log: asyncio.Queue[LogMessageParams] = asyncio.Queue()
            async with visiting(everything(), on_log=log.put_nowait) as client:
                await client.set_log_level("debug")
                async with client.listen(resources=[uri]) as changes:
                    # It logs each subscription.
                    assert uri in str((await log.get()).data)
                    await client.call_tool("toggle-subscriber-updates")
                    assert await anext(changes) == Change("updates", uri)
                await client.call_tool("toggle-subscriber-updates")
                complain_not(client)

        asyncio.run(go())


def test_filesystem(tmp_path: Path) -> None:
    """@modelcontextprotocol/server-filesystem"""

    async def go() -> None:
        command = [TYPESCRIPT_V1.executable("mcp-server-filesystem"), str(tmp_path)]
        note = tmp_path / "note.txt"
        async with visiting(command) as client:
            assert str(client.revision) == LEGACY
            assert {"read_text_file", "write_file", "search_files"} <= {tool.name for tool in await client.list_tools()}
            await client.call_tool("write_file", {"path": str(note), "content": "Bring a coat.\n" * 10_000})
            assert note.read_text() == "Bring a coat.\n" * 10_000
            text = await client.call_tool("read_text_file", {"path": str(note)})
            assert said(text) == note.read_text()
            assert text.structured_content == {"content": note.read_text()}
            assert "[FILE] note.txt" in said(await client.call_tool("list_directory", {"path": str(tmp_path)}))
            outside = await client.call_tool("read_text_file", {"path": str(tmp_path.parent / "other")})
            assert "Access denied" in said(outside)
            assert outside.is_error
            # It has neither resources nor prompts, and does not say otherwise.
            assert client.capabilities.resources is None
            complain_not(client)

    asyncio.run(go())


def test_filesystem_follows_the_roots(tmp_path: Path) -> None:
    async def go() -> None:
        first, second = tmp_path / "first", tmp_path / "second"
        first.mkdir()
        second.mkdir()
        roots = [first]
        asked: asyncio.Queue[None] = asyncio.Queue()

        async def give() -> list[Path]:
            asked.put_nowait(None)
            return roots

        command = [TYPESCRIPT_V1.executable("mcp-server-filesystem"), str(tmp_path)]
        async with visiting(command, roots=give) as client:
            await asked.get()
            await allowed(client, first)
            roots[:] = [second]
            await client.roots_changed()
            await asked.get()
            await allowed(client, second)

    async def allowed(client: Client, folder: Path) -> None:
        # It looks at the folders after the answer, and does not say when it is done.
        while str(folder) not in said(await client.call_tool("list_allowed_directories")):
            pass

    asyncio.run(go())


def test_memory(tmp_path: Path) -> None:
    """@modelcontextprotocol/server-memory"""

    async def go() -> None:
        command = [TYPESCRIPT_V1.executable("mcp-server-memory")]
        kept = tmp_path / "memory.jsonl"
        async with visiting(command, env={"MEMORY_FILE_PATH": str(kept)}) as client:
            assert str(client.revision) == LEGACY
            assert {"create_entities", "read_graph"} <= {tool.name for tool in await client.list_tools()}
            [resource] = await client.list_resources()
            inn = {"name": "inn", "entityType": "house", "observations": ["It is full."]}
            async with client.listen(resources=[resource.uri]) as changes:
                made = await client.call_tool("create_entities", {"entities": [inn]})
                assert made.structured_content == {"entities": [inn]}
                assert await anext(changes) == Change("updates", resource.uri)
            graph = await client.call_tool("read_graph")
            assert graph.structured_content == {"entities": [inn], "relations": []}
            assert "It is full." in (await read(client, resource.uri) or "")
            complain_not(client)
        assert "It is full." in kept.read_text()

        async with visiting(command, env={"MEMORY_FILE_PATH": str(kept)}) as client:
            assert "It is full." in said(await client.call_tool("read_graph"))

    asyncio.run(go())


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
def test_time(revision: str) -> None:
    """mcp-server-time"""

    async def go() -> None:
        command = [PYTHON_V2.executable("mcp-server-time"), "--local-timezone", "Europe/Oslo"]
        async with visiting(command, revisions=[LEGACY] if revision == LEGACY else None) as client:
            assert str(client.revision) == revision
            assert sorted(tool.name for tool in await client.list_tools()) == ["convert_time", "get_current_time"]
            noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
            converted = await client.call_tool("convert_time", noon)
            assert isinstance(converted.structured_content, dict)
            assert converted.structured_content["time_difference"] == "+9.0h"
            nowhere = await client.call_tool("get_current_time", {"timezone": "Nowhere/Land"})
            assert nowhere.is_error
            with pytest.raises(RemoteError) as unknown:
                await client.call_tool("make_time")
            assert unknown.value.code == -32602
            # It says that it has resources and prompts, and has none.
            assert await client.list_resources() == []
            assert await client.list_prompts() == []
            complain_not(client)

    asyncio.run(go())


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
def test_git(revision: str, tmp_path: Path) -> None:
    """mcp-server-git"""

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=Guest", "-c", "user.email=guest@example.org")
        run("git", "-C", str(tmp_path), *identity, *arguments)

    git("init", "--initial-branch", "main")
    (tmp_path / "note.txt").write_text("Bring a coat.\n")
    git("add", "note.txt")
    git("commit", "--message", "A note")
    (tmp_path / "note.txt").write_text("Bring a hat.\n")

    async def go() -> None:
        command = [PYTHON_V2.executable("mcp-server-git"), "--repository", str(tmp_path)]
        async with visiting(command, revisions=[LEGACY] if revision == LEGACY else None) as client:
            assert str(client.revision) == revision
            assert {"git_status", "git_log", "git_diff_unstaged"} <= {tool.name for tool in await client.list_tools()}
            here = {"repo_path": str(tmp_path)}
            # Several at once; each starts a git of its own.
            status, log, diff = await asyncio.gather(
                client.call_tool("git_status", here),
                client.call_tool("git_log", here),
                client.call_tool("git_diff_unstaged", here),
            )
            assert "modified:   note.txt" in said(status)
            assert "A note" in said(log)
            assert "+Bring a hat." in said(diff)
            outside = await client.call_tool("git_status", {"repo_path": str(tmp_path.parent)})
            assert outside.is_error
            complain_not(client)

    asyncio.run(go())
