"""The pool of threads for plain functions and callbacks."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

import pytest

from mcplumb.errors import UsageError
from mcplumb.rpc.thread_pool import Job, PoolExhausted, ThreadPool
from tests.kit.loop import PATIENCE, blocking_until

color: ContextVar[str] = ContextVar("color", default="none")


class RecordedJob(Job):
    """A job that says when it starts, waits until it is let go, and keeps what came of it."""

    def __init__(self, function: Callable[..., Any] = lambda: None, *, held: bool = False, **kwargs: Any) -> None:
        self.started = threading.Event()
        self.go = threading.Event()
        self.ended = threading.Event()
        self.outcomes: list[tuple[Any, BaseException | None]] = []
        self.threads: list[threading.Thread] = []
        if not held:
            self.go.set()

        def wait_and_call(**kwargs: Any) -> Any:
            self.started.set()
            assert self.go.wait(PATIENCE)
            return function(**kwargs)

        super().__init__(wait_and_call, kwargs, copy_context())

    def report(self, value: Any, error: BaseException | None) -> None:
        self.threads.append(threading.current_thread())
        self.outcomes.append((value, error))
        self.ended.set()

    def wait(self) -> None:
        assert self.ended.wait(PATIENCE)


@pytest.fixture
def before() -> Iterator[set[threading.Thread]]:
    """The threads of other tests; those of this one have to end."""
    threads = set(threading.enumerate())
    yield threads
    for thread in set(threading.enumerate()) - threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def idle(pool: ThreadPool) -> None:
    """Wait until every thread of the pool waits for a job."""
    blocking_until(lambda: pool._idle == len(pool._threads))


def own_threads(before: set[threading.Thread]) -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("mcplumb-worker")} - before


def test_a_job_runs_in_a_thread_and_tells_what_came_of_it(before: set[threading.Thread]) -> None:
    pool = ThreadPool(2)
    job = RecordedJob(lambda a, b: a + b, a=1, b=2)
    pool.submit(job)
    job.wait()
    assert job.outcomes == [(3, None)]
    assert job.threads[0].daemon
    assert job.threads[0] in own_threads(before)
    pool.close()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), StopIteration()])
def test_whatever_a_job_raises_is_told(before: set[threading.Thread], error: BaseException) -> None:
    def fail() -> None:
        raise error

    pool = ThreadPool(1)
    for _ in range(2):  # its thread lives on
        job = RecordedJob(fail)
        pool.submit(job)
        job.wait()
        assert job.outcomes == [(None, error)]
    assert len(own_threads(before)) == 1
    pool.close()


def test_a_job_has_context_variables_of_its_own(before: set[threading.Thread]) -> None:
    pool = ThreadPool(1)
    color.set("of the caller")
    first, second = RecordedJob(lambda: color.set("changed")), RecordedJob(color.get)
    for job in (first, second):
        pool.submit(job)
        job.wait()
    assert second.outcomes == [("of the caller", None)]
    assert color.get() == "of the caller"
    pool.close()


def test_threads_are_started_when_they_are_needed_and_used_again(before: set[threading.Thread]) -> None:
    pool = ThreadPool(8)
    assert own_threads(before) == set()
    for _ in range(5):
        job = RecordedJob()
        pool.submit(job)
        job.wait()
        idle(pool)
    assert len(own_threads(before)) == 1
    held = [RecordedJob(held=True) for _ in range(3)]
    for job in held:
        pool.submit(job)
    for job in held:
        assert job.started.wait(PATIENCE)
    assert len(own_threads(before)) == 3
    for job in held:
        job.go.set()
    pool.close()


def test_no_more_than_its_size_run_at_once_and_the_others_wait_in_order(before: set[threading.Thread]) -> None:
    pool = ThreadPool(2)
    order: list[int] = []
    held = [RecordedJob(held=True) for _ in range(2)]
    for job in held:
        pool.submit(job)
        assert job.started.wait(PATIENCE)
    waiting = [RecordedJob(partial(order.append, number)) for number in range(100)]
    for job in waiting:
        pool.submit(job)
    assert not any(job.started.is_set() for job in waiting)
    assert len(own_threads(before)) == 2
    held[0].go.set()  # one thread for all that wait
    waiting[-1].wait()
    assert order == list(range(100))
    held[1].go.set()
    pool.close()


@pytest.mark.req("CAN-3")
def test_a_job_abandoned_before_it_starts_never_runs(before: set[threading.Thread]) -> None:
    pool = ThreadPool(1)
    running, abandoned, last = RecordedJob(held=True), RecordedJob(), RecordedJob()
    for job in (running, abandoned, last):
        pool.submit(job)
    assert running.started.wait(PATIENCE)
    pool.abandon(abandoned)
    pool.abandon(abandoned)
    running.go.set()
    last.wait()
    assert not abandoned.started.is_set()
    assert abandoned.outcomes == []
    pool.close()


@pytest.mark.req("CAN-3")
def test_a_job_abandoned_while_it_runs_loses_its_place(before: set[threading.Thread]) -> None:
    pool = ThreadPool(1)
    stuck, waiting, later = RecordedJob(held=True), RecordedJob(), RecordedJob()
    pool.submit(stuck)
    assert stuck.started.wait(PATIENCE)
    pool.submit(waiting)
    assert not waiting.started.is_set()
    pool.abandon(stuck)
    waiting.wait()
    pool.submit(later)
    later.wait()
    assert len(own_threads(before)) == 2
    stuck.go.set()
    stuck.wait()
    assert stuck.outcomes == [(None, None)]  # it is told all the same
    pool.close()


def test_a_place_is_made_up_for_also_when_nothing_waited(before: set[threading.Thread]) -> None:
    pool = ThreadPool(1)
    stuck, later = RecordedJob(held=True), RecordedJob()
    pool.submit(stuck)
    assert stuck.started.wait(PATIENCE)
    pool.abandon(stuck)
    assert len(own_threads(before)) == 1
    pool.submit(later)
    later.wait()
    stuck.go.set()
    pool.close()


def stuck_in(pool: ThreadPool, count: int) -> list[RecordedJob]:
    """Jobs that run and are abandoned, as cancelled calls that do not look whether they are."""
    stuck = [RecordedJob(held=True) for _ in range(count)]
    for job in stuck:
        pool.submit(job)
        assert job.started.wait(PATIENCE)
        pool.abandon(job)
    return stuck


def free(jobs: list[RecordedJob]) -> None:
    for job in jobs:
        job.go.set()
        job.wait()


@pytest.mark.req("CAN-3")
def test_stuck_threads_are_made_up_for_and_the_pool_shrinks_again(before: set[threading.Thread]) -> None:
    pool = ThreadPool(2)
    stuck = stuck_in(pool, 8)
    together = [RecordedJob(held=True) for _ in range(2)]
    for job in together:
        pool.submit(job)
        assert job.started.wait(PATIENCE)  # its full size, although more than twice as many are stuck
    assert len(own_threads(before)) == 10
    free(stuck)
    free(together)
    held = [RecordedJob(held=True) for _ in range(3)]
    for job in held:
        pool.submit(job)
    assert held[0].started.wait(PATIENCE)
    assert held[1].started.wait(PATIENCE)
    blocking_until(lambda: len(own_threads(before)) == 2)
    assert not held[2].started.is_set()
    free(held)
    pool.close()


@pytest.mark.req("CAN-3")
def test_a_pool_with_only_stuck_threads_refuses_at_once_and_says_how_many(before: set[threading.Thread]) -> None:
    pool = ThreadPool(1, 3)
    stuck = stuck_in(pool, 2)
    last, waiting = RecordedJob(held=True), RecordedJob()
    pool.submit(last)
    assert last.started.wait(PATIENCE)
    pool.submit(waiting)
    pool.abandon(last)  # now nothing can run what waits
    waiting.wait()
    ((value, error),) = waiting.outcomes
    assert value is None
    assert isinstance(error, PoolExhausted)
    assert not waiting.started.is_set()
    with pytest.raises(PoolExhausted, match="3 cancelled calls still run"):
        pool.submit(RecordedJob())
    assert len(own_threads(before)) == 3
    free(stuck[:1])
    blocking_until(lambda: pool._stuck == 2)
    again = RecordedJob()
    pool.submit(again)
    again.wait()
    free([*stuck[1:], last])
    pool.close()


def test_closing_can_wait_for_the_idle_threads_but_not_for_the_busy_ones(before: set[threading.Thread]) -> None:
    pool = ThreadPool(2)
    busy, quick = RecordedJob(held=True), RecordedJob()
    for job in (busy, quick):
        pool.submit(job)
    quick.wait()
    blocking_until(lambda: pool._idle == 1)
    pool.close(PATIENCE)
    assert len(own_threads(before)) == 1
    free([busy])


def test_abandoning_what_has_ended_changes_nothing(before: set[threading.Thread]) -> None:
    pool = ThreadPool(1)
    for _ in range(3):
        job = RecordedJob()
        pool.submit(job)
        job.wait()
        idle(pool)
        pool.abandon(job)
    assert len(own_threads(before)) == 1
    pool.close()


def test_closing_drops_what_waits_and_ends_the_threads(before: set[threading.Thread]) -> None:
    pool = ThreadPool(1)
    running, waiting = RecordedJob(held=True), RecordedJob()
    pool.submit(running)
    assert running.started.wait(PATIENCE)
    pool.submit(waiting)
    pool.close()
    running.go.set()
    running.wait()
    for thread in own_threads(before):
        thread.join(PATIENCE)
    assert own_threads(before) == set()
    assert waiting.outcomes == []


def test_a_closed_pool_can_be_used_again(before: set[threading.Thread]) -> None:
    pool = ThreadPool(1)
    for _ in range(3):
        job = RecordedJob()
        pool.submit(job)
        job.wait()
        assert job.outcomes == [(None, None)]
        pool.close()


def test_an_idle_thread_keeps_nothing_of_its_last_job(before: set[threading.Thread]) -> None:
    class Big:
        pass

    pool = ThreadPool(1)
    big = Big()
    gone = weakref.ref(big)
    job = RecordedJob(lambda big: None, big=big)
    pool.submit(job)
    job.wait()
    idle(pool)
    del big, job
    gc.collect()
    assert gone() is None
    pool.close()


def test_every_job_that_is_wanted_is_done_exactly_once(before: set[threading.Thread]) -> None:
    choose = random.Random(7)
    pool = ThreadPool(3)
    jobs = [RecordedJob() for _ in range(2000)]
    abandoned = set()
    for number, job in enumerate(jobs):
        pool.submit(job)
        if choose.random() < 0.3:
            other = choose.randrange(number + 1)
            abandoned.add(other)
            pool.abandon(jobs[other])
    for number, job in enumerate(jobs):
        if number not in abandoned:
            job.wait()
            assert job.outcomes == [(None, None)]
    assert all(len(jobs[number].outcomes) <= 1 for number in abandoned)
    assert len(own_threads(before)) <= 24
    pool.close()


@pytest.mark.parametrize("size", [0, -1])
def test_a_pool_has_a_thread_at_least(size: int) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        ThreadPool(size)


def test_a_pool_may_have_as_many_threads_as_its_size() -> None:
    with pytest.raises(UsageError, match="max_threads is 3: it must be at least the number of threads, which is 4"):
        ThreadPool(4, 3)


def test_a_job_for_which_no_thread_can_start_never_runs(
    before: set[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = ThreadPool(2)
    refused, first, second = RecordedJob(lambda: "refused"), RecordedJob(lambda: "first"), RecordedJob(lambda: "second")

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="no thread left"):
            pool.submit(refused)
    gate = threading.Event()
    busy = RecordedJob(lambda: gate.wait(PATIENCE))
    pool.submit(busy)
    assert busy.started.wait(PATIENCE)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        # There is a thread that will come to it.
        pool.submit(first)
        pool.abandon(busy)
    gate.set()
    pool.submit(second)
    for job in (busy, first, second):
        job.wait()
    assert refused.outcomes == []
    assert [each.outcomes for each in (first, second)] == [[("first", None)], [("second", None)]]
    pool.close()


async def test_a_call_that_is_cancelled_while_it_waits_for_a_thread_is_not_run() -> None:
    pool = ThreadPool(1)
    busy, release, done = threading.Event(), threading.Event(), threading.Event()
    ran: list[str] = []

    def first() -> None:
        busy.set()
        release.wait(PATIENCE)

    one = asyncio.ensure_future(pool.run(first, {}))
    other = asyncio.ensure_future(pool.run(lambda: ran.append("other"), {}))
    await asyncio.to_thread(busy.wait, PATIENCE)
    last = asyncio.ensure_future(pool.run(done.set, {}))
    await asyncio.sleep(0)
    other.cancel()
    # The thread comes to the cancelled call while the loop does not turn, so its task cannot take the call back.
    release.set()
    assert done.wait(PATIENCE)
    assert ran == []
    await asyncio.wait([one, other, last])
    pool.close()


async def test_a_call_gives_the_value_or_raises_what_the_function_raised() -> None:
    pool = ThreadPool(1)
    assert await pool.call(max, 1, 2) == 2
    with pytest.raises(KeyError, match="why"):
        await pool.call({}.__getitem__, "why")
    for function, name in ((iter(()).__next__, "StopIteration"), (exit, "SystemExit")):
        with pytest.raises(RuntimeError, match=f"The function raised {name}"):
            await pool.call(function)
    pool.close()
