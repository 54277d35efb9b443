"""Promises: whoever waits for one goes on at once, and is otherwise none the wiser."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

import pytest

from mcpipe.client.promises import Promise
from tests.client.peers import turns

#: Nothing here takes that long, in seconds.
PATIENCE = 60.0

color: ContextVar[str] = ContextVar("color", default="none")

Main = Callable[[asyncio.AbstractEventLoop], Coroutine[Any, Any, None]]
Run = Callable[[Main], None]


def make_python_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> asyncio.Task[Any]:
    """A task as it is where asyncio has no part in C. It belongs to no public interface."""
    task: asyncio.Task[Any] = vars(asyncio.tasks)["_PyTask"](coroutine, loop=loop, **options)
    return task


LOOPS = ["plain", "debug", "python"] + (["eager"] if sys.version_info >= (3, 12) else [])


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


async def in_callback(function: Callable[[], object]) -> None:
    """Call a function as a connection does it: from the loop, outside of all tasks."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def callback() -> None:
        assert asyncio.current_task() is None
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - raised again where pytest sees it
            done.set_exception(error)
        else:
            done.set_result(None)

    loop.call_soon(callback)
    await done


class Waiter:
    """A task that waits for a promise, and what it has done so far."""

    def __init__(self, promise: Promise[str], then: Callable[[], object] = lambda: None) -> None:
        self.steps: list[str] = []
        self.promise = promise
        self.then = then
        self.task = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> str:
        try:
            value = await self.promise
        except asyncio.CancelledError as error:
            self.steps.append(f"cancelled{error.args}")
            raise
        assert asyncio.current_task() is self.task
        self.steps.append(value)
        self.then()
        await asyncio.sleep(0)
        self.steps.append("later")
        return value


async def waiting(then: Callable[[], object] = lambda: None) -> tuple[Promise[str], Waiter]:
    promise: Promise[str] = Promise(asyncio.get_running_loop())
    waiter = Waiter(promise, then)
    await turns()
    return promise, waiter


