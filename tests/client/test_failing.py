"""Requests that fail alone, as those of a transport can that carries each of them by itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mcplumb import connect
from mcplumb.client import Missed, subscriptions
from mcplumb.client.client import Client
from mcplumb.errors import Closed, ConnectError, ConnectTimeout, HttpError, McplumbError, ProtocolError, RequestLost
from mcplumb.server.server import Server
from mcplumb.transports.connection import Connection, Receiver
from mcplumb.transports.memory import memory_pair
from mcplumb.types.tools import ToolAnnotations
from mcplumb.wire.messages import Message, Request, RequestId
from tests.client.peers import skip
from tests.kit.loop import run

BROKE_OFF = RequestLost("The answer broke off.")


class Fallible:
    """A connection on which the next requests of some methods fail, each with the error that is next for its method."""

    def __init__(self, connection: Connection, failures: dict[str, list[McplumbError]]) -> None:
        self._connection = connection
        self._failures = failures
        self._receiver: Receiver | None = None
        #: The ids of all requests, by their methods.
        self.sent: dict[str, list[RequestId]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def start(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._connection.start(receiver)

    def send(self, message: Message, about: RequestId | None = None) -> None:
        if isinstance(message, Request):
            self.sent.setdefault(message.method, []).append(message.id)
        failures = self._failures.get(message.method, []) if isinstance(message, Request) else []
        if failures and isinstance(message, Request):
            assert self._receiver is not None
            asyncio.get_running_loop().call_soon(self._receiver.failed, message.id, failures.pop(0))
        else:
            self._connection.send(message, about)

    def cut(self, method: str, error: McplumbError) -> None:
        """The latest request of this method fails now, although it was sent."""
        assert self._receiver is not None
        self._receiver.failed(self.sent[method][-1], error)


def shop() -> Server:
    server = Server("shop")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def look() -> str:
        return "seen"

    @server.tool
    async def buy() -> str:
        return "bought"

    return server


def visit(
    failures: dict[str, list[McplumbError]],
    body: Callable[[Client], Awaitable[object]],
    ways: list[Fallible] | None = None,
    **options: Any,
) -> list[asyncio.Task[None]]:
    """Use a server over a connection that fails like this; returns what has served each connection."""
    server = shop()
    serving: list[asyncio.Task[None]] = []
    opened: list[Fallible] = [] if ways is None else ways

    async def opens() -> Connection:
        ours, theirs = memory_pair()
        serving.append(asyncio.ensure_future(server.serve_connection(theirs)))
        opened.append(Fallible(ours, failures))
        connection: Any = opened[-1]
        return connection  # type: ignore[no-any-return]

    async def main() -> None:
        async with connect(opens, **options) as client:
            await body(client)
        await asyncio.wait(serving)

    run(main())
    return serving


def test_what_was_lost_alone_and_is_safe_is_sent_again_on_the_same_connection() -> None:
    async def body(client: Client) -> None:
        await client.list_tools()
        assert (await client.call_tool("look")).content[0].text == "seen"  # type: ignore[union-attr]

    assert len(visit({"tools/call": [BROKE_OFF]}, body)) == 1


def test_what_was_lost_alone_and_is_not_safe_is_not() -> None:
    async def body(client: Client) -> None:
        with pytest.raises(RequestLost, match=r"tools/call 'buy'.*unknown. The answer broke off.") as caught:
            await client.call_tool("buy")
        assert caught.value.__cause__ is BROKE_OFF
        assert (await client.call_tool("buy")).content[0].text == "bought"  # type: ignore[union-attr]

    visit({"tools/call": [BROKE_OFF]}, body)


@pytest.mark.parametrize("params", [{}, {"name": []}])
def test_a_lost_call_of_no_tool_is_not_sent_again(params: dict[str, Any]) -> None:
    async def body(client: Client) -> None:
        with pytest.raises(RequestLost, match=r"tools/call.*unknown. The answer broke off."):
            await client.request("tools/call", params)

    visit({"tools/call": [BROKE_OFF]}, body)


def test_what_cannot_have_arrived_is_sent_once_more_and_no_oftener() -> None:
    closed = Closed("Nobody is there.")

    async def body(client: Client) -> None:
        assert (await client.call_tool("buy")).content[0].text == "bought"  # type: ignore[union-attr]
        failures["tools/call"] = [closed] * 3
        with pytest.raises(Closed, match=r"tools/call 'buy' was not sent. Nobody is there."):
            await client.call_tool("buy")
        assert failures["tools/call"] == [closed]

    failures: dict[str, list[McplumbError]] = {"tools/call": [closed]}
    visit(failures, body)


def test_what_the_server_refuses_is_raised_and_names_the_request() -> None:
    async def body(client: Client) -> None:
        with pytest.raises(HttpError, match=r"tools/call 'buy' was refused. Slow down.") as caught:
            await client.call_tool("buy")
        assert (caught.value.status, caught.value.www_authenticate) == (429, "Bearer")
        with pytest.raises(ProtocolError, match=r"answer to tools/call 'buy' cannot be used. Too long."):
            await client.call_tool("buy")

    refusal = HttpError(429, "Slow down.", www_authenticate="Bearer")
    visit({"tools/call": [refusal, ProtocolError("Too long.")]}, body)


@pytest.mark.req("HTP-7")
@pytest.mark.parametrize("status", [400, 404, 405, 406, 500])
def test_a_question_that_is_refused_without_a_word_means_legacy(status: int) -> None:
    async def body(client: Client) -> None:
        assert not client.revision.is_modern

    visit({"server/discover": [HttpError(status, "No.")]}, body)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (HttpError(401, "Who are you?"), "The handshake failed. "),
        (HttpError(403, "Not you."), "The handshake failed. "),
        (BROKE_OFF, "The handshake failed. "),
        (Closed("Gone."), ""),
    ],
)
def test_a_server_that_lets_nobody_in_is_not_asked_any_further(error: McplumbError, said: str) -> None:
    async def body(client: Client) -> None:
        raise AssertionError

    with pytest.raises(ConnectError, match=f"^{said}{re.escape(str(error))}") as caught:
        visit({"server/discover": [error]}, body)
    assert caught.value.__cause__ is error


def test_a_server_that_refuses_both_questions_says_why() -> None:
    async def body(client: Client) -> None:
        raise AssertionError

    def failures(status: int) -> dict[str, list[McplumbError]]:
        second = HttpError(status, f"HTTP {status}.")
        return {"server/discover": [HttpError(404, "HTTP 404.")], "initialize": [second]}

    with pytest.raises(ConnectError, match=r"HTTP 404\..*HTTP 405\."):
        visit(failures(405), body)
    with pytest.raises(ConnectError) as caught:
        visit(failures(404), body)
    assert str(caught.value).count("HTTP 404.") == 1


async def test_a_transport_that_cannot_be_opened_says_why() -> None:
    async def refuse() -> Connection:
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(ConnectError, match=r"could not be opened: .*refused"):
        await connect(refuse)


@pytest.mark.parametrize("error", [TimeoutError("Nobody is there."), ConnectTimeout("It could not be opened: no.")])
async def test_or_that_it_cannot_be_opened_in_time(error: TimeoutError) -> None:
    async def wait() -> Connection:
        raise error

    with pytest.raises(ConnectTimeout) as caught:
        await connect(wait)
    assert str(caught.value).count("could not be opened:") == 1


LISTEN = "subscriptions/listen"


@pytest.mark.req("STR-3")
def test_a_subscription_whose_stream_breaks_off_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "_FIRST_WAIT", 0.001)
    ways: list[Fallible] = []

    async def body(client: Client) -> None:
        async with client.listen(tools=True) as changes:
            for number in range(3):
                # The second time the server cannot be reached at first.
                failures[LISTEN] = [BROKE_OFF, Closed("Gone.")] if number == 1 else []
                ways[0].cut(LISTEN, BROKE_OFF)
                assert isinstance(await anext(changes), Missed)
        assert len(ways[0].sent[LISTEN]) == 6

    failures: dict[str, list[McplumbError]] = {}
    assert len(visit(failures, body, ways)) == 1


def test_its_waits_grow_while_it_does_not_do_well(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(subscriptions, "_LONGEST_WAIT", 1.0)
    ways: list[Fallible] = []

    async def body(client: Client) -> None:
        async with client.listen(tools=True) as changes:
            monkeypatch.setattr(asyncio, "sleep", note)
            for _ in range(4):
                ways[0].cut(LISTEN, BROKE_OFF)
                assert isinstance(await anext(changes), Missed)
            skip(100)
            ways[0].cut(LISTEN, BROKE_OFF)
            assert isinstance(await anext(changes), Missed)
            monkeypatch.undo()

    visit({}, body, ways)
    assert waits == [0.2, 0.4, 0.8, 1.0, 0.2]


def test_a_subscription_is_not_opened_again_if_that_is_not_wanted_or_the_server_refuses() -> None:
    ways: list[Fallible] = []

    async def body(client: Client) -> None:
        async with client.listen(tools=True) as changes:
            ways[-1].cut(LISTEN, BROKE_OFF)
            with pytest.raises(RequestLost, match="broke off"):
                await anext(changes)

    visit({}, body, ways, restart=False)

    async def refused(client: Client) -> None:
        async with client.listen(tools=True) as changes:
            failures[LISTEN] = [HttpError(403, "Not you.")]
            ways[-1].cut(LISTEN, BROKE_OFF)
            with pytest.raises(HttpError, match="Not you"):
                await anext(changes)

    failures: dict[str, list[McplumbError]] = {}
    visit(failures, refused, ways)


def test_a_subscription_can_be_left_while_it_is_being_opened_again() -> None:
    ways: list[Fallible] = []

    async def body(client: Client) -> None:
        async with client.listen(tools=True):
            ways[0].cut(LISTEN, BROKE_OFF)
        assert len(ways[0].sent[LISTEN]) == 1

    visit({}, body, ways)
