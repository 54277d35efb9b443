from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from queue import Empty
from typing import Any

import pytest

from mcplumb.errors import Closed, UsageError
from mcplumb.sync import loop_thread as engines
from mcplumb.sync.loop_thread import DrivenEngine, Engine, ThreadEngine, start_engine
from tests.kit.loop import PATIENCE
from tests.sync.callback_threads.test_jobs import no_thread
from tests.sync.world import in_threads, own_threads, wait_until

variable: ContextVar[str] = ContextVar("variable", default="unset")


@pytest.fixture(params=[ThreadEngine, DrivenEngine])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Each kind of engine must do the same."""
    made: Engine = request.param(asyncio.new_event_loop())
    yield made
    if not made.loop.is_closed():
        made.end()
    wait_until(lambda: not own_threads())


class Hanging:
    """A coroutine that tells when it hangs, and when it was cancelled."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.cancelled = threading.Event()

    async def __call__(self) -> None:
        self.begun.set()
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


async def give(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


async def fail(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


def test_an_errand_gives_what_its_coroutine_returns(engine: Engine) -> None:
    assert engine.errand().run(give(5)) == 5
    assert engine.errand().run(give(None)) is None


def test_an_errand_raises_what_its_coroutine_does_with_where_that_was(engine: Engine) -> None:
    with pytest.raises(KeyError) as caught:
        engine.errand().run(fail(KeyError("why")))
    names = [entry.name for entry in caught.traceback]
    assert (names[0], names[-1]) == ("test_an_errand_raises_what_its_coroutine_does_with_where_that_was", "fail")


def test_a_coroutine_sees_the_variables_of_who_waits(engine: Engine) -> None:
    variable.set("mine")

    async def look() -> str:
        return variable.get()

    assert engine.errand().run(look()) == "mine"


def test_errands_of_several_threads_run_at_once(engine: Engine) -> None:
    meeting: list[asyncio.Future[None]] = []

    async def meet() -> None:
        place = asyncio.get_running_loop().create_future()
        meeting.append(place)
        if len(meeting) == 5:
            for each in meeting:
                each.set_result(None)
        await place

    in_threads(*[lambda: engine.errand().run(meet())] * 5)


def test_who_waits_in_the_loop_itself_is_told_not_to(engine: Engine) -> None:
    async def wait() -> None:
        engine.errand()

    with pytest.raises(UsageError, match="in the thread that does its work"):
        engine.errand().run(wait())


def test_it_works_in_a_thread_that_has_a_running_loop(engine: Engine) -> None:
    async def notebook() -> Any:
        if isinstance(engine, DrivenEngine):
            # An interpreter that shuts down runs no other loop.
            return await asyncio.to_thread(engine.errand().run, give(5))
        return engine.errand().run(give(5))

    assert asyncio.run(notebook()) == 5


def test_after_a_fork_it_says_whose_it_is(engine: Engine) -> None:
    assert not engine.is_foreign
    engine._pid -= 1
    assert engine.is_foreign
    with pytest.raises(UsageError, match=f"belongs to the process {engine._pid}, from which this one was forked"):
        engine.errand()


# Jobs


def test_the_thread_that_waits_is_given_something_to_do(engine: Engine) -> None:
    errand = engine.errand()

    async def ask() -> Any:
        return [await errand.have_done(threading.get_ident) for _ in range(3)]

    assert errand.run(ask()) == [threading.get_ident()] * 3


def test_what_it_is_given_may_use_the_engine_again(engine: Engine) -> None:
    errand = engine.errand()

    async def ask() -> Any:
        return await errand.have_done(lambda: engine.errand().run(give("deep")))

    assert errand.run(ask()) == "deep"


def test_another_thread_is_given_something_to_do(engine: Engine) -> None:
    async def ask() -> Any:
        there = await engine.have_done(threading.get_ident)
        return there, await engine.have_done(lambda: engine.errand().run(give("deep")))

    there, answer = engine.errand().run(ask())
    assert there not in (threading.get_ident(), getattr(engine, "_thread", threading.current_thread()).ident)
    assert answer == "deep"


def test_without_threads_the_last_one_that_waits_does_it(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", no_thread)

    async def ask(depth: int) -> Any:
        if depth:
            return await engine.have_done(lambda: engine.errand().run(ask(depth - 1)))
        return await engine.have_done(threading.get_ident)

    assert engine.errand().run(ask(3)) == threading.get_ident()


def test_without_threads_and_without_anyone_who_waits_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ThreadEngine(asyncio.new_event_loop())
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    asked = asyncio.run_coroutine_threadsafe(engine.have_done(print), engine.loop)
    with pytest.raises(RuntimeError, match="no thread to call a function in"):
        asked.result(PATIENCE)
    engine.end()


# Interruptions


def interrupt(begun: threading.Event) -> None:
    assert begun.wait(PATIENCE)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.req("CAN-1")
def test_a_thread_that_is_interrupted_cancels_what_it_waited_for() -> None:
    engine = ThreadEngine(asyncio.new_event_loop())
    hanging = Hanging()
    thread = threading.Thread(target=interrupt, args=(hanging.begun,))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        engine.errand().run(hanging())
    assert hanging.cancelled.is_set()
    thread.join()
    assert engine.errand().run(give("goes on")) == "goes on"
    engine.end()


def test_a_thread_that_waits_looks_up_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_NAP", 0.001)
    engine = ThreadEngine(asyncio.new_event_loop())
    assert engine.errand().run(asyncio.sleep(0.02, "slow")) == "slow"
    engine.end()


def test_a_function_that_raises_more_than_an_error_interrupts_who_waits(engine: Engine) -> None:
    errand = engine.errand()
    ended = threading.Event()

    async def ask() -> None:
        try:
            await asyncio.gather(errand.have_done(exit, 3), errand.have_done(print, "is dropped"))
        except (RuntimeError, asyncio.CancelledError):
            ended.set()
            raise

    with pytest.raises(SystemExit):
        errand.run(ask())
    assert ended.is_set()


def test_what_brings_no_news_for_too_long_is_given_up(engine: Engine) -> None:
    with pytest.raises(Empty):
        engine.errand().run(asyncio.sleep(PATIENCE), within=0.01)
    assert engine.errand().run(give("goes on")) == "goes on"
    wait_until(lambda: not engine.waiting)


def test_what_does_not_let_itself_be_cancelled_is_left_alone(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_SHORTLY", 0.01)
    stay = threading.Event()

    async def stubborn() -> None:
        while not stay.is_set():
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                continue

    with pytest.raises(Empty):
        engine.errand().run(stubborn(), within=0.01)
    stay.set()
    assert engine.errand().run(give("goes on")) == "goes on"


def test_an_interruption_may_come_before_the_coroutine_is_begun(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    errand = engine.errand()
    post = engine.post

    def interrupted(function: Callable[..., Any], *arguments: Any) -> None:
        monkeypatch.setattr(engine, "post", post)
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "post", interrupted)
    with pytest.raises(KeyboardInterrupt):
        errand.run(give("never begun"))


def test_an_interruption_may_come_after_the_end(engine: Engine) -> None:
    errand = engine.errand()

    def end() -> None:
        engine.end()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        errand.run(errand.have_done(end))


# Endings


def test_an_engine_that_has_ended_takes_no_errands(engine: Engine) -> None:
    errand = engine.errand()
    engine.end()
    with pytest.raises(Closed):
        errand.run(give("never begun"))
    assert engine.loop.is_closed()


def test_whoever_waits_when_it_ends_is_told(engine: Engine) -> None:
    hanging = Hanging()

    def wait() -> None:
        with pytest.raises(Closed, match="The client was closed"):
            engine.errand().run(hanging())

    def end() -> None:
        assert hanging.begun.wait(PATIENCE)
        engine.end()

    in_threads(wait, wait, end)
    assert hanging.cancelled.is_set()


def test_whoever_waits_for_what_does_not_end_is_told_as_well(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_PATIENCE", 0.5)
    begun = threading.Event()
    tasks = []

    async def stubborn() -> None:
        tasks.append(asyncio.current_task())
        begun.set()
        while True:
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                continue

    def wait() -> None:
        with pytest.raises(Closed, match="The client was closed"):
            engine.errand().run(stubborn())

    def end() -> None:
        assert begun.wait(PATIENCE)
        engine.end()

    in_threads(wait, end)
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[union-attr]


def test_a_loop_that_is_blocked_is_left_behind(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engines, "_PATIENCE", 0.01)
    begun, go_on = threading.Event(), threading.Event()

    async def block() -> None:
        begun.set()
        go_on.wait(PATIENCE)

    def wait() -> None:
        engine.errand().run(block())

    def end() -> None:
        assert begun.wait(PATIENCE)
        engine.end()
        assert not engine.loop.is_closed()
        go_on.set()

    in_threads(wait, end)
    assert "Something blocks the event loop" in caplog.text
    if isinstance(engine, DrivenEngine):
        engine.loop.close()
    wait_until(engine.loop.is_closed)


def test_a_task_that_wants_to_end_everything_ends_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mcplumb.sync")
    engine = ThreadEngine(asyncio.new_event_loop())
    with pytest.raises(SystemExit):
        engine.errand().run(fail(SystemExit(3)))
    assert engine.errand().run(give("goes on")) == "goes on"
    assert "A task raised SystemExit" in caplog.text
    engine.end()


def test_an_async_generator_is_closed_at_the_end(engine: Engine) -> None:
    closed = threading.Event()

    async def numbers() -> Any:
        try:
            yield 1
        finally:
            closed.set()

    generator = numbers()

    async def begin() -> Any:
        return await anext(generator)

    assert engine.errand().run(begin()) == 1
    engine.end()
    assert closed.is_set()


# Without a thread of its own


def test_where_no_thread_can_be_started_the_loop_is_driven(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        engine = start_engine()
    assert isinstance(engine, DrivenEngine)
    assert engine.errand().run(give(5)) == 5
    engine.end()
    engine = start_engine()
    assert isinstance(engine, ThreadEngine)
    engine.end()
    assert os.getpid() == engine._pid


def test_one_thread_drives_for_all_and_keeps_nobody_waiting() -> None:
    engine = DrivenEngine(asyncio.new_event_loop())
    hanging = Hanging()

    def drive() -> None:
        with pytest.raises(Closed):
            engine.errand().run(hanging())

    def use() -> None:
        assert hanging.begun.wait(PATIENCE)
        for number in range(100):
            assert engine.errand().run(give(number)) == number
        with pytest.raises(Empty):
            engine.errand().run(asyncio.sleep(PATIENCE), within=0.01)
        engine.end()

    in_threads(drive, use)
