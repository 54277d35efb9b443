"""The calls of one connection: the running ones with their progress, and the last ones that ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec

from mcplumb.client.client import Client
from mcplumb.client.known_tools import OutputChecker
from mcplumb.errors import HttpError, McplumbError, ProtocolError, RemoteError
from mcplumb.limits import MAX_WORKBENCH_CALLS, MAX_WORKBENCH_RESULTS
from mcplumb.rpc.user_callbacks import OnProgress
from mcplumb.types.tools import CallToolResult, Tool
from mcplumb.view.api_routes import ApiError

__all__ = ["Call", "Calls"]

_State: TypeAlias = Literal["running", "done", "failed", "cancelled"]
#: Characters of the title of a call, and of a progress message, that events carry.
_MAX_TEXT = 500


class Call:
    """One call."""

    def __init__(self, number: int, method: str, params: dict[str, Any]) -> None:
        self.number = number
        self.method = method
        self.params = params
        self.state: _State = "running"
        self.is_error = False
        self._began = time.time()
        self._start = time.monotonic()
        self._seconds: float | None = None
        self._progress: tuple[float, float | None, str] | None = None
        self._outcome: bytes | None = None
        self.task: asyncio.Task[None] | None = None

    def summary(self) -> dict[str, Any]:
        """Return a summary for lists. It is small, however large the call and its result are."""
        progress, total, message = self._progress or (None, None, None)
        return {
            "id": self.number,
            "method": self.method,
            "title": str(self.params.get("name") or self.params.get("uri") or "")[:_MAX_TEXT],
            "state": self.state,
            "isError": self.is_error,
            "began": self._began,
            "seconds": time.monotonic() - self._start if self._seconds is None else self._seconds,
            "progress": progress,
            "total": total,
            "message": message,
            "size": self.size,
        }

    def details(self) -> dict[str, Any]:
        """Return all details of the call."""
        outcome = None if self._outcome is None else msgspec.Raw(self._outcome)
        return {**self.summary(), "params": self.params, "outcome": outcome}

    @property
    def size(self) -> int | None:
        """The bytes of the result as JSON; None without a result, or if it was dropped."""
        return None if self._outcome is None else len(self._outcome)

    def advance(self, progress: float, total: float | None, message: str | None) -> None:
        """Record the latest progress."""
        self._progress = progress, total, (message or "")[:_MAX_TEXT]

    def end(self, state: _State, outcome: dict[str, Any], *, is_error: bool = False) -> None:
        """Record the outcome."""
        self.state, self.is_error = state, is_error
        self._outcome = msgspec.json.encode(outcome)
        self._seconds = time.monotonic() - self._start

    def forget_result(self) -> None:
        """Drop the result to free its memory."""
        self._outcome = None


class Calls:
    """The calls of one connection. ``changed`` is called with each call that has changed."""

    def __init__(self, changed: Callable[[Call], None]) -> None:
        self._changed = changed
        self._calls: dict[int, Call] = {}
        self._last = 0
        self._checker = OutputChecker(None)

    def all(self) -> list[Call]:
        """Return the calls, newest first."""
        return list(reversed(self._calls.values()))

    def get(self, number: int) -> Call:
        """Return a call; raise `ApiError` if it is no longer kept."""
        if (call := self._calls.get(number)) is None:
            raise ApiError(404, "This call is not known any more.")
        return call

    def start(self, client: Client, tools: dict[str, Tool], method: str, params: dict[str, Any]) -> Call:
        """Start a call; raise `ApiError` if too many are running."""
        running = [call for call in self._calls.values() if call.state == "running"]
        if len(running) >= MAX_WORKBENCH_CALLS:
            raise ApiError(409, f"{len(running)} calls are running: cancel some first.")
        self._last += 1
        call = self._calls[self._last] = Call(self._last, method, params)
        self._tidy()
        tool = tools.get(str(params.get("name"))) if method == "tools/call" else None
        call.task = asyncio.get_running_loop().create_task(self._run(client, tool, call))
        self._changed(call)
        return call

    def cancel(self, number: int) -> None:
        """Cancel a call, also at the server. Does nothing if it has ended."""
        task = self.get(number).task
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all running calls."""
        tasks = [call.task for call in self._calls.values() if call.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self, client: Client, tool: Tool | None, call: Call) -> None:
        def advance(progress: float, total: float | None, message: str | None) -> None:
            call.advance(progress, total, message)
            self._changed(call)

        try:
            result = await _send(client, call.method, call.params, advance)
        except asyncio.CancelledError:
            call.end("cancelled", {"error": {"kind": "Cancelled", "sentence": "You have cancelled the call."}})
        except McplumbError as error:
            call.end("failed", {"error": _error(error)}, is_error=True)
        except (TypeError, ValueError, RecursionError) as error:
            # What the user typed cannot be sent.
            call.end("failed", {"error": {"kind": "UsageError", "sentence": f"{error}"}}, is_error=True)
        else:
            is_error = isinstance(result, CallToolResult) and result.is_error
            call.end("done", {"result": result, "warning": self._warning(tool, result)}, is_error=is_error)
        finally:
            call.task = None
            self._tidy()
            self._changed(call)

    def _warning(self, tool: Tool | None, result: Any) -> str | None:
        """Return why a result does not match its schema, to be shown with the result; None if it does."""
        if tool is None or tool.output_schema is None or not isinstance(result, CallToolResult):
            return None
        try:
            self._checker.check(tool.name, tool.output_schema, result)
        except ProtocolError as error:
            return str(error)
        return None

    def _tidy(self) -> None:
        ended = [call for call in self._calls.values() if call.state != "running"]
        for call in ended[: max(0, len(self._calls) - MAX_WORKBENCH_CALLS)]:
            del self._calls[call.number]
        room = MAX_WORKBENCH_RESULTS
        for at, call in enumerate(reversed(self._calls.values())):
            room -= call.size or 0
            if room < 0 and at:
                call.forget_result()


def _send(client: Client, method: str, params: dict[str, Any], on_progress: OnProgress) -> Awaitable[Any]:
    """Send a request without a time limit: the user sees how long it takes, and can cancel it."""
    options: dict[str, Any] = {"timeout": None, "max_timeout": None, "on_progress": on_progress}
    name, arguments = str(params.get("name", "")), params.get("arguments")
    send: Callable[..., Awaitable[Any]]
    match method:
        case "tools/call":
            send = partial(client.call_tool, name, arguments)
        case "resources/read":
            send = partial(client.read_resource, str(params.get("uri", "")))
        case "prompts/get":
            send = partial(client.get_prompt, name, arguments)
        case _:
            send = partial(client.request, method, params)
    return send(**options)


def _error(error: McplumbError) -> dict[str, Any]:
    shown: dict[str, Any] = {"kind": type(error).__name__, "sentence": str(error)}
    if isinstance(error, RemoteError):
        shown |= {"code": error.code, "message": error.message, "data": error.data}
    elif isinstance(error, HttpError):
        shown["status"] = error.status
    return shown
