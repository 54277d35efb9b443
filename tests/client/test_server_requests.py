from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from mcplumb.client.client import Client
from mcplumb.errors import RequestError
from mcplumb.limits import Limits
from mcplumb.types.client_features import ElicitResult
from mcplumb.wire.messages import Notification, Request
from tests.client.peers import LOOPS, TEXT, Peer, talk_legacy
from tests.kit.loop import turns

QUESTION = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
SAMPLE = {"messages": [], "maxTokens": 1}
LEGACY = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


async def call(client: Client) -> None:
    assert (await client.call_tool("x")).content


def error(message: dict[str, Any]) -> tuple[int, str]:
    return message["error"]["code"], message["error"]["message"]


@pytest.mark.req("LEG-4", "MRT-5")
@pytest.mark.parametrize("revision", LEGACY)
@pytest.mark.parametrize("eager", LOOPS)
def test_a_legacy_server_is_answered(revision: str, eager: bool) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.ask(7, "ping")
        assert (await peer.expect_answer(7))["result"] == {}
        peer.ask("7", "roots/list")
        assert (await peer.expect_answer("7"))["result"] == {"roots": [{"uri": "file:///a"}]}
        peer.ask(8, "sampling/createMessage", messages=[], maxTokens=5)
        assert (await peer.expect_answer(8))["result"]["content"] == {"type": "text", "text": "hi"}
        peer.ask(9, "elicitation/create", **QUESTION)
        answer = await peer.expect_answer(9)
        if revision in LEGACY[:2]:
            assert error(answer) == (-32601, "This client does not know the method 'elicitation/create'.")
        else:
            assert answer["result"] == {"action": "accept", "content": {"name": "Ada"}}
        peer.answer(request, TEXT)

    talk_legacy(
        play,
        call,
        revision,
        roots=["file:///a"],
        on_sample=lambda _: "hi",
        on_elicit=lambda _: {"name": "Ada"},
        eager=eager,
    )


@pytest.mark.req("MRT-5")
@pytest.mark.parametrize("revision", LEGACY)
def test_what_has_a_handler_is_declared_as_the_revision_has_it(revision: str) -> None:
    async def play(peer: Peer) -> None:
        (request, *_) = peer.seen
        declared = request["params"]["capabilities"]
        assert declared["roots"] == {"listChanged": True}
        assert declared["sampling"] == {}
        expected: Any = {"2025-06-18": {}, "2025-11-25": {"form": {}, "url": {}}}.get(revision)
        assert declared.get("elicitation") == expected

    async def stay(client: Client) -> None:
        pass

    talk_legacy(play, stay, revision, roots=[], on_sample=str, on_elicit=lambda _: None)


@pytest.mark.parametrize(
    ("method", "params", "said"),
    [
        ("tools/list", {}, (-32601, "This client does not know the method 'tools/list'.")),
        ("é" * 99, {}, (-32601, "This client does not know the method '" + "\\xe9" * 80 + "'.")),
        ("roots/list", {}, (-32601, "This client did not declare that it can do roots/list.")),
        (
            "elicitation/create",
            {"message": 7},
            (-32602, "The request cannot be read: Expected `str`, got `int` - at `$.params.message`."),
        ),
        (
            "elicitation/create",
            {"message": "x", "mode": "url"},
            (-32602, "The request cannot be read: An elicitation in url mode needs a 'url'. - at `$.params`."),
        ),
    ],
)
def test_what_cannot_be_answered_is_refused(method: str, params: dict[str, Any], said: tuple[int, str]) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.ask(1, method, **params)
        assert error(await peer.expect_answer(1)) == said
        peer.answer(request, TEXT)

    talk_legacy(play, call, on_elicit=lambda _: None)


def test_what_a_handler_raises_is_told_without_its_details(caplog: pytest.LogCaptureFixture) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.ask(1, "elicitation/create", **QUESTION)
        assert error(await peer.expect_answer(1)) == (-32603, "The client's handler for elicitation/create failed.")
        peer.answer(request, TEXT)

    def on_elicit(_: object) -> None:
        raise ZeroDivisionError("a secret")

    talk_legacy(play, call, on_elicit=on_elicit)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("mcplumb.client", logging.ERROR)
    assert record.exc_info is not None


@pytest.mark.parametrize("data", [None, {"why": "busy"}])
def test_a_handler_may_answer_with_an_error_of_its_own(data: Any) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.ask(1, "sampling/createMessage", messages=[], maxTokens=5)
        answer = await peer.expect_answer(1)
        assert answer["error"] == {"code": -1, "message": "Not now."} | ({} if data is None else {"data": data})
        peer.answer(request, TEXT)

    def on_sample(_: object) -> str:
        raise RequestError(-1, "Not now.", data)

    talk_legacy(play, call, on_sample=on_sample)


