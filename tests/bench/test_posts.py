"""The driver over HTTP against real processes: good servers, and those that do wrong what a figure relies on."""

from __future__ import annotations

import sys

import pytest

from bench.driver import TooSlow
from bench.environments import CONTENDERS
from bench.http import THING, heard
from bench.loads import Driver, cost_of_calls
from bench.posts import visited
from bench.traffic import MODERN, Calls, Failed

OURS = [sys.executable, str(CONTENDERS / "ours_http.py")]

# What the servers below have in common: `serve` calls a function with each request and writes what it returns.
COMMON = """
import json, socket, sys, threading
def request_from(connection):
    data = b""
    while b"\\r\\n\\r\\n" not in data:
        chunk = connection.recv(65536)
        if not chunk: return None
        data += chunk
    head, _, body = data.partition(b"\\r\\n\\r\\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    while len(body) < length: body += connection.recv(65536)
    return json.loads(body)
def answer(call, head="HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n"):
    result = {"content": [{"type": "text", "text": call["params"]["arguments"]["text"]}]}
    body = json.dumps({"id": call["id"], "result": result})
    return (head % len(body) + body).encode()
def serve(work, size=50):
    def attend(connection):
        with connection:
            while (call := request_from(connection)) is not None:
                said = work(call)
                if said is None: return
                for at in range(0, len(said), size): connection.sendall(said[at : at + size])
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
        while True: threading.Thread(target=attend, args=[server.accept()[0]], daemon=True).start()
"""


def server(code: str) -> list[str]:
    return [sys.executable, "-c", COMMON + code]


@pytest.mark.parametrize("program", ["ours_http", "bare_http"])
def test_each_server_serves_both_tools(program: str) -> None:
    with visited([sys.executable, str(CONTENDERS / f"{program}.py")]) as process:
        assert process.in_flight(Calls.echo(MODERN, range(1, 100)), 8) > 0
        assert process.in_flight(Calls.echo(MODERN, range(1, 4)), 8) > 0
        assert len(process.one_at_a_time(Calls.add(MODERN, range(100, 110)))) == 10


def test_answers_may_come_in_pieces() -> None:
    with visited(server("serve(answer)")) as process:
        process.in_flight(Calls.echo(MODERN, range(1, 50)), 8)
        load = cost_of_calls(Driver(process, lambda ids: Calls.echo(MODERN, ids[:20])), [process.pid])
        assert 0 < load["p50"] <= load["p99"]
        assert load["in_flight"] > 0


def test_all_who_listen_hear_of_a_change() -> None:
    with visited(OURS) as process:
        streams = process.listen(20, THING)
        assert heard(process, streams) > 0
        assert heard(process, streams) > 0


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("serve(lambda call: answer({**call, 'id': 1}))", "came twice|should have been answered with"),
        ("serve(lambda call: answer(call).replace(b'hello', b'hallo'))", "should have been answered with"),
        ("serve(lambda call: answer(call).replace(b'200 OK', b'400 No'))", "no good answer"),
        ("serve(lambda call: answer(call).replace(b'Content-Length', b'X-Length'))", "without a length"),
        ("serve(lambda call: answer(call) + b'HTTP/1.1 200 OK', size=10**6)", "more than one answer"),
        ("serve(lambda call: None)", "closed a connection instead of answering"),
    ],
)
def test_what_a_server_does_wrong_is_found(code: str, complaint: str) -> None:
    with pytest.raises(Failed, match=complaint), visited(server(code)) as process:
        process.one_at_a_time(Calls.echo(MODERN, range(1, 11)))
    with pytest.raises(Failed, match=complaint), visited(server(code)) as process:
        process.in_flight(Calls.echo(MODERN, range(1, 11)), 2)


def test_a_server_that_refuses_to_be_listened_to_is_found() -> None:
    refusing = "serve(lambda call: b'HTTP/1.1 503 Busy' + b'\\r\\n' * 2)"
    with pytest.raises(Failed, match="the server refused"), visited(server(refusing)) as process:
        process.listen(1, THING)


def test_a_server_that_does_not_start_is_found() -> None:
    with pytest.raises(Failed, match="last words: not today"), visited(server("sys.exit('not today')")):
        pass


def test_a_server_may_log_to_its_stdout() -> None:
    """Far more than a pipe holds, such as the access log of a server that the command line starts."""
    logging = "serve(lambda call: (print('x' * 8192, flush=True), answer(call))[1])"
    with visited(server(logging)) as process:
        process.in_flight(Calls.echo(MODERN, range(1, 100)), 8)


def test_a_server_that_does_not_answer_is_found() -> None:
    hanging = server("serve(lambda call: threading.Event().wait())")
    with pytest.raises(TooSlow, match="was not done after 1 s"), visited(hanging, patience=1) as process:
        process.in_flight(Calls.echo(MODERN, range(1, 11)), 2)
