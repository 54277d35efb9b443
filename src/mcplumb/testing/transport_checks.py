"""The checks that any transport must pass: delivery, backpressure and closing.

Each check is an async function of two ends; the first line of its docstring is the rule that a failure quotes.
`check_transport` runs them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from mcplumb.errors import EncodeError
from mcplumb.testing.check_runner import PATIENCE, Check, MakePair, Trait, each_way, once
from mcplumb.testing.recording_receiver import End, Item, require, settle
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, Result, encode_line

__all__ = [
    "CLOSING_CHECKS",
    "MESSAGE_CHECKS",
    "PRESSURE_CHECKS",
    "check_transport",
    "checks",
    "clog",
    "require_each_once",
]


# --- Delivery: messages arrive complete, in order and unchanged ---

_MANY = 2000
_LARGE = 8 * 1024 * 1024
#: Messages of a ping-pong between two ends.
_ROUNDS = 200

_PAYLOAD = {"text": 'a\nb\r\nc "é" \u2028 \U0001f40d', "numbers": [0, -1, 2**53, 1.5], "deep": [[[{"x": None}]]]}


def _plain(item: Item) -> Any:
    return item if isinstance(item, BadMessage | Batch) else msgspec.json.decode(encode_line(item))


def _require_same(items: Sequence[Item], messages: Sequence[Message]) -> None:
    """Fail unless exactly these messages arrived, in any order."""
    came = [_plain(item) for item in items]
    for sent in map(_plain, messages):
        if sent not in came:
            raise AssertionError(f"{sent!r:.200} was sent, and what arrived is {came!r:.500}.")
        came.remove(sent)
    if came:
        raise AssertionError(f"This arrived and was not sent: {came!r:.500}.")


async def _every_kind_of_message(first: End, second: End) -> None:
    """Requests, notifications, results and errors arrive as they were sent, either way."""
    first.start()
    second.start()
    for one, other in ((first, second), (second, first)):
        sent: list[Message] = [Request(1, "a", _PAYLOAD), Request("1", "b"), Notification("c", _PAYLOAD)]
        sent.append(Notification("d"))
        one.send(*sent)
        await other.until_count(len(sent))
        _require_same(other.items, sent)
        answers: list[Message] = [Result(1, _PAYLOAD), Error("1", ErrorDetail(-32000, "No: é.", {"why": ["not"]}))]
        other.send(*answers)
        await one.until_count(len(answers))
        _require_same(one.items, answers)
        one.items.clear()
        other.items.clear()
    await first.close()
    await second.close()


async def _none_is_lost(sender: End, receiver: End) -> None:
    """Of many messages sent at once, each arrives exactly once, and both ends count them."""
    sender.start()
    receiver.start()
    sent, came = sender.connection.stats.messages_out, receiver.connection.stats.messages_in
    names = [f"n{number}" for number in range(_MANY)]
    sender.send_names(names)
    await receiver.until_count(_MANY)
    await sender.close()
    require(sorted(receiver.names) == sorted(names), "Some messages arrived more than once, and others not at all.")
    sent, came = sender.connection.stats.messages_out - sent, receiver.connection.stats.messages_in - came
    require(sent == _MANY, f"{_MANY} messages were sent, and the stats of {sender} say {sent}.")
    require(came == _MANY, f"{_MANY} messages came, and the stats of {receiver} say {came}.")
    await receiver.close()


async def _order(sender: End, receiver: End) -> None:
    """Messages arrive in the order in which they were sent, large and small."""
    sender.start()
    receiver.start()
    names = [f"n{number}" + "x" * (100_000 if number % 50 == 0 else 0) for number in range(500)]
    for number, name in enumerate(names):
        sender.send(Notification(name))
        if number % 7 == 0:
            await asyncio.sleep(0)
    await receiver.until_count(len(names))
    require(receiver.names == names, "Messages did not arrive in the order in which they were sent.")
    await sender.close()
    await receiver.close()


async def _a_batch(sender: End, receiver: End) -> None:
    """Messages that are sent as a batch arrive as a batch."""
    sender.start()
    receiver.start()
    before = sender.connection.stats.messages_out
    batch: list[Message] = [Notification("a", _PAYLOAD), Request(1, "b")]
    sender.send_batch(batch)
    await receiver.until_count(1)
    item = receiver.items[0]
    require(isinstance(item, Batch), f"A batch was sent, and {item!r:.200} arrived.")
    _require_same(item.items if isinstance(item, Batch) else (), batch)
    require(sender.connection.stats.messages_out == before + 1, "A batch is counted as one message.")
    sender.abort()
    receiver.abort()


async def _a_large_message(sender: End, receiver: End) -> None:
    """A message of 8 MiB arrives complete, and so do those before and after it."""
    sender.start()
    receiver.start()
    messages = [Notification("before"), Notification("large", {"text": "0123456é" * (_LARGE // 9)})]
    messages.append(Notification("behind"))
    sender.send(*messages)
    await receiver.until_count(len(messages))
    _require_same(receiver.items, messages)
    await sender.close()
    await receiver.close()


async def _large_messages_both_ways_at_once(first: End, second: End) -> None:
    """Two ends that send each other more than the buffers hold do not deadlock."""
    first.start()
    second.start()
    messages = [Notification("large", {"number": number, "text": "x" * _LARGE}) for number in range(3)]
    for end in (first, second):
        end.send(*messages)
    for end in (first, second):
        await end.until_count(len(messages))
        _require_same(end.items, messages)
    await first.close()
    await second.close()


async def _what_cannot_be_written(sender: End, receiver: End) -> None:
    """A message that cannot be encoded as JSON raises `EncodeError`, and nothing of it is sent."""
    sender.start()
    receiver.start()
    before = sender.connection.stats
    for payload in ({"text": "\ud800"}, {"thing": object()}):
        try:
            sender.send(Notification("bad", payload))
        except EncodeError:
            continue
        raise AssertionError("A message that cannot be written as JSON was sent, and EncodeError not raised.")
    require(sender.connection.stats == before, "A message that was refused is counted as sent.")
    sender.send_names(["good"])
    await receiver.until_count(1)
    require(receiver.names == ["good"], f"Behind a message that was refused, {receiver.items!r:.200} arrived.")
    sender.abort()
    receiver.abort()


async def _what_comes_before_the_start(sender: End, receiver: End) -> None:
    """Messages that were sent before the other end started arrive when it starts."""
    sender.start()
    names = [f"n{number}" for number in range(100)]
    sender.send_names(names)
    await asyncio.sleep(0)
    receiver.start()
    await receiver.until_count(len(names))
    require(sorted(receiver.names) == sorted(names), "What was sent before the start did not arrive once each.")
    sender.abort()
    receiver.abort()


async def _answering_within_a_message(first: End, second: End) -> None:
    """A receiver may send from within ``received``, and is not called again before that returns."""
    first.start()
    second.start()
    is_within = False

    def answer(end: End) -> None:
        nonlocal is_within
        require(not is_within, f"{end} was given a message while the other was still dealing with one.")
        is_within = True
        end.send_names(["again"])
        is_within = False

    first.on_item = lambda _: answer(first)
    second.on_item = lambda _: answer(second)
    first.send_names(["first"])
    await first.until_count(_ROUNDS)
    await first.close()
    await second.close()


async def _input_that_is_no_message(first: End, second: End) -> None:
    """Input that is not a message is received as a `BadMessage`, is counted, and loses no other message."""
    first.start()
    second.start()
    first.send_names(["before"])
    await second.until_count(1)
    first.spoil()
    await second.until_count(2)
    require(isinstance(second.items[1], BadMessage), f"An invalid message was received as {second.items[1]!r:.200}.")
    first.send_names(["behind"])
    await second.until(lambda: "behind" in second.names, "the message after an invalid one arrives")
    bad = [item for item in second.items if isinstance(item, BadMessage)]
    require(second.connection.stats.bad_lines == len(bad), "The stats do not have the right number of bad lines.")
    first.abort()
    second.abort()


MESSAGE_CHECKS: tuple[Check, ...] = (
    once(_every_kind_of_message),
    *each_way(_none_is_lost),
    *each_way(_order, "order"),
    *each_way(_a_batch, "batches"),
    *each_way(_a_large_message),
    once(_large_messages_both_ways_at_once),
    *each_way(_what_cannot_be_written),
    *each_way(_what_comes_before_the_start),
    once(_answering_within_a_message),
    once(_input_that_is_no_message, "spoil"),
)


# --- Backpressure: memory is bounded and nothing is lost when one end does not read ---

_SIZE = 64 * 1024
#: Bytes that a connection and everything between it and its peer may buffer for a peer that does not read.
_CAP = 64 * 1024 * 1024


async def clog(sender: End, receiver: End) -> int:
    """Send to an end that does not read until the connection is clogged; return the number of messages.

    The connection may still drain afterwards: buffers between the ends may grow.
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
    """Fail unless each message of ``clog`` has arrived exactly once."""
    names = [f"n{number}" for number in range(count)]
    require(sorted(receiver.names) == sorted(names), f"{count} messages were sent, and not each of them arrived once.")


