"""Both ends of a bridge, played message by message in memory: clients in front of it, and servers behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeAlias

from msgspec import UNSET

from mcplumb.bridge.bridge import Bridge
from mcplumb.bridge.server_instance import ServerInstance
from mcplumb.errors import McplumbError
from mcplumb.protocol.principal import Principal
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.transports.connection import ANYONE, Connection, Peer
from mcplumb.transports.memory import memory_pair
from mcplumb.types.meta import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import Error, ErrorDetail, Message, Notification, Request, RequestId, Result
from tests.client.peers import CAPABILITIES, discovered, initialized, plain
from tests.kit.loop import Watched

#: A client that can be asked for everything.
ASKABLE: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}

Handler: TypeAlias = Callable[["Back", dict[str, Any]], Awaitable[Any]]


class Refused(Exception):
    """The answer is an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data = error.get("data")


class _End(Watched):
    """One end of a connection: it sends requests, and collects what it receives."""

    connection: Connection

    def __init__(self) -> None:
        super().__init__()
        #: Everything that the other end has sent.
        self.seen: list[dict[str, Any]] = []
        #: The bytes of all results among that.
        self.results: list[bytes] = []
        self.has_ended = False
        self._ids = 0
        self._answers: dict[RequestId, asyncio.Future[dict[str, Any]]] = {}
        self.tasks: set[asyncio.Task[Any]] = set()

    def received(self, item: Message | BadMessage | Batch) -> None:
        for each in item.items if isinstance(item, Batch) else [item]:
            message = plain(each)
            self.seen.append(message)
            if isinstance(each, Result):
                self.results.append(bytes(each.result))
            if isinstance(each, Result | Error) and each.id in self._answers:
                if not self._answers[each.id].done():
                    self._answers[each.id].set_result(message)
            elif isinstance(each, Request):
                self.asked(each, message)
            elif isinstance(each, Notification):
                self.told(message)
        self._changed.set()

    def asked(self, request: Request, message: dict[str, Any]) -> None:
        raise NotImplementedError

    def told(self, message: dict[str, Any]) -> None:
        """Do nothing more."""

    def ended(self, *, clean: bool) -> None:
        self.has_ended = True
        self._changed.set()

    def hung_up(self) -> None:
        """Do nothing."""

    def failed(self, request_id: RequestId, error: McplumbError) -> None:
        raise AssertionError(f"{request_id!r} failed: {error}")

    def broke(self, error: OSError) -> None:
        self.has_ended = True
        self._changed.set()

    # What a test does

    def post(self, method: str, params: Any = UNSET, *, request_id: RequestId | None = None) -> RequestId:
        """Send a request, and return its id."""
        if request_id is None:
            self._ids += 1
            request_id = f"own-{self._ids}"
        self._answers[request_id] = asyncio.get_running_loop().create_future()
        self.connection.send(Request(request_id, method, params))
        return request_id

    async def answer_to(self, request_id: RequestId) -> Any:
        """Return the result of a request; raise `Refused` if it is an error."""
        answer = await self._answers[request_id]
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["result"]

    def tell(self, method: str, **params: Any) -> None:
        self.connection.send(Notification(method, params))

    def notes(self, method: str) -> list[dict[str, Any]]:
        """Return the params of all notifications of this method."""
        return [message.get("params", {}) for message in self.seen if message.get("method") == method]

    def start(self, coroutine: Any) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task


