"""Cancellation and progress: silence from the moment on, work that stops, and numbers that grow."""

from __future__ import annotations

import json

import pytest

from tests.kit.products import revision_names
from tests.kit.results import text_of
from tests.process.harness import (
    LEGACY,
    MODERN,
    Client,
    Message,
    ServerProcess,
    cancellation,
    modern_call,
    notification,
    progress_in,
)

ERAS = pytest.mark.parametrize("revision", revision_names([MODERN, LEGACY[0], LEGACY[-1]]))
LOG = {"io.modelcontextprotocol/logLevel": "debug"}

STRANGE_CANCELLATIONS: list[Message | None] = [
    None, {}, {"requestId": None}, {"requestId": 1.5}, {"requestId": "never sent"}, {"requestId": [1]},
    {"requestId": {"a": 1}}, {"requestId": True}, {"requestId": 10**30}, {"reason": "why"},
    {"requestId": 12345, "reason": 5},
]  # fmt: skip


@ERAS
@pytest.mark.req("CAN-2", "CAN-3")
@pytest.mark.parametrize("tool", ["hold", "watch"])
def test_a_cancelled_request_is_silent_and_its_work_stops(revision: str, tool: str) -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, revision)
        meta = {"progressToken": "token"} | (LOG if client.is_modern else {})
        cancelled = client.send("tools/call", {"name": tool, "arguments": {}}, **meta)
        server.notified("notifications/progress")
        server.send(cancellation(cancelled))
        # Once it has noticed, each of these functions reports and logs, and then returns or raises.
        assert client.say("stopped") == json.dumps([tool])
        assert client.say("echo", text="next") == "next"
        assert server.finish() == []


@pytest.mark.req("CAN-2")
def test_a_blocked_plain_function_is_silent_when_it_returns_at_last() -> None:
    with ServerProcess("workshop") as server:
        client = Client(server)
        blocked = client.begin("block")
        server.send(cancellation(blocked))
        assert client.say("release") == "done"
        assert client.say("plain_echo", text="next") == "next"
        assert server.finish() == []


@pytest.mark.req("CAN-3")
def test_cancelled_plain_functions_free_their_slots() -> None:
    with ServerProcess("workshop", {"threads": 2}) as server:
        client = Client(server)
        blocked = [client.begin("block") for _ in range(2)]
        waiting = client.send_call("plain_echo", text="at last")
        dropped = client.send_call("plain_echo", text="dropped")
        client.fence()
        assert server.inbox == []
        # The one that has not begun never will; those that run go on, but no longer in anybody's place.
        server.send(cancellation(dropped), *map(cancellation, blocked))
        assert text_of(server.answer_to(waiting)["result"]) == "at last"
        assert client.say("plain_echo", text="next") == "next"
        assert client.say("release") == "done"
        assert client.say("plain_echo", text="next") == "next"
        assert server.finish() == []


@pytest.mark.req("CAN-2", "CAN-3")
def test_a_request_that_waits_for_its_turn_can_be_cancelled() -> None:
    with ServerProcess("workshop", {"limits": {"max_in_flight": 3}}) as server:
        client = Client(server)
        held = [client.begin("hold") for _ in range(3)]
        dropped, waiting = client.send_call("echo", text="dropped"), client.send_call("echo", text="waited")
        client.fence()
        assert server.inbox == []
        server.send(cancellation(dropped), cancellation(held[0]))
        assert text_of(server.answer_to(waiting)["result"]) == "waited"
        assert client.say("release") == "done"
        for each in held[1:]:
            assert text_of(server.answer_to(each)["result"]) == "released"
        assert server.finish() == []


@ERAS
@pytest.mark.req("CAN-4")
def test_strange_late_and_repeated_cancellations_are_harmless(revision: str) -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, revision)
        done = client.send_call("echo", text="done")
        assert text_of(server.answer_to(done)["result"]) == "done"
        held = client.begin("hold")
        server.send(*[notification("notifications/cancelled", params) for params in STRANGE_CANCELLATIONS])
        server.send(cancellation(done), cancellation(str(held)))
        client.fence()
        assert server.inbox == []
        assert client.say("release") == "done"
        assert text_of(server.answer_to(held)["result"]) == "released"
        again = client.begin("hold")
        server.send(*[cancellation(again)] * 3)
        assert server.finish() == []


