"""Nothing but messages reaches the client, and nobody but the server hears it, whatever the program does."""

from __future__ import annotations

import json

import pytest

from tests.process.harness import Client, ServerProcess

SHOUTS = [
    "print", "flushed", "unflushed", "buffer", "original", "descriptor", "opened", "native", "child", "system",
    "inheriting child", "fork",
]  # fmt: skip
THEFTS = ["stdin", "buffer", "input", "descriptor", "native", "child"]


@pytest.mark.req("FRM-2", "LIF-15")
def test_stray_output_of_every_kind_goes_to_stderr() -> None:
    # That each line of stdout is a message is checked for every line that a test reads.
    with ServerProcess("noisy") as server:
        client = Client(server)
        for how in SHOUTS:
            assert client.say("shout", how=how) == how
        assert client.say("shout_in_loop") == "shouted"
        assert server.finish() == []
        for how in SHOUTS:
            told = {"inheriting child": "inherited", "flushed": "flushed"}.get(how, how)
            assert f"stray: {told}" in server.errors, server.errors
        for moment in ("before the server runs", "in the loop", "after the server", "at exit", "unflushed at exit"):
            assert f"stray: {moment}" in server.errors or f"stray: printed {moment}" in server.errors


@pytest.mark.req("FRM-2")
def test_what_the_loop_prints_is_seen_at_once() -> None:
    with ServerProcess("noisy") as server:
        client = Client(server)
        assert client.say("shout_in_loop") == "shouted"
        server.wait_for_error_text("stray: in the loop")


@pytest.mark.req("LIF-15", "FRM-2")
def test_a_child_of_the_event_loop_touches_neither_pipe() -> None:
    with ServerProcess("noisy") as server:
        client = Client(server)
        child = client.send_call("spawn")
        others = [client.send_call("shout_in_loop") for _ in range(100)]
        assert server.answer_to(child)["result"]["content"][0]["text"] == "exited with 0"
        for other in others:
            assert "result" in server.answer_to(other)
        server.wait_for_error_text("stray: child of the loop")
        assert server.finish() == []


@pytest.mark.req("LIF-15", "FRM-2")
@pytest.mark.parametrize("how", THEFTS)
def test_nobody_steals_the_input(how: str) -> None:
    with ServerProcess("noisy") as server:
        client = Client(server)
        # All of this is in the pipe while the thief reads.
        thief = client.send_call("steal", how=how)
        others = [client.send_call("shout_in_loop") for _ in range(100)]
        stolen = server.answer_to(thief)["result"]
        assert stolen["content"][0]["text"] == ("-1" if how == "native" else "")
        for other in others:
            assert "result" in server.answer_to(other)
        assert server.finish() == []


@pytest.mark.req("FRM-2", "LIF-14")
def test_stray_output_of_a_server_without_stderr_goes_nowhere() -> None:
    with ServerProcess("noisy", redirect="2>&-") as server:
        client = Client(server)
        # A number that is free would be given to the next file that anyone opens, and stray output would go there.
        assert json.loads(client.say("descriptors")) == ["/dev/null"] * 3
        for how in SHOUTS:
            assert client.say("shout", how=how) == how
        assert server.finish() == []
