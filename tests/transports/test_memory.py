"""Connections in memory: what they have beyond the contract, which test_framed.py holds them to."""

from __future__ import annotations

import asyncio

import pytest

from mcplumb.errors import EncodeError
from mcplumb.limits import Limits
from mcplumb.transports.line_connection import HIGH_WATER
from mcplumb.transports.memory import memory_pair
from mcplumb.wire.decode import BadMessage
from mcplumb.wire.messages import Notification, Request, Result
from tests.kit.loop import turns
from tests.transports.ends import Recorder


async def test_a_message_passes_as_it_would_on_a_wire() -> None:
    client, server = memory_pair()
    client_side, server_side = Recorder(), Recorder()
    client.start(client_side)
    server.start(server_side)
    with pytest.raises(EncodeError):
        client.send(Request(1, "call", {"what": object()}))
    payload = {"text": "é", "list": [1]}
    client.send(Request(1, "call", payload))
    payload["list"] = []
    await server_side.until_count(1)
    (request,) = server_side.items
    assert isinstance(request, Request)
    assert bytes(request.params) == '{"text":"é","list":[1]}'.encode()
    server.send(Result(1, float("nan")))
    await client_side.until_count(1)
    (result,) = client_side.items
    assert isinstance(result, Result)
    assert bytes(result.result) == b"null"
    assert client.stats.bytes_in == server.stats.bytes_out
    assert server.stats.bytes_in == client.stats.bytes_out
    await client.close()
    await server.close()


async def test_both_ends_have_the_limits() -> None:
    limits = Limits(max_line=50)
    for sender, receiver in (memory_pair(limits=limits), memory_pair(limits=limits)[::-1]):
        side = Recorder()
        receiver.start(side)
        sender.start(Recorder())
        sender.send(Notification("n" * 100))
        await side.until_count(1)
        assert isinstance(side.items[0], BadMessage)
        sender.abort()
        receiver.abort()


async def test_what_was_written_can_be_read_after_the_close() -> None:
    client, server = memory_pair()
    client.send(Notification("a"))
    await client.close()
    side = Recorder()
    server.start(side)
    await side.until_end()
    assert side.names == ["a"]
    server.send(Notification("b"))
    await side.until(lambda: side.errors)
    assert isinstance(side.errors[0], BrokenPipeError)
    await server.close()


async def test_an_end_that_comes_during_a_pause_is_told_after_it() -> None:
    client, server = memory_pair()
    side = Recorder(lambda item: server.pause())
    server.start(side)
    client.start(Recorder())
    client.send(Notification("a"))
    await side.until_count(1)
    await client.close()
    await turns()
    assert side.ends == []
    server.resume()
    await side.until_end()
    assert side.ends == [True]
    server.pause()
    server.resume()
    await turns()
    assert side.ends == [True]
    server.abort()


async def test_what_waits_for_room_notices_that_the_reader_is_gone() -> None:
    client, server = memory_pair()
    client_side = Recorder()
    client.start(client_side)
    server.start(Recorder())
    server.pause()
    client.send(Notification("n", {"text": "x" * 2 * HIGH_WATER}))
    waiting = asyncio.create_task(client.drained())
    await turns()
    assert not waiting.done()
    server.abort()
    await waiting
    assert [type(error) for error in client_side.errors] == [BrokenPipeError]
    client.abort()


async def test_two_ends_that_answer_each_other_leave_the_loop_to_others() -> None:
    client, server = memory_pair()
    client.start(Recorder(lambda item: client.send(Notification("ping"))))
    server.start(Recorder(lambda item: server.send(Notification("pong"))))
    client.send(Notification("ping"))
    await turns(3000)
    assert client.stats.messages_out > 500
    client.abort()
    server.abort()
