"""The end of a session: the first reason counts, and the earliest deadline."""

from __future__ import annotations

import asyncio

import pytest

from mcpipe.server.ending import Ending
from mcpipe.transports.memory import memory_pair
from mcpipe.wire.messages import Notification
from tests.server.harness import run, turns
from tests.transports.ends import Recorder


def make_ending() -> Ending:
    return Ending(asyncio.get_running_loop())


def test_the_first_reason_counts() -> None:
    async def main() -> None:
        ending = make_ending()
        assert not ending.why.done()
        ending.begin("ended")
        ending.begin("broken")
        assert await ending.why == "ended"

    run(main())


def test_it_is_finished_when_nothing_is_left_or_the_time_is_over() -> None:
    async def main() -> None:
        ending = make_ending()
        ending.give_up_after(1000)
        await turns()
        assert not ending.finished.done()
        ending.finish()
        ending.finish()
        await ending.finished
        ending.cancel()
        late = make_ending()
        late.give_up_after(0.01)
        await late.finished

    run(main())


def test_the_deadline_only_comes_nearer() -> None:
    async def main() -> None:
        ending = make_ending()
        ending.give_up_after(0.01)
        ending.give_up_after(1000)
        await ending.finished
        ending.cancel()

    run(main())


def test_a_deadline_that_matters_no_more_does_nothing() -> None:
    async def main() -> None:
        ending = make_ending()
        ending.cancel()
        ending.give_up_after(0)
        ending.cancel()
        await asyncio.sleep(0.01)
        assert not ending.finished.done()

    run(main())


def test_a_client_that_left_has_to_be_worked_for() -> None:
    """As long as something happens, what it sent before is read."""

    async def main() -> None:
        ending = make_ending()
        for _ in range(3):
            ending.go_on_within(1000)
        await turns()
        assert not ending.why.done()
        ending.go_on_within(float("inf"))
        ending.go_on_within(0.01)
        assert await ending.why == "ended"
        other = make_ending()
        other.go_on_within(0)
        other.cancel()
        await asyncio.sleep(0.01)
        assert not other.why.done()

    run(main())


# The last answers


def test_the_client_reads_the_last_answers() -> None:
    async def main() -> None:
        client, server = memory_pair()
        came = Recorder()
        client.start(came)
        server.start(Recorder())
        server.send(Notification("last", {"text": "x" * 500_000}))
        ending = make_ending()
        ending.give_up_after(0)
        await ending.close(server)
        await came.until_end()
        assert came.names == ["last"]
        client.abort()
        ending.cancel()

    run(main())


@pytest.mark.parametrize("hurry", [False, True])
def test_a_client_that_does_not_read_them_is_not_waited_for(hurry: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        client, server = memory_pair()
        client.start(Recorder())
        server.start(Recorder())
        client.pause()
        server.send(Notification("last", {"text": "x" * 500_000}))
        ending = make_ending()
        ending.give_up_after(1000 if hurry else 0)
        closing = asyncio.create_task(ending.close(server))
        await turns()
        assert not closing.done()
        if hurry:  # it was patient, until it was told to stop again
            ending.give_up_after(0)
        await closing
        ending.give_up_after(0)
        ending.cancel()
        client.abort()

    run(main())
    assert "The client did not read the last answers in time." in caplog.text