async def _a_clogged_connection_drains(sender: End, receiver: End) -> None:
    """A connection becomes clogged when its peer does not read, and ``drained`` returns when that is over."""
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
    """A sender that awaits ``drained`` before each message delivers all of them to a peer that pauses repeatedly."""
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
    """Cancelling one wait for ``drained`` affects neither the connection nor other waits."""
    sender.start()
    receiver.start()
    count = await clog(sender, receiver)
    quitter, patient = sender.draining(), sender.draining()
    await settle()
    quitter.cancel()
    await sender.within(asyncio.wait([quitter]), "drained ends when it is cancelled")
    await settle()
    receiver.resume()
    await sender.within(patient, "drained returns, although another waiter was cancelled")
    await receiver.until_count(count)
    require_each_once(receiver, count)
    await sender.close()
    await receiver.close()


async def _draining_ends_with_close(sender: End, receiver: End) -> None:
    """``drained`` returns when the connection is closed."""
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
    """``drained`` returns when the connection is aborted."""
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
    """``drained`` returns when the peer is gone, and the sender is notified of that."""
    sender.start()
    receiver.start()
    await clog(sender, receiver)
    waiting = sender.draining()
    await settle()
    receiver.abort()
    await sender.within(waiting, "drained returns when the peer is gone")
    await sender.until(lambda: sender.is_told_of_the_end, "a sender is notified that its peer is gone")
    await sender.close()


