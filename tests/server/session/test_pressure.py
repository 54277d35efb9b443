"""One connection, as its client sees it: too many requests, clients that do not read, and everything at once."""

import asyncio
import itertools
import random
import socket

import pytest

from mcplumb.errors import Closed
from mcplumb.limits import Limits
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.server.context import Context
from mcplumb.types.meta import LOG_LEVEL
from mcplumb.wire.messages import Request
from tests.kit.loop import PATIENCE, happens, run, turns, until
from tests.kit.results import text_of
from tests.server.harness import (
    ABLE,
    WITH_BATCHES,
    Id,
    Peer,
    make_server,
    methods_in,
    piped_client,
    progress_in,
    raw_client,
)
from tests.server.workshop import Workshop, both_eras, codes, limited, numbered, order_of_answers, small_limits

# More requests than may be in flight


@both_eras
@small_limits
@pytest.mark.parametrize("tool", ["hold", "block"])
async def test_requests_beyond_the_limit_wait_in_order(revision: Revision, limit: int, tool: str) -> None:
    shop = Workshop(limits=limited(limit), threads=1 if tool == "block" else 32)

    async with raw_client(shop.server, revision) as peer:
        ids = numbered(peer, tool, *range(20))
        if tool == "block":
            await happens(shop.thread_begun)
        await turns()
        assert shop.begun == list(range(1 if tool == "block" else limit))
        shop.go.set()
        shop.thread_go.set()
        for number, request_id in enumerate(ids):
            assert text_of((await peer.answer(request_id))["result"]) == str(number)
        # Those that begin together may do so in any order.
        assert sorted(shop.begun) == list(range(20))
        assert shop.most <= limit


@small_limits
@pytest.mark.parametrize("tool", ["echo", "hold"])
async def test_thousands_may_wait(limit: int, tool: str) -> None:
    """They end one within the other's end, and the stack does not grow with them."""
    shop = Workshop(limits=limited(limit))

    async with raw_client(shop.server) as peer:
        first = numbered(peer, "hold", *range(limit))
        ids = numbered(peer, tool, *range(limit, 5000))
        await turns()
        shop.go.set()
        for request_id in [*first, *ids]:
            assert "result" in await peer.answer(request_id)
        assert sorted(shop.begun) == list(range(5000))
        assert shop.most <= limit


async def test_many_wait_inside_the_server() -> None:
    shop = Workshop(limits=limited(5000))

    async with raw_client(shop.server) as peer:
        first = numbered(peer, "hold", *range(5000))
        ids = numbered(peer, "echo", *range(5000, 10_000))
        await turns(500)
        assert len(shop.begun) == 5000
        shop.go.set()
        await peer.until(lambda: len(peer.seen) == 10_000)
        assert sorted(shop.begun) == list(range(10_000))
        assert sorted(order_of_answers(peer), key=int) == [*first, *ids]


@small_limits
async def test_what_takes_no_work_does_not_wait(limit: int) -> None:
    shop = Workshop(limits=limited(limit))

    async with raw_client(shop.server) as peer:
        numbered(peer, "hold", *range(limit))
        assert "result" in await peer.request("tools/list")
        peer.post("subscriptions/listen", {"notifications": {}})
        await peer.notification("notifications/subscriptions/acknowledged")


@small_limits
async def test_a_subscription_takes_nobodys_place(limit: int) -> None:
    shop = Workshop(limits=limited(limit))

    async with raw_client(shop.server) as peer:
        open_ids = [peer.post("subscriptions/listen", {"notifications": {}}) for _ in range(limit)]
        numbered(peer, "hold", *range(limit))
        (held,) = numbered(peer, "echo", 77)
        await turns()
        assert shop.begun == [*range(limit)]
        # Those that end leave no more room than they took.
        for request_id in open_ids:
            peer.cancel(request_id)
        await turns()
        assert 77 not in shop.begun
        shop.go.set()
        assert "result" in await peer.answer(held)


@pytest.mark.req("CAN-2")
@pytest.mark.parametrize("limit", [2, 3])
async def test_a_request_that_is_held_back_may_be_cancelled(limit: int) -> None:
    shop = Workshop(limits=limited(limit))

    async with raw_client(shop.server) as peer:
        running = numbered(peer, "hold", *range(limit))
        (held,) = numbered(peer, "hold", 77)
        await turns()
        peer.cancel(held)
        (other,) = numbered(peer, "echo", 88)
        await turns()
        # Its id is free again.
        assert "result" in await peer.request("tools/list", request_id=held)
        shop.go.set()
        for request_id in (*running, other):
            assert "result" in await peer.answer(request_id)
        await peer.settled()
        assert shop.begun == [*range(limit), 88]
        assert order_of_answers(peer).count(held) == 1


