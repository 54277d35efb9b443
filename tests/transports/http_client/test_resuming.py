from __future__ import annotations

import asyncio

import pytest

from mcplumb.errors import RequestLost
from mcplumb.transports.http_client import response
from mcplumb.wire.messages import Request
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import turns
from tests.transports.http_client.raw import Asked, Reply, answer, event, note, session, world

pytestmark = leaves_nothing


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams are opened again at once."""
    monkeypatch.setattr(response, "_FIRST_WAIT", 0.001)


@pytest.mark.req("HTP-6")
async def test_a_response_that_breaks_off_is_resumed_when_the_server_says() -> None:
    times: list[float] = []

    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "tools/call":
            await reply.stream(event(b"", event_id="e1", retry=200), event(note("notifications/x"), event_id="e2"))
            times.append(asyncio.get_running_loop().time())
            await reply.end()
        elif asked.headers.get("last-event-id") == "e2":
            times.append(asyncio.get_running_loop().time())
            await reply.stream(event(answer(1, "resumed"), event_id="e3"))
            await reply.end()
        else:
            await session(asked, reply)

    async with world(script) as w:
        await w.initialize()
        w.connection.send(Request(1, "tools/call", {}))
        assert await w.heard.until_result(1) == "resumed"
        assert times[1] - times[0] >= 0.2
        assert w.heard.names == ["notifications/x"]
        [get] = [asked for asked in w.server.asked if "last-event-id" in asked.headers]
        assert get.headers["mcp-session-id"] == "s1"


@pytest.mark.req("HTP-6")
@pytest.mark.usefixtures("quick")
async def test_it_is_tried_again_for_as_long_as_that_brings_something() -> None:
    steps = iter(range(20))

    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "tools/call":
            await reply.stream(event(b"", event_id="0"))
            return reply.reset()
        if "last-event-id" not in asked.headers:
            return await session(asked, reply)
        step = next(steps)
        if step < 2:  # aiohttp itself tries a GET again
            return reply.reset()
        if step == 2:
            return await reply.send(503)
        await reply.stream()
        if step % 3 == 0:  # one in three brings something
            await reply.events(event(b"", event_id=str(step)) if step < 18 else event(answer(1)))
        return await reply.end()

    async with world(script) as w:
        await w.initialize()
        w.connection.send(Request(1, "tools/call", {}))
        await w.heard.until_result(1)
        seen = [asked.headers["last-event-id"] for asked in w.server.asked if "last-event-id" in asked.headers]
        assert seen[:5] == ["0", "0", "0", "0", "3"]
        assert seen[-1] == "15"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("status", "times", "sentence"), [(500, 5, "HTTP 500"), (405, 1, "HTTP 405"), (204, 1, "204")])
async def test_a_response_that_cannot_be_resumed_is_lost(status: int, times: int, sentence: str) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "tools/call":
            await reply.stream(event(b"", event_id="0"))
            await reply.end()
        elif "last-event-id" in asked.headers:
            await reply.send(status)
        else:
            await session(asked, reply)

    async with world(script) as w:
        await w.initialize()
        w.connection.send(Request(1, "tools/call", {}))
        error = await w.heard.until_failure(1)
        assert isinstance(error, RequestLost)
        assert sentence in str(error)
        assert len([asked for asked in w.server.asked if "last-event-id" in asked.headers]) == times
        assert w.heard.order == ["failed"]


@pytest.mark.usefixtures("quick")
async def test_a_session_may_be_over_when_its_stream_is_resumed() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "tools/call":
            await reply.stream(event(b"", event_id="0"))
            await reply.end()
        elif "last-event-id" in asked.headers:
            await reply.send(404)
        else:
            await session(asked, reply)

    async with world(script) as w:
        await w.initialize()
        w.connection.send(Request(1, "tools/call", {}))
        # The server had begun with it, and may have done it.
        assert isinstance(await w.heard.until_failure(1), RequestLost)
        assert w.heard.order == ["ended", "failed"]


@pytest.mark.parametrize("is_cut", [True, False])
async def test_a_response_without_event_ids_that_breaks_off_is_lost(is_cut: bool) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        if asked.rpc == "tools/call":
            await reply.stream(event(note("notifications/x")))
            if is_cut:
                reply.cut()
            else:
                await reply.end()
        else:
            await session(asked, reply)

    async with world(script) as w:
        await w.initialize()
        w.connection.send(Request(1, "tools/call", {}))
        assert isinstance(await w.heard.until_failure(1), RequestLost)
        w.connection.send(Request(2, "tools/list"))
        await w.heard.until_result(2)


@pytest.mark.req("HTP-6")
@pytest.mark.usefixtures("quick")
async def test_the_stream_of_the_server_is_opened_again_until_there_is_none() -> None:
    async def first(reply: Reply) -> None:
        await reply.stream(event(note("notifications/a"), event_id="7"))
        reply.cut()

    async def second(reply: Reply) -> None:
        await reply.send(409)

    async def third(reply: Reply) -> None:
        await reply.send(500)

    async def fourth(reply: Reply) -> None:
        await reply.stream(event(note("notifications/b")))
        await reply.end()

    async def fifth(reply: Reply) -> None:
        await reply.send(405)

    steps = iter([first, second, third, fourth, fifth])

    async def script(asked: Asked, reply: Reply) -> None:
        await (next(steps)(reply) if asked.method == "GET" else session(asked, reply))

    async with world(script) as w:
        await w.initialize()
        await w.server.until(lambda: w.server.order.count("GET") == 5)
        assert w.heard.names == ["notifications/a", "notifications/b"]
        gets = [asked.headers.get("last-event-id") for asked in w.server.asked if asked.method == "GET"]
        assert gets == [None, "7", None, None, None]
        await turns()
        assert w.heard.order == []


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("refusals", [[404], [400, 400]])
async def test_a_stream_that_is_opened_again_may_find_the_session_over(refusals: list[int]) -> None:
    # The first 400 may be about the event that is named.
    steps = iter((200, *refusals))

    async def script(asked: Asked, reply: Reply) -> None:
        if asked.method != "GET":
            return await session(asked, reply)
        if (status := next(steps)) != 200:
            return await reply.send(status)
        await reply.stream(event(note("notifications/x"), event_id="7"))
        return await reply.end()

    async with world(script) as w:
        await w.initialize()
        await w.heard.until_end()
        assert w.heard.ends == [True]
        assert next(steps, None) is None
        await w.connection.close()
        assert "DELETE" not in w.server.order


@pytest.mark.usefixtures("quick")
async def test_a_server_that_cannot_be_reached_for_its_stream_is_gone() -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await (reply.stream() if asked.method == "GET" else session(asked, reply))
        if asked.method == "GET":
            await asyncio.Event().wait()

    async with world(script) as w:
        await w.initialize()
        await w.server.until(lambda: "GET" in w.server.order)
        await w.server.close()
        await w.heard.until_end()
        assert w.heard.order == ["broke", "ended"]
        assert "cannot be reached" in str(w.connection.failure)