async def _pauses_lose_nothing(sender: End, receiver: End) -> None:
    """Each message arrives exactly once, however often the receiver pauses and resumes."""
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
    """If the peer closes while reading is paused, nothing is lost, and ``ended`` follows the last message."""
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


# --- Closing and aborting, by either end and in any state ---

_NAMES = [f"n{number}" for number in range(100)]
_HUGE = 32 * 1024 * 1024


def _require_silent(end: End, count: int) -> None:
    require(len(end.items) == count, f"{end} has received messages after it was closed.")
    require(not end.ends and not end.errors, f"{end} was told of an end that it made itself.")


async def _close_writes_what_is_queued(closer: End, other: End) -> None:
    """Messages sent before ``close`` arrive, followed by a clean end; the closing end is not called."""
    closer.start()
    other.start()
    closer.send_names(_NAMES)
    await closer.close()
    await other.until_end()
    require(sorted(other.names) == sorted(_NAMES), "What was sent before close did not arrive, once each.")
    require(other.ends == [True], "A close at the end of a message is reported as an end in the middle of one.")
    await other.close()
    await settle()
    _require_silent(closer, 0)


async def _close_waits_for_a_slow_peer(closer: End, other: End) -> None:
    """``close`` returns only when everything is written: a later ``abort`` loses nothing."""
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
    require(other.ends == [True], "A close at the end of a message is reported as an end in the middle of one.")
    await other.close()


async def _a_cancelled_close_aborts(closer: End, other: End) -> None:
    """Cancelling ``close`` aborts the connection, and any other ``close`` of it returns."""
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
    await other.until(lambda: other.is_told_of_the_end, "the peer is notified of the end of a close that was cancelled")
    other.abort()


async def _abort_cuts_a_close_short(closer: End, other: End) -> None:
    """``abort`` ends a ``close`` that waits for a slow peer."""
    closer.start()
    other.start()
    await clog(closer, other)
    closing = closer.closing()
    await settle()
    closer.abort()
    await closer.within(closing, "close returns when the connection is aborted")
    other.resume()
    await other.until(lambda: other.is_told_of_the_end, "the peer is notified of the end of an abort")
    other.abort()