@pytest.mark.req("CAN-4")
def test_a_cancelled_id_is_free_again() -> None:
    with ServerProcess("workshop") as server:
        client = Client(server)
        held = client.begin("hold")
        server.send(cancellation(held), modern_call(held, "echo", text="again"))
        assert text_of(server.answer_to(held)["result"]) == "again"
        assert server.finish() == []


@ERAS
@pytest.mark.req("CAN-4")
def test_unexpected_responses_are_harmless(revision: str) -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, revision)
        for request_id in (1, 999, "x"):
            server.send({"jsonrpc": "2.0", "id": request_id, "result": {}})
            server.send({"jsonrpc": "2.0", "id": request_id, "error": {"code": 1, "message": "no"}})
        assert client.say("echo", text="next") == "next"
        assert server.finish() == []


@pytest.mark.req("CAN-6", "DIR-2")
def test_a_modern_client_is_sent_no_cancellations_and_no_requests() -> None:
    with ServerProcess("workshop", {"finish_within": 0.1}) as server:
        client = Client(server)
        cancelled, held = client.begin("hold"), client.begin("hold")
        server.send(cancellation(cancelled))
        listening = client.send("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        server.notified("notifications/subscriptions/acknowledged")
        rest = server.finish()
        assert [message for message in rest if "method" in message] == []
        assert {message["id"] for message in rest} == {held, listening}


@pytest.mark.req("CAN-7")
@pytest.mark.parametrize("revision", revision_names(LEGACY))
def test_initialize_is_never_cancelled(revision: str) -> None:
    with ServerProcess("workshop") as server:
        params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        server.send(
            {"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params}, cancellation("open"),
            notification("notifications/initialized"),
            {"jsonrpc": "2.0", "id": "list", "method": "tools/list"},
        )  # fmt: skip
        assert server.answer_to("open")["result"]["protocolVersion"] == revision
        assert "tools" in server.answer_to("list")["result"]
        assert server.finish() == []


# Progress


@ERAS
@pytest.mark.req("PRG-1")
def test_progress_grows_and_keeps_its_token(revision: str) -> None:
    params: Message = {"name": "count", "arguments": {"values": [1, 3, 2, 3, 3.5, -1, 7]}}
    message = {} if revision == LEGACY[0] else {"message": "at 7.0"}
    with ServerProcess("workshop") as server:
        client = Client(server, revision)
        for token in (0, -5, "", "0", "é🦭"):
            client.result("tools/call", params, progressToken=token)
            assert progress_in(server.inbox, token) == [1, 3, 3.5, 7]
            assert server.inbox[-1]["params"] == {"progressToken": token, "progress": 7, "total": 100} | message
            assert len(server.inbox) == 4
            server.inbox.clear()
        assert server.finish() == []


@pytest.mark.req("PRG-1")
def test_without_a_token_there_is_no_progress(workshop: Client) -> None:
    assert workshop.say("count", values=[1, 2, 3]) == "counted"


@pytest.mark.req("PRG-1")
def test_progress_and_logs_stop_at_the_answer(workshop: Client) -> None:
    server = workshop.server
    params: Message = {"name": "late", "arguments": {}}
    request_id = workshop.send("tools/call", params, progressToken="late", **LOG)
    assert text_of(server.answer_to(request_id)["result"]) == "answered"
    assert progress_in(server.inbox, "late") == [1]
    server.inbox.clear()
    assert workshop.say("settled") == "settled"


@pytest.mark.req("PRG-2")
def test_a_flood_of_progress_is_thinned_out_without_losing_the_last() -> None:
    with ServerProcess("workshop") as server:
        client = Client(server)
        steps = 5000
        for tool, arguments in [
            ("plain_flood", {"steps": steps}),
            ("count", {"values": [step + 1 for step in range(steps)]}),
        ]:
            token = tool
            request_id = client.send("tools/call", {"name": tool, "arguments": arguments}, progressToken=token)
            server.answer_to(request_id)
            seen = progress_in(server.inbox, token)
            assert seen == sorted(set(seen))
            assert seen[-1] == steps
            assert len(seen) < steps
        assert all(message.get("method") == "notifications/progress" for message in server.finish())
