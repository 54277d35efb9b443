"""The section Workbench: its routes and its connections.

Whoever may use the page may start programs with it, as its user may in a terminal. Nobody else can: each request needs
the secret of the page's address, the right Host, and no foreign Origin (`mcplumb.view.access`); one that changes
something also needs a body of the type ``application/json``, which browsers let no page of another origin send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from mcplumb.limits import MAX_WORKBENCH_CONNECTIONS
from mcplumb.types.client_features import Root
from mcplumb.types.notification_params import LoggingLevel
from mcplumb.view.api_routes import ApiCall, ApiError, Gone, Route
from mcplumb.view.event_hub import EventHub
from mcplumb.view.workbench.connection import Completed, WorkbenchConnection
from mcplumb.view.workbench.questions import Answer
from mcplumb.view.workbench.saved_calls import SavedCall, SavedCalls
from mcplumb.view.workbench.server_choice import ChosenServer, ServerChoice, choose_server, list_configured

__all__ = ["WorkbenchSection"]


class _Asked(msgspec.Struct, frozen=True):
    """A request to send."""

    method: str
    params: dict[str, Any] = {}


class _Level(msgspec.Struct, frozen=True):
    level: LoggingLevel


class _Uri(msgspec.Struct, frozen=True):
    uri: str


class _Roots(msgspec.Struct, frozen=True):
    roots: list[Root]


class WorkbenchSection:
    """The connections of the workbench.

    ``start`` is the server that the command line names, which is connected at once; ``config`` is the config file to
    look into, None for all.
    """

    def __init__(
        self, hub: EventHub, start: ChosenServer | None = None, *, config: str | None = None, records: bool = True
    ) -> None:
        self._hub = hub
        self._start = start
        self._config = config
        self._records = records
        self._saved = SavedCalls()
        self._connections: dict[int, WorkbenchConnection] = {}
        #: Those that the pages do not know any more, but that have not ended yet.
        self._ending: set[WorkbenchConnection] = set()
        self._last = 0
        self._is_closed = False

    def routes(self) -> list[Route]:
        """Return the routes of the section."""
        one = "workbench/connections/{connection}"
        return [
            Route("GET", "workbench", self._describe),
            Route("GET", "workbench/configured", self._list_configured),
            Route("GET", "workbench/saved", self._list_saved),
            Route("POST", "workbench/saved", self._save),
            Route("DELETE", "workbench/saved/{call}", self._delete_saved),
            Route("POST", "workbench/connections", self._connect),
            Route("GET", one, self._details),
            Route("DELETE", one, self._disconnect),
            Route("POST", f"{one}/reconnect", self._reconnect),
            Route("GET", f"{one}/lists/{{what}}", self._list),
            Route("GET", f"{one}/log", self._log),
            Route("POST", f"{one}/log-level", self._set_log_level),
            Route("POST", f"{one}/roots", self._set_roots),
            Route("POST", f"{one}/subscribe", self._subscribe),
            Route("POST", f"{one}/unsubscribe", self._unsubscribe),
            Route("POST", f"{one}/complete", self._complete),
            Route("POST", f"{one}/copies", self._copies),
            Route("GET", f"{one}/questions", self._questions),
            Route("POST", f"{one}/questions/{{question}}", self._answer),
            Route("POST", f"{one}/calls", self._call),
            Route("GET", f"{one}/calls/{{call}}", self._call_details),
            Route("POST", f"{one}/calls/{{call}}/cancel", self._cancel),
        ]

    async def open(self) -> None:
        """Connect to the server that the command line names, if any."""
        if self._start is not None:
            self._open(self._start)

    async def close(self) -> None:
        """Close all connections, and stop the processes that they started. May be called again."""
        self._is_closed = True
        await asyncio.gather(*(each.close() for each in (*self._connections.values(), *self._ending)))

    # Connections

    def _open(self, server: ChosenServer) -> WorkbenchConnection:
        if self._is_closed:
            raise ApiError(503, "mcplumb view is stopping.")
        if len(self._connections) >= MAX_WORKBENCH_CONNECTIONS:
            raise ApiError(409, f"{MAX_WORKBENCH_CONNECTIONS} servers are connected: close one first.")
        self._last += 1
        number = self._last
        connection = WorkbenchConnection(number, server, self._announcer(number), records=self._records)
        self._connections[number] = connection
        self._announcer(number)("connections", {})
        return connection

    def _announcer(self, number: int) -> Callable[[str, dict[str, Any]], None]:
        def announce(part: str, more: dict[str, Any]) -> None:
            if number not in self._connections and part != "connections":
                return  # it cannot be requested any more
            # Of what waits for a page, the newest of each part is enough: each replaces what was said before.
            which = more["call"]["id"] if part == "call" else more.get("uri") or more.get("what") or ""
            self._hub.publish("workbench", {"connection": number, "part": part, **more}, key=f"{number}/{part}/{which}")

        return announce

    def _find(self, call: ApiCall) -> WorkbenchConnection:
        number = call.params["connection"]
        if not (number.isascii() and number.isdecimal() and len(number) < 16) or not 0 < int(number) <= self._last:
            raise ApiError(404, "There is no such connection.")
        found = self._connections.get(int(number))
        if found is None:
            raise Gone("This connection does not exist any more.")
        return found

    async def _describe(self, _: ApiCall) -> Any:
        return {
            "start": None if self._start is None else self._start.title,
            "connections": [each.summary() for each in self._connections.values()],
        }

    async def _list_configured(self, _: ApiCall) -> Any:
        return list_configured(self._config)

    async def _connect(self, call: ApiCall) -> Any:
        choice = await call.json_body(ServerChoice)
        return self._open(choose_server(choice, self._start, self._config)).summary()

    async def _details(self, call: ApiCall) -> Any:
        return self._find(call).details()

    async def _disconnect(self, call: ApiCall) -> Any:
        connection = self._find(call)
        await asyncio.shield(self._remove(connection))
        return {}

    async def _reconnect(self, call: ApiCall) -> Any:
        await call.json_body(dict[str, Any])
        connection = self._find(call)
        await asyncio.shield(self._remove(connection))
        return self._open(connection.server).summary()

    async def _remove(self, connection: WorkbenchConnection) -> None:
        self._connections.pop(connection.number, None)
        self._ending.add(connection)
        self._announcer(connection.number)("connections", {})
        try:
            await connection.close()
        finally:
            self._ending.discard(connection)

    # One connection

    async def _list(self, call: ApiCall) -> Any:
        return {"items": await self._find(call).list_items(call.params["what"])}

    async def _log(self, call: ApiCall) -> Any:
        log = self._find(call).log
        return {"lines": log.after(call.number("after", 0)), "last": log.last}

    async def _set_log_level(self, call: ApiCall) -> Any:
        await self._find(call).set_log_level((await call.json_body(_Level)).level)
        return {}

    async def _set_roots(self, call: ApiCall) -> Any:
        await self._find(call).set_roots((await call.json_body(_Roots)).roots)
        return {}

    async def _subscribe(self, call: ApiCall) -> Any:
        self._find(call).subscribe((await call.json_body(_Uri)).uri)
        return {}

    async def _unsubscribe(self, call: ApiCall) -> Any:
        self._find(call).unsubscribe((await call.json_body(_Uri)).uri)
        return {}

    async def _complete(self, call: ApiCall) -> Any:
        return await self._find(call).complete(await call.json_body(Completed))

    async def _copies(self, call: ApiCall) -> Any:
        asked = await call.json_body(_Asked)
        return self._find(call).copies(asked.method, asked.params)

    async def _questions(self, call: ApiCall) -> Any:
        return {"questions": self._find(call).questions.shown()}

    async def _answer(self, call: ApiCall) -> Any:
        self._find(call).questions.answer(_number(call, "question"), await call.json_body(Answer))
        return {}

    async def _call(self, call: ApiCall) -> Any:
        asked = await call.json_body(_Asked)
        return self._find(call).call(asked.method, asked.params).summary()

    async def _call_details(self, call: ApiCall) -> Any:
        return self._find(call).calls.get(_number(call, "call")).details()

    async def _cancel(self, call: ApiCall) -> Any:
        await call.json_body(dict[str, Any])
        self._find(call).calls.cancel(_number(call, "call"))
        return {}

    # Saved calls

    async def _list_saved(self, _: ApiCall) -> Any:
        return {"calls": self._saved.all()}

    async def _save(self, call: ApiCall) -> Any:
        saved = self._saved.save(await call.json_body(SavedCall))
        self._hub.publish("workbench", {"part": "saved"}, key="saved")
        return saved

    async def _delete_saved(self, call: ApiCall) -> Any:
        self._saved.delete(call.params["call"])
        self._hub.publish("workbench", {"part": "saved"}, key="saved")
        return {}


def _number(call: ApiCall, name: str) -> int:
    text = call.params[name]
    if not text.isascii() or not text.isdecimal() or len(text) > 15:
        raise ApiError(404, "There is nothing at this address.")
    return int(text)
