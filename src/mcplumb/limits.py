"""Every limit in one place: no input from a peer makes mcplumb grow without bound.

Each limit states the reason for its value. ``Limits(max_line=…)`` changes one of a connection's limits and keeps the
defaults of the others; the module's constants are fixed.
"""

from __future__ import annotations

import msgspec

from mcplumb.errors import UsageError

__all__ = [
    "DEFAULT_LIMITS",
    "MAX_DEPTH",
    "MAX_EVENT_FIELD",
    "MAX_FOREIGN",
    "MAX_PAGES",
    "MAX_PAGE_EVENTS",
    "MAX_PAGE_SETTINGS",
    "MAX_READ_LINE",
    "MAX_RECORDED_LINE",
    "MAX_RECORDING",
    "MAX_RECORDINGS",
    "MAX_RECORDINGS_SIZE",
    "MAX_SAVED_CALLS",
    "MAX_SERIES",
    "MAX_STATE",
    "MAX_UNRECORDED",
    "MAX_WATCHED_RECORDS",
    "MAX_WATCHED_SESSIONS",
    "MAX_WORKBENCH_CALLS",
    "MAX_WORKBENCH_CONNECTIONS",
    "MAX_WORKBENCH_LOG",
    "MAX_WORKBENCH_QUESTIONS",
    "MAX_WORKBENCH_RESULTS",
    "MAX_WORKERS",
    "Limits",
]

#: How deep the arrays and objects of a message may be nested. Interpreters have recursion limits of 1,000 to 10,000,
#: and with a small stack some of them crash before they reach it.
MAX_DEPTH = 500
#: Bytes in the id or the name of a server-sent event. An id outlives its event: it is kept as long as the stream, and
#: sent back in a header when the stream is resumed.
MAX_EVENT_FIELD = 1024
#: Bytes of an envelope that belong to no known key: white space, unknown members, needless escapes. No real peer sends
#: a hundred, and the search for a duplicate key costs time and memory in proportion to them.
MAX_FOREIGN = 16 * 1024
#: Combinations of labels of one metric, such as methods and tools. Each costs some 300 bytes here, and a time series at
#: the monitoring system, where ten thousand for one server would be a burden.
MAX_SERIES = 1000
#: Processes of ``mcplumb serve --workers``. More than cores are of no use, and each takes some 40 MB.
MAX_WORKERS = 256
#: Bytes of request state that may be sealed. The state travels to the client and back in each round of a request.
MAX_STATE = 64 * 1024
#: Pages of ``mcplumb view`` that are open at once. Browsers themselves keep at most six streams to one address.
MAX_PAGES = 64
#: Events queued for such a page. A page that misses some, because it does not read, is notified and loads all again.
MAX_PAGE_EVENTS = 1000
#: Sessions that its pages look at, at once. Each is in memory, without the texts of its messages.
MAX_WATCHED_SESSIONS = 8
#: Records of such a session that are shown. Each takes some 500 bytes here, and as much in the browser.
MAX_WATCHED_RECORDS = 500_000
#: Servers that its workbench is connected to at once. Each may be a process.
MAX_WORKBENCH_CONNECTIONS = 16
#: Calls of one such connection that are kept, running ones included. The oldest that has ended is dropped.
MAX_WORKBENCH_CALLS = 100
#: Bytes of their results. Beyond that, the oldest results are dropped, but never the newest.
MAX_WORKBENCH_RESULTS = 128 * 1024 * 1024
#: Lines of its log that are kept: messages of the server, its stderr, and what has happened.
MAX_WORKBENCH_LOG = 2000
#: Questions of the server that wait for an answer. Further ones are refused.
MAX_WORKBENCH_QUESTIONS = 32
#: Calls that are saved for later.
MAX_SAVED_CALLS = 500
#: Bytes of one line that a recording keeps. Longer lines pass whole, and their size is recorded.
MAX_RECORDED_LINE = 16 * 1024 * 1024
#: Bytes of what a user has chosen on the page of `mcplumb view`.
MAX_PAGE_SETTINGS = 64 * 1024
#: Bytes of a line in a recording that are read: JSON needs six for some characters of a message.
MAX_READ_LINE = 8 * MAX_RECORDED_LINE
#: Bytes that wait to be recorded. While this many wait, further records are only counted.
MAX_UNRECORDED = 64 * 1024 * 1024
#: Bytes of one recording. What comes later is not recorded.
MAX_RECORDING = 1024 * 1024 * 1024
#: Recordings that the default folder keeps. The oldest are deleted.
MAX_RECORDINGS = 200
#: Bytes of all recordings in the default folder together. The oldest are deleted.
MAX_RECORDINGS_SIZE = 2 * 1024 * 1024 * 1024


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
