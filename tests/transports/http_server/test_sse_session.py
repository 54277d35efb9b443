"""HTTP+SSE: one stream to each client, and a place to post to."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from mcplumb import Context, Principal, Server
from mcplumb.limits import DEFAULT_LIMITS
from mcplumb.transports.connection import Connection, Peer
from mcplumb.transports.http_server.asgi_request import Refusal
from mcplumb.transports.http_server.event_streams import HIGH_WATER
from mcplumb.transports.http_server.http_options import HttpOptions
from mcplumb.transports.http_server.sse_session import SseSessions, _SseConnection
from mcplumb.wire.message_decoder import Batch
from mcplumb.wire.messages import Notification, Request, Result
from tests.kit.loop import PATIENCE, turns
from tests.kit.results import text_of
from tests.transports.ends import Recorder
from tests.transports.http_server.staged import Staged
from tests.transports.http_server.visits import Answer, Site, serving
from tests.transports.http_server.workshop import Workshop

pytestmark = pytest.mark.req("SSE-1")


class Guest:
    """One client of HTTP+SSE."""

    def __init__(self, site: Site, **headers: str) -> None:
        self.site = site
        self.headers = headers
        self.endpoint = ""
        self.stream: Answer

    async def arrive(self) -> Guest:
        """Open the stream, and hear where to post."""
        self.stream = await self.site.ask("GET", "/sse", {"Accept": "text/event-stream", **self.headers})
        assert self.stream.status == 200
        assert self.stream.headers["content-type"] == "text/event-stream"
        event = await self.stream.event()
        assert event is not None
        assert event.event == "endpoint"
        self.endpoint = event.data.decode()
        return self

    async def open(self, revision: str = "2024-11-05", **capabilities: Any) -> Guest:
        """Do the handshake."""
        await self.arrive()
        client = {"name": "guest", "version": "1"}
        params = {"protocolVersion": revision, "capabilities": capabilities, "clientInfo": client}
        result = await self.ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert result["result"]["protocolVersion"] == revision
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    async def send(self, body: Any, **headers: str) -> Answer:
        """Post anything."""
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self.site.ask("POST", self.endpoint, {"Content-Type": "application/json", **self.headers}, data)

    async def post(self, message: Any) -> None:
        """Post a message, which is accepted."""
        answer = await self.send(message)
        assert answer.status == 202
        assert await answer.body() == b""

    async def ask(self, message: Any) -> Any:
        """Post a message, and take the next one on the stream."""
        await self.post(message)
        return await self.stream.message()

    async def call(self, tool: str, request_id: int = 1, **arguments: Any) -> None:
        """Post a call of a tool."""
        params = {"name": tool, "arguments": arguments}
        await self.post({"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params})


async def test_a_conversation() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        guest = await Guest(site).open()
        assert guest.endpoint.startswith("/messages?session_id=")
        assert len(bytes.fromhex(guest.endpoint.partition("=")[2])) * 8 >= 128
        await guest.call("chat", 7)
        event = await guest.stream.event()
        assert event is not None
        assert event.event == "message"
        assert msgspec.json.decode(event.data)["params"]["data"] == "hello"
        assert text_of(await guest.stream.message()) == "hello, done"
        workshop.server.remove_tool("flood")
        assert (await guest.stream.message())["method"] == "notifications/tools/list_changed"


async def test_questions_are_answered_by_posts() -> None:
    async with serving(Workshop().server) as site:
        guest = await Guest(site).open("2025-06-18", elicitation={})
        await guest.call("ask")
        question = await guest.stream.message()
        assert question["method"] == "elicitation/create"
        content = {"action": "accept", "content": {"name": "Ada"}}
        answer = await guest.ask({"jsonrpc": "2.0", "id": question["id"], "result": content})
        assert text_of(answer) == "hello Ada"


@pytest.mark.req("SSE-3")
async def test_each_post_reaches_its_own_session() -> None:
    async with serving(Workshop().server) as site:
        guests = [await Guest(site).open() for _ in range(10)]
        for n, guest in enumerate(guests):
            await guest.call("chat", word=f"guest {n}")
        for n, guest in enumerate(guests):
            assert (await guest.stream.message())["params"]["data"] == f"guest {n}"
            assert text_of(await guest.stream.message()) == f"guest {n}, done"


@pytest.mark.req("SSE-3")
async def test_posts_for_nobody_and_for_somebody_else() -> None:
    server = Server("principals", version="1")

    @server.tool
    async def who(ctx: Context) -> str:
        return "" if ctx.principal is None else ctx.principal.subject

    async with serving(server, auth=Principal) as site:
        ada = await Guest(site, Authorization="Bearer ada").open()
        bob = Guest(site, Authorization="Bearer bob")
        for endpoint in ("/messages", "/messages?session_id=", "/messages?session_id=00", ada.endpoint):
            bob.endpoint = endpoint
            answer = await bob.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            assert answer.status == 404
            assert "no such session" in (await answer.json())["error"]["message"]
        await ada.call("who")
        assert text_of(await ada.stream.message()) == "ada"


async def test_what_is_no_message() -> None:
    async with serving(Workshop().server) as site:
        guest = await Guest(site).open("2025-06-18", elicitation={})
        for body, code in ((b"{", -32700), (b"5", -32600), (b'{"jsonrpc":"2.0","id":5,"method":5}', -32600)):
            answer = await guest.send(body)
            assert answer.status == 400
            assert (await answer.json())["error"]["code"] == code
        await guest.call("ask")
        question = await guest.stream.message()
        broken = b'{"jsonrpc":"2.0","id":%d,"result":{},"error":5}' % question["id"]
        assert (await guest.send(broken)).status == 400
        assert (await guest.stream.message())["result"]["isError"]


async def test_a_second_request_with_the_id_of_an_open_one_gets_no_answer_on_the_stream() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        guest = await Guest(site).open()
        await guest.call("wait", 1, gate="a")
        await workshop.at("a")
        refused = await guest.send({"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert refused.status == 400
        assert "another one that has not been answered" in (await refused.json())["error"]["message"]
        workshop.gates["a"].set()
        assert text_of(await guest.stream.message()) == "a is open"
        assert (await guest.ask({"jsonrpc": "2.0", "id": 1, "method": "ping"}))["result"] == {}


async def test_a_batch_is_answered_by_a_batch() -> None:
    async with serving(Workshop().server) as site:
        guest = await Guest(site).open("2025-03-26")
        pings = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in (1, 2)]
        answers = await guest.ask(pings)
        assert [answer["id"] for answer in answers] == [1, 2]


async def test_the_work_for_a_client_that_leaves_is_stopped() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        guest = await Guest(site).open()
        await guest.call("wait", gate="a")
        await workshop.at("a")
        guest.stream.leave()
        async with asyncio.timeout(PATIENCE):
            await workshop.cancelled["a"].wait()
            while (await guest.send({"jsonrpc": "2.0", "method": "x"})).status != 404:
                pass


async def test_there_are_only_so_many_clients() -> None:
    async with serving(Workshop().server, max_sessions=1) as site:
        guest = await Guest(site).open()
        refused = await site.ask("GET", "/sse", {"Accept": "text/event-stream"})
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) > 0
        guest.stream.leave()
        async with asyncio.timeout(PATIENCE):
            while (await site.ask("GET", "/sse", {"Accept": "text/event-stream"})).status != 200:
                pass


async def test_a_client_that_reads_no_streams() -> None:
    async with serving(Workshop().server) as site:
        assert (await site.ask("GET", "/sse", {"Accept": "application/json"})).status == 406


async def test_when_the_application_ends_what_was_accepted_is_answered() -> None:
    workshop = Workshop()
    async with serving(workshop.server) as site:
        guest = await Guest(site).open()
        await guest.call("wait", gate="a")
        await workshop.at("a")
        closing = asyncio.create_task(site.app.close())
        await turns()
        workshop.gates["a"].set()
        assert [text_of(each) for each in await guest.stream.messages()] == ["a is open"]
        await closing


# With an owner that only keeps what comes


class Stage:
    """Clients whose connections are only looked at."""

    def __init__(self, **options: Any) -> None:
        self.traced: list[str] = []
        self.owner = Recorder()
        self.served: list[Connection] = []
        self.peers: list[Peer] = []
        self.ends = asyncio.Event()
        trace = lambda way, _: self.traced.append(way)  # noqa: E731 - shorter, and typed by its use
        self.pairs = SseSessions(self.serve, options=HttpOptions(**options), limits=DEFAULT_LIMITS, trace=trace)

    async def serve(self, connection: Connection, peer: Peer) -> None:
        """Serve a connection until that is enough."""
        self.served.append(connection)
        self.peers.append(peer)
        connection.start(self.owner)
        await self.ends.wait()

    async def arrive(self, staged: Staged) -> tuple[Connection, str, asyncio.Task[None]]:
        """Let a client in: its connection, its place to post to, and what serves it."""
        serving = asyncio.create_task(self.pairs.get(staged.request))
        await turns()
        (event,) = staged.events
        assert event.event == "endpoint"
        return self.served[-1], event.data.decode(), serving

    async def post(self, endpoint: str, body: bytes) -> Staged:
        """Post something."""
        staged = Staged(query=endpoint.partition("?")[2]).bring(body)
        await self.pairs.post(staged.request)
        return staged


NOTE = b'{"jsonrpc":"2.0","method":"n"}'


async def test_the_endpoint_is_where_the_application_is_mounted() -> None:
    stage = Stage()
    connection, endpoint, serving = await stage.arrive(Staged(method="GET", root_path="/döp er"))
    assert endpoint.startswith("/d%C3%B6p%20er/messages?session_id=")
    assert stage.peers == [Peer("legacy", None, is_remote=True)]
    assert (await stage.post(endpoint, NOTE)).status == 202
    connection.send(Notification("m"))
    assert stage.traced == ["in", "out"]
    stats = connection.stats
    assert (stats.messages_in, stats.messages_out) == (1, 1)
    stage.ends.set()
    await serving


async def test_a_client_that_does_not_read_clogs_its_connection() -> None:
    stage = Stage()
    staged = Staged(method="GET")
    connection, _, serving = await stage.arrive(staged)
    staged.reads.clear()
    connection.send(Notification("n", {"x": "x" * HIGH_WATER}))
    assert connection.is_clogged
    draining = asyncio.create_task(connection.drained())
    await turns()
    assert not draining.done()
    closing = asyncio.create_task(connection.close())
    await turns()
    assert not closing.done()
    connection.send(Notification("too late"))
    connection.send_batch([Notification("too late")])
    staged.reads.set()
    await asyncio.gather(draining, closing, serving)
    assert [event.event for event in staged.events] == ["endpoint", "message"]
    assert staged.is_complete
    stage.ends.set()


async def test_closing_that_is_cancelled_aborts() -> None:
    stage = Stage()
    staged = Staged(method="GET")
    connection, _, serving = await stage.arrive(staged)
    staged.reads.clear()
    connection.send(Notification("n"))
    closing = asyncio.create_task(connection.close())
    await turns()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await serving
    assert not staged.is_complete
    stage.ends.set()


async def test_a_client_that_leaves_can_neither_send_nor_hear() -> None:
    stage = Stage()
    staged = Staged(method="GET")
    _, endpoint, serving = await stage.arrive(staged)
    staged.leave()
    await serving
    await turns()
    assert stage.owner.ends == [True]
    assert [error.strerror for error in stage.owner.errors] == ["the client has closed its stream"]
    with pytest.raises(Refusal):
        await stage.post(endpoint, NOTE)
    stage.ends.set()


async def test_a_client_that_leaves_a_connection_which_is_closed() -> None:
    stage = Stage()
    staged = Staged(method="GET")
    connection, _, serving = await stage.arrive(staged)
    staged.leave()
    await asyncio.sleep(0)
    connection.abort()
    await serving
    await turns()
    assert stage.owner.ends == []
    assert stage.owner.errors == []
    stage.ends.set()


async def test_posts_wait_while_nothing_is_wanted() -> None:
    stage = Stage(max_streams=1)
    connection, endpoint, _ = await stage.arrive(Staged(method="GET"))
    connection.pause()
    waiting = asyncio.create_task(stage.post(endpoint, NOTE))
    await turns()
    with pytest.raises(Refusal) as refused:
        await stage.post(endpoint, NOTE)
    assert refused.value.status == 503
    assert not waiting.done()
    connection.resume()
    assert (await waiting).status == 202
    assert len(stage.owner.items) == 1
    stage.ends.set()


async def test_a_request_that_is_refused_may_come_again() -> None:
    stage = Stage(max_streams=1)
    opener, sender = (Principal("alice", claims={"n": n}) for n in (1, 2))
    opening = Staged(method="GET")
    opening.request.principal = opener
    serving = asyncio.create_task(stage.pairs.get(opening.request, opener))
    await turns()
    query = opening.events[0].data.decode().partition("?")[2]
    (connection,) = stage.served

    def post(body: bytes) -> asyncio.Task[None]:
        return asyncio.create_task(stage.pairs.post(Staged(query=query).bring(body).request, sender))

    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    connection.pause()
    waiting = post(NOTE)
    await turns()
    with pytest.raises(Refusal) as refused:
        await post(ping)
    assert refused.value.status == 503
    connection.resume()
    await waiting
    await post(ping)
    assert len(stage.owner.items) == 2
    stage.ends.set()
    opening.leave()
    await serving


async def _with_senders(limit: int) -> tuple[Any, Staged]:
    staged = Staged(method="GET")
    staged.request.principal = Principal("alice")
    options = HttpOptions(max_streams=limit)
    return _SseConnection(staged.request, options=options, trace=None), staged


async def test_a_second_request_with_the_id_of_an_open_one_is_refused() -> None:
    """It would take the sender of the first one away."""
    connection, staged = await _with_senders(10)
    first, second = Principal("bob", claims={"n": 1}), Principal("bob", claims={"n": 2})
    connection.note_sender(Request(1, "ping"), first)
    with pytest.raises(Refusal) as refused:
        connection.note_sender(Request(1, "ping"), second)
    assert (refused.value.status, refused.value.request_id) == (400, 1)
    assert connection.principal_of(1) is first
    connection.send(Result(1, {}))
    connection.note_sender(Request(1, "ping"), second)
    assert connection.principal_of(1) is second
    # So would one of the client that opened the stream.
    opener = staged.request.principal
    with pytest.raises(Refusal):
        connection.note_sender(Request(1, "ping"), opener)
    connection.note_sender(Request(2, "ping"), opener)
    with pytest.raises(Refusal):
        connection.note_sender(Request(2, "ping"), first)
    assert connection.principal_of(2) is opener
    connection.abort()


async def test_senders_beyond_the_limit_are_refused_and_none_is_forgotten() -> None:
    connection, _ = await _with_senders(3)
    sender = Principal("bob")
    for number in range(3):
        connection.note_sender(Request(number, "ping"), sender)
    with pytest.raises(Refusal) as refused:
        connection.note_sender(Request(3, "ping"), sender)
    assert refused.value.status == 503
    assert [connection.principal_of(number) for number in range(3)] == [sender] * 3
    # A request that is cancelled gets no answer, and must not count for ever.
    connection.note_sender(Notification("notifications/cancelled", msgspec.Raw(b'{"requestId": 1}')), sender)
    connection.note_sender(Request(3, "ping"), sender)
    connection.send_batch([Result(0, {}), Result(2, {})])
    connection.note_sender(Batch((Request(4, "ping"), Request(5, "ping"))), sender)
    connection.abort()
