"""Subscriptions, at both ends: who listens to what, and where a notification goes.

A subscription is an open ``subscriptions/listen`` request, and its id is that of the request. The acknowledgement is
returned by ``open``, and changes only by later calls, so it is always the first message of its subscription.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from mcplumb.errors import UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.protocol.state_table import Table
from mcplumb.types.base import COMPLETE
from mcplumb.types.meta import SUBSCRIPTION_ID
from mcplumb.types.notifications import ListenResult, SubscriptionFilter
from mcplumb.wire.messages import INVALID_PARAMS, Error, ErrorDetail, Notification, RequestId, Result

__all__ = [
    "LIST_CHANGED",
    "PUBLICATION",
    "SUBSCRIPTION",
    "TOPICS",
    "Change",
    "ListTopic",
    "Listener",
    "Missed",
    "Publication",
    "Publisher",
    "Subscription",
    "Topic",
    "topics_of",
]


# What a subscription is about, as both sides of it see it.


#: A list that can change.
ListTopic: TypeAlias = Literal["tools", "prompts", "resources"]
#: What a server can offer, and a client ask for: changes of three lists, and updates of single resources.
Topic: TypeAlias = ListTopic | Literal["updates"]

#: The notification for each list.
LIST_CHANGED: dict[ListTopic, str] = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}

TOPICS: frozenset[Topic] = frozenset((*LIST_CHANGED, "updates"))


def topics_of(wanted: SubscriptionFilter) -> frozenset[Topic]:
    """The topics that a filter asks for."""
    asked: dict[Topic, object] = {
        "tools": wanted.tools_list_changed,
        "prompts": wanted.prompts_list_changed,
        "resources": wanted.resources_list_changed,
        "updates": wanted.resource_subscriptions,
    }
    return frozenset(topic for topic, wish in asked.items() if wish)


# Subscriptions on the client's side of one connection: which of them a notification belongs to.


_ListenState: TypeAlias = Literal["opening", "active", "ended", "failed", "closed"]
_ListenEvent: TypeAlias = Literal["acknowledge", "change", "end", "fail", "close"]

SUBSCRIPTION: Table[_ListenState, _ListenEvent] = Table(
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
    state: _ListenState = "opening"

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


# Subscriptions on the server's side: who listens, for what, and what each of them is sent.


_PublishState: TypeAlias = Literal["open", "ended", "cancelled"]
_PublishEvent: TypeAlias = Literal["publish", "end", "cancel"]

PUBLICATION: Table[_PublishState, _PublishEvent] = Table(
    "publication",
    "open",
    {
        ("open", "publish"): "open",
        ("open", "end"): "ended",
        ("open", "cancel"): "cancelled",
    },
    final=("ended", "cancelled"),
    doc="One subscription on the server's side. *Ended*: by the server, which answers the listen request.",
)


_NO_META: Mapping[str, Any] = {}


class Publication(msgspec.Struct, eq=False):
    """One subscription. Read it; only ``Publisher`` changes it."""

    id: RequestId
    topics: frozenset[Topic]
    resources: frozenset[str]
    state: _PublishState = "open"


class Publisher:
    """The subscriptions of one peer. ``offers`` says what this server announces at all."""

    def __init__(self, offers: frozenset[Topic], limits: Limits = DEFAULT_LIMITS) -> None:
        self._offers = offers
        self._limits = limits
        self._resources = 0
        self._publications: dict[RequestId, Publication] = {}

    def __len__(self) -> int:
        return len(self._publications)

    def open(self, request_id: RequestId, wanted: SubscriptionFilter) -> Notification | Error:
        """Open a subscription. Returns the acknowledgement to send first, or the error to answer with.

        What the server does not offer is left out of what is honoured, and so of the acknowledgement.
        """
        if request_id in self._publications:
            raise UsageError(f"The subscription {request_id!r} is open already.")
        limits = self._limits
        if len(self._publications) >= limits.max_subscriptions:
            return _refused(request_id, f"No more than {limits.max_subscriptions} subscriptions may be open at once.")
        topics = self._offers & topics_of(wanted)
        resources = list(dict.fromkeys(wanted.resource_subscriptions or ())) if "updates" in topics else []
        if self._resources + len(resources) > limits.max_subscribed_resources:
            sentence = f"All subscriptions together may name no more than {limits.max_subscribed_resources} resources."
            return _refused(request_id, sentence)
        if any(len(uri) > limits.max_uri for uri in resources):
            return _refused(request_id, f"The address of a resource may have no more than {limits.max_uri} characters.")
        self._resources += len(resources)
        self._publications[request_id] = Publication(request_id, topics, frozenset(resources))
        honoured = SubscriptionFilter(
            tools_list_changed="tools" in topics or None,
            prompts_list_changed="prompts" in topics or None,
            resources_list_changed="resources" in topics or None,
            resource_subscriptions=resources or None,
        )
        return _notification("notifications/subscriptions/acknowledged", request_id, notifications=honoured)

    def list_changed(self, topic: ListTopic) -> list[Notification]:
        """A list has changed: what to send, one notification for each subscription that asked for it."""
        listeners = [it for it in self._publications.values() if topic in it.topics]
        return [self._publish(it, LIST_CHANGED[topic]) for it in listeners]

    def is_watched(self, uri: str) -> bool:
        """Whether any subscription asked for updates of this resource."""
        return any(uri in publication.resources for publication in self._publications.values())

    def resource_updated(self, uri: str) -> list[Notification]:
        """A resource has changed: what to send, as for ``list_changed``."""
        listeners = [it for it in self._publications.values() if uri in it.resources]
        return [self._publish(it, "notifications/resources/updated", uri=uri) for it in listeners]

    def end(self, request_id: RequestId, meta: Mapping[str, Any] = _NO_META) -> Result | None:
        """End a subscription from this side: the answer to its listen request, or None if it is not open.

        ``meta`` goes into the result's ``_meta`` beside the subscription's id.
        """
        if not self._close(request_id, "end"):
            return None
        ended = ListenResult(meta={**meta, SUBSCRIPTION_ID: request_id}, result_type=COMPLETE)
        return Result(request_id, ended)

    def end_all(self, meta: Mapping[str, Any] = _NO_META) -> list[Result]:
        """End every subscription from this side, as when the server stops."""
        ended = [self.end(request_id, meta) for request_id in list(self._publications)]
        return [result for result in ended if result is not None]

    def cancel(self, request_id: RequestId) -> bool:
        """The client cancelled the listen request: nothing more is sent for it. False if it was not open."""
        return self._close(request_id, "cancel")

    def _publish(self, publication: Publication, method: str, **params: Any) -> Notification:
        publication.state = PUBLICATION.after(publication.state, "publish")
        return _notification(method, publication.id, **params)

    def _close(self, request_id: RequestId, event: Literal["end", "cancel"]) -> bool:
        publication = self._publications.pop(request_id, None)
        if publication is None:
            return False
        publication.state = PUBLICATION.after(publication.state, event)
        self._resources -= len(publication.resources)
        return True


def _notification(method: str, subscription_id: RequestId, **params: Any) -> Notification:
    return Notification(method, {"_meta": {SUBSCRIPTION_ID: subscription_id}, **params})


def _refused(request_id: RequestId, sentence: str) -> Error:
    return Error(request_id, ErrorDetail(INVALID_PARAMS, sentence))