def test_the_waiter_goes_on_at_once(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        promise, waiter = await waiting()

        def keep() -> None:
            assert not promise.done()
            promise.set_result_now("value")
            assert promise.done()
            assert waiter.steps == ["value"]

        await in_callback(keep)
        assert await waiter.task == "value"
        assert waiter.steps == ["value", "later"]

    run(main)


def test_the_waiter_may_end_at_once(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        async def wait() -> str:
            return await promise

        promise: Promise[str] = Promise(loop)
        task = loop.create_task(wait())
        await turns()

        def keep() -> None:
            promise.set_result_now("value")
            assert task.done()

        await in_callback(keep)
        assert task.result() == "value"

    run(main)


def test_from_within_another_task_the_waiter_goes_on_in_the_next_turn(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        promise, waiter = await waiting()
        promise.set_result_now("value")
        assert waiter.steps == []
        await asyncio.sleep(0)
        assert waiter.steps == ["value"]
        assert await waiter.task == "value"

    run(main)


def test_a_result_as_to_a_future_comes_in_the_next_turn(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        promise, waiter = await waiting()

        def keep() -> None:
            promise.set_result("value")
            assert promise.done()
            assert waiter.steps == []

        await in_callback(keep)
        assert await waiter.task == "value"

    run(main)


@pytest.mark.parametrize("way", [Promise.set_result, Promise.set_result_now])
def test_one_that_nobody_waits_for_yet_can_be_awaited_later(run: Run, way: Callable[[Promise[str], str], None]) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        promise: Promise[str] = Promise(loop)
        await in_callback(lambda: way(promise, "value"))
        assert await promise == "value"
        assert promise.result() == "value"
        never_awaited: Promise[str] = Promise(loop)
        way(never_awaited, "value")

    run(main)


def test_what_happens_first_stays(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        promise, waiter = await waiting()

        def keep() -> None:
            promise.set_result_now("first")
            promise.set_result_now("second")
            promise.set_result("third")
            assert not promise.cancel()

        await in_callback(keep)
        assert await waiter.task == "first"
        assert waiter.steps == ["first", "later"]

    run(main)


# --- cancellation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("message", "said"), [((), "cancelled()"), (("enough",), "cancelled('enough',)")])
def test_another_task_may_cancel_the_waiter(run: Run, message: tuple[str, ...], said: str) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        promise, waiter = await waiting()
        assert waiter.task.cancel(*message)
        assert promise.done()
        assert waiter.steps == []
        with pytest.raises(asyncio.CancelledError):
            await waiter.task
        assert waiter.steps == [said]

    run(main)


@pytest.mark.parametrize("way", [Promise.set_result, Promise.set_result_now])
def test_a_waiter_that_is_cancelled_and_then_answered_in_the_same_turn_is_cancelled(
    run: Run, way: Callable[[Promise[str], str], None]
) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        promise, waiter = await waiting()

        def both() -> None:
            waiter.task.cancel()
            way(promise, "value")

        await in_callback(both)
        await asyncio.wait([waiter.task])
        assert waiter.task.cancelled()
        assert waiter.steps == ["cancelled()"]

    run(main)


@pytest.mark.parametrize("way", [Promise.set_result, Promise.set_result_now])
def test_a_waiter_that_is_answered_and_cancelled_before_it_has_run_is_cancelled(
    run: Run, way: Callable[[Promise[str], str], None]
) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        promise, waiter = await waiting()
        way(promise, "value")
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
            await promise

        promise: Promise[str] = Promise(loop)
        task = loop.create_task(wait())
        await asyncio.wait([task])
        assert task.cancelled()
        with pytest.raises(asyncio.CancelledError):
            await promise

    run(main)


def test_a_waiter_may_be_given_a_time(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        promise: Promise[str] = Promise(loop)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await promise
        assert repr(promise) == "<Promise cancelled>"

    run(main)


# --- what the waiter does -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("no"), RuntimeError("no"), asyncio.CancelledError()])
def test_what_the_waiter_raises_stays_in_its_task(run: Run, error: BaseException) -> None:
    def fail() -> None:
        raise error

    async def main(loop: asyncio.AbstractEventLoop) -> None:
        promise, waiter = await waiting(fail)
        await in_callback(lambda: promise.set_result_now("value"))
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
        promise, waiter = await waiting(fail)
        with pytest.raises(kind):
            await in_callback(lambda: promise.set_result_now("value"))
        assert isinstance(waiter.task.exception(), kind)

    run(main)


def test_a_step_that_has_run_is_not_run_again() -> None:
    # Whoever leaves its own task behind gets a RuntimeError from the loop, but not as one who could not run.
    async def main() -> None:
        loop = asyncio.get_running_loop()
        leave = vars(asyncio.tasks)["_leave_task"]
        promise, waiter = await waiting(lambda: leave(loop, asyncio.current_task()))
        with pytest.raises(RuntimeError, match="Leaving task"):
            await in_callback(lambda: promise.set_result_now("value"))
        await turns()
        assert waiter.steps[:1] == ["value"]
        assert waiter.steps.count("value") == 1
        waiter.task.cancel()
        await asyncio.wait([waiter.task])

    asyncio.run(main())


def test_a_waiter_may_keep_other_promises(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        last, last_waiter = await waiting()
        first, first_waiter = await waiting(lambda: last.set_result_now("last"))

        def keep() -> None:
            first.set_result_now("first")
            assert (first_waiter.steps, last_waiter.steps) == (["first"], [])

        await in_callback(keep)
        assert await asyncio.gather(first_waiter.task, last_waiter.task) == ["first", "last"]

    run(main)


def test_a_waiter_that_starts_tasks_and_waits_again(run: Run) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        async def wait() -> list[str]:
            values = [await promises[0]]
            inner = loop.create_task(other())
            return [*values, await promises[1], await inner]

        async def other() -> str:
            return await promises[2]

        promises: list[Promise[str]] = [Promise(loop) for _ in range(3)]
        task = loop.create_task(wait())
        for number, promise in enumerate(promises):
            await turns()
            await in_callback(lambda promise=promise, number=number: promise.set_result_now(str(number)))  # type: ignore[misc]
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
        promise, waiter = await waiting(look)
        color.set("of whoever keeps it")

        def keep() -> None:
            promise.set_result_now("value")
            seen.append(color.get())

        await in_callback(keep)
        await waiter.task
        assert seen == ["of the waiter", "of whoever keeps it"]

    run(main)


def test_within_the_waiter_s_own_context_it_goes_on_in_the_next_turn() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        context: Context = copy_context()
        promise: Promise[str] = Promise(loop)

        async def wait() -> None:
            seen.append(await promise)

        seen: list[str] = []
        task = loop.create_task(wait(), context=context)
        await turns()

        def keep() -> None:
            context.run(promise.set_result_now, "value")
            assert seen == []

        await in_callback(keep)
        await task
        assert seen == ["value"]

    asyncio.run(main())


def test_a_task_of_another_loop_cannot_wait() -> None:
    async def wait() -> None:
        await promise

    other = asyncio.new_event_loop()
    promise: Promise[str] = Promise(other)
    assert promise.get_loop() is other
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


def test_it_shows_its_state() -> None:
    async def main() -> None:
        promise, waiter = await waiting()
        assert "wait_for=<Promise pending>" in repr(waiter.task)
        promise.set_result("value")
        assert repr(promise) == "<Promise done>"
        await waiter.task

    asyncio.run(main())
