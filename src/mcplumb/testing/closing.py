"""Checks of the end: whoever closes, however, and whatever is going on meanwhile."""

from __future__ import annotations

import asyncio

from mcplumb.testing.check import Check, each_way, once
from mcplumb.testing.ends import End, require, settle
from mcplumb.testing.pressure import clog, require_each_once
from mcplumb.wire.decoding import BadMessage
from mcplumb.wire.messages import Notification

__all__ = ["CLOSING_CHECKS"]

_NAMES = [f"n{number}" for number in range(100)]
_HUGE = 32 * 1024 * 1024


def _require_silent(end: End, count: int) -> None:
    require(len(end.items) == count, f"{end} has received messages after it was closed.")
    require(not end.ends and not end.errors, f"{end} was told of an end that it made itself.")


async def _close_writes_what_is_queued(closer: End, other: End) -> None:
    """What was sent before ``close`` arrives, then comes a clean end, and the one who closed hears nothing of it."""
    closer.start()
    other.start()
    closer.send_names(_NAMES)
    await closer.close()
    await other.until_end()
    require(sorted(other.names) == sorted(_NAMES), "What was sent before close did not arrive, once each.")
    require(other.ends == [True], "A close at the end of a message is told as an end in the middle of one.")
    await other.close()
    await settle()
    _require_silent(closer, 0)


async def _close_waits_for_a_slow_peer(closer: End, other: End) -> None:
    """``close`` returns when everything is written and not before: not even ``abort`` can take it back then."""
    closer.start()
    other.start()
    count = await clog(closer, other)
    closings = [closer.closing() for _ in range(3)]
    await settle()
    closer.send_names(["too late"])
    other.resume()
    await closer.within(asyncio.gather(*closings), "close returns when the peer reads again")
    closer.abort()
    await other.until_end()
    require_each_once(other, count)
    require(other.ends == [True], "A close at the end of a message is told as an end in the middle of one.")
    await other.close()


async def _a_cancelled_close_aborts(closer: End, other: End) -> None:
    """A ``close`` that is cancelled leaves a connection that is aborted, and any other ``close`` of it returns."""
    closer.start()
    other.start()
    await clog(closer, other)
    one, another = closer.closing(), closer.closing()
    await settle()
    has_waited = one.cancel()
    await closer.within(asyncio.wait([one, another]), "close ends when it is cancelled, and so does another one")
    require(one.cancelled() or not has_waited, "close was cancelled, and did not raise CancelledError.")
    require(not another.cancelled(), "One close was cancelled, and another one raised CancelledError.")
    await closer.close()
    other.resume()
    await other.until(lambda: other.is_told_of_the_end, "the end is told to the peer of a close that was cancelled")
    other.abort()


async def _abort_cuts_a_close_short(closer: End, other: End) -> None:
    """``abort`` makes a ``close`` return that waits for a slow peer."""
    closer.start()
    other.start()
    await clog(closer, other)
    closing = closer.closing()
    await settle()
    closer.abort()
    await closer.within(closing, "close returns when the connection is aborted")
    other.resume()
    await other.until(lambda: other.is_told_of_the_end, "the end is told to the peer of an abort")
    other.abort()


async def _a_peer_that_is_gone_cuts_a_close_short(closer: End, other: End) -> None:
    """``close`` does not wait for a peer that is gone, and tells nobody of it."""
    closer.start()
    other.start()
    await clog(closer, other)
    closing = closer.closing()
    await settle()
    other.abort()
    await closer.within(closing, "close returns when the peer is gone")
    await settle()
    _require_silent(closer, 0)


async def _abort_loses_no_more_than_what_is_queued(closer: End, other: End) -> None:
    """Of what was sent before ``abort`` the first messages may arrive, and then the end, but nothing damaged."""
    closer.start()
    other.start()
    count = await clog(closer, other)
    closer.abort()
    other.resume()
    await other.until(lambda: other.is_told_of_the_end, "the end is told to the peer of an abort")
    whole = [item for item in other.items if not isinstance(item, BadMessage)]
    require(set(other.names) <= {f"n{number}" for number in range(count)}, "After an abort, damaged messages arrived.")
    require(len(other.items) - len(whole) <= 1, "After an abort, more than one message arrived in part.")
    other.abort()


async def _a_message_that_is_cut_off(closer: End, other: End) -> None:
    """A message that ``abort`` cuts off is never received as if it were whole, nor the end as clean."""
    closer.start()
    other.start()
    other.pause()
    text = "x" * _HUGE
    closer.send(Notification("huge", {"text": text}))
    await settle()
    closer.abort()
    other.resume()
    await other.until(lambda: other.is_told_of_the_end, "the end is told to the peer of an abort")
    for item in other.items:
        if isinstance(item, BadMessage):
            require(other.ends != [True], "A message was cut off, and the end is told as clean.")
        else:
            is_whole = isinstance(item, Notification) and len(bytes(item.params)) == len(text) + len('{"text":""}')
            require(is_whole, "A message was cut off, and received as if it were whole.")
    other.abort()


async def _both_close_at_once(first: End, second: End) -> None:
    """Both ends can close at the same time, more than once, with messages on the way."""
    first.start()
    second.start()
    first.send_names(_NAMES)
    second.send_names(_NAMES)
    closings = [end.closing() for end in (first, second, first, second)]
    await first.within(asyncio.gather(*closings), "close returns when both ends close at once")
    await settle()
    _require_silent(first, len(first.items))
    _require_silent(second, len(second.items))


