"""Subscriptions on the server's side: who listens, for what, and what each of them is sent.

A subscription is an open ``subscriptions/listen`` request, and its id is that of the request. The acknowledgement is
returned by ``open``, and changes only by later calls, so it is always the first message of its subscription.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from mcplumb.errors import UsageError
from mcplumb.limits import DEFAULT_LIMITS, Limits
from mcplumb.protocol.tables import Table
from mcplumb.protocol.topics import LIST_CHANGED, ListTopic, Topic, topics_of
from mcplumb.types.base import COMPLETE
from mcplumb.types.meta import SUBSCRIPTION_ID
from mcplumb.types.subscriptions import ListenResult, SubscriptionFilter
from mcplumb.wire.messages import INVALID_PARAMS, Error, ErrorDetail, Notification, RequestId, Result

__all__ = ["PUBLICATION", "Publication", "Publisher"]

_State: TypeAlias = Literal["open", "ended", "cancelled"]
_Event: TypeAlias = Literal["publish", "end", "cancel"]

PUBLICATION: Table[_State, _Event] = Table(
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
    state: _State = "open"


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