@pytest.mark.req("CAN-2")
@small_limits
async def test_a_cancellation_makes_room_for_the_next(limit: int) -> None:
    shop = Workshop(limits=limited(limit + 1))

    async with raw_client(shop.server) as peer:
        running = numbered(peer, "hold", *range(limit + 1))
        (held,) = numbered(peer, "echo", 77)
        await turns()
        assert 77 not in shop.begun
        peer.cancel(running[0])
        assert text_of((await peer.answer(held))["result"]) == "77"
        shop.go.set()


async def test_many_may_end_as_soon_as_they_begin() -> None:
    shop = Workshop(limits=Limits(max_in_flight=1))

    async with raw_client(shop.server) as peer:
        (running,) = numbered(peer, "hold", 0)
        ids = numbered(peer, "echo", *range(1, 5000))
        await turns()
        peer.cancel(running)
        for request_id in ids:
            assert "result" in await peer.answer(request_id)
        assert shop.begun == list(range(5000))


@pytest.mark.req("FRM-8")
@small_limits
async def test_an_id_that_is_held_back_is_in_flight(limit: int) -> None:
    shop = Workshop(limits=limited(limit + 1))

    async with raw_client(shop.server) as peer:
        numbered(peer, "hold", *range(limit))
        peer.post_call("hold", {"number": 8}, request_id="running")
        peer.post_call("echo", {"number": 9}, request_id="held")
        await turns()
        for request_id in ("running", "held"):
            again = await peer.request(
                "tools/call", {"name": "echo", "arguments": {"number": 1}}, request_id=request_id
            )
            assert codes(again) == [-32600]
            assert codes(await peer.request("tools/list", request_id=request_id)) == [-32600]
        shop.go.set()
        assert text_of((await peer.answer("held"))["result"]) == "9"
        assert text_of((await peer.answer("running"))["result"]) == "8"


@pytest.mark.req("FRM-8")
async def test_an_id_in_the_queue_is_refused_at_once() -> None:
    shop = Workshop(limits=limited(2))

    async with raw_client(shop.server) as peer:
        numbered(peer, "hold", 0, 1)
        peer.post_call("echo", {"number": 9}, request_id="queued")
        peer.post_call("echo", {"number": 1}, request_id="queued")
        await turns()
        assert codes(*peer.seen) == [-32600]
        shop.go.set()
        assert codes(await peer.answer("queued")) == [-32600]
        assert text_of((await peer.answer("queued"))["result"]) == "9"


@small_limits
async def test_a_request_beyond_the_queue_is_refused_at_once_while_a_question_is_open(limit: int) -> None:
    shop = Workshop(limits=limited(limit))

    async with raw_client(shop.server, LATEST_LEGACY, capabilities=ABLE) as peer:
        asking = numbered(peer, "ask", *range(limit))
        questions = [await peer.question() for _ in asking]
        before = order_of_answers(peer)
        queued = numbered(peer, "echo", *range(100, 100 + limit))
        refused = numbered(peer, "echo", 200, 201)
        await turns()
        assert order_of_answers(peer) == [*before, *refused]
        for question in questions:
            peer.reply(question, {"action": "accept"})
        for request_id in (*asking, *queued):
            assert "result" in await peer.answer(request_id)
        assert codes(*[await peer.answer(request_id) for request_id in refused]) == [-32603, -32603]


@small_limits
async def test_a_question_is_answered_also_when_everything_is_full(limit: int) -> None:
    """A function that waits for the client must not wait behind requests that nobody reads."""
    shop = Workshop(limits=limited(limit))

    async with raw_client(shop.server, LATEST_LEGACY, capabilities=ABLE) as peer:
        asking = numbered(peer, "ask", *range(limit))
        questions = [await peer.question() for _ in asking]
        # As many again wait; beyond that, nothing can be promised, but the answers are read.
        held = numbered(peer, "echo", *range(100, 100 + limit))
        refused = numbered(peer, "echo", 200, 201)
        for request_id in refused:
            response = await peer.answer(request_id)
            assert response["error"]["code"] == -32603
            assert "Too many requests wait already" in response["error"]["message"]
        for question in questions:
            peer.reply(question, {"action": "accept"})
        for request_id in (*asking, *held):
            assert "result" in await peer.answer(request_id)


