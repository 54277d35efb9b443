from __future__ import annotations

import asyncio
import random

import pytest

from mcplumb.transports.connection import Backpressure, Waiters
from tests.kit.loop import turns


async def test_they_look_again_one_after_the_other() -> None:
    waiters = Waiters(asyncio.get_running_loop())
    is_full = True
    passed: list[str] = []

    async def enter(name: str) -> None:
        nonlocal is_full
        await waiters.wait_while(lambda: is_full)
        passed.append(name)
        is_full = name == "first"

    tasks = [asyncio.create_task(enter(name)) for name in ("first", "second", "third")]
    await asyncio.sleep(0)
    is_full = False
    waiters.wake()
    waiters.wake()
    await tasks[0]
    for _ in range(5):
        await asyncio.sleep(0)
    assert passed == ["first"]
    tasks[1].cancel()
    is_full = False
    waiters.wake()
    await asyncio.wait(tasks)
    assert passed == ["first", "third"]


async def test_who_need_not_wait_does_not() -> None:
    await Waiters(asyncio.get_running_loop()).wait_while(lambda: False)


class Gate:
    """Lets so many through, and then is shut."""

    def __init__(self, *, tells_room: bool = False) -> None:
        self.room = self.looks = 0
        self.waiters = Waiters(asyncio.get_running_loop(), (lambda: self.room) if tells_room else None)
        self.passed: list[int] = []

    def is_shut(self) -> bool:
        self.looks += 1
        return self.room == 0

    async def enter(self, number: int) -> None:
        await self.waiters.wait_while(self.is_shut)
        self.room -= 1
        self.passed.append(number)

    def open(self, room: int) -> None:
        self.room = room
        self.waiters.wake()


def test_how_often_each_looks_does_not_grow_with_how_many_wait() -> None:
    async def main(count: int) -> float:
        gate = Gate()
        tasks = [asyncio.create_task(gate.enter(number)) for number in range(count)]
        await asyncio.sleep(0)
        for _ in range(count):
            gate.open(1)
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert gate.passed == list(range(count))
        return gate.looks / count

    few, many = (asyncio.run(main(count)) for count in (500, 2000))
    assert many < 1.2 * few


async def test_where_the_room_is_known_few_look_in_vain() -> None:
    gate = Gate(tells_room=True)
    tasks = [asyncio.create_task(gate.enter(number)) for number in range(1000)]
    await asyncio.sleep(0)
    for _ in tasks:
        gate.open(1)
        for _ in range(3):
            await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert gate.passed == list(range(1000))
    # Once to begin with, when woken, for the next ones, and the next one in vain.
    assert gate.looks < 4.1 * 1000


@pytest.mark.parametrize("tells_room", [False, True])
async def test_one_wake_is_enough_for_all(tells_room: bool) -> None:
    gate = Gate(tells_room=tells_room)
    tasks = [asyncio.create_task(gate.enter(number)) for number in range(1000)]
    await asyncio.sleep(0)
    gate.open(1000)
    await asyncio.gather(*tasks)
    assert gate.passed == list(range(1000))
    # Once to begin with, once when woken, and the last of each few for the next ones.
    assert gate.looks < 2.1 * 1000


@pytest.mark.parametrize("tells_room", [False, True])
@pytest.mark.parametrize("seed", range(20))
async def test_none_is_forgotten_whoever_is_cancelled(seed: int, tells_room: bool) -> None:
    chance = random.Random(seed)
    gate = Gate(tells_room=tells_room)
    tasks = [asyncio.create_task(gate.enter(number)) for number in range(300)]
    await asyncio.sleep(0)
    while waiting := [task for task in tasks if not task.done()]:
        before, room = len(gate.passed), chance.randrange(1, 150)
        gate.open(room)
        for _ in range(chance.randrange(3)):
            for task in chance.choices(waiting, k=chance.choice((1, 5, 70))):
                task.cancel()
            await asyncio.sleep(0)
        # As many turns as it takes to let each one through.
        for _ in waiting:
            await asyncio.sleep(0)
        assert len(gate.passed) == before + room or all(task.done() for task in tasks)
    assert gate.passed == sorted(gate.passed)


def test_waking_is_allowed_when_the_loop_is_gone() -> None:
    loop = asyncio.new_event_loop()
    waiters = Waiters(loop)
    task = loop.create_task(waiters.wait_while(lambda: True))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    waiters.wake()
    assert not task.done()
    task.get_coro().close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]


class Queue(Backpressure):
    """A queue whose length is set from outside."""

    def rise(self, queued: int) -> None:
        self._rose_to(queued)

    def fall(self, queued: int) -> None:
        self._fell_to(queued)


async def test_a_queue_is_clogged_above_its_high_mark_until_it_falls_to_its_low_one() -> None:
    queue = Queue(asyncio.get_running_loop(), 100)
    queue.rise(100)
    assert not queue.is_clogged
    await queue.drained()
    queue.rise(101)
    assert queue.is_clogged
    waiting = asyncio.create_task(queue.drained())
    queue.fall(26)
    await turns()
    assert queue.is_clogged
    assert not waiting.done()
    queue.fall(25)
    assert not queue.is_clogged
    await waiting
    queue.rise(50)
    assert not queue.is_clogged
