"""A tour of what there is, with a real server process: ``make demo``.

Starts examples/weather.py by hand, speaks both eras of the protocol with it on one pair of pipes, sends it garbage and
lets it end; then a client does so, and survives a crash. Fails if anything is not as it says.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from examples.weather import server
from mcpipe import ServerExited, connect
from mcpipe.revisions import LATEST, LATEST_LEGACY
from mcpipe.types.meta import CLIENT_CAPABILITIES, PROTOCOL_VERSION

SCRIPT = Path(__file__).with_name("weather.py")
META = {PROTOCOL_VERSION: str(LATEST), CLIENT_CAPABILITIES: {}}


class Process:
    """A server as a child, and every line that crosses its pipes."""

    def __init__(self) -> None:
        self._child = subprocess.Popen([sys.executable, SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def say(self, line: str | dict[str, Any]) -> None:
        text = line if isinstance(line, str) else json.dumps(line)
        print(f"   -> {shortened(text)}")
        assert self._child.stdin is not None
        self._child.stdin.write(text.encode() + b"\n")
        self._child.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        print(f"   <- {shortened(line.decode().strip())}")
        message: dict[str, Any] = json.loads(line)
        return message

    def ask(self, request_id: int, method: str, **params: Any) -> dict[str, Any]:
        self.say({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return self.hear()

    def end(self) -> int:
        assert self._child.stdin is not None
        self._child.stdin.close()
        return self._child.wait(timeout=30)


def shortened(text: str, width: int = 110) -> str:
    return text if len(text) <= width else f"{text[: width - 2]} …"


def show(text: str) -> None:
    print(f"\n{text}", flush=True)


def with_a_process() -> None:
    show(f"1. A server process. A modern client ({LATEST}) asks what it is: there is no handshake.")
    started = time.perf_counter()
    process = Process()
    found = process.ask(1, "server/discover", _meta=META)["result"]
    print(f"   {(time.perf_counter() - started) * 1000:.0f} ms from start to first answer")
    assert found["supportedVersions"] == [str(LATEST)]

    show("2. A tool that reports progress, in a thread; and an argument that is wrong.")
    meta = {**META, "progressToken": "p"}
    process.say(
        {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"_meta": meta, "name": "measure", "arguments": {"samples": 2}},
        }
    )
    heard = [process.hear() for _ in range(3)]
    assert [message.get("method") for message in heard] == ["notifications/progress", "notifications/progress", None]
    wrong = process.ask(3, "tools/call", _meta=META, name="forecast", arguments={"town": "Oslo"})["result"]
    assert wrong["isError"]

    show("3. Garbage on the same pipe: it is answered, and the next line works.")
    process.say("{garbage")
    assert process.hear()["error"]["code"] == -32700

    show(f"4. A legacy client ({LATEST_LEGACY}) on the same pipes: a session, opened with initialize.")
    info = {"name": "demo", "version": "1"}
    opened = process.ask(4, "initialize", protocolVersion=str(LATEST_LEGACY), capabilities={}, clientInfo=info)
    assert opened["result"]["protocolVersion"] == str(LATEST_LEGACY)
    read = process.ask(5, "resources/read", uri="weather://Rome/today")["result"]
    assert read["contents"][0]["text"] == "sun"

    show("5. The input ends, and so does the server.")
    code = process.end()
    print(f"   exit code {code}")
    assert code == 0


async def with_a_client() -> None:
    show("6. A client launches the server. It is killed in the middle of its work, and starts again.")
    async with connect([sys.executable, SCRIPT]) as client:
        process = client.process
        assert process is not None
        assert process.pid is not None
        print(f"   {client}, pid {process.pid}")
        os.kill(process.pid, signal.SIGKILL)
        today = await client.read_resource("weather://Oslo/today")
        print(f"   weather://Oslo/today: {today.contents[0].text}, pid {process.pid}, restarts: {process.restarts}")
        assert (today.contents[0].text, process.restarts, process.exits[0].signal) == ("snow", 1, "SIGKILL")


async def with_one_that_cannot_start() -> None:
    show("7. A server that cannot start says why.")
    try:
        async with connect([sys.executable, "-c", "raise SystemExit('the key is missing')"], stderr="capture"):
            raise AssertionError("It started.")
    except ServerExited as error:
        print(f"   {error}")


async def in_this_process() -> None:
    show("8. The same server in this process, as its tests would use it.")
    async with connect(server) as client:
        print(f"   {client.server_info}, speaking {client.revision}")
        result = await client.call_tool("forecast", {"city": "Oslo"})
        print(f"   forecast: {result.structured_content}")
        assert result.structured_content == ["snow", "sun", "snow"]


if __name__ == "__main__":
    with_a_process()
    asyncio.run(with_a_client())
    asyncio.run(with_one_that_cannot_start())
    asyncio.run(in_this_process())
    print("\nAll as it should be. Next: docs/tutorial/first-server.md and docs/tutorial/first-client.md")
