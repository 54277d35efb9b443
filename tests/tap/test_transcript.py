from __future__ import annotations

from typing import Any

import pytest

from mcplumb.recording.recording_format import Http, Record, Target
from mcplumb.tap.transcript import Bad, Call, Event, Note, Stderr, Stray, Transcript
from tests.tap.sessions import (
    DISCOVER,
    META,
    answer,
    ask,
    called,
    fail,
    handshake,
    header,
    listed,
    plain,
    read,
    tell,
)

TOKEN = {**META, "progressToken": 7}
LOGGED = {**META, "io.modelcontextprotocol/logLevel": "info"}


def calls(lines: list[Any]) -> list[Call]:
    return list(read(lines)[0].calls())


def test_a_request_is_joined_with_its_answer_and_progress() -> None:
    lines = [
        *DISCOVER,
        ("client", ask("a", "tools/call", TOKEN, name="add")),
        ("server", tell("notifications/progress", progressToken=7, progress=1, total=4, message="well")),
        ("server", called("a")),
    ]
    transcript, steps, _ = read(lines)
    discover, call = transcript.calls()
    assert (discover.method, discover.state, discover.seconds) == ("server/discover", "answered", pytest.approx(0.2))
    assert (call.number, call.answer, call.notes) == (4, 6, [5])
    assert (call.name, call.state, call.progress, call.total) == ("add", "answered", 1, 4)
    assert call.revision == "2026-07-28"
    assert transcript.revisions == ["2026-07-28"]
    # The steps name what is new or has changed.
    assert [[item.kind for item in step.items] for step in steps] == [
        ["call"],
        ["call"],
        ["call"],
        ["notification", "call"],
        ["call"],
    ]
    note = transcript.items[2]
    assert isinstance(note, Note)
    assert (note.call, note.summary) == (4, "1 of 4: well")
    assert transcript.open_calls() == []
    assert transcript.messages == 5


def test_ids_belong_to_who_asks_and_keep_their_type() -> None:
    lines = [
        *handshake(),
        ("client", ask(1, "ping", None)),
        ("server", ask(1, "ping", None)),
        ("client", ask("1", "ping", None)),
        ("client", plain(1)),
        ("server", fail("1", -32000)),
        ("server", plain(1)),
    ]
    _, first, second, third = calls(lines)
    assert (first.sender, first.answer, first.state) == ("client", 10, "answered")
    assert (second.sender, second.answer) == ("server", 8)
    assert (third.state, third.code, third.error) == ("failed", -32000, "no")


def test_the_two_sides_are_known_by_their_names() -> None:
    transcript, _, _ = read(handshake("2025-06-18"))
    assert (transcript.client.name, transcript.server.name) == ("c", "s")
    assert transcript.revisions == ["2025-06-18"]


def test_a_cancellation_ends_a_request() -> None:
    transcript, _, _ = read(
        [
            *DISCOVER,
            ("client", ask(1, "tools/call", name="x")),
            ("client", tell("notifications/cancelled", requestId=1, reason="bored")),
            ("server", called(1)),
        ]
    )
    call = [*transcript.calls()][1]
    assert (call.state, call.cancellation, call.answer) == ("cancelled", 5, 6)


def test_batches_are_taken_apart() -> None:
    lines = [
        *handshake("2025-03-26"),
        ("client", f"[{ask(1, 'ping', None)}, {tell('notifications/x')}, {ask(2, 'ping', None)}, 5]"),
        ("server", f"[{plain(2)}, {plain(1)}]"),
    ]
    transcript, steps, _ = read(lines)
    _, one, two = transcript.calls()
    assert (one.answer, two.answer, one.is_batched) == (6, 6, True)
    assert steps[3].is_batch
    assert [item.kind for item in steps[3].items] == ["call", "notification", "call", "bad"]


def test_lines_that_are_no_messages_and_answers_to_nothing() -> None:
    transcript, _, _ = read([("server", "hello"), ("server", called(5)), ("stderr", "oops"), ("server", " ")])
    bad, stray, stderr = transcript.items
    assert isinstance(bad, Bad)
    assert "not JSON" in bad.reason
    assert isinstance(stray, Stray)
    assert stray.id == 5
    assert stderr == Stderr(number=4, t=stderr.t, text="oops")


def test_a_malformed_answer_fails_its_request() -> None:
    call = calls([*DISCOVER, ("client", ask(1, "x/y")), ("server", '{"jsonrpc":"2.0","id":1,"error":"no"}')])[1]
    assert (call.state, call.answer) == ("failed", 5)


