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
from mcplumb.sync import loop_thread
from mcplumb.sync.loop_thread import CallerDrivenLoop, SharedLoop, ThreadedLoop, start_loop
from tests.kit.loop import PATIENCE
from tests.sync.world import in_threads, own_threads, wait_until

variable: ContextVar[str] = ContextVar("variable", default="unset")


def no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't create new thread at interpreter shutdown")


@pytest.fixture(params=[ThreadedLoop, CallerDrivenLoop])
def shared_loop(request: pytest.FixtureRequest) -> Iterator[SharedLoop]:
    """Each kind of shared_loop must do the same."""
    made: SharedLoop = request.param(asyncio.new_event_loop())
    yield made
    if not made.loop.is_closed():
        made.shut_down()
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


def test_a_call_gives_what_its_coroutine_returns(shared_loop: SharedLoop) -> None:
    assert shared_loop.new_call().run(give(5)) == 5
    assert shared_loop.new_call().run(give(None)) is None


def test_a_call_raises_what_its_coroutine_does_with_where_that_was(shared_loop: SharedLoop) -> None:
    with pytest.raises(KeyError) as caught:
        shared_loop.new_call().run(fail(KeyError("why")))
    names = [entry.name for entry in caught.traceback]
    assert (names[0], names[-1]) == ("test_a_call_raises_what_its_coroutine_does_with_where_that_was", "fail")


def test_a_coroutine_sees_the_variables_of_who_waits(shared_loop: SharedLoop) -> None:
    variable.set("mine")

    async def look() -> str:
        return variable.get()

    assert shared_loop.new_call().run(look()) == "mine"


def test_calls_of_several_threads_run_at_once(shared_loop: SharedLoop) -> None:
    meeting: list[asyncio.Future[None]] = []

    async def meet() -> None:
        place = asyncio.get_running_loop().create_future()
        meeting.append(place)
        if len(meeting) == 5:
            for each in meeting:
                each.set_result(None)
        await place

    in_threads(*[lambda: shared_loop.new_call().run(meet())] * 5)


def test_who_waits_in_the_loop_itself_is_told_not_to(shared_loop: SharedLoop) -> None:
    async def wait() -> None:
        shared_loop.new_call()

    with pytest.raises(UsageError, match="in the thread that does its work"):
        shared_loop.new_call().run(wait())


def test_it_works_in_a_thread_that_has_a_running_loop(shared_loop: SharedLoop) -> None:
    async def notebook() -> Any:
        if isinstance(shared_loop, CallerDrivenLoop):
            # An interpreter that shuts down runs no other loop.
            return await asyncio.to_thread(shared_loop.new_call().run, give(5))
        return shared_loop.new_call().run(give(5))

    assert asyncio.run(notebook()) == 5


def test_after_a_fork_it_says_whose_it_is(shared_loop: SharedLoop) -> None:
    assert not shared_loop.is_from_parent_process
    shared_loop._pid -= 1
    assert shared_loop.is_from_parent_process
    with pytest.raises(UsageError, match=f"belongs to the process {shared_loop._pid}, from which this one was forked"):
        shared_loop.new_call()


# Jobs


def test_the_thread_that_waits_is_given_something_to_do(shared_loop: SharedLoop) -> None:
    call = shared_loop.new_call()

    async def ask() -> Any:
        return [await call.call_in_thread(threading.get_ident) for _ in range(3)]

    assert call.run(ask()) == [threading.get_ident()] * 3


def test_what_it_is_given_may_use_the_loop_again(shared_loop: SharedLoop) -> None:
    call = shared_loop.new_call()

    async def ask() -> Any:
        return await call.call_in_thread(lambda: shared_loop.new_call().run(give("deep")))

    assert call.run(ask()) == "deep"


