"""One connection of the workbench: a client, and the state that the page shows.

Its task connects, keeps the client open, and ends it; everything else is asked for by the page. Each change is
announced to the pages by a small event that names the part that has changed, and they ask for that part again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, TypeAlias

import msgspec

from mcplumb.client.auth.oauth import OAuth
from mcplumb.client.client import Client
from mcplumb.client.connector import connect
from mcplumb.errors import McplumbError, UsageError
from mcplumb.protocol.oauth.discovery import may_get_tokens
from mcplumb.protocol.subscription_state import Change, Missed
from mcplumb.recording.recorder import Recorder
from mcplumb.recording.recording_format import Target
from mcplumb.server.uri_templates import UriTemplate
from mcplumb.types.client_features import Root
from mcplumb.types.notification_params import LoggingLevel, LogMessageParams
from mcplumb.types.prompts import PromptReference, ResourceTemplateReference
from mcplumb.types.tools import Tool
from mcplumb.view.api_routes import ApiError
from mcplumb.view.workbench.call_copies import copies_of_call
from mcplumb.view.workbench.calls import Call, Calls
from mcplumb.view.workbench.log_lines import LogLines
from mcplumb.view.workbench.questions import Questions
from mcplumb.view.workbench.server_choice import ChosenServer

__all__ = ["Completed", "WorkbenchConnection"]

_logger = logging.getLogger("mcplumb.view")

_State: TypeAlias = Literal["connecting", "open", "failed", "closed"]
_Announce: TypeAlias = Callable[[str, dict[str, Any]], None]

#: Folders that a server may be told, and subscriptions to resources.
_MAX_ROOTS = 100
_MAX_SUBSCRIPTIONS = 100
#: Seconds for completions: later ones are of no use to a person who types.
_COMPLETE_WITHIN = 5.0


class Completed(msgspec.Struct, frozen=True, kw_only=True):
    """An argument of a prompt or a resource template that the user is typing."""

    kind: Literal["prompt", "template"]
    of: str
    argument: str
    value: str
    others: dict[str, str] = {}


class WorkbenchConnection:
    """A connection to one server. ``announce`` notifies the pages that a part of it has changed."""

    def __init__(self, number: int, server: ChosenServer, announce: _Announce, *, records: bool = True) -> None:
        #: Its number.
        self.number = number
        #: What it is connected to.
        self.server = server
        self._announce = announce
        self._records = records
        self._state: _State = "connecting"
        self._error: dict[str, str] | None = None
        self._client: Client | None = None
        self._tools: dict[str, Tool] = {}
        self._roots: list[Root] = []
        self._log_level: LoggingLevel | None = None
        self._subscriptions: dict[str, asyncio.Task[None]] = {}
        #: What the server asks, what it and its process say, and what was asked of it.
        self.questions = Questions(lambda: announce("questions", {}))
        self.log = LogLines(lambda last: announce("log", {"last": last}))
        self.calls = Calls(self._call_changed)
        self._ending = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    # The life of the connection

    async def close(self) -> None:
        """End everything, including the server's process. May be called again; if cancelled, it still completes."""
        self._ending.set()
        if self._client is None:
            self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        recorder = self._recorder()
        try:
            async with connect(self.server.place, **self._options(recorder)) as client:
                try:
                    self._opened(client)
                    await self._ending.wait()
                finally:
                    await self._end_tasks()
        except McplumbError as error:
            self._end("failed", error)
        except asyncio.CancelledError:
            self._end("closed")
        except Exception as error:
            _logger.exception("A connection of the workbench failed.")
            self._end("failed", error)
        else:
            self._end("closed")
        finally:
            self._client = None
            if recorder is not None:
                await asyncio.to_thread(recorder.close)

    async def _end_tasks(self) -> None:
        await self.calls.close()
        if tasks := list(self._subscriptions.values()):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _opened(self, client: Client) -> None:
        self._client = client
        self._state = "open"
        self._announce("state", {})
        name = "The server" if client.server_info is None else client.server_info.name
        self.log.event(f"Connected: {name}, revision {client.revision}.")
        has = client.capabilities
        wanted = {
            "tools": bool(has.tools and has.tools.list_changed),
            "prompts": bool(has.prompts and has.prompts.list_changed),
            "resources_list": bool(has.resources and has.resources.list_changed),
        }
        if any(wanted.values()):
            self._listen("", client, **wanted)

    def _end(self, state: _State, error: BaseException | None = None) -> None:
        self._state = state
        if error is not None:
            self._error = {"kind": type(error).__name__, "sentence": str(error)}
            self.log.event(str(error), "error")
        self._announce("state", {})

    def _options(self, recorder: Recorder | None) -> dict[str, Any]:
        options = {
            **self.server.options,
            "on_elicit": self.questions.elicit,
            "on_sample": self.questions.sample,
            "roots": self._list_roots,
            "on_log": self._logged,
            # Everything that the user asks for is asked of the server, and shown as it is.
            "cache": False,
            "check_output": False,
        }
        if recorder is not None:
            options["trace"] = _both(recorder.trace, options.get("trace"))
        if not isinstance(self.server.place, str):
            options["stderr"] = _both(self.log.stderr, None if recorder is None else recorder.stderr)
        elif self._signs_in():
            options["auth"] = OAuth(on_visit=self.questions.visit)
        return options

    def _signs_in(self) -> bool:
        options = self.server.options
        has_own = "token" in options or any(name.lower() == "authorization" for name in options.get("headers", ()))
        return not has_own and may_get_tokens(self.server.place)

    def _recorder(self) -> Recorder | None:
        if not self._records:
            return None
        place = self.server.place
        scheme = place.partition(":")[0].lower() if isinstance(place, str) else "stdio"
        transport = {"https": "http", "http": "http", "unix": "unix", "tcp": "tcp"}.get(scheme, "stdio")
        target = Target(command=self.server.command, url=self.server.url)
        return Recorder("client", transport, name=self.server.title, target=target)

    # What the page shows

    def summary(self) -> dict[str, Any]:
        """Return a summary for the list of connections."""
        client = self._client
        info = None if client is None else client.server_info
        return {
            "id": self.number,
            "title": self.server.title,
            "kind": "command" if self.server.command is not None else "address",
            "state": self._state,
            "error": self._error,
            "name": None if info is None else info.title or info.name,
            "waiting": len(self.questions.shown()),
        }

    def details(self) -> dict[str, Any]:
        """Return everything that the page shows of the connection, except lists, results and the log."""
        client, process = self._client, None if self._client is None else self._client.process
        shown = {
            **self.summary(),
            "place": self.server.url or self.server.command,
            "roots": self._roots,
            "logLevel": self._log_level,
            "subscriptions": [uri for uri in self._subscriptions if uri],
            "calls": [call.summary() for call in self.calls.all()],
            "questions": self.questions.shown(),
            "lastLine": self.log.last,
        }
        if client is not None:
            shown |= {
                "server": client.server_info,
                "revision": str(client.revision),
                "era": client.revision.era,
                "capabilities": client.capabilities,
                "instructions": client.instructions,
            }
        if process is not None:
            shown["process"] = {"pid": process.pid, "restarts": process.restarts, "uptime": process.uptime}
        return shown

    @property
    def client(self) -> Client:
        """The client. Raises `ApiError` if the server is not connected."""
        if self._client is None:
            raise ApiError(409, "This server is not connected. Connect to it again.")
        return self._client

    # What the page asks of the server

    async def list_items(self, what: str) -> Any:
        """Return a list of the server: tools, resources, templates or prompts."""
        client = self.client
        match what:
            case "tools":
                tools = await client.list_tools()
                self._tools = {tool.name: tool for tool in tools}
                return tools
            case "resources":
                return await client.list_resources()
            case "templates":
                templates = await client.list_resource_templates()
                return [{**msgspec.to_builtins(each), "variables": _variables(each.uri_template)} for each in templates]
            case "prompts":
                return await client.list_prompts()
        raise ApiError(404, f"There is no list of {what[:40]}.")

    def call(self, method: str, params: dict[str, Any]) -> Call:
        """Start a call."""
        return self.calls.start(self.client, self._tools, method, _with_uri(params))

    def copies(self, method: str, params: dict[str, Any]) -> dict[str, str]:
        """Return the call as commands and a program."""
        tool = self._tools.get(str(params.get("name")))
        schema = None if tool is None else tool.input_schema
        return copies_of_call(self.server, self.client.revision, method, _with_uri(params), schema)

    async def complete(self, wanted: Completed) -> Any:
        """Return completions of an argument; empty if the server offers none."""
        client = self.client
        if client.capabilities.completions is None and client.revision.has_completions_capability:
            return {"values": []}
        ref = PromptReference(wanted.of) if wanted.kind == "prompt" else ResourceTemplateReference(wanted.of)
        return await client.complete(
            ref, wanted.argument, wanted.value, wanted.others or None, timeout=_COMPLETE_WITHIN
        )

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Request log messages of this level and above."""
        await self.client.set_log_level(level)
        self._log_level = level
        self._announce("state", {})

    async def set_roots(self, roots: list[Root]) -> None:
        """Replace the roots: the folders that the server may use."""
        if len(roots) > _MAX_ROOTS:
            raise ApiError(400, f"There can be {_MAX_ROOTS} roots at most.")
        self._roots = roots
        self._announce("state", {})
        await self.client.roots_changed()

    def subscribe(self, uri: str) -> None:
        """Subscribe to changes of a resource."""
        if uri in self._subscriptions:
            return
        if len(self._subscriptions) >= _MAX_SUBSCRIPTIONS:
            raise ApiError(409, f"{_MAX_SUBSCRIPTIONS} resources are subscribed to: end some subscriptions first.")
        self._listen(uri, self.client, resources=[uri])
        self._announce("state", {})

    def unsubscribe(self, uri: str) -> None:
        """End a subscription; raise `ApiError` if there is none."""
        if not uri or (task := self._subscriptions.get(uri)) is None:
            raise ApiError(404, "This resource is not subscribed to.")
        task.cancel()

    # What the server says

    def _call_changed(self, call: Call) -> None:
        self._announce("call", {"call": call.summary()})

    def _logged(self, message: LogMessageParams) -> None:
        self.log.message(message.level, message.logger, message.data)

    async def _list_roots(self) -> list[Root]:
        return self._roots

    def _listen(self, uri: str, client: Client, **wanted: Any) -> None:
        """Subscribe in a task; without a URI, to changes of the lists."""
        hearing = self._subscriptions[uri] = asyncio.get_running_loop().create_task(self._hear(uri, client, wanted))
        hearing.add_done_callback(lambda _: self._heard(uri))

    async def _hear(self, uri: str, client: Client, wanted: dict[str, Any]) -> None:
        try:
            async with client.listen(**wanted) as changes:
                if uri and not (changes.honoured and changes.honoured.resource_subscriptions):
                    self.log.event(f"The server does not offer subscriptions to resources: {uri}", "warning")
                    return
                async for change in changes:
                    self._changed(change)
        except McplumbError as error:
            if self._state == "open":
                self.log.event(f"A subscription has ended. {error}", "warning")

    def _heard(self, uri: str) -> None:
        del self._subscriptions[uri]
        self._announce("state", {})

    def _changed(self, change: Change | Missed) -> None:
        if isinstance(change, Missed):
            self.log.event("The server was lost, and is there again: changes may have been missed.", "warning")
            self._announce("lists", {"what": "all"})
            self._announce("state", {})
        elif change.topic == "updates":
            self.log.event(f"Changed: {change.uri}")
            self._announce("resource", {"uri": change.uri})
        else:
            self.log.event(f"The list of {change.topic} has changed.")
            self._announce("lists", {"what": change.topic})


def _both(first: Callable[..., Any], second: Callable[..., Any] | None) -> Callable[..., Any]:
    if second is None:
        return first

    def call(*arguments: Any) -> None:
        first(*arguments)
        second(*arguments)

    return call


def _variables(template: str) -> list[str] | None:
    """Return the names of a template's variables; None if mcplumb cannot expand the template."""
    with suppress(UsageError):
        return list(UriTemplate(template).names)
    return None


def _with_uri(params: dict[str, Any]) -> dict[str, Any]:
    """Return the params with the expanded URI of a template."""
    template, values = params.get("uriTemplate"), params.get("values")
    if not isinstance(template, str):
        return params
    given = {str(name): str(value) for name, value in values.items() if value} if isinstance(values, dict) else {}
    return {"uri": UriTemplate(template).expand(**given)}