def test_an_exit_loses_what_is_open() -> None:
    transcript, steps, _ = read([*DISCOVER, ("client", ask(1, "x/y")), ("event", {"event": "exit", "code": 3})])
    assert [*transcript.calls()][1].state == "lost"
    assert transcript.has_ended
    event = steps[-1].items[0]
    assert isinstance(event, Event)
    assert (event.event, event.summary) == ("exit", "code 3")


def test_tool_errors_and_questions_are_seen() -> None:
    failed, asked = calls(
        [
            ("client", ask(1, "tools/call", name="x")),
            ("server", answer(1, isError=True, content=[{"type": "text", "text": "no disk"}])),
            ("client", ask(2, "tools/call", name="x")),
            ("server", plain(2, resultType="input_required", requestState="s")),
        ]
    )
    assert (failed.is_tool_error, failed.error, failed.state) == (True, "no disk", "answered")
    assert asked.needs_input


def test_slow_and_hanging_calls() -> None:
    slow, listen, hanging = calls(
        [
            ("client", ask(1, "tools/call", name="x")),
            (20, "server", called(1)),
            ("client", ask(2, "subscriptions/listen", notifications={})),
            ("client", ask(3, "tools/call", name="x")),
        ]
    )
    assert slow.is_slow(100.0)
    assert not slow.is_hanging(100.0)
    assert not listen.is_slow(1000.0)
    assert not listen.is_hanging(1000.0)
    assert not hanging.is_hanging(hanging.t + 59)
    assert hanging.is_hanging(hanging.t + 61)
    assert hanging.is_slow(hanging.t + 11)


def test_lines_that_were_cut_are_joined_by_their_beginning() -> None:
    transcript, _, _ = read(
        [
            Record(
                t=0.1, sender="client", text='{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"a', cut=10**8
            ),
            Record(t=0.2, sender="server", text='{"jsonrpc":"2.0","id":1,"result":{"a', cut=10**8),
            Record(t=0.3, sender="server", text='{"jsonrpc":"2.0","method":"notifications/x","params":{"a', cut=10**8),
        ]
    )
    (call, note) = transcript.items
    assert isinstance(call, Call)
    assert (call.method, call.state, call.size, call.answer_size) == ("tools/call", "answered", 10**8, 10**8)
    assert isinstance(note, Note)
    assert note.method == "notifications/x"


POST = {"method": "POST", "path": "/mcp"}
JSON = [("content-type", "application/json")]
STREAM = [("content-type", "text/event-stream")]


def test_over_http_the_same_id_is_used_by_many_clients() -> None:
    lines = [
        ("client", {**POST, "exchange": 1, "headers": []}, ask(1, "tools/list")),
        ("client", {**POST, "exchange": 2, "headers": []}, ask(1, "tools/call", LOGGED, name="x")),
        ("server", {"exchange": 2, "status": 200, "headers": STREAM}, None),
        ("server", {"exchange": 2}, tell("notifications/message", level="info", data="hello")),
        ("server", {"exchange": 2}, called(1)),
        ("server", {"exchange": 1, "status": 200, "headers": JSON}, listed(1)),
    ]
    transcript, _, found = read(lines)
    one, two = transcript.calls()
    assert (one.method, one.answer, one.exchange) == ("tools/list", 7, 1)
    assert (two.method, two.answer, two.notes) == ("tools/call", 6, [5])
    assert [finding.rule for finding in found] == ["header-mismatch"]


def test_a_modern_stream_that_its_client_closes_is_cancelled() -> None:
    lines = [
        ("client", {**POST, "exchange": 1, "headers": []}, ask(1, "tools/call", name="x")),
        ("client", {**POST, "exchange": 2, "headers": []}, ask(2, "tools/call", name="x")),
        Record(t=1.0, event="end_of_stream", sender="client", http=Http(exchange=1)),
        Record(t=1.0, event="end_of_stream", sender="server", http=Http(exchange=2)),
    ]
    one, two = calls(lines)
    assert (one.state, one.cancellation) == ("cancelled", 4)
    assert two.state == "lost"


def test_what_is_posted_to_the_endpoint_should_be_a_message() -> None:
    """Elsewhere, JSON without the members of a message belongs to a sign-in."""
    for path, kinds in (("/mcp?x=1", ["bad"]), ("/register", ["event"])):
        transcript = Transcript(header(target=Target(url="https://x/mcp?x=1")))
        http = Http(exchange=1, method="POST", path=path, headers=JSON)
        transcript.feed(2, Record(t=0.1, sender="client", text='{"a":1}', http=http))
        assert [item.kind for item in transcript.items] == kinds


