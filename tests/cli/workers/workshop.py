"""Servers with workers, as operators start them, and what clients get of them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
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

#: Seconds that nothing takes, on the slowest machine either: a reload of several workers is the longest.
WITHIN = 120.0

__all__ = ["APP", "WITHIN", "Fleet", "Load", "fleet", "is_alive", "until"]

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
    await asyncio.sleep(seconds)
    return os.getpid()

@server.tool
async def hold() -> int:
    """Answer when there is a file."""
    open(__file__ + ".called", "w").close()
    while not os.path.exists(__file__ + ".go"):
        await asyncio.sleep(0.02)
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


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WITHIN
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {WITHIN:g} s: {what}"
        time.sleep(0.02)
    return value


def is_alive(pid: int) -> bool:
    return _state(pid) not in ("", "Z")


def _state(pid: int) -> str:
    """The state of a process, by its letter in /proc; empty if there is no such process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def place_of(url: str) -> tuple[str, int]:
    """The host and the port of a URL."""
    host, _, rest = url.removeprefix("http://").partition(":")
    return host, int(rest.partition("/")[0])


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

    def workers(self) -> list[int]:
        """The workers, when all of them serve."""
        assert self.url
        return sorted(self.pids())

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
    def calling(self) -> Iterator[list[str]]:
        """A call that is under way while the block runs, and has ended when it is left; gives its answer."""
        answers: list[str] = []
        called, go = Path(f"{self.app}.called"), Path(f"{self.app}.go")
        thread = threading.Thread(target=lambda: answers.append(self.call("hold")))
        thread.start()
        try:
            until(called.exists, "the call")
            yield answers
        finally:
            go.touch()
            thread.join(WITHIN)

    @contextmanager
    def only(self, pid: int) -> Iterator[None]:
        """Let one worker alone accept connections: which of several does is the choice of the system."""
        others = self.pids() - {pid}
        for other in others:
            os.kill(other, signal.SIGSTOP)
        until(lambda: {_state(other) for other in others} <= {"T"}, "the other workers to stand still")
        try:
            yield
        finally:
            for other in others:
                os.kill(other, signal.SIGCONT)

    def connect(self) -> socket.socket:
        """Return a new connection."""
        return socket.create_connection(place_of(self.url), timeout=WITHIN)

    def post(self, name: str, **params: Any) -> Any:
        """Call a tool over a new connection, and return the result as it came."""
        with self.connect() as connected:
            _, body, _ = _exchange(connected, _written(name, **params))
        return json.loads(body)["result"]

    def count(self, name: str) -> float:
        from urllib.request import urlopen

        with urlopen(self.url.replace("/mcp", "/metrics"), timeout=WITHIN) as response:  # noqa: S310 - it is http://
            text = response.read().decode()
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def ready(self) -> bool:
        """Whether the server takes requests, by its own account."""
        from urllib.error import HTTPError
        from urllib.request import urlopen

        try:
            with urlopen(self.url.replace("/mcp", "/ready"), timeout=WITHIN) as response:  # noqa: S310 - it is http://
                return response.status == 200  # type: ignore[no-any-return]
        except HTTPError:
            return False

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def join(self) -> int:
        code = self.process.wait(WITHIN)
        self._reader.join(WITHIN)
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
        self._place = place_of(url)
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
            thread.join(WITHIN)

    def go_on(self, answers: int = 200) -> None:
        """Wait for so many more answers."""
        goal = self.answers + answers
        until(lambda: self.answers >= goal, "more answers")

    def _run(self, keeps: bool) -> None:
        connected: socket.socket | None = None
        while not self._is_over:
            is_fresh = connected is None
            try:
                if connected is None:
                    connected = socket.create_connection(self._place, timeout=WITHIN)
                status, body, closes = _exchange(connected, _PID)
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


_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
}
_HEAD = (
    "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAccept: application/json\r\n"
    "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {}\r\nContent-Length: {}\r\n\r\n"
)


def _written(name: str, **params: Any) -> bytes:
    """A call of a tool, as it is sent."""
    given = {"name": name, "arguments": {}, **params, "_meta": _META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": given})
    return (_HEAD.format(name, len(body)) + body).encode()


_PID = _written("pid")


def _exchange(connected: socket.socket, request: bytes) -> tuple[bytes, bytes, bool]:
    """Send a request; return the status, the body, and whether the connection ends."""
    connected.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(connected)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head.lower())[1])  # type: ignore[index]
    while len(body) < length:
        body += _some(connected)
    return head.split()[1], body, b"connection: close" in head.lower()


def _some(connected: socket.socket) -> bytes:
    data: bytes = connected.recv(65536)
    if not data:
        raise EOFError
    return data
