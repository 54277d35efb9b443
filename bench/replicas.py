"""What a shared store costs: ``python -m bench replicas``.

For a modern and a legacy call, against a server with and without a store, in turns: the time of a call, the CPU time of
the server, and the commands and bytes of Redis. For an announced change with subscribers over three replicas: the time
until all have heard of it, and the commands of Redis. And what Redis keeps for each session, each stream that is open
and each event. Each cost is measured at two sizes, which shows what it grows with.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp

from tests.kit.legacy_peer import HEADERS, Peer, events
from tests.kit.redis_server import RedisServer
from tests.kit.replicas import ReplicaProcess, Replicas, running_replicas

ROUNDS, CALLS = 7, 400
SUBSCRIBERS = (100, 1000)
CHANGES = 20
SESSIONS = (500, 1000)
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def cpu_of(process: Any) -> float:
    """The seconds of CPU time that a process has used."""
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:  # noqa: PTH123 - it is no usual file
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Store:
    """What Redis says about itself."""

    def __init__(self, redis: RedisServer) -> None:
        import redis.asyncio as client  # noqa: PLC0415 - the parameter has the name of the package

        self._client = client.Redis(port=redis.port)

    async def commands(self) -> int:
        """The commands that it has processed for clients; those within scripts are not counted."""
        stats = await self._client.info("commandstats")
        own = ("cmdstat_info", "cmdstat_client")
        outer = ("cmdstat_eval", "cmdstat_hmget", "cmdstat_xread", "cmdstat_xrange", "cmdstat_xtrim", "cmdstat_del")
        counted = (*outer, "cmdstat_exists")
        return sum(each["calls"] for name, each in stats.items() if name in counted and not name.startswith(own))

    async def memory(self) -> int:
        """The bytes that it uses."""
        used: int = (await self._client.info("memory"))["used_memory"]
        return used

    async def close(self) -> None:
        await self._client.aclose()


@asynccontextmanager
async def one_server(*words: str) -> AsyncIterator[ReplicaProcess]:
    """A server by itself, without a store."""
    import tempfile  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        code = (
            "import sys; from tests.replicas.server import make_server; "
            "make_server().run(f'http://127.0.0.1:{sys.argv[1]}')"
        )
        server = ReplicaProcess([sys.executable, "-c", code, "PORT", *words], Path(folder, "log"), {})
        server.start()
        await server.ready()
        try:
            yield server
        finally:
            server.close()


async def modern_calls(http: aiohttp.ClientSession, url: str, count: int) -> float:
    """The seconds of so many calls, one after the other."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    message["params"] = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": _META}
    headers = {**HEADERS, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "add"}
    began = time.perf_counter()
    for _ in range(count):
        async with http.post(url, json=message, headers=headers) as response:
            assert response.status == 200
            await response.read()
    return time.perf_counter() - began


