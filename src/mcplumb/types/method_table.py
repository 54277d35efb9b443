"""The table of all methods: name, payload types, sender, and revisions of every request and notification."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from mcplumb import types
from mcplumb.revisions import Revision
from mcplumb.types.base import Params, Payload

__all__ = ["METHODS", "Method", "Side"]

Side: TypeAlias = Literal["client", "server"]


class Method(msgspec.Struct, frozen=True):
    """One kind of request or notification."""

    name: str
    #: The names of the types of its params and its result in ``mcplumb.types``, which are loaded on access: most
    #: programs use a few methods. A notification has no result.
    params_name: str
    result_name: str | None
    #: The ``Revision`` flags under which the client may send it; None if the client never does.
    client: tuple[str, ...] | None = None
    #: The ``Revision`` flags under which the server may send it; None if the server never does.
    server: tuple[str, ...] | None = None
    #: Whether the result may be an ``InputRequiredResult`` in revisions that have it.
    may_need_input: bool = False
    #: The member of the params that HTTP clients repeat in the header ``Mcp-Name``.
    named_by: Literal["name", "uri"] | None = None

    @property
    def params(self) -> type[Params]:
        """The type of its params."""
        params: type[Params] = getattr(types, self.params_name)
        return params

    @property
    def result(self) -> type[Payload] | None:
        """The type of its result; None for a notification."""
        return None if self.result_name is None else getattr(types, self.result_name)

    @property
    def is_notification(self) -> bool:
        """Whether it is a notification, which has no result."""
        return self.result_name is None

    def sent_by(self, side: Side, revision: Revision) -> bool:
        """Return whether this side may send it in this revision."""
        flags = self.client if side == "client" else self.server
        return flags is not None and all(getattr(revision, flag) for flag in flags)

    def in_revision(self, revision: Revision) -> bool:
        """Return whether any side may send it in this revision."""
        return self.sent_by("client", revision) or self.sent_by("server", revision)


_ALWAYS: tuple[str, ...] = ()
_SERVER_REQUESTS = ("has_server_requests",)

_ALL = (
    Method("initialize", "InitializeParams", "InitializeResult", client=("has_handshake",)),
    Method("notifications/initialized", "Params", None, client=("has_handshake",)),
    Method("ping", "Params", "Result", client=("has_ping",), server=("has_ping",)),
    Method("server/discover", "Params", "DiscoverResult", client=("has_discover",)),
    Method("tools/list", "PageParams", "ListToolsResult", client=_ALWAYS),
    Method("tools/call", "CallToolParams", "CallToolResult", client=_ALWAYS, may_need_input=True, named_by="name"),
    Method("resources/list", "PageParams", "ListResourcesResult", client=_ALWAYS),
    Method("resources/templates/list", "PageParams", "ListResourceTemplatesResult", client=_ALWAYS),
    Method(
        "resources/read",
        "ReadResourceParams",
        "ReadResourceResult",
        client=_ALWAYS,
        may_need_input=True,
        named_by="uri",
    ),
    Method("resources/subscribe", "ResourceParams", "Result", client=("has_resource_subscribe",)),
    Method("resources/unsubscribe", "ResourceParams", "Result", client=("has_resource_subscribe",)),
    Method("prompts/list", "PageParams", "ListPromptsResult", client=_ALWAYS),
    Method("prompts/get", "GetPromptParams", "GetPromptResult", client=_ALWAYS, may_need_input=True, named_by="name"),
    Method("completion/complete", "CompleteParams", "CompleteResult", client=_ALWAYS),
    Method("logging/setLevel", "SetLevelParams", "Result", client=("has_set_level",)),
    Method("subscriptions/listen", "ListenParams", "ListenResult", client=("has_listen",)),
    Method("sampling/createMessage", "CreateMessageParams", "CreateMessageResult", server=_SERVER_REQUESTS),
    Method("roots/list", "Params", "ListRootsResult", server=_SERVER_REQUESTS),
    Method("elicitation/create", "ElicitParams", "ElicitResult", server=("has_server_requests", "has_elicitation")),
    Method("notifications/cancelled", "CancelledParams", None, client=_ALWAYS, server=_ALWAYS),
    # A client reports progress of the requests that a server sent to it.
    Method("notifications/progress", "ProgressParams", None, client=_SERVER_REQUESTS, server=_ALWAYS),
    Method("notifications/roots/list_changed", "Params", None, client=("has_roots_list_changed",)),
    Method("notifications/message", "LogMessageParams", None, server=_ALWAYS),
    Method("notifications/tools/list_changed", "Params", None, server=_ALWAYS),
    Method("notifications/prompts/list_changed", "Params", None, server=_ALWAYS),
    Method("notifications/resources/list_changed", "Params", None, server=_ALWAYS),
    Method("notifications/resources/updated", "ResourceUpdatedParams", None, server=_ALWAYS),
    Method("notifications/subscriptions/acknowledged", "AcknowledgedParams", None, server=("has_listen",)),
    Method("notifications/elicitation/complete", "ElicitationCompleteParams", None, server=("has_elicitation_ids",)),
)

#: All methods by name, except the methods of tasks, which are experimental in one revision.
METHODS: dict[str, Method] = {method.name: method for method in _ALL}
