"""Tasks whose first step runs at once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any

import pytest

from mcplumb._fast.eager_tasks import TaskStarter
from tests.kit.loop import run, turns
from tests.transports.ends import in_callback

pytestmark = pytest.mark.tricks

color: ContextVar[str] = ContextVar("color", default="none")


def in_loop(body: Callable[[asyncio.AbstractEventLoop], None]) -> None:
    """Run a body as the connections do it: in a callback of the loop, outside of all tasks."""

    async def main() -> None:
        await in_callback(partial(body, asyncio.get_running_loop()))
        await turns()

    run(main())


def test_a_coroutine_that_waits_for_nothing_is_done_at_once() -> None:
    ran = []

    async def work() -> None:
        ran.append(asyncio.current_task())

    def body(loop: asyncio.AbstractEventLoop) -> None:
        task = TaskStarter(loop).start(work(), copy_context())
        assert task.done()
        assert ran == [task]
        assert task.result() is None
        assert asyncio.current_task(loop) is None

    in_loop(body)


def test_the_rest_of_a_coroutine_that_waits_runs_later() -> None:
    steps = []
    tasks = []

    async def work() -> None:
        steps.append("first")
        await asyncio.sleep(0)
        steps.append("second")

    def body(loop: asyncio.AbstractEventLoop) -> None:
        tasks.append(TaskStarter(loop).start(work(), copy_context()))
        assert steps == ["first"]
        assert not tasks[0].done()

    in_loop(body)
    assert steps == ["first", "second"]
    assert tasks[0].done()


def test_it_can_be_cancelled_where_it_waits() -> None:
    steps = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise

    def body(loop: asyncio.AbstractEventLoop) -> None:
        TaskStarter(loop).start(work(), copy_context()).cancel()

    in_loop(body)
    assert steps == ["cancelled"]


def test_an_error_is_the_task_s() -> None:
    async def work() -> None:
        raise ValueError("broken")

    def body(loop: asyncio.AbstractEventLoop) -> None:
        task = TaskStarter(loop).start(work(), copy_context())
        assert isinstance(task.exception(), ValueError)

    in_loop(body)


def test_it_runs_in_the_context_given_to_it_and_changes_no_other() -> None:
    seen = []

    async def work() -> None:
        seen.append(color.get())
        color.set("changed")
        await asyncio.sleep(0)
        seen.append(color.get())

    def body(loop: asyncio.AbstractEventLoop) -> None:
        color.set("of the caller")
        context = Context()
        context.run(color.set, "given")
        TaskStarter(loop).start(work(), context)
        assert color.get() == "of the caller"

    in_loop(body)
    assert seen == ["given", "changed"]


def test_the_loop_is_left_as_it_was() -> None:
    async def work() -> None:
        """Nothing to do."""

    def body(loop: asyncio.AbstractEventLoop) -> None:
        before = set(vars(loop))
        TaskStarter(loop).start(work(), copy_context())
        assert set(vars(loop)) == before
        nothing: Any = None
        with pytest.raises(TypeError):
            TaskStarter(loop).start(nothing, copy_context())
        assert set(vars(loop)) == before

    in_loop(body)


async def test_a_task_may_start_another() -> None:
    """At once, or a turn later where Python cannot do better; in any case the tasks do not get mixed up."""
    seen: list[Any] = []

    async def inner() -> None:
        seen.append((asyncio.current_task(), color.get()))

    loop, outer = asyncio.get_running_loop(), asyncio.current_task()
    context = Context()
    context.run(color.set, "given")
    task = TaskStarter(loop).start(inner(), context)
    assert asyncio.current_task() is outer
    await task
    assert seen == [(task, "given")]


class _Sealed:
    """A loop that nothing can be put into, as one that is written in C."""

    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        if name == "__dict__":
            raise AttributeError
        return getattr(self._loop, name)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="A task that starts at once has to belong to the running loop.")
def test_a_loop_of_another_make_will_do() -> None:
    seen = []

    async def work() -> None:
        seen.append(color.get())

    def body(loop: asyncio.AbstractEventLoop) -> None:
        context = Context()
        context.run(color.set, "given")
        sealed: Any = _Sealed(loop)
        TaskStarter(sealed).start(work(), context)

    in_loop(body)
    assert seen == ["given"]
