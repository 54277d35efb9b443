"""A POST with requests in it, until they are answered."""

from __future__ import annotations

import asyncio

import pytest

from mcplumb.transports.http_server.event_streams import Channels
from mcplumb.transports.http_server.legacy_post import Post
from mcplumb.transports.http_server.options import HttpOptions
from mcplumb.transports.http_server.request import Refusal
from tests.kit.loop import turns
from tests.transports.http_server.staged import Staged

pytestmark = pytest.mark.req("HTP-6")


class Stage:
    """A POST with some requests."""

    def __init__(self, *ids: int | str, keep_alive: float = 15.0, **headers: str) -> None:
        self.channels = Channels(HttpOptions())
        self.channels.has_priming_events = True
        self.staged = Staged(**headers)
        self.post = Post(self.channels, self.staged.request, ids or (1,))
        self.task = asyncio.create_task(self.post.respond(self.staged.request, keep_alive=keep_alive))


async def test_json_is_all_there_is() -> None:
    stage = Stage()
    stage.post.answer(b"{}")
    await stage.task
    assert stage.staged.headers["content-type"] == "application/json"
    assert stage.staged.data == b"{}"
    assert stage.post.channel() is None


async def test_a_stream_ends_with_the_answer() -> None:
    stage = Stage()
    channel = stage.post.channel()
    assert channel is not None
    assert stage.post.channel() is channel
    channel.put(b"1")
    stage.post.answer(b"2")
    await stage.task
    assert [event.data for event in stage.staged.events] == [b"", b"1", b"2"]
    assert stage.staged.is_complete


async def test_the_head_of_a_stream_comes_in_time() -> None:
    stage = Stage(keep_alive=0.01)
    await stage.staged.answered.wait()
    assert stage.staged.headers["content-type"] == "text/event-stream"
    stage.post.answer(b"1")
    await stage.task
    assert stage.staged.events[-1].data == b"1"


async def test_a_client_that_reads_no_streams() -> None:
    stage = Stage(accept="application/json")
    assert stage.post.channel() is None
    stage.post.release(5)
    stage.post.answer(b"{}")
    await stage.task
    assert stage.staged.data == b"{}"


async def test_cancelled_one_after_the_other() -> None:
    stage = Stage(1, "1")
    assert not stage.post.cancel(1)
    assert not stage.post.cancel(1)
    assert stage.post.cancel("1")
    await stage.task
    assert stage.staged.status == 200
    assert stage.staged.headers["content-type"] == "text/event-stream"
    assert stage.staged.data == b""


async def test_released_and_found_again() -> None:
    stage = Stage()
    stage.post.release(20)
    await stage.task
    assert [(event.data, event.retry) for event in stage.staged.events] == [(b"", None), (b"", 20)]
    stage.post.answer(b"1")
    replay = stage.channels.store.after(stage.staged.events[0].id or "")
    assert replay is not None
    assert replay.is_over
    assert len(replay.events) == 1


async def test_given_up() -> None:
    stage = Stage()
    stage.post.give_up()
    with pytest.raises(Refusal) as refused:
        await stage.task
    assert refused.value.status == 404


async def test_nobody_waits_any_more() -> None:
    stage = Stage()
    await turns()
    stage.task.cancel()
    await turns()
    assert stage.post.channel() is None
    stage.post.answer(b"{}")
    assert stage.staged.status is None


async def test_the_text_alone() -> None:
    channels = Channels(HttpOptions())
    post = Post(channels, None, (1,))
    assert post.channel() is None
    post.answer(b"{}")
    assert await post.text() == b"{}"
    for end in ("give_up", "cancel"):
        post = Post(channels, None, (1,))
        post.give_up() if end == "give_up" else post.cancel(1)
        with pytest.raises(Refusal):
            await post.text()
