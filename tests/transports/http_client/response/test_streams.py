from __future__ import annotations

import asyncio

import pytest

from mcplumb.errors import ProtocolError
from mcplumb.limits import Limits
from mcplumb.transports.http_client import response
from mcplumb.transports.http_client.response import Inbox, Stream
from mcplumb.wire.message_decoder import BadMessage
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import run
from tests.transports.http_client.raw import Asked, Reply, answer, ask, event, note, session, world

pytestmark = leaves_nothing


@pytest.mark.parametrize("line", [b"data: " + b"x" * 1000, b"x" * 1000])
async def test_an_event_without_end_fails_its_request(line: bytes) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.stream(b"data: {")
        while True:
            await reply.events(line)

    async with world(script, limits=Limits(max_event=100_000)) as w:
        w.connection.send(ask(1))
        error = await w.heard.until_failure(1)
        assert isinstance(error, ProtocolError)
        assert "an event longer than the cap of 100000 bytes" in str(error)
        assert [type(item) for item in w.heard.items] == [BadMessage]
        await w.server.until(lambda: w.server.gone == 1)


async def test_on_the_stream_of_the_server_it_is_passed_over() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.method == "GET":
            await reply.stream(event(note("notifications/x", text="x" * 1000)), event(note("notifications/y")))
            await asyncio.Event().wait()
        await session(asked, reply)

    async with world(script, limits=Limits(max_event=500)) as w:
        await w.initialize()
        await w.heard.until(lambda: w.heard.names == ["notifications/y"])
        assert w.connection.stats.bad_lines == 1


async def test_other_events_and_lines_that_are_no_messages_are_no_answers() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.stream(event(answer(1, "no"), name="other"), event(b"garbage"), event(b""), event(answer(1, "yes")))
        await reply.end()

    async with world(script) as w:
        w.connection.send(ask(1))
        assert await w.heard.until_result(1) == "yes"
        assert w.connection.stats.bad_lines == 1


@pytest.mark.parametrize("size", [1, 3, 7])
async def test_pieces_of_any_size_make_the_same_events(size: int) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        data = event(note("notifications/ü")) + b": c\r\n\r\n" + event(answer(1, "ü")).replace(b"\n", b"\r\n")
        await reply.stream(*(data[at : at + size] for at in range(0, len(data), size)))
        await reply.end()

    async with world(script) as w:
        w.connection.send(ask(1))
        assert await w.heard.until_result(1) == "ü"
        assert w.heard.names == ["notifications/ü"]


async def test_nothing_is_received_while_reading_is_paused() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.json["id"] == 1:
            await reply.stream(event(note("notifications/x")), event(answer(1)))
            await reply.end()
        else:
            await reply.result()

    async with world(script) as w:
        w.connection.pause()
        w.connection.send(ask(1))
        w.connection.send(ask(2))
        await w.server.until(lambda: len(w.server.asked) == 2)
        await asyncio.sleep(0.05)  # enough for something to come, were it let through
        assert w.heard.items == []
        w.connection.resume()
        await w.heard.until_count(3)


async def test_the_waits_grow_until_something_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    stream = Stream(Inbox(Limits(), None))
    for _ in range(7):
        await stream.wait()
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    waits.clear()
    stream.failures = 0
    stream._retry = 3000
    for _ in range(4):
        await stream.wait()
    assert waits == [3, 3, 4, 8]
    stream.failures = 100_000
    await stream.wait()
    stream._retry = 10**18 - 1
    await stream.wait()
    assert waits[-1] == 3600, "a server cannot end the stream for good"


async def test_a_server_that_wants_no_wait_and_has_no_news_is_asked_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def note_it(seconds: float) -> None:
        waits.append(seconds)
        await sleep(0)

    async def script(asked: Asked, reply: Reply) -> None:
        data = note("notifications/x") if int(asked.headers["x"]) % 6 == 5 else b""
        await reply.stream(event(data, event_id="7", retry=0))
        await reply.end()

    async with world(script) as w:
        stream = Stream(Inbox(Limits(), None))
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "sleep", note_it)
            for number in range(7):
                async with w.pool.request("GET", w.pool.url, {"x": str(number)}) as response:
                    await stream.read(response)
                await stream.wait()
        assert waits == [0.1, 0.2, 0.4, 0.8, 1, 0.1, 0.2]
        assert stream.failures == 1, "it is alive"


def test_a_stream_that_was_open_for_long_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response, "_LONGEST_WAIT", 0.001)

    async def script(asked: Asked, reply: Reply) -> None:
        await reply.stream(b": 1\n\n")
        await asyncio.sleep(0.02)
        await reply.end()

    async def main() -> None:
        async with world(script) as w:
            stream = Stream(Inbox(Limits(), None))
            stream.failures = 4
            async with w.pool.request("GET", w.pool.url, {}) as response:
                await stream.read(response)
            assert stream.failures == 0

    run(main())
