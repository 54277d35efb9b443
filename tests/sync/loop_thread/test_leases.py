from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from queue import Empty
from typing import Any

import pytest

from mcplumb.errors import Closed, UsageError
from mcplumb.sync import loop_thread
from mcplumb.sync import loop_thread as engines
from mcplumb.sync.loop_thread import Lease, _Landlord
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


def leased(close: Callable[[], Any] | None = None) -> Lease:
    lease = Lease(close or Connection().close, PATIENCE)
    lease.begin()
    return lease


async def give(value: Any) -> Any:
    return value


def test_the_engine_runs_from_the_first_to_the_last() -> None:
    first, second = leased(), leased()
    assert first.engine is second.engine
    assert own_threads() == ["mcplumb-sync"]
    first.close()
    assert own_threads() == ["mcplumb-sync"]
    assert second.errand().run(give(5)) == 5
    second.close()
    assert own_threads() == []
    third = leased()
    assert third.engine is not first.engine
    third.close()


def test_it_begins_once() -> None:
    lease = leased()
    with pytest.raises(UsageError, match="call connect again"):
        lease.begin()
    lease.close()
    with pytest.raises(UsageError, match="call connect again"):
        lease.begin()


def test_of_several_threads_one_begins() -> None:
    lease = Lease(Connection().close, PATIENCE)
    meeting = threading.Barrier(8, timeout=PATIENCE)
    refused: list[UsageError] = []

    def begin() -> None:
        meeting.wait()
        try:
            lease.begin()
        except UsageError as error:
            refused.append(error)

    in_threads(*[begin] * 8)
    assert len(refused) == 7
    lease.close()


def test_before_it_begins_there_is_nothing_to_do() -> None:
    lease = Lease(Connection().close, PATIENCE)
    assert lease.is_over
    lease.close()
    with pytest.raises(Closed):
        lease.errand()
    with pytest.raises(Closed, match="was not opened"):
        asyncio.run(lease.have_done(print))


def test_after_the_end_there_is_nothing_to_do() -> None:
    connection = Connection()
    lease = leased(connection.close)
    assert not lease.is_over
    for _ in range(2):
        lease.close()
        lease.end()
        assert lease.is_over
    with pytest.raises(Closed, match="The client was closed"):
        lease.errand()
    assert connection.closed == 1


def test_closing_from_many_threads_at_once() -> None:
    connection = Connection()
    lease = leased(connection.close)
    in_threads(*[lease.close] * 8)
    assert 1 <= connection.closed <= 8
    wait_until(lambda: not own_threads())


def test_what_waits_when_the_lease_ends_is_given_up() -> None:
    lease = leased()
    begun = threading.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Future()

    def wait() -> None:
        with pytest.raises(Closed):
            lease.errand().run(hang())

    def close() -> None:
        assert begun.wait(PATIENCE)
        lease.close()

    in_threads(wait, close)


def test_a_close_that_fails_gives_back_as_well() -> None:
    async def close() -> None:
        raise KeyError("why")

    lease = leased(close)
    with pytest.raises(KeyError, match="why"):
        lease.close()
    assert own_threads() == []


def test_a_close_in_the_loop_itself_changes_nothing() -> None:
    lease = leased()

    async def close() -> None:
        lease.close()

    with pytest.raises(UsageError, match="in the thread that does its work"):
        lease.errand().run(close())
    assert not lease.is_over
    lease.close()


def test_functions_are_called_in_another_thread() -> None:
    lease = leased()
    assert lease.errand().run(lease.have_done(lambda: threading.current_thread().name)) == "mcplumb-sync-worker"
    lease.close()
    wait_until(lambda: not own_threads())


def test_a_close_that_finds_everything_closed_says_nothing() -> None:
    async def close() -> None:
        raise Closed("Somebody else was faster.")

    leased(close).close()


def test_a_look_is_taken_in_the_loop_while_there_is_one() -> None:
    lease = leased()
    here = threading.get_ident()
    there = lease.look(threading.get_ident)
    assert there != here

    async def look() -> int:
        return lease.look(threading.get_ident)

    assert lease.errand().run(look()) == there
    lease.close()
    assert lease.look(threading.get_ident) == here


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

    left = [leased(close), leased(close)]
    loop_thread._landlord.close_all()
    assert all(lease.is_over for lease in left)
    loop_thread._landlord.close_all()


def test_at_exit_nothing_waits_longer_than_it_has_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_SHORTLY", 0.01)

    async def close() -> None:
        await asyncio.Future()

    lease = Lease(close, 0.01)
    lease.begin()
    loop_thread._landlord.close_all()
    assert lease.is_over


def test_at_exit_an_interruption_gives_back_as_well() -> None:
    lease: Lease

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def close() -> None:
        assert lease.engine is not None
        # What a thread that waits is given to do is run in it, as a signal's handler is.
        await next(iter(lease.engine.waiting)).have_done(interrupt)

    lease = leased(close)
    with pytest.raises(KeyboardInterrupt):
        loop_thread._landlord.close_all()
    assert lease.is_over


# After a fork


def test_a_fork_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    landlord = _Landlord()
    monkeypatch.setattr(loop_thread, "_landlord", landlord)
    inherited = leased()
    engine = inherited.engine
    assert engine is not None
    landlord.forget()
    engine._pid -= 1
    assert inherited.is_over
    inherited.close()
    with pytest.raises(UsageError, match="from which this one was forked"):
        inherited.errand()
    inherited.end()
    lease = leased()
    assert lease.engine is not engine
    assert lease.errand().run(give(5)) == 5
    lease.close()
    landlord.close_all()
    assert not engine.loop.is_closed()
    engine.end()


def test_patience_ends_as_the_queue_says() -> None:
    lease = leased()
    with pytest.raises(Empty):
        lease.errand().run(asyncio.sleep(PATIENCE), within=0.01)
    lease.close()
