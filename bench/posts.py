"""The raw driver over HTTP: starts a server, speaks bytes with it over sockets that are kept alive, and stops the time.

It does as little as it can while the clock runs: requests are made in advance, the end of an answer is found by its
length, and its body is read properly only afterwards.
"""

from __future__ import annotations

import select
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import NamedTuple

import msgspec

from bench.driver import CHUNK, PATIENCE, Ended, launched
from bench.traffic import LEGACY, MODERN, Calls, Failed

__all__ = ["Address", "Visited", "visited"]

#: Seconds between two attempts to reach a server that is just starting.
PAUSE = 0.01

HEAD = (
    "POST /mcp HTTP/1.1\r\n"
    "Host: {host}\r\n"
    "Accept: application/json, text/event-stream\r\n"
    "Content-Type: application/json\r\n"
    "MCP-Protocol-Version: 2026-07-28\r\n"
    "Mcp-Method: {method}\r\n"
    "{name}"
    "Content-Length: {length}\r\n\r\n"
)
LEGACY_HEAD = (
    "POST /mcp HTTP/1.1\r\n"
    "Host: {host}\r\n"
    "Accept: application/json, text/event-stream\r\n"
    "Content-Type: application/json\r\n"
    "{fields}"
    "Content-Length: {length}\r\n\r\n"
)
SESSION_FIELDS = "MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: {session}\r\n"
LENGTH = b"content-length:"
CHUNKED = b"transfer-encoding: chunked"
SESSION = b"mcp-session-id:"


class Named(msgspec.Struct):
    """What is called, got or read."""

    name: str | None = None
    uri: str | None = None


class Sent(msgspec.Struct):
    """As much of a request as its headers repeat."""

    method: str
    params: Named


