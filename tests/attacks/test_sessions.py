"""Clients that want what belongs to other clients."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.attacks.harness import Fields, Target, Wire, head, initialize, legacy_post, post
from tests.process.harness import LEGACY, Message, modern_call, notification, request

ALICE: Fields = {"Authorization": "Bearer token-of-alice"}
BOB: Fields = {"Authorization": "Bearer token-of-bob"}
LISTEN: Fields = {"Host": "127.0.0.1", "Accept": "text/event-stream", "MCP-Protocol-Version": LEGACY[-1]}
PING = request(1, "ping")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Target]:
    """A server for two, who prove who they are."""
    with Target(principals={"token-of-alice": "alice", "token-of-bob": "bob"}, known_as=ALICE) as guarded:
        yield guarded


def attempts(session: str, fields: Fields | None = None) -> list[bytes]:
    """Everything that can be done with a session's id."""
    base = {**LISTEN, "Mcp-Session-Id": session, **(fields or {})}
    return [
        legacy_post(PING, session, fields),
        legacy_post(notification("notifications/cancelled", {"requestId": 1}), session, fields),
        legacy_post(request(2, "tools/call", {"name": "echo", "arguments": {"text": "x"}}), session, fields),
        head("GET", "/mcp", base),
        head("GET", "/mcp", {**base, "Last-Event-ID": "1"}),
        head("DELETE", "/mcp", base),
    ]


def sse_endpoint(target: Target, fields: Fields | None = None) -> tuple[Wire, str]:
    """A client of HTTP+SSE, to be kept, and where it posts to."""
    wire = target.wire()
    wire.send(head("GET", "/sse", {**LISTEN, **(fields or {})}))
    status, back = wire.begun()
    assert status == 200
    first = next(wire.pieces(back)).decode()
    found = re.search(r"data: (\S+)", first)
    assert found, first
    return wire, found[1]


@pytest.mark.req("HTP-6")
def test_ids_cannot_be_guessed(target: Target) -> None:
    sessions = {target.session() for _ in range(50)}
    assert len(sessions) == 50
    for session in sessions:
        assert re.fullmatch(r"[\x21-\x7e]{22,}", session)
    # No two have more in common than chance has it: there is no counter, and no time.
    # The first eight characters name the process.
    longest = max(len(_common(a, b)) for a in sessions for b in sessions if a != b)
    assert longest < 8 + 8


def _common(a: str, b: str) -> str:
    """What two texts begin with."""
    return next((a[:at] for at in range(len(a)) if a[at] != b[at]), a)


@pytest.mark.req("HTP-6")
def test_a_session_that_is_not_there_does_not_come_into_being(target: Target) -> None:
    real = target.session()
    near = [real[:-1], real + "0", real.swapcase(), real[::-1], f"{real}, {real}", real[:-1] + "g"]
    far = ["0", "abc", "1" * 64, "../" + real, "*", "%", "\xff" * 10, "x" * 20_000]
    for session in near + far:
        for data in attempts(session):
            answer = target.ask(data)
            assert answer.status in {400, 404}, (session, answer)
            assert "mcp-session-id" not in answer.fields
    assert target.ask(legacy_post(PING, real)).status == 200


@pytest.mark.req("HTP-6")
def test_a_client_cannot_choose_its_session(target: Target) -> None:
    """Who could, might wait for somebody else to be given the same one."""
    chosen = "f" * 48
    answer = target.ask(legacy_post(initialize(), fields={"Mcp-Session-Id": chosen}))
    assert answer.status in {200, 400, 404}
    assert answer.fields.get("mcp-session-id") != chosen
    assert target.ask(legacy_post(PING, chosen)).status == 404


@pytest.mark.req("HTP-6")
def test_a_session_that_has_ended_is_over(target: Target) -> None:
    session = target.session()
    assert target.ask(attempts(session)[-1]).status in {200, 202, 204}
    for data in attempts(session):
        assert target.ask(data).status == 404


@pytest.mark.req("HTP-6")
def test_a_session_belongs_to_whoever_began_it(guarded: Target) -> None:
    session = guarded.session(ALICE)
    for data in attempts(session, BOB):
        assert guarded.ask(data).status == 404
    for data in attempts(session):
        assert guarded.ask(data).status == 401
    assert guarded.ask(legacy_post(PING, session, ALICE)).status == 200


@pytest.mark.req("SSE-3")
def test_an_endpoint_belongs_to_whoever_opened_its_stream(guarded: Target) -> None:
    wire, endpoint = sse_endpoint(guarded, ALICE)
    opening = legacy_post(initialize("2024-11-05"))
    for fields, status in ((BOB, {403, 404}), ({}, {401}), (ALICE, {202})):
        lines = head("POST", endpoint, {"Authorization": fields.get("Authorization")}).removesuffix(b"\r\n")
        data = lines + opening.partition(b"\r\n")[2]
        assert guarded.ask(data).status in status, fields
    wire.close()


