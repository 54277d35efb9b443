"""The server that the README prints is a server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.repo.source import ROOT
from tools.doc_examples import PYTHON

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def ten_lines() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = PYTHON.search(text, text.index("## A server in ten lines"))
    assert block is not None
    return block[1]


def test_it_has_ten_lines() -> None:
    assert len([line for line in ten_lines().splitlines() if line.strip()]) <= 10


def test_it_runs_as_printed(tmp_path: Path) -> None:
    program = tmp_path / "weather.py"
    program.write_text(ten_lines(), encoding="utf-8")
    call = {"name": "forecast", "arguments": {"city": "Oslo"}, "_meta": META}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
    done = subprocess.run(
        [sys.executable, "-W", "error", program], input=request, capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["result"]["content"] == [{"type": "text", "text": "Oslo: sun, for 3 days."}]
