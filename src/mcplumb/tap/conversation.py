"""The state of one conversation that findings need: its era, what each side declared, tools, subscriptions, ids."""

from __future__ import annotations

from typing import Any

from mcplumb.recording.recording_format import Side
from mcplumb.revisions import Revision
from mcplumb.tap.payload_members import value_of
from mcplumb.tap.transcript import Call
from mcplumb.types.notification_params import LOGGING_LEVELS
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
        "asking_ids",
        "capabilities",
        "client_capabilities",
        "cursors",
        "initialize",
        "is_initialized",
        "log_level",
        "modern",
        "seen_ids",
        "session_ids",
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
        self.capabilities: frozenset[str] | None = None
        self.client_capabilities: frozenset[str] | None = None
        #: The lowest level of log messages that a request has asked for, by its place among all levels.
        self.log_level = len(LOGGING_LEVELS)
        self.subscriptions: dict[RequestId, Subscription] = {}
        self.tools = ListedTools()
        #: The states that the server sent, with the keys of the questions beside each.
        self.states: dict[str, set[str]] = {}
        self.seen_ids: set[tuple[Side, RequestId]] = set()
        #: Those since ``initialize``.
        self.session_ids: set[tuple[Side, RequestId]] = set()
        #: Those of requests whose answer asked for input.
        self.asking_ids: set[RequestId] = set()
        #: The cursors of open requests, by the record of the request.
        self.cursors: dict[int, str] = {}

    def note_id(self, call: Call, *, is_retry: bool) -> str | None:
        """Note the id of a request, and return words for the earlier request whose id it must not have."""
        key = (call.sender, call.id)
        if call.method == "initialize":
            self.session_ids.clear()
        found = "an earlier request of this session" if key in self.session_ids else None
        if call.sender == "client" and call.id in self.asking_ids:
            found = "the request that asked for input" if is_retry else found
            self.asking_ids.discard(call.id)
        self.seen_ids.add(key)
        if self.initialize is not None or call.method == "initialize":
            self.session_ids.add(key)
        return found

    def note_log_level(self, level: str | None) -> None:
        """Note the level of log messages that a request asks for."""
        if level in LOGGING_LEVELS:
            self.log_level = min(self.log_level, LOGGING_LEVELS.index(level))

    def wanted_instead(self, level: str | None) -> str | None:
        """Return words for the log messages that were asked for, if one of this level is not among them."""
        if self.log_level == len(LOGGING_LEVELS):
            return "none"
        if level in LOGGING_LEVELS and LOGGING_LEVELS.index(level) < self.log_level:
            return f"those of level {LOGGING_LEVELS[self.log_level]} and above"
        return None


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
