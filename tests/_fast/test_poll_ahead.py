"""Waiting in place of the loop: everything that the loop would have done is done as soon as with it."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from mcplumb._fast.poll_ahead import PollAhead, poll_ahead_on
from mcplumb.transports.fd_connection import WatchedSource
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import PATIENCE, debug_loop, turns

pytestmark = [
    pytest.mark.tricks,
    pytest.mark.skipif(not hasattr(selectors, "EpollSelector"), reason="There is no epoll here."),
    leaves_nothing,
]


class Reader:
    """A source that waits for more after its first byte, unless somebody else has something to do."""

    def __init__(self, on_byte: Callable[[], object] = lambda: None) -> None:
        read_fd, self.fd = os.pipe()
        self.source = WatchedSource(read_fd)
        self.chunks: list[bytes] = []
        self.ends: list[OSError | None] = []
        self.over = asyncio.Event()
        self._on_byte = on_byte
        self.source.start(self._arrived, self._ran_out, lambda: None)

    def _arrived(self, chunk: bytes) -> int:
        self.chunks.append(chunk)
        self._on_byte()
        return 1

    def _ran_out(self, error: OSError | None) -> None:
        self.ends.append(error)
        self.over.set()

    def send(self, data: bytes = b"x") -> None:
        os.write(self.fd, data)

    def close(self) -> None:
        self.source.close()
        os.close(self.fd)


def ahead(reader: Reader) -> PollAhead:
    found = reader.source._poll_ahead
    assert found is not None, "asyncio's own loop is not what it was: look for what was renamed"
    return found


async def idle() -> None:
    """Until the loop has nothing to do but to wait."""
    await turns()


async def test_what_another_thread_wants_is_done() -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def act() -> None:
        loop.call_soon_threadsafe(done.set_result, threading.get_ident())

    thread = threading.Thread(target=act)
    reader = Reader(thread.start)
    await idle()
    reader.send()
    assert await done == thread.ident
    thread.join()
    reader.close()


async def test_a_thread_that_has_worked_is_heard() -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def work() -> None:
        loop.run_in_executor(None, len, b"abc").add_done_callback(lambda it: done.set_result(it.result()))

    reader = Reader(work)
    await idle()
    reader.send()
    assert await done == 3
    reader.close()


async def test_a_signal_is_handled() -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.add_signal_handler(signal.SIGUSR1, done.set_result, None)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    reader = Reader(timer.start)
    await idle()
    reader.send()
    await done
    loop.remove_signal_handler(signal.SIGUSR1)
    timer.join()
    reader.close()


def test_an_interrupt_comes_through() -> None:
    async def main() -> None:
        reader = Reader(timer.start)
        try:
            await idle()
            reader.send()
            await asyncio.sleep(PATIENCE)
        finally:
            reader.close()

    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    timer.join()


@pytest.mark.parametrize("wait", [0.0, 0.02])
async def test_a_timer_goes_off(wait: float) -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    reader = Reader(lambda: loop.call_later(wait, done.set_result, None))
    await idle()
    reader.send()
    await done
    reader.close()


async def test_a_timer_that_was_cancelled_keeps_nobody() -> None:
    reader = Reader(lambda: loop.call_later(0.02, reader.ends.append, None).cancel())
    loop = asyncio.get_running_loop()
    await idle()
    for _ in range(3):
        reader.send()
        await asyncio.sleep(0.03)
    assert (reader.chunks, reader.ends) == ([b"x"] * 3, [])
    reader.close()


async def test_what_others_send_is_read() -> None:
    done = asyncio.Event()
    second = Reader(done.set)
    first = Reader(second.send)
    await idle()
    first.send()
    await done.wait()
    first.close()
    second.close()


def test_a_loop_that_is_stopped_stops() -> None:
    loop = asyncio.new_event_loop()

    async def begin() -> Reader:
        reader = Reader(loop.stop)
        await idle()
        return reader

    reader = loop.run_until_complete(begin())
    reader.send()
    loop.run_forever()
    assert reader.chunks == [b"x"]
    reader.close()
    loop.close()


async def test_a_task_that_is_woken_goes_on() -> None:
    event = asyncio.Event()
    reader = Reader(event.set)
    for count in range(1, 40):
        event.clear()
        reader.send()
        await event.wait()
        assert len(reader.chunks) == count
    reader.close()


async def test_the_end_is_told_as_soon_as_it_comes() -> None:
    reader = Reader(lambda: os.close(reader.fd))
    await idle()
    reader.send()
    await reader.over.wait()
    assert (reader.chunks, reader.ends) == ([b"x"], [None])
    reader.source.close()


@debug_loop
async def test_in_debug_mode_the_loop_turns() -> None:
    # It would complain of a callback that takes long.
    reader = Reader(lambda: waits.append(ahead(reader).next_source()))
    waits: list[WatchedSource | None] = []
    reader.send()
    await turns(2)
    assert waits == [None]
    reader.close()


@pytest.mark.parametrize("kind", [selectors.SelectSelector, selectors.PollSelector])
def test_a_loop_that_waits_in_another_way_has_to_turn(kind: type[selectors.BaseSelector]) -> None:
    async def main() -> None:
        reader = Reader()
        assert reader.source._poll_ahead is None
        for count in range(1, 4):
            reader.send()
            await turns()
            assert len(reader.chunks) == count
        reader.close()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(kind())) as runner:
        runner.run(main())


def test_a_loop_that_is_not_asyncio_s_has_to_turn() -> None:
    class Loop(asyncio.AbstractEventLoop):
        """Nothing is known of it."""

    assert poll_ahead_on(Loop()) is None  # type: ignore[abstract]


def test_what_a_signal_handler_raises_leaves_the_loop() -> None:
    class Alarm(Exception):
        """Not one of those that leave any callback."""

    def ring(*_: object) -> None:
        raise Alarm

    async def main() -> None:
        reader = Reader(lambda: signal.setitimer(signal.ITIMER_REAL, 0.001))
        try:
            await idle()
            reader.send()
            await asyncio.sleep(1)
        finally:
            reader.close()

    usual = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(Alarm):
            asyncio.run(main())
    finally:
        signal.signal(signal.SIGALRM, usual)


def test_a_loop_that_is_turned_in_another_way_has_to_turn() -> None:
    class Loop(asyncio.SelectorEventLoop):
        def _run_once(self) -> None:
            super()._run_once()  # type: ignore[misc]

    async def main() -> None:
        assert poll_ahead_on(asyncio.get_running_loop()) is None

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Asking for the dict of an object does not slow it down here.")
def test_the_attributes_of_the_loop_stay_where_python_finds_them_fast() -> None:
    # In a process of its own: all loops of a process share what they know of their attributes.
    program = """
import asyncio, gc
from contextvars import copy_context
from mcplumb._fast.eager_tasks import TaskStarter
from mcplumb._fast.poll_ahead import poll_ahead_on

async def main():
    loop = asyncio.get_running_loop()
    assert poll_ahead_on(loop) is poll_ahead_on(loop)
    started = loop.create_future()
    # A callback starts a task, as a connection does.
    loop.call_soon(lambda: started.set_result(TaskStarter(loop).start(asyncio.sleep(0), copy_context())))
    await (await started)
    print(any(type(held) is dict and "_ready" in held for held in gc.get_referents(loop)))

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "False\n"
