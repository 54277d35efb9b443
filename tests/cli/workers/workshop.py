"""Servers with workers, as operators start them, and what clients get of them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from mcplumb import connect
from mcplumb.errors import McplumbError

__all__ = ["APP", "Fleet", "Load", "fleet", "is_alive", "until"]

APP = '''
import asyncio, os, signal
from mcplumb import Context, Server

VERSION = 1
server = Server("pids", stop_within=10)

@server.tool
async def pid() -> int:
    return os.getpid()

@server.tool
async def version() -> int:
    return VERSION

@server.tool
async def slow(seconds: float) -> int:
    open(__file__ + ".called", "w").close()
    await asyncio.sleep(seconds)
    return os.getpid()

@server.tool
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Sure?", {"type": "object", "properties": {}})).action + f" {os.getpid()}"

@server.tool
def child() -> int:
    """Start a process that outlives the call."""
    import subprocess
    return subprocess.Popen(["sleep", "600"]).pid
'''


def until(condition: Callable[[], Any], what: str, within: float = 30.0) -> Any:
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        time.sleep(0.02)
    return value


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class Fleet:
    """A supervisor, its workers, and what they print."""

    def __init__(self, process: subprocess.Popen[bytes], app: Path) -> None:
        self.process = process
        self.app = app
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.decode().rstrip())

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    @property
    def url(self) -> str:
        found = until(lambda: re.search(r"Serving at (\S+) with", self.log) or self.process.poll(), "the start")
        assert isinstance(found, re.Match), self.log
        return str(found[1])

    def pids(self) -> set[int]:
        """The workers that run."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return {int(pid) for pid in children if b"--as-worker" in _command(int(pid)) and is_alive(int(pid))}

    def call(self, tool: str, **arguments: Any) -> str:
        """Return the text of a result, or the name of the error if there is none."""

        async def call() -> str:
            async with connect(self.url, retry="never") as client:
                return (await client.call_tool(tool, arguments)).text

        try:
            return asyncio.run(call())
        except McplumbError as error:
            return type(error).__name__

    @contextmanager
    def calling(self, seconds: float) -> Iterator[list[str]]:
        """A call that is under way when the block begins, and has ended when it is left; gives its answer."""
        answers: list[str] = []
        called = Path(f"{self.app}.called")
        thread = threading.Thread(target=lambda: answers.append(self.call("slow", seconds=seconds)))
        thread.start()
        until(called.exists, "the call")
        try:
            yield answers
        finally:
            thread.join(90)

    def count(self, name: str) -> float:
        from urllib.request import urlopen

        with urlopen(self.url.replace("/mcp", "/metrics"), timeout=10) as response:  # noqa: S310 - it is http://
            text = response.read().decode()
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def ready(self) -> bool:
        """Whether the server takes requests, by its own account."""
        from urllib.error import HTTPError
        from urllib.request import urlopen

        try:
            with urlopen(self.url.replace("/mcp", "/ready"), timeout=10) as response:  # noqa: S310 - it is http://
                return response.status == 200  # type: ignore[no-any-return]
        except HTTPError:
            return False

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def join(self, within: float = 30.0) -> int:
        code = self.process.wait(within)
        self._reader.join(within)
        return code


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@contextmanager
def fleet(app: Path, *words: str, workers: int = 2, place: str = "127.0.0.1:0") -> Iterator[Fleet]:
    command = [sys.executable, "-m", "mcplumb", "serve", str(app), "--http", place, "--workers", str(workers)]
    with subprocess.Popen([*command, *words], stderr=subprocess.PIPE, env=dict(os.environ)) as process:
        running = Fleet(process, app)
        try:
            yield running
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                running.join()
            except subprocess.TimeoutExpired:
                process.kill()
                raise


class Load:
    """Clients that open a connection for each request, and clients that keep theirs, until the end of the block."""

    def __init__(self, url: str, clients: int = 8) -> None:
        host, _, rest = url.removeprefix("http://").partition(":")
        self._place = host, int(rest.partition("/")[0])
        self._clients = clients
        self._is_over = False
        self.answers = 0
        self.pids: set[str] = set()
        #: Connections that were refused or broke before there was an answer; statuses other than 200.
        self.refused: list[str] = []
        self.broken: list[str] = []
        self.statuses: list[bytes] = []
        self._threads = [threading.Thread(target=self._run, args=(number % 2 == 0,)) for number in range(clients)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        until(lambda: self.answers >= self._clients, "the first answers")
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join(30)

    def go_on(self, answers: int = 200) -> None:
        """Wait for so many more answers."""
        goal = self.answers + answers
        until(lambda: self.answers >= goal, "more answers", 60)

    def _run(self, keeps: bool) -> None:
        import socket

        connected: socket.socket | None = None
        while not self._is_over:
            is_fresh = connected is None
            try:
                if connected is None:
                    connected = socket.create_connection(self._place, timeout=30)
                status, body, closes = _post(connected)
            except ConnectionRefusedError as error:
                self.refused.append(str(error))
                continue
            except (OSError, EOFError) as error:
                if is_fresh:  # a connection that was idle may be closed at any time
                    self.broken.append(f"{type(error).__name__} {error}")
                if connected is not None:
                    connected.close()
                connected = None
                continue
            self.answers += 1
            if status == b"200":
                self.pids.add(re.search(rb'"text":"(\d+)"', body)[1].decode())  # type: ignore[index]
            else:
                self.statuses.append(status)
            if closes or not keeps:
                connected.close()
                connected = None
        if connected is not None:
            connected.close()


_BODY = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pid","arguments":{},"_meta":{'
    b'"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},'
    b'"io.modelcontextprotocol/clientInfo":{"name":"load","version":"1"}}}}'
)
_HEAD = (
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
    b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: pid\r\nContent-Length: %d\r\n\r\n"
)


def _post(connected: Any) -> tuple[bytes, bytes, bool]:
    connected.sendall(_HEAD % len(_BODY) + _BODY)
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(connected)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head.lower())[1])  # type: ignore[index]
    while len(body) < length:
        body += _some(connected)
    return head.split()[1], body, b"connection: close" in head.lower()


def _some(connected: Any) -> bytes:
    data: bytes = connected.recv(65536)
    if not data:
        raise EOFError
    return data
