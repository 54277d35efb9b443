"""The server and the clients that the README prints are such."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.repo.source import ROOT
from tools.doc_examples import PYTHON

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def blocks(heading: str) -> list[str]:
    """The programs below a heading."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index(f"## {heading}") :].partition("\n## ")[0]
    return [block[1] for block in PYTHON.finditer(section)]


def ten_lines() -> str:
    (block,) = blocks("A server in ten lines")
    return block


def test_each_has_ten_lines() -> None:
    programs = [ten_lines(), *blocks("A client in ten lines")]
    assert len(programs) == 3
    assert all(len([line for line in program.splitlines() if line.strip()]) <= 10 for program in programs)


def test_the_clients_run_as_printed_with_the_server_as_printed(tmp_path: Path) -> None:
    (tmp_path / "weather.py").write_text(ten_lines(), encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for client in blocks("A client in ten lines"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", client],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stdout.splitlines()[0] == "2026-07-28 ['forecast']"
        assert "Oslo: sun, for 3 days." in done.stdout
        assert done.stderr == ""


def test_it_runs_as_printed(tmp_path: Path) -> None:
    program = tmp_path / "weather.py"
    program.write_text(ten_lines(), encoding="utf-8")
    call = {"name": "forecast", "arguments": {"city": "Oslo"}, "_meta": META}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    done = subprocess.run(
        [sys.executable, "-W", "error", program], input=request, capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["result"]["content"] == [{"type": "text", "text": "Oslo: sun, for 3 days."}]
