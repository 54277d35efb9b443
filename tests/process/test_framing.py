"""Bytes to messages and back, in a real process: good lines, bad lines, and what becomes of the stream."""

from __future__ import annotations

import json

import pytest

from tests.kit.results import text_of
from tests.process.harness import (
    LEGACY,
    Client,
    Message,
    ServerProcess,
    encoded,
    modern,
    modern_call,
    notification,
    request,
)

HUGE = b'"' + b"x" * 30_000_000 + b'"\n'

# Lines that are no messages, and the code of the answer; None where there must be none.
BAD_LINES: dict[str, tuple[bytes, int | None]] = {
    "garbage": (b"%%% what is this", -32700),
    "half a message": (b'{"jsonrpc": "2.0", "id": 1, "method": "ping"', -32700),
    "binary": (bytes(range(1, 10)) + bytes(range(14, 32)), -32700),
    "nul bytes": (b"\0\0\0", -32700),
    "bad utf-8": (b'{"jsonrpc": "2.0", "id": 1, "method": "\xff\xfe"}', -32700),
    "utf-16": ('{"jsonrpc": "2.0"}'.encode("utf-16"), -32700),
    "lone surrogate": (rb'{"jsonrpc": "2.0", "id": 1, "method": "\ud800"}', -32700),
    "not a number": (b'{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', -32700),
    "a number": (b"42", -32600),
    "a text": (b'"initialize"', -32600),
    "null": (b"null", -32600),
    "empty object": (b"{}", -32600),
    "an array": (b"[]", -32600),
    "null id": (b'{"jsonrpc": "2.0", "id": null, "method": "tools/list"}', -32600),
    "float id": (b'{"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"}', -32600),
    "whole float id": (b'{"jsonrpc": "2.0", "id": 1.0, "method": "tools/list"}', -32600),
    "true for an id": (b'{"jsonrpc": "2.0", "id": true, "method": "tools/list"}', -32600),
    "list for an id": (b'{"jsonrpc": "2.0", "id": [1], "method": "tools/list"}', -32600),
    "huge id": (b'{"jsonrpc": "2.0", "id": 1' + b"0" * 100 + b', "method": "tools/list"}', -32600),
    "two ids": (b'{"jsonrpc": "2.0", "id": 1, "id": 2, "method": "tools/list"}', -32600),
    "a result": (b'{"jsonrpc": "2.0", "id": 99, "result": {}}', None),
    "an error": (b'{"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "no"}}', None),
    "an error without an id": (b'{"jsonrpc": "2.0", "error": {"code": -32700, "message": "no"}}', None),
    "a malformed error": (b'{"jsonrpc": "2.0", "id": 99, "error": "no"}', None),
    "a result and a method": (b'{"jsonrpc": "2.0", "id": 99, "method": "ping", "result": {}}', None),
    "deep nesting": (b"[" * 100_000, -32600),
    "deep arguments": (b'{"jsonrpc": "2.0", "params": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}", None),
}

# Requests of a wrong shape whose id can be read.
WRONG_SHAPES: dict[str, bytes] = {
    "no version": b'{"id": "me", "method": "tools/list"}',
    "another version": b'{"jsonrpc": "1.0", "id": "me", "method": "tools/list"}',
    "a number for a method": b'{"jsonrpc": "2.0", "id": "me", "method": 5}',
    "no method": b'{"jsonrpc": "2.0", "id": "me"}',
    "a list of params": b'{"jsonrpc": "2.0", "id": "me", "method": "tools/list", "params": [1]}',
    "deep params": b'{"jsonrpc": "2.0", "id": "me", "method": "tools/list", "params": '
    + b"[" * 9999
    + b"]" * 9999
    + b"}",
}


@pytest.mark.req("FRM-1")
def test_each_message_is_one_line_of_utf8(workshop: Client) -> None:
    text = "one\ntwo\r\nthree\u2028four\u0085five\tsix\0seven 🦭"
    assert workshop.say("echo", text=text) == text


@pytest.mark.req("FRM-4", "FRM-7")
@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_passed_over(workshop: Client, name: str) -> None:
    line, code = BAD_LINES[name]
    workshop.server.write(line + b"\n")
    if code is not None:
        answer = workshop.server.receive()
        assert "id" not in answer
        assert answer["error"]["code"] == code
    assert workshop.say("echo", text="next") == "next"


@pytest.mark.req("FRM-7")
@pytest.mark.parametrize("name", WRONG_SHAPES)
def test_a_readable_id_is_in_the_answer_to_a_wrong_shape(workshop: Client, name: str) -> None:
    workshop.server.write(WRONG_SHAPES[name] + b"\n")
    assert workshop.server.answer_to("me")["error"]["code"] == -32600


@pytest.mark.req("FRM-7")
@pytest.mark.parametrize("revision", LEGACY)
def test_an_answer_without_an_id_goes_only_to_revisions_that_have_it(revision: str) -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, revision)
        server.write(b"garbage\n")
        server.write(b'{"jsonrpc": "2.0", "id": null, "method": "ping"}\n')
        client.fence()
        codes = [message["error"]["code"] for message in server.inbox]
        assert codes == ([-32700, -32600] if revision == LEGACY[-1] else [])
        server.wait_for_error_text("passed over")


