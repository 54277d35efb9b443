"""Hosts and servers that we did not write, with a tap between them: recorded, shown, and clean."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.environments import PYTHON_V2, TYPESCRIPT_V1, Environment
from tests.interop.serving import served
from tests.interop.tapping import tap_command
from tests.interop.test_official_clients import CLIENTS, SERVER, Client
from tests.interop.visiting import visiting
from tests.tap.tapping import complete, session_of

INSPECTOR = Environment("npm_modelcontextprotocol_inspector", ("@modelcontextprotocol/inspector@2.12.0",))

#: Of each SDK, a client in each era that it knows.
HOSTS = [client for client in CLIENTS if client.way == "stdio"]
HTTP_HOSTS = [client for client in CLIENTS if client.way != "stdio"]


@pytest.mark.parametrize("client", HOSTS, ids=str)
def test_the_official_clients_are_recorded_without_untrue_findings(client: Client, tmp_path: Path) -> None:
    place = tmp_path / "session.mcp.jsonl"
    command = client.environment.command(client.program, tmp_path)
    command += [client.mode] if client.mode else []
    done = subprocess.run(
        [*command, *tap_command(place, SERVER)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["revision"] == client.revision
    complete(place)
    session = session_of(place)
    assert [finding.message for finding in session.findings.found if finding.severity == "error"] == []
    assert client.revision in session.transcript.revisions
    calls = [call for call in session.transcript.calls() if call.method == "tools/call"]
    assert len(calls) > 5


@pytest.mark.parametrize("client", HTTP_HOSTS, ids=str)
def test_the_official_clients_are_recorded_over_http(client: Client, tmp_path: Path) -> None:
    recording = tmp_path / "session.mcp.jsonl"
    command = client.environment.command(client.program, tmp_path)
    command += [client.mode] if client.mode else []
    with (tmp_path / "stderr").open("w") as stderr, served(SERVER, client.way, stderr) as place:
        *words, url = place
        tap = [sys.executable, "-m", "mcplumb", "tap", "--http", "127.0.0.1:0", "-s", url, "--record", str(recording)]
        with subprocess.Popen(tap, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            try:
                said = process.stderr.readline()
                found = re.search(r"listens at (\S+)\. ", said)
                assert found is not None, said
                done = subprocess.run(
                    [*command, *words, found[1]], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
                )
            finally:
                process.terminate()
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["revision"] == client.revision
    session = session_of(recording)
    assert session.findings.found == []
    assert client.revision in session.transcript.revisions
    calls = [call for call in session.transcript.calls() if call.method == "tools/call"]
    assert len(calls) > 5


OFFICIAL = {
    "everything": (TYPESCRIPT_V1, "mcp-server-everything", []),
    "filesystem": (TYPESCRIPT_V1, "mcp-server-filesystem", ["{folder}"]),
    "memory": (TYPESCRIPT_V1, "mcp-server-memory", []),
    "time": (PYTHON_V2, "mcp-server-time", []),
}


@pytest.mark.parametrize("name", OFFICIAL)
def test_clean_sessions_of_official_servers_have_no_findings(name: str, tmp_path: Path) -> None:
    environment, program, arguments = OFFICIAL[name]
    place = tmp_path / "session.mcp.jsonl"
    command = [environment.executable(program), *(word.format(folder=tmp_path) for word in arguments)]

    async def go() -> None:
        async with visiting(tap_command(place, command)) as client:
            tools = await client.list_tools()
            assert tools
            if client.capabilities.resources is not None:
                await client.list_resources()
            if client.capabilities.prompts is not None:
                await client.list_prompts()
            if name == "everything":
                await client.call_tool("echo", {"message": "hi"}, on_progress=lambda *_: None)

    asyncio.run(go())
    complete(place)
    session = session_of(place)
    assert [(finding.rule, finding.message) for finding in session.findings.found] == []
    assert session.transcript.server.name


def test_the_inspector_is_recorded(tmp_path: Path) -> None:
    place = tmp_path / "session.mcp.jsonl"
    # The Inspector takes a -- for its own.
    script = tmp_path / "server"
    script.write_text(f"#!/bin/sh\nexec {shlex.join(tap_command(place, SERVER))}\n")
    script.chmod(0o755)
    inspector = [INSPECTOR.executable("mcp-inspector"), "--cli", str(script), "--format", "json"]
    done = subprocess.run(
        [*inspector, "--method", "tools/list"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert "greet" in {tool["name"] for tool in json.loads(done.stdout)["result"]["tools"]}
    complete(place)
    session = session_of(place)
    assert "tools/list" in {call.method for call in session.transcript.calls()}
    assert session.findings.found == []


def test_a_wrapped_entry_works_in_a_host(tmp_path: Path) -> None:
    """The Inspector reads a config file, which is wrapped and unwrapped."""
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"inn": {"command": SERVER[0], "args": SERVER[1:]}}}, indent=2))
    before = file.read_bytes()
    env = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path),
    }
    base = [sys.executable, "-m", "mcplumb"]
    subprocess.run([*base, "wrap", "inn", "--config", str(file), "--yes"], check=True, capture_output=True, env=env)
    inspector = [INSPECTOR.executable("mcp-inspector"), "--cli", "--config", str(file), "--server", "inn"]
    done = subprocess.run(
        [*inspector, "--method", "tools/list"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
        env=env,
    )
    assert done.returncode == 0, done.stderr.decode()
    subprocess.run([*base, "unwrap", "inn", "--config", str(file), "--yes"], check=True, capture_output=True, env=env)
    assert file.read_bytes() == before
    (recording,) = (tmp_path / ".local" / "state" / "mcplumb" / "recordings").iterdir()
    complete(recording)
    assert "tools/list" in {call.method for call in session_of(recording).transcript.calls()}
