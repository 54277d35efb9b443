"""Checks of pressure: what becomes of messages, and of memory, when one end does not read."""

from __future__ import annotations

import asyncio

from mcplumb.testing.check import Check, each_way
from mcplumb.testing.ends import End, require, settle
from mcplumb.wire.messages import Notification

__all__ = ["PRESSURE_CHECKS", "clog", "require_each_once"]

_SIZE = 64 * 1024
#: Bytes that a connection may take, with everything between it and its peer, for a peer that does not read.
_CAP = 64 * 1024 * 1024


async def clog(sender: End, receiver: End) -> int:
    """Send to an end that does not read until the connection is clogged; the number of messages.

    It may still be drained after that: what lies between the ends may take more than it seems at first.
    """
    receiver.pause()
    text = "x" * _SIZE
    for count in range(_CAP // _SIZE):
        if sender.is_clogged:
            await settle()
            if sender.is_clogged:
                return count
        sender.send(Notification(f"n{count}", {"text": text}))
    raise AssertionError(
        f"{sender} has taken {_CAP} bytes for a peer that does not read, and is not clogged: nothing bounds its memory."
    )


def require_each_once(receiver: End, count: int) -> None:
    """Fail unless the messages of ``clog`` have arrived, each once."""
    names = [f"n{number}" for number in range(count)]
    require(sorted(receiver.names) == sorted(names), f"{count} messages were sent, and not each of them arrived once.")


async def _a_clogged_connection_drains(sender: End, receiver: End) -> None:
    """A connection is clogged when its peer does not read, and ``drained`` returns when it is no longer."""
    sender.start()
    receiver.start()
    await sender.within(sender.draining(), "drained returns at once on a connection that is not clogged")
    count = await clog(sender, receiver)
    waiting = [sender.draining() for _ in range(3)]
    await settle()
    require(len(receiver.items) < count, "An end that is paused has received everything.")
    receiver.resume()
    await sender.within(asyncio.gather(*waiting), "drained returns when the peer reads again")
    await receiver.until_count(count)
    require_each_once(receiver, count)
    await sender.close()
    await receiver.close()


async def _a_peer_that_reads_now_and_then(sender: End, receiver: End) -> None:
    """A sender that awaits ``drained`` before each message gets all of them to a peer that pauses again and again."""
    sender.start()
    receiver.start()
    total = 200
    receiver.on_item = lambda _: receiver.pause() if len(receiver.items) % 10 == 0 else None

    async def produce() -> None:
        for number in range(total):
            await sender.connection.drained()
            sender.send(Notification(f"n{number}", {"text": "x" * _SIZE}))

    producing = asyncio.get_running_loop().create_task(produce())
    while (count := len(receiver.items)) < total:
        receiver.resume()
        await receiver.until_count(count + 1)
    await sender.within(producing, "a sender that awaits drained comes to its end")
    require_each_once(receiver, total)
    await sender.close()
    await receiver.close()


async def _giving_up_on_draining(sender: End, receiver: End) -> None:
    """Whoever waits for ``drained`` can be cancelled, which harms neither the connection nor the others."""
    sender.start()
    receiver.start()
    count = await clog(sender, receiver)
    quitter, patient = sender.draining(), sender.draining()
    await settle()
    quitter.cancel()
    await sender.within(asyncio.wait([quitter]), "drained ends when it is cancelled")
    await settle()
    receiver.resume()
    await sender.within(patient, "drained returns, although somebody else gave up")
    await receiver.until_count(count)
    require_each_once(receiver, count)
    await sender.close()
    await receiver.close()


async def _draining_ends_with_close(sender: End, receiver: End) -> None:
    """Nobody waits for ``drained`` on a connection that is being closed."""
    sender.start()
    receiver.start()
    await clog(sender, receiver)
    waiting = sender.draining()
    await settle()
    closing = sender.closing()
    await sender.within(waiting, "drained returns when the connection is closed")
    receiver.abort()
    await sender.within(closing, "close returns when the peer is gone")
    require(not sender.is_clogged, "A connection that is closed says that it is clogged.")


async def _draining_ends_with_abort(sender: End, receiver: End) -> None:
    """Nobody waits for ``drained`` on a connection that was aborted."""
    sender.start()
    receiver.start()
    await clog(sender, receiver)
    waiting = sender.draining()
    await settle()
    sender.abort()
    await sender.within(waiting, "drained returns when the connection is aborted")
    require(not sender.is_clogged, "A connection that was aborted says that it is clogged.")
    await sender.within(sender.draining(), "drained returns on a connection that was aborted")
    receiver.abort()


async def _draining_ends_when_the_peer_is_gone(sender: End, receiver: End) -> None:
    """Nobody waits for ``drained`` when there is nobody who would read, and that is told."""
    sender.start()
    receiver.start()
    await clog(sender, receiver)
    waiting = sender.draining()
    await settle()
    receiver.abort()
    await sender.within(waiting, "drained returns when the peer is gone")
    await sender.until(lambda: sender.is_told_of_the_end, "a sender is told that its peer is gone")
    await sender.close()


async def _pauses_lose_nothing(sender: End, receiver: End) -> None:
    """However often an end pauses and resumes, each message arrives once."""
    sender.start()
    receiver.start()
    loop = asyncio.get_running_loop()

    def rest(_: object) -> None:
        if len(receiver.items) % 3 == 0:
            receiver.pause()
            receiver.pause()
            loop.call_soon(receiver.resume)

    receiver.on_item = rest
    names = [f"n{number}" for number in range(100)]
    sender.send_names(names)
    await receiver.until_count(len(names))
    require(sorted(receiver.names) == sorted(names), "Of an end that pauses now and then, messages were lost.")
    receiver.resume()
    receiver.resume()
    sender.send_names(["last"])
    await receiver.until_count(len(names) + 1)
    await sender.close()
    await receiver.close()


async def _an_end_that_comes_during_a_pause(sender: End, receiver: End) -> None:
    """A peer that closes while reading is paused loses nothing, and ``ended`` comes after the last message."""
    sender.start()
    receiver.start()
    receiver.pause()
    names = [f"n{number}" for number in range(100)]
    sender.send_names(names)
    closing = sender.closing()
    await settle()
    require(not receiver.ends or len(receiver.items) == len(names), "The end was told before the last message.")
    receiver.resume()
    await sender.within(closing, "close returns when the peer reads")
    await receiver.until_end()
    require(sorted(receiver.names) == sorted(names), "What a peer sent before it closed was lost during a pause.")
    require(receiver.ends == [True], "A peer has closed at the end of a message, and the end is not told as clean.")
    await receiver.close()


PRESSURE_CHECKS: tuple[Check, ...] = (
    *each_way(_a_clogged_connection_drains),
    *each_way(_a_peer_that_reads_now_and_then),
    *each_way(_giving_up_on_draining),
    *each_way(_draining_ends_with_close),
    *each_way(_draining_ends_with_abort),
    *each_way(_draining_ends_when_the_peer_is_gone, leaver="other"),
    *each_way(_pauses_lose_nothing),
    *each_way(_an_end_that_comes_during_a_pause),
)