def test_another_thread_is_given_something_to_do(shared_loop: SharedLoop) -> None:
    async def ask() -> Any:
        there = await shared_loop.call_in_thread(threading.get_ident)
        return there, await shared_loop.call_in_thread(lambda: shared_loop.new_call().run(give("deep")))

    there, answer = shared_loop.new_call().run(ask())
    assert there not in (threading.get_ident(), getattr(shared_loop, "_thread", threading.current_thread()).ident)
    assert answer == "deep"


def test_without_threads_the_last_one_that_waits_does_it(
    shared_loop: SharedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading.Thread, "start", no_thread)

    async def ask(depth: int) -> Any:
        if depth:
            return await shared_loop.call_in_thread(lambda: shared_loop.new_call().run(ask(depth - 1)))
        return await shared_loop.call_in_thread(threading.get_ident)

    assert shared_loop.new_call().run(ask(3)) == threading.get_ident()


def test_without_threads_and_without_anyone_who_waits_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    shared_loop = ThreadedLoop(asyncio.new_event_loop())
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    asked = asyncio.run_coroutine_threadsafe(shared_loop.call_in_thread(print), shared_loop.loop)
    with pytest.raises(RuntimeError, match="no thread left to run a plain function in"):
        asked.result(PATIENCE)
    shared_loop.shut_down()


# Interruptions


def interrupt(begun: threading.Event) -> None:
    assert begun.wait(PATIENCE)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.req("CAN-1")
def test_a_thread_that_is_interrupted_cancels_what_it_waited_for() -> None:
    shared_loop = ThreadedLoop(asyncio.new_event_loop())
    hanging = Hanging()
    thread = threading.Thread(target=interrupt, args=(hanging.begun,))
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        shared_loop.new_call().run(hanging())
    assert hanging.cancelled.is_set()
    thread.join()
    assert shared_loop.new_call().run(give("goes on")) == "goes on"
    shared_loop.shut_down()


def test_a_thread_that_waits_looks_up_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "_SIGNAL_CHECK_INTERVAL", 0.001)
    shared_loop = ThreadedLoop(asyncio.new_event_loop())
    assert shared_loop.new_call().run(asyncio.sleep(0.02, "slow")) == "slow"
    shared_loop.shut_down()


def test_a_function_that_raises_more_than_an_error_interrupts_who_waits(shared_loop: SharedLoop) -> None:
    call = shared_loop.new_call()
    ended = threading.Event()

    async def ask() -> None:
        try:
            await asyncio.gather(call.call_in_thread(exit, 3), call.call_in_thread(print, "is dropped"))
        except (RuntimeError, asyncio.CancelledError):
            ended.set()
            raise

    with pytest.raises(SystemExit):
        call.run(ask())
    assert ended.is_set()


def test_what_brings_no_news_for_too_long_is_given_up(shared_loop: SharedLoop) -> None:
    with pytest.raises(Empty):
        shared_loop.new_call().run(asyncio.sleep(PATIENCE), within=0.01)
    assert shared_loop.new_call().run(give("goes on")) == "goes on"
    wait_until(lambda: not shared_loop.active_calls)


def test_what_does_not_let_itself_be_cancelled_is_left_alone(
    shared_loop: SharedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_thread, "_CANCEL_TIMEOUT", 0.01)
    stay = threading.Event()

    async def stubborn() -> None:
        while not stay.is_set():
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                continue

    with pytest.raises(Empty):
        shared_loop.new_call().run(stubborn(), within=0.01)
    stay.set()
    assert shared_loop.new_call().run(give("goes on")) == "goes on"


