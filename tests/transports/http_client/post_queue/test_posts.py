from __future__ import annotations

from mcplumb.transports.http_client.post_queue import Post
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Error, ErrorDetail, Notification, Request, Result


class Nowhere:
    async def exchange(self, post: Post) -> None:
        raise AssertionError

    async def end_session(self) -> None:
        raise AssertionError


async def test_what_a_post_is_follows_from_its_first_message() -> None:
    call = Post([Request(1, "initialize")], b"{}", Nowhere())
    assert (call.method, call.lane, call.ids, call.size) == ("initialize", "calls", (1,), 2)
    assert call.is_initialize
    assert not call.is_initialized
    listen = Post([Request(1, "subscriptions/listen")], b"", Nowhere())
    assert listen.lane == "listens"
    done = Post([Notification("notifications/initialized")], b"", Nowhere())
    assert (done.lane, done.ids, done.is_initialized) == ("one_way", (), True)
    reply = Post([Result("q", {}), Error("r", ErrorDetail(1, ""))], b"", Nowhere())
    assert (reply.lane, reply.method, reply.waiting) == ("one_way", "", set())
    reply.cancel()  # It has not begun.
    note = Post([Notification("x")], b"", Nowhere())
    assert [each.may_arrive_twice for each in (call, done, reply, note)] == [False, True, True, False]


async def test_answers_are_struck_out_and_the_result_is_seen_first() -> None:
    post = Post([Request(number, "ping") for number in (1, 2, 3, 4)], b"", Nowhere())
    seen: list[object] = []
    post.on_result = lambda result: seen.append((result.id, set(post.waiting)))
    post.settle(Result(9, {}))
    post.settle(Notification("x"))
    post.settle(BadMessage("", 0))
    post.settle(BadMessage("", 0, 1))
    post.settle(BadMessage("", 0, is_response=True))
    assert post.waiting == {1, 2, 3, 4}
    post.settle(Batch((Result(1, {}), Error(2, ErrorDetail(1, "")))))
    assert post.waiting == {3, 4}
    post.settle(BadMessage("", 0, 3, is_response=True))
    post.settle(Result(1, {}))
    post.settle(Result(4, {}))
    assert post.waiting == set()
    assert seen == [(1, {1, 2, 3, 4}), (4, {4})]