async def _a_peer_that_is_gone_cuts_a_close_short(closer: End, other: End) -> None:
    """``close`` does not wait for a peer that is gone, and does not call the receiver."""
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
    """After ``abort``, some of the queued messages may arrive, then the end, but no damaged message."""
    closer.start()
    other.start()
    count = await clog(closer, other)
    closer.abort()
    other.resume()
    await other.until(lambda: other.is_told_of_the_end, "the peer is notified of the end of an abort")
    whole = [item for item in other.items if not isinstance(item, BadMessage)]
    require(set(other.names) <= {f"n{number}" for number in range(count)}, "After an abort, damaged messages arrived.")
    require(len(other.items) - len(whole) <= 1, "After an abort, more than one message arrived in part.")
    other.abort()


async def _a_message_that_is_cut_off(closer: End, other: End) -> None:
    """A message that ``abort`` truncates is never received as complete, nor the end as clean."""
    closer.start()
    other.start()
    other.pause()
    text = "x" * _HUGE
    closer.send(Notification("huge", {"text": text}))
    await settle()
    closer.abort()
    other.resume()
    await other.until(lambda: other.is_told_of_the_end, "the peer is notified of the end of an abort")
    for item in other.items:
        if isinstance(item, BadMessage):
            require(other.ends != [True], "A message was cut off, and the end is reported as clean.")
        else:
            is_whole = isinstance(item, Notification) and len(bytes(item.params)) == len(text) + len('{"text":""}')
            require(is_whole, "A message was cut off, and received as if it were whole.")
    other.abort()


async def _both_close_at_once(first: End, second: End) -> None:
    """Both ends can close at the same time, repeatedly, with messages in flight."""
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
    """Both ends can abort at the same time, with messages in flight."""
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
    """``close`` and ``abort`` may be repeated in any order, and later calls of other methods have no effect."""
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
    """A paused end can be closed with messages pending, and its peer is notified."""
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
    await sender.until(lambda: sender.is_told_of_the_end, "the peer is notified that a paused end was closed")
    sender.abort()


async def _closing_while_the_peer_is_clogged(sender: End, closer: End) -> None:
    """An end that has not read everything can be closed, and its clogged peer is notified."""
    sender.start()
    closer.start()
    await clog(sender, closer)
    count = len(closer.items)
    await closer.close()
    await settle()
    _require_silent(closer, count)
    await sender.until(lambda: sender.is_told_of_the_end, "the peer is notified, although it is clogged")
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
    await sender.until(lambda: sender.is_told_of_the_end, "the peer is notified of an abort from within a message")
    sender.abort()


async def _closing_after_a_message(sender: End, closer: End) -> None:
    """A ``close`` from within ``received`` first sends the messages that were queued before it."""
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
    """A connection that was never started can be closed, and its peer is notified."""
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
    """An end whose peer is gone is notified, and can still call ``send``."""
    sender.start()
    leaver.start()
    leaver.abort()
    await sender.until(lambda: sender.is_told_of_the_end, "an end is notified that its peer is gone")
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


# --- Running the checks ---


def checks(*, without: Collection[Trait] = ()) -> list[Check]:
    """Return all checks, except those that need one of the traits in ``without``.

    Each check can be awaited on its own, for instance as the parameter of a test: ``await check(make_pair)``.
    """
    return [check for check in MESSAGE_CHECKS + PRESSURE_CHECKS + CLOSING_CHECKS if not check.needs & {*without}]


async def check_transport(make_pair: MakePair, *, without: Collection[Trait] = (), patience: float = PATIENCE) -> None:
    """Run all checks, each with its own pair; the first failure raises `AssertionError` with a note of its rule.

    ``make_pair`` returns an async context manager for a `Pair` of connected ends. ``patience`` is how many seconds an
    expected event may take. Nothing else in this process should open or close descriptors meanwhile.
    """
    for check in checks(without=without):
        try:
            await check(make_pair, patience=patience)
        except AssertionError as error:
            error.add_note(f"The check {check} requires: {check.rule}")
            raise
