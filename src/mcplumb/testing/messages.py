"""Checks of messages: that they arrive, whole, in order, and as what they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from mcplumb.errors import EncodeError
from mcplumb.testing.check import Check, each_way, once
from mcplumb.testing.ends import End, Item, require
from mcplumb.wire.decoding import BadMessage, Batch
from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, Result, encode_line

__all__ = ["MESSAGE_CHECKS"]

_MANY = 2000
_LARGE = 8 * 1024 * 1024
#: How often two ends answer each other.
_ROUNDS = 200

_PAYLOAD = {"text": 'a\nb\r\nc "é" \u2028 \U0001f40d', "numbers": [0, -1, 2**53, 1.5], "deep": [[[{"x": None}]]]}


def _plain(item: Item) -> Any:
    return item if isinstance(item, BadMessage | Batch) else msgspec.json.decode(encode_line(item))


def _require_same(items: Sequence[Item], messages: Sequence[Message]) -> None:
    """Fail unless these came and nothing else, in whatever order."""
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
        said: list[Message] = [Request(1, "a", _PAYLOAD), Request("1", "b"), Notification("c", _PAYLOAD)]
        said.append(Notification("d"))
        one.send(*said)
        await other.until_count(len(said))
        _require_same(other.items, said)
        answers: list[Message] = [Result(1, _PAYLOAD), Error("1", ErrorDetail(-32000, "No: é.", {"why": ["not"]}))]
        other.send(*answers)
        await one.until_count(len(answers))
        _require_same(one.items, answers)
        one.items.clear()
        other.items.clear()
    await first.close()
    await second.close()


async def _none_is_lost(sender: End, receiver: End) -> None:
    """However many messages are sent at once, each arrives once, and both ends have counted them."""
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
    """Several messages that are sent as a batch arrive as one."""
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
    """A message of 8 MiB arrives whole, and so do those before and behind it."""
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
    """Two ends that send each other more than fits in between do not wait for each other for ever."""
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
    """A message that cannot be written as JSON is refused with `EncodeError`, and nothing of it is sent."""
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
    """What was sent before the other end began to read arrives when it does."""
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
    """A receiver may send from within ``received``, and is not called again before it has returned."""
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
    """What is no message is received as a `BadMessage`, is counted, and costs no other message."""
    first.start()
    second.start()
    first.send_names(["before"])
    await second.until_count(1)
    first.spoil()
    await second.until_count(2)
    require(isinstance(second.items[1], BadMessage), f"What is no message was received as {second.items[1]!r:.200}.")
    first.send_names(["behind"])
    await second.until(lambda: "behind" in second.names, "the message behind what is no message arrives")
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