async def _both_abort_at_once(first: End, second: End) -> None:
    """Both ends can abort at the same time, with messages on the way."""
    first.start()
    second.start()
    first.send_names(_NAMES)
    second.send_names(_NAMES)
    first.abort()
    second.abort()
    await settle()
    _require_silent(first, 0)
    _require_silent(second, 0)


async def _closing_again(closer: End, other: End) -> None:
    """``close`` and ``abort`` may follow each other in every order, and what is called after them does nothing."""
    closer.start()
    other.start()
    await closer.close()
    sent = closer.connection.stats.messages_out
    for _ in range(2):
        closer.abort()
        closer.pause()
        closer.resume()
        closer.send_names(_NAMES)
        closer.send_batch([Notification("late")])
        await closer.within(closer.draining(), "drained returns on a connection that is closed")
        await closer.close()
    require(closer.connection.stats.messages_out == sent, "A connection that is closed has sent messages.")
    await other.until_end()
    require(other.items == [], "A connection that is closed has sent messages.")
    other.abort()
    await other.close()
    other.abort()


async def _closing_while_paused(sender: End, closer: End) -> None:
    """An end that is paused can be closed, whatever has come for it, and the peer is told."""
    sender.start()
    closer.start()
    closer.pause()
    sender.send_names(_NAMES)
    await settle()
    count = len(closer.items)
    await closer.close()
    closer.resume()
    await settle()
    _require_silent(closer, count)
    await sender.until(lambda: sender.is_told_of_the_end, "the peer is told that a paused end was closed")
    sender.abort()


async def _closing_while_the_peer_is_clogged(sender: End, closer: End) -> None:
    """An end that has not read everything can be closed, and a peer that is clogged is told."""
    sender.start()
    closer.start()
    await clog(sender, closer)
    count = len(closer.items)
    await closer.close()
    await settle()
    _require_silent(closer, count)
    await sender.until(lambda: sender.is_told_of_the_end, "the peer is told, although it is clogged")
    await sender.close()


async def _aborting_within_a_message(sender: End, closer: End) -> None:
    """A receiver that aborts from within ``received`` is not called again."""
    sender.start()
    closer.start()
    closer.on_item = lambda _: closer.abort() if len(closer.items) == 3 else None
    sender.send_names(_NAMES)
    await closer.until_count(3)
    await settle()
    _require_silent(closer, 3)
    await sender.until(lambda: sender.is_told_of_the_end, "the peer is told of an abort that a message asked for")
    sender.abort()


async def _closing_after_a_message(sender: End, closer: End) -> None:
    """A ``close`` that a message asked for sends the answer that was queued before it, and then the end."""
    sender.start()
    closer.start()
    closings: list[asyncio.Task[None]] = []

    def answer(_: object) -> None:
        closer.send_names(["a last word"])
        closer.on_item = None
        closings.append(closer.closing())

    closer.on_item = answer
    sender.send_names(["leave"])
    await closer.until_count(1)
    await closer.within(asyncio.gather(*closings), "close returns")
    await sender.until_end()
    require(sender.names == ["a last word"], f"The last word before a close has not arrived at {sender}.")
    sender.abort()


async def _aborting_at_the_end(closer: End, other: End) -> None:
    """A receiver may send and abort from within ``ended``."""

    def leave() -> None:
        other.send_names(["a last word"])
        other.abort()

    other.on_end = leave
    closer.start()
    other.start()
    await closer.close()
    await other.until_end()
    await other.close()


async def _closing_what_was_never_started(closer: End, other: End) -> None:
    """A connection that was never started can be closed, and its peer is told."""
    other.start()
    await closer.close()
    await other.until_end()
    other.abort()


async def _aborting_what_was_never_started(first: End, second: End) -> None:
    """Connections that were never started can be aborted, and closed after that."""
    first.abort()
    second.abort()
    await first.close()
    await second.close()


async def _a_peer_that_is_gone(sender: End, leaver: End) -> None:
    """An end whose peer is gone is told so, and what it sends after that does no harm."""
    sender.start()
    leaver.start()
    leaver.abort()
    await sender.until(lambda: sender.is_told_of_the_end, "an end is told that its peer is gone")
    for _ in range(100):
        sender.send_names(_NAMES)
        await asyncio.sleep(0)
    await settle()
    await sender.close()


CLOSING_CHECKS: tuple[Check, ...] = (
    *each_way(_close_writes_what_is_queued),
    *each_way(_close_waits_for_a_slow_peer),
    *each_way(_a_cancelled_close_aborts, leaver="one"),
    *each_way(_abort_cuts_a_close_short, leaver="one"),
    *each_way(_a_peer_that_is_gone_cuts_a_close_short),
    *each_way(_abort_loses_no_more_than_what_is_queued, leaver="one"),
    *each_way(_a_message_that_is_cut_off, leaver="one"),
    once(_both_close_at_once),
    once(_both_abort_at_once),
    *each_way(_closing_again),
    *each_way(_closing_while_paused),
    *each_way(_closing_while_the_peer_is_clogged),
    *each_way(_aborting_within_a_message, leaver="other"),
    once(_closing_after_a_message),
    *each_way(_aborting_at_the_end),
    *each_way(_closing_what_was_never_started),
    once(_aborting_what_was_never_started),
    *each_way(_a_peer_that_is_gone, leaver="other"),
)
