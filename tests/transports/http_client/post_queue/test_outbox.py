from __future__ import annotations

import asyncio

from mcplumb.transports.http_client.post_queue import Outbox, Post
from mcplumb.wire.messages import Message, Notification, Request, RequestId
from tests.kit.loop import turns


class Nowhere:
    """A binding that nothing goes through."""

    async def exchange(self, post: Post) -> None:
        raise AssertionError

    async def leave(self) -> None:
        raise AssertionError


NOWHERE = Nowhere()


def post(message: Message, size: int = 10) -> Post:
    return Post([message], b"x" * size, NOWHERE)


def call(request_id: RequestId, size: int = 10, method: str = "ping") -> Post:
    return post(Request(request_id, method), size)


class World:
    """An outbox whose posts end when they are told to."""

    def __init__(self) -> None:
        self.begun: list[Post] = []
        self.ends = 0
        self._released = asyncio.Event()
        self.outbox = Outbox(self._carry, self._ended)

    async def _carry(self, post: Post) -> None:
        self.begun.append(post)
        await self._released.wait()

    def _ended(self) -> None:
        self.ends += 1

    async def release(self) -> None:
        """Let those that have begun end."""
        self._released.set()
        self._released = asyncio.Event()
        await turns()


async def test_requests_begin_in_order_and_so_many_at_once() -> None:
    world = World()
    posts = [call(number) for number in range(250)]
    for each in posts:
        world.outbox.put(each)
    await turns()
    assert world.begun == []
    world.outbox.start()
    await turns()
    assert world.begun == posts[:100]
    assert world.outbox.is_waiting
    await world.release()
    assert world.begun == posts[:200]
    assert world.ends == 100
    await world.release()
    await world.release()
    assert world.begun == posts
    assert not world.outbox.is_waiting
    assert not list(world.outbox.tasks)


async def test_lanes_do_not_wait_for_each_other() -> None:
    world = World()
    world.outbox.start()
    for number in range(101):
        world.outbox.put(call(number))
    for number in range(101):
        world.outbox.put(post(Notification(f"notifications/{number}")))
    for number in range(1000, 1150):
        world.outbox.put(call(number, method="subscriptions/listen"))
    await turns()
    lanes = [each.lane for each in world.begun]
    assert {lane: lanes.count(lane) for lane in lanes} == {"calls": 100, "notes": 100, "listens": 150}
    world.outbox.abort()
    await turns()
    assert world.ends == 350


async def test_nothing_begins_while_the_session_is_being_opened() -> None:
    world = World()
    world.outbox.start()
    world.outbox.put(post(Notification("notifications/initialized")))
    world.outbox.put(call(1))
    world.outbox.put(post(Notification("notifications/x")))
    await turns()
    assert len(world.begun) == 1
    await world.release()
    assert len(world.begun) == 3
    world.outbox.abort()
    await turns()


async def test_what_has_not_begun_can_be_taken_back() -> None:
    world = World()
    for number in range(102):
        world.outbox.put(call(number))
    world.outbox.put(Post([Request("a", "ping"), Request("b", "ping")], b"[]", NOWHERE))
    world.outbox.start()
    await turns()
    first, last = world.outbox.find(0), world.outbox.find(101)
    assert first is not None
    assert last is not None
    assert world.outbox.find(102) is None
    assert world.outbox.find("a") is None  # It cannot be given up without the others.
    assert not world.outbox.take_back(first)
    assert world.outbox.take_back(last)
    assert world.outbox.find(101) is None
    assert [each.ids for each in world.outbox.take_all_back()] == [(100,), ("a", "b")]
    await world.release()
    assert len(world.begun) == 100
    assert world.outbox.find(0) is None


async def test_what_was_cancelled_before_its_first_step_has_ended() -> None:
    world = World()
    world.outbox.start()
    one = call(1)
    world.outbox.put(one)
    assert one.task is not None
    one.task.cancel()
    await turns()
    assert world.begun == []
    assert world.ends == 1
    assert one.body.written.is_set()
    assert world.outbox.find(1) is None


async def test_it_is_clogged_by_bytes_until_they_are_taken_back() -> None:
    world = World()
    large = call(1, 2_000_000)
    world.outbox.put(large)
    assert world.outbox.is_clogged
    waiting = asyncio.create_task(world.outbox.drained())
    await turns()
    assert not waiting.done()
    assert world.outbox.take_back(large)
    await waiting
    world.outbox.put(large)
    assert world.outbox.is_clogged
    world.outbox.abort()
    await world.outbox.drained()


async def test_the_notes_are_waited_for() -> None:
    world = World()
    world.outbox.start()
    await world.outbox.notes_gone()
    world.outbox.put(call(1))
    for number in range(150):
        world.outbox.put(post(Notification(f"notifications/{number}")))
    waiting = asyncio.create_task(world.outbox.notes_gone())
    await turns()
    await world.release()
    assert not waiting.done()
    await world.release()
    await waiting
    world.outbox.abort()
    await turns()
