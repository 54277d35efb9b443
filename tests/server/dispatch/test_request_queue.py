"""The requests that wait: in their order, within their bound, and what that does to the reading."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mcplumb.protocol.in_flight import BatchAnswers
from mcplumb.server.dispatch.request_queue import Asked, Waiting
from mcplumb.wire.messages import Request


class Reading:
    """Takes the place of an outbox, and knows whether the client is read."""

    def __init__(self) -> None:
        self.pauses: set[str] = set()

    def pause(self, reason: str) -> None:
        self.pauses.add(reason)

    def unpause(self, reason: str) -> None:
        self.pauses.discard(reason)


class World:
    def __init__(self, most: int) -> None:
        self.reading = Reading()
        #: The questions that the client has not answered.
        self.questions: list[str] = []
        self.incoming = SimpleNamespace(is_full=True)
        self.begun: list[Any] = []
        outbox: Any = self.reading
        inquiries: Any = self.questions
        self.waiting = Waiting(outbox, inquiries, most)

    def hold(self, number: int, batch: BatchAnswers | None = None) -> bool:
        anything: Any = None
        return self.waiting.hold(Asked(Request(number, "tools/call"), anything, None, anything, batch))

    def release(self, room: int, *, ends_at_once: bool = False) -> None:
        incoming: Any = self.incoming

        def begin(request: Request, *_: Any) -> None:
            self.begun.append(request.id)
            incoming.is_full = len(self.begun) >= most
            if ends_at_once:
                self.waiting.release(incoming, begin)

        most = len(self.begun) + room
        incoming.is_full = room == 0
        self.waiting.release(incoming, begin)


def test_they_begin_in_the_order_they_came_as_there_is_room() -> None:
    world = World(10)
    assert all(world.hold(number) for number in (3, 1, 2, 5, 4))
    world.release(0)
    assert world.begun == []
    world.release(2)
    assert world.begun == [3, 1]
    del world.waiting[2]
    world.release(9)
    assert world.begun == [3, 1, 5, 4]
    assert not world.waiting


def test_thousands_that_end_at_once_need_no_deep_stack() -> None:
    world = World(5000)
    assert all(world.hold(number) for number in range(5000))
    world.release(5000, ends_at_once=True)
    assert world.begun == list(range(5000))


def test_nothing_is_read_while_no_more_can_wait() -> None:
    world = World(2)
    assert world.hold(1)
    assert world.reading.pauses == set()
    assert world.hold(2)
    assert world.reading.pauses == {"full"}
    assert not world.hold(3)
    assert list(world.waiting) == [1, 2]
    world.release(1)
    assert world.reading.pauses == set()
    assert world.hold(3)
    assert world.reading.pauses == {"full"}


def test_a_batch_may_wait_as_a_whole() -> None:
    world = World(1)
    batch = BatchAnswers(3)
    assert all(world.hold(number, batch) for number in range(3))
    assert world.reading.pauses == {"full"}


@pytest.mark.parametrize("batch", [None, BatchAnswers(1)])
def test_whoever_waits_for_an_answer_goes_on_reading_and_takes_no_more(batch: BatchAnswers | None) -> None:
    world = World(1)
    world.questions.append("What is your name?")
    assert world.hold(1)
    assert world.reading.pauses == set()
    assert not world.hold(2, batch)
    world.questions.clear()
    world.waiting.pause_if_full()
    assert world.reading.pauses == {"full"}
