"""A server process under attack, and raw sockets to attack it with: no HTTP library has a hand in what goes over them.

Nothing here judges by time. Whatever is waited for has a bound that only a hang reaches.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias
from urllib.parse import urlsplit

import pytest

from tests.kit.loop import PATIENCE, blocking_until
from tests.kit.results import text_of
from tests.process.harness import LEGACY, MODERN, Message, modern_call, notification, request

ROOT = Path(__file__).parents[2]
HTTP = "http://127.0.0.1:0/mcp"
#: Headers by their names; None leaves one out that would be there otherwise.
Fields: TypeAlias = Mapping[str, str | None]

#: What a server in good order never writes to stderr.
_ALARMS = ("Traceback", "never awaited", "was destroyed", "never retrieved", "Exception ignored", "Fatal Python error")
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
#: The longest line of a response's head.
_LONGEST = 65536

#: Statuses with which a server says that it is the client's fault.
ANSWERABLE = range(400, 500)


class Answer(NamedTuple):
    """One HTTP response. ``fields`` has the names of the headers in small letters."""

    status: int
    fields: dict[str, str]
    body: bytes

    @property
    def message(self) -> Message:
        """The one message in it, be it JSON or the last event of a stream."""
        if self.fields.get("content-type", "").startswith("text/event-stream"):
            *_, last = events_in(iter([self.body]))
            return last
        message: Message = json.loads(self.body)
        return message

    @property
    def code(self) -> int:
        """The code of the JSON-RPC error that it has."""
        code: int = self.message["error"]["code"]
        return code


def head(method: str = "POST", path: str = "/mcp", fields: Fields | None = None) -> bytes:
    """The head of a request, as it stands: nothing is escaped."""
    lines = [
        f"{method} {path} HTTP/1.1",
        *(f"{name}: {value}" for name, value in (fields or {}).items() if value is not None),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def post(message: Message | bytes, fields: Fields | None = None, *, path: str = "/mcp") -> bytes:
    """A modern POST, with the headers that its message asks for unless ``fields`` has others."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    usual: dict[str, str | None] = {
        "Host": "127.0.0.1",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": MODERN,
        "Content-Length": str(len(body)),
    }
    if isinstance(message, dict):
        usual["Mcp-Method"] = message["method"]
        if (key := _NAMED_BY.get(message["method"])) is not None:
            usual["Mcp-Name"] = message["params"][key]
    return head(path=path, fields={**usual, **(fields or {})}) + body


