"""Whoever waits for a future goes on at once, and is otherwise none the wiser."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

import pytest

from mcplumb._fast.eager_futures import give, give_now
from tests.kit.loop import PATIENCE, turns
from tests.transports.ends import in_callback

pytestmark = pytest.mark.tricks

color: ContextVar[str] = ContextVar("color", default="none")

Main = Callable[[asyncio.AbstractEventLoop], Coroutine[Any, Any, None]]
Run = Callable[[Main], None]


def make_python_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """A task as it is where asyncio has no part in C. It belongs to no public interface."""
    task: asyncio.Task[Any] = vars(asyncio.tasks)["_PyTask"](coroutine, loop=loop, **options)
    return task


LOOPS = ["plain", "debug"]
if sys.version_info < (3, 14):  # from then on, asyncio.current_task() does not know tasks that are made in Python
    LOOPS.append("python")
if sys.version_info >= (3, 12):
    LOOPS.append("eager")


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test in a loop of each kind: tasks in C or in Python, the first step later or at once, with debugging."""

    def run(main: Main) -> None:
        async def bounded() -> None:
            loop = asyncio.get_running_loop()
            if request.param == "python":
                loop.set_task_factory(make_python_task)  # type: ignore[arg-type]
            if sys.version_info >= (3, 12) and request.param == "eager":
                loop.set_task_factory(asyncio.eager_task_factory)
            async with asyncio.timeout(PATIENCE):
                # In a task that the loop makes.
                await loop.create_task(main(loop))

        asyncio.run(bounded(), debug=request.param == "debug")

    return run


class Waiter:
    """A task that waits for a future, and what it has done so far."""

    def __init__(self, future: asyncio.Future[str], then: Callable[[], object] = lambda: None) -> None:
        self.steps: list[str] = []
        self.future = future
        self.then = then
        self.task = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> str:
        try:
            value = await self.future
        except asyncio.CancelledError as error:
            self.steps.append(f"cancelled{error.args}")
            raise
        assert asyncio.current_task() is self.task
        self.steps.append(value)
        self.then()
        await asyncio.sleep(0)
        self.steps.append("later")
        return value


async def waiting(then: Callable[[], object] = lambda: None) -> tuple[asyncio.Future[str], Waiter]:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waiter = Waiter(future, then)
    await turns()
    return future, waiter


