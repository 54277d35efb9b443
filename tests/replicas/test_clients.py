"""Clients of every kind, each of whose requests goes to another replica: modern, legacy and HTTP+SSE."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from mcplumb import Client, connect
from mcplumb.errors import McplumbError
from mcplumb.protocol.subscription_state import Change, Missed
from tests.kit.replicas import Proxy, ReplicaProcess, Replicas, running_replicas

PATIENCE = 60.0
KINDS: dict[str, dict[str, Any]] = {
    "modern": {"revisions": ["2026-07-28"]},
    "legacy": {"revisions": ["2025-11-25"]},
    "sse": {"revisions": ["2025-06-18"], "http_sse": True},
}


def connecting(replicas: Replicas, kind: str, **more: Any) -> Any:
    url = f"{replicas.proxy.url}/sse" if kind == "sse" else replicas.url
    return connect(url, on_elicit=answer, **KINDS[kind], **more)


async def answer(_: Any) -> Any:
    return {"value": "because"}


async def text(client: Client, tool: str, **arguments: Any) -> str:
    return (await client.call_tool(tool, arguments)).text


@pytest.mark.req("SCL-1")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_visit(kind: str) -> None:
    async with running_replicas() as replicas, connecting(replicas, kind) as client:
        assert await asyncio.gather(*(text(client, "add", a=n, b=n) for n in range(30))) == [
            str(2 * n) for n in range(30)
        ]
        # Questions, whose answers go to another replica.
        for _ in range(4):
            assert "because" in await text(client, "ask", question="Why?")
        seen: list[float] = []
        result = await client.call_tool("count", {"to": 5}, on_progress=lambda progress, *_: seen.append(progress))
        assert result.text == "counted to 5"
        assert seen == [1, 2, 3, 4, 5]
        assert "add" in [tool.name for tool in await client.list_tools()]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.call_tool("wait_for_ever"), 0.5)
        assert await text(client, "add", a=1, b=1) == "2"


@pytest.mark.req("SCL-2")
@pytest.mark.parametrize("kind", KINDS)
async def test_changes_at_other_replicas(kind: str) -> None:
    async with (
        running_replicas() as replicas,
        connecting(replicas, kind) as client,
        client.listen(tools=True, resources=["notes://a", "notes://b"]) as changes,
    ):
        for uri in ("notes://a", "notes://b") * 4:
            await text(client, "touch", uri=uri)
            # Changes that are announced at once may be merged, so each is awaited.
            assert await asyncio.wait_for(anext(changes), PATIENCE) == Change("updates", uri)
        await text(client, "grow")
        assert await asyncio.wait_for(anext(changes), PATIENCE) == Change("tools")


@pytest.mark.req("SCL-3", "SCL-4")
@pytest.mark.parametrize("kind", ["modern", "legacy"])
async def test_killed_replicas_and_a_restarted_store(kind: str) -> None:
    async with running_replicas() as replicas, connecting(replicas, kind, timeout=30) as client:
        assert await text(client, "add", a=1, b=1) == "2"
        async with client.listen(resources=["notes://a"]) as changes:
            replicas.redis.kill()
            if kind == "modern":
                assert await text(client, "add", a=2, b=1) == "3"
                await text(client, "touch", uri="notes://a")  # while the store is away
            replicas.redis.start()
            for replica in replicas.replicas:
                replica.kill() if kind == "legacy" else None
                if kind == "legacy":
                    replica.start()
                    await replica.ready()
            await until(lambda: text(client, "add", a=3, b=1), "4")
            if kind == "legacy":
                await until(lambda: text(client, "touch", uri="notes://a"), "notes://a")
            heard = await asyncio.wait_for(anext(changes), PATIENCE)
            assert heard == Change("updates", "notes://a") or isinstance(heard, Missed)


class Gateway(Proxy):
    """A proxy whose replica is killed when it has the answer to a question."""

    victim: ReplicaProcess | None = None

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        if self.victim is not None and b'"result"' in await request.read():
            self.victim.kill()
            self.victim = None
            return web.Response(status=502, text="The replica ended before it answered.")
        return await super()._pass(request)


@pytest.mark.req("SCL-3")
@pytest.mark.parametrize("kind", ["legacy", "sse"])
async def test_an_answer_that_is_lost_with_a_replica_is_posted_again(kind: str) -> None:
    async with running_replicas(2) as replicas:
        first, victim = replicas.replicas
        # The stream of HTTP+SSE and the call, which waits for the answer, are at the first replica.
        gateway = Gateway([first.port])
        await gateway.start()
        replicas.proxy, proxy = gateway, replicas.proxy
        try:
            async with connecting(replicas, kind) as client:
                assert await text(client, "add", a=1, b=1) == "2"
                gateway.victim = victim
                assert "because" in await asyncio.wait_for(text(client, "ask", question="Why?"), PATIENCE)
                assert victim.process is None
        finally:
            replicas.proxy = proxy
            await gateway.close()


@pytest.mark.thorough
@pytest.mark.req("SCL-3")
async def test_a_message_for_a_stream_whose_replica_was_killed_is_not_accepted() -> None:
    """Its inbox is there for some seconds more."""
    async with (
        running_replicas(2) as replicas,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as http,
    ):
        first, second = (replicas.url_of(number).removesuffix("/mcp") for number in range(2))
        async with http.get(f"{first}/sse", headers={"Accept": "text/event-stream"}) as stream:
            while not (line := await stream.content.readline()).startswith(b"data:"):
                pass
            place = second + line.decode().removeprefix("data:").strip()
            ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            async with http.post(place, json=ping) as posted:
                assert posted.status == 202
            replicas.replicas[0].kill()
            async with http.post(place, json=ping) as posted:
                assert posted.status == 504
                assert "unknown" in await posted.text()


async def until(attempt: Any, wanted: str) -> None:
    """Try until it works: calls fail while the store is away, or a replica is."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                assert await attempt() == wanted
            except McplumbError:
                await asyncio.sleep(0.1)
            else:
                return
