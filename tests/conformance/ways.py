"""The conformance server as a real process, spoken to with JSON and no MCP library, over each way that it serves.

Every message that comes from it must be what the official schema of the revision says.
"""

from __future__ import annotations

import http.client
import itertools
import json
import queue
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from tests import spec
from tests.kit.loop import PATIENCE

#: Any JSON object: tests take messages apart, and a failure to do so is a failure of the test.
Message: TypeAlias = dict[str, Any]

SERVER = Path(__file__).parents[2] / "conformance" / "server.py"
LEGACY = "2025-11-25"
MODERN = "2026-07-28"
#: What the suite's own clients can do.
CAPABILITIES: Message = {"sampling": {}, "elicitation": {}, "roots": {"listChanged": True}}

_PREFIX = "io.modelcontextprotocol/"
_EMPTY_RESULTS = {"logging/setLevel", "ping", "resources/subscribe", "resources/unsubscribe"}
_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Exchange(NamedTuple):
    """All that came for one request."""

    response: Message
    notifications: list[Message]
    #: What the server asked meanwhile; a modern one never does.
    requests: list[Message]
    #: The HTTP status, where there is one.
    status: int | None

    @property
    def result(self) -> Message:
        assert "result" in self.response, self.response
        result: Message = self.response["result"]
        return result

    @property
    def error(self) -> Message:
        assert "error" in self.response, self.response
        error: Message = self.response["error"]
        return error

    def notified(self, method: str) -> list[Message]:
        """The params of all notifications of this kind."""
        return [each["params"] for each in self.notifications if each["method"] == method]


class Stream(ABC):
    """What comes for one request, as it comes."""

    status: int | None = None

    @abstractmethod
    def next(self) -> Message:
        """The next message that belongs to the request."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it, finished or not."""


class Wire(ABC):
    """A client's way to the server, in the words of one revision; legacy ones open a session first."""

    def __init__(self, revision: str) -> None:
        self.revision = revision
        self.opened: Message = {}
        self._ids = itertools.count(1)

    @property
    def is_modern(self) -> bool:
        return self.revision == MODERN

    def begin(self) -> None:
        """Open the session, where the revision has one."""
        if not self.is_modern:
            params = {
                "protocolVersion": self.revision,
                "capabilities": CAPABILITIES,
                "clientInfo": {"name": "conformance", "version": "1"},
            }
            self.opened = self.exchange("initialize", params).result
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def meta(self, **changes: Any) -> Message:
        """The ``_meta`` of a modern request; what is None is left out."""
        full = {
            "protocolVersion": self.revision,
            "clientCapabilities": CAPABILITIES,
            "clientInfo": {"name": "conformance", "version": "1"},
        }
        return {_PREFIX + key: value for key, value in (full | changes).items() if value is not None}

    def request(self, method: str, params: Message | None = None, *, meta: Message | None = None) -> Stream:
        """Send a request, and give what comes for it. ``meta`` takes the place of what it usually carries."""
        if self.is_modern:
            params = {**(params or {}), "_meta": self.meta() if meta is None else meta}
        elif meta:
            params = {**(params or {}), "_meta": meta}
        message: Message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method}
        return self.open(message if params is None else message | {"params": params})

    def exchange(
        self,
        method: str,
        params: Message | None = None,
        *,
        meta: Message | None = None,
        answers: dict[str, Message] | None = None,
    ) -> Exchange:
        """Send a request, answer what the server asks meanwhile, and wait for the response."""
        stream = self.request(method, params, meta=meta)
        notifications: list[Message] = []
        requests: list[Message] = []
        try:
            while "method" in (message := stream.next()):
                self._check_typed(message)
                if "id" in message:
                    requests.append(message)
                    answer = (answers or {})[message["method"]]
                    self.send({"jsonrpc": "2.0", "id": message["id"], "result": answer})
                else:
                    notifications.append(message)
        finally:
            stream.close()
        self._check_response(method, message)
        return Exchange(message, notifications, requests, stream.status)

    def call(self, tool: str, arguments: Message | None = None, **more: Any) -> Exchange:
        """Call a tool; without arguments there is no such key, either."""
        params = {"name": tool} if arguments is None else {"name": tool, "arguments": arguments}
        return self.exchange("tools/call", params, **more)

    def retry(self, tool: str, responses: Any, state: str | None = None) -> Exchange:
        """Call a modern tool again, with what it has asked for."""
        params: Message = {"name": tool, "inputResponses": responses}
        return self.exchange("tools/call", params if state is None else params | {"requestState": state})

    @abstractmethod
    def open(self, message: Message) -> Stream:
        """Send a request, and give what comes for it."""

    @abstractmethod
    def send(self, message: Message) -> None:
        """Send a message that gets no answer."""

    def _check_typed(self, message: Message) -> None:
        definition = spec.methods(self.revision)[message["method"]]
        spec.official_validator(self.revision, definition).validate(message)

    def _check_response(self, method: str, response: Message) -> None:
        assert response["jsonrpc"] == "2.0"
        if "result" not in response:
            assert isinstance(response["error"]["code"], int)
            assert response["error"]["message"]
            return
        result = response["result"]
        definition = spec.methods(self.revision)[method].removesuffix("Request") + "Result"
        if result.get("resultType") == "input_required":
            definition = "InputRequiredResult"
        elif method in _EMPTY_RESULTS:
            definition = "EmptyResult"
        spec.official_validator(self.revision, definition).validate(result)


