"""The pool of threads for plain functions."""

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
from mcplumb.rpc.thread_pool import Job, Workers
from tests.kit.loop import PATIENCE, blocking_until

color: ContextVar[str] = ContextVar("color", default="none")


class Errand:
    """A job that says when it starts, waits until it is let go, and keeps what came of it."""

    def __init__(self, function: Callable[..., Any] = lambda: None, *, held: bool = False, **kwargs: Any) -> None:
        self.started = threading.Event()
        self.go = threading.Event()
        self.ended = threading.Event()
        self.outcomes: list[tuple[Any, BaseException | None]] = []
        self.threads: list[threading.Thread] = []
        if not held:
            self.go.set()
        self._function = function
        self.job = Job(self._run, kwargs, self._done, copy_context())

    def _run(self, **kwargs: Any) -> Any:
        self.started.set()
        assert self.go.wait(PATIENCE)
        return self._function(**kwargs)

    def _done(self, value: Any, error: BaseException | None) -> None:
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


def idle(workers: Workers) -> None:
    """Wait until every thread of the pool waits for a job."""
    blocking_until(lambda: workers._idle == workers._threads)


def own_threads(before: set[threading.Thread]) -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("mcplumb-worker")} - before


def test_a_job_runs_in_a_thread_and_tells_what_came_of_it(before: set[threading.Thread]) -> None:
    workers = Workers(2)
    errand = Errand(lambda a, b: a + b, a=1, b=2)
    workers.submit(errand.job)
    errand.wait()
    assert errand.outcomes == [(3, None)]
    assert errand.threads[0].daemon
    assert errand.threads[0] in own_threads(before)
    workers.close()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt(), StopIteration()])
def test_whatever_a_job_raises_is_told(before: set[threading.Thread], error: BaseException) -> None:
    def fail() -> None:
        raise error

    workers = Workers(1)
    for _ in range(2):  # its thread lives on
        errand = Errand(fail)
        workers.submit(errand.job)
        errand.wait()
        assert errand.outcomes == [(None, error)]
    assert len(own_threads(before)) == 1
    workers.close()


def test_a_job_has_context_variables_of_its_own(before: set[threading.Thread]) -> None:
    workers = Workers(1)
    color.set("of the caller")
    first, second = Errand(lambda: color.set("changed")), Errand(color.get)
    for errand in (first, second):
        workers.submit(errand.job)
        errand.wait()
    assert second.outcomes == [("of the caller", None)]
    assert color.get() == "of the caller"
    workers.close()


def test_threads_are_started_when_they_are_needed_and_used_again(before: set[threading.Thread]) -> None:
    workers = Workers(8)
    assert own_threads(before) == set()
    for _ in range(5):
        errand = Errand()
        workers.submit(errand.job)
        errand.wait()
        idle(workers)
    assert len(own_threads(before)) == 1
    held = [Errand(held=True) for _ in range(3)]
    for errand in held:
        workers.submit(errand.job)
    for errand in held:
        assert errand.started.wait(PATIENCE)
    assert len(own_threads(before)) == 3
    for errand in held:
        errand.go.set()
    workers.close()


def test_no_more_than_its_size_run_at_once_and_the_others_wait_in_order(before: set[threading.Thread]) -> None:
    workers = Workers(2)
    order: list[int] = []
    held = [Errand(held=True) for _ in range(2)]
    for errand in held:
        workers.submit(errand.job)
        assert errand.started.wait(PATIENCE)
    waiting = [Errand(partial(order.append, number)) for number in range(100)]
    for errand in waiting:
        workers.submit(errand.job)
    assert not any(errand.started.is_set() for errand in waiting)
    assert len(own_threads(before)) == 2
    held[0].go.set()  # one thread for all that wait
    waiting[-1].wait()
    assert order == list(range(100))
    held[1].go.set()
    workers.close()


@pytest.mark.req("CAN-3")
def test_a_job_abandoned_before_it_starts_never_runs(before: set[threading.Thread]) -> None:
    workers = Workers(1)
    running, abandoned, last = Errand(held=True), Errand(), Errand()
    for errand in (running, abandoned, last):
        workers.submit(errand.job)
    assert running.started.wait(PATIENCE)
    workers.abandon(abandoned.job)
    workers.abandon(abandoned.job)
    running.go.set()
    last.wait()
    assert not abandoned.started.is_set()
    assert abandoned.outcomes == []
    workers.close()


@pytest.mark.req("CAN-3")
def test_a_job_abandoned_while_it_runs_loses_its_place(before: set[threading.Thread]) -> None:
    workers = Workers(1)
    stuck, waiting, later = Errand(held=True), Errand(), Errand()
    workers.submit(stuck.job)
    assert stuck.started.wait(PATIENCE)
    workers.submit(waiting.job)
    assert not waiting.started.is_set()
    workers.abandon(stuck.job)
    waiting.wait()
    workers.submit(later.job)
    later.wait()
    assert len(own_threads(before)) == 2
    stuck.go.set()
    stuck.wait()
    assert stuck.outcomes == [(None, None)]  # it is told all the same
    workers.close()


def test_a_place_is_made_up_for_also_when_nothing_waited(before: set[threading.Thread]) -> None:
    workers = Workers(1)
    stuck, later = Errand(held=True), Errand()
    workers.submit(stuck.job)
    assert stuck.started.wait(PATIENCE)
    workers.abandon(stuck.job)
    assert len(own_threads(before)) == 1
    workers.submit(later.job)
    later.wait()
    stuck.go.set()
    workers.close()


