"""MCP spoken by hand over raw descriptors: a server in good order, of which each misbehaving one changes something.

The programs beside this one take their options as one JSON object. Those that all of them know:

* ``revisions``: the protocol revisions that it serves; only the modern one if left out.
* ``log``: a file to which each process appends, as lines of JSON, what it received and what happened to it.
* ``state``: a file that counts the starts, for those that behave differently from one start to the next.
* ``ttl``: milliseconds for which a modern one lets its answers be kept; none if left out.
* ``shape``: the output schema of its tool ``shaped``.

Only the standard library, and little of it: a test may start dozens of them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeAlias

Object: TypeAlias = dict[str, Any]

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
_CHUNK = 1 << 16

CAPABILITIES: Object = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "logging": {},
    "completions": {},
}

#: The tools, and what each says of itself.
TOOLS: dict[str, Object] = {
    "echo": {"readOnlyHint": True},
    "read": {"readOnlyHint": True},
    "repeat": {"idempotentHint": True},
    "act": {},
    "hold": {"readOnlyHint": True},
    "look": {"readOnlyHint": True},
    "crash": {},
    "change": {},
    "count": {},
    "drip": {},
}


class Refusal(Exception):
    """The answer is an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.detail = {"code": code, "message": message} | ({} if data is None else {"data": data})


class Silence(Exception):
    """There is no answer, or not yet."""


