"""One connection, as its client sees it: several requests in one line, and their answers."""

from typing import Any

import pytest

from mcplumb.limits import Limits
from mcplumb.revisions import LATEST, Revision
from mcplumb.wire.messages import Notification, Result
from tests.kit.loop import turns
from tests.kit.results import text_of
from tests.server.harness import ABLE, WITH_BATCHES, Peer, make_server, raw_client
from tests.server.workshop import Workshop, codes, every_revision, limited, small_limits

# Batches


@pytest.mark.req("FRM-10")
@every_revision
async def test_a_batch_is_a_message_in_one_revision_only(revision: Revision) -> None:
    shop = Workshop()

    async with raw_client(shop.server, revision) as peer:
        calls = [peer.message("tools/call", {"name": "echo", "arguments": {"number": n}}) for n in range(3)]
        peer.connection.send_batch(calls)
        await peer.settled()
        if revision.has_batches:
            assert [text_of(each["result"]) for each in await peer.batch()] == ["0", "1", "2"]
        else:
            assert shop.begun == []
            answers = [each for each in peer.seen if "error" in each]
            assert codes(*answers) == ([-32600] if revision.has_idless_errors else [])


@pytest.mark.req("FRM-10")
async def test_a_batch_before_any_session_is_refused() -> None:
    async with raw_client(make_server(), WITH_BATCHES, opens=False) as peer:
        peer.connection.send_batch([peer.message("ping")])
        await peer.until(lambda: peer.seen)
        assert codes(peer.seen[0]) == [-32600]
        await peer.initialize()


@pytest.mark.req("FRM-10")
async def test_the_answers_of_a_batch_wait_for_each_other() -> None:
    shop = Workshop()

    async with raw_client(shop.server, WITH_BATCHES) as peer:
        peer.connection.send_batch(
            [
                peer.message("ping", request_id="ping"),
                peer.message("tools/call", {"name": "hold", "arguments": {"number": 1}}, request_id="hold"),
                peer.message("nothing", request_id="nothing"),
                Notification("notifications/nothing"),
                peer.message("tools/call", {"name": "nothing"}, request_id="wrong"),
            ]
        )
        await peer.settled()
        assert not any("batch" in each for each in peer.seen)
        shop.go.set()
        hold, nothing, ping, wrong = await peer.batch()
        assert (hold["id"], text_of(hold["result"])) == ("hold", "1")
        assert (ping["id"], ping["result"]) == ("ping", {})
        assert codes(nothing, wrong) == [-32601, -32602]


@pytest.mark.req("FRM-10", "CAN-2")
@pytest.mark.parametrize("cancelled", [["a"], ["b"], ["a", "b"]])
async def test_a_request_of_a_batch_may_be_cancelled(cancelled: list[str]) -> None:
    shop = Workshop()

    async with raw_client(shop.server, WITH_BATCHES) as peer:
        peer.connection.send_batch(
            [
                peer.message("tools/call", {"name": "hold", "arguments": {"number": n}}, request_id=each)
                for n, each in enumerate("ab")
            ]
        )
        await peer.settled()
        for each in cancelled:
            peer.cancel(each)
        await peer.settled()
        shop.go.set()
        if len(cancelled) == 1:
            assert [each["id"] for each in await peer.batch()] == [next(x for x in "ab" if x not in cancelled)]
        await peer.settled()
        assert not any("batch" in each for each in peer.inbox)


async def test_a_batch_may_hold_anything() -> None:
    shop = Workshop()
    heard: list[dict[str, Any]] = []

    @shop.server.on_notification("example.com/hello")
    async def hear(params: dict[str, Any]) -> None:
        heard.append(params)

    async with raw_client(shop.server, WITH_BATCHES, capabilities=ABLE) as peer:
        peer.post_call("ask", {"number": 1}, request_id="asked")
        await turns()
        # This revision has no web pages to send anyone to, so nobody is asked.
        await peer.answer("asked")
        peer.send_line(
            b'[{"jsonrpc":"2.0","id":1,"method":"ping"},5,{"jsonrpc":"2.0","id":"bad","method":7},'
            b'{"jsonrpc":"2.0","method":"example.com/hello","params":{"a":1}},'
            b'{"jsonrpc":"2.0","id":1,"result":1,"error":2},{"jsonrpc":"2.0","id":77,"result":{}},'
            b'{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}]'
        )
        ping, second, bad = await peer.batch()
        assert (ping["id"], ping["result"]) == (1, {})
        assert codes(second, bad) == [-32600, -32600]
        assert heard == [{"a": 1}]


async def test_a_batch_without_requests_has_no_answer() -> None:
    async with raw_client(make_server(), WITH_BATCHES) as peer:
        peer.connection.send_batch([Notification("notifications/x"), Result(9, {})])
        peer.send_line(b"[5]")
        peer.send_line(b"[]")
        await peer.settled()
        assert len(peer.seen) == 2


