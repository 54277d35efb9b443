"""More clients than a server can have, and clients that take nothing of what they asked for."""

from __future__ import annotations

import resource
import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest

from tests.attacks.harness import HTTP, Fields, Target, Wire, head, initialize, legacy_post, post
from tests.kit.loop import PATIENCE, blocking_until
from tests.process.harness import LEGACY, Message, modern, modern_call, notification, request

CALL = post(modern_call(1, "echo", text="hello"))
LISTEN = post(modern(1, "subscriptions/listen", {"notifications": {"resourceSubscriptions": ["target://thing"]}}))
SSE: Fields = {"Host": "127.0.0.1", "Accept": "text/event-stream", "MCP-Protocol-Version": LEGACY[-1]}

TELL_ALL = request("all", "logging/setLevel", {"level": "debug"})
#: What all the buffers between a server and one client that does not read may hold, and some more.
BUFFERS = 40_000_000


@contextmanager
def many_files(wanted: int) -> Iterator[int]:
    """As many descriptors as the system allows, at most so many, besides those that are open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + 500
    possible = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, possible), hard))
    try:
        yield min(wanted, max(soft, possible) - 500)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def all_closed(connections: Sequence[socket.socket]) -> None:
    """Wait until the server has closed all of them."""
    left = {connection.fileno(): connection for connection in connections}
    poll = select.poll()
    for number in left:
        poll.register(number, select.POLLIN)
    while left:
        ready = poll.poll(PATIENCE * 1000)
        assert ready, f"{len(left)} connections are still open"
        for number, _ in ready:
            try:
                came = left[number].recv(65536)
            except ConnectionResetError:
                came = b""
            if not came:
                poll.unregister(number)
                del left[number]


@pytest.mark.thorough
@pytest.mark.req("HTP-4")
def test_ten_thousand_idle_connections() -> None:
    """Those who are there for nothing are closed in time, and meanwhile good clients get their turn."""
    bounds = {"header_within": 8.0, "next_within": 8.0}
    with many_files(10_000) as count, Target(http=bounds) as target, ExitStack() as stack:
        connections: list[socket.socket] = []
        for number in range(count):
            wire = stack.enter_context(target.wire())
            connections.append(wire.socket)
            match number % 3:
                case 0:
                    assert wire.ask(CALL).status == 200
                case 1:
                    wire.send(CALL[:50])
        blocking_until(lambda: answers(target), "a good client's turn")
        all_closed(connections)
        assert target.memory() < 600_000_000


def answers(target: Target) -> bool:
    """Whether a good client is answered now. It may be turned away while there is no room."""
    try:
        with target.wire() as wire:
            return wire.ask(CALL).status == 200
    except (ConnectionResetError, BrokenPipeError, AssertionError):
        return False


@pytest.mark.req("HTP-4")
@pytest.mark.parametrize("said", [b"", CALL[:50], CALL], ids=["nothing", "half a head", "a call"])
def test_more_idle_connections_than_the_process_has_descriptors(said: bytes) -> None:
    """Those that ask for nothing make room, and leave descriptors for what the calls of others need."""
    with Target(descriptors=256) as target, ExitStack() as stack:
        for _ in range(400):
            wire = stack.enter_context(target.wire())
            if said == CALL:
                assert wire.ask(said).status == 200
            else:
                wire.offer(said)
        for _ in range(10):
            assert "is attacked" in target.call("read_file")
        assert target.errors.count("\n") < 5, target.report("it logs too much")


@pytest.mark.req("HTP-4")
@pytest.mark.parametrize("scheme", ["http", "tcp"])
def test_a_process_without_descriptors_pauses_and_says_so_once(scheme: str) -> None:
    addresses = [HTTP, "tcp://127.0.0.1:0"]
    with Target(*addresses, descriptors=256) as target, ExitStack() as stack:
        idle = [stack.enter_context(target.wire()) for _ in range(30)]
        assert int(target.call("take_descriptors")) > 50
        if scheme == "http":
            for _ in range(5):
                # Idle connections make room at once, although others have taken all descriptors.
                assert target.call("echo", text="hello") == "hello"
        else:
            crowd = [stack.enter_context(target.wire("tcp")) for _ in range(5)]
            blocking_until(lambda: "cannot be accepted" in target.errors, "a warning")
            for wire in idle:
                wire.close()
            for wire in crowd:
                wire.send(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
                assert wire.line()["id"] == 1
        assert target.errors.count("cannot be accepted at the moment: Too many open files") == 1, target.errors


@pytest.mark.req("HTP-4")
def test_streams_beyond_the_bound() -> None:
    bound = 200
    with Target(http={"max_connections": bound}) as target:
        before = target.memory()
        wires: list[Wire] = []
        served = 0
        for _ in range(2000):
            wire = target.wire()
            wires.append(wire)
            if wire.offer(LISTEN):
                served += begins_well(wire)
        assert bound // 2 < served <= bound
        assert target.memory() - before < 100_000_000
        for wire in wires:
            wire.close()
        blocking_until(lambda: answers(target), "room for a good client")


def begins_well(wire: Wire) -> bool:
    """Whether a stream was begun, and not refused."""
    first = wire.first_line()
    assert first == b"" or first.split()[1] in {b"200", b"503", b"429"}, first
    return b" 200 " in first


def open_session(wire: Wire) -> str:
    """Open a legacy session to the end; returns its id."""
    opened = wire.ask(legacy_post(initialize()))
    assert opened.status == 200
    session = opened.fields["mcp-session-id"]
    assert wire.ask(legacy_post(notification("notifications/initialized"), session)).status == 202
    return session


@pytest.mark.req("HTP-6")
def test_legacy_sessions_beyond_the_bound() -> None:
    bound = 100
    with Target(http={"max_sessions": bound}) as target, target.wire() as wire:
        before = target.memory()
        sessions = [open_session(wire) for _ in range(bound)]
        answers_to = [wire.ask(legacy_post(initialize())) for _ in range(3000)]
        assert not any(answer.status == 200 for answer in answers_to)
        assert {answer.status for answer in answers_to} <= {200, 429, 503}
        assert target.memory() - before < 50_000_000
        # Those who were there first are not driven out, and each that leaves makes room for one.
        assert wire.ask(legacy_post(request(1, "ping"), sessions[0])).status == 200
        fields = {**SSE, "Mcp-Session-Id": sessions[0]}
        assert wire.ask(head("DELETE", "/mcp", fields)).status in {200, 202, 204}
        blocking_until(lambda: wire.ask(legacy_post(initialize())).status == 200, "room for a session")
        # One that is only begun makes room for the next that begins.
        assert wire.ask(legacy_post(initialize())).status == 200
        open_session(wire)
        assert wire.ask(legacy_post(initialize())).status in {429, 503}


@pytest.mark.req("HTP-6")
def test_sessions_that_nobody_uses_make_room() -> None:
    with Target(http={"max_sessions": 10, "session_ttl": 1.0}) as target, target.wire() as wire:
        sessions = [open_session(wire) for _ in range(10)]
        assert wire.ask(legacy_post(initialize())).status in {429, 503}
        blocking_until(lambda: wire.ask(legacy_post(initialize())).status == 200, "the end of an idle session")
        blocking_until(
            lambda: wire.ask(legacy_post(request(1, "ping"), sessions[0])).status == 404, "the end of the first"
        )


@pytest.mark.req("SSE-3")
def test_clients_of_http_with_sse_beyond_the_bound() -> None:
    bound = 50
    with Target(http={"max_sessions": bound}) as target:
        wires = []
        served = 0
        for _ in range(500):
            wire = target.wire()
            wires.append(wire)
            if wire.offer(head("GET", "/sse", SSE)):
                served += begins_well(wire)
        assert served == bound
        for wire in wires:
            wire.close()


@pytest.mark.req("HTP-6")
def test_streams_of_one_session_beyond_the_bound() -> None:
    with Target(http={"max_streams": 10}) as target:
        session = target.session()
        wires = []
        served = 0
        for number in range(50):
            wire = target.wire()
            wires.append(wire)
            call = request(number, "tools/call", {"name": "wait", "arguments": {"name": "crowd"}})
            wire.send(legacy_post(call, session))
        target.until("crowd began", 10)
        target.call("release", name="crowd")
        for wire in wires:
            served += wire.answer().status == 200
            wire.close()
        assert 10 <= served < 50
        assert target.ask(legacy_post(request("after", "ping"), session)).status == 200


def deaf(target: Target) -> Wire:
    """A connection that takes little before it is full."""
    wire = Wire.__new__(Wire)
    wire.socket = socket.socket()
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.socket.settimeout(PATIENCE)
    wire.socket.connect(target.place())
    wire.file = wire.socket.makefile("rb")
    return wire


def flood(name: str, request_id: int = 1) -> Message:
    """Much more than any buffer holds."""
    params = {"name": "flood", "arguments": {"name": name, "times": 200_000, "size": 1000}}
    return request(request_id, "tools/call", params)


def modern_flood(name: str) -> bytes:
    message = modern(1, "tools/call", flood(name)["params"])
    message["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = "debug"
    return post(message)


@pytest.mark.req("HTP-1", "HTP-3")
def test_a_flood_waits_for_who_does_not_read_and_not_for_ever() -> None:
    with Target(http={"write_within": 2.0, "keep_alive": 1.0}) as target:
        before = target.memory()
        wires = [deaf(target) for _ in range(5)]
        for number, wire in enumerate(wires):
            wire.send(modern_flood(f"deaf {number}"))
        for number, _ in enumerate(wires):
            target.until(f"deaf {number} ended")
            assert target.events(f"deaf {number} flooded") < 200_000
        assert target.memory() - before < BUFFERS
        all_closed([wire.socket for wire in wires])
        for wire in wires:
            wire.close()


@pytest.mark.thorough
@pytest.mark.req("HTP-6")
def test_a_flood_of_a_legacy_session_has_a_bound() -> None:
    """Its call goes on without the client, which may come back; what is kept for it is little."""
    bounds = {"write_within": 2.0, "keep_alive": 1.0, "max_events": 100, "max_event_bytes": 100_000}
    with Target(http=bounds) as target:
        session = target.session()
        before = target.memory()
        with deaf(target) as wire:
            assert target.ask(legacy_post(TELL_ALL, session)).status == 200
            wire.send(legacy_post(flood("deaf session"), session))
            target.until("deaf session flooded", 100)
            blocking_until(
                lambda: target.events("deaf session ended") == 1 or is_still(target, "deaf session"), "its end"
            )
            assert target.memory() - before < BUFFERS
        assert target.ask(head("DELETE", "/mcp", {**SSE, "Mcp-Session-Id": session})).status in {200, 202, 204}
        target.until("deaf session ended")


def is_still(target: Target, name: str) -> bool:
    """Whether a flood has come to a stop."""
    first = target.events(f"{name} flooded")
    target.call("wait_a_little")
    return target.events(f"{name} flooded") == first


@pytest.mark.thorough
@pytest.mark.req("HTP-1")
def test_changes_for_who_does_not_read_are_not_collected() -> None:
    with Target(http={"write_within": 3.0, "keep_alive": 1.0}) as target:
        before = target.memory()
        wires = [deaf(target) for _ in range(20)]
        for wire in wires:
            wire.send(LISTEN)
            assert wire.begun()[0] == 200
        target.call("change", times=5000)
        assert target.memory() - before < BUFFERS
        for wire in wires:
            wire.close()


@pytest.mark.thorough
@pytest.mark.req("SSE-3")
def test_a_client_of_http_with_sse_that_does_not_read() -> None:
    with Target(http={"write_within": 2.0, "keep_alive": 1.0}) as target:
        before = target.memory()
        with deaf(target) as wire:
            wire.send(head("GET", "/sse", SSE))
            _, fields = wire.begun()
            endpoint = next(wire.pieces(fields)).decode().partition("data: ")[2].split()[0]
            for message in (initialize("2024-11-05"), TELL_ALL, flood("deaf stream")):
                data = legacy_post(message).replace(b"POST /mcp ", f"POST {endpoint} ".encode(), 1)
                assert target.ask(data).status == 202
            # It is given up, and then its call goes on for nobody.
            target.until("deaf stream ended")
            assert target.memory() - before < BUFFERS
            all_closed([wire.socket])


@pytest.mark.thorough
@pytest.mark.req("HTP-1")
def test_a_large_answer_that_nobody_takes_is_not_held_for_ever() -> None:
    with Target(http={"write_within": 0.5}) as target:
        open_files = target.open_files()
        for _ in range(10):
            wires = [deaf(target) for _ in range(5)]
            for wire in wires:
                wire.send(post(modern_call(1, "much", size=10_000_000)))
                assert wire.begun()[0] == 200
            blocking_until(lambda: target.open_files() <= open_files, "the end of the connections")
            for wire in wires:
                wire.close()
        # Some of it stays with the process for a while, but not all of half a gigabyte.
        assert target.memory() < 350_000_000