class Server:
    """In good order. ``options`` are those of its program."""

    def __init__(self, options: Object) -> None:
        self.options = options
        self.revisions: list[str] = options.get("revisions", [MODERN])
        self.start_number = self._count_start()
        #: Open subscriptions: their filters, under the ids of their requests.
        self.listening: dict[Any, Object] = {}
        self.subscribed: set[str] = set()
        self._log = os.open(options["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND) if "log" in options else None
        self.note(event="started", start=self.start_number)

    def run(self) -> None:
        """Serve until the end of the input."""
        for line in self.lines():
            self.take(line)
        self.note(event="end of input")

    # What comes in

    def lines(self) -> Iterator[bytes]:
        torn = b""
        while data := os.read(0, _CHUNK):
            *whole, torn = (torn + data).split(b"\n")
            yield from whole
        if torn:
            self.note(event="torn", line=torn.decode("latin-1"))

    def take(self, line: bytes) -> None:
        """One line came."""
        self.note(line=line.decode("latin-1"))
        message = json.loads(line)
        if "method" in message and "id" in message:
            self.requested(message)
        elif "method" in message:
            self.notified(message["method"], message.get("params", {}))
        else:
            self.answered(message)

    def requested(self, request: Object) -> None:
        """A request came: answer it."""
        try:
            result = self.result_of(request, request["method"], request.get("params", {}))
        except Refusal as refusal:
            self.send({"id": request["id"], "error": refusal.detail})
        except Silence:
            pass
        else:
            self.respond(request, result)

    def notified(self, method: str, params: Object) -> None:
        """A notification came."""
        if method == "notifications/cancelled":
            self.listening.pop(params.get("requestId"), None)

    def answered(self, response: Object) -> None:
        """An answer came, to a request of this server's."""

    # What goes out

    def send(self, message: Object) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(1, rest) :]

    def respond(self, request: Object, result: Any) -> None:
        self.send({"id": request["id"], "result": result})

    def notify(self, method: str, **params: Any) -> None:
        self.send({"method": method, "params": params})

    def note(self, **entry: Any) -> None:
        """Append to the log, in one write: other processes do the same."""
        if self._log is not None:
            os.write(self._log, json.dumps({"pid": os.getpid(), **entry}).encode() + b"\n")

    # What it does

    def result_of(self, request: Object, method: str, params: Object) -> Object:
        """The result of a request; ``Refusal`` or ``Silence`` if there is none."""
        if method == "initialize":
            return self.initialize(params)
        version = params.get("_meta", {}).get(META + "protocolVersion")
        if version is not None and MODERN in self.revisions and version not in self.revisions:
            raise Refusal(-32022, "Unsupported version.", {"supported": self.revisions, "requested": version})
        answer = self.methods().get(method)
        if answer is None or (method == "server/discover" and MODERN not in self.revisions):
            return self.unknown(method)
        return {**answer(request, params), **self.frame(version)}

    def methods(self) -> dict[str, Callable[[Object, Object], Object]]:
        return {
            "server/discover": self.discover,
            "ping": lambda _, __: {},
            "logging/setLevel": lambda _, __: {},
            "tools/list": self.list_tools,
            "tools/call": self.call,
            "resources/list": lambda _, __: {"resources": [{"uri": "test://one", "name": "one"}]},
            "resources/templates/list": lambda _, __: {"resourceTemplates": []},
            "resources/read": lambda _, params: {"contents": [{"uri": params["uri"], "text": self.own_number()}]},
            "resources/subscribe": self.subscribe,
            "resources/unsubscribe": self.unsubscribe,
            "prompts/list": lambda _, __: {"prompts": [{"name": "plan"}]},
            "prompts/get": lambda _, __: {"messages": [{"role": "user", "content": text("Plan.")}]},
            "completion/complete": lambda _, __: {"completion": {"values": ["one", "two"]}},
            "subscriptions/listen": self.listen,
        }

    def frame(self, version: str | None) -> Object:
        """What every modern result has."""
        if version is None:
            return {}
        return {"resultType": "complete", "ttlMs": self.options.get("ttl", 0), "cacheScope": "private"}

    def unknown(self, method: str) -> Object:
        raise Refusal(-32601, f"There is no method {method}.")

    def discover(self, _: Object, __: Object) -> Object:
        return {
            "supportedVersions": self.revisions,
            "capabilities": CAPABILITIES,
            "_meta": {META + "serverInfo": {"name": "by hand", "version": "1"}},
        }

    def initialize(self, params: Object) -> Object:
        legacy = [revision for revision in self.revisions if revision != MODERN]
        if not legacy:
            asked = params.get("protocolVersion")
            raise Refusal(-32022, "Only modern.", {"supported": self.revisions, "requested": asked})
        wanted = params["protocolVersion"]
        return {
            "protocolVersion": wanted if wanted in legacy else max(legacy),
            "capabilities": CAPABILITIES,
            "serverInfo": {"name": "by hand", "version": "1"},
        }

    def list_tools(self, _: Object, __: Object) -> Object:
        tools = [
            {"name": name, "inputSchema": {"type": "object"}, "annotations": hints} for name, hints in TOOLS.items()
        ]
        shaped = {"name": "shaped", "inputSchema": {"type": "object"}, "outputSchema": self.options.get("shape")}
        return {"tools": [*tools, shaped] if "shape" in self.options else tools}

    def subscribe(self, _: Object, params: Object) -> Object:
        if params["uri"] == "test://slow":
            raise Silence
        self.subscribed.add(params["uri"])
        return {}

    def unsubscribe(self, _: Object, params: Object) -> Object:
        self.subscribed.discard(params["uri"])
        return {}

    def listen(self, request: Object, params: Object) -> Object:
        wanted = params["notifications"]
        self.listening[request["id"]] = wanted
        meta = {META + "subscriptionId": request["id"]}
        self.notify("notifications/subscriptions/acknowledged", _meta=meta, notifications=wanted)
        raise Silence

    # Its tools

    def call(self, request: Object, params: Object) -> Object:
        name, arguments = params["name"], params.get("arguments", {})
        tool: Callable[[Object, Object], Object] | None = getattr(self, "tool_" + name, None)
        if tool is None:
            raise Refusal(-32602, f"There is no tool {name}.")
        return tool(request, arguments)

    def tool_echo(self, _: Object, arguments: Object) -> Object:
        """The text that it was given."""
        return content(arguments.get("text", ""))

    def tool_act(self, _: Object, arguments: Object) -> Object:
        """The number of this start; no answer in the first ``hold`` starts."""
        if self.start_number <= arguments.get("hold", 0):
            raise Silence
        return content(self.own_number())

    tool_read = tool_repeat = tool_act

    def tool_hold(self, _: Object, __: Object) -> Object:
        """Never answered."""
        raise Silence

    def tool_look(self, _: Object, __: Object) -> Object:
        """What the process sees around itself."""
        around = {
            "pid": os.getpid(),
            "cwd": os.getcwd(),  # noqa: PTH109 - pathlib would take as long to load as all the rest
            "argv": sys.argv,
            "environ": dict(os.environ),
            "session": os.getsid(0),
            "group": os.getpgrp(),
            "descriptors": sorted(map(int, os.listdir("/proc/self/fd"))),  # noqa: PTH208
        }
        return content(json.dumps(around))

    def tool_crash(self, _: Object, arguments: Object) -> Object:
        crash(arguments)

    def tool_change(self, _: Object, arguments: Object) -> Object:
        """Announce changes: ``method`` and ``uri``, or many of them with ``times``."""
        method, times = arguments["method"], arguments.get("times", 1)
        about = {"uri": arguments["uri"]} if "uri" in arguments else {}
        for _number in range(times):
            if MODERN in self.revisions:
                for subscription in self.listening:
                    self.notify(method, _meta={META + "subscriptionId": subscription}, **about)
            else:
                self.notify(method, **about)
        return content("told")

    def tool_count(self, request: Object, arguments: Object) -> Object:
        """Progress up to ``to``, and log messages beside it; then no answer, if it is to ``hold``."""
        token = request["params"].get("_meta", {}).get("progressToken")
        for number in range(1, arguments["to"] + 1):
            if token is not None:
                self.notify("notifications/progress", progressToken=token, progress=number, total=arguments["to"])
            self.notify("notifications/message", level="info", data=number)
        if arguments.get("hold"):
            raise Silence
        return content("counted")

    def tool_shaped(self, _: Object, arguments: Object) -> Object:
        """The value that it was given."""
        return {**content("shaped"), "structuredContent": arguments["value"]}

    def tool_drip(self, request: Object, _: Object) -> Object:
        """Progress without an end, until the client says something else."""
        token = request["params"]["_meta"]["progressToken"]
        number = 0
        while not select.select([0], [], [], 0.01)[0]:
            number += 1
            self.notify("notifications/progress", progressToken=token, progress=number)
        raise Silence

    # How often it was started

    def own_number(self) -> str:
        return str(self.start_number)

    def _count_start(self) -> int:
        if "state" not in self.options:
            return 1
        state = os.open(self.options["state"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(state, b".")
        starts = os.fstat(state).st_size
        os.close(state)
        return starts


def text(words: str) -> Object:
    return {"type": "text", "text": words}


def content(words: str) -> Object:
    return {"content": [text(words)]}


def say(words: str) -> None:
    """Write to stderr."""
    os.write(2, words.encode())


def crash(how: Object) -> NoReturn:
    """End this process: ``says`` something first, then ends by ``signal``, by an exception or with ``code``."""
    say(how.get("says", ""))
    if "signal" in how:
        os.kill(os.getpid(), signal.Signals[how["signal"]])
        signal.pause()
    if "raises" in how:
        raise RuntimeError(how["raises"])
    os._exit(how.get("code", 1))


def main(kind: type[Server]) -> None:
    """Run a program."""
    kind(json.loads(sys.argv[2])).run()
