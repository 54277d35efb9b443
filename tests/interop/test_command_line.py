"""The command line with servers made with the SDKs of others: what they write, what they need, what they list."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.kit import mcplumb
from tests.interop.environments import FASTMCP_3, FASTMCP_4, PYTHON_V1, PYTHON_V2, Environment

FASTMCP_1 = """
from mcp.server.fastmcp import FastMCP
server = FastMCP("one")
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
server.run()
"""
LOW_LEVEL_1 = """
from mcp.server import Server
server = Server("low")
@server.list_tools()
async def list_tools():
    return []
"""
BACKEND = """
from fastmcp import FastMCP
server = FastMCP("backend")
@server.tool
def add(a: int, b: int) -> int:
    return a + b
server.run()
"""
PROXY = """
import sys
from fastmcp.server import create_proxy
create_proxy({"mcpServers": {"backend": {"command": sys.argv[1], "args": [sys.argv[2]]}}}).run()
"""


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each test begins without any memory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def command(environment: Environment, text: str, folder: Path) -> list[str]:
    program = folder / f"{environment.name}.py"
    program.write_text(text)
    return environment.command(program, folder)


def test_the_first_contact_with_an_old_server_is_quiet(tmp_path: Path) -> None:
    server = command(PYTHON_V1, FASTMCP_1, tmp_path)
    first, second = (mcplumb("tools", "--", *server) for _ in range(2))
    assert (first.code, first.out) == (0, "TOOL       DESCRIPTION\nadd(a, b)\n")
    assert "Failed to validate request" not in first.err
    assert len(first.err.splitlines()) <= 3
    assert (second.code, second.out) == (0, first.out)


def test_what_it_complains_about_is_there_for_those_who_ask(tmp_path: Path) -> None:
    assert "Failed to validate request" in mcplumb("-v", "tools", "--", *command(PYTHON_V1, FASTMCP_1, tmp_path)).err


def test_probe_remembers_the_era(tmp_path: Path) -> None:
    server = command(PYTHON_V1, FASTMCP_1, tmp_path)
    assert mcplumb("probe", "--quick", "--", *server).code == 0
    after = mcplumb("-v", "--trace", "tools", "--", *server).err
    assert "server/discover" not in after
    assert "Failed to validate request" not in after


@pytest.mark.parametrize("text", [FASTMCP_1, LOW_LEVEL_1])
def test_a_server_that_was_written_for_another_version_gets_the_right_advice(text: str, tmp_path: Path) -> None:
    server = command(PYTHON_V2, text, tmp_path)
    failed = mcplumb("probe", "--json", "--", *server)
    assert failed.code == 3
    assert failed.json["advice"] == [f"It is written for mcp 1.x: install 'mcp<2' where {server[0]} looks for it."]


def test_a_proxy_that_does_not_cross_the_eras_is_a_finding(tmp_path: Path) -> None:
    backend = command(FASTMCP_3, BACKEND, tmp_path)
    revisions = ["--revision", "2026-07-28", "--revision", "2025-11-25"]
    report = mcplumb("probe", "--json", *revisions, "--", *command(FASTMCP_4, PROXY, tmp_path), *backend).json
    assert report["counts"]["tools"] == 0
    assert report["findings"] == ["It lists 0 tools to a modern client, and 1 to a legacy one (2025-11-25)."]