@pytest.mark.req("FRM-4")
def test_a_thousand_bad_lines_are_a_few_lines_in_the_log() -> None:
    with ServerProcess("workshop") as server:
        server.write(b"garbage\n" * 1000)
        server.send(modern_call("next", "echo", text="next"))
        assert text_of(server.answer_to("next")["result"]) == "next"
        assert len(server.finish()) == 1000
        assert 0 < server.errors.count("passed over") < 30


@pytest.mark.req("FRM-4", "FRM-5")
def test_an_over_long_line_costs_no_memory_and_no_stream() -> None:
    with ServerProcess("workshop", {"limits": {"max_line": 100_000}}) as server:
        client = Client(server)
        client.fence()
        before = server.memory("VmHWM")
        server.write(HUGE)
        server.write(b'{"jsonrpc": "2.0", "id": "long", "method": "tools/call", "params": ' + HUGE[:-1] + b"}\n")
        assert client.say("echo", text="next") == "next"
        assert server.memory("VmHWM") - before < 10_000_000
        first, second = server.inbox
        assert second["id"] == "long"
        for answer in (first, second):
            assert answer["error"]["code"] == -32600
            assert "100000 bytes" in answer["error"]["message"]
        server.inbox.clear()
        assert client.say("echo", text="x" * 99_000) == "x" * 99_000
        assert server.finish() == []
        assert "100000 bytes" in server.errors


@pytest.mark.req("FRM-5")
def test_a_byte_at_a_time() -> None:
    with ServerProcess("workshop") as server:
        messages = [modern_call(number, "echo", text="é🦭") for number in range(3)]
        for byte in encoded(*messages):
            server.write(bytes([byte]))
        for number in range(3):
            assert text_of(server.answer_to(number)["result"]) == "é🦭"
        assert server.finish() == []


@pytest.mark.req("FRM-6")
@pytest.mark.parametrize("is_torn", [False, True])
def test_a_clean_and_a_torn_end_differ_in_the_log(is_torn: bool) -> None:
    with ServerProcess("workshop") as server:
        server.write(encoded(modern_call(1, "add", a=1, b=2)))
        if is_torn:
            server.write(b'{"jsonrpc": "2.0", "id": 2, "met')
        answers = {message.get("id"): message for message in server.finish()}
        assert text_of(answers[1]["result"]) == "3"
        assert ("middle of a line" in server.errors) is is_torn
        assert (None in answers) is is_torn


@pytest.mark.req("FRM-8")
def test_ids_come_back_as_they_are(workshop: Client) -> None:
    ids: list[object] = [0, -7, 2**53 + 1, 2**63 - 1, -(2**63), "0", "", "1", "é🦭\n", "x" * 10_000]
    server = workshop.server
    server.send(*[modern_call(each, "echo", text=repr(each)) for each in ids])
    for each in ids:
        assert text_of(server.answer_to(each)["result"]) == repr(each)


@pytest.mark.req("FRM-8")
def test_a_text_and_a_number_are_different_ids(workshop: Client) -> None:
    held = workshop.begin("hold")
    workshop.server.send(modern_call(str(held), "release"))
    assert text_of(workshop.server.answer_to(str(held))["result"]) == "done"
    assert text_of(workshop.server.answer_to(held)["result"]) == "released"


@pytest.mark.req("FRM-8")
def test_the_id_of_a_request_in_flight_is_refused_and_free_afterwards() -> None:
    with ServerProcess("workshop") as server:
        client = Client(server)
        held = client.begin("hold")
        server.send(modern_call(held, "echo", text="again"))
        refused = server.answer_to(held)
        assert refused["error"]["code"] == -32600
        assert client.say("release") == "done"
        assert text_of(server.answer_to(held)["result"]) == "released"
        server.send(modern_call(held, "echo", text="again"))
        assert text_of(server.answer_to(held)["result"]) == "again"
        assert server.finish() == []


