"""How and when a session ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb.server.server_session import Ending
from mcplumb.transports.memory import memory_pair
from mcplumb.wire.messages import Notification
from tests.client.peers import skip
from tests.kit.loop import run, turns
from tests.transports.ends import Recorder


async def test_the_first_reason_counts() -> None:
    ending = Ending(asyncio.get_running_loop())
    ending.begin("broken")
    ending.begin("ended")
    assert await ending.why == "broken"


async def test_a_deadline_comes_nearer_and_never_goes_away() -> None:
    ending = Ending(asyncio.get_running_loop())
    ending.give_up_after(0)
    ending.give_up_after(3600)
    await ending.finished
    ending.finish()


async def test_something_has_to_happen_in_time() -> None:
    ending = Ending(asyncio.get_running_loop())
    ending.go_on_within(3600)
    ending.go_on_within(float("inf"))
    await turns()
    assert not ending.why.done()
    ending.go_on_within(0)
    assert await ending.why == "ended"
    ending.cancel()


async def test_a_deadline_that_matters_no_more_does_nothing() -> None:
    ending = Ending(asyncio.get_running_loop())
    ending.cancel()
    ending.give_up_after(0)
    ending.go_on_within(0)
    ending.cancel()
    skip(60)
    await turns()
    assert not ending.finished.done()
    assert not ending.why.done()


async def test_the_client_reads_the_last_answers() -> None:
    """It has a moment for that, also when the time is over."""

    client, server = memory_pair()
    came = Recorder()
    client.start(came)
    server.start(Recorder())
    for _ in range(40):
        server.send(notification())
    ending = Ending(asyncio.get_running_loop())
    ending.give_up_after(0)
    await ending.close(server)
    await came.until_end()
    assert len(came.items) == 40
    client.abort()
    ending.cancel()


def test_a_client_that_does_not_read_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        near, _ = memory_pair()
        ending = Ending(asyncio.get_running_loop())
        ending.give_up_after(3600)
        for _ in range(40):
            near.send(notification())
        closing = asyncio.create_task(ending.close(near))
        await turns()
        assert not closing.done()
        ending.give_up_after(0)
        await closing
        ending.give_up_after(0)
        ending.cancel()

    run(main())
    assert "did not read the last answers in time" in caplog.text


def notification() -> Notification:
    return Notification("notifications/x", {"text": "x" * 100_000})


async def test_a_client_that_does_not_read_has_as_long_as_everything_has() -> None:
    class Unread:
        async def close(self) -> None:
            await asyncio.Event().wait()

    ending = Ending(asyncio.get_running_loop())
    ending.bound(0)
    connection: Any = Unread()
    await ending.close(connection)
