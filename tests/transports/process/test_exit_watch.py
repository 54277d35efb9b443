"""The end of a child is noticed at once, in the loop, and the child stays unreaped; also where systems can do less."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

import pytest

from mcplumb.transports.process import exit_watch
from mcplumb.transports.process.exit_watch import Exit, has_exited, peek, reap, watch_exit
from tests.kit.loop import PATIENCE, run

#: The system's own, for tests that take it away from the module.
waitid = os.waitid


class Child:
    """A process that runs some code at the end of its input."""

    def __init__(self, code: str = "") -> None:
        program = f"import os, sys; sys.stdin.read(); {code}"
        self._process = subprocess.Popen([sys.executable, "-I", "-S", "-c", program], stdin=subprocess.PIPE)
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:  # closes the pipe and reaps
            pass

    def end(self) -> None:
        """Let it end, and wait until it has."""
        self.let_end()
        waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def let_end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()


@pytest.fixture(params=["pidfd", "no pidfd", "pidfd refused", "no waitid either"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """This system, and what others lack."""

    def refuse(pid: int, flags: int = 0) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    if request.param == "pidfd refused":
        monkeypatch.setattr(os, "pidfd_open", refuse)
    elif request.param != "pidfd":
        monkeypatch.delattr(os, "pidfd_open")
    if request.param == "no waitid either":
        monkeypatch.delattr(os, "waitid")


def count_descriptors() -> int:
    gc.collect()
    return len(list(Path("/dev/fd").iterdir()))


async def join_watchers() -> None:
    """Wait for the threads that watch; what they have told the loop has then been dealt with."""
    for thread in threading.enumerate():
        if thread.name.startswith("mcplumb-exit"):
            await asyncio.to_thread(thread.join, PATIENCE)
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (Exit(code=0), "exited with code 0"),
        (Exit(code=3), "exited with code 3"),
        (Exit(signal="SIGKILL"), "was ended by SIGKILL"),
        (Exit(), "ended"),
    ],
)
def test_an_exit_can_be_read(end: Exit, said: str) -> None:
    assert str(end) == said


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("", Exit(code=0)),
        ("os._exit(3)", Exit(code=3)),
        ("os.kill(os.getpid(), 9)", Exit(signal="SIGKILL")),
        (f"os.kill(os.getpid(), {signal.SIGRTMIN + 1})", Exit(signal=f"signal {signal.SIGRTMIN + 1}")),
    ],
)
@pytest.mark.usefixtures("system")
def test_a_child_is_reaped_only_when_asked(code: str, end: Exit) -> None:
    with Child(code) as child:
        assert not has_exited(child.pid)
        assert peek(child.pid) is None
        assert reap(child.pid) is None
        child.end()
        assert has_exited(child.pid)
        assert peek(child.pid) == end
        assert peek(child.pid) == end
        assert reap(child.pid) == end
        assert has_exited(child.pid)
        assert peek(child.pid) == Exit()
        assert reap(child.pid) == Exit()


@pytest.mark.req("LIF-5")
@pytest.mark.usefixtures("system")
async def test_an_exit_is_told_once_in_the_loop_and_nothing_is_reaped_or_left_open() -> None:
    before = count_descriptors()
    told: list[threading.Thread] = []
    exited = asyncio.Event()

    def then() -> None:
        told.append(threading.current_thread())
        exited.set()

    with Child("os._exit(3)") as child:
        stop = watch_exit(child.pid, then)
        await asyncio.sleep(0)
        assert told == []
        child.let_end()
        await exited.wait()
        await join_watchers()
        assert told == [threading.main_thread()]
        assert reap(child.pid) == Exit(code=3)
        stop()
        stop()
    assert count_descriptors() == before


@pytest.mark.usefixtures("system")
async def test_who_stops_watching_is_not_told() -> None:
    before = count_descriptors()
    told: list[bool] = []
    with Child() as child:
        stop = watch_exit(child.pid, lambda: told.append(True))
        stop()
        stop()
        child.end()
        await join_watchers()
        assert told == []
    assert count_descriptors() == before


@pytest.mark.usefixtures("system")
async def test_what_has_exited_before_is_told_as_well() -> None:
    with Child() as child:
        child.end()
        for _ in ("a zombie", "reaped"):
            exited = asyncio.Event()
            watch_exit(child.pid, exited.set)
            assert not exited.is_set()
            await exited.wait()
            reap(child.pid)
        told: list[bool] = []
        watch_exit(child.pid, lambda: told.append(True))()
        await join_watchers()
        assert told == []


@pytest.mark.usefixtures("system")
def test_a_loop_may_be_closed_before_the_child_ends() -> None:
    before = count_descriptors()
    told: list[bool] = []

    async def main(pid: int) -> None:
        stops.append(watch_exit(pid, lambda: told.append(True)))

    stops: list[Any] = []
    with Child() as child:
        run(main(child.pid))
        child.end()
        asyncio.run(join_watchers())
        for stop in stops * 2:
            stop()
    assert told == []
    assert count_descriptors() == before


@pytest.mark.usefixtures("system")
def test_children_that_the_system_reaps_by_itself() -> None:
    async def main() -> None:
        exited = asyncio.Event()
        with Child() as child:
            watch_exit(child.pid, exited.set)
            child.let_end()
            await exited.wait()
            assert has_exited(child.pid)
            assert reap(child.pid) == Exit()
        await join_watchers()

    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        run(main())
    finally:
        signal.signal(signal.SIGCHLD, before)


async def test_without_a_free_descriptor_an_exit_is_told_all_the_same() -> None:
    exited = asyncio.Event()
    free = os.open(os.devnull, os.O_RDONLY)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Child() as child:
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            watch_exit(child.pid, exited.set)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        child.let_end()
        await exited.wait()
    await join_watchers()


def test_a_wait_goes_on_after_a_signal() -> None:
    """Only the handler ends the child, and that only after the wait was interrupted several times."""
    interruptions: list[int] = []
    with Child() as child:

        def handler(number: int, frame: object) -> None:
            interruptions.append(number)
            if len(interruptions) == 3:
                child.let_end()

        before = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        try:
            assert exit_watch._wait_with_ctypes(child.pid, os.WEXITED | os.WNOWAIT)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert len(interruptions) >= 3
        assert reap(child.pid) == Exit(code=0)
