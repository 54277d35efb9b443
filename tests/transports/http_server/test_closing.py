"""The end of an application: what is finished, and what is refused."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from mcplumb import Server
from mcplumb.revisions import LATEST
from mcplumb.transports.http_server.app import HttpApp
from tests.kit.loop import PATIENCE
from tests.transports.http_server.asgi import Asgi, part, turn
from tests.transports.http_server.callers import META, Caller
from tests.transports.http_server.visits import serving
from tests.transports.http_server.workshop import Workshop

HEADERS = {"content-type": "application/json", "mcp-protocol-version": LATEST.name, "mcp-method": "server/discover"}
BODY = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": META}})


def _asgi(*events: object) -> Asgi:
    return Asgi(*events, headers=[(name.encode(), value.encode()) for name, value in HEADERS.items()])


async def _begin(app: HttpApp, asgi: Asgi) -> asyncio.Task[None]:
    request = asgi.request
    task = asyncio.create_task(app(asgi.scope, request._receive, request._send))
    await turn()
    return task


@pytest.mark.parametrize("events", [[], [part(b"{", more=True)]])
async def test_who_has_not_sent_all_is_refused_at_once(events: list[object]) -> None:
    app = Server("s").asgi()
    asgi = _asgi(*events)
    task = await _begin(app, asgi)
    async with asyncio.timeout(PATIENCE):
        await app.close()
        await task
    assert asgi.sent[0]["status"] == 503
    assert (b"retry-after", b"1") in asgi.sent[0]["headers"]


async def test_what_comes_at_the_last_moment_is_refused() -> None:
    app = Server("s").asgi()
    asgi = _asgi()
    task = await _begin(app, asgi)
    # The rest of it is there when the application begins to close, and has not been looked at yet.
    closing = asyncio.create_task(app.close())
    asgi.come(part(BODY))
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(closing, task)
    assert asgi.sent[0]["status"] == 503
    # Whoever comes after the end begins anew.
    asgi = _asgi(part(BODY))
    await (await _begin(app, asgi))
    assert asgi.sent[0]["status"] == 200
    await app.close()


async def test_several_may_close_it_at_once() -> None:
    shop = Workshop()
    async with serving(shop.server) as site, asyncio.timeout(PATIENCE):
        answer = await Caller(site).begin_call("wait", gate="a")
        await shop.at("a")
        closing = []
        for _ in range(3):
            closing.append(asyncio.create_task(site.app.close()))
            await turn()
        # One that gives up takes nothing from the others.
        closing[1].cancel()
        await turn()
        assert [task.done() for task in closing] == [False, True, False]
        shop.gates["a"].set()
        assert (await answer.head()).status == 200
        await closing[0]
        await closing[2]