async def test_a_question_asked_while_everything_is_full_is_answered() -> None:
    server = make_server(limits=limited(1))
    go, done = asyncio.Event(), asyncio.Event()

    @server.tool
    async def ask_later(ctx: Context) -> str:
        await go.wait()
        answer = await ctx.elicit_url("Sure?", "https://example.com")
        await done.wait()
        return answer.action

    @server.tool
    async def echo(number: int) -> int:
        return number

    async with raw_client(server, LATEST_LEGACY, capabilities=ABLE) as peer:
        asking = peer.post_call("ask_later")
        held = numbered(peer, "echo", 1)
        await turns()
        go.set()
        peer.reply(await peer.question(), {"action": "decline"})
        await turns()
        # It is full again, now without a question: the next ones wait, and are not refused.
        held += numbered(peer, "echo", 2, 3, 4)
        await turns()
        done.set()
        assert text_of((await peer.answer(asking))["result"]) == "decline"
        for request_id in held:
            assert "result" in await peer.answer(request_id)


# Clients that do not read


@both_eras
@pytest.mark.parametrize("tool", ["large", "error"])
async def test_answers_wait_for_a_client_that_does_not_read_and_none_is_lost(revision: Revision, tool: str) -> None:
    shop = Workshop()

    @shop.server.tool
    async def error(size: int) -> str:
        raise ValueError("x" * size)

    async with raw_client(shop.server, revision) as peer:
        peer.connection.pause()
        ids = [peer.post_call("large", {"size": 200_000}) for _ in range(50)]
        ids += [peer.post_call(tool, {"size": 1}) for _ in range(50)]
        await turns(200)
        peer.connection.resume()
        for request_id in ids:
            assert "result" in await peer.answer(request_id)
        assert order_of_answers(peer) == ids


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "nothing"])
async def test_a_client_that_does_not_read_is_not_read_either(method: str) -> None:
    shop = Workshop()

    async with raw_client(shop.server) as peer:
        peer.connection.pause()
        count = 20_000
        params = {"name": "large", "arguments": {"size": 500}, "padding": "x" * 100}
        for number in range(count):
            peer.post(method, params)
            if number % 1000 == 0:
                await turns()
        await turns(200)
        # Most of it waits on the client's own side.
        assert peer.connection.is_clogged
        peer.connection.resume()
        await peer.until(lambda: len(peer.seen) == count)
        assert order_of_answers(peer) == list(range(1, count + 1))


@pytest.mark.req("CAN-2")
async def test_a_request_may_be_cancelled_while_its_answer_waits_for_the_client() -> None:
    server = make_server()
    is_full = asyncio.Event()

    @server.tool
    async def fill(ctx: Context) -> None:
        while not ctx._call.session.connection.is_clogged:
            ctx.info("x" * 100_000)
        is_full.set()
        await asyncio.Event().wait()

    @server.tool
    def answer() -> str:
        return "too late"

    async with raw_client(server, LATEST_LEGACY) as peer:
        peer.connection.pause()
        request_id = peer.post_call("answer")
        peer.post_call("fill")
        # Both are there before the thread has run, so reading goes on until its answer waits.
        peer.cancel(request_id)
        await is_full.wait()
        await turns()
        peer.connection.resume()
        await peer.settled()
        assert request_id not in order_of_answers(peer)


def test_progress_and_answers_of_a_client_that_reads_now_and_then_stay_in_order() -> None:
    server = make_server()

    @server.tool
    async def work(number: int, ctx: Context) -> str:
        for step in range(5):
            await ctx.info("x" * 50_000)
            await ctx.progress(step + 1)
        return f"{number}"

    async def main() -> None:
        async with raw_client(server) as peer:
            ids = [
                peer.post_call("work", {"number": n}, meta={"progressToken": n, LOG_LEVEL: "info"}) for n in range(20)
            ]
            for _ in range(100):
                peer.connection.pause()
                await turns(5)
                peer.connection.resume()
                await turns(5)
            for number, request_id in enumerate(ids):
                assert text_of((await peer.answer(request_id))["result"]) == str(number)
            for number, request_id in enumerate(ids):
                own = [
                    each
                    for each in peer.seen
                    if each.get("id") == request_id or each.get("params", {}).get("progressToken") == number
                ]
                assert progress_in(own)[-1] == 5
                assert own[-1].get("id") == request_id
            assert methods_in(peer.seen).count("notifications/message") == 100

    run(main())


# Everything at once