class StdioWire(Wire):
    """Over the pipes of a process of its own."""

    def __init__(self, revision: str) -> None:
        super().__init__(revision)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `finish` closes it
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER), "--stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._inbox: list[Message] = []
        threading.Thread(target=self._read, daemon=True).start()

    def open(self, message: Message) -> Stream:
        self.send(message)
        return _StdioStream(self, message)

    def send(self, message: Message) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def take(self, request_id: int, *, is_listening: bool) -> Message:
        """The next message for this request. What belongs to no request is for the one that does not listen."""
        while True:
            for place, message in enumerate(self._inbox):
                if _is_for(message, request_id, is_listening=is_listening):
                    return self._inbox.pop(place)
            line = self._lines.get(timeout=PATIENCE)
            assert line, "the server has ended"
            self._inbox.append(json.loads(line))

    def finish(self) -> None:
        """End the input: the server must follow, and must have met no fault."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            assert self._process.wait(PATIENCE) == 0
            self._errors.seek(0)
            assert b"Traceback" not in self._errors.read()
        finally:
            self._process.kill()
            self._process.wait()
            while self._lines.get(timeout=PATIENCE):
                pass
            self._process.stdout.close()
            self._errors.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")


class _StdioStream(Stream):
    def __init__(self, wire: StdioWire, request: Message) -> None:
        self._wire = wire
        self._id: int = request["id"]
        self._is_listening = request["method"] == "subscriptions/listen"
        self._is_over = False

    def next(self) -> Message:
        message = self._wire.take(self._id, is_listening=self._is_listening)
        self._is_over = "method" not in message
        return message

    def close(self) -> None:
        if not self._is_over:
            self._wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": self._id}})


def _is_for(message: Message, request_id: int, *, is_listening: bool) -> bool:
    if "method" not in message:
        return bool(message["id"] == request_id)
    subscription = message.get("params", {}).get("_meta", {}).get(_PREFIX + "subscriptionId")
    return bool(subscription == request_id) if is_listening else subscription is None


class HttpWire(Wire):
    """Over Streamable HTTP, with a request of its own for each message."""

    def __init__(self, revision: str, url: str) -> None:
        super().__init__(revision)
        self._url = urlsplit(url)
        self._session: str | None = None

    def open(self, message: Message) -> Stream:
        stream = _HttpStream(*self._post(message))
        self._session = stream.session or self._session
        return stream

    def send(self, message: Message) -> None:
        connection, response = self._post(message)
        try:
            assert response.status == 202, response.read()
        finally:
            response.close()
            connection.close()

    def finish(self) -> None:
        """End the session, if there is one."""
        if self._session is not None:
            connection = self._connected()
            connection.request("DELETE", self._url.path, headers={"Mcp-Session-Id": self._session})
            assert connection.getresponse().status in (200, 204)
            connection.close()

    def _post(self, message: Message) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        connection = self._connected()
        connection.request("POST", self._url.path, json.dumps(message), self._headers(message))
        return connection, connection.getresponse()

    def _connected(self) -> http.client.HTTPConnection:
        assert self._url.hostname is not None
        return http.client.HTTPConnection(self._url.hostname, self._url.port, timeout=PATIENCE)

    def _headers(self, message: Message) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self._session is not None:
            headers["Mcp-Session-Id"] = self._session
        if self.is_modern:
            params = message.get("params", {})
            named = params.get("_meta", {}).get(_PREFIX + "protocolVersion", self.revision)
            headers |= {"MCP-Protocol-Version": named, "Mcp-Method": message["method"]}
            if message["method"] in _NAMES:
                headers["Mcp-Name"] = params[_NAMES[message["method"]]]
        elif message.get("method") != "initialize":
            headers["MCP-Protocol-Version"] = self.revision
        return headers


class _HttpStream(Stream):
    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self.status = response.status
        self.session = response.getheader("Mcp-Session-Id")
        self._is_json = "json" in (response.getheader("Content-Type") or "")

    def next(self) -> Message:
        data = self._response.read() if self._is_json else self._event()
        message: Message = json.loads(data)
        return message

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def _event(self) -> bytes:
        """The data of the next event that has some."""
        data = b""
        for line in self._response:
            if line.startswith(b"data:"):
                data += line.removeprefix(b"data:").strip()
            elif not line.strip() and data:
                return data
        raise AssertionError(f"the stream has ended, with status {self.status}")


@contextmanager
def http_server() -> Iterator[str]:
    """A server process on a free port, and its URL."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, str(SERVER), "--port", "0"], stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            yield _first_line(process.stdout)
            process.terminate()
            assert process.wait(PATIENCE) == 0
            errors.seek(0)
            assert b"Traceback" not in errors.read()
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _first_line(output: IO[str] | None) -> str:
    assert output is not None
    line = output.readline().strip()
    assert line, "the server does not start"
    return line
