"""A real server process, driven with raw bytes on its pipes: no MCP library has a hand in what goes over them.

Nothing here judges by time. Whatever is waited for has a bound that only a hang reaches, and then the failure shows
what came so far and what the server wrote to stderr.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Self, TypeAlias

from tests.kit.loop import PATIENCE
from tests.kit.results import text_of

#: Any JSON object: tests take messages apart, and a failure to do so is a failure of the test.
Message: TypeAlias = dict[str, Any]
Id: TypeAlias = int | str

ROOT = Path(__file__).parents[2]
MODERN = "2026-07-28"
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

_CHUNK = 1 << 20
#: Variables that change what a server writes, and when.
_UNWANTED = ("PYTHONUNBUFFERED", "PYTHONDEVMODE", "PYTHONASYNCIODEBUG", "MCPLUMB_LOG", "MCPLUMB_TRACE")
#: What a server in good order never writes to stderr.
_ALARMS = ("Traceback", "never awaited", "was destroyed", "never retrieved", "Exception ignored", "Fatal Python error")


def encoded(*messages: object) -> bytes:
    """JSON values, each on a line of its own."""
    return b"".join(json.dumps(message, ensure_ascii=False).encode() + b"\n" for message in messages)


def request(request_id: object, method: str, params: Message | None = None) -> Message:
    """A request without any metadata."""
    message = {"jsonrpc": "2.0", "id": request_id, "method": method}
    return message if params is None else message | {"params": params}


def notification(method: str, params: Message | None = None) -> Message:
    message = {"jsonrpc": "2.0", "method": method}
    return message if params is None else message | {"params": params}


def cancellation(request_id: object) -> Message:
    return notification("notifications/cancelled", {"requestId": request_id})


def modern_meta(capabilities: Message | None = None, version: str = MODERN) -> Message:
    """What each modern request carries."""
    return {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": capabilities or {},
    }


def modern(request_id: object, method: str, params: Message | None = None) -> Message:
    """A modern request."""
    return request(request_id, method, {**(params or {}), "_meta": modern_meta()})


def modern_call(request_id: object, tool: str, **arguments: Any) -> Message:
    return modern(request_id, "tools/call", {"name": tool, "arguments": arguments})


def is_response(message: Message) -> bool:
    return "method" not in message


def progress_in(messages: Sequence[Message], token: Id) -> list[float]:
    """The values of all progress that was reported under a token, in the order they came."""
    return [
        message["params"]["progress"]
        for message in messages
        if message.get("method") == "notifications/progress" and message["params"]["progressToken"] == token
    ]


class ServerProcess:
    """One of the programs in ``servers``, in a process of its own. It never outlives the ``with`` block.

    ``options`` are the program's, mostly those of its ``Server``; ``redirect`` is as in a shell. Everything that comes
    from its stdout is read, unless ``reads_output`` is False, and must be a message; ``inbox`` has those that nobody
    has taken yet. The same goes for stderr and ``reads_errors``; the text so far is ``errors``. Unless ``may_fail``,
    no traceback may be in it.
    """

    def __init__(
        self,
        program: str,
        options: Message | None = None,
        *,
        stdin: int = subprocess.PIPE,
        stdout: int = subprocess.PIPE,
        env: dict[str, str] | None = None,
        redirect: str = "",
        may_fail: bool = False,
    ) -> None:
        self.inbox: list[Message] = []
        self.reads_output = self.reads_errors = True
        self._may_fail = may_fail
        self._ids = itertools.count(1)
        self._torn = bytearray()
        self._errors = bytearray()
        inherited = {name: value for name, value in os.environ.items() if name not in _UNWANTED}
        shell = ["sh", "-c", f'exec "$0" "$@" {redirect}'] if redirect else []
        self._process = subprocess.Popen(
            [*shell, sys.executable, "-m", f"tests.process.servers.{program}", json.dumps(options or {})],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=inherited | (env or {}),
            cwd=ROOT,
            bufsize=0,
        )
        self._stdin = _unblocked(self._process.stdin)
        self._stdout = _unblocked(self._process.stdout)
        self._stderr = _unblocked(self._process.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._process.kill()
            self._process.wait(PATIENCE)
            if kind is None:
                self.exit_code()
                alarms = [alarm for alarm in _ALARMS if alarm in self.errors and not self._may_fail]
                assert not alarms, self._report(f"stderr has {alarms}")
        finally:
            for pipe in (self._stdin, self._stdout, self._stderr):
                if pipe is not None:
                    pipe.close()

    # What goes in

    def next_id(self) -> int:
        """An id that no request to this process has had."""
        return next(self._ids)

    def send(self, *messages: Message) -> None:
        """Write messages, each on a line of its own."""
        self.write(encoded(*messages))

    def write(self, data: bytes) -> None:
        """Write bytes, all of them."""
        rest = memoryview(data)

        def is_written() -> bool:
            nonlocal rest
            rest = rest[self.offer(rest) :]
            return not rest

        self._until(is_written, "the server to read", writes=True)

    def offer(self, data: bytes | memoryview) -> int:
        """Write as many of the bytes as there is room for, and say how many."""
        assert self._stdin is not None, self._report("stdin is closed")
        return os.write(self._stdin.fileno(), data) if self._has_room() else 0

    def end_input(self) -> None:
        """Close the server's stdin."""
        assert self._stdin is not None, self._report("stdin is closed")
        self._stdin.close()
        self._stdin = None

    # What comes out

    @property
    def errors(self) -> str:
        """What stderr has brought so far."""
        return self._errors.decode("utf-8", "backslashreplace")

    def receive(self, wanted: Callable[[Message], object] = lambda _: True, what: str = "a message") -> Message:
        """Take the first message of that kind out of the inbox, as soon as there is one."""
        place = 0

        def is_there() -> bool:
            nonlocal place
            while place < len(self.inbox) and not wanted(self.inbox[place]):
                place += 1
            return place < len(self.inbox)

        self._until(is_there, what)
        return self.inbox.pop(place)

    def answer_to(self, request_id: object) -> Message:
        """The response with this id, of this very type."""
        return self.receive(
            lambda message: is_response(message) and "id" in message and _same_id(message["id"], request_id),
            f"the answer to {request_id!r}",
        )

    def notified(self, method: str) -> Message:
        """The params of the next notification of this kind."""
        params: Message = self.receive(lambda message: message.get("method") == method, method).get("params", {})
        return params

    def wait_for_error_text(self, text: str) -> None:
        """Wait until stderr has brought this."""
        self._until(lambda: text in self.errors, f"{text!r} on stderr")

    def rest(self) -> list[Message]:
        """All messages up to the end of stdout, with those that are in the inbox."""
        self._until(lambda: self._stdout is None, "the end of stdout")
        assert not self._torn, self._report(f"the last line of stdout has no end: {bytes(self._torn[:200])!r}")
        taken, self.inbox = self.inbox, []
        return taken

    def hang_up(self) -> None:
        """Close the reading end of the server's stdout."""
        assert self._stdout is not None, self._report("stdout is closed")
        self._stdout.close()
        self._stdout = None

    def close_errors(self) -> None:
        """Close the reading end of the server's stderr."""
        assert self._stderr is not None, self._report("stderr is closed")
        self._stderr.close()
        self._stderr = None

    # Its end

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def exit_code(self) -> int:
        """The exit code, once the process has ended and all of its stderr has been read."""
        self._until(lambda: self._process.poll() is not None, "the process to end")
        self._until(lambda: self._stderr is None or not self.reads_errors, "the end of stderr")
        return self._process.wait(PATIENCE)

    def finish(self) -> list[Message]:
        """End the input, and give all that is left; the process must have ended well."""
        if self._stdin is not None:
            self.end_input()
        rest = self.rest()
        code = self.exit_code()
        assert code == 0, self._report(f"exit code {code}")
        return rest

    def memory(self, field: str = "VmRSS") -> int:
        """The bytes of memory that the process has now, or has had at most (``VmHWM``)."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        (found,) = (text for text in status.splitlines() if text.startswith(field + ":"))
        return int(found.split()[1]) * 1024

    # How it is done

    def _until(self, is_done: Callable[[], bool], what: str, *, writes: bool = False) -> None:
        """Read what comes until the condition holds."""
        deadline = time.monotonic() + PATIENCE
        while True:
            is_last_look = self._process.poll() is not None and not self._watched()
            if is_done():
                return
            assert not is_last_look, self._report(f"the server has ended, and still no sign of {what}")
            assert time.monotonic() < deadline, self._report(f"waited in vain for {what}")
            self._turn(writes=writes)

    def _watched(self) -> list[IO[bytes]]:
        out = self._stdout if self.reads_output else None
        err = self._stderr if self.reads_errors else None
        return [pipe for pipe in (out, err) if pipe is not None]

    def _turn(self, *, writes: bool) -> None:
        into = [self._stdin] if writes and self._stdin is not None else []
        # A process can end without any pipe that tells so: hence not for ever.
        readable, _, _ = select.select(self._watched(), into, [], 0.05)
        for pipe in readable:
            data = os.read(pipe.fileno(), _CHUNK)
            if pipe is self._stdout:
                self._take(data) if data else self.hang_up()
            elif data:
                self._errors += data
            else:
                self.close_errors()

    def _take(self, data: bytes) -> None:
        self._torn += data
        if b"\n" not in data:
            return
        *lines, rest = bytes(self._torn).split(b"\n")
        self._torn = bytearray(rest)
        for line in lines:
            self.inbox.extend(self._messages_in(line))

    def _messages_in(self, line: bytes) -> list[Message]:
        try:
            found = json.loads(line.decode("utf-8"), parse_constant=_refuse)
        except ValueError:
            found = None
        messages = found if isinstance(found, list) else [found]
        for message in messages:
            is_one = isinstance(message, dict) and message.get("jsonrpc") == "2.0"
            assert is_one, self._report(f"this is no message: {line[:200]!r}")
        return [{"batch": messages}] if isinstance(found, list) else messages

    def _has_room(self) -> bool:
        assert self._stdin is not None
        return bool(select.select([], [self._stdin], [], 0)[1])

    def _report(self, what: str) -> str:
        code = self._process.poll()
        state = "still runs" if code is None else f"exited with {code}"
        inbox = [json.dumps(message)[:500] for message in self.inbox[:20]]
        return (
            f"{what}\nThe server {state}. {len(self.inbox)} messages are in the inbox:\n"
            + "\n".join(inbox)
            + f"\nThe end of its stderr:\n{self.errors[-4000:]}"
        )


class Client:
    """The words of one era: modern without a ``revision``, else in a legacy session that is opened here."""

    def __init__(self, server: ServerProcess, revision: str = MODERN, capabilities: Message | None = None) -> None:
        self.server = server
        self.revision = revision
        self.capabilities = capabilities or {}
        self.opened: Message = {}
        if not self.is_modern:
            params = {
                "protocolVersion": revision,
                "capabilities": self.capabilities,
                "clientInfo": {"name": "raw bytes", "version": "1"},
            }
            self.opened = self.result("initialize", params)
            server.send(notification("notifications/initialized"))

    @property
    def is_modern(self) -> bool:
        return self.revision == MODERN

    def send(self, method: str, params: Message | None = None, **meta: Any) -> int:
        """Send a request under an id of its own."""
        request_id = self.server.next_id()
        if self.is_modern:
            meta = modern_meta(self.capabilities) | meta
        full = {**(params or {}), "_meta": meta} if meta else params
        self.server.send(request(request_id, method, full))
        return request_id

    def answer(self, method: str, params: Message | None = None, **meta: Any) -> Message:
        """Send a request, and wait for the response."""
        return self.server.answer_to(self.send(method, params, **meta))

    def result(self, method: str, params: Message | None = None, **meta: Any) -> Message:
        response = self.answer(method, params, **meta)
        assert "result" in response, response
        result: Message = response["result"]
        return result

    def error(self, method: str, params: Message | None = None, **meta: Any) -> Message:
        response = self.answer(method, params, **meta)
        assert "error" in response, response
        error: Message = response["error"]
        return error

    def send_call(self, tool: str, **arguments: Any) -> int:
        return self.send("tools/call", {"name": tool, "arguments": arguments})

    def call(self, tool: str, **arguments: Any) -> Message:
        """Call a tool, and wait for its result."""
        return self.result("tools/call", {"name": tool, "arguments": arguments})

    def say(self, tool: str, **arguments: Any) -> str:
        """Call a tool, and wait for its text."""
        result = self.call(tool, **arguments)
        assert not result.get("isError"), result
        return text_of(result)

    def begin(self, tool: str, **arguments: Any) -> int:
        """Call a tool that reports progress as soon as it has started, and wait for that."""
        token = f"{tool}-{self.server.next_id()}"
        request_id = self.send("tools/call", {"name": tool, "arguments": arguments}, progressToken=token)
        self.server.receive(lambda message: progress_in([message], token), f"{tool} to start")
        return request_id

    def fence(self) -> None:
        """All that the server had to say before this is in the inbox afterwards, if it was not waiting for anything."""
        self.result("tools/list")


def _unblocked(pipe: IO[bytes] | None) -> IO[bytes] | None:
    if pipe is not None:
        os.set_blocking(pipe.fileno(), False)
    return pipe


def _same_id(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _refuse(constant: str) -> None:
    raise ValueError(f"JSON has no {constant}")
