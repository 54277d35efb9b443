"""Subscription rules for both ends: the client's ``Listener``, and the server's ``Publisher``.

A subscription is an open ``subscriptions/listen`` request, and its id is the request's id. ``Publisher.open`` returns
the acknowledgement, and only later calls return changes, so the acknowledgement is always sent first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from mcplumb.errors import UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.protocol.transition_table import Table
from mcplumb.types.base import COMPLETE
from mcplumb.types.meta import SUBSCRIPTION_ID
from mcplumb.types.notification_params import ListenResult, SubscriptionFilter
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


# Topics.

#: A list that can change.
ListTopic: TypeAlias = Literal["tools", "prompts", "resources"]
#: What a client can subscribe to: changes of the three lists, and updates of single resources.
Topic: TypeAlias = ListTopic | Literal["updates"]

#: The notification for each list.
LIST_CHANGED: dict[ListTopic, str] = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}

TOPICS: frozenset[Topic] = frozenset((*LIST_CHANGED, "updates"))


def topics_of(wanted: SubscriptionFilter) -> frozenset[Topic]:
    """Return the topics in a filter."""
    asked: dict[Topic, object] = {
        "tools": wanted.tools_list_changed,
        "prompts": wanted.prompts_list_changed,
        "resources": wanted.resources_list_changed,
        "updates": wanted.resource_subscriptions,
    }
    return frozenset(topic for topic, value in asked.items() if value)


# The client's side of one connection: which subscription a notification belongs to.

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
    """A change that the consumer subscribed to. For the topic ``updates``, ``uri`` is that of the resource."""

    #: "tools", "prompts" or "resources" for the lists, and "updates" for the contents of a resource.
    topic: Topic
    uri: str | None = None


class Missed(msgspec.Struct, frozen=True):
    """Changes may have been missed, so the consumer should reload everything.

    Either the connection was lost and the subscription opened again, or the consumer was too slow.
    """


class Subscription(msgspec.Struct, eq=False):
    """One subscription of the client. Only ``Listener`` changes it."""

    #: The id of its current listen request.
    id: int
    wanted: SubscriptionFilter
    topics: frozenset[Topic]
    #: What the server granted; None until the acknowledgement.
    honoured: SubscriptionFilter | None = None
    state: _ListenState = "opening"

    def asked_for(self, change: Change) -> bool:
        """Return whether the consumer subscribed to the topic of this change.

        The URI of an update is not compared: it may be a part of a subscribed resource, which only the server knows.
        """
        return change.topic in self.topics


class Listener:
    """The client's subscriptions on one connection.

    ``strays`` counts dropped notifications: those without a subscription, before the acknowledgement, or of a topic
    that the client did not subscribe to.
    """

    def __init__(self) -> None:
        self.strays = 0
        self._by_id: dict[int, Subscription] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, request_id: int, wanted: SubscriptionFilter) -> Subscription:
        """Record that a listen request with this id and filter is being sent."""
        subscription = self._by_id[request_id] = Subscription(request_id, wanted, topics_of(wanted))
        return subscription

    def acknowledged(self, subscription_id: Any, honoured: SubscriptionFilter) -> Subscription | None:
        """Record an acknowledgement, and return its subscription; None if no such subscription is opening."""
        subscription = self._find(subscription_id)
        if subscription is None or subscription.state != "opening":
            self.strays += 1
            return None
        subscription.state = SUBSCRIPTION.after(subscription.state, "acknowledge")
        subscription.honoured = honoured
        return subscription

    def changed(self, subscription_id: Any, change: Change) -> Subscription | None:
        """Return the subscription that receives this change; None if the change is dropped."""
        subscription = self._find(subscription_id)
        if subscription is None or subscription.state != "active" or not subscription.asked_for(change):
            self.strays += 1
            return None
        subscription.state = SUBSCRIPTION.after(subscription.state, "change")
        return subscription

    def ended(self, request_id: Any) -> Subscription | None:
        """Record that the server ended a subscription, by answering its listen request or by cancelling it."""
        return self._end(request_id, "end")

    def failed(self, request_id: Any) -> Subscription | None:
        """Record that a listen request failed: the server answered it with an error, or the connection was lost."""
        return self._end(request_id, "fail")

    def close(self, subscription: Subscription) -> bool:
        """Close a subscription from this side; return whether its listen request is open and must be cancelled."""
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


# The server's side: the subscriptions of one client, and the notifications to send for a change.

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
    """One subscription on the server's side. Only ``Publisher`` changes it."""

    id: RequestId
    topics: frozenset[Topic]
    resources: frozenset[str]
    state: _PublishState = "open"


class Publisher:
    """The subscriptions of one client. ``offers`` are the topics that this server announces."""

    def __init__(self, offers: frozenset[Topic], limits: Limits = DEFAULT_LIMITS) -> None:
        self._offers = offers
        self._limits = limits
        self._resources = 0
        self._publications: dict[RequestId, Publication] = {}

    def __len__(self) -> int:
        return len(self._publications)

    def open(self, request_id: RequestId, wanted: SubscriptionFilter) -> Notification | Error:
        """Open a subscription, and return the acknowledgement to send first, or the error to answer with.

        Topics that the server does not offer are left out of the acknowledgement.
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
        """Return the notifications to send after a list changed, one for each subscription that includes it."""
        listeners = [it for it in self._publications.values() if topic in it.topics]
        return [self._publish(it, LIST_CHANGED[topic]) for it in listeners]

    def is_watched(self, uri: str) -> bool:
        """Return whether any subscription includes updates of this resource."""
        return any(uri in publication.resources for publication in self._publications.values())

    def watched(self) -> list[str]:
        """Return the resources of all subscriptions."""
        return list({uri: None for each in self._publications.values() for uri in each.resources})

    def resource_updated(self, uri: str) -> list[Notification]:
        """Return the notifications to send after a resource changed, one for each subscription that includes it."""
        listeners = [it for it in self._publications.values() if uri in it.resources]
        return [self._publish(it, "notifications/resources/updated", uri=uri) for it in listeners]

    def changed(self, request_id: RequestId, change: Change) -> Notification | None:
        """Return the notification of a change for one subscription; None if it is closed, or does not include it."""
        publication = self._publications.get(request_id)
        if publication is None or change.topic not in publication.topics:
            return None
        if change.topic == "updates":
            return self._publish(publication, "notifications/resources/updated", uri=change.uri)
        return self._publish(publication, LIST_CHANGED[change.topic])

    def end(self, request_id: RequestId, meta: Mapping[str, Any] = _NO_META) -> Result | None:
        """End a subscription from this side, and return the result of its listen request; None if it is not open.

        ``meta`` is added to the result's ``_meta`` beside the subscription's id.
        """
        if not self._close(request_id, "end"):
            return None
        ended = ListenResult(meta={**meta, SUBSCRIPTION_ID: request_id}, result_type=COMPLETE)
        return Result(request_id, ended)

    def end_all(self, meta: Mapping[str, Any] = _NO_META) -> list[Result]:
        """End every subscription from this side, for example because the server stops; return the results."""
        ended = [self.end(request_id, meta) for request_id in list(self._publications)]
        return [result for result in ended if result is not None]

    def cancel(self, request_id: RequestId) -> bool:
        """Record that the client cancelled the listen request; return False if it was not open."""
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
