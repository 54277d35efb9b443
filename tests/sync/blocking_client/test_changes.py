from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from mcplumb.errors import Closed, UsageError
from mcplumb.protocol.subscription_state import Change
from mcplumb.revisions import REVISIONS
from mcplumb.sync.blocking_client import Changes, Client, connect
from mcplumb.types.notification_params import SubscriptionFilter
from tests.kit.loop import PATIENCE
from tests.sync.loop_thread.test_shared_loop import interrupt
from tests.sync.world import World, in_threads, own_threads, wait_until

MAP = "world://map"


@pytest.fixture(params=[REVISIONS[0].name, REVISIONS[-1].name])
def connected(request: pytest.FixtureRequest) -> Iterator[Client]:
    with connect(World().server, revisions=[request.param]) as connected:
        yield connected
    wait_until(lambda: not own_threads())


def test_changes_are_iterated_over(connected: Client) -> None:
    with connected.listen(resources=[MAP], timeout=PATIENCE) as changes:
        assert isinstance(changes, Changes)
        wanted = SubscriptionFilter(resource_subscriptions=[MAP])
        assert (changes.wanted, changes.honoured, changes.timeout) == (wanted, wanted, PATIENCE)
        connected.call_tool("change")
        connected.call_tool("change")
        heard = []
        for change in changes:
            heard.append(change)
            if len(heard) == 2:
                break
        assert heard == [Change("updates", MAP)] * 2
        assert (changes.dropped, changes.error, changes.has_ended) == (0, None, False)
    assert changes.has_ended
    assert list(changes) == []


def test_it_has_what_the_async_one_has_for_its_user(connected: Client) -> None:
    with connected.listen(tools=True) as changes:
        theirs = {name for name in vars(changes._changes) if not name.startswith("_")}
    assert theirs <= {name for name, value in vars(Changes).items() if isinstance(value, property)}


@pytest.mark.req("LIF-11")
def test_closing_in_another_thread_ends_the_iteration(connected: Client) -> None:
    begun = threading.Event()

    def iterate() -> None:
        begun.set()
        assert list(changes) == []

    def close() -> None:
        assert begun.wait(PATIENCE)
        changes.close()
        changes.close()

    with connected.listen(tools=True) as changes:
        in_threads(iterate, iterate, close)
    connected.ping()


def test_closing_the_client_raises_in_the_iteration(connected: Client) -> None:
    begun = threading.Event()

    def iterate() -> None:
        with connected.listen(tools=True) as changes:
            begun.set()
            with pytest.raises(Closed):
                next(changes)

    def close() -> None:
        assert begun.wait(PATIENCE)
        connected.close()

    in_threads(iterate, close)


def test_after_the_client_was_closed(connected: Client) -> None:
    with connected.listen(tools=True) as left:
        ended = connected.listen(prompts=True)
        with ended:
            pass
        unused = connected.listen(tools=True)
        connected.close()
        with pytest.raises(Closed):
            next(left)
        assert list(ended) == []
        with pytest.raises(Closed), unused:
            pytest.fail("It cannot be entered.")


def test_what_makes_no_sense_is_refused(connected: Client) -> None:
    with pytest.raises(UsageError, match="listen needs something to listen for"):
        connected.listen()
    changes = connected.listen(tools=True)
    with pytest.raises(UsageError, match="Enter the changes first"):
        next(changes)
    with changes, pytest.raises(UsageError, match="call listen again"):
        changes.__enter__()


async def tell_of_call(connected: Client, waits: threading.Event) -> None:
    """Set the event as soon as somebody waits for the next call."""
    shared_loop = connected._handle.shared_loop
    assert shared_loop is not None

    def look() -> None:
        if shared_loop.active_calls:
            waits.set()
        else:
            shared_loop.loop.call_later(0.001, look)

    shared_loop.loop.call_soon(lambda: shared_loop.loop.call_soon(look))


def test_ctrl_c_ends_the_wait_and_loses_nothing(connected: Client) -> None:
    waits = threading.Event()
    thread = threading.Thread(target=interrupt, args=(waits,))
    thread.start()
    with connected.listen(resources=[MAP]) as changes:
        connected._handle.new_call().run(tell_of_call(connected, waits))
        with pytest.raises(KeyboardInterrupt):
            next(changes)
        connected.call_tool("change")
        assert next(changes) == Change("updates", MAP)
    thread.join()