def test_the_waiter_goes_on_at_once(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        future, waiter = await waiting()

        def keep() -> None:
            assert not future.done()
            give_now(future, "value")
            assert future.done()
            assert waiter.steps == ["value"]

        await in_callback(keep)
        assert await waiter.task == "value"
        assert waiter.steps == ["value", "later"]

    run(main)


def test_the_waiter_may_end_at_once(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        async def wait() -> str:
            return await future

        future: asyncio.Future[str] = loop.create_future()
        task = loop.create_task(wait())
        await turns()

        def keep() -> None:
            give_now(future, "value")
            assert task.done()

        await in_callback(keep)
        assert task.result() == "value"

    run(main)


def test_from_within_another_task_the_waiter_goes_on_in_the_next_turn(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        future, waiter = await waiting()
        give_now(future, "value")
        assert waiter.steps == []
        await asyncio.sleep(0)
        assert waiter.steps == ["value"]
        assert await waiter.task == "value"

    run(main)


def test_a_result_as_to_a_future_comes_in_the_next_turn(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        future, waiter = await waiting()

        def keep() -> None:
            give(future, "value")
            assert future.done()
            assert waiter.steps == []

        await in_callback(keep)
        assert await waiter.task == "value"

    run(main)


@pytest.mark.parametrize("way", [give, give_now])
def test_one_that_nobody_waits_for_yet_can_be_awaited_later(
    run: Run, way: Callable[[asyncio.Future[str], str], None]
) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        future: asyncio.Future[str] = loop.create_future()
        await in_callback(lambda: way(future, "value"))
        assert await future == "value"
        assert future.result() == "value"
        never_awaited: asyncio.Future[str] = loop.create_future()
        way(never_awaited, "value")

    run(main)


def test_what_happens_first_stays(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        future, waiter = await waiting()

        def keep() -> None:
            give_now(future, "first")
            give_now(future, "second")
            give(future, "third")
            assert not future.cancel()

        await in_callback(keep)
        assert await waiter.task == "first"
        assert waiter.steps == ["first", "later"]

    run(main)


# --- cancellation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("message", "said"), [((), "cancelled()"), (("enough",), "cancelled('enough',)")])
def test_another_task_may_cancel_the_waiter(run: Run, message: tuple[str, ...], said: str) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        future, waiter = await waiting()
        assert waiter.task.cancel(*message)
        assert future.done()
        assert waiter.steps == []
        with pytest.raises(asyncio.CancelledError):
            await waiter.task
        assert waiter.steps == [said]

    run(main)


@pytest.mark.parametrize("way", [give, give_now])
def test_a_waiter_that_is_cancelled_and_then_answered_in_the_same_turn_is_cancelled(
    run: Run, way: Callable[[asyncio.Future[str], str], None]
) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        future, waiter = await waiting()

        def both() -> None:
            waiter.task.cancel()
            way(future, "value")

        await in_callback(both)
        await asyncio.wait([waiter.task])
        assert waiter.task.cancelled()
        assert waiter.steps == ["cancelled()"]

    run(main)


@pytest.mark.parametrize("way", [give, give_now])
def test_a_waiter_that_is_answered_and_cancelled_before_it_has_run_is_cancelled(
    run: Run, way: Callable[[asyncio.Future[str], str], None]
) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        future, waiter = await waiting()
        way(future, "value")
        waiter.task.cancel()
        await asyncio.wait([waiter.task])
        assert waiter.task.cancelled()
        assert waiter.steps == ["cancelled()"]

    run(main)


def test_a_task_that_is_cancelled_before_it_waits_does_not_wait(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        async def wait() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await future

        future: asyncio.Future[str] = loop.create_future()
        task = loop.create_task(wait())
        await asyncio.wait([task])
        assert task.cancelled()
        with pytest.raises(asyncio.CancelledError):
            await future

    run(main)


def test_a_waiter_may_be_given_a_time(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        future: asyncio.Future[str] = loop.create_future()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await future
        assert future.cancelled()

    run(main)


# --- what the waiter does -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("no"), RuntimeError("no"), asyncio.CancelledError()])
def test_what_the_waiter_raises_stays_in_its_task(run: Run, error: BaseException) -> None:
    def fail() -> None:
        raise error

    async def main(loop: asyncio.AbstractEventLoop) -> None:
        future, waiter = await waiting(fail)
        await in_callback(lambda: give_now(future, "value"))
        await asyncio.wait([waiter.task])
        assert waiter.steps == ["value"]
        if isinstance(error, asyncio.CancelledError):
            assert waiter.task.cancelled()
        else:
            assert waiter.task.exception() is error

    run(main)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_ends_it(run: Run, kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind

    async def main(loop: asyncio.AbstractEventLoop) -> None:
        future, waiter = await waiting(fail)
        with pytest.raises(kind):
            await in_callback(lambda: give_now(future, "value"))
        assert isinstance(waiter.task.exception(), kind)

    run(main)


async def test_a_step_that_has_run_is_not_run_again() -> None:
    # Whoever leaves its own task behind gets a RuntimeError from the loop, but not as one who could not run.
    loop = asyncio.get_running_loop()
    leave = vars(asyncio.tasks)["_leave_task"]
    future, waiter = await waiting(lambda: leave(loop, asyncio.current_task()))
    with pytest.raises(RuntimeError, match=r"Leaving task|Invalid attempt to leave task"):
        await in_callback(lambda: give_now(future, "value"))
    await turns()
    assert waiter.steps[:1] == ["value"]
    assert waiter.steps.count("value") == 1
    waiter.task.cancel()
    await asyncio.wait([waiter.task])


def test_a_waiter_may_wake_others(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        last, last_waiter = await waiting()
        first, first_waiter = await waiting(lambda: give_now(last, "last"))

        def keep() -> None:
            give_now(first, "first")
            assert (first_waiter.steps, last_waiter.steps) == (["first"], [])

        await in_callback(keep)
        assert await asyncio.gather(first_waiter.task, last_waiter.task) == ["first", "last"]

    run(main)


def test_a_waiter_that_starts_tasks_and_waits_again(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        async def wait() -> list[str]:
            values = [await futures[0]]
            inner = loop.create_task(other())
            return [*values, await futures[1], await inner]

        async def other() -> str:
            return await futures[2]

        futures: list[asyncio.Future[str]] = [loop.create_future() for _ in range(3)]
        task = loop.create_task(wait())
        for number, future in enumerate(futures):
            await turns()
            await in_callback(lambda future=future, number=number: give_now(future, str(number)))  # type: ignore[misc]
        assert await task == ["0", "1", "2"]

    run(main)


# --- contexts, loops ----------------------------------------------------------------------------------------------


def test_the_waiter_has_its_own_variables(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        def look() -> None:
            seen.append(color.get())
            color.set("of the waiter, changed")

        seen: list[str] = []
        color.set("of the waiter")
        future, waiter = await waiting(look)
        color.set("of whoever keeps it")

        def keep() -> None:
            give_now(future, "value")
            seen.append(color.get())

        await in_callback(keep)
        await waiter.task
        assert seen == ["of the waiter", "of whoever keeps it"]

    run(main)


async def test_within_the_waiter_s_own_context_it_goes_on_in_the_next_turn() -> None:
    loop = asyncio.get_running_loop()
    context: Context = copy_context()
    future: asyncio.Future[str] = loop.create_future()

    async def wait() -> None:
        seen.append(await future)

    seen: list[str] = []
    task = loop.create_task(wait(), context=context)
    await turns()

    def keep() -> None:
        context.run(give_now, future, "value")
        assert seen == []

    await in_callback(keep)
    await task
    assert seen == ["value"]


def test_a_task_of_another_loop_cannot_wait() -> None:
    async def wait() -> None:
        await future

    other = asyncio.new_event_loop()
    future: asyncio.Future[str] = other.create_future()
    assert future.get_loop() is other
    try:
        with pytest.raises(RuntimeError, match="attached to a different loop"):
            asyncio.run(wait())
    finally:
        other.close()


def test_a_loop_may_end_while_somebody_waits() -> None:
    async def main() -> Waiter:
        return (await waiting())[1]

    waiter = asyncio.run(main())
    assert waiter.steps == ["cancelled()"]


def test_several_who_wait_go_on_in_the_next_turn(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        future, waiter = await waiting()
        another = Waiter(future)
        await turns()

        def keep() -> None:
            give_now(future, "value")
            assert waiter.steps == another.steps == []

        await in_callback(keep)
        assert await asyncio.gather(waiter.task, another.task) == ["value", "value"]

    run(main)
