"""The servers: ``python chaos/servers.py daemon|stdio|http OPTIONS``, each a process of its own.

* ``daemon`` starts a daemon when its input ends, and exits: one that stays, execs another program, or forks and exits
  again and again.
* ``stdio`` and ``http`` answer correctly, except for calls that name a fault: these commit it the first time that they
  are received, and are answered when they are sent again.

Only the standard library, and little of it: thousands of them are started.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    sys.path[0] = __file__.rpartition("/chaos/")[0]

from tests.launch.servers.hand import META, Object, Server, content

__all__ = ["CRASHES", "HTTP_FAULTS", "STDIO_FAULTS"]

#: Seconds for which a stalled server does nothing: longer than a call may take.
STALL = 2.4
#: Seconds for which a server is stopped by a signal, or does not read: shorter than that.
PAUSE = 0.3
GARBAGE = (
    b"\xff\xfe\x00garbage\n",
    b"[[[[{{{{\n",
    b'{"jsonrpc": "2.0"}\n',
    b'{"jsonrpc": "2.0", "id": 999999999, "result": {}}\n',
    b'{"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "no"}}\n',
    b"\n\r\n\x1b[2J\n",
)


class Stdio(Server):
    """Over standard input and output."""

    def respond(self, request: Object, result: Any) -> None:
        fault = fault_of(request, self.options["folder"])
        line = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode() + b"\n"
        if fault is None:
            self.write(line)
        else:
            STDIO_FAULTS[fault](self, line)

    def tool_act(self, _: Object, arguments: Object) -> Object:
        return content(arguments.get("text", ""))


def fault_of(request: Object, folder: str) -> str | None:
    """Return the fault that a call asks for, unless it was committed before."""
    arguments = request.get("params", {}).get("arguments", {})
    if "fault" not in arguments:
        return None
    try:
        os.close(os.open(f"{folder}/{arguments['number']}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return None
    fault: str = arguments["fault"]
    return fault


def killed(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def torn(server: Stdio, line: bytes) -> None:
    """Crash in the middle of the answer."""
    server.write(line[: len(line) // 2])
    killed()


def torn_before_the_newline(server: Stdio, line: bytes) -> None:
    server.write(line[:-1])
    os._exit(3)


def huge_and_torn(server: Stdio, line: bytes) -> None:
    server.write(line[:-4] + b" " * 500_000)
    killed()


def garbage(server: Stdio, line: bytes) -> None:
    for noise in GARBAGE:
        server.write(noise)
    server.write(line)


def slow(server: Stdio, line: bytes) -> None:
    """Write a few bytes at a time."""
    for begin in range(0, len(line), 16):
        server.write(line[begin : begin + 16])
        time.sleep(0.005)


def twice(server: Stdio, line: bytes) -> None:
    server.write(line + line)


def stalled(server: Stdio, line: bytes) -> None:
    """Answer after the caller has given up."""
    time.sleep(STALL)
    server.write(line)


def deaf(server: Stdio, line: bytes) -> None:
    """Read nothing for a while."""
    time.sleep(PAUSE)
    server.write(line)


def stopped(server: Stdio, line: bytes) -> None:
    """Be stopped by SIGSTOP for a while."""
    parent = os.getpid()
    if not os.fork():
        time.sleep(PAUSE)
        os.kill(parent, signal.SIGCONT)
        os._exit(0)
    os.kill(parent, signal.SIGSTOP)
    server.write(line)


def mute(*_: object) -> None:
    """Close only standard output."""
    os.close(1)
    signal.pause()


def mute_in_a_line(server: Stdio, line: bytes) -> None:
    server.write(line[: len(line) // 3])
    mute()


def shut(server: Stdio, line: bytes) -> None:
    """Close only standard input, and exit a little later."""
    server.write(line)
    os.close(0)
    time.sleep(PAUSE)
    os._exit(0)


def silent(*_: object) -> None:
    """Give no answer."""


def chatty(server: Stdio, line: bytes) -> None:
    """Fill standard error."""
    os.write(2, b"words\n" * 50_000)
    server.write(line)


def exits(*_: object) -> None:
    os.write(2, b"The disk is full.\n")
    os._exit(7)


def exits_after_the_answer(server: Stdio, line: bytes) -> None:
    server.write(line)
    os._exit(0)


STDIO_FAULTS: dict[str, Callable[[Stdio, bytes], None]] = {
    function.__name__: function
    for function in (
        killed,
        torn,
        torn_before_the_newline,
        huge_and_torn,
        garbage,
        slow,
        twice,
        stalled,
        deaf,
        stopped,
        mute,
        mute_in_a_line,
        shut,
        silent,
        chatty,
        exits,
        exits_after_the_answer,
    )
}


# --- HTTP ---


class Exchange:
    """One request over HTTP, and the way to answer it badly."""

    def __init__(self, connection: socket.socket, server: Server, request: Object) -> None:
        self._connection = connection
        self._server = server
        self._request = request

    @property
    def body(self) -> bytes:
        result = self._server.result_of(self._request, self._request["method"], self._request.get("params", {}))
        return json.dumps({"jsonrpc": "2.0", "id": self._request["id"], "result": result}).encode()

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def answer(self, body: bytes = b"", *, length: int | None = None, kind: str = "application/json") -> None:
        size = len(body) if length is None else length
        self.send(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n".encode() + body)

    def acknowledge(self) -> None:
        """Keep a subscription open until the client leaves. Nothing ever changes."""
        params = {"_meta": {f"{META}subscriptionId": self._request["id"]}, "notifications": {}}
        message = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
        begin_events(self)
        self.send(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")
        self._connection.recv(1)
        self.close()

    def reset(self) -> None:
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self._connection.close()
        raise ConnectionResetError


def begin_events(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")


def http_reset(exchange: Exchange) -> None:
    exchange.reset()


def http_closed(exchange: Exchange) -> None:
    exchange.close()


def http_truncated(exchange: Exchange) -> None:
    """End the connection in the middle of a body with a length."""
    body = exchange.body
    exchange.answer(body[: len(body) // 2], length=len(body))
    exchange.close()


def http_truncated_and_reset(exchange: Exchange) -> None:
    body = exchange.body
    exchange.answer(body[: len(body) // 2], length=len(body))
    exchange.reset()


def http_torn_chunk(exchange: Exchange) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    exchange.send(head + b"400\r\n" + exchange.body[:40])
    exchange.close()


def http_torn_event(exchange: Exchange) -> None:
    begin_events(exchange)
    exchange.send(b"event: message\ndata: " + exchange.body[:40])
    exchange.close()


def http_events_then_nothing(exchange: Exchange) -> None:
    begin_events(exchange)
    exchange.send(b": waiting\n\n")
    exchange.close()


def http_events(exchange: Exchange) -> None:
    begin_events(exchange)
    exchange.send(b"event: message\ndata: " + exchange.body + b"\n\n")
    exchange.close()


def http_torn_head(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    exchange.close()


def http_garbage(exchange: Exchange) -> None:
    exchange.send(b"\x00\xffSSH-2.0-nonsense\r\n\r\n")
    exchange.close()


def http_not_json(exchange: Exchange) -> None:
    exchange.answer(b"<html>busy</html>", kind="text/html")


def http_half_a_body(exchange: Exchange) -> None:
    """Claim that half of the answer is all of it."""
    exchange.answer(exchange.body[:-20])


def http_error(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")


def http_other_id(exchange: Exchange) -> None:
    """Answer another request than the one that was sent."""
    message = json.loads(exchange.body)
    exchange.answer(json.dumps({**message, "id": "another"}).encode())


def http_slow(exchange: Exchange) -> None:
    body = exchange.body
    exchange.answer(b"", length=len(body))
    for begin in range(0, len(body), 16):
        exchange.send(body[begin : begin + 16])
        time.sleep(0.005)


def http_stalled(exchange: Exchange) -> None:
    time.sleep(STALL)
    exchange.answer(exchange.body)


def http_stalled_in_the_body(exchange: Exchange) -> None:
    body = exchange.body
    exchange.answer(body[:20], length=len(body))
    time.sleep(STALL)
    exchange.close()


def http_killed(_: Exchange) -> None:
    killed()


def http_killed_in_the_body(exchange: Exchange) -> None:
    body = exchange.body
    exchange.answer(body[:20], length=len(body))
    killed()


HTTP_FAULTS: dict[str, Callable[[Exchange], None]] = {
    function.__name__.removeprefix("http_"): function
    for function in (
        http_reset,
        http_closed,
        http_truncated,
        http_truncated_and_reset,
        http_torn_chunk,
        http_torn_event,
        http_events_then_nothing,
        http_events,
        http_torn_head,
        http_garbage,
        http_not_json,
        http_half_a_body,
        http_error,
        http_other_id,
        http_slow,
        http_stalled,
        http_stalled_in_the_body,
        http_killed,
        http_killed_in_the_body,
    )
}


#: The faults that end the connection before the whole answer has arrived: a call that is safe is sent again.
CRASHES = {
    "killed",
    "torn",
    "torn_before_the_newline",
    "huge_and_torn",
    "mute",
    "mute_in_a_line",
    "exits",
    "reset",
    "closed",
    "truncated",
    "truncated_and_reset",
    "torn_chunk",
    "torn_event",
    "events_then_nothing",
    "torn_head",
    "killed_in_the_body",
}


def serve_http(options: Object) -> None:
    """Serve on a socket that was inherited, so that the address is the same after a crash."""
    listener = socket.socket(fileno=options["listener"])
    server = Stdio(options)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_connection, args=(connection, server, options["folder"]), daemon=True).start()


def serve_connection(connection: socket.socket, server: Server, folder: str) -> None:
    with connection, connection.makefile("rb") as reader:
        try:
            while line := reader.readline():
                length = 0
                while (field := reader.readline()) not in (b"\r\n", b""):
                    name, _, value = field.partition(b":")
                    if name.lower() == b"content-length":
                        length = int(value)
                body = reader.read(length)
                if not line.startswith(b"POST"):
                    connection.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
                    continue
                request = json.loads(body)
                if "id" not in request:
                    connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
                    continue
                exchange = Exchange(connection, server, request)
                if request["method"] == "subscriptions/listen":
                    exchange.acknowledge()
                fault = fault_of(request, folder)
                if fault is None:
                    exchange.answer(exchange.body)
                else:
                    HTTP_FAULTS[fault](exchange)
        except OSError:
            pass  # the client has left, or the fault is that the connection ends


# --- Daemons ---


def serve_daemon(options: Object) -> None:
    """Read until the end of the input, then start a daemon and exit."""
    kind = options["kind"]
    if kind != "early":
        while os.read(0, 65536):
            pass
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        if kind == "execs":
            os.execv(  # noqa: S606
                sys.executable, [sys.executable, "-I", "-S", "-c", "import time; time.sleep(1000)", options["folder"]]
            )
        while kind == "moves":
            time.sleep(0.02)
            if os.fork():
                os._exit(0)
            os.setsid()
        time.sleep(1000)
    if kind == "early":
        while os.read(0, 65536):
            pass
    os._exit(0)


def main() -> None:
    """Run the server that the arguments name."""
    options: Object = json.loads(sys.argv[2])
    match sys.argv[1]:
        case "daemon":
            serve_daemon(options)
        case "stdio":
            Stdio(options).run()
        case "http":
            serve_http(options)


if __name__ == "__main__":
    main()
