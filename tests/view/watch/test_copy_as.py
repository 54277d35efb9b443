"""Copies of a request: the command and the program really send it again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mcplumb.recording.recorder import new_header
from mcplumb.recording.recording_format import Header, Http, Record, Target
from mcplumb.view.watch.copy_as import copies_of
from tests.cli.reading import path_with_mcplumb

SERVER = """
from mcplumb import Server

server = Server("echo")

@server.tool
async def echo(text: str) -> str:
    return f"echo of {text}"

server.run()
"""
SHELL = "/bin/sh"


def request(method: str, **params: Any) -> Record:
    message = {"jsonrpc": "2.0", "id": 5, "method": method, "params": params}
    return Record(t=0.1, sender="client", text=json.dumps(message, separators=(",", ":")))


def to(command: list[str] | None = None, url: str | None = None) -> Header:
    return new_header("tap", "stdio", target=Target(command=command, url=url))


def test_a_call_as_a_command_and_as_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", path_with_mcplumb(tmp_path))
    server = tmp_path / "a server.py"
    server.write_text(SERVER)
    call = request("tools/call", name="echo", arguments={"text": "it's $HOME"})
    copies = copies_of(to([sys.executable, str(server)]), call)
    assert list(copies) == ["mcplumb", "shell", "python"]
    done = subprocess.run([SHELL, "-c", copies["mcplumb"]], capture_output=True, text=True, check=False)
    assert "echo of it's $HOME" in done.stdout, done
    program = tmp_path / "program.py"
    program.write_text(copies["python"])
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert "echo of it's $HOME" in done.stdout, done


@pytest.mark.parametrize(
    ("record", "command", "python"),
    [
        (request("tools/list"), "mcplumb tools -- srv", "await client.list_tools()"),
        (
            request("resources/read", uri="a://b c"),
            "mcplumb read 'a://b c' -- srv",
            "await client.read_resource('a://b c')",
        ),
        (
            request("prompts/get", name="p", arguments={"x": "1"}),
            """mcplumb prompt p --args '{"x":"1"}' -- srv""",
            "await client.get_prompt('p', {'x': '1'})",
        ),
        (request("acme/dance", a=1, _meta={"b": 2}), None, "await client.request('acme/dance', {'a': 1})"),
        (request("tools/call", name="--help"), None, "await client.call_tool('--help', {})"),
    ],
)
def test_other_requests(record: Record, command: str | None, python: str) -> None:
    copies = copies_of(to(["srv"]), record)
    assert copies.get("mcplumb") == command
    assert python in copies["python"]


def test_curl_sends_the_headers_but_those_of_the_connection() -> None:
    headers = [
        ("Content-Type", "application/json"),
        ("Mcp-Method", "tools/list"),
        ("Host", "x"),
        ("Authorization", "Bearer …"),
    ]
    record = request("tools/list")
    record = Record(t=0.1, sender="client", text=record.text, http=Http(exchange=1, method="POST", headers=headers))
    curl = copies_of(to(url="https://example.com/mcp?a=1&b=2"), record)["curl"]
    assert curl.startswith("curl -sS -N 'https://example.com/mcp?a=1&b=2' \\\n")
    assert "-H 'mcp-method: tools/list'" in curl
    assert "host: x" not in curl
    assert curl.endswith("--data-raw '" + (record.text or "") + "'")


@pytest.mark.parametrize(
    "record",
    [
        Record(t=0, sender="server", text='{"jsonrpc":"2.0","id":1,"method":"ping"}'),
        Record(t=0, sender="client", text='{"jsonrpc":"2.0","method":"notifications/initialized"}'),
        Record(t=0, sender="client", text="nonsense"),
        Record(t=0, sender="client", text='{"jsonrpc":"2.0","id":1,"method":"ping"', cut=99),
        Record(t=0, stderr="x"),
    ],
)
def test_what_a_client_does_not_send_has_no_copies(record: Record) -> None:
    assert copies_of(to(["srv"]), record) == {}


def test_a_copy_cannot_run_anything_else(tmp_path: Path) -> None:
    """The command is quoted, whatever the client sent."""
    evil = "x'; touch EVIL; echo '$(touch EVIL)`touch EVIL`\n touch EVIL"
    copies = copies_of(to(["true"]), request("tools/call", name=evil, arguments={evil: evil}))
    for name in ("mcplumb", "shell"):
        subprocess.run([SHELL, "-c", copies[name]], cwd=tmp_path, capture_output=True, check=False)
    (tmp_path / "program.py").write_text(copies["python"])
    compile(copies["python"], "program.py", "exec")
    assert not (tmp_path / "EVIL").exists()
