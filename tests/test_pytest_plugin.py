"""The fixture ``mcp``, in real runs of pytest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SERVER = """
from mcplumb import Context, Server

server = Server("weather")


@server.tool
async def forecast(city: str) -> str:
    return f"sun in {city}"


if __name__ == "__main__":
    server.run()
"""
TESTS = """
import sys

import pytest
from mcplumb import Closed
from weather import server

left = []


def test_a_server(mcp):
    client = mcp(server)
    assert client.call_tool("forecast", {"city": "Oslo"}).text == "sun in Oslo"
    left.append(client)


def test_clients_are_closed():
    with pytest.raises(Closed):
        left[0].ping()


def test_a_process_and_a_revision(mcp):
    first, second = mcp([sys.executable, "weather.py"]), mcp(server, revisions=["2025-11-25"], timeout=5)
    assert first.call_tool("forecast", {"city": "Rome"}).text == second.call_tool("forecast", {"city": "Rome"}).text
    assert str(second.revision) == "2025-11-25"
"""
UNUSED = """
import sys


def test_nothing_is_loaded():
    names = {name for name in sys.modules if name.startswith("mcplumb")}
    assert names == {"mcplumb", "mcplumb.errors", "mcplumb.pytest_plugin", "mcplumb.version"}
    assert "msgspec" not in sys.modules
    assert "asyncio" not in sys.modules or sys.version_info >= (3, 14)  # from then on, pytest itself loads it
"""


def run(folder: Path, *options: str) -> str:
    # Other plugins of this environment load what they like.
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(folder)} if "-p" in options else None
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_test_gets_clients_that_are_closed_after_it(tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text(SERVER)
    (tmp_path / "test_weather.py").write_text(TESTS)
    assert "3 passed" in run(tmp_path)
    assert "Connect to servers: ``client = mcp(server)`` is a blocking client" in run(tmp_path, "--fixtures")


def test_a_suite_without_it_loads_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_unused.py").write_text(UNUSED)
    assert "1 passed" in run(tmp_path, "-p", "mcplumb.pytest_plugin")
