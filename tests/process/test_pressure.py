"""Clients that send more than they read, and functions that keep everybody waiting: bounds, order, nothing lost."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from tests.kit.results import text_of
from tests.process.harness import (
    LEGACY,
    Client,
    Message,
    ServerProcess,
    cancellation,
    encoded,
    is_response,
    modern,
    modern_call,
    notification,
    progress_in,
)

pytestmark = pytest.mark.thorough

MEGABYTE = 1_000_000
LOG = {"io.modelcontextprotocol/logLevel": "debug"}
#: After so long without taking anything, a server is taken to read no more for now. It makes no test fail.
PAUSE = 0.5


def press(server: ServerProcess, data: bytes) -> memoryview:
    """Write, without reading anything, until all is written or the server takes no more; what is left."""
    server.reads_output = False
    rest = memoryview(data)
    moved = time.monotonic()
    while rest and time.monotonic() - moved < PAUSE:
        written = server.offer(rest)
        if written:
            rest, moved = rest[written:], time.monotonic()
        else:
            time.sleep(0.001)
    return rest


def grown(server: ServerProcess, before: int) -> float:
    """By how many megabytes the process has grown at most."""
    return (server.memory("VmHWM") - before) / MEGABYTE


def started() -> ServerProcess:
    server = ServerProcess("workshop")
    Client(server).fence()
    return server


# Each would take more than twice as much if it were answered without looking at who reads.
BOUND = 20
FLOODS: dict[str, Callable[[], list[Message]]] = {
    "large results": lambda: [modern_call(number, "big", size=100_000) for number in range(600)],
    "large results of plain functions": lambda: [
        modern_call(number, "plain_echo", text="x" * 20_000) for number in range(2000)
    ],
    "lists": lambda: [modern(number, "tools/list") for number in range(4000)],
    "refusals": lambda: [modern(f"{number} " + "x" * 1000, "no/such") for number in range(30_000)],
}


@pytest.mark.req("FRM-1", "FRM-5")
@pytest.mark.parametrize("name", FLOODS)
def test_a_client_that_never_reads_costs_little_memory_and_loses_nothing(name: str) -> None:
    flood = FLOODS[name]()
    with started() as server:
        before = server.memory()
        rest = press(server, encoded(*flood))
        assert grown(server, before) < BOUND
        # When it reads at last, every answer is there.
        server.reads_output = True
        server.write(bytes(rest))
        answers = server.finish()
        assert len(answers) == len(flood)
        assert {answer["id"] for answer in answers} == {message["id"] for message in flood}


@pytest.mark.req("SUB-1")
def test_subscriptions_opened_and_closed_by_a_client_that_never_reads_cost_little_memory() -> None:
    with started() as server:
        before = server.memory()
        wanted: Message = {"notifications": {"resourceSubscriptions": ["x:" + "x" * 8000]}}
        flood = [(modern(number, "subscriptions/listen", wanted), cancellation(number)) for number in range(5000)]
        press(server, b"".join(encoded(*pair) for pair in flood))
        assert grown(server, before) < BOUND


@pytest.mark.req("FRM-4")
def test_garbage_from_a_client_that_never_reads_costs_little_memory() -> None:
    with started() as server:
        before = server.memory()
        press(server, b"garbage\n" * 400_000)
        assert grown(server, before) < BOUND


def test_notifications_from_a_client_that_does_not_stop_cost_little_memory() -> None:
    with started() as server:
        before = server.memory()
        note = notification("notifications/workshop/slow_note", {"text": "x" * 10_000})
        press(server, encoded(note) * 6000)
        assert grown(server, before) < BOUND


@pytest.mark.req("LIF-13")
def test_a_client_that_never_reads_and_ends_its_input_does_not_keep_the_process() -> None:
    with ServerProcess("workshop", {"finish_within": 0.2}) as server:
        Client(server).fence()
        server.reads_output = False
        server.send(modern_call("large", "big", size=5 * MEGABYTE))
        server.wait_for_error_text("a big answer")
        server.end_input()
        assert server.exit_code() == 0


@pytest.mark.req("FRM-1")
@pytest.mark.parametrize("revision", [None, LEGACY[-1]])
def test_a_function_that_tells_much_waits_for_its_client(revision: str | None) -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, revision) if revision else Client(server)
        client.fence()
        before = server.memory()
        server.reads_output = False
        meta = LOG if client.is_modern else {}
        calls = [
            client.send("tools/call", {"name": tool, "arguments": {"count": 1000, "size": 20_000}}, **meta)
            for tool in ("tell", "plain_tell")
        ]
        server.wait_for_error_text("tell begins")
        server.wait_for_error_text("plain_tell begins")
        press(server, b"\n")
        assert grown(server, before) < BOUND
        server.reads_output = True
        for call in calls:
            assert text_of(server.answer_to(call)["result"]) == "told"
        told: dict[str, list[int]] = {"tell": [], "plain_tell": []}
        for message in server.inbox:
            data = message["params"]["data"]
            told[data["by"]].append(data["number"])
        assert told == {"tell": list(range(1000)), "plain_tell": list(range(1000))}


@pytest.mark.req("CAN-2", "CAN-3")
@pytest.mark.parametrize("tool", ["tell", "plain_tell"])
def test_functions_that_wait_for_their_client_can_be_cancelled(tool: str) -> None:
    with started() as server:
        client = Client(server)
        server.reads_output = False
        arguments = {"count": 1000, "size": 20_000}
        calls = [client.send("tools/call", {"name": tool, "arguments": arguments}, **LOG) for _ in range(10)]
        server.wait_for_error_text("begins")
        server.send(*map(cancellation, calls))
        server.reads_output = True
        client.fence()
        server.inbox.clear()
        assert client.say("plain_echo", text="next") == "next"
        assert server.finish() == []


@pytest.mark.req("PRG-1", "FRM-1")
def test_a_client_that_reads_late_finds_everything_in_order() -> None:
    with started() as server:
        calls: list[Message] = []
        for number in range(200):
            call = modern_call(number, "count", values=[1, 2, 3])
            call["params"]["_meta"]["progressToken"] = number
            calls += [call, modern_call(f"big {number}", "big", size=20_000)]
        rest = press(server, encoded(*calls))
        server.reads_output = True
        server.write(bytes(rest))
        messages = server.finish()
        for number in range(200):
            # What is older than the newest may be left out, but nothing comes out of turn.
            reported = progress_in(messages, number)
            assert reported == sorted(set(reported))
            assert reported[-1] == 3
            (answered,) = (place for place, message in enumerate(messages) if message.get("id") == number)
            assert progress_in(messages[:answered], number) == reported
        assert sum(is_response(message) for message in messages) == 400


def test_two_hundred_blocked_plain_functions_do_not_delay_an_async_one() -> None:
    with ServerProcess("workshop") as server:
        client = Client(server)
        client.begin("block")
        blocked = [client.send_call("block") for _ in range(200)]
        assert client.say("echo", text="at once") == "at once"
        assert client.say("release", for_good=True) == "done"
        for each in blocked:
            assert text_of(server.answer_to(each)["result"]) == "released"


@pytest.mark.req("CAN-3")
def test_two_hundred_blocked_plain_functions_can_be_cancelled() -> None:
    with ServerProcess("workshop", {"threads": 8, "finish_within": 0.2}) as server:
        client = Client(server)
        running = [client.begin("block") for _ in range(8)]
        waiting = [client.send_call("block") for _ in range(192)]
        server.send(*map(cancellation, waiting + running))
        assert client.say("plain_echo", text="next") == "next"
        assert server.finish() == []


def test_plain_functions_run_in_the_order_they_came() -> None:
    with ServerProcess("workshop", {"threads": 1}) as server:
        server.send(*[modern_call(number, "plain_echo", text="x") for number in range(100)])
        assert [answer["id"] for answer in server.finish()] == list(range(100))


def test_async_functions_run_at_the_same_time() -> None:
    with ServerProcess("workshop") as server:
        client = Client(server)
        held = [client.begin("hold") for _ in range(100)]
        assert client.say("release") == "done"
        for each in held:
            assert text_of(server.answer_to(each)["result"]) == "released"


@pytest.mark.req("LIF-13")
def test_more_requests_than_may_be_in_flight_wait_for_their_turn() -> None:
    with ServerProcess("workshop", {"limits": {"max_in_flight": 3}}) as server:
        server.send(*[modern_call(number, "nap", seconds=0.001) for number in range(200)])
        assert sorted(answer["id"] for answer in server.finish()) == list(range(200))


@pytest.mark.req("FRM-5")
@pytest.mark.parametrize("revision", [None, LEGACY[0]])
def test_huge_arguments_and_results(revision: str | None) -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, revision) if revision else Client(server)
        text = json.dumps({"text": "é🦭 \n" * 1_000_000})
        assert client.say("echo", text=text) == text
        assert len(client.say("big", size=10 * MEGABYTE)) == 10 * MEGABYTE
        assert server.finish() == []
