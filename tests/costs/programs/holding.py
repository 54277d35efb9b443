"""What a process holds for one more of something that is open, in bytes, found out with many of them."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import tempfile
import tracemalloc
from array import array
from collections.abc import Callable, Iterator
from typing import Any

from tests.costs.counting import RestingPoll
from tests.costs.measuring import raw_server, tell
from tests.costs.messages import call, listen, opening
from tests.costs.visiting import Visitor, visited

#: So many are there before it is measured: the first ones bring what all of them share.
SOME, MANY = 100, 200

#: Lets the requests that a server works on come to their end.
release = asyncio.Event()


def main() -> None:
    tracemalloc.start()
    tell(KINDS[sys.argv[1]]())


def requests_of_a_server() -> float:
    return held_by_a_server(lambda visitor: visitor.ask(call("modern", visitor.new_id(), b"wait", b"{}"), answers=0))


def subscriptions() -> float:
    return held_by_a_server(lambda visitor: visitor.ask(listen(visitor.new_id())))


def held_by_a_server(one_more: Callable[[Visitor], Iterator[None]]) -> float:
    found: list[float] = []

    def visit(_rest: RestingPoll, visitor: Visitor) -> Iterator[None]:
        yield from visitor.ask(opening("modern"))
        for _ in range(SOME):
            yield from one_more(visitor)
        before = in_use()
        for _ in range(MANY):
            yield from one_more(visitor)
        found.append((in_use() - before) / MANY)
        release.set()

    with visited(visit):
        server().run()
    return found[0]


def requests_of_a_client() -> float:
    from mcplumb import connect

    async def held() -> float:
        async with connect(raw_server()) as client:

            async def wait(count: int) -> list[asyncio.Task[Any]]:
                tasks = [asyncio.create_task(client.call_tool("wait")) for _ in range(count)]
                await asyncio.sleep(0)
                return tasks

            tasks = await wait(SOME)
            before = in_use()
            tasks += await wait(MANY)
            after = in_use()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return (after - before) / MANY

    return asyncio.run(held())


def connections() -> float:
    """Of legacy clients, on a socket."""

    async def held() -> float:
        with tempfile.TemporaryDirectory() as folder:
            path, ready = f"{folder}/s", asyncio.Event()
            it = server()
            serving = asyncio.create_task(it.serve(f"unix:{path}", on_ready=lambda _: ready.set()))
            await ready.wait()
            peers = array("i", bytes(4 * (SOME + MANY)))

            async def come(places: range) -> None:
                for place in places:
                    with socket.socket(socket.AF_UNIX) as peer:
                        peer.setblocking(False)
                        peer.connect(path)
                        peer.send(opening("legacy"))
                        assert b'"result"' in await asyncio.get_running_loop().sock_recv(peer, 65536)
                        peers[place] = peer.detach()

            await come(range(SOME))
            before = in_use()
            await come(range(SOME, SOME + MANY))
            after = in_use()
            for peer in peers:
                os.close(peer)
            it.stop()
            await serving
        return (after - before) / MANY

    return asyncio.run(held())


def http_sessions() -> float:
    """Of legacy clients, in an ASGI host."""

    async def held() -> float:
        app = server().asgi()
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"accept", b"*/*")]
        scope = {"type": "http", "method": "POST", "path": "/mcp", "root_path": "", "headers": headers}
        body = opening("legacy").splitlines()[0]

        async def come(count: int) -> None:
            for _ in range(count):
                incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
                incoming.put_nowait({"type": "http.request", "body": body, "more_body": False})
                sent: list[dict[str, Any]] = []

                async def send(event: dict[str, Any], sent: list[dict[str, Any]] = sent) -> None:
                    sent.append(event)

                await app(scope | {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}, incoming.get, send)
                assert sent[0]["status"] == 200, sent
                assert any(name == b"mcp-session-id" for name, _ in sent[0]["headers"])

        await come(SOME)
        before = in_use()
        await come(MANY)
        after = in_use()
        await app.close()
        return (after - before) / MANY

    return asyncio.run(held())


def server() -> Any:
    from mcplumb import Server

    made = Server("holding")

    @made.tool
    async def wait() -> None:
        await release.wait()

    return made


def in_use() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


KINDS = {
    "open request of a server": requests_of_a_server,
    "open request of a client": requests_of_a_client,
    "idle subscription": subscriptions,
    "idle connection": connections,
    "idle HTTP session": http_sessions,
}

main()
