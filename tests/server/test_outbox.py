"""The sending side of a connection: nothing is lost, and who does not read is not read."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from mcplumb.errors import EncodeError
from mcplumb.protocol.in_flight import BatchAnswers
from mcplumb.server.outbox import Outbox
from mcplumb.transports.connection import Connection
from mcplumb.transports.memory import memory_pair
from mcplumb.wire.messages import Error, ErrorDetail, Notification, Request, Result
from tests.kit.loop import run, turns
from tests.transports.ends import Recorder

LARGE = "x" * 100_000
UNWRITABLE = "The server's answer cannot be written as JSON."


class Ends:
    """An outbox on one end of a connection, and recorders on both."""

    def __init__(self) -> None:
        self.client, self.server = memory_pair()
        self.came, self.heard = Recorder(), Recorder()
        self.client.start(self.came)
        self.server.start(self.heard)
        self.outbox = Outbox(self.server, asyncio.get_running_loop())

    async def next(self, count: int) -> list[Any]:
        """Everything that came, which has to be so many messages."""
        await self.came.until_count(count)
        return [msgspec.json.decode(msgspec.json.encode(item)) for item in self.came.items]

    def clog(self) -> None:
        """The client reads nothing any more."""
        self.client.pause()
        while not self.server.is_clogged:
            self.server.send(Notification("large", {"text": LARGE}))

    def close(self) -> None:
        self.outbox.close()
        self.client.abort()
        self.server.abort()


async def is_heard(ends: Ends) -> bool:
    """Whether the server's end still reads."""
    before = len(ends.heard.items)
    ends.client.send(Notification("hello"))
    await turns()
    return len(ends.heard.items) > before


async def test_messages_go_out_in_order() -> None:
    ends = Ends()
    ends.outbox.send(Notification("one"))
    ends.outbox.deliver(Result(1, {}), None)
    ends.outbox.deliver_now(Error(2, ErrorDetail(-1, "no")), None)
    assert [each.get("method", each.get("id")) for each in await ends.next(3)] == ["one", 1, 2]
    ends.close()


@pytest.mark.parametrize(
    "response",
    [
        Result(1, {"bad": object()}),
        Result(1, {"text": "\ud800"}),
        Error(1, ErrorDetail(-32000, "No.", {"bad": object()})),
        Error(1, ErrorDetail(-32000, "\ud800")),
    ],
)
@pytest.mark.parametrize("in_batch", [False, True])
def test_a_response_that_cannot_be_written_becomes_an_error(
    response: Result | Error, in_batch: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        ends = Ends()
        ends.outbox.deliver(response, BatchAnswers(1) if in_batch else None)
        (answer,) = await ends.next(1)
        answer = answer["items"][0] if in_batch else answer
        assert (answer["id"], answer["error"]) == (1, {"code": -32603, "message": UNWRITABLE})
        ends.close()

    run(main())
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "cannot be written as JSON" in caplog.text


def test_a_notification_that_cannot_be_written_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        ends = Ends()
        ends.outbox.send(Notification("bad", {"bad": object()}))
        ends.outbox.send(Notification("good"))
        assert [each["method"] for each in await ends.next(1)] == ["good"]
        ends.close()

    run(main())
    assert "notification 'bad' cannot be written" in caplog.text


def test_a_request_that_cannot_be_written_is_the_asker_s_fault(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        ends = Ends()
        with pytest.raises(EncodeError):
            ends.outbox.send(Request(1, "ask", {"bad": object()}))
        ends.close()

    run(main())
    assert caplog.records == []


async def test_a_batch_goes_out_when_it_is_complete() -> None:
    ends = Ends()
    batch = BatchAnswers(3)
    ends.outbox.deliver(Result(1, {}), batch)
    ends.outbox.skip(batch)
    ends.outbox.skip(None)
    await turns()
    assert ends.came.items == []
    ends.outbox.deliver_now(Result(3, {}), batch)
    (answers,) = await ends.next(1)
    assert [each["id"] for each in answers["items"]] == [1, 3]
    ends.close()


async def test_a_batch_without_answers_is_not_sent() -> None:
    ends = Ends()
    batch = BatchAnswers(1)
    ends.outbox.skip(batch)
    ends.outbox.send(Notification("next"))
    assert [each["method"] for each in await ends.next(1)] == ["next"]
    ends.close()


# Reading


async def test_reading_stops_until_no_reason_is_left() -> None:
    ends = Ends()
    assert await is_heard(ends)
    ends.outbox.pause("one")
    ends.outbox.pause("two")
    ends.outbox.pause("one")
    assert not await is_heard(ends)
    ends.outbox.unpause("one")
    ends.outbox.unpause("three")
    assert not await is_heard(ends)
    ends.outbox.unpause("two")
    assert await is_heard(ends)
    ends.outbox.unpause("two")
    assert await is_heard(ends)
    ends.close()


async def test_who_does_not_read_is_not_read() -> None:
    ends = Ends()
    ends.outbox.deliver_now(Result(0, {}), None)
    assert await is_heard(ends)
    ends.clog()
    ends.outbox.deliver(Result(1, {}), None)
    assert await is_heard(ends)  # what took work is no reason
    for number in range(2, 5):
        ends.outbox.deliver_now(Result(number, {}), None)
    assert not await is_heard(ends)
    ends.client.resume()
    await ends.came.until(lambda: isinstance(ends.came.items[-1], Result) and ends.came.items[-1].id == 4)
    assert await is_heard(ends)
    ids = [item.id for item in ends.came.items if isinstance(item, Result)]
    assert ids == [0, 1, 2, 3, 4]
    ends.close()


async def test_another_clog_stops_it_again() -> None:
    ends = Ends()
    for _ in range(3):
        ends.clog()
        ends.outbox.deliver_now(Result(1, {}), None)
        assert not await is_heard(ends)
        ends.client.resume()
        await ends.server.drained()
        assert await is_heard(ends)
    ends.close()


async def test_closing_leaves_nothing_waiting() -> None:
    ends = Ends()
    ends.clog()
    ends.outbox.deliver_now(Result(1, {}), None)
    ends.outbox.close()
    ends.close()


async def test_it_can_be_used_on_any_connection() -> None:
    """Also on one that is closed: then nothing happens."""

    ends = Ends()
    connection: Connection = ends.server
    connection.abort()
    ends.outbox.deliver_now(Result(1, {}), None)
    ends.outbox.pause("x")
    ends.outbox.unpause("x")
    await turns()
    assert ends.came.items == []
    ends.close()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcplumb")
