"""An endpoint that is observed: what its observers are told, at both ends of a connection."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mcplumb import Server, connect
from mcplumb.errors import ConnectError, HttpError, RemoteError, RequestTimeout
from mcplumb.rpc.observed_endpoint import Failure, combined, failure_of
from mcplumb.types.content import TextContent
from mcplumb.types.tools import CallToolResult
from mcplumb.wire.messages import ErrorDetail
from tests.kit.ports import held_port


class Notes:
    """An observer that writes down what it is told."""

    def __init__(self, told: list[str], name: str = "") -> None:
        self._told = told
        self._name = name

    def note(self, text: str) -> None:
        self._told.append(f"{self._name}{text}")

    def received(self, endpoint: Any, request: Any, admitted: Any) -> Note:
        return Note(self, request.method)

    def sending(self, endpoint: Any, method: str, params: Any) -> tuple[Note, Any]:
        return Note(self, f"sending {method}"), params

    def refused(self, error: ErrorDetail) -> None:
        self.note(f"refused {error.code}")

    def malformed(self) -> None:
        self.note("malformed")

    def ended(self, endpoint: Any, seconds: float) -> None:
        self.note("ended")

    def restarted(self) -> None:
        self.note("restarted")


class Note:
    def __init__(self, notes: Notes, method: str) -> None:
        self._notes = notes
        self._method = method

    def enter(self) -> None:
        self._notes.note(f"enter {self._method}")

    def leave(self) -> None:
        self._notes.note(f"leave {self._method}")

    def end(self, failure: Failure | None) -> None:
        self._notes.note(f"{self._method}: {'ok' if failure is None else failure.kind}")


def observed(told: list[str]) -> Server:
    server = Server("observed")
    server._shared.observer = Notes(told)

    @server.tool
    async def fail() -> str:
        raise ValueError

    @server.tool
    async def wait() -> None:
        await asyncio.sleep(60)

    return server


def ends(told: list[str]) -> list[str]:
    return [each for each in told if not each.startswith(("enter", "leave"))]


async def test_requests_are_observed_to_their_outcome() -> None:
    told: list[str] = []
    async with connect(observed(told)) as client:
        await client.list_tools()
        await client.call_tool("fail")
        with pytest.raises(RemoteError):
            await client.request("no/method", {})
        with pytest.raises(RequestTimeout):
            await client.call_tool("wait", timeout=0.01)
    outcomes = ends(told)
    assert outcomes[0] == "server/discover: ok"
    assert {"tools/list: ok", "tools/call: tool_error", "tools/call: cancelled", "no/method: -32601"} <= set(outcomes)
    assert outcomes.count("ended") == 1
    assert told.count("leave tools/list") == told.count("enter tools/list") == 1


@pytest.mark.req("SCL-5")
async def test_a_handshake_is_observed_to_its_answer() -> None:
    told: list[str] = []
    connecting = connect(observed(told))
    connecting.supervisor.settings = msgspec.structs.replace(connecting.supervisor.settings, observer=Notes(told))
    async with connecting as client, client.listen(tools=True):
        pass
    outcomes = ends(told)
    assert outcomes.index("server/discover: ok") < outcomes.index("sending server/discover: ok")
    # A subscription, which is open until it is not needed any more, is observed until it is sent.
    assert outcomes.index("sending subscriptions/listen: ok") < outcomes.index("ended")


@pytest.mark.req("SCL-5")
async def test_a_handshake_that_fails_is_observed() -> None:
    told: list[str] = []
    with held_port() as nobody_listens:
        connecting = connect(f"http://127.0.0.1:{nobody_listens.getsockname()[1]}/mcp", revisions=["2025-11-25"])
        connecting.supervisor.settings = msgspec.structs.replace(connecting.supervisor.settings, observer=Notes(told))
        with pytest.raises(ConnectError):
            await connecting
    assert ends(told) == ["sending initialize: Closed", "ended"]


async def test_several_observers_are_told_in_turn() -> None:
    told: list[str] = []
    server = observed([])
    one, other = Notes(told, "1 "), Notes(told, "2 ")
    server._shared.observer = combined(one, None, other)
    async with connect(server) as client:
        await client.list_tools()
    listed = [each for each in told if "tools/list" in each]
    assert listed[:2] == ["1 enter tools/list", "2 enter tools/list"]
    assert listed[-2:] == ["2 tools/list: ok", "1 tools/list: ok"]
    both = combined(one, other)
    assert both is not None
    told.clear()
    both.refused(ErrorDetail(-1, "No."))
    both.malformed()
    both.restarted()
    assert told == [f"{name} {what}" for what in ("refused -1", "malformed", "restarted") for name in (1, 2)]


def test_one_observer_needs_no_company() -> None:
    notes = Notes([])
    assert combined() is combined(None) is None
    assert combined(None, notes) is notes


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (ErrorDetail(-32602, "No."), "-32602"),
        (RemoteError(-32001, "No.", request="it"), "-32001"),
        (RequestTimeout("Late."), "timeout"),
        (asyncio.CancelledError(), "cancelled"),
        (HttpError(503, "Busy."), "503"),
        (ValueError("x"), "ValueError"),
        (CallToolResult([TextContent("x")], is_error=True), "tool_error"),
        ({"content": [], "isError": True}, "tool_error"),
        (msgspec.Raw(b'{"isError":true}'), "tool_error"),
        (CallToolResult([TextContent("x")]), None),
        ({"content": []}, None),
        (msgspec.Raw(b'{"content":[]}'), None),
        (msgspec.Raw(b'{"isError":"yes"}'), None),
        (msgspec.Raw(b"["), None),
        (None, None),
    ],
)
def test_how_an_outcome_is_named(outcome: Any, kind: str | None) -> None:
    failure = failure_of("tools/call", outcome)
    assert (None if failure is None else failure.kind) == kind


def test_only_tools_have_errors_in_results() -> None:
    assert failure_of("resources/read", {"isError": True}) is None
