"""Connections whose peer is known to be gone, although somebody else still holds its end of the pipe."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress

import pytest

from mcplumb.transports.descriptors import bytes_waiting
from mcplumb.transports.fd_connection import StreamConnection
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import run, turns
from tests.transports.ends import Recorder

pytestmark = leaves_nothing


NOTE = b'{"jsonrpc":"2.0","method":"a"}\n'


def connected(side: Recorder, *, starts: bool = True) -> tuple[StreamConnection, int]:
    """A connection that reads from a pipe, and the end of the pipe that is never closed in time."""
    reading, writing = os.pipe()
    connection = StreamConnection(reading, os.open(os.devnull, os.O_WRONLY))
    if starts:
        connection.start(side)
    return connection, writing


async def test_what_is_there_is_received_and_then_the_end() -> None:
    side = Recorder()
    connection, pipe = connected(side)
    os.write(pipe, NOTE * 3)
    connection.finish()
    connection.finish()
    await side.until_end()
    assert (side.names, side.ends) == (["a"] * 3, [True])
    connection.finish()
    await turns()
    assert side.ends == [True]
    connection.abort()
    connection.finish()
    os.close(pipe)


async def test_if_nothing_is_there_the_end_comes_at_once() -> None:
    side = Recorder()
    connection, pipe = connected(side)
    await turns()
    connection.finish()
    await side.until_end()
    assert side.ends == [True]
    connection.abort()
    os.close(pipe)


async def test_a_message_that_is_not_complete_is_an_end_in_the_middle() -> None:
    side = Recorder()
    connection, pipe = connected(side)
    os.write(pipe, NOTE + NOTE[:10])
    connection.finish()
    await side.until_end()
    assert (side.names, side.ends) == (["a"], [False])
    connection.abort()
    os.close(pipe)


async def test_much_is_received_too() -> None:
    side = Recorder()
    connection, pipe = connected(side)
    count = 60_000 // len(NOTE)
    os.write(pipe, NOTE * count)
    assert bytes_waiting(pipe) == count * len(NOTE)
    connection.finish()
    await side.until_end()
    assert len(side.names) == count
    connection.abort()
    os.close(pipe)


def test_whoever_goes_on_writing_is_not_listened_to_for_ever() -> None:
    stop = threading.Event()

    def flood(pipe: int) -> None:
        while not stop.is_set():
            os.write(pipe, NOTE * 100)

    async def main() -> None:
        side = Recorder()
        reading, pipe = os.pipe()
        drain = os.dup(reading)
        connection = StreamConnection(reading, os.open(os.devnull, os.O_WRONLY))
        connection.start(side)
        writer = threading.Thread(target=flood, args=(pipe,))
        writer.start()
        await side.until_count(1)
        connection.finish()
        await side.until_end()
        connection.abort()
        stop.set()
        # The last write may be over already, and then there is nothing to read.
        os.set_blocking(drain, False)
        while writer.is_alive():
            with suppress(BlockingIOError):
                os.read(drain, 100_000)
            await asyncio.sleep(0)
        os.close(drain)
        os.close(pipe)

    run(main())


@pytest.mark.parametrize("content", [b"", NOTE])
async def test_a_pause_delays_the_end(content: bytes) -> None:
    side = Recorder()
    connection, pipe = connected(side)
    connection.pause()
    os.write(pipe, content)
    connection.finish()
    await turns()
    assert (side.names, side.ends) == ([], [])
    connection.resume()
    await side.until_end()
    assert (len(side.names), side.ends) == (bool(content), [True])
    connection.abort()
    os.close(pipe)


async def test_before_the_start_it_waits_for_that() -> None:
    side = Recorder()
    connection, pipe = connected(side, starts=False)
    os.write(pipe, NOTE)
    connection.finish()
    await turns()
    connection.start(side)
    await side.until_end()
    assert side.names == ["a"]
    connection.abort()
    os.close(pipe)


async def test_a_file_has_its_own_end() -> None:
    side = Recorder()
    connection = StreamConnection(os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY))
    connection.start(side)
    connection.finish()
    await side.until_end()
    connection.abort()