class Address(NamedTuple):
    """Where a server is, and the legacy session with it, if one is open."""

    host: str
    port: int
    session: str | None = None

    def opened(self) -> Address:
        """Where it is, with a legacy session."""
        with self.connected() as connection:
            connection.sendall(self._legacy_post(LEGACY.opening.strip()))
            data = read_some(connection)
            while (answer := whole_body(data)) is None:
                data += read_some(connection)
        head = data.partition(b"\r\n\r\n")[0]
        place = head.lower().find(SESSION)
        if b'"result"' not in answer or place < 0:
            raise Failed(f"the server opened no session: {data[:500]!r}")
        session = head[place + len(SESSION) :].partition(b"\r\n")[0].strip().decode()
        opened = self._replace(session=session)
        with self.connected() as connection:
            connection.sendall(opened.post(LEGACY.opened.strip()))
            if (data := read_some(connection))[9:12] != b"202":
                raise Failed(f"the server did not take a notification: {data[:500]!r}")
        return opened

    def _legacy_post(self, body: bytes) -> bytes:
        fields = "" if self.session is None else SESSION_FIELDS.format(session=self.session)
        host = f"{self.host}:{self.port}"
        return LEGACY_HEAD.format(host=host, fields=fields, length=len(body)).encode() + body

    def post(self, body: bytes) -> bytes:
        """A request to it, as HTTP has it."""
        if self.session is not None:
            return self._legacy_post(body)
        sent = msgspec.json.decode(body, type=Sent)
        name = sent.params.name or sent.params.uri
        head = HEAD.format(
            host=f"{self.host}:{self.port}",
            method=sent.method,
            name=f"Mcp-Name: {name}\r\n" if name else "",
            length=len(body),
        )
        return head.encode() + body

    def connected(self) -> socket.socket:
        """A connection to it."""
        connection = socket.create_connection((self.host, self.port), timeout=PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


@contextmanager
def visited(command: Sequence[str], *, patience: float = PATIENCE) -> Iterator[Visited]:
    """A server that has been told its port and answers there, until it is left; `Failed` if it dies before."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = Address(*free.getsockname())
    with launched([*command, str(address.port)], patience=patience, stdout=subprocess.DEVNULL) as process:
        try:
            with ExitStack() as stack:
                await_start(process, address)
                yield Visited(process.pid, address, stack)
            if process.poll() is not None:
                raise Ended
        finally:
            process.terminate()


def await_start(process: subprocess.Popen[bytes], address: Address) -> None:
    while process.poll() is None:
        try:
            address.connected().close()
        except ConnectionRefusedError:
            time.sleep(PAUSE)
        else:
            return
    raise Ended


class Visited:
    """A server process under measurement. What is connected to it is closed when ``stack`` is."""

    def __init__(self, pid: int, address: Address, stack: ExitStack) -> None:
        self.pid = pid
        self.address = address
        self._stack = stack
        self._idle: list[socket.socket] = []

    def ask(self, body: bytes) -> bytes:
        """The answer to one request, over a connection of its own: others may have been idle for too long."""
        with self.address.connected() as connection:
            connection.sendall(self.address.post(body))
            return read_answer(connection)

    def one_at_a_time(self, calls: Calls) -> list[float]:
        """The seconds that each call took, all over the same connection."""
        clock = time.perf_counter
        [connection] = self._connections(1)
        answers, times = [], []
        for post in self._posts(calls):
            started = clock()
            connection.sendall(post)
            answers.append(read_answer(connection))
            times.append(clock() - started)
        calls.check(b"\n".join(map(bytes.strip, answers)))
        return times

    def in_flight(self, calls: Calls, window: int) -> float:
        """The seconds that all calls took together, over as many connections as the window is wide."""
        connections = {connection.fileno(): connection for connection in self._connections(window)}
        posts = iter(self._posts(calls))
        torn: dict[int, bytes] = {}
        answers: list[bytes] = []
        count = len(calls)
        with select.epoll() as poll:
            for number in connections:
                poll.register(number, select.EPOLLIN)
            started = time.perf_counter()
            for connection, post in zip(connections.values(), posts, strict=False):
                connection.sendall(post)
            while len(answers) < count:
                for number, _ in poll.poll():
                    connection = connections[number]
                    data = torn.pop(number, b"") + read_some(connection)
                    if (body := whole_body(data)) is None:
                        torn[number] = data
                        continue
                    answers.append(body)
                    if post := next(posts, b""):
                        connection.sendall(post)
            seconds = time.perf_counter() - started
        calls.check(b"\n".join(map(bytes.strip, answers)))
        return seconds

    def listen(self, count: int, uri: str) -> list[socket.socket]:
        """So many open subscriptions to a resource, all of them acknowledged."""
        body = (
            b'{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{'
            + MODERN.meta
            + b'"notifications":{"resourceSubscriptions":["%b"]}}}' % uri.encode()
        )
        streams = []
        for _ in range(count):
            streams.append(stream := self._stack.enter_context(self.address.connected()))
            stream.sendall(self.address.post(body))
            read_until(stream, b"notifications/subscriptions/acknowledged")
        return streams

    def _posts(self, calls: Calls) -> list[bytes]:
        return [self.address.post(bytes(calls.data[begin:end])) for begin, end in pairwise(calls.bounds)]

    def _connections(self, count: int) -> list[socket.socket]:
        """Those that are there, and new ones."""
        for _ in range(count - len(self._idle)):
            self._idle.append(self._stack.enter_context(self.address.connected()))
        return self._idle[:count]


def read_some(connection: socket.socket) -> bytes:
    """What there is, as soon as there is something."""
    try:
        if chunk := connection.recv(CHUNK):
            return chunk
    except ConnectionResetError:
        pass
    raise Failed("the server closed a connection instead of answering")


def read_answer(connection: socket.socket) -> bytes:
    """The body of one answer. Nothing may follow it."""
    data = read_some(connection)
    while (body := whole_body(data)) is None:
        data += read_some(connection)
    return body


def read_until(connection: socket.socket, words: bytes) -> None:
    """Reads until they have come."""
    data = b""
    while words not in data:
        data += read_some(connection)
        if data[9:12] != b"200":
            raise Failed(f"the server refused: {data[:500]!r}")


def whole_body(data: bytes) -> bytes | None:
    """The body of an answer, if all of it is there; `Failed` if it is no good one, or is not alone."""
    head, _, body = data.partition(b"\r\n\r\n")
    if len(head) == len(data):
        return None
    fields = head.lower()
    if CHUNKED in fields and fields[9:12] == b"200":
        return only_event(body) if body.endswith(b"\r\n0\r\n\r\n") else None
    place = fields.find(LENGTH)
    if fields[9:12] != b"200" or place < 0:
        raise Failed(f"this is no good answer, or one without a length: {data[:500]!r}")
    missing = int(fields[place + len(LENGTH) :].partition(b"\r\n")[0]) - len(body)
    if missing < 0:
        raise Failed(f"this is more than one answer: {data[:500]!r}")
    return None if missing else body


def only_event(body: bytes) -> bytes:
    """The message in a stream of events that came in chunks; `Failed` if there is not exactly one."""
    events = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        events, body = events + rest[:length], rest[length + 2 :] if length else b""
    messages = [line[5:].strip() for line in events.splitlines() if line.startswith(b"data:") and line[5:].strip()]
    if len(messages) != 1:
        raise Failed(f"this is not one event: {events[:500]!r}")
    return messages[0]