@pytest.mark.parametrize("answer", [{"name": object()}, ElicitResult("accept", {"name": ["a"]})])
def test_what_cannot_be_said_is_the_failure_of_its_handler(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.ask(1, "elicitation/create", **QUESTION)
        assert error(await peer.expect_answer(1))[0] == -32603
        peer.answer(request, TEXT)

    talk_legacy(play, call, "2025-06-18", on_elicit=lambda _: answer)
    assert len(caplog.records) == 1


# --- cancelling -----------------------------------------------------------------------------------------------------


def waiting_handler() -> tuple[Any, asyncio.Event, list[str]]:
    """A handler that waits until it is cancelled, the event that says that it waits, and what happened to it."""
    asked, fate = asyncio.Event(), list[str]()

    async def on_elicit(_: object) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            fate.append("cancelled")
            raise

    return on_elicit, asked, fate


@pytest.mark.req("CAN-2", "CAN-4")
def test_the_server_may_cancel_its_question() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.ask(1, "elicitation/create", **QUESTION)
        await asked.wait()
        for request_id in (1, 1, "1", 99):
            peer.notify("notifications/cancelled", requestId=request_id)
        peer.notify("notifications/cancelled", requestId=[])
        await turns()
        assert fate == ["cancelled"]
        peer.ask(2, "ping")
        await peer.expect_answer(2)
        peer.answer(request, TEXT)

    on_elicit, asked, fate = waiting_handler()
    talk_legacy(play, call, on_elicit=on_elicit)


@pytest.mark.req("FRM-8")
def test_an_id_that_is_in_flight_is_refused() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.ask(1, "elicitation/create", **QUESTION)
        peer.ask(1, "ping")
        assert error(await peer.expect_answer(1))[0] == -32600
        peer.answer(request, TEXT)

    on_elicit, _, fate = waiting_handler()
    talk_legacy(play, call, on_elicit=on_elicit)
    assert fate == ["cancelled"], "closing stops what still runs"


def test_a_handler_stops_when_the_connection_is_lost() -> None:
    async def play(peer: Peer) -> None:
        peer.ask(1, "elicitation/create", **QUESTION)
        await asked.wait()
        await peer.leave()

    async def body(client: Client) -> None:
        await client._supervisor.session.over
        await turns()
        assert fate == ["cancelled"]

    on_elicit, asked, fate = waiting_handler()
    talk_legacy(play, body, on_elicit=on_elicit)


# --- floods ---------------------------------------------------------------------------------------------------------


def test_more_questions_than_places_are_refused() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.ask(1, "elicitation/create", **QUESTION)
        peer.ask(2, "elicitation/create", **QUESTION)
        assert error(await peer.expect_answer(2)) == (-32603, "This client is busy with too many requests already.")
        peer.answer(request, TEXT)

    on_elicit, _, _ = waiting_handler()
    talk_legacy(play, call, on_elicit=on_elicit, limits=Limits(max_in_flight=1))


@pytest.mark.req("LIF-10")
def test_a_server_that_asks_and_does_not_read_gets_no_answers_and_costs_no_memory() -> None:
    async def play(peer: Peer) -> None:
        peer.connection.pause()
        await clogged.wait()
        for number in range(100):
            peer.ask(number, "ping")
        peer.send(Request("bad", "ping", [1]))
        await turns()
        peer.connection.resume()
        peer.answer(await peer.expect("tools/call"), TEXT)

    async def body(client: Client) -> None:
        task = asyncio.ensure_future(client.call_tool("x", {"much": "x" * 2_000_000}))
        await turns()
        clogged.set()
        await task
        assert client.stats.dropped == 100
        assert client.stats.messages_out == 3

    clogged = asyncio.Event()
    talk_legacy(play, body)


# --- batches, and what is no message --------------------------------------------------------------------------------


@pytest.mark.req("FRM-10")
def test_the_answers_to_a_batch_come_back_as_one() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.connection.send_batch(
            [
                Request(1, "ping", {}),
                Notification("notifications/message", {"level": "info", "data": "hello"}),
                Request(2, "roots/list", {}),
                Request(3, "tools/list", {}),
            ]
        )
        (*answers,) = (await peer.next())["batch"]
        assert {answer["id"]: "result" in answer for answer in answers} == {1: True, 2: True, 3: False}
        peer.answer(request, TEXT)

    logs: list[Any] = []
    talk_legacy(play, call, "2025-03-26", roots=[], on_log=lambda log: logs.append(log.data))
    assert logs == ["hello"]


@pytest.mark.req("FRM-10", "CAN-2")
def test_a_question_in_a_batch_may_be_cancelled() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.connection.send_batch([Request(1, "sampling/createMessage", SAMPLE), Request(2, "ping", {})])
        peer.connection.send_batch([Request(3, "sampling/createMessage", SAMPLE)])
        await asked.wait()
        peer.notify("notifications/cancelled", requestId=1)
        peer.notify("notifications/cancelled", requestId=3)
        assert [answer["id"] for answer in (await peer.next())["batch"]] == [2]
        peer.answer(request, TEXT)
        await peer.gone()
        assert len(peer.seen) == 4

    on_sample, asked, _ = waiting_handler()
    talk_legacy(play, call, "2025-03-26", on_sample=on_sample)


def test_a_request_of_the_wrong_shape_is_refused() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        peer.send(Request("bad", "ping", [1]))
        assert error(await peer.expect_answer("bad"))[0] == -32600
        peer.answer(request, TEXT)

    talk_legacy(play, call)


@pytest.mark.req("LEG-4")
def test_a_handler_that_is_cancelled_by_itself_is_a_failure() -> None:
    async def play(peer: Peer) -> None:
        request = await peer.expect("tools/call")
        for number in (7, 8):
            peer.ask(number, "roots/list")
            assert error(await peer.expect_answer(number)) == (-32603, "The client's handler for roots/list failed.")
        peer.answer(request, TEXT)

    asked: list[int] = []

    async def roots() -> list[str]:
        asked.append(1)
        if len(asked) > 1:
            await asyncio.sleep(0)
        raise asyncio.CancelledError

    talk_legacy(play, call, roots=roots)
