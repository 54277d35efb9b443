"""The state of one conversation that findings need: its era, what each side declared, tools, subscriptions, ids."""

from __future__ import annotations

from typing import Any

from mcplumb.recording.recording_format import Side
from mcplumb.revisions import Revision
from mcplumb.tap.payload_members import value_of
from mcplumb.tap.transcript import Call
from mcplumb.wire.messages import RequestId

__all__ = ["Conversation", "ListedTools", "Subscription"]


class ListedTools:
    """The tools of a server, as far as they were listed."""

    __slots__ = ("is_complete", "is_fresh", "known", "page", "structured")

    def __init__(self) -> None:
        #: The definitions by name.
        self.known: dict[str, tuple[int, bytes]] = {}
        #: Names of tools with an output schema.
        self.structured: set[str] = set()
        #: Names on the pages of the listing that is going on.
        self.page: set[str] = set()
        self.is_complete = False
        #: Whether no change was announced since they were listed.
        self.is_fresh = False


class Conversation:
    """What is known of one session, connection or exchange over HTTP."""

    __slots__ = (
        "capabilities",
        "client_capabilities",
        "initialize",
        "is_initialized",
        "modern",
        "seen_ids",
        "states",
        "subscriptions",
        "tools",
    )

    def __init__(self) -> None:
        #: The revision of the last modern request; None after a legacy handshake.
        self.modern: Revision | None = None
        #: The call of initialize that succeeded.
        self.initialize: Call | None = None
        self.is_initialized = False
        #: What the server has declared; None if that is not known.
        self.capabilities: dict[str, Any] | None = None
        self.client_capabilities: dict[str, Any] | None = None
        self.subscriptions: dict[RequestId, Subscription] = {}
        self.tools = ListedTools()
        #: The states that the server sent, with the keys of the questions beside each.
        self.states: dict[str, set[str]] = {}
        self.seen_ids: set[tuple[Side, RequestId]] = set()


class Subscription:
    """A subscription, and what it includes."""

    __slots__ = ("call", "filter", "is_acknowledged", "uris")

    def __init__(self, call: Call, wanted: dict[str, Any]) -> None:
        self.call = call
        #: The kinds of changes, and the resources whose changes were asked for.
        self.filter = {key for key, raw in wanted.items() if value_of(raw) is True}
        uris = value_of(wanted.get("resourceSubscriptions"))
        self.uris = set(map(str, uris)) if isinstance(uris, list) else set()
        self.is_acknowledged = False
