from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any

import pytest

from mcplumb.errors import Closed, UsageError
from mcplumb.sync import loop_thread
from mcplumb.sync.loop_thread import LoopHandle, _LoopRegistry
from tests.kit.loop import PATIENCE
from tests.sync.world import in_threads, own_threads, wait_until


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Neither before a test nor after it."""
    wait_until(lambda: not own_threads())
    yield
    wait_until(lambda: not own_threads())


class Connection:
    """Something to close."""

    def __init__(self) -> None:
        self.closed = 0

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed += 1


def acquired(close: Callable[[], Any] | None = None) -> LoopHandle:
    handle = LoopHandle(close or Connection().close, PATIENCE)
    handle.acquire()
    return handle


async def give(value: Any) -> Any:
    return value


def test_the_loop_runs_from_the_first_to_the_last() -> None:
    first, second = acquired(), acquired()
    assert first.shared_loop is second.shared_loop
    assert own_threads() == ["mcplumb-sync"]
    first.close()
    assert own_threads() == ["mcplumb-sync"]
    assert second.new_call().run(give(5)) == 5
    second.close()
    assert own_threads() == []
    third = acquired()
    assert third.shared_loop is not first.shared_loop
    third.close()


def test_it_begins_once() -> None:
    handle = acquired()
    with pytest.raises(UsageError, match="call connect again"):
        handle.acquire()
    handle.close()
    with pytest.raises(UsageError, match="call connect again"):
        handle.acquire()


def test_of_several_threads_one_begins() -> None:
    handle = LoopHandle(Connection().close, PATIENCE)
    meeting = threading.Barrier(8, timeout=PATIENCE)
    refused: list[UsageError] = []

    def begin() -> None:
        meeting.wait()
        try:
            handle.acquire()
        except UsageError as error:
            refused.append(error)

    in_threads(*[begin] * 8)
    assert len(refused) == 7
    handle.close()


def test_before_it_begins_there_is_nothing_to_do() -> None:
    handle = LoopHandle(Connection().close, PATIENCE)
    assert handle.is_inactive
    handle.close()
    with pytest.raises(Closed):
        handle.new_call()
    with pytest.raises(Closed, match="was not opened"):
        asyncio.run(handle.call_in_thread(print))


def test_after_the_end_there_is_nothing_to_do() -> None:
    connection = Connection()
    handle = acquired(connection.close)
    assert not handle.is_inactive
    for _ in range(2):
        handle.close()
        handle.release()
        assert handle.is_inactive
    with pytest.raises(Closed, match="The client was closed"):
        handle.new_call()
    assert connection.closed == 1


def test_closing_from_many_threads_at_once() -> None:
    connection = Connection()
    handle = acquired(connection.close)
    in_threads(*[handle.close] * 8)
    assert 1 <= connection.closed <= 8
    wait_until(lambda: not own_threads())


def test_what_waits_when_the_handle_ends_is_given_up() -> None:
    handle = acquired()
    begun = threading.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Future()

    def wait() -> None:
        with pytest.raises(Closed):
            handle.new_call().run(hang())

    def close() -> None:
        assert begun.wait(PATIENCE)
        handle.close()

    in_threads(wait, close)


def test_a_close_that_fails_gives_back_as_well() -> None:
    async def close() -> None:
        raise KeyError("why")

    handle = acquired(close)
    with pytest.raises(KeyError, match="why"):
        handle.close()
    assert own_threads() == []


def test_a_close_in_the_loop_itself_changes_nothing() -> None:
    handle = acquired()

    async def close() -> None:
        handle.close()

    with pytest.raises(UsageError, match="in the thread that does its work"):
        handle.new_call().run(close())
    assert not handle.is_inactive
    handle.close()


def test_functions_are_called_in_another_thread() -> None:
    handle = acquired()
    assert (
        handle.new_call().run(handle.call_in_thread(lambda: threading.current_thread().name)) == "mcplumb-sync-worker"
    )
    handle.close()
    wait_until(lambda: not own_threads())


def test_a_close_that_finds_everything_closed_says_nothing() -> None:
    async def close() -> None:
        raise Closed("Somebody else was faster.")

    acquired(close).close()


def test_a_look_is_taken_in_the_loop_while_there_is_one() -> None:
    handle = acquired()
    here = threading.get_ident()
    there = handle.read_in_loop(threading.get_ident)
    assert there != here

    async def look() -> int:
        return handle.read_in_loop(threading.get_ident)

    assert handle.new_call().run(look()) == there
    handle.close()
    assert handle.read_in_loop(threading.get_ident) == here


# At exit


def test_at_exit_all_are_closed_at_once() -> None:
    meeting: list[asyncio.Event] = []

    async def close() -> None:
        """Ends when the other one has begun."""
        meeting.append(asyncio.Event())
        if len(meeting) == 2:
            for event in meeting:
                event.set()
        await meeting[0].wait()
        raise KeyError("this one is not heard of")

    left = [acquired(close), acquired(close)]
    loop_thread._registry.close_all()
    assert all(handle.is_inactive for handle in left)
    loop_thread._registry.close_all()


def test_at_exit_nothing_waits_longer_than_it_has_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_thread, "_CANCEL_TIMEOUT", 0.01)

    async def close() -> None:
        await asyncio.Future()

    handle = LoopHandle(close, 0.01)
    handle.acquire()
    loop_thread._registry.close_all()
    assert handle.is_inactive


def test_at_exit_an_interruption_gives_back_as_well() -> None:
    handle: LoopHandle

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def close() -> None:
        assert handle.shared_loop is not None
        # What a thread that waits is given to do is run in it, as a signal's handler is.
        await next(iter(handle.shared_loop.active_calls)).call_in_thread(interrupt)

    handle = acquired(close)
    with pytest.raises(KeyboardInterrupt):
        loop_thread._registry.close_all()
    assert handle.is_inactive


# After a fork


def test_a_fork_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = _LoopRegistry()
    monkeypatch.setattr(loop_thread, "_registry", registry)
    inherited = acquired()
    shared_loop = inherited.shared_loop
    assert shared_loop is not None
    registry.forget_after_fork()
    shared_loop._pid -= 1
    assert inherited.is_inactive
    inherited.close()
    with pytest.raises(UsageError, match="from which this one was forked"):
        inherited.new_call()
    inherited.release()
    handle = acquired()
    assert handle.shared_loop is not shared_loop
    assert handle.new_call().run(give(5)) == 5
    handle.close()
    registry.close_all()
    assert not shared_loop.loop.is_closed()
    shared_loop.shut_down()


def test_patience_ends_as_the_queue_says() -> None:
    handle = acquired()
    with pytest.raises(Empty):
        handle.new_call().run(asyncio.sleep(PATIENCE), within=0.01)
    handle.close()