def test_a_status_instead_of_an_answer_ends_a_call() -> None:
    lines = [
        ("client", {**POST, "exchange": 1, "headers": []}, ask(1, "tools/list")),
        ("server", {"exchange": 1, "status": 404, "headers": []}, None),
        ("client", {**POST, "exchange": 2, "headers": []}, ask(1, "tools/list")),
        ("server", {"exchange": 2, "status": 202, "headers": []}, None),
    ]
    refused, waiting = calls(lines)
    assert (refused.state, refused.error, refused.answer, refused.code) == ("failed", "HTTP 404", 3, None)
    assert waiting.state == "open"


def test_exchanges_that_have_ended_are_forgotten() -> None:
    lines: list[Any] = []
    for number in range(1, 101):
        lines.append(("client", {**POST, "exchange": number, "headers": []}, ask(1, "tools/list")))
        lines.append(("server", {"exchange": number, "status": 200, "headers": JSON}, listed(1)))
        lines.append(Record(t=1.0, event="end_of_stream", sender="server", http=Http(exchange=number)))
    transcript, _, _ = read(lines)
    assert [call.state for call in transcript.calls()] == ["answered"] * 100
    assert transcript._scopes == transcript._scope_of_exchange == transcript._requests_of_exchange == {}


def test_a_legacy_session_over_http_is_one_conversation() -> None:
    session = [("mcp-session-id", "***abc")]
    lines = [
        ("client", {**POST, "exchange": 1, "headers": []}, handshake()[0][1]),
        ("server", {"exchange": 1, "status": 200, "headers": [*JSON, *session]}, handshake()[1][1]),
        ("client", {"exchange": 2, "method": "GET", "path": "/mcp", "headers": session}, None),
        ("client", {**POST, "exchange": 3, "headers": session}, ask(5, "tools/call", None, name="x")),
        ("server", {"exchange": 2, "status": 200, "headers": STREAM}, None),
        ("server", {"exchange": 2, "event_id": "9"}, plain(5, content=[])),
    ]
    transcript, _, _ = read(lines)
    first, call = transcript.calls()
    assert first.state == "answered"
    assert (call.state, call.answer, call.revision) == ("answered", 7, "2025-11-25")


def test_http_with_sse_joins_the_stream_with_its_endpoint() -> None:
    path = "/messages?sessionId=***"
    lines = [
        ("client", {"exchange": 1, "method": "GET", "path": "/sse", "headers": []}, None),
        ("server", {"exchange": 1, "status": 200, "headers": STREAM}, None),
        ("server", {"exchange": 1, "event": "endpoint"}, path),
        ("client", {"exchange": 2, "method": "POST", "path": path, "headers": []}, handshake("2024-11-05")[0][1]),
        ("server", {"exchange": 2, "status": 202, "headers": []}, "Accepted"),
        ("server", {"exchange": 1, "event": "message"}, handshake("2024-11-05")[1][1]),
    ]
    transcript, _, _ = read(lines)
    (call,) = transcript.calls()
    assert (call.state, call.answer) == ("answered", 7)


def test_a_server_without_sessions_has_its_revision_in_a_header() -> None:
    headers = [("MCP-Protocol-Version", "2025-06-18")]
    (call,) = calls([("client", {**POST, "exchange": 4, "headers": headers}, ask(1, "tools/list", None))])
    assert call.revision == "2025-06-18"


def test_nothing_that_a_recording_says_raises() -> None:
    transcript = Transcript()
    nasty = [
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}',
        '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":5,"name":{}}}',
        '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{},"progress":"x"}}',
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}',
        '{"jsonrpc":"2.0","id":1,"result":7}',
        '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}',
        "[]",
        "[" * 3000,
    ]
    for number, line in enumerate(nasty * 2, 2):
        transcript.feed(number, Record(t=1.0, sender="client" if number % 2 else "server", text=line))


def test_what_should_be_an_address_may_be_anything() -> None:
    """A client may send any request target, and a server may name any endpoint."""
    for address in ("//[x", "http://[::1", "/mcp?id=1", "http://\u2100/", ""):
        transcript = Transcript(header(target=Target(url="http://[x/mcp")))
        http = [
            Http(exchange=1, method="POST", path=address),
            Http(exchange=1, status=200, headers=[]),
            Http(exchange=1, event="endpoint"),
        ]
        for number, each in enumerate(http, 2):
            transcript.feed(number, Record(t=1.0, sender="client", text=address, http=each))
        assert transcript.items