async def test_a_batch_holds_no_subscription() -> None:
    """Its answers would never be complete."""

    async with raw_client(make_server(), WITH_BATCHES) as peer:
        modern = Peer(peer.connection, LATEST, {})
        listen = modern.message("subscriptions/listen", {"notifications": {}}, request_id="listen")
        peer.connection.send_batch([listen, peer.message("ping", request_id="ping")])
        refused, ping = await peer.batch()
        assert codes(refused) == [-32600]
        assert ping["result"] == {}


@pytest.mark.req("FRM-8", "FRM-10")
async def test_an_id_is_in_use_until_the_answer_of_its_batch_is_sent() -> None:
    shop = Workshop()

    async with raw_client(shop.server, WITH_BATCHES) as peer:
        peer.connection.send_batch(
            [
                peer.message("ping", request_id=8),
                peer.message("tools/call", {"name": "hold", "arguments": {"number": 1}}, request_id=9),
            ]
        )
        await peer.settled()
        peer.connection.send(peer.message("ping", request_id=8))
        peer.connection.send(peer.message("tools/call", {"name": "hold"}, request_id=8))
        await peer.settled()
        assert [each["error"]["code"] for each in peer.seen if each.get("id") == 8] == [-32600, -32600]
        shop.go.set()
        assert [each["id"] for each in await peer.batch()] == [8, 9]
        peer.connection.send(peer.message("ping", request_id=8))
        await peer.settled()
        assert [each["result"] for each in peer.seen if each.get("id") == 8 and "result" in each] == [{}]


async def test_an_id_that_a_batch_has_twice_is_refused_the_second_time() -> None:
    shop = Workshop()

    async with raw_client(shop.server, WITH_BATCHES) as peer:
        call = peer.message("tools/call", {"name": "hold", "arguments": {"number": 1}}, request_id="x")
        peer.connection.send_batch([call, call, peer.message("ping", request_id="x")])
        await peer.settled()
        shop.go.set()
        answers = await peer.batch()
        assert [each["id"] for each in answers] == ["x"] * 3
        assert sorted("result" in each for each in answers) == [False, False, True]


@small_limits
async def test_a_batch_may_have_more_requests_than_may_be_in_flight(limit: int) -> None:
    shop = Workshop(limits=limited(limit))

    async with raw_client(shop.server, WITH_BATCHES) as peer:
        for _ in range(2):
            peer.connection.send_batch(
                [peer.message("tools/call", {"name": "hold", "arguments": {"number": n}}) for n in range(10)]
                + [peer.message("ping")]
            )
        last = peer.post_call("echo", {"number": 77})
        await turns()
        shop.go.set()
        for _ in range(2):
            assert all("result" in each for each in await peer.batch())
        assert "result" in await peer.answer(last)
        assert sorted(shop.begun) == sorted([*range(10), *range(10), 77])


@pytest.mark.parametrize("cancelled", [[1], [1, 2], [0, 1, 2]])
async def test_a_request_of_a_batch_may_be_cancelled_while_it_is_held_back(cancelled: list[int]) -> None:
    shop = Workshop(limits=limited(1))

    async with raw_client(shop.server, WITH_BATCHES, limits=Limits()) as peer:
        calls = [
            peer.message("tools/call", {"name": "hold", "arguments": {"number": n}}, request_id=n) for n in range(3)
        ]
        # In the same batch, for nothing more is read until one of them has ended.
        notes = [Notification("notifications/cancelled", {"requestId": number}) for number in reversed(cancelled)]
        peer.connection.send_batch([*calls, *notes])
        await turns()
        shop.go.set()
        await peer.settled()
        left = [number for number in range(3) if number not in cancelled]
        assert [each["id"] for batch in peer.inbox if "batch" in batch for each in batch["batch"]] == left
        # Cancelled before its first step, the first one never begins; with eager tasks it has begun by then.
        assert set(shop.begun) | {0} == {0, *left}


@pytest.mark.parametrize("first", [True, False])
async def test_a_cancellation_among_the_messages_of_a_batch_leaves_the_batch_whole(first: bool) -> None:
    shop = Workshop()
    async with raw_client(shop.server, WITH_BATCHES) as peer:
        held = peer.post_call("hold", {"number": 1})
        await turns()
        cancel = Notification("notifications/cancelled", {"requestId": held})
        ping, another = peer.message("ping", {}, request_id=50), peer.message("ping", {}, request_id=51)
        peer.connection.send_batch([cancel, ping, another] if first else [ping, cancel, another])
        await peer.settled()
        batches = [message["batch"] for message in peer.inbox if "batch" in message]
        assert [[answer["id"] for answer in batch] for batch in batches] == [[50, 51]]