@pytest.mark.req("FRM-9")
def test_foreign_line_ends_blank_lines_and_a_byte_order_mark_are_tolerated() -> None:
    with ServerProcess("workshop") as server:
        one, two, three = (encoded(modern_call(number, "echo", text="hi")).rstrip() for number in (1, 2, 3))
        server.write(b"\xef\xbb\xbf" + one + b"\r\n\r\n\n  \n\t\n" + two + b"\r\n" + b"  " + three + b"  \n")
        answers = server.finish()
        assert [text_of(answer["result"]) for answer in answers] == ["hi"] * 3
        assert server.errors == ""


def batch(*messages: object) -> bytes:
    return json.dumps(messages).encode() + b"\n"


@pytest.mark.req("FRM-10", "LEG-5")
def test_a_batch_is_answered_with_a_batch() -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, "2025-03-26")
        hold = request("hold", "tools/call", {"name": "hold", "arguments": {}, "_meta": {"progressToken": "hold"}})
        echo = request("echo", "tools/call", {"name": "echo", "arguments": {"text": "hi"}})
        bad = {"jsonrpc": "2.0", "id": "bad", "method": 5}
        unknown = request("unknown", "no/such")
        reopened = request("open", "initialize", {"protocolVersion": "2025-03-26"})
        note = notification("notifications/workshop/note", {"value": "in a batch"})
        server.write(batch(hold, echo, note, bad, unknown, reopened, request("ping", "ping"), 5))
        server.notified("notifications/progress")
        # The slowest one holds up its batch, and nothing else.
        assert client.say("notes") == '["in a batch"]'
        assert client.say("release") == "done"
        answers = {answer["id"]: answer for answer in server.receive()["batch"]}
        codes = {name: answer.get("error", {}).get("code") for name, answer in answers.items()}
        assert codes == {
            "hold": None, "echo": None, "ping": None, "bad": -32600, "unknown": -32601, "open": -32600,
        }  # fmt: skip
        assert text_of(answers["hold"]["result"]) == "released"
        assert server.finish() == []


@pytest.mark.req("FRM-10", "CAN-2")
def test_a_cancelled_request_leaves_its_batch() -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, "2025-03-26")
        hold = request("hold", "tools/call", {"name": "hold", "arguments": {}, "_meta": {"progressToken": "hold"}})
        server.write(batch(hold, request("ping", "ping")))
        server.notified("notifications/progress")
        server.write(batch(notification("notifications/cancelled", {"requestId": "hold"})))
        assert [answer["id"] for answer in server.receive()["batch"]] == ["ping"]
        # Notifications alone have no answers, and neither has a batch that is all cancelled.
        server.write(batch(hold))
        server.notified("notifications/progress")
        server.send(notification("notifications/cancelled", {"requestId": "hold"}))
        assert client.say("echo", text="next") == "next"
        assert server.finish() == []


@pytest.mark.req("FRM-10", "FRM-4")
@pytest.mark.parametrize("line", [b"[]\n", batch(*[request(number, "ping") for number in range(1001)])])
def test_a_batch_without_messages_or_with_too_many_is_no_message(line: bytes) -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, "2025-03-26")
        server.write(line)
        assert client.say("echo", text="next") == "next"
        assert server.finish() == []
        assert "batch" in server.errors


@pytest.mark.req("FRM-10", "LEG-5")
@pytest.mark.parametrize("revision", [revision for revision in LEGACY if revision != "2025-03-26"])
def test_a_batch_is_no_message_in_other_revisions(revision: str) -> None:
    with ServerProcess("workshop") as server:
        client = Client(server, revision)
        server.write(batch(request("in", "ping")))
        assert client.say("echo", text="next") == "next"
        answers = server.finish()
        assert all("id" not in answer and answer["error"]["code"] == -32600 for answer in answers)
        assert len(answers) == (revision == LEGACY[-1])
        assert "batch" in server.errors


@pytest.mark.req("FRM-10")
def test_a_batch_is_no_message_for_modern_clients(workshop: Client) -> None:
    workshop.server.write(batch(modern("in", "tools/list")))
    answer: Message = workshop.server.receive()
    assert "id" not in answer
    assert answer["error"]["code"] == -32600
