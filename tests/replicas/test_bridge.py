"""Replicas of a bridge: the answer to a server's question may reach another replica than the call."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import aiohttp
import pytest

from mcplumb import connect
from mcplumb.errors import RemoteError
from tests.kit.legacy_peer import Peer, events
from tests.kit.replicas import running_replicas

COMMAND = [
    *(sys.executable, "-m", "mcplumb", "bridge", "--http", "127.0.0.1:PORT", "--shared", "SHARED"),
    *("--", sys.executable, "-m", "tests.replicas.old_server"),
]
CHATTY = [*COMMAND[:-1], "tests.replicas.chatty_server"]
PATIENCE = 60.0


async def answer(question: Any) -> Any:
    return {"value": f"{question.message} Because."}


@pytest.mark.req("SCL-1", "BRG-2")
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
async def test_questions_of_a_legacy_server(revision: str) -> None:
    async with (
        running_replicas(2, command=COMMAND) as replicas,
        connect(replicas.url, revisions=[revision], on_elicit=answer, timeout=60) as client,
    ):
        for number in range(4):
            result = await client.call_tool("ask", {"question": f"{number}?", "times": 2})
            assert result.text == f"{number}? Because., {number}? Because."
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"


@pytest.mark.req("SCL-3")
async def test_a_call_that_waited_at_a_killed_replica() -> None:
    killed = asyncio.Event()

    async def kill_and_answer(question: Any) -> Any:
        for replica in replicas.replicas:
            replica.kill()
            replica.start()
        for replica in replicas.replicas:
            await replica.ready()
        killed.set()
        return await answer(question)

    async with (
        running_replicas(2, command=COMMAND) as replicas,
        connect(replicas.url, revisions=["2026-07-28"], on_elicit=kill_and_answer, timeout=60) as client,
    ):
        with pytest.raises(RemoteError, match="is unknown"):
            await client.call_tool("ask", {"question": "Why?"})
        assert killed.is_set()
        assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"


async def heard(stream: aiohttp.ClientResponse, most: int, noted: list[int]) -> str | None:
    """Note the numbers that are logged on a stream until there are so many; return the id of the last event."""
    last = None
    async for event_id, data in events(stream):
        last = event_id or last
        if data and data.get("method") == "notifications/message":
            noted.append(data["params"]["data"])
            if len(noted) >= most:
                break
    return last


@pytest.mark.req("SCL-1", "SCL-3", "SCL-4")
async def test_messages_of_a_session_reach_its_stream_at_another_replica() -> None:
    """Once and in their order, also while Redis restarts and the stream is resumed."""
    timeout = aiohttp.ClientTimeout(total=PATIENCE)
    async with running_replicas(2, command=CHATTY) as replicas, aiohttp.ClientSession(timeout=timeout) as http:
        peer = Peer(http, replicas.url)
        await peer.open()
        numbers: list[int] = []
        stream = await peer.get(url=replicas.url_of(0))
        call = peer.request("tools/call", {"name": "chatter", "arguments": {"times": 150}})
        (await peer.post(call, replicas.url_of(1))).close()
        await heard(stream, 20, numbers)
        replicas.redis.kill()
        replicas.redis.start()
        last = await heard(stream, 100, numbers)
        stream.close()
        response = None
        async with asyncio.timeout(PATIENCE):
            log = f"mcplumb:{{{peer.headers['Mcp-Session-Id']}}}:messages"
            while int(replicas.redis.command("XLEN", log)[1:]) < 120:  # noqa: ASYNC110 - nobody carries these yet
                await asyncio.sleep(0.02)
            while response is None or response.status != 200:  # the replica may look for Redis still
                response = await peer.get(last, url=replicas.url_of(1))
        await heard(response, 150, numbers)
        response.close()
        assert numbers == list(range(150))
