"""Our client with servers that people run over stdio: the reference servers, as the registries have them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mcplumb import Client, RemoteError
from mcplumb.protocol.subscription_state import Change
from tests.interop.environments import PYTHON_V2, TYPESCRIPT_V1, run
from tests.interop.visiting import LEGACY, MODERN, complain_not, read, said, visiting


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
