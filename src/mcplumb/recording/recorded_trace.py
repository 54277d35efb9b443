"""Record the messages of a client, server or bridge of this process, through the trace callback of connections."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from mcplumb.errors import UsageError
from mcplumb.recording.recorder import Recorder
from mcplumb.recording.recording_format import By, Http, Target

if TYPE_CHECKING:
    from mcplumb.transports.line_connection import Trace

__all__ = ["Place", "RecordedTrace", "record_session"]

#: Where a session is recorded: a file, or a folder that gets a file for each session; True is the default folder.
Place: TypeAlias = str | os.PathLike[str] | bool | None


class RecordedTrace:
    """The ``trace`` callback of connections: it records each message, and calls another trace with it."""

    __slots__ = ("_connection", "_count", "_http", "_then", "recorder")

    def __init__(
        self, recorder: Recorder, then: Trace | None, *, connection: int | None = None, http: Http | None = None
    ) -> None:
        self.recorder = recorder
        self._then = then
        self._connection = connection
        self._http = http
        self._count = 0

    def __call__(self, direction: Literal["in", "out"], line: bytes) -> None:
        """Record one message."""
        self.recorder.trace(direction, line, connection=self._connection, http=self._http)
        if self._then is not None:
            self._then(direction, line)

    def of_client(self, client: str) -> RecordedTrace:
        """Return the trace of one HTTP request."""
        self._count += 1
        of_client = getattr(self._then, "of_client", None)
        then = self._then if of_client is None else of_client(client)
        return RecordedTrace(self.recorder, then, http=Http(exchange=self._count))

    def of_connection(self) -> RecordedTrace:
        """Return the trace of one connection to a socket, whose clients number their requests on their own."""
        self._count += 1
        return RecordedTrace(self.recorder, self._then, connection=self._count)


def record_session(
    record: Place,
    by: By,
    transport: str,
    trace: Trace | None,
    *,
    name: str = "",
    command: Sequence[str] | None = None,
    url: str | None = None,
) -> RecordedTrace:
    """Return a trace that records to this place. Close its recorder at the end."""
    if not isinstance(record, str | os.PathLike | bool):
        raise UsageError(f"record is a {type(record).__name__}: give it the path of a file or folder, or True.")
    place = None if isinstance(record, bool) else Path(record).expanduser().absolute()
    target = Target(command=None if command is None else list(command), url=url)
    return RecordedTrace(Recorder(by, transport, name=name, target=target, place=place), trace)