@pytest.mark.req("SSE-3")
def test_an_endpoint_cannot_be_guessed(target: Target) -> None:
    wire, endpoint = sse_endpoint(target)
    body = legacy_post(initialize("2024-11-05")).partition(b"\r\n")[2]
    for wrong in (endpoint[:-1], endpoint + "0", endpoint.partition("?")[0], endpoint.partition("=")[0] + "="):
        answer = target.ask(head("POST", wrong).removesuffix(b"\r\n") + body)
        assert answer.status in {400, 404}, (wrong, answer)
    wire.close()


@pytest.mark.req("HTP-6")
def test_events_of_one_session_are_not_for_another(target: Target) -> None:
    mine, other = target.session(), target.session()
    with target.wire() as wire:
        assert wire.ask(legacy_post(request("all", "logging/setLevel", {"level": "debug"}), mine)).status == 200
        flood: Message = {"name": "flood", "arguments": {"name": "events", "times": 3, "size": 10}}
        wire.send(legacy_post(request(5, "tools/call", flood), mine))
        status, fields = wire.begun()
        assert status == 200
        text = b"".join(wire.pieces(fields)).decode()
    ids = re.findall(r"^id: ?(\S+)", text, re.MULTILINE)
    assert ids
    for event in [*ids, ids[-1] + "0", "-1", "0", "9" * 400, "x" * 20_000, "\xff", "1_1", "1-1-1"]:
        answer = target.ask(head("GET", "/mcp", {**LISTEN, "Mcp-Session-Id": other, "Last-Event-ID": event}))
        assert answer.status in {204, 400, 404}, (event, answer)
        assert b"xxxxx" not in answer.body
    answer = target.ask(head("GET", "/mcp", {**LISTEN, "Mcp-Session-Id": mine, "Last-Event-ID": ids[0]}))
    assert answer.status in {200, 204}


@pytest.mark.req("HTP-6")
def test_one_session_cannot_cancel_the_calls_of_another(target: Target) -> None:
    mine, other = target.session(), target.session()
    call = request(7, "tools/call", {"name": "wait", "arguments": {"name": "not yours"}})
    with target.wire() as wire:
        wire.send(legacy_post(call, mine))
        target.until("not yours began")
        cancelled = notification("notifications/cancelled", {"requestId": 7})
        assert target.ask(legacy_post(cancelled, other)).status == 202
        # Nor can a modern client, or one without a session.
        assert target.ask(post(cancelled)).status in {202, 400}
        assert target.ask(legacy_post(cancelled)).status in {400, 404}
        target.call("release", name="not yours")
        assert wire.answer().message["result"]["content"][0]["text"] == "not yours"
    assert target.events("not yours cancelled") == 0


TOKENS = [
    None,
    "",
    "Bearer",
    "Bearer ",
    "Bearer token-of-alic",
    "Bearer token-of-alice2",
    "Bearer token-of-alice, Bearer token-of-bob",
    "Bearer token-of-alice token-of-bob",
    "Bearer TOKEN-OF-ALICE",
    "token-of-alice",
    "Basic dG9rZW4tb2YtYWxpY2U=",
    "Bearer \xe4" * 100,
    "Bearer " + "x" * 20_000,
]


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: str(token)[:40])
def test_without_a_good_token_nobody_is_let_in(guarded: Target, token: str | None) -> None:
    for data in (
        post(modern_call(1, "echo", text="x"), {"Authorization": token}),
        legacy_post(initialize(), fields={"Authorization": token}),
        head("GET", "/mcp", {**LISTEN, "Mcp-Session-Id": "abc", "Authorization": token}),
        head("DELETE", "/mcp", {**LISTEN, "Mcp-Session-Id": "abc", "Authorization": token}),
        head("GET", "/sse", {**LISTEN, "Authorization": token}),
        head("POST", "/messages?session_id=abc", {**LISTEN, "Content-Length": "0", "Authorization": token}),
    ):
        answer = guarded.ask(data)
        assert answer.status == 401, answer
        assert answer.fields["www-authenticate"].startswith("Bearer")


def test_a_token_has_no_business_in_an_address(guarded: Target) -> None:
    for query in ("?access_token=token-of-alice", "?token=token-of-alice"):
        answer = guarded.ask(post(modern_call(1, "echo", text="x"), path="/mcp" + query))
        assert answer.status == 401


def test_one_bad_token_beside_a_good_one(guarded: Target) -> None:
    good = post(modern_call(1, "echo", text="x"), ALICE)
    twice = good.replace(b"Authorization:", b"Authorization: Bearer nobody\r\nAuthorization:")
    assert guarded.ask(twice).status == 401
