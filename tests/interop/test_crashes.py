"""What becomes of real servers that cannot start or are killed, and of those whose host is."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from mcplumb import RequestLost, ServerExited, connect
from mcplumb.protocol.subscription_state import Change, Missed
from mcplumb.sync import connect as connect_in_sync
from tests.interop.environments import PYTHON_V2, TYPESCRIPT_V1, UV, Environment
from tests.interop.visiting import MARK, POLITE, pid_of, processes_with, said, visiting

HERE = Path(__file__).parent

EVERYTHING = "mcp-server-everything"
FILESYSTEM = "mcp-server-filesystem"


@pytest.mark.req("LIF-9")
class TestCannotStart:
    @pytest.mark.parametrize(
        ("environment", "command", "code", "words"),
        [
            (PYTHON_V2, ("mcp-server-time", "--local-timezone", "Nowhere"), 1, "not a known IANA timezone name"),
            (PYTHON_V2, ("mcp-server-git", "--repository", "/nowhere"), 1, "/nowhere does not exist"),
            (TYPESCRIPT_V1, (FILESYSTEM, "/nowhere"), 1, "None of the specified directories are accessible"),
            (UV, ("uv", "run", "--no-project", "--offline", "no-such-server"), 2, "Failed to spawn"),
        ],
    )
    def test_the_error_has_the_exit_code_and_the_servers_own_words(
        self, environment: Environment, command: tuple[str, ...], code: int, words: str
    ) -> None:
        async def go() -> None:
            program, *arguments = command
            async with connect([environment.executable(program), *arguments], stderr="capture"):
                raise AssertionError("It should not have started.")

        with pytest.raises(ServerExited) as exited:
            asyncio.run(go())
        assert exited.value.exit_code == code
        assert words in exited.value.stderr_tail
        assert words in str(exited.value)


class TestKilled:
    @pytest.mark.req("LIF-5", "LIF-6", "LIF-7")
    def test_a_read_only_call_is_made_again(self) -> None:
        async def go() -> None:
            async with visiting([TYPESCRIPT_V1.executable(EVERYTHING)]) as client:
                os.kill(pid_of(client), signal.SIGSTOP)  # so that it cannot answer before it is killed
                call = asyncio.create_task(client.call_tool("echo", {"message": "twice"}))
                await asyncio.sleep(0)
                os.kill(pid_of(client), signal.SIGKILL)
                assert said(await call) == "Echo: twice"
                assert client.process is not None
                assert [each.signal for each in client.process.exits] == ["SIGKILL"]

        asyncio.run(go())

    @pytest.mark.req("LIF-6", "LIF-9")
    def test_the_outcome_of_another_call_is_unknown(self) -> None:
        # The server asks for a form, and is killed meanwhile: nobody can know how far it got.
        async def go() -> None:
            asked, never = asyncio.Event(), asyncio.Event()

            async def elicit(_: object) -> None:
                asked.set()
                await never.wait()

            async with visiting([TYPESCRIPT_V1.executable(EVERYTHING)], on_elicit=elicit) as client:
                call = asyncio.create_task(client.call_tool("trigger-elicitation-request"))
                await asked.wait()
                os.kill(pid_of(client), signal.SIGKILL)
                with pytest.raises(RequestLost) as lost:
                    await call
                assert isinstance(lost.value.__cause__, ServerExited)
                assert lost.value.__cause__.signal == "SIGKILL"
                assert said(await client.call_tool("echo", {"message": "again"})) == "Echo: again"

        asyncio.run(go())

    @pytest.mark.req("SUB-4", "SUB-6")
    def test_a_subscription_is_opened_again(self, tmp_path: Path) -> None:
        async def go() -> None:
            env = {"MEMORY_FILE_PATH": str(tmp_path / "memory.jsonl")}
            async with visiting([TYPESCRIPT_V1.executable("mcp-server-memory")], env=env) as client:
                [graph] = await client.list_resources()
                async with client.listen(resources=[graph.uri]) as changes:
                    os.kill(pid_of(client), signal.SIGKILL)
                    assert await anext(changes) == Missed()
                    inn = {"name": "inn", "entityType": "house", "observations": []}
                    await client.call_tool("create_entities", {"entities": [inn]})
                    assert await anext(changes) == Change("updates", graph.uri)

        asyncio.run(go())


@pytest.mark.req("LIF-4")
@pytest.mark.parametrize("launcher", ["directly", "npx"])
def test_a_host_that_is_killed_leaves_nothing_behind(launcher: str) -> None:
    folder = TYPESCRIPT_V1.made()
    server = ["npx", "--no", EVERYTHING] if launcher == "npx" else [TYPESCRIPT_V1.executable(EVERYTHING)]
    mark = uuid.uuid4().hex
    host = subprocess.Popen(
        [sys.executable, str(HERE / "host.py"), str(folder), *server],
        env={**os.environ, MARK: mark},
        stdout=subprocess.PIPE,
    )
    with host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"connected\n"
        assert len(processes_with(mark)) > 1
        host.kill()
    bound = time.monotonic() + 60
    while left := processes_with(mark):
        assert time.monotonic() < bound, f"These are left: {left}"
        time.sleep(0.05)


def test_the_blocking_client(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("Bring a coat.")
    mark = uuid.uuid4().hex
    options: dict[str, Any] = {"env": {MARK: mark}, "stop": POLITE}
    with connect_in_sync([TYPESCRIPT_V1.executable(FILESYSTEM), str(tmp_path)], **options) as client:
        note = client.call_tool("read_text_file", {"path": str(tmp_path / "note.txt")})
        assert said(note) == "Bring a coat."
        assert len(processes_with(mark)) == 1
    assert processes_with(mark) == []
