"""Servers of third parties over stdio: each is started once, reached in its era, listed, called and closed."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from mcplumb.client import ClientStats, EraWaits
from tests.interop.environments import PYTHON_V2, NotInstalled
from tests.interop.visiting import said, visiting
from tests.interop.wild.software import PROGRAMS, SERVERS, ThirdPartyServer

#: Seconds for one client: the first start of a Python server compiles all that it imports, which can be a lot.
CLIENT_SECONDS = 240
#: The start has most of them.
WAITS = EraWaits(patience=200)


class Visit(NamedTuple):
    server: ThirdPartyServer
    revision: str
    tools: list[dict[str, Any]]
    #: The text of the harmless call, if there is one.
    answer: str | None
    stats: ClientStats
    #: How each start of the server ended.
    endings: list[dict[str, Any]]


async def visit(server: ThirdPartyServer, scratch: Path) -> Visit:
    """Use a server, which must have ended with all that it started when this returns."""
    starts = scratch / "starts"
    starts.mkdir()
    command = [sys.executable, str(PROGRAMS / "witness.py"), str(starts), *server.command(scratch)]
    answer = None
    options: dict[str, Any] = {"env": environment(scratch), "cwd": server.folder(scratch), "waits": WAITS}
    async with visiting(command, seconds=CLIENT_SECONDS, **options) as client:
        tools = await client.list_tools()
        if server.call is not None:
            answer = said(await client.call_tool(server.call.tool, server.call.arguments))
        stats, revision = client.stats, str(client.revision)
    endings = [json.loads(path.read_text()) for path in sorted(starts.iterdir())]
    return Visit(server, revision, [msgspec.to_builtins(tool) for tool in tools], answer, stats, endings)


def environment(scratch: Path) -> dict[str, str]:
    """The variables of a server, which keeps its files in a home of its own and reports to nobody."""
    return {
        "HOME": str(scratch),
        "DO_NOT_TRACK": "1",
        "MDB_MCP_TELEMETRY": "disabled",
        "NPM_CONFIG_UPDATE_NOTIFIER": "false",
    }


@pytest.fixture(scope="module", params=SERVERS, ids=str)
def visited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    server: ThirdPartyServer = request.param
    try:
        server.environment.made()
    except NotInstalled as error:
        pytest.skip(f"{server} cannot be installed: {error}")
    return asyncio.run(visit(server, tmp_path_factory.mktemp("server")))


def official_tools(server: ThirdPartyServer, scratch: Path) -> list[dict[str, Any]]:
    """Return what the official Python client lists, from a process of the server of its own."""
    program = [PYTHON_V2.executable("python"), str(PROGRAMS / "clients" / "list_tools.py")]
    done = subprocess.run(
        [*program, *server.command(scratch)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd=server.folder(scratch),
        env={**os.environ, **environment(scratch)},
        timeout=CLIENT_SECONDS,
        check=True,
    )
    tools: list[dict[str, Any]] = json.loads(done.stdout)
    return tools


def test_the_server_is_started_once(visited: Visit) -> None:
    assert len(visited.endings) == 1, visited.endings


def test_the_server_is_reached_in_its_era(visited: Visit) -> None:
    assert visited.revision == visited.server.revision


def test_the_tools_are_those_that_the_official_client_lists(visited: Visit, tmp_path: Path) -> None:
    assert visited.tools
    assert visited.tools == official_tools(visited.server, tmp_path)


def test_a_tool_is_called(visited: Visit) -> None:
    if visited.server.call is None:
        assert visited.answer is None
        return
    assert visited.answer is not None
    assert visited.server.call.text in visited.answer
    assert not visited.answer.startswith("error: ")


def test_everything_that_came_was_understood(visited: Visit) -> None:
    stats = visited.stats
    assert (stats.bad_lines, stats.violations, stats.unknown_answers) == (0, 0, 0)
