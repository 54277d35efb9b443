"""A loop in a thread: results, errors, Ctrl-C, and what is left at the end."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable

import pytest

from mcplumb.cli.shell import BackgroundLoop


async def interrupted(notes: list[str], *, fails: bool = False) -> None:
    """As if Ctrl-C were pressed while the main thread waits."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        notes.append("cancelled")
        if fails:
            raise ValueError("too late") from None
        raise


async def where() -> threading.Thread:
    return threading.current_thread()


async def fail() -> None:
    raise ValueError("no")


def test_results_and_errors_come_back() -> None:
    noted: list[threading.Thread] = []
    with BackgroundLoop(lambda: noted.append(threading.current_thread())) as background:
        thread = background.run(where())
        assert [thread] == noted
        assert thread is not threading.current_thread()
        with pytest.raises(ValueError, match="no"):
            background.run(fail())
    assert not thread.is_alive()


@pytest.mark.parametrize("fails", [False, True])
def test_ctrl_c_cancels_what_is_waited_for_and_nothing_else(fails: bool) -> None:
    notes: list[str] = []
    with BackgroundLoop() as background:
        with pytest.raises(KeyboardInterrupt):
            background.run(interrupted(notes, fails=fails))
        assert notes == ["cancelled"]
        assert background.run(asyncio.sleep(0, "still there")) == "still there"


@pytest.mark.parametrize("is_scheduled", [False, True])
def test_ctrl_c_is_noticed_from_the_very_beginning(is_scheduled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    async def go_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    with BackgroundLoop() as background:
        loop = background._loop
        schedule = loop.call_soon_threadsafe

        def interrupt(callback: Callable[[], object]) -> None:
            """As if Ctrl-C were pressed while the loop is told."""
            monkeypatch.undo()
            if is_scheduled:
                schedule(callback)
                background.run(asyncio.sleep(0))
            raise KeyboardInterrupt

        monkeypatch.setattr(loop, "call_soon_threadsafe", interrupt)
        with pytest.raises(KeyboardInterrupt):
            background.run(go_on())
        assert ended == (["ended"] if is_scheduled else [])
        assert background.run(asyncio.sleep(0, "still there")) == "still there"


def test_what_still_runs_is_cancelled_at_the_end() -> None:
    notes: list[str] = []

    async def go_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            notes.append("over")

    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(go_on())
        await asyncio.sleep(0)
        return task

    with BackgroundLoop() as background:
        task = background.run(begin())
    assert task.cancelled()
    assert notes == ["over"]