def legacy_post(message: object, session: str | None = None, fields: Fields | None = None) -> bytes:
    """A POST as clients of the legacy era make it."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    usual: dict[str, str | None] = {
        "Host": "127.0.0.1",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "MCP-Protocol-Version": LEGACY[-1] if session else None,
        "Mcp-Session-Id": session,
        "Content-Length": str(len(body)),
    }
    return head(fields={**usual, **(fields or {})}) + body


def initialize(version: str = LEGACY[-1]) -> Message:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "attacker", "version": "1"}}
    return request(0, "initialize", params)


def events_in(pieces: Iterator[bytes]) -> Iterator[Message]:
    """The messages of an event stream, as they come. Events without data, and comments, are passed over."""
    text = b""
    for piece in pieces:
        text += piece
        *whole, text = text.replace(b"\r\n", b"\n").split(b"\n\n")
        for event in whole:
            data = b"\n".join(line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:"))
            if data:
                yield json.loads(data)


class Wire:
    """One connection to a server, for bytes. ``address`` is a host and a port, or the path of a socket file."""

    def __init__(self, address: tuple[str, int] | str) -> None:
        self.socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
        # A Unix socket with a timeout does not wait for a server that has a queue at its door.
        self.socket.connect(address)
        self.socket.settimeout(PATIENCE)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def reset(self) -> None:
        """Close so that the peer gets an error instead of an end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def offer(self, data: bytes) -> bool:
        """Send, unless the server has closed the connection."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def ask(self, data: bytes) -> Answer:
        """The answer to one request."""
        self.send(data)
        return self.answer()

    def answer(self) -> Answer:
        """The next response, the whole of it."""
        status, fields = self.begun()
        return Answer(status, fields, b"".join(self.pieces(fields)))

    def begun(self) -> tuple[int, dict[str, str]]:
        """The status and the headers of the next response."""
        first = self.file.readline(_LONGEST)
        assert first.startswith(b"HTTP/1.1 "), f"this is no response: {first!r}"
        fields = {}
        while line := self.file.readline(_LONGEST).decode("latin-1").strip():
            name, _, value = line.partition(":")
            fields[name.lower()] = value.strip()
        return int(first.split()[1]), fields

    def pieces(self, fields: Mapping[str, str]) -> Iterator[bytes]:
        """The body of a response, as it comes."""
        if fields.get("transfer-encoding") == "chunked":
            while size := int(self.file.readline(_LONGEST), 16):
                yield self.file.read(size)
                self.file.readline(_LONGEST)
            self.file.readline(_LONGEST)
        elif "content-length" in fields:
            yield self.file.read(int(fields["content-length"]))

    def stream(self, data: bytes) -> Iterator[Message]:
        """The messages of the event stream that answers a request, as they come."""
        self.send(data)
        status, fields = self.begun()
        assert status == 200, (status, b"".join(self.pieces(fields)))
        assert fields["content-type"].startswith("text/event-stream"), fields
        return events_in(self.pieces(fields))

    def line(self) -> Message:
        """The next line, on connections that carry one message each."""
        message: Message = json.loads(self.file.readline())
        return message

    def first_line(self) -> bytes:
        """The next line; empty if the server has closed the connection."""
        try:
            return self.file.readline(_LONGEST)
        except ConnectionResetError:
            return b""

    def rest(self) -> bytes:
        """All that comes before the server closes the connection."""
        came = bytearray()
        try:
            while data := self.file.read1():
                came += data
        except ConnectionResetError:
            pass
        return bytes(came)


class Target:
    """The program in ``target``, in a process of its own, which must end well when it is told to.

    While it lives, it is among ``running``, so that each test can make sure that it still serves.
    """

    running: ClassVar[list[Target]] = []

    def __init__(self, *addresses: str, known_as: Fields | None = None, **options: Any) -> None:
        self.addresses: list[str] = []
        #: The headers by which it lets good clients in.
        self.known_as = known_as or {}
        errors, path = tempfile.mkstemp()
        self._errors = Path(path)
        wanted = addresses or (HTTP,)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.target", json.dumps({"addresses": wanted, **options})],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
        )
        os.close(errors)
        self.running.append(self)
        assert self.process.stdout is not None
        for _ in wanted:
            line = self.process.stdout.readline().decode().strip()
            if not line:
                report = self.report("it did not start")
                self._clear_away()
                pytest.fail(report)
            self.addresses.append(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        ending = signal.SIGKILL
        try:
            if kind is None:
                self.serves()
                ending = signal.SIGTERM
        finally:
            self.end(ending)

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send it this signal, and wait for its end, which is a good one unless it is killed."""
        try:
            self.process.send_signal(number)
            code = self.process.wait(PATIENCE)
            assert code == (0 if number == signal.SIGTERM else -number), self.report(f"its exit code is {code}")
            alarms = [alarm for alarm in _ALARMS if alarm in self.errors]
            assert not alarms, self.report(f"stderr has {alarms}")
        finally:
            self._clear_away()

    def _clear_away(self) -> None:
        self.running.remove(self)
        self.process.kill()
        self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.unlink()

    @property
    def errors(self) -> str:
        """What it has written to stderr."""
        return self._errors.read_text(errors="backslashreplace")

    def report(self, what: str) -> str:
        return f"{what}\nThe server has written:\n{self.errors[-5000:] or 'nothing'}"

    def place(self, scheme: str = "http") -> tuple[str, int] | str:
        """Where to connect to."""
        (address,) = (address for address in self.addresses if address.startswith(scheme + ":"))
        parts = urlsplit(address)
        return (parts.hostname, parts.port) if parts.hostname and parts.port else parts.path

    @property
    def port(self) -> int:
        """Of HTTP."""
        place = self.place()
        assert not isinstance(place, str)
        return place[1]

    def wire(self, scheme: str = "http") -> Wire:
        return Wire(self.place(scheme))

    def ask(self, data: bytes) -> Answer:
        """The answer to one HTTP request, over a connection of its own."""
        with self.wire() as wire:
            return wire.ask(data)

    def call(self, tool: str, fields: Fields | None = None, **arguments: Any) -> str:
        """The text of a tool's result, for a good client."""
        answer = self.ask(post(modern_call(1, tool, **arguments), {**self.known_as, **(fields or {})}))
        assert answer.status == 200, self.report(f"a good request was answered with {answer}")
        return text_of(answer.message["result"])

    def serves(self) -> None:
        """A good client is answered, at each address."""
        for address in self.addresses:
            scheme = address.partition(":")[0]
            if scheme == "http":
                assert self.call("echo", text="still here") == "still here"
                continue
            with self.wire(scheme) as wire:
                wire.send(json.dumps(modern_call(1, "echo", text="still here")).encode() + b"\n")
                assert text_of(wire.line()["result"]) == "still here"

    def events(self, name: str) -> int:
        """How often something came to pass in its tools."""
        return int(self.call("count", event=name))

    def until(self, name: str, times: int = 1) -> None:
        """Wait until it has."""
        blocking_until(lambda: self.events(name) >= times, f"{name!r}")

    def session(self, fields: Fields | None = None) -> str:
        """The id of a new legacy session."""
        with self.wire() as wire:
            answer = wire.ask(legacy_post(initialize(), fields=fields))
            assert answer.status == 200, self.report(str(answer))
            session = answer.fields["mcp-session-id"]
            told = wire.ask(legacy_post(notification("notifications/initialized"), session, fields))
            assert told.status == 202, self.report(str(told))
        return session

    def memory(self) -> int:
        """The bytes that it holds."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        (found,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(found.split()[1]) * 1024

    def open_files(self) -> int:
        """How many descriptors it has open."""
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))