def test_stuck_threads_are_made_up_for_but_not_without_end(before: set[threading.Thread]) -> None:
    workers = Workers(2)
    stuck = [Errand(held=True) for _ in range(4)]
    for errand in stuck:
        workers.submit(errand.job)
    for errand in stuck:
        assert errand.started.wait(PATIENCE)
        workers.abandon(errand.job)
    waiting = Errand()
    workers.submit(waiting.job)
    assert len(own_threads(before)) == 4
    assert not waiting.started.is_set()
    stuck[0].go.set()
    waiting.wait()
    for errand in stuck:
        errand.go.set()
        errand.wait()
    # The pool has shrunk to its size again.
    held = [Errand(held=True) for _ in range(3)]
    for errand in held:
        workers.submit(errand.job)
    assert held[0].started.wait(PATIENCE)
    assert held[1].started.wait(PATIENCE)
    blocking_until(lambda: len(own_threads(before)) == 2)
    assert not held[2].started.is_set()
    for errand in held:
        errand.go.set()
    held[2].wait()
    workers.close()


def test_abandoning_what_has_ended_changes_nothing(before: set[threading.Thread]) -> None:
    workers = Workers(1)
    for _ in range(3):
        errand = Errand()
        workers.submit(errand.job)
        errand.wait()
        idle(workers)
        workers.abandon(errand.job)
    assert len(own_threads(before)) == 1
    workers.close()


def test_closing_drops_what_waits_and_ends_the_threads(before: set[threading.Thread]) -> None:
    workers = Workers(1)
    running, waiting = Errand(held=True), Errand()
    workers.submit(running.job)
    assert running.started.wait(PATIENCE)
    workers.submit(waiting.job)
    workers.close()
    running.go.set()
    running.wait()
    for thread in own_threads(before):
        thread.join(PATIENCE)
    assert own_threads(before) == set()
    assert waiting.outcomes == []


def test_a_closed_pool_can_be_used_again(before: set[threading.Thread]) -> None:
    workers = Workers(1)
    for _ in range(3):
        errand = Errand()
        workers.submit(errand.job)
        errand.wait()
        assert errand.outcomes == [(None, None)]
        workers.close()


def test_an_idle_thread_keeps_nothing_of_its_last_job(before: set[threading.Thread]) -> None:
    class Big:
        pass

    workers = Workers(1)
    big = Big()
    gone = weakref.ref(big)
    errand = Errand(lambda big: None, big=big)
    workers.submit(errand.job)
    errand.wait()
    idle(workers)
    del big, errand
    gc.collect()
    assert gone() is None
    workers.close()


def test_every_job_that_is_wanted_is_done_exactly_once(before: set[threading.Thread]) -> None:
    choose = random.Random(7)
    workers = Workers(3)
    errands = [Errand() for _ in range(2000)]
    abandoned = set()
    for number, errand in enumerate(errands):
        workers.submit(errand.job)
        if choose.random() < 0.3:
            other = choose.randrange(number + 1)
            abandoned.add(other)
            workers.abandon(errands[other].job)
    for number, errand in enumerate(errands):
        if number not in abandoned:
            errand.wait()
            assert errand.outcomes == [(None, None)]
    assert all(len(errands[number].outcomes) <= 1 for number in abandoned)
    assert len(own_threads(before)) <= 6
    workers.close()


@pytest.mark.parametrize("size", [0, -1])
def test_a_pool_has_a_thread_at_least(size: int) -> None:
    with pytest.raises(UsageError, match="at least 1"):
        Workers(size)


def test_a_job_for_which_no_thread_can_start_never_runs(
    before: set[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = Workers(2)
    refused, first, second = Errand(lambda: "refused"), Errand(lambda: "first"), Errand(lambda: "second")

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="no thread left"):
            workers.submit(refused.job)
    gate = threading.Event()
    busy = Errand(lambda: gate.wait(PATIENCE))
    workers.submit(busy.job)
    assert busy.started.wait(PATIENCE)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        # There is a thread that will come to it.
        workers.submit(first.job)
        workers.abandon(busy.job)
    gate.set()
    workers.submit(second.job)
    for errand in (busy, first, second):
        errand.wait()
    assert refused.outcomes == []
    assert [each.outcomes for each in (first, second)] == [[("first", None)], [("second", None)]]
    workers.close()


async def test_a_call_that_is_cancelled_while_it_waits_for_a_thread_is_not_run() -> None:
    workers = Workers(1)
    busy, release, done = threading.Event(), threading.Event(), threading.Event()
    ran: list[str] = []

    def first() -> None:
        busy.set()
        release.wait(PATIENCE)

    one = asyncio.ensure_future(workers.run(first, {}))
    other = asyncio.ensure_future(workers.run(lambda: ran.append("other"), {}))
    await asyncio.to_thread(busy.wait, PATIENCE)
    last = asyncio.ensure_future(workers.run(done.set, {}))
    await asyncio.sleep(0)
    other.cancel()
    # The thread comes to the cancelled call while the loop does not turn, so its task cannot take the call back.
    release.set()
    assert done.wait(PATIENCE)
    assert ran == []
    await asyncio.wait([one, other, last])
    workers.close()
