"""Mounted servers in real processes of uvicorn: their lifespan closes, and several of them share their clients."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from mcplumb import connect
from mcplumb.revisions import LATEST
from tests.kit.loop import PATIENCE
from tests.kit.results import text_of

ROOT = Path(__file__).parents[3]
LEGACY = "2025-11-25"


class Process:
    """A process of uvicorn, and the diary of the lifespan in it."""

    def __init__(self, app: str, diary: Path, *options: str) -> None:
        self.diary = diary
        command = [sys.executable, "-m", "uvicorn", f"tests.transports.http_server.mounted_app:{app}", "--port", "0"]
        self._process = subprocess.Popen(
            [*command, *options], cwd=ROOT, env={**os.environ, "DIARY": str(diary)}, stderr=subprocess.PIPE, text=True
        )
        self.log: list[str] = []
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            if "running on" in line:
                self.url = line.partition("running on ")[2].split()[0] + "/mcp"
                return
        pytest.fail("".join(self.log))

    def end(self, number: int) -> str:
        """Send a signal, wait for the end, and return the diary."""
        self._process.send_signal(number)
        _, rest = self._process.communicate(timeout=PATIENCE)
        self.log.append(rest)
        return self.diary.read_text() if self.diary.exists() else ""

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def post(self, message: dict[str, Any], **fields: str) -> tuple[http.client.HTTPResponse, dict[str, Any]]:
        """Post a message, and return the response and the JSON in it."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=PATIENCE)
        headers = {name.replace("_", "-"): value for name, value in fields.items()}
        headers |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), headers)
        response = connection.getresponse()
        said = json.loads(response.read())
        connection.close()
        return response, said


@contextmanager
def running(app: str, folder: Path, *options: str) -> Iterator[Process]:
    process = Process(app, folder / "diary", *options)
    try:
        yield process
    finally:
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
@pytest.mark.parametrize("app", ["with_lifespan", "without_lifespan", "api", "api_without_lifespan", "app"])
async def test_the_lifespan_closes_when_the_process_ends(app: str, number: int, tmp_path: Path) -> None:
    with running(app, tmp_path) as process:
        async with connect(process.url) as client:
            assert text_of(await client.call_tool("look")) == "database"
        assert process.end(number) == "open mounted\nclosed\n", "".join(process.log)
        assert "Traceback" not in "".join(process.log).replace("KeyboardInterrupt", ""), "".join(process.log)


@pytest.mark.parametrize("revision", [LATEST.name, LEGACY])
@pytest.mark.parametrize("app", ["with_lifespan", "without_lifespan"])
async def test_an_open_stream_does_not_keep_the_process_from_ending(app: str, revision: str, tmp_path: Path) -> None:
    with running(app, tmp_path) as process:
        async with connect(process.url, revisions=[revision], restart=False) as client:
            await client.call_tool("look")
            async with client.listen(tools=True):
                diary = await asyncio.to_thread(process.end, signal.SIGTERM)
        assert diary == "open mounted\nclosed\n", "".join(process.log)


def test_a_session_that_meets_another_process_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    with running("app", tmp_path) as one, running("app", tmp_path / "two") as two:
        client = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        response, _ = one.post({"id": 1, "method": "initialize", "params": client})
        session = response.getheader("Mcp-Session-Id")
        assert session is not None
        response, said = two.post({"id": 2, "method": "ping"}, Mcp_Session_Id=session)
        assert response.status == 404
        assert "belongs to another process" in said["error"]["message"]
        assert "Mcp-Session-Id" in said["error"]["message"]
        expired = session[:8] + "0" * len(session[8:])
        for unknown in (expired, "unknown"):
            response, said = one.post({"id": 2, "method": "ping"}, Mcp_Session_Id=unknown)
            assert response.status == 404
            assert "no such session" in said["error"]["message"]
        two.end(signal.SIGTERM)
        assert "".join(two.log).count("that this process has not opened") == 1


def test_an_answer_that_meets_another_process_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    meta = {
        "io.modelcontextprotocol/protocolVersion": LATEST.name,
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    fields = {"MCP_Protocol_Version": LATEST.name, "Mcp_Method": "tools/call", "Mcp_Name": "ask"}
    with running("app", tmp_path) as one, running("app", tmp_path / "two") as two:
        params: dict[str, Any] = {"name": "ask", "arguments": {}, "_meta": meta}
        _, asked = one.post({"id": 1, "method": "tools/call", "params": params}, **fields)
        key = next(iter(asked["result"]["inputRequests"]))
        params["requestState"] = asked["result"]["requestState"]
        params["inputResponses"] = {key: {"action": "accept", "content": {"name": "Ada"}}}
        _, refused = two.post({"id": 2, "method": "tools/call", "params": params}, **fields)
        assert "another process" in refused["error"]["message"]
        assert "state_keys" in refused["error"]["message"]
        _, answered = one.post({"id": 3, "method": "tools/call", "params": params}, **fields)
        assert text_of(answered) == "Ada"
