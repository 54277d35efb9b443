"""Copies of a call: each of them, run as it is, makes the same call."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from mcplumb.revisions import REVISIONS, get_revision
from mcplumb.view.workbench.call_copies import copies_of_call
from mcplumb.view.workbench.server_choice import ChosenServer, ServerChoice, choose_server
from tests.kit.servers import serving
from tests.view.workbench import bench_server
from tests.view.workbench.bench import SERVER, connected, working

NEWEST = max(REVISIONS, key=str)
ARGUMENTS = {"to": {"street": "It's $HOME `x`"}, "items": [{"name": "tea"}]}
CALL = {"method": "tools/call", "params": {"name": "ship", "arguments": ARGUMENTS}}
BIN = os.fspath(Path(sys.executable).parent)


async def run(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"},
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out
    return out.decode()


async def test_the_command_and_the_program_make_the_call(tmp_path: Path) -> None:
    async with connected() as bench:
        copies = await bench.of("/copies", "POST", CALL)
    assert set(copies) == {"mcplumb", "python"}
    assert copies["mcplumb"].startswith("mcplumb call ship --args '{")
    assert "It's $HOME `x`" in await run("sh", "-c", copies["mcplumb"])
    file = tmp_path / "copied_call.py"
    file.write_text(copies["python"])
    assert "It's $HOME `x`" in await run(sys.executable, str(file))


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("revision", [str(NEWEST), "2025-06-18"])
async def test_curl_makes_the_call(revision: str) -> None:
    async with serving(bench_server.server, "http://127.0.0.1:0/mcp") as [address], working() as bench:
        await bench.connect(kind="address", address=address)
        copies = copies_of_call(
            ChosenServer(title="x", place=address, words=("-s", address)),
            get_revision(revision),
            "tools/call",
            CALL["params"],  # type: ignore[arg-type]
        )
        assert "It's $HOME `x`" in await run("sh", "-c", copies["curl"])
        from_page = await bench.of("/copies", "POST", CALL)
        assert "It's $HOME `x`" in await run("sh", "-c", from_page["curl"])


def copies(params: dict[str, Any], method: str = "tools/call", **choice: Any) -> dict[str, str]:
    return copies_of_call(choose_server(ServerChoice(**choice), None), NEWEST, method, params)


def test_no_secret_is_copied() -> None:
    call = {"name": "brew", "arguments": {}}
    choices: tuple[dict[str, Any], ...] = (
        {"kind": "command", "command": "tea --token geheim", "env": {"A": "geheim"}},
        {"kind": "address", "address": "https://tea.example/mcp?key=geheim", "headers": {"X-Api-Key": "geheim"}},
    )
    for choice in choices:
        made = copies(call, **choice)
        assert len(made) in (2, 3)
        for text in made.values():
            assert "geheim" not in text


def test_other_methods() -> None:
    choice = {"kind": "command", "command": " ".join(SERVER)}
    assert copies({"uri": "a://b"}, "resources/read", **choice)["mcplumb"].startswith("mcplumb read a://b -- ")
    assert (
        "get_prompt('p', {'a': 'b'})"
        in copies({"name": "p", "arguments": {"a": "b"}}, "prompts/get", **choice)["python"]
    )
    made = copies({"x": 1}, "other/thing", **choice)
    assert list(made) == ["python"]
    assert "client.request('other/thing', {'x': 1})" in made["python"]
    # It would be taken for an option.
    assert list(copies({"name": "--help"}, **choice)) == ["python"]
