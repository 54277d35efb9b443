"""A client in the thread of its server, which acts while the server rests."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

from tests.costs.counting import RestingPoll, take_over

__all__ = ["HttpVisitor", "Visit", "Visitor", "visited", "visited_at"]


class Visitor:
    """Speaks to a server over pipes. At each ``yield`` the server works until it rests."""

    def __init__(self, requests: int, answers: int) -> None:
        os.set_blocking(answers, False)
        self._requests = requests
        self._answers = answers
        self._last_id = 0

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def ask(self, requests: bytes, *, answers: int = 1) -> Iterator[None]:
        """Send this at once, and take so many answers, of which none may be an error.

        A bridge rests once more before it answers, until its server has.
        """
        os.write(self._requests, requests)
        yield
        while answers > 0:
            while not select.select([self._answers], [], [], 0)[0]:
                yield
            came = os.read(self._answers, 65536)
            assert b'"error"' not in came, came
            answers -= came.count(b"\n")

    def leave(self) -> None:
        os.close(self._requests)


#: What the visitor does.
Visit: TypeAlias = Callable[[RestingPoll, Visitor], Iterator[None]]


@contextmanager
def visited(visit: Visit) -> Iterator[None]:
    """Standard input and output are pipes, and the server that runs on them is visited."""
    rest = take_over()
    (stdin, requests), (answers, stdout) = os.pipe(), os.pipe()
    before = [os.dup(standard) for standard in (0, 1)]
    for end, standard in ((stdin, 0), (stdout, 1)):
        os.dup2(end, standard)
        os.close(end)
    visitor = Visitor(requests, answers)

    def script() -> Iterator[None]:
        yield from visit(rest, visitor)
        visitor.leave()

    steps = script()
    rest.at_rest = lambda: next(steps, None)
    try:
        yield
    finally:
        for standard, copy in enumerate(before):
            os.dup2(copy, standard)
            os.close(copy)


# --- Over HTTP ---


class HttpVisitor:
    """Posts to a server over connections that are kept. At each ``yield`` the server works until it rests."""

    def __init__(self, port: int, connections: int) -> None:
        self._port = port
        self._stack = ExitStack()
        self._connections = [self._stack.enter_context(socket.socket()) for _ in range(connections)]
        self._last_id = 0
        self._fields = _MODERN_FIELDS

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def connect(self) -> Iterator[None]:
        """Open the connections."""
        for connection in self._connections:
            while connection.connect_ex(("127.0.0.1", self._port)):  # until it listens
                yield
            connection.setblocking(False)
        yield

    def open(self, initialize: bytes, initialized: bytes) -> Iterator[None]:
        """Open a legacy session, which all requests from now on belong to."""
        self._fields = b""
        [connection] = self._connections[:1]
        for body, status in ((initialize, b"200"), (initialized, b"202")):
            self._send(connection, body.strip())
            while not select.select([connection], [], [], 0)[0]:
                yield
            came = connection.recv(65536)
            assert came[9:12] == status, came
            if not self._fields:
                session = came.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0]
                self._fields = _LEGACY_FIELDS % session

    def post(self, bodies: list[bytes]) -> Iterator[None]:
        """Post each over a connection of its own, all at once, and take the answers, of which none may be an error."""
        used = self._connections[: len(bodies)]
        for connection, body in zip(used, map(bytes.strip, bodies), strict=True):
            self._send(connection, body)
        yield
        for connection in used:
            while not select.select([connection], [], [], 0)[0]:
                yield
            came = connection.recv(65536)
            head, _, body = came.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), came
            assert b"content-length: %d" % len(body) in head, came
            assert b'"result"' in body, came

    def _send(self, connection: socket.socket, body: bytes) -> None:
        connection.send(_HEAD % (self._port, self._fields, len(body)) + body)

    def leave(self) -> None:
        """Hang up, and end the server."""
        self._stack.close()
        os.kill(os.getpid(), signal.SIGTERM)


_HEAD = (
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: application/json, text/event-stream\r\n"
    b"Content-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
)
_MODERN_FIELDS = b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n"
_LEGACY_FIELDS = b"MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: %b\r\n"


@contextmanager
def visited_at(connections: int, visit: Callable[[RestingPoll, HttpVisitor], Iterator[None]]) -> Iterator[int]:
    """Yield a port. The server that listens there is visited over so many connections."""
    rest = take_over()
    held = socket.socket()
    # The server may bind it all the same, and nobody else does before it.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    visitor = HttpVisitor(port, connections)

    def script() -> Iterator[None]:
        yield from visitor.connect()
        yield from visit(rest, visitor)
        visitor.leave()

    steps = script()
    rest.at_rest = lambda: next(steps, None)
    with held:
        yield port
