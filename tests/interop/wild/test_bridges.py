"""Bridges of third parties between a client and a server of ours, which both have to work through them."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mcplumb import Client
from tests.interop.environments import NotInstalled
from tests.interop.serving import calling, served, serving
from tests.interop.visiting import LEGACY, MODERN, complain_not, said, visiting
from tests.interop.wild.software import MCP_REMOTE, OWN_SERVER, SUPERGATEWAY, ThirdPartyClient


class Bridge(NamedTuple):
    name: str
    client: ThirdPartyClient
    #: The arguments of the program, with ``{url}`` for where our server is, or ``{command}`` and ``{port}``.
    arguments: tuple[str, ...]
    #: What the client and the server agree on if the client allows every revision.
    revision: str
    #: It drops progress, or has a server of its own for each request.
    drops_progress: bool = False
    #: It opens the session with a revision that has no structured content.
    drops_structured: bool = False

    def __str__(self) -> str:
        return f"{self.client}-{self.name}"

    def command(self, **places: str) -> list[str]:
        program = self.client.environment.executable(self.client.program)
        return [program, *(part.format(**places) for part in self.arguments)]


#: Our client starts these, and they connect to our server over HTTP.
OVER_STDIO = [
    Bridge("http", MCP_REMOTE, ("{url}/mcp", "--allow-http"), MODERN),
    # It opens a session for `server/discover`, and sends the `initialize` that follows in the same session.
    Bridge("http", SUPERGATEWAY, ("--streamableHttp", "{url}/mcp", "--logLevel", "none"), LEGACY, drops_progress=True),
    Bridge("sse", SUPERGATEWAY, ("--sse", "{url}/sse", "--logLevel", "none"), LEGACY, drops_progress=True),
]

STDIO = ("--stdio", "{command}", "--port", "{port}", "--outputTransport")
#: These start our server, and our client connects to them.
OVER_HTTP = [
    Bridge("stateless", SUPERGATEWAY, (*STDIO, "streamableHttp"), MODERN, drops_progress=True, drops_structured=True),
    Bridge("stateful", SUPERGATEWAY, (*STDIO, "streamableHttp", "--stateful"), MODERN, drops_progress=True),
    Bridge("sse", SUPERGATEWAY, (*STDIO, "sse"), LEGACY),
]


def installed(bridge: Bridge) -> None:
    try:
        bridge.client.environment.made()
    except NotInstalled as error:
        pytest.skip(f"{bridge.client} cannot be installed: {error}")


async def use(client: Client, *, with_progress: bool = True, with_structured: bool = True) -> None:
    assert client.server_info is not None
    assert client.server_info.name == "interop"
    assert {"climb", "forecast", "greet", "refuse"} <= {tool.name for tool in await client.list_tools()}
    assert said(await client.call_tool("greet", {"name": "Åse"})) == "Hello, Åse!"
    forecast = await client.call_tool("forecast", {"city": "Oslo", "days": 2})
    assert forecast.structured_content == ({"city": "Oslo", "celsius": [0, 1]} if with_structured else None)
    assert said(await client.call_tool("refuse", {"reason": "The inn is full."})) == "error: The inn is full."
    if with_progress:
        steps: list[tuple[Any, ...]] = []
        last_step = asyncio.Event()

        def on_progress(progress: float, total: float | None, message: str | None) -> None:
            steps.append((progress, total, message))
            if progress == total:
                last_step.set()

        climb = asyncio.create_task(client.call_tool("climb", {"steps": 3}, on_progress=on_progress))
        await last_step.wait()
        await client.call_tool("release")
        assert said(await climb) == "climbed 3 steps"
        assert steps == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
    complain_not(client)


each_era = pytest.mark.parametrize("era", ["any", "legacy"])


def revisions(era: str) -> list[str] | None:
    return [LEGACY] if era == "legacy" else None


@each_era
@pytest.mark.parametrize("bridge", OVER_STDIO, ids=str)
async def test_our_client_starts_a_bridge_to_our_server(bridge: Bridge, era: str, tmp_path: Path) -> None:
    installed(bridge)
    with served(OWN_SERVER, "http") as [url]:
        command = bridge.command(url=url.removesuffix("/mcp"))
        async with visiting(command, env={"HOME": str(tmp_path)}, revisions=revisions(era)) as client:
            assert str(client.revision) == (LEGACY if era == "legacy" else bridge.revision)
            await use(client, with_progress=not bridge.drops_progress)


@each_era
@pytest.mark.parametrize("bridge", OVER_HTTP, ids=str)
async def test_a_bridge_starts_our_server_for_our_client(bridge: Bridge, era: str, tmp_path: Path) -> None:
    installed(bridge)
    command = bridge.command(command=shlex.join(OWN_SERVER), port="{port}")
    path = "/sse" if bridge.name == "sse" else "/mcp"
    with serving(command, tmp_path / "logs") as server:
        # One server serves all clients over HTTP+SSE, so it gets a second initialize there.
        for _ in range(2):
            async with calling(server.url(path), revisions=revisions(era)) as client:
                is_legacy = LEGACY in (bridge.revision, str(client.revision))
                assert str(client.revision) == (LEGACY if era == "legacy" else bridge.revision)
                await use(
                    client,
                    with_progress=not bridge.drops_progress or (is_legacy and bridge.name == "stateful"),
                    with_structured=not (bridge.drops_structured and is_legacy),
                )
