"""What a function knows and does of the transport: who the client is, and a stream that it lets go of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from mcplumb.errors import UsageError
from mcplumb.protocol.principal import Principal
from mcplumb.revisions import LATEST, LATEST_LEGACY, Revision
from mcplumb.server.context import Context
from mcplumb.server.server import Server
from mcplumb.transports import connection as transport
from mcplumb.transports.memory import memory_pair
from mcplumb.wire.messages import Message, RequestId
from tests.kit.results import text_of
from tests.server.harness import ABLE, ONE_OF_EACH_ERA, Peer, make_server, raw_client

both_eras = pytest.mark.parametrize("revision", ONE_OF_EACH_ERA, ids=str)


class Streaming:
    """A connection that has a stream for each request."""

    def __init__(self, inner: transport.Connection) -> None:
        self._inner = inner
        self.released: list[tuple[RequestId, float]] = []
        self.about: list[RequestId | None] = []

    def send(self, message: Message, about: RequestId | None = None) -> None:
        self.about.append(about)
        self._inner.send(message, about)

    def release(self, request_id: RequestId, retry: float) -> None:
        self.released.append((request_id, retry))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@asynccontextmanager
async def client_over_streams(
    server: Server, revision: Revision = LATEST, *, principal: str | None = None
) -> AsyncIterator[tuple[Peer, Streaming]]:
    ours, theirs = memory_pair()
    peer, streaming = Peer(ours, revision, ABLE), Streaming(theirs)
    served = server.serve_connection(
        cast("transport.Connection", streaming),
        transport.Peer(principal=None if principal is None else Principal(principal)),
    )
    peer.serving = asyncio.create_task(served)
    ours.start(peer)
    if not revision.is_modern:
        await peer.initialize()
    yield peer, streaming
    ours.abort()
    await peer.serving


@pytest.mark.req("HTP-6")
@both_eras
async def test_a_stream_is_let_go_of(revision: Revision) -> None:
    server = make_server()

    @server.tool
    async def release(ctx: Context) -> str:
        await ctx.release_stream()
        ctx.release_stream(0)
        return "done"

    @server.tool
    def release_plainly(ctx: Context) -> str:
        ctx.release_stream(2.5)
        return "done"

    async with client_over_streams(server, revision) as (peer, streaming):
        ids = [peer.post_call("release")]
        assert text_of((await peer.answer(ids[0]))["result"]) == "done"
        ids.append(peer.post_call("release_plainly"))
        assert text_of((await peer.answer(ids[1]))["result"]) == "done"
        assert streaming.released == [(ids[0], 1.0), (ids[0], 0), (ids[1], 2.5)]
    async with raw_client(server, revision) as peer:
        assert await peer.text("release") == "done"
        assert await peer.text("release_plainly") == "done"


async def test_after_the_end_of_its_request_nothing_is_let_go_of() -> None:
    server = make_server()
    kept: list[Context] = []

    @server.tool
    async def keep(ctx: Context) -> str:
        kept.append(ctx)
        return "done"

    async with client_over_streams(server) as (peer, streaming):
        await peer.call("keep")
        kept[0].release_stream()
        await asyncio.to_thread(kept[0].release_stream)
        assert streaming.released == []


@pytest.mark.parametrize("retry", [-1, float("inf"), float("nan")])
async def test_times_after_which_nobody_comes_back(retry: float) -> None:
    server = make_server()

    @server.tool
    async def release(ctx: Context) -> str:
        with pytest.raises(UsageError, match="cannot reconnect after"):
            ctx.release_stream(retry)
        return "refused"

    async with raw_client(server) as peer:
        assert await peer.text("release") == "refused"


@pytest.mark.req("MRT-3")
async def test_who_the_client_is() -> None:
    server = make_server()

    @server.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.principal and ctx.principal.subject}"

    @server.tool
    async def ask(ctx: Context) -> str:
        return f"{len(await ctx.roots())} of {ctx.principal and ctx.principal.subject}"

    async with client_over_streams(server, principal="ada") as (peer, _):
        assert await peer.text("who") == "ada"
        state = (await peer.call("ask"))["requestState"]
        params = {
            "name": "ask",
            "arguments": {},
            "inputResponses": {"1": {"roots": []}},
            "requestState": state,
        }
        assert text_of(await peer.result("tools/call", params)) == "0 of ada"
    async with client_over_streams(server, principal="eve") as (peer, _):
        assert (await peer.error("tools/call", params))["code"] == -32602
    async with raw_client(server, capabilities=ABLE) as peer:
        assert await peer.text("who") == "None"
        assert (await peer.error("tools/call", params))["code"] == -32602


@pytest.mark.req("LEG-4")
async def test_a_question_belongs_to_the_request_that_it_is_asked_for() -> None:
    server = make_server()

    @server.tool
    async def ask(ctx: Context) -> str:
        return f"{len(await ctx.roots())}"

    async with client_over_streams(server, LATEST_LEGACY) as (peer, streaming):
        streaming.about.clear()
        request_id = peer.post_call("ask")
        peer.reply(await peer.question(), {"roots": []})
        assert text_of((await peer.answer(request_id))["result"]) == "0"
        # The question, and the response, whose id says so.
        assert streaming.about == [request_id, None]
