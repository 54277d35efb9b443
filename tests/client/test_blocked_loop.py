"""A program that blocks its event loop for longer than its calls may take: their answers have arrived, and count."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from mcplumb import Client, RequestTimeout, connect
from tests.client.peers import skip
from tests.kit.loop import blocking_until, turns, until
from tests.launch.harness import Stage

MODERN, LEGACY = "2026-07-28", "2025-11-25"
#: Seconds that a call may take, and for which the loop is blocked. The loop's clock passes over them.
TIMEOUT, BLOCKED = 60.0, 100.0
#: Characters of an answer. All answers together are many times what one read brings.
SIZE = 2000
CALLS = 50


class Answers:
    """The answers of a server in a thread: it holds them back until the loop is blocked, and counts those it wrote."""

    def __init__(self) -> None:
        self.asked = 0
        self.written = 0
        self.may_answer = threading.Event()
        self._lock = threading.Lock()

    def to(self, message: dict[str, Any]) -> bytes:
        match message["method"]:
            case "server/discover":
                result: Any = {"resultType": "complete", "supportedVersions": [MODERN], "capabilities": {"tools": {}}}
            case "initialize":
                result = {"protocolVersion": LEGACY, "capabilities": {"tools": {}}}
            case _:
                with self._lock:
                    self.asked += 1
                self.may_answer.wait()
                result = {"resultType": "complete", "content": [{"type": "text", "text": "x" * SIZE}]}
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()

    def count(self, message: dict[str, Any]) -> None:
        with self._lock:
            self.written += message["method"] == "tools/call"


@contextmanager
def over_tcp(answers: Answers) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listener.accept()
        with client, client.makefile("rb") as lines:
            held = []
            for line in lines:
                message = json.loads(line)
                if message.get("method") == "tools/call" and not answers.may_answer.is_set():
                    # Whoever answers one by one would read the next request only after that.
                    held.append(message)
                    answers.asked += 1
                    if answers.asked < CALLS:
                        continue
                    for each in held:
                        client.sendall(answers.to(each) + b"\n")
                        answers.count(each)
                elif "id" in message:
                    client.sendall(answers.to(message) + b"\n")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        answers.may_answer.set()
        thread.join()
        listener.close()


@contextmanager
def over_http(answers: Answers) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = answers.to(message) if "id" in message else b""
            self.send_response(200 if body else 202)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            answers.count(message)

        def do_GET(self) -> None:
            self.send_error(405)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 2 * CALLS

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        answers.may_answer.set()
        server.shutdown()
        thread.join()
        server.server_close()


def begin_calls(client: Client, timeout: float = TIMEOUT) -> list[asyncio.Task[Any]]:
    return [asyncio.create_task(client.call_tool("echo", {"text": "x" * 10}, timeout=timeout)) for _ in range(CALLS)]


@pytest.mark.req("CAN-5")
@pytest.mark.parametrize("revision", [MODERN, LEGACY])
@pytest.mark.parametrize("way", [over_tcp, over_http])
async def test_answers_that_have_arrived_count_whatever_the_time_is(way: Any, revision: str) -> None:
    answers = Answers()
    with way(answers) as address:
        async with connect(address, revisions=[revision], check_output=False) as client:
            calls = begin_calls(client)
            await until(lambda: answers.asked >= CALLS, "the calls")
            answers.may_answer.set()
            blocking_until(lambda: answers.written == CALLS, "the answers")
            skip(BLOCKED)
            assert [len(result.text) for result in await asyncio.gather(*calls)] == [SIZE] * CALLS


@pytest.mark.req("CAN-5")
@pytest.mark.parametrize("revision", [MODERN, LEGACY])
async def test_answers_in_the_pipe_of_a_process_count_whatever_the_time_is(tmp_path: Any, revision: str) -> None:
    stage = Stage(tmp_path)
    async with connect(stage.command("good", revisions=[revision]), revisions=[revision]) as client:
        calls = [asyncio.create_task(client.call_tool("echo", {"text": "x" * 500}, timeout=TIMEOUT)) for _ in range(80)]
        await turns(3)  # they are written
        # It answers each before it reads the next.
        blocking_until(lambda: len(stage.log.calls("echo")) == 80, "the answers")
        skip(BLOCKED)
        assert [len(result.text) for result in await asyncio.gather(*calls)] == [500] * 80


@pytest.mark.req("CAN-5")
async def test_a_server_that_never_stops_writing_does_not_put_off_a_timeout(tmp_path: Any) -> None:
    command = Stage(tmp_path).command("flooding", what="notifications", after=1)
    async with connect(command, revisions=[MODERN], stderr="discard") as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("hold", timeout=0.05)