class Walk:
    """A client that does anything at any time, and keeps a record of what it may expect."""

    def __init__(self, peer: Peer, shop: Workshop, seed: int) -> None:
        self._peer = peer
        self._shop = shop
        self._random = random.Random(seed)
        self._numbers = itertools.count(1000)
        self.posted: list[Id] = []
        self.cancelled: set[Id] = set()

    async def take(self, steps: int) -> None:
        actions = [self._post] * 6 + [self._cancel] * 2 + [self._let_go, self._pause, self._batch, self._wait]
        for _ in range(steps):
            self._random.choice(actions)()
            self._reply()
            await turns(self._random.randrange(4))
        # Now everything comes to its end.
        self._shop.thread_go.set()
        self._peer.connection.resume()
        await self._peer.until(self._is_settled)

    def _message(self) -> Request:
        number = next(self._numbers)
        tool = self._random.choice(["echo", "hold", "block", "ask", "large", "nothing", "list"])
        self.posted.append(number)
        if tool == "list":
            return self._peer.message("tools/list", request_id=number)
        arguments = {"size": self._random.choice([1, 400_000])} if tool == "large" else {"number": number}
        meta = {"progressToken": number}
        params = {"name": tool, "arguments": arguments}
        return self._peer.message("tools/call", params, request_id=number, meta=meta)

    def _post(self) -> None:
        self._peer.connection.send(self._message())

    def _batch(self) -> None:
        if self._peer.revision.has_batches:
            self._peer.connection.send_batch([self._message() for _ in range(self._random.randrange(1, 6))])

    def _cancel(self) -> None:
        if self.posted:
            self.cancelled.add(number := self._random.choice(self.posted))
            self._peer.cancel(number)

    def _let_go(self) -> None:
        self._shop.go.set()
        self._shop.go.clear()

    def _pause(self) -> None:
        self._peer.connection.pause()

    def _wait(self) -> None:
        self._peer.connection.resume()

    def _reply(self) -> None:
        for question in [each for each in self._peer.inbox if "id" in each and "method" in each]:
            self._peer.inbox.remove(question)
            self._peer.reply(question, {"action": "accept"})

    def answers(self) -> dict[Id, int]:
        """How often each request was answered."""
        each = [item for message in self._peer.seen for item in message.get("batch", [message])]
        counts: dict[Id, int] = {}
        for message in each:
            if "method" not in message:
                counts[message["id"]] = counts.get(message["id"], 0) + 1
        return counts

    def _is_settled(self) -> bool:
        self._let_go()
        self._reply()
        answers = self.answers()
        return all(number in answers or number in self.cancelled for number in self.posted)


@pytest.mark.req("FRM-8", "CAN-2", "CAN-4")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("revision", [LATEST, LATEST_LEGACY, WITH_BATCHES], ids=str)
async def test_each_request_is_answered_once_whatever_happens(revision: Revision, seed: int) -> None:
    shop = Workshop(limits=Limits(max_in_flight=3, max_waiting=3 if seed % 2 else 300), threads=2)

    async with raw_client(shop.server, revision, capabilities=ABLE) as peer:
        walk = Walk(peer, shop, seed)
        await walk.take(300)
        await peer.settled()
        answers = walk.answers()
        wrong = {number: answers.get(number) for number in walk.posted if answers.get(number, 0) > 1}
        assert wrong == {}
        assert all(number in answers for number in walk.posted if number not in walk.cancelled)
        # It is as good as new.
        (request_id,) = numbered(peer, "echo", 1)
        assert "result" in await peer.answer(request_id)
        (session,) = shop.server.active_sessions._sessions
        endpoint = session.endpoint
        assert not any((endpoint.incoming, endpoint._queue, endpoint._batches))


# Questions to a client that does not read


async def test_a_question_that_waits_for_the_client_to_read_does_not_stop_the_reading() -> None:
    server = make_server(limits=Limits(max_in_flight=1, max_waiting=1))

    @server.tool
    async def ask(ctx: Context) -> str:
        for _ in range(30):
            ctx.info("x" * 100_000)
        return str(len(await ctx.roots()))

    @server.tool
    async def fast() -> str:
        return "fast"

    async with piped_client(server, LATEST_LEGACY, capabilities=ABLE) as (peer, hang_up):
        asking = peer.post_call("ask")
        await asyncio.sleep(0)
        peer.connection.pause()
        await turns()
        waiting = peer.post_call("fast")
        await turns()
        peer.connection.resume()
        peer.reply(await peer.question("roots/list"), {"roots": []})
        assert text_of((await peer.answer(asking))["result"]) == "0"
        assert text_of((await peer.answer(waiting))["result"]) == "fast"
        await hang_up()


async def test_a_question_that_waits_for_the_client_to_read_ends_with_the_input() -> None:
    server = make_server(finish_within=PATIENCE)
    raised: list[str] = []

    @server.tool
    async def ask(ctx: Context) -> str:
        for _ in range(30):
            ctx.info("x" * 100_000)
        try:
            await ctx.roots()
        except Closed as error:
            raised.append(str(error))
        return "told"

    async with piped_client(server, LATEST_LEGACY, capabilities=ABLE) as (peer, _):
        asking = peer.post_call("ask")
        await asyncio.sleep(0)
        peer.connection.pause()
        await turns()
        assert peer.socket is not None
        peer.socket.shutdown(socket.SHUT_WR)
        await until(lambda: raised)
        peer.connection.resume()
        assert text_of((await peer.answer(asking))["result"]) == "told"
    assert "sends nothing any more" in raised[0]
