from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from mcplumb.errors import UsageError
from mcplumb.sync import callback_threads
from mcplumb.sync.callback_threads import CallbackJob, CallbackThreads
from tests.kit.loop import PATIENCE
from tests.sync.world import wait_until

variable: ContextVar[str] = ContextVar("variable", default="unset")


def answer_of(
    function: Callable[..., Any], *arguments: Any, run: Callable[[CallbackJob], Any] = CallbackJob.run
) -> Any:
    """What comes of a job that another thread runs."""

    async def main() -> Any:
        job = CallbackJob(function, arguments)
        threading.Thread(target=run, args=(job,), daemon=True).start()
        return await asyncio.wait_for(job.future, PATIENCE)

    return asyncio.run(main())


def test_a_job_gives_what_its_function_returns() -> None:
    assert answer_of(lambda a, b: (a, b, threading.current_thread() is threading.main_thread()), 1, 2) == (1, 2, False)


def test_a_job_gives_what_its_function_raises() -> None:
    with pytest.raises(KeyError, match="why"):
        answer_of({}.__getitem__, "why")


def test_a_function_that_raises_what_a_future_cannot_hold_is_heard_of() -> None:
    with pytest.raises(RuntimeError, match="The function raised StopIteration"):
        answer_of(iter(()).__next__)


def test_what_must_not_be_caught_is_raised_where_the_function_ran_and_told_to_who_waits() -> None:
    raised: list[BaseException] = []

    def run(job: CallbackJob) -> None:
        try:
            job.run()
        except SystemExit as error:
            raised.append(error)

    with pytest.raises(RuntimeError, match="The function raised SystemExit"):
        answer_of(exit, 3, run=run)
    wait_until(lambda: raised)


async def later() -> None: ...


def test_a_function_that_gives_something_to_await_is_refused() -> None:
    with pytest.raises(UsageError, match="returned an awaitable"):
        answer_of(later)
    with pytest.raises(UsageError, match="returned an awaitable"):
        answer_of(Future)


class Future:
    """Not a coroutine, but nothing for a blocking client either."""

    def __await__(self) -> Any: ...


def test_a_job_sees_the_variables_of_who_made_it() -> None:
    async def main() -> Any:
        variable.set("mine")
        job = CallbackJob(variable.get, ())
        threading.Thread(target=job.run, daemon=True).start()
        return await asyncio.wait_for(job.future, PATIENCE)

    assert asyncio.run(main()) == "mine"


def test_a_job_that_nobody_waits_for_is_not_run() -> None:
    ran: list[int] = []

    async def main() -> None:
        job = CallbackJob(ran.append, (1,))
        job.future.cancel()
        job.run()

    asyncio.run(main())
    assert ran == []


@pytest.mark.parametrize("function", [lambda: 1, lambda: 1 / 0])
async def test_a_job_may_end_after_it_was_given_up(function: Callable[[], Any]) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow() -> Any:
        began.set()
        assert go_on.wait(PATIENCE)
        return function()

    job = CallbackJob(slow, ())
    thread = threading.Thread(target=job.run, daemon=True)
    thread.start()
    assert await asyncio.to_thread(began.wait, PATIENCE)
    job.future.cancel()
    go_on.set()
    await asyncio.to_thread(thread.join, PATIENCE)
    await asyncio.sleep(0)
    assert job.future.cancelled()


def test_a_job_that_is_dropped_is_cancelled() -> None:
    with pytest.raises(asyncio.CancelledError):
        answer_of(print, run=CallbackJob.cancel)


def test_a_job_may_end_after_its_loop() -> None:
    async def main() -> CallbackJob:
        return CallbackJob(lambda: 1, ())

    asyncio.run(main()).run()


def submitted(workers: CallbackThreads, function: Callable[..., Any], *arguments: Any) -> CallbackJob:
    job = CallbackJob(function, arguments)
    assert workers.submit(job)
    return job


async def test_workers_run_jobs_at_once_and_are_used_again() -> None:
    workers = CallbackThreads()
    meeting = threading.Barrier(3, timeout=PATIENCE)
    for _ in range(2):
        together = [submitted(workers, meeting.wait) for _ in range(3)]
        await asyncio.wait_for(asyncio.gather(*(job.future for job in together)), PATIENCE)
        wait_until(lambda: not workers._jobs)
    names = {await submitted(workers, threading.get_ident).future for _ in range(10)}
    assert len(workers._threads) == 3
    assert names <= {thread.ident for thread in workers._threads}
    threads = set(workers._threads)
    workers.close()
    wait_until(lambda: not any(thread.is_alive() for thread in threads))


async def test_workers_are_bounded_and_what_is_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback_threads, "_MAX_THREADS", 2)

    workers = CallbackThreads()
    go_on = threading.Event()
    busy = [submitted(workers, go_on.wait, PATIENCE) for _ in range(2)]
    later = submitted(workers, len, workers._threads)
    assert len(workers._threads) == 2
    go_on.set()
    assert await asyncio.wait_for(later.future, PATIENCE) == 2
    await asyncio.gather(*(job.future for job in busy))
    workers.close()


async def test_workers_that_have_something_to_do_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback_threads, "_SHUTDOWN_TIMEOUT", PATIENCE)

    workers = CallbackThreads()
    go_on = threading.Event()
    meeting = threading.Barrier(2, timeout=PATIENCE)
    await asyncio.gather(*(submitted(workers, meeting.wait).future for _ in range(2)))
    wait_until(lambda: not workers._jobs)
    busy = submitted(workers, go_on.wait, PATIENCE)
    workers.close()
    (thread,) = workers._threads
    go_on.set()
    assert await busy.future
    await asyncio.to_thread(thread.join, PATIENCE)
    assert not workers._threads


async def test_a_worker_outlives_what_its_job_raises() -> None:
    workers = CallbackThreads()
    with pytest.raises(RuntimeError, match="SystemExit"):
        await submitted(workers, exit).future
    wait_until(lambda: not workers._jobs)
    (thread,) = workers._threads
    assert await submitted(workers, threading.get_ident).future == thread.ident
    workers.close()


def wait_in(busy: threading.Event, go_on: threading.Event) -> None:
    busy.set()
    assert go_on.wait(PATIENCE)


def no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't create new thread at interpreter shutdown")


async def test_without_any_thread_a_job_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = CallbackThreads()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        assert not workers.submit(CallbackJob(print, ()))
    busy, go_on = threading.Event(), threading.Event()
    first = submitted(workers, wait_in, busy, go_on)
    assert await asyncio.to_thread(busy.wait, PATIENCE)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        second = submitted(workers, str, "waits for the one there is")
    go_on.set()
    assert await asyncio.wait_for(second.future, PATIENCE)
    await first.future
    workers.close()
