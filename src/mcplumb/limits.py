"""Every limit in one place: no input from a peer makes mcplumb grow without bound.

Each limit states the reason for its value. ``Limits(max_line=…)`` changes one of a connection's limits and keeps the
defaults of the others; the module's constants are fixed.
"""

from __future__ import annotations

import msgspec

from mcplumb.errors import UsageError

__all__ = ["DEFAULT_LIMITS", "MAX_DEPTH", "MAX_EVENT_FIELD", "MAX_FOREIGN", "MAX_STATE", "Limits"]

#: How deep the arrays and objects of a message may be nested. Interpreters have recursion limits of 1,000 to 10,000,
#: and with a small stack some of them crash before they reach it.
MAX_DEPTH = 500
#: Bytes in the id or the name of a server-sent event. An id outlives its event: it is kept as long as the stream, and
#: sent back in a header when the stream is resumed.
MAX_EVENT_FIELD = 1024
#: Bytes of an envelope that belong to no known key: white space, unknown members, needless escapes. No real peer sends
#: a hundred, and the search for a duplicate key costs time and memory in proportion to them.
MAX_FOREIGN = 16 * 1024
#: Bytes of request state that may be sealed. The state travels to the client and back in each round of a request.
MAX_STATE = 64 * 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one connection, and on the number of connections."""

    #: Bytes in one line before its newline. Other implementations stop at 64 KiB, at 10 MiB, or never; results of
    #: 50 MB occur in practice.
    max_line: int = 64 * 1024 * 1024
    #: Messages in one batch (2025-03-26). A million tiny messages fit in one line, and each would cost a task.
    max_batch: int = 1000
    #: Bytes of one server-sent event; the same as for a line, because it carries the same messages.
    max_event: int = 64 * 1024 * 1024
    #: Requests of one peer that are processed at once. Further requests wait; notifications and responses do not.
    max_in_flight: int = 10_000
    #: Requests of one peer that wait. Beyond that, nothing is read until one of them is started.
    max_waiting: int = 10_000
    #: Open subscriptions of one peer. Every change is checked against the filter of each.
    max_subscriptions: int = 1000
    #: Resource URIs in all open subscriptions of one peer together.
    max_subscribed_resources: int = 10_000
    #: Characters in one of those URIs. Web servers stop at 8 KiB, too.
    max_uri: int = 8192
    #: Connections to a server on one socket. Each costs some kilobytes, a descriptor, and a share of the event loop.
    max_connections: int = 1000

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"The limit {name} is {value!r}: it must be an integer of at least 1.")


DEFAULT_LIMITS = Limits()
