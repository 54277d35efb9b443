"""Servers behind the launchers that people start them with: the whole tree has to end, however it is closed."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mcplumb import Client, RequestCancelled
from tests.interop.environments import FASTMCP_3, PYTHON_V2, TYPESCRIPT_V1, TYPESCRIPT_V2, UV
from tests.interop.visiting import IMPATIENT, LEGACY, MODERN, pid_of, read, said, visiting

HERE = Path(__file__).parent

EVERYTHING = "mcp-server-everything"


class Launch(NamedTuple):
    command: list[str]
    cwd: Path | None = None

    def __call__(self, **options: Any) -> AbstractAsyncContextManager[Client]:
        return visiting(self.command, cwd=self.cwd, **options)


def directly() -> Launch:
    return Launch([TYPESCRIPT_V1.executable(EVERYTHING)])


def by_npx() -> Launch:
    return Launch(["npx", "--no", EVERYTHING], cwd=TYPESCRIPT_V1.made())


def by_shell() -> Launch:
    # The shell has something left to do, and so it stays.
    return Launch(["sh", "-c", f"{shlex.quote(TYPESCRIPT_V1.executable(EVERYTHING))}; exit $?"])


def by_uv(python: str, *program: str) -> Launch:
    # As with uvx, uv stays as the parent of what it runs.
    return Launch([UV.executable("uv"), "run", "--no-project", "--offline", "--python", python, *program])


each_launcher = pytest.mark.parametrize("launch", [directly, by_npx, by_shell])


@each_launcher
@pytest.mark.req("LIF-1", "LIF-2", "LIF-3")
def test_a_server_that_leaves_when_it_is_asked_to(launch: Callable[[], Launch]) -> None:
    async def go() -> None:
        async with launch()() as client:
            assert str(client.revision) == LEGACY
            assert said(await client.call_tool("echo", {"message": "hello"})) == "Echo: hello"

    asyncio.run(go())


@each_launcher
@pytest.mark.req("LIF-2", "LIF-3")
def test_a_server_that_stays_when_it_is_asked_to_leave(launch: Callable[[], Launch]) -> None:
    # This toggle starts a timer that keeps the server alive, whatever its input does.
    async def go() -> None:
        async with launch()(stop=IMPATIENT) as client:
            await client.call_tool("toggle-subscriber-updates")

    asyncio.run(go())


@pytest.mark.req("LIF-4")
def test_a_block_that_is_left_by_an_exception() -> None:
    async def go() -> None:
        async with by_npx()(stop=IMPATIENT) as client:
            await client.call_tool("toggle-subscriber-updates")
            raise LookupError("left early")

    with pytest.raises(LookupError, match="left early"):
        asyncio.run(go())


@each_launcher
@pytest.mark.req("LIF-3", "LIF-5")
def test_a_launcher_that_is_killed(launch: Callable[[], Launch]) -> None:
    # What it started lives on behind its back, and must not outlive the client. The client starts anew.
    async def go() -> None:
        async with launch()(stop=IMPATIENT) as client:
            await client.call_tool("toggle-subscriber-updates")
            os.kill(pid_of(client), signal.SIGKILL)
            assert client.process is not None
            while not client.process.exits:
                await client.list_tools()  # the server itself may still answer
            assert said(await client.call_tool("echo", {"message": "anew"})) == "Echo: anew"
            assert [each.signal for each in client.process.exits] == ["SIGKILL"]
            assert client.process.restarts == 1

    asyncio.run(go())


@pytest.mark.req("LIF-3")
def test_uv_that_leaves_with_its_server() -> None:
    async def go() -> None:
        async with by_uv(PYTHON_V2.executable("python"), "mcp-server-time")() as client:
            assert str(client.revision) == MODERN
            assert len(await client.list_tools()) == 2

    asyncio.run(go())


@pytest.mark.req("LIF-2", "LIF-3")
def test_uv_with_a_server_that_stays() -> None:
    # FastMCP 3 does not leave as long as a call is open.
    async def go() -> None:
        launch = by_uv(FASTMCP_3.executable("python"), "python", str(HERE / "servers" / "fastmcp_3.py"))
        async with launch(stop=IMPATIENT) as client:
            begun = asyncio.Event()
            call = client.call_tool("climb", {"steps": 1}, on_progress=lambda *_: begun.set())
            climb = asyncio.create_task(call)
            await begun.wait()
            await client.close()
            with pytest.raises(RequestCancelled):
                await climb

    asyncio.run(go())


@pytest.mark.req("ERA-6")
def test_a_modern_server_that_is_slow_to_start_stays_modern(tmp_path: Path) -> None:
    # It reads the question for its era together with the older greeting, would answer both, and then be legacy.
    async def go() -> None:
        server = TYPESCRIPT_V2.command(HERE / "servers" / "typescript_v2.mjs", tmp_path)
        slow = ["sh", "-c", f"sleep 1.5; exec {shlex.join(server)}"]
        async with visiting(slow, on_elicit=lambda _: {"nights": 1, "breakfast": False}) as client:
            assert str(client.revision) == MODERN
            booked = said(await client.call_tool("book", {"room": "the attic"}))
            assert booked == "the attic: 1 nights, breakfast false"
            async with client.listen(resources=["interop://notes"]) as changes:
                await client.call_tool("rewrite", {"text": "Bring a hat."})
                await anext(changes)
            assert await read(client, "interop://notes") == "Bring a hat."

    asyncio.run(go())
