"""A caller goes on while its answer is being received: whatever it does there, the others get theirs."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mcplumb.client.client import Client
from mcplumb.errors import Closed, RequestLost
from mcplumb.limits import DEFAULT_LIMITS
from mcplumb.rpc.endpoint import Endpoint
from mcplumb.rpc.handler import CallOptions, Handler
from mcplumb.transports.connection import Connection
from mcplumb.wire.messages import Error, Request, Result
from tests.client.peers import TEXT, Peer, modern, talk
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import PATIENCE, turns
from tests.transports.ends import PAIRS, Item, Maker, Recorder

pytestmark = leaves_nothing

pytestmark = pytest.mark.tricks


@pytest.fixture(params=PAIRS.values(), ids=list(PAIRS))
def pair(request: pytest.FixtureRequest) -> Maker:
    make: Maker = request.param
    return make


class Side:
    """Both ends of a connection: the calls of one, and whatever the other gets."""

    def __init__(self, near: Connection, far: Connection) -> None:
        self.near, self.far = near, far
        self.calls = Endpoint(near, cast("Handler", SimpleNamespace(admit=None)), DEFAULT_LIMITS, peer="server")
        self.seen = Recorder()
        self.is_within = False
        near.start(Recorder(self.received))
        far.start(self.seen)

    def received(self, item: Item) -> None:
        assert isinstance(item, Result | Error)
        self.is_within = True
        try:
            self.calls.received(item)
        finally:
            self.is_within = False

    def begin(self, then: Callable[[Side], Awaitable[object]] | None = None, name: str = "x") -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(self._call(then, name))

    async def call(self, name: str = "x") -> Any:
        return await self.calls.request(name, {}, CallOptions(timeout=PATIENCE))

    async def _call(self, then: Callable[[Side], Awaitable[object]] | None, name: str) -> Any:
        result = await self.call(name)
        if then is not None:
            assert self.is_within
            await then(self)
        return bytes(result)

    async def answer(self, count: int) -> None:
        """Answer the first requests, all in one go."""
        await self.seen.until_count(count)
        for number in range(1, count + 1):
            self.far.send(Result(number, number))

    async def answer_all(self) -> None:
        """Answer whatever comes, for ever."""
        while True:
            await self.seen.until_count(1)
            for item in self.seen.items:
                assert isinstance(item, Request)
                self.far.send(Result(item.id, item.id))
            self.seen.items.clear()


@asynccontextmanager
async def sides(make: Maker) -> AsyncIterator[Side]:
    async with asyncio.timeout(PATIENCE):
        side = Side(*make())
        yield side
        assert not side.calls._outgoing
        side.near.abort()
        side.far.abort()


async def test_what_the_callers_send_next_goes_out_with_one_write(pair: Maker) -> None:
    async with sides(pair) as side:
        writes: list[int] = []
        write = side.near._sink.write  # type: ignore[attr-defined]

        class Sink:
            def write(self, pieces: list[bytes]) -> int:
                writes.append(len(pieces))
                count: int = write(pieces)
                return count

        first = [side.begin(lambda side: side.call("y")) for _ in range(10)]
        await side.answer(10)
        side.near._sink = Sink()  # type: ignore[attr-defined]
        side.near._pipe = None  # type: ignore[attr-defined]
        await side.seen.until_count(20)
        assert writes == [10]
        for number in range(11, 21):
            side.far.send(Result(number, number))
        await asyncio.gather(*first)
        side.near._sink = write.__self__  # type: ignore[attr-defined]


async def test_a_caller_may_send_a_thousand_more(pair: Maker) -> None:
    async with sides(pair) as side:

        async def more(side: Side) -> None:
            tasks = [side.begin(name="y") for _ in range(1000)]
            assert await asyncio.gather(*tasks) == [b"%d" % number for number in range(3, 1003)]

        first, second = side.begin(more), side.begin()
        server = asyncio.ensure_future(side.answer_all())
        assert await asyncio.gather(first, second) == [b"1", b"2"]
        server.cancel()
        await asyncio.wait([server])


async def test_a_thousand_calls_one_after_the_other_need_no_stack(pair: Maker) -> None:
    async with sides(pair) as side:

        async def more(side: Side) -> None:
            for _ in range(1000):
                await side.call("y")

        task = side.begin(more)
        server = asyncio.ensure_future(side.answer_all())
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(len(inspect.stack(0)) + 200)
        try:
            await task
        finally:
            sys.setrecursionlimit(limit)
        server.cancel()
        await asyncio.wait([server])


@pytest.mark.parametrize("error", [ValueError("no"), RuntimeError("no")])
async def test_a_caller_that_fails_harms_nobody(pair: Maker, error: Exception) -> None:
    async def fail(_: Side) -> None:
        raise error

    async with sides(pair) as side:
        failing, good = side.begin(fail), side.begin()
        await side.answer(2)
        await asyncio.wait([failing, good])
        assert failing.exception() is error
        assert good.result() == b"2"


@pytest.mark.req("CAN-4")
async def test_a_caller_may_cancel_others_whose_answers_are_there_too(pair: Maker) -> None:
    async with sides(pair) as side:

        async def cancel(_: Side) -> None:
            for task in tasks[1:]:
                task.cancel()

        tasks = [side.begin(cancel), *(side.begin() for _ in range(5))]
        await side.answer(6)
        await asyncio.wait(tasks)
        assert tasks[0].result() == b"1"
        assert all(task.cancelled() for task in tasks[1:])
        await turns()
        assert len(side.seen.items) == 6, "a request that was answered is not cancelled on the wire"


@pytest.mark.req("CAN-1")
async def test_a_caller_may_cancel_others_whose_answers_never_come(pair: Maker) -> None:
    async with sides(pair) as side:

        async def cancel(_: Side) -> None:
            second.cancel()

        first, second = side.begin(cancel), side.begin()
        await side.seen.until_count(2)
        side.far.send(Result(1, 1))
        await asyncio.wait([first, second])
        await side.seen.until_count(3)
        assert side.seen.names[2:] == ["notifications/cancelled"]


@pytest.mark.parametrize("how", ["abort", "close", "lose"])
async def test_a_caller_may_close_the_connection(pair: Maker, how: str) -> None:
    async with sides(pair) as side:

        async def close(side: Side) -> None:
            if how == "lose":
                side.calls.lose(Closed("Enough."))
            elif how == "close":
                await side.near.close()
            else:
                side.near.abort()

        first, second = side.begin(close), side.begin()
        await side.answer(2)
        assert await first == b"1"
        if how != "lose":
            # Nothing is received after that.
            side.calls.lose(Closed("Enough."))
        with pytest.raises(RequestLost):
            await second
        with pytest.raises(Closed, match="Enough"):
            await side.call()


async def test_a_caller_may_pause_the_reading(pair: Maker) -> None:
    async with sides(pair) as side:

        async def pause(side: Side) -> None:
            side.near.pause()

        first, second = side.begin(pause), side.begin()
        await side.answer(2)
        await first
        await turns()
        assert not second.done()
        side.near.resume()
        assert await second == b"2"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_ends_the_loop_and_loses_no_other_answer(pair: Maker, kind: type[BaseException]) -> None:
    async def fail(_: Side) -> None:
        raise kind

    async def begin() -> tuple[Side, asyncio.Task[Any], asyncio.Task[Any]]:
        side = Side(*pair())
        tasks = side.begin(fail), side.begin()
        await side.answer(2)
        return side, *tasks

    async def end() -> None:
        async with asyncio.timeout(PATIENCE):
            assert await second == b"2"
        side.near.abort()
        side.far.abort()

    loop = asyncio.new_event_loop()
    try:
        side, first, second = loop.run_until_complete(begin())
        with pytest.raises(kind):
            loop.run_until_complete(asyncio.wait([second]))
        assert isinstance(first.exception(), kind)
        loop.run_until_complete(end())
    finally:
        loop.close()


def test_a_caller_may_close_its_client() -> None:
    async def play(peer: Peer) -> None:
        requests = [await peer.expect("tools/call") for _ in range(3)]
        for request in requests:
            peer.answer(request, TEXT)

    async def body(client: Client) -> None:
        async def call_and_close() -> None:
            await client.call_tool("a")
            await client.close()

        others = [asyncio.ensure_future(client.call_tool("b")) for _ in range(2)]
        await turns(1)
        await asyncio.gather(call_and_close(), *others)
        with pytest.raises(Closed):
            await client.call_tool("c")

    talk(modern(play), body)
