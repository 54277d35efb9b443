from __future__ import annotations

import asyncio

import pytest

from mcplumb.transports.http_client.post_queue import Body
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import turns
from tests.transports.http_client.raw import Asked, Reply, ask, cancel, world

pytestmark = leaves_nothing


@pytest.mark.parametrize("size", [1, 300_000, 5_000_000])
async def test_a_body_of_any_size_arrives(size: int) -> None:
    async def script(asked: Asked, reply: Reply) -> None:
        await reply.result(len(asked.json["params"]["text"]))

    async with world(script) as w:
        w.connection.send(ask(1, text="x" * size))
        assert await w.heard.until_result(1) == size


async def test_what_was_not_written_when_its_request_is_given_up_is_dropped() -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        await leave.wait()
        data = b"."
        try:
            while data:
                data = await reader.read(1_000_000)
        except ConnectionError:
            pass
        gone.set()
        writer.transport.abort()

    came, leave, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async with world(nobody) as w:
        server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1)
        w.pool.url = w.pool.url.with_port(server.sockets[0].getsockname()[1])
        w.connection.send(ask(1, text="x" * 50_000_000))
        post = w.connection._outbox.find(1)
        assert post is not None
        await came.wait()
        while post.body._transport is None or not post.body._transport.get_write_buffer_size():
            await turns()
        w.connection.send(cancel(1))
        leave.set()
        await gone.wait()
        server.close()


async def nobody(asked: Asked, reply: Reply) -> None:
    raise AssertionError("nothing is to come here")


async def test_it_can_be_read_and_dropped_before_it_is_written() -> None:
    body = Body("ü".encode())
    assert body.decode() == "ü"
    assert body.size == 2
    assert body.content_type == "application/json"
    body.drop()
    assert not body.written.is_set()
