"""What servers that are written with each SDK do when their input ends while a call is pending.

The page about peers has a column for it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest

from tests.interop.bridge.fidelity import COMPILED, REVISIONS, SDK_SERVERS, Era
from tests.interop.visiting import VISIT_SECONDS

CALL = 2

#: What the pending call is answered with, if it is: ``result or nothing`` where that depends on what ends first.
Answer: TypeAlias = Literal["nothing", "error", "result", "result or nothing"]


class Case(NamedTuple):
    server: str
    era: Era
    answer: Answer
    #: Whether the server goes on until the call has ended.
    waits: bool = False

    def __str__(self) -> str:
        return f"{self.server}-{self.era}"


CASES = (
    Case("python_v1", "legacy", "nothing"),
    Case("python_v2", "modern", "error"),
    Case("fastmcp_3", "legacy", "result or nothing", waits=True),
    Case("fastmcp_4", "modern", "error"),
    Case("typescript_v1", "legacy", "result", waits=True),
    Case("typescript_v2", "modern", "nothing"),
    Case("go", "legacy", "nothing"),
    Case("go", "modern", "nothing"),
    Case("rust", "legacy", "nothing"),
    Case("rust", "modern", "nothing"),
    Case("java", "legacy", "result or nothing", waits=True),
)


def messages(era: Era, folder: Path) -> Iterator[dict[str, Any]]:
    """The messages up to a call that ends when there is a file."""
    params: dict[str, Any] = {"name": "hike", "arguments": {"steps": 0, "folder": str(folder)}}
    me = {"name": "visitor", "version": "1"}
    if era == "modern":
        named = {"protocolVersion": REVISIONS[era], "clientInfo": me, "clientCapabilities": {}}
        params["_meta"] = {f"io.modelcontextprotocol/{name}": value for name, value in named.items()}
    else:
        opened = {"protocolVersion": REVISIONS[era], "clientInfo": me, "capabilities": {}}
        yield {"id": 1, "method": "initialize", "params": opened}
        yield {"method": "notifications/initialized"}
    yield {"id": CALL, "method": "tools/call", "params": params}


def command_of(case: Case, scratch: Path) -> list[str]:
    if case.server in COMPILED:
        return [*COMPILED[case.server].command("server"), case.era, "stdio"]
    return SDK_SERVERS[case.server].command(scratch, is_full=True)


def wait_for(file: Path, server: subprocess.Popen[str]) -> None:
    while not file.exists():
        assert server.poll() is None, "It ended too early."
        time.sleep(0.01)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_end_of_the_input_while_a_call_is_pending(case: Case, tmp_path: Path) -> None:
    folder, scratch = tmp_path / "hike", tmp_path / "server"
    folder.mkdir()
    scratch.mkdir()
    server = subprocess.Popen(
        command_of(case, scratch), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
    )
    # Whatever goes wrong, it ends, and so does what waits for its output.
    alarm = threading.Timer(VISIT_SECONDS, server.kill)
    alarm.start()
    with server:
        try:
            assert server.stdin is not None
            assert server.stdout is not None
            for message in messages(case.era, folder):
                server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
                server.stdin.flush()
                if message.get("id") == 1:
                    assert "result" in json.loads(server.stdout.readline())
            wait_for(folder / "begun", server)
            server.stdin.close()
            if case.waits:
                (folder / "home").touch()
            answers = [json.loads(line) for line in server.stdout if f'"id":{CALL}' in line.replace(" ", "")]
            assert server.wait() != -signal.SIGKILL, "It did not exit by itself."
        finally:
            alarm.cancel()
            server.kill()
    assert len(answers) <= 1
    found = next((kind for each in answers for kind in ("error", "result") if kind in each), "nothing")
    assert found in case.answer.split(" or ")
