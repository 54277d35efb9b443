"""Subscriptions on the client's side: which of them a notification belongs to, and what becomes of them.

A subscription outlives its listen request: when the connection is lost and found again, it is opened again under a new
id, and its consumer is told that it may have missed changes.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from mcpipe.protocol.tables import Table
from mcpipe.protocol.topics import Topic, topics_of
from mcpipe.types.subscriptions import SubscriptionFilter

__all__ = ["SUBSCRIPTION", "Change", "Listener", "Missed", "Subscription"]

_State: TypeAlias = Literal["opening", "active", "lost", "ended", "failed", "closed"]
_Event: TypeAlias = Literal["acknowledge", "change", "end", "fail", "lose", "reopen", "close"]

SUBSCRIPTION: Table[_State, _Event] = Table(
    "subscription",
    "opening",
    {
        ("opening", "acknowledge"): "active",
        ("opening", "end"): "ended",
        ("opening", "fail"): "failed",
        ("opening", "lose"): "lost",
        ("opening", "close"): "closed",
        ("active", "change"): "active",
        ("active", "end"): "ended",
        ("active", "fail"): "failed",
        ("active", "lose"): "lost",
        ("active", "close"): "closed",
        ("lost", "reopen"): "opening",
        ("lost", "fail"): "failed",
        ("lost", "close"): "closed",
    },
    final=("ended", "failed", "closed"),
    doc=(
        "One subscription on the client's side. *Ended*: by the server. *Failed*: the server refused it, or it could "
        "not be opened again. *Closed*: by this side. *Lost*: the connection is gone, and the subscription waits for "
        "a new one."
    ),
)


class Change(msgspec.Struct, frozen=True):
    """Something that the consumer asked to hear of. ``uri`` is that of the resource, for the topic ``updates``."""

    topic: Topic
    uri: str | None = None


class Missed(msgspec.Struct, frozen=True):
    """The subscription was lost and is open again: there may have been changes in between."""


class Subscription(msgspec.Struct, eq=False):
    """One subscription. Read it; only ``Listener`` changes it."""

    #: The id of the listen request that is open for it now.
    id: int
    wanted: SubscriptionFilter
    topics: frozenset[Topic]
    #: What the server agreed to; None until it has.
    honoured: SubscriptionFilter | None = None
    state: _State = "opening"
    was_lost: bool = False

    def asked_for(self, change: Change) -> bool:
        """Whether the consumer wants to hear of this change.

        An update may be that of a part of a resource that was asked for. Which ones those are, the server knows.
        """
        return change.topic in self.topics


class Listener:
    """The subscriptions of this side on one server, over all its restarts.

    ``strays`` counts notifications that belong to no subscription, come before the acknowledgement, or were not
    asked for. They are dropped.
    """

    def __init__(self) -> None:
        self.strays = 0
        self._by_id: dict[int, Subscription] = {}
        self._lost: list[Subscription] = []

    def __len__(self) -> int:
        return len(self._by_id) + len(self._lost)

    def open(self, request_id: int, wanted: SubscriptionFilter) -> Subscription:
        """A listen request with this id and filter is being sent."""
        subscription = self._by_id[request_id] = Subscription(request_id, wanted, topics_of(wanted))
        return subscription

    def acknowledged(
        self, subscription_id: Any, honoured: SubscriptionFilter
    ) -> tuple[Subscription, Missed | None] | None:
        """The server acknowledged: the subscription, and the mark for its consumer if it had been lost."""
        subscription = self._find(subscription_id)
        if subscription is None or subscription.state != "opening":
            self.strays += 1
            return None
        subscription.state = SUBSCRIPTION.after(subscription.state, "acknowledge")
        subscription.honoured = honoured
        return subscription, (Missed() if subscription.was_lost else None)

    def changed(self, subscription_id: Any, change: Change) -> Subscription | None:
        """The subscription whose consumer gets this change; None if nobody may get it."""
        subscription = self._find(subscription_id)
        if subscription is None or subscription.state != "active" or not subscription.asked_for(change):
            self.strays += 1
            return None
        subscription.state = SUBSCRIPTION.after(subscription.state, "change")
        return subscription

    def ended(self, request_id: Any) -> Subscription | None:
        """The server ended a subscription, by answering its listen request or by cancelling it."""
        return self._end(request_id, "end")

    def failed(self, request_id: Any) -> Subscription | None:
        """The server answered a listen request with an error, or the client gave up on it."""
        return self._end(request_id, "fail")

    def lose(self) -> list[Subscription]:
        """The connection is gone: returns the subscriptions that wait for a new one, oldest first."""
        for subscription in self._by_id.values():
            subscription.state = SUBSCRIPTION.after(subscription.state, "lose")
            subscription.was_lost = True
            subscription.honoured = None
            self._lost.append(subscription)
        self._by_id.clear()
        return list(self._lost)

    def reopen(self, subscription: Subscription, request_id: int) -> None:
        """A new listen request for a lost subscription is being sent under this id."""
        subscription.state = SUBSCRIPTION.after(subscription.state, "reopen")
        self._lost.remove(subscription)
        subscription.id = request_id
        self._by_id[request_id] = subscription

    def abandon(self) -> list[Subscription]:
        """There will be no new connection: returns the lost subscriptions, which have now failed."""
        abandoned, self._lost = self._lost, []
        for subscription in abandoned:
            subscription.state = SUBSCRIPTION.after(subscription.state, "fail")
        return abandoned

    def close(self, subscription: Subscription) -> bool:
        """The consumer is done. True if its listen request is open and has to be cancelled."""
        if subscription.state in SUBSCRIPTION.final:
            return False
        was_lost = subscription.state == "lost"
        subscription.state = SUBSCRIPTION.after(subscription.state, "close")
        if was_lost:
            self._lost.remove(subscription)
        else:
            del self._by_id[subscription.id]
        return not was_lost

    def _find(self, subscription_id: Any) -> Subscription | None:
        return self._by_id.get(subscription_id) if type(subscription_id) is int else None

    def _end(self, request_id: Any, event: Literal["end", "fail"]) -> Subscription | None:
        subscription = self._find(request_id)
        if subscription is None:
            return None
        subscription.state = SUBSCRIPTION.after(subscription.state, event)
        del self._by_id[subscription.id]
        return subscription