class Front(_End):
    """A client of a bridge. By default it is modern, and cannot be asked anything."""

    def __init__(
        self,
        bridge: Bridge,
        capabilities: dict[str, Any] | None = None,
        *,
        peer: Peer = ANYONE,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._bridge = bridge
        self._peer = peer
        self.capabilities = capabilities or {}
        self.name = name
        self.is_modern = True
        #: Answers the questions of the server to a legacy client.
        self.on_question: Callable[[dict[str, Any]], Awaitable[Any]] | None = None

    async def __aenter__(self) -> Self:
        self.connection, server_end = memory_pair()
        self._serving = asyncio.create_task(self._bridge.serve_connection(server_end, self._peer))
        self.connection.start(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.connection.close()
        for task in list(self.tasks):
            task.cancel()
        await self._serving

    def asked(self, request: Request, message: dict[str, Any]) -> None:
        if self.on_question is not None:
            self.start(self._reply(request.id, message))

    async def _reply(self, request_id: RequestId, message: dict[str, Any]) -> None:
        assert self.on_question is not None
        self.connection.send(_answer(request_id, await self.on_question(message)))

    def questions(self) -> list[dict[str, Any]]:
        return [message for message in self.seen if "method" in message and "id" in message]

    async def initialize(self, revision: Revision = LATEST_LEGACY) -> Any:
        """Open a legacy session."""
        self.is_modern = False
        info = {"name": self.name or "front", "version": "1"}
        params = {"protocolVersion": str(revision), "capabilities": self.capabilities, "clientInfo": info}
        result = await self.answer_to(self.post("initialize", params))
        self.tell("notifications/initialized")
        return result

    def params(self, params: dict[str, Any], **meta: Any) -> dict[str, Any]:
        """Return the params of a request in the era of this client."""
        if self.is_modern:
            meta = {PROTOCOL_VERSION: str(LATEST), CLIENT_CAPABILITIES: self.capabilities, **meta}
            if self.name is not None:
                meta[CLIENT_INFO] = {"name": self.name, "version": "1"}
        return params | ({"_meta": meta} if meta else {})

    def begin(self, tool: str = "echo", *, more: dict[str, Any] | None = None, **arguments: Any) -> RequestId:
        """Begin a tool call, and return its id."""
        return self.post("tools/call", self.params({"name": tool, "arguments": arguments, **(more or {})}))

    async def call(self, tool: str = "echo", *, more: dict[str, Any] | None = None, **arguments: Any) -> Any:
        """Call a tool, and return the result."""
        return await self.answer_to(self.begin(tool, more=more, **arguments))

    async def ask(self, method: str, **params: Any) -> Any:
        """Send a request, and return the result."""
        return await self.answer_to(self.post(method, self.params(params)))


def instance_of(bridge: Bridge) -> ServerInstance:
    """Return the only running instance of the only server."""
    (pool,) = bridge._pools.values()
    (instance,) = pool._instances
    return instance


async def call_once(
    bridge: Bridge,
    capabilities: dict[str, Any] | None = None,
    tool: str = "echo",
    *,
    principal: str | None = None,
    more: dict[str, Any] | None = None,
    **arguments: Any,
) -> Any:
    """Call a tool as over modern HTTP: on a connection for one request."""
    known = None if principal is None else Principal(principal)
    async with Front(bridge, capabilities, peer=Peer("modern", known, is_remote=True)) as front:
        return await front.call(tool, more=more, **arguments)


class Back(_End):
    """One connection to a server that a test plays."""

    def __init__(self, backs: Backs, connection: Connection) -> None:
        super().__init__()
        self.backs = backs
        self.connection = connection
        self.client: dict[str, Any] = {}
        #: The calls that the client has cancelled.
        self.cancelled: list[RequestId] = []
        self._running: dict[RequestId, asyncio.Task[Any]] = {}

    def asked(self, request: Request, message: dict[str, Any]) -> None:
        if request.id in self._running:
            raise AssertionError(f"{request.id!r} was used twice")
        task = self._running[request.id] = self.start(self._reply(request.id, message))
        task.add_done_callback(lambda _: self._running.pop(request.id, None))

    async def _reply(self, request_id: RequestId, message: dict[str, Any]) -> None:
        method, revision = message["method"], self.backs.revision
        if method == "server/discover" and revision.is_modern:
            answer: Any = discovered(capabilities=self.backs.capabilities)
        elif method == "initialize" and not revision.is_modern:
            self.client = message["params"]
            if self.backs.starts is not None:
                await self.backs.starts.wait()
            answer = initialized(str(revision), capabilities=self.backs.capabilities)
        elif method in ("initialize", "server/discover", self.backs.refuses):
            answer = ErrorDetail(-32601, "There is no such method.")
        elif method in ("resources/subscribe", "resources/unsubscribe", "logging/setLevel") and not revision.is_modern:
            answer = {}
        else:
            answer = await self.backs.handler(self, message)
        if answer is not None:
            self.connection.send(_answer(request_id, answer))

    def told(self, message: dict[str, Any]) -> None:
        if message["method"] == "notifications/cancelled":
            request_id = message["params"]["requestId"]
            self.cancelled.append(request_id)
            if self.backs.obeys and request_id in self._running:
                self._running[request_id].cancel()

    async def ask(self, method: str, **params: Any) -> Any:
        """Ask the client, as a legacy server does."""
        question = self.post(method, params)
        try:
            return await self.answer_to(question)
        except asyncio.CancelledError:
            self.tell("notifications/cancelled", requestId=question)
            raise

    async def crash(self) -> None:
        """End the connection at once."""
        self.connection.abort()
        self.has_ended = True
        self._changed.set()


class Backs(Watched):
    """A server behind a bridge: as many connections as the bridge opens."""

    def __init__(self, revision: Revision = LATEST_LEGACY, handler: Handler | None = None, **capabilities: Any) -> None:
        super().__init__()
        self.revision = revision
        self.handler = handler or echo
        self.capabilities = {**CAPABILITIES, **capabilities}
        #: All connections so far.
        self.all: list[Back] = []
        #: Legacy servers wait for this before they answer initialize.
        self.starts: asyncio.Event | None = None
        #: Whether a cancelled call ends.
        self.obeys = True
        self.failures = 0
        #: A method that it does not know.
        self.refuses: str | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def open(self) -> list[Back]:
        return [back for back in self.all if not back.has_ended]

    async def serve_connection(self, connection: Connection) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("It does not start.")
        back = Back(self, connection)
        self.all.append(back)
        self._changed.set()
        connection.start(back)
        try:
            await back.until(lambda: back.has_ended)
        finally:
            back.has_ended = True
            self._changed.set()
            for task in list(back.tasks):
                task.cancel()
            await connection.close()

    async def connect(self) -> Connection:
        """Open a connection: as a target, a server that is connected to again after a crash."""
        client_end, server_end = memory_pair()
        task = asyncio.get_running_loop().create_task(self.serve_connection(server_end))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return client_end


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


async def echo(back: Back, request: dict[str, Any]) -> Any:
    """Answer a call with its text, and everything else with an empty result."""
    if request["method"] != "tools/call":
        return {"resultType": "complete"}
    result = text(request["params"].get("arguments", {}).get("text", "done"))
    return result | ({"resultType": "complete"} if back.backs.revision.is_modern else {})


async def ask_and_echo(back: Back, request: dict[str, Any]) -> Any:
    """Ask for a name, and answer with it."""
    answer = await back.ask("elicitation/create", **FORM)
    return text(answer["content"]["name"])


def _answer(request_id: RequestId, outcome: Any) -> Result | Error:
    return Error(request_id, outcome) if isinstance(outcome, ErrorDetail) else Result(request_id, outcome)
