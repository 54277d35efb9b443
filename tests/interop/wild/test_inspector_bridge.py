"""MCP Inspector's command line in front of our bridge, and the reference servers behind it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.environments import TYPESCRIPT_V1, NotInstalled
from tests.interop.serving import serving
from tests.interop.wild.software import INSPECTOR

#: Seconds for one run of the Inspector.
SECONDS = 120
BRIDGE = [sys.executable, "-m", "mcplumb", "bridge"]

each_era = pytest.mark.parametrize("era", ["legacy", "modern"])
each_way = pytest.mark.parametrize("way", ["stdio", "http"])


class Inspector:
    """The Inspector's command line, which serves one request a run."""

    def __init__(self, place: str, era: str, home: Path) -> None:
        program = INSPECTOR.environment.executable(INSPECTOR.program)
        self._command = [program, "--cli", place, "--format", "json", "--protocol-era", era, "--method"]
        self._home = home

    def ask(self, method: str, *options: str) -> dict[str, Any]:
        done = subprocess.run(
            [*self._command, method, *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "HOME": str(self._home)},
            timeout=SECONDS,
            text=True,
            check=False,
        )
        print(done.stderr)
        # A tool that fails has a status of its own.
        assert done.returncode in (0, 5), done
        result: dict[str, Any] = json.loads(done.stdout)["result"]
        return result

    def call(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        result = self.ask("tools/call", "--tool-name", tool, "--tool-args-json", json.dumps(arguments))
        return result["content"][0]["text"], result.get("isError", False)


@contextmanager
def inspecting(server: list[str], era: str, way: str, scratch: Path) -> Iterator[Inspector]:
    try:
        INSPECTOR.environment.made()
    except NotInstalled as error:
        pytest.skip(f"{INSPECTOR} cannot be installed: {error}")
    home = scratch / "home"
    home.mkdir()
    if way == "stdio":
        # Otherwise the Inspector would take the options of the bridge for its own.
        script = scratch / "bridge"
        script.write_text(f"#!/bin/sh\nexec {shlex.join([*BRIDGE, '--', *server])}\n")
        script.chmod(0o755)
        yield Inspector(str(script), era, home)
        return
    with serving([*BRIDGE, "--http", "127.0.0.1:{port}", "--", *server], scratch / "log") as bridge:
        yield Inspector(bridge.url("/mcp"), era, home)


@each_era
@each_way
@pytest.mark.req("BRG-1")
def test_everything(era: str, way: str, tmp_path: Path) -> None:
    server = [TYPESCRIPT_V1.executable("mcp-server-everything")]
    with inspecting(server, era, way, tmp_path) as inspector:
        tools = {tool["name"] for tool in inspector.ask("tools/list")["tools"]}
        assert {"echo", "get-sum", "get-structured-content"} <= tools
        assert inspector.call("echo", message="Åse") == ("Echo: Åse", False)
        assert inspector.call("get-sum", a="two")[1] is True
        assert len(inspector.ask("resources/templates/list")["resourceTemplates"]) == 2
        prompt = inspector.ask("prompts/get", "--prompt-name", "args-prompt", "--prompt-args", "city=Oslo")
        assert prompt["messages"][0]["content"]["text"] == "What's weather in Oslo?"


@each_era
@each_way
@pytest.mark.req("BRG-1")
def test_filesystem(era: str, way: str, tmp_path: Path) -> None:
    folder = (tmp_path / "files").resolve()
    folder.mkdir()
    (folder / "note.txt").write_text("Bring a coat.")
    server = [TYPESCRIPT_V1.executable("mcp-server-filesystem"), str(folder)]
    with inspecting(server, era, way, tmp_path) as inspector:
        assert "read_text_file" in {tool["name"] for tool in inspector.ask("tools/list")["tools"]}
        assert inspector.call("read_text_file", path=str(folder / "note.txt")) == ("Bring a coat.", False)
        assert inspector.call("read_text_file", path=str(tmp_path / "secret.txt"))[1] is True