def test_an_interruption_may_come_before_the_coroutine_is_begun(
    shared_loop: SharedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = shared_loop.new_call()
    post = shared_loop.post

    def interrupted(function: Callable[..., Any], *arguments: Any) -> None:
        monkeypatch.setattr(shared_loop, "post", post)
        raise KeyboardInterrupt

    monkeypatch.setattr(shared_loop, "post", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call.run(give("never begun"))


def test_an_interruption_may_come_after_the_end(shared_loop: SharedLoop) -> None:
    call = shared_loop.new_call()

    def end() -> None:
        shared_loop.shut_down()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call.run(call.call_in_thread(end))


# Endings


def test_an_loop_that_has_ended_takes_no_calls(shared_loop: SharedLoop) -> None:
    call = shared_loop.new_call()
    shared_loop.shut_down()
    with pytest.raises(Closed):
        call.run(give("never begun"))
    assert shared_loop.loop.is_closed()


def test_whoever_waits_when_it_ends_is_told(shared_loop: SharedLoop) -> None:
    hanging = Hanging()

    def wait() -> None:
        with pytest.raises(Closed, match="The client was closed"):
            shared_loop.new_call().run(hanging())

    def end() -> None:
        assert hanging.begun.wait(PATIENCE)
        shared_loop.shut_down()

    in_threads(wait, wait, end)
    assert hanging.cancelled.is_set()


def test_whoever_waits_for_what_does_not_end_is_told_as_well(
    shared_loop: SharedLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_thread, "_SHUTDOWN_TIMEOUT", 0.5)
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
            shared_loop.new_call().run(stubborn())

    def end() -> None:
        assert begun.wait(PATIENCE)
        shared_loop.shut_down()

    in_threads(wait, end)
    for task in tasks:
        task._log_destroy_pending = False  # type: ignore[union-attr]


def test_a_loop_that_is_blocked_is_left_behind(
    shared_loop: SharedLoop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loop_thread, "_SHUTDOWN_TIMEOUT", 0.01)
    begun, go_on = threading.Event(), threading.Event()

    async def block() -> None:
        begun.set()
        go_on.wait(PATIENCE)

    def wait() -> None:
        shared_loop.new_call().run(block())

    def end() -> None:
        assert begun.wait(PATIENCE)
        shared_loop.shut_down()
        assert not shared_loop.loop.is_closed()
        go_on.set()

    in_threads(wait, end)
    assert "Something blocks the event loop" in caplog.text
    if isinstance(shared_loop, CallerDrivenLoop):
        shared_loop.loop.close()
    wait_until(shared_loop.loop.is_closed)


def test_a_task_that_wants_to_end_everything_ends_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mcplumb.sync")
    shared_loop = ThreadedLoop(asyncio.new_event_loop())
    with pytest.raises(SystemExit):
        shared_loop.new_call().run(fail(SystemExit(3)))
    assert shared_loop.new_call().run(give("goes on")) == "goes on"
    assert "A task raised SystemExit" in caplog.text
    shared_loop.shut_down()


def test_an_async_generator_is_closed_at_the_end(shared_loop: SharedLoop) -> None:
    closed = threading.Event()

    async def numbers() -> Any:
        try:
            yield 1
        finally:
            closed.set()

    generator = numbers()

    async def begin() -> Any:
        return await anext(generator)

    assert shared_loop.new_call().run(begin()) == 1
    shared_loop.shut_down()
    assert closed.is_set()


# Without a thread of its own


def test_where_no_thread_can_be_started_the_loop_is_driven(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        shared_loop = start_loop()
    assert isinstance(shared_loop, CallerDrivenLoop)
    assert shared_loop.new_call().run(give(5)) == 5
    shared_loop.shut_down()
    shared_loop = start_loop()
    assert isinstance(shared_loop, ThreadedLoop)
    shared_loop.shut_down()
    assert os.getpid() == shared_loop._pid


def test_one_thread_drives_for_all_and_keeps_nobody_waiting() -> None:
    shared_loop = CallerDrivenLoop(asyncio.new_event_loop())
    hanging = Hanging()

    def drive() -> None:
        with pytest.raises(Closed):
            shared_loop.new_call().run(hanging())

    def use() -> None:
        assert hanging.begun.wait(PATIENCE)
        for number in range(100):
            assert shared_loop.new_call().run(give(number)) == number
        with pytest.raises(Empty):
            shared_loop.new_call().run(asyncio.sleep(PATIENCE), within=0.01)
        shared_loop.shut_down()

    in_threads(drive, use)
