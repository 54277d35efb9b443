"""Subscriptions on the client's side of one connection: which of them a notification belongs to."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from mcplumb.protocol.tables import Table
from mcplumb.protocol.topics import Topic, topics_of
from mcplumb.types.subscriptions import SubscriptionFilter

__all__ = ["SUBSCRIPTION", "Change", "Listener", "Missed", "Subscription"]

_State: TypeAlias = Literal["opening", "active", "ended", "failed", "closed"]
_Event: TypeAlias = Literal["acknowledge", "change", "end", "fail", "close"]

SUBSCRIPTION: Table[_State, _Event] = Table(
    "subscription",
    "opening",
    {
        ("opening", "acknowledge"): "active",
        ("opening", "end"): "ended",
        ("opening", "fail"): "failed",
        ("opening", "close"): "closed",
        ("active", "change"): "active",
        ("active", "end"): "ended",
        ("active", "fail"): "failed",
        ("active", "close"): "closed",
    },
    final=("ended", "failed", "closed"),
    doc=(
        "One subscription on the client's side. *Ended*: by the server. *Failed*: the server refused it, or its "
        "connection was lost. *Closed*: by this side."
    ),
)


class Change(msgspec.Struct, frozen=True):
    """Something that the consumer asked to hear of. ``uri`` is that of the resource, for the topic ``updates``."""

    #: "tools", "prompts" or "resources" for these lists, and "updates" for the contents of a resource.
    topic: Topic
    uri: str | None = None


class Missed(msgspec.Struct, frozen=True):
    """There may have been changes that were not heard of: the subscription was lost and is open again, or the consumer
    was too slow. Look at everything anew."""


class Subscription(msgspec.Struct, eq=False):
    """One subscription. Read it; only ``Listener`` changes it."""

    #: The id of the listen request that is open for it now.
    id: int
    wanted: SubscriptionFilter
    topics: frozenset[Topic]
    #: What the server agreed to; None until it has.
    honoured: SubscriptionFilter | None = None
    state: _State = "opening"

    def asked_for(self, change: Change) -> bool:
        """Whether the consumer wants to hear of this change.

        An update may be that of a part of a resource that was asked for. Which ones those are, the server knows.
        """
        return change.topic in self.topics


class Listener:
    """The subscriptions of this side on one connection.

    ``strays`` counts notifications that belong to no subscription, come before the acknowledgement, or were not
    asked for. They are dropped.
    """

    def __init__(self) -> None:
        self.strays = 0
        self._by_id: dict[int, Subscription] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, request_id: int, wanted: SubscriptionFilter) -> Subscription:
        """A listen request with this id and filter is being sent."""
        subscription = self._by_id[request_id] = Subscription(request_id, wanted, topics_of(wanted))
        return subscription

    def acknowledged(self, subscription_id: Any, honoured: SubscriptionFilter) -> Subscription | None:
        """The subscription that the server acknowledged; None if there is none to acknowledge."""
        subscription = self._find(subscription_id)
        if subscription is None or subscription.state != "opening":
            self.strays += 1
            return None
        subscription.state = SUBSCRIPTION.after(subscription.state, "acknowledge")
        subscription.honoured = honoured
        return subscription

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
        """The server answered a listen request with an error, or is lost."""
        return self._end(request_id, "fail")

    def close(self, subscription: Subscription) -> bool:
        """The consumer is done. True if its listen request is open and has to be cancelled."""
        if subscription.state in SUBSCRIPTION.final:
            return False
        subscription.state = SUBSCRIPTION.after(subscription.state, "close")
        del self._by_id[subscription.id]
        return True

    def _find(self, subscription_id: Any) -> Subscription | None:
        return self._by_id.get(subscription_id) if type(subscription_id) is int else None

    def _end(self, request_id: Any, event: Literal["end", "fail"]) -> Subscription | None:
        subscription = self._find(request_id)
        if subscription is None:
            return None
        subscription.state = SUBSCRIPTION.after(subscription.state, event)
        del self._by_id[subscription.id]
        return subscription
