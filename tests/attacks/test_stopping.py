"""A server that is told to stop while it is attacked: it stops, in good order."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.attacks.harness import Fields, Target, Wire, head, initialize, legacy_post, post
from tests.kit.products import spread
from tests.process.harness import LEGACY, modern, modern_call, request

SSE: Fields = {"Host": "127.0.0.1", "Accept": "text/event-stream", "MCP-Protocol-Version": LEGACY[-1]}
CALL = post(modern_call(1, "echo", text="hello"))
LISTEN = post(modern(1, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
#: Clients of each kind.
MANY = 30


def idle(_: Target, wire: Wire) -> None:
    """Says nothing."""


def torn_head(_: Target, wire: Wire) -> None:
    wire.send(CALL[:30])


def torn_body(_: Target, wire: Wire) -> None:
    wire.send(CALL[:-5])


def kept(_: Target, wire: Wire) -> None:
    """Has had its answer, and stays."""
    assert wire.ask(CALL).status == 200


def listening(_: Target, wire: Wire) -> None:
    assert next(wire.stream(LISTEN))["method"] == "notifications/subscriptions/acknowledged"


def with_sse(_: Target, wire: Wire) -> None:
    wire.send(head("GET", "/sse", SSE))
    assert wire.begun()[0] == 200


def with_session(target: Target, wire: Wire) -> None:
    wire.send(head("GET", "/mcp", {**SSE, "Mcp-Session-Id": target.session()}))
    assert wire.begun()[0] == 200


def beginning_a_session(_: Target, wire: Wire) -> None:
    wire.send(legacy_post(initialize()))


def calling(_: Target, wire: Wire) -> None:
    """Waits for what never ends by itself."""
    wire.send(post(modern_call(1, "wait", name="stopped")))


def calling_in_a_session(target: Target, wire: Wire) -> None:
    call = request(1, "tools/call", {"name": "wait", "arguments": {"name": "stopped"}})
    wire.send(legacy_post(call, target.session()))


def deaf(_: Target, wire: Wire) -> None:
    """Asks for much, and reads nothing."""
    wire.send(post(modern_call(1, "much", size=10_000_000)))


KINDS: list[Callable[[Target, Wire], None]] = [
    idle,
    torn_head,
    torn_body,
    kept,
    listening,
    with_sse,
    with_session,
    beginning_a_session,
    calling,
    calling_in_a_session,
    deaf,
]


@pytest.mark.parametrize("kind", spread(KINDS, 3))
def test_a_server_stops_whoever_is_there(kind: Callable[[Target, Wire], None]) -> None:
    stops([kind] * (3 if kind is deaf else MANY))


def test_a_server_stops_when_all_of_them_are_there() -> None:
    stops([kind for kind in KINDS for _ in range(3)])


def stops(kinds: list[Callable[[Target, Wire], None]]) -> None:
    target = Target(server={"stop_within": 1.0, "finish_within": 1.0})
    with ExitStack() as stack:
        for kind in kinds:
            kind(target, stack.enter_context(target.wire()))
        if {calling, calling_in_a_session} & set(kinds):
            target.until("stopped began")
        # Its exit code and its last words are looked at there.
        target.end(signal.SIGTERM)
