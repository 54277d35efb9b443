"""Jobs that a task awaits, in whatever thread they run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from mcplumb.rpc.thread_pool import AwaitedJob, value_of
from tests.kit.loop import PATIENCE
from tests.sync.world import wait_until

variable: ContextVar[str] = ContextVar("variable", default="unset")


def answer_of(function: Callable[..., Any], *arguments: Any, run: Callable[[AwaitedJob], Any] = AwaitedJob.run) -> Any:
    """What comes of a job that another thread runs."""

    async def main() -> Any:
        job = AwaitedJob(partial(function, *arguments), {})
        threading.Thread(target=run, args=(job,), daemon=True).start()
        return value_of(await asyncio.wait_for(job.future, PATIENCE))

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

    def run(job: AwaitedJob) -> None:
        try:
            job.run()
        except SystemExit as error:
            raised.append(error)

    with pytest.raises(RuntimeError, match="The function raised SystemExit"):
        answer_of(exit, 3, run=run)
    wait_until(lambda: raised)


def test_a_job_sees_the_variables_of_who_made_it() -> None:
    async def main() -> Any:
        variable.set("mine")
        job = AwaitedJob(variable.get, {})
        threading.Thread(target=job.run, daemon=True).start()
        return value_of(await asyncio.wait_for(job.future, PATIENCE))

    assert asyncio.run(main()) == "mine"


def test_a_job_that_nobody_waits_for_is_not_run() -> None:
    ran: list[int] = []

    async def main() -> None:
        job = AwaitedJob(partial(ran.append, 1), {})
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

    job = AwaitedJob(slow, {})
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
        answer_of(print, run=AwaitedJob.cancel)


def test_a_job_may_end_after_its_loop() -> None:
    async def main() -> AwaitedJob:
        return AwaitedJob(lambda: 1, {})

    asyncio.run(main()).run()
