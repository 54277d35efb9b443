"""How a server ends: at the end of its input, by a signal, or because nobody listens. Always in good time."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import tty
from pathlib import Path

import pytest

from tests.kit.products import sampled
from tests.kit.results import text_of
from tests.process.harness import (
    LEGACY,
    MODERN,
    Client,
    Message,
    ServerProcess,
    encoded,
    modern_call,
    notification,
    request,
)

SIGNALS = pytest.mark.parametrize("number", sampled([signal.SIGTERM, signal.SIGINT], (signal.SIGTERM,)))
#: Much longer than any test waits: what ends all the same was not waiting for this.
FOREVER = 100_000


def naps(count: int) -> list[Message]:
    """Calls that take a moment, async and plain ones."""
    return [modern_call(number, ("nap", "plain_nap")[number % 2], seconds=0.05) for number in range(count)]


# The end of input


@pytest.mark.req("LIF-13")
@pytest.mark.parametrize("tool", ["echo", "plain_echo"])
def test_five_hundred_pipelined_requests_and_the_end_of_input(tool: str) -> None:
    with ServerProcess("workshop") as server:
        server.send(*[modern_call(number, tool, text=str(number)) for number in range(500)])
        answers = {answer["id"]: text_of(answer["result"]) for answer in server.finish()}
        assert answers == {number: str(number) for number in range(500)}


@pytest.mark.req("LIF-13", "FRM-6")
def test_slow_calls_and_a_last_line_without_its_end_are_answered() -> None:
    with ServerProcess("workshop") as server:
        server.write(encoded(*naps(20)).removesuffix(b"\n"))
        answers = {answer["id"]: text_of(answer["result"]) for answer in server.finish()}
        assert answers == dict.fromkeys(range(20), "rested")


@pytest.mark.req("LIF-13", "LEG-1")
def test_requests_from_a_file_are_answered_into_a_file(tmp_path: Path) -> None:
    opening = request("open", "initialize", {"protocolVersion": LEGACY[-1], "capabilities": {}})
    lines = encoded(opening, notification("notifications/initialized"), request("list", "tools/list"), *naps(20))
    (tmp_path / "requests.jsonl").write_bytes(lines)
    with (
        (tmp_path / "requests.jsonl").open("rb") as requests,
        (tmp_path / "answers.jsonl").open("wb") as answers,
        ServerProcess("workshop", stdin=requests.fileno(), stdout=answers.fileno()) as server,
    ):
        assert server.exit_code() == 0
    written = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert {answer["id"] for answer in written} == {"open", "list", *range(20)}
    assert all("result" in answer for answer in written)


@pytest.mark.req("LIF-13")
def test_a_large_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_bytes(encoded(*[modern_call(number, "echo", text="x" * 1000) for number in range(2000)]))
    with path.open("rb") as requests, ServerProcess("workshop", stdin=requests.fileno()) as server:
        assert {answer["id"] for answer in server.rest()} == set(range(2000))
        assert server.exit_code() == 0


@pytest.mark.req("LIF-13")
def test_no_input_at_all() -> None:
    with ServerProcess("workshop") as server:
        assert server.finish() == []
        assert server.errors == ""


@pytest.mark.req("LIF-13", "LIF-14")
@pytest.mark.parametrize("way", ["typed end", "hang-up"])
def test_a_terminal_for_stdin(way: str) -> None:
    ours, theirs = pty.openpty()
    try:
        with ServerProcess("workshop", stdin=theirs) as server:
            if way == "hang-up":
                tty.setraw(theirs)
            os.close(theirs)
            os.write(ours, encoded(modern_call(1, "nap", seconds=0.05)))
            assert text_of(server.answer_to(1)["result"]) == "rested"
            os.write(ours, encoded(modern_call(2, "plain_echo", text="hi")))
            assert text_of(server.answer_to(2)["result"]) == "hi"
            if way == "typed end":
                os.write(ours, b"\x04")
            else:
                os.close(ours)
            assert server.rest() == []
            assert server.exit_code() == 0
    finally:
        if way == "typed end":
            os.close(ours)


@pytest.mark.req("LIF-13")
def test_one_socket_for_stdin_and_stdout() -> None:
    ours, theirs = socket.socketpair()
    with ours, ServerProcess("workshop", stdin=theirs.fileno(), stdout=theirs.fileno()) as server:
        theirs.close()
        ours.sendall(encoded(*naps(5)))
        ours.shutdown(socket.SHUT_WR)
        with ours.makefile("rb") as lines:
            answers = [json.loads(line) for line in lines]
        assert sorted(answer["id"] for answer in answers) == list(range(5))
        assert server.exit_code() == 0


@pytest.mark.req("LIF-13", "CAN-3")
@pytest.mark.parametrize("tool", ["hold", "block", "watch"])
def test_work_that_does_not_end_is_given_up_after_a_while(tool: str) -> None:
    with ServerProcess("workshop", {"finish_within": 0.2}) as server:
        client = Client(server)
        stuck = client.begin(tool)
        (answer,) = server.finish()
        assert answer["id"] == stuck
        assert answer["error"]["code"] == -32603
        assert "stopping" in answer["error"]["message"]


@pytest.mark.req("LIF-13")
def test_many_stuck_threads_and_calls_behind_them_do_not_keep_the_process() -> None:
    with ServerProcess("workshop", {"finish_within": 0.2, "threads": 4}) as server:
        client = Client(server)
        for _ in range(4):
            client.begin("block")
        for _ in range(20):
            client.send_call("plain_echo", text="never")
        assert len(server.finish()) == 24


@pytest.mark.req("LIF-13", "LIF-14")
@pytest.mark.parametrize("state", ["full", "clogged", "vanished"])
def test_a_server_that_has_stopped_reading_notices_the_end_of_input(state: str) -> None:
    with ServerProcess("workshop", {"finish_within": 0.2, "limits": {"max_in_flight": 2}}) as server:
        client = Client(server)
        server.reads_output = state != "clogged"
        if state == "clogged":
            server.send(*[modern_call(number, "big", size=2_000_000) for number in range(10)])
            server.wait_for_error_text("a big answer")
        else:
            for _ in range(2):
                client.begin("hold")
            server.send(*[modern_call(f"waiting {number}", "hold") for number in range(10)])
        if state == "vanished":
            server.hang_up()
        server.end_input()
        assert server.exit_code() == 0


# Signals


@SIGNALS
@pytest.mark.req("LIF-14")
def test_a_signal_ends_an_idle_server(number: int) -> None:
    with ServerProcess("workshop", {"stop_within": FOREVER}) as server:
        Client(server).fence()
        server.signal(number)
        assert server.rest() == []
        assert server.exit_code() == 0


@SIGNALS
@pytest.mark.req("LIF-14")
@pytest.mark.parametrize("tool", ["nap", "plain_nap"])
def test_after_a_signal_what_was_accepted_is_finished(number: int, tool: str) -> None:
    with ServerProcess("workshop", {"stop_within": FOREVER}) as server:
        client = Client(server)
        napping = client.begin(tool, seconds=0.3)
        server.signal(number)
        (answer,) = server.rest()
        assert answer["id"] == napping
        assert text_of(answer["result"]) == "rested"
        assert server.exit_code() == 0


@SIGNALS
@pytest.mark.req("LIF-14")
def test_after_a_signal_nothing_more_is_accepted(number: int) -> None:
    with ServerProcess("workshop", {"stop_within": 1}) as server:
        client = Client(server)
        held = client.begin("hold")
        server.signal(number)
        server.wait_for_error_text("the server stops")
        refused = client.send_call("echo", text="too late")
        answers = {answer["id"]: answer["error"] for answer in server.rest()}
        assert held in answers
        assert set(answers) <= {held, refused}
        assert all("stopping" in error["message"] for error in answers.values())
        assert server.exit_code() == 0


@SIGNALS
@pytest.mark.req("LIF-14")
@pytest.mark.parametrize("tool", ["hold", "block", "watch"])
def test_after_a_signal_work_that_does_not_end_is_given_up(number: int, tool: str) -> None:
    with ServerProcess("workshop", {"stop_within": 0.2, "finish_within": FOREVER}) as server:
        stuck = Client(server).begin(tool)
        server.signal(number)
        (answer,) = server.rest()
        assert answer["id"] == stuck
        assert "stopping" in answer["error"]["message"]
        assert server.exit_code() == 0


@pytest.mark.req("LIF-14")
@pytest.mark.parametrize("tool", ["hold", "block"])
def test_a_second_signal_ends_it_at_once(tool: str) -> None:
    with ServerProcess("workshop", {"stop_within": FOREVER, "finish_within": FOREVER}) as server:
        Client(server).begin(tool)
        server.signal(signal.SIGINT)
        server.wait_for_error_text("SIGINT")
        server.signal(signal.SIGINT)
        assert server.exit_code() == 128 + signal.SIGINT


@SIGNALS
@pytest.mark.req("LIF-14")
def test_a_signal_ends_a_server_whose_event_loop_is_blocked(number: int) -> None:
    with ServerProcess("workshop", {"stop_within": 0.2, "finish_within": FOREVER}) as server:
        Client(server).send_call("seize")
        server.wait_for_error_text("the loop is blocked")
        server.end_input()
        server.signal(number)
        assert server.exit_code() == 128 + number


@pytest.mark.req("LIF-14")
def test_two_signals_end_a_server_whose_event_loop_is_blocked_at_once() -> None:
    with ServerProcess("workshop", {"stop_within": FOREVER, "finish_within": FOREVER}) as server:
        Client(server).send_call("seize")
        server.wait_for_error_text("the loop is blocked")
        # Two of one kind may be delivered as one.
        server.signal(signal.SIGINT)
        server.signal(signal.SIGTERM)
        assert server.exit_code() in (128 + signal.SIGINT, 128 + signal.SIGTERM)


@SIGNALS
@pytest.mark.req("LIF-14", "LIF-13")
def test_a_signal_shortens_the_end_of_input(number: int) -> None:
    with ServerProcess("workshop", {"stop_within": 0.2, "finish_within": FOREVER}) as server:
        stuck = Client(server).begin("hold")
        server.end_input()
        server.signal(number)
        (answer,) = server.rest()
        assert answer["id"] == stuck
        assert server.exit_code() == 0


@pytest.mark.req("LIF-14", "LIF-13")
def test_a_signal_ends_a_server_whose_client_does_not_read_the_last_answers() -> None:
    with ServerProcess("workshop", {"stop_within": 0.2, "finish_within": FOREVER}) as server:
        Client(server).fence()
        server.reads_output = False
        server.send(modern_call("large", "big", size=5_000_000))
        server.wait_for_error_text("a big answer")
        server.end_input()
        server.signal(signal.SIGTERM)
        assert server.exit_code() == 0


@pytest.mark.req("LIF-14")
@pytest.mark.parametrize("when", ["begins", "never begins", "never ends"])
def test_a_signal_while_the_lifespan_begins_or_ends(when: str) -> None:
    with ServerProcess("slow_start", {"when": when, "stop_within": 0.2, "finish_within": 0.2}) as server:
        if when == "never ends":
            server.end_input()
        server.exit_code()


@pytest.mark.req("LIF-14")
@pytest.mark.parametrize("tool", ["stop", "plain_stop"])
def test_a_function_may_stop_its_own_server(tool: str) -> None:
    with ServerProcess("workshop", {"stop_within": FOREVER}) as server:
        assert Client(server).say(tool) == "stopping"
        assert server.rest() == []
        assert server.exit_code() == 0


@pytest.mark.req("LIF-13")
@pytest.mark.parametrize("tool", ["leave_thread", "leave_task"])
def test_what_an_author_leaves_behind_does_not_keep_the_process(tool: str) -> None:
    with ServerProcess("workshop", may_fail=True) as server:
        assert Client(server).say(tool) == "left"
        assert server.finish() == []


# Nobody listens


@pytest.mark.req("LIF-14")
@pytest.mark.parametrize("tool", [None, "hold", "block"])
def test_a_client_that_vanishes(tool: str | None) -> None:
    with ServerProcess("workshop", {"finish_within": 0.2}) as server:
        client = Client(server)
        client.fence()
        if tool is not None:
            client.begin(tool)
        server.hang_up()
        server.end_input()
        assert server.exit_code() == 0
        if tool is None:
            assert server.errors == ""


@pytest.mark.req("LIF-14")
def test_a_stdout_that_is_closed_early_ends_the_server_quietly() -> None:
    with ServerProcess("workshop", {"finish_within": FOREVER}) as server:
        client = Client(server)
        client.begin("hold")
        server.hang_up()
        # Input stays open, and there is work: the next answer finds out.
        server.send(modern_call("lost", "echo", text="lost"))
        assert server.exit_code() == 0
        assert server.errors == ""


@pytest.mark.req("LIF-14")
def test_a_stdout_that_is_closed_in_the_middle_of_a_large_answer() -> None:
    with ServerProcess("workshop", {"finish_within": FOREVER}) as server:
        client = Client(server)
        client.fence()
        server.reads_output = False
        server.send(modern_call("large", "big", size=5_000_000))
        server.wait_for_error_text("a big answer")
        server.hang_up()
        assert server.exit_code() == 0


@pytest.mark.req("LIF-14")
@pytest.mark.parametrize(("redirect", "name"), [("<&-", "input"), (">&-", "output")])
def test_a_server_without_its_pipes_says_so(redirect: str, name: str) -> None:
    with ServerProcess("workshop", redirect=redirect, may_fail=True) as server:
        assert server.exit_code() == 1
        server.wait_for_error_text(f"Standard {name} is closed")


# A longer program


@pytest.mark.req("LIF-14", "FRM-2")
def test_serving_inside_a_longer_program_gives_stdin_and_stdout_back() -> None:
    with ServerProcess("guest") as server:
        for way, revision, end in [("leave", MODERN, "served"), ("cancel", LEGACY[1], "cancelled")] * 2:
            server.write(b"good morning\n")
            assert server.notified("guest") == {"said": "good morning"}
            client = Client(server, revision)
            assert client.say("greet") == "hello"
            client.send_call(way)
            # Now the program has its stdin again.
            assert server.notified("guest") == {"said": end}
        server.end_input()
        assert all("result" in message for message in server.rest())
        assert server.exit_code() == 0
        assert server.errors.splitlines() == ["not for the client"] * 4


@pytest.mark.req("LIF-13")
def test_serving_inside_a_longer_program_ends_with_the_input() -> None:
    with ServerProcess("guest") as server:
        server.write(b"good morning\n")
        assert server.notified("guest") == {"said": "good morning"}
        assert MODERN in Client(server).result("server/discover")["supportedVersions"]
        server.send(modern_call(99, "greet"))
        answer, last = server.finish()
        assert text_of(answer["result"]) == "hello"
        assert last["params"] == {"said": "served"}
