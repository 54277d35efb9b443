"""Subscriptions on the server's side: who listens, for what, and what each of them is sent.

A subscription is an open ``subscriptions/listen`` request, and its id is that of the request. The acknowledgement is
returned by ``open``, and changes only by later calls, so it is always the first message of its subscription.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from mcpipe.errors import UsageError
from mcpipe.protocol.tables import Table
from mcpipe.protocol.topics import ListTopic, Topic, topics_of
from mcpipe.types.meta import SUBSCRIPTION_ID
from mcpipe.types.subscriptions import SubscriptionFilter
from mcpipe.wire.messages import INVALID_PARAMS, Error, ErrorDetail, Notification, RequestId, Result

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


class Publication(msgspec.Struct, eq=False):
    """One subscription. Read it; only ``Publisher`` changes it."""

    id: RequestId
    topics: frozenset[Topic]
    resources: frozenset[str]
    state: _State = "open"


class Publisher:
    """The subscriptions of one peer. ``offers`` says what this server announces at all."""

    def __init__(self, offers: frozenset[Topic], *, max_subscriptions: int, max_resources: int) -> None:
        self._offers = offers
        self._max_subscriptions = max_subscriptions
        self._max_resources = max_resources
        self._publications: dict[RequestId, Publication] = {}

    def __len__(self) -> int:
        return len(self._publications)

    def open(self, request_id: RequestId, wanted: SubscriptionFilter) -> Notification | Error:
        """Open a subscription. Returns the acknowledgement to send first, or the error to answer with.

        What the server does not offer is left out of what is honoured, and so of the acknowledgement.
        """
        if request_id in self._publications:
            raise UsageError(f"The subscription {request_id!r} is open already.")
        if len(self._publications) >= self._max_subscriptions:
            return _refused(request_id, f"No more than {self._max_subscriptions} subscriptions may be open at once.")
        asked = wanted.resource_subscriptions or []
        if len(asked) > self._max_resources:
            return _refused(request_id, f"A subscription may name no more than {self._max_resources} resources.")
        topics = self._offers & topics_of(wanted)
        resources = list(dict.fromkeys(asked)) if "updates" in topics else []
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
        return [self._publish(it, f"notifications/{topic}/list_changed") for it in listeners]

    def resource_updated(self, uri: str) -> list[Notification]:
        """A resource has changed: what to send, as for ``list_changed``."""
        listeners = [it for it in self._publications.values() if uri in it.resources]
        return [self._publish(it, "notifications/resources/updated", uri=uri) for it in listeners]

    def end(self, request_id: RequestId) -> Result | None:
        """End a subscription from this side: the answer to its listen request, or None if it is not open."""
        if not self._close(request_id, "end"):
            return None
        return Result(request_id, {"resultType": "complete", "_meta": {SUBSCRIPTION_ID: request_id}})

    def end_all(self) -> list[Result]:
        """End every subscription from this side, as when the server stops."""
        return [ended for request_id in list(self._publications) if (ended := self.end(request_id)) is not None]

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
        return True


def _notification(method: str, subscription_id: RequestId, **params: Any) -> Notification:
    return Notification(method, {"_meta": {SUBSCRIPTION_ID: subscription_id}, **params})


def _refused(request_id: RequestId, sentence: str) -> Error:
    return Error(request_id, ErrorDetail(INVALID_PARAMS, sentence))