async def legacy_calls(peer: Peer, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        await peer.call("add", a=1, b=2)
    return time.perf_counter() - began


async def compare_calls(http: aiohttp.ClientSession, replicas: Replicas, store: Store) -> None:
    """Print what a call costs with a store and without."""
    async with one_server() as alone:
        places = {
            "without a store": (f"http://127.0.0.1:{alone.port}/mcp", alone),
            "with a store": (replicas.url_of(0), replicas.replicas[0]),
        }
        peers = {}
        for name, (url, _) in places.items():
            peers[name] = Peer(http, url)
            await peers[name].open()
        for era in ("modern", "legacy"):
            times: dict[str, list[float]] = {name: [] for name in places}
            cpu: dict[str, list[float]] = {name: [] for name in places}
            commands: dict[str, list[float]] = {name: [] for name in places}
            for _ in range(ROUNDS):
                for name, (url, server) in places.items():
                    before, counted = cpu_of(server.process), await store.commands()
                    seconds = await (
                        modern_calls(http, url, CALLS) if era == "modern" else legacy_calls(peers[name], CALLS)
                    )
                    times[name].append(seconds / CALLS * 1e6)
                    cpu[name].append((cpu_of(server.process) - before) / CALLS * 1e6)
                    commands[name].append((await store.commands() - counted) / CALLS)
            for name in places:
                print(
                    f"  {era} call, {name:<16} {statistics.median(times[name]):>7.0f} µs, "
                    f"CPU of the server {statistics.median(cpu[name]):>6.0f} µs, "
                    f"commands of Redis {statistics.median(commands[name]):.2f}"
                )


async def measure_changes(http: aiohttp.ClientSession, replicas: Replicas, store: Store, subscribers: int) -> None:
    """Print how long a change takes to reach so many subscribers, half of each era, and what it costs Redis."""
    heard = asyncio.Semaphore(0)
    message: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen"}
    message["params"] = {"notifications": {"resourceSubscriptions": ["notes://a"]}, "_meta": _META}
    headers = {**HEADERS, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
    ready = asyncio.Semaphore(0)

    async def follow(number: int) -> None:
        url = replicas.url_of(number % len(replicas.replicas))
        if number % 2:
            peer = Peer(http, url)
            await peer.open()
            await peer.ask("resources/subscribe", {"uri": "notes://a"})
            response = await peer.get()
        else:
            response = await http.post(url, json=message, headers=headers)
        async with response:
            assert response.status == 200, await response.text()
            if number % 2:
                ready.release()
            async for _, data in events(response):
                if data and data.get("method") == "notifications/resources/updated":
                    heard.release()
                elif not number % 2:
                    ready.release()

    tasks = []
    for number in range(subscribers):
        tasks.append(asyncio.create_task(follow(number)))
        if number % 50 == 49:
            for _ in range(50):
                await ready.acquire()
    announcer = Peer(http, replicas.url_of(0))
    await announcer.open()
    times = []
    before = await store.commands()
    quiet = time.perf_counter()
    for _ in range(CHANGES):
        began = time.perf_counter()
        await announcer.call("touch", uri="notes://a")
        for _ in range(subscribers):
            await heard.acquire()
        times.append(time.perf_counter() - began)
    commands = await store.commands() - before
    seconds = time.perf_counter() - quiet
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # Heartbeats and waits go on meanwhile, and the announcement is itself a legacy call of one command.
    print(
        f"  a change, {subscribers:>5} subscribers  {statistics.median(times) * 1e3:>7.1f} ms until the last has heard "
        f"of it, commands of Redis {commands / CHANGES:.1f} a change ({seconds:.1f} s)"
    )


async def measure_memory(http: aiohttp.ClientSession, replicas: Replicas, store: Store) -> None:
    """Print what Redis keeps for a session, for a subscribed resource, and for an event."""
    before = await store.memory()
    peers: list[Peer] = []
    for size in SESSIONS:
        while len(peers) < size:
            peer = Peer(http, replicas.url_of(len(peers) % 3))
            await peer.open()
            peers.append(peer)
        print(f"  a session, at {size:>5} of them  {(await store.memory() - before) / size:>7.0f} bytes of Redis")
    before = await store.memory()
    for peer in peers[:100]:
        await peer.ask("resources/subscribe", {"uri": f"notes://{'x' * 40}"})
    print(f"  a subscribed resource (48 characters) {(await store.memory() - before) / 100:>7.0f} bytes of Redis")
    for count in (10, 100):
        before = await store.memory()
        peer = peers[0]
        for _ in range(10):
            message = peer.request("tools/call", {"name": "talk", "arguments": {"times": count}})
            async with await peer.post(message) as response:
                _ = [data async for _, data in events(response)]
        kept = (await store.memory() - before) / 10 / count
        print(f"  an event (in streams of {count:>3})  {kept:>7.0f} bytes of Redis")


async def measure() -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with AsyncExitStack() as stack:
        replicas = await stack.enter_async_context(running_replicas(3))
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None))
        )
        store = Store(replicas.redis)
        stack.push_async_callback(store.close)
        await compare_calls(http, replicas, store)
        for subscribers in SUBSCRIBERS:
            await measure_changes(http, replicas, store, subscribers)
        await measure_memory(http, replicas, store)


def run() -> None:
    """Measure everything, and print it."""
    print(f"==> replicas, {ROUNDS} rounds of {CALLS} calls, {CHANGES} changes")
    asyncio.run(measure())
