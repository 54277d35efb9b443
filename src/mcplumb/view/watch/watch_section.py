"""The section Watch: its routes, and the regular search for new recordings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from mcplumb.errors import McplumbError
from mcplumb.limits import MAX_WATCHED_SESSIONS
from mcplumb.view.api_routes import ApiCall, ApiError, Route
from mcplumb.view.event_hub import EventHub
from mcplumb.view.watch.copy_as import copies_of
from mcplumb.view.watch.message_check import check_message
from mcplumb.view.watch.session_list import Listed, SessionList, key_of
from mcplumb.view.watch.watched_session import WatchedSession

__all__ = ["WatchSection"]

_logger = logging.getLogger("mcplumb.view")

T = TypeVar("T")

#: Seconds between two looks at the sessions that are watched; the list of all is looked at every few times.
_INTERVAL = 0.2
_LIST_EVERY = 5
#: Rows in one answer.
_MOST_ROWS = 10_000
#: Characters of a search.
_LONGEST_SEARCH = 1000


class WatchSection:
    """The sessions that can be watched: those in the folder of recordings, and one that the user named."""

    def __init__(self, hub: EventHub, *, file: Path | None = None, folder: Path | None = None) -> None:
        self._hub = hub
        self._list = SessionList(file, folder)
        self._listed: list[Listed] = []
        #: The list as the pages were told of it: a page that asks for the list must not take the news from the others.
        self._announced: list[Listed] = []
        #: The sessions that pages look at, the one that was asked for last at the end.
        self._open: dict[str, _Opened] = {}
        self._listing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def routes(self) -> list[Route]:
        """Return the routes of the section."""
        return [
            Route("GET", "sessions", self._answer_list),
            Route("GET", "sessions/{session}/rows", self._answer_rows),
            Route("GET", "sessions/{session}/findings", self._answer_findings),
            Route("GET", "sessions/{session}/search", self._answer_search),
            Route("GET", "sessions/{session}/records/{number}", self._answer_record),
        ]

    async def open(self) -> None:
        """Start to look for new recordings."""
        await self._look()
        self._announced = self._listed
        if self._list.first is not None:
            await self._session(self._list.first)  # so that the command line says what is wrong with the file
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        """Stop everything that the section has started. May be called again."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        while self._open:
            await self._open.popitem()[1].close()

    # What is new

    async def _follow(self) -> None:
        turn = 0
        while True:
            await asyncio.sleep(_INTERVAL)
            if not self._hub.has_pages:
                continue
            turn += 1
            if turn % _LIST_EVERY == 0:
                with suppress(McplumbError):  # the page says it when it asks for the list
                    await self._look()
                if self._announced != self._listed:
                    self._announced = self._listed
                    self._hub.publish("sessions", {}, key="")
            for key, opened in list(self._open.items()):
                await self._read_more(key, opened)

    async def _read_more(self, key: str, opened: _Opened) -> None:
        try:
            has_changed = await opened.run(opened.session.read_more)
        except ApiError:
            return  # closed meanwhile
        except McplumbError as error:
            # The next request opens it again, and says what is wrong.
            _logger.info("A session is not followed any more: %s", error)
            self._open.pop(key, None)
            await opened.close()
            has_changed = True
        if has_changed:
            self._hub.publish("rows", {"session": key, "changes": opened.session.changes}, key=key)

    async def _look(self) -> None:
        async with self._listing:
            self._listed = await asyncio.to_thread(self._list.look)

    async def _session(self, key: str) -> _Opened:
        opened = self._open.pop(key, None)
        if opened is None:
            path = self._list.path(key)
            if path is None:
                await self._look()
                path = self._list.path(key)
            if path is None:
                raise _no_session()
            session = await asyncio.to_thread(WatchedSession, path)
            if key_of(path, session.header) != key:  # the list is older than the file
                session.close()
                raise _no_session()
            if key in self._open:  # by another request meanwhile
                session.close()
                opened = self._open.pop(key)
            else:
                opened = _Opened(session)
        self._open[key] = opened
        while len(self._open) > MAX_WATCHED_SESSIONS:
            oldest = self._open.pop(next(iter(self._open)))
            await oldest.close()
        return opened

    # Answers

    async def _answer_list(self, _: ApiCall) -> Any:
        await self._look()
        return {"sessions": self._listed, "first": self._list.first, "folder": str(self._list.folder)}

    async def _answer_rows(self, call: ApiCall) -> Any:
        start, most = call.number("from", 0), call.number("most", _MOST_ROWS, most=_MOST_ROWS)
        opened = await self._session(call.params["session"])
        return await opened.run(lambda: opened.session.rows(start, most))

    async def _answer_findings(self, call: ApiCall) -> Any:
        opened = await self._session(call.params["session"])
        return await opened.run(opened.session.findings)

    async def _answer_search(self, call: ApiCall) -> Any:
        text = call.query.get("text", "")
        if not text or len(text) > _LONGEST_SEARCH:
            raise ApiError(400, f"A search needs a text of at most {_LONGEST_SEARCH} characters.")
        opened = await self._session(call.params["session"])
        return {"numbers": await opened.run(lambda: opened.session.search(text))}

    async def _answer_record(self, call: ApiCall) -> Any:
        number = call.params["number"]
        if not number.isascii() or not number.isdecimal() or len(number) > 15:
            raise ApiError(400, "The number of a record must be a whole number.")
        opened = await self._session(call.params["session"])
        answer = await opened.run(lambda: _describe(opened.session, int(number)))
        if answer is None:
            raise ApiError(404, f"The recording has no record {number}.")
        return answer


def _no_session() -> ApiError:
    return ApiError(404, "There is no such session: its recording may have been deleted, or begun anew.")


class _Opened:
    """A session that pages show, used by one thread at a time."""

    def __init__(self, session: WatchedSession) -> None:
        self.session = session
        self._lock = asyncio.Lock()

        self._is_closed = False

    async def run(self, function: Callable[[], T]) -> T:
        async with self._lock:
            if self._is_closed:
                raise ApiError(503, "This session was closed, because many others are looked at. Ask again.")
            return await asyncio.to_thread(function)

    async def close(self) -> None:
        async with self._lock:
            self._is_closed = True
            await asyncio.to_thread(self.session.close)


def _describe(session: WatchedSession, number: int) -> dict[str, Any] | None:
    record = session.record(number)
    if record is None:
        return None
    return {
        "number": number,
        "record": record,
        "size": record.sent_size,
        "checks": check_message(session, number, record),
        "copies": copies_of(session.header, record),
    }
