"""A longer program, of which serving is only one part: it has stdin and stdout before and after."""

from __future__ import annotations

import asyncio
import json
import sys

from tests.process.servers.options import make_server

server = make_server("guest")
serving: list[asyncio.Task[None]] = []


@server.tool
def greet() -> str:
    print("not for the client")
    return "hello"


@server.tool
async def leave() -> str:
    server.stop()
    return "left"


@server.tool
async def cancel() -> str:
    serving[-1].cancel()
    return "cancelled"


async def serve() -> str:
    serving.append(asyncio.create_task(server.serve()))
    await asyncio.wait(serving)
    return "cancelled" if serving.pop().cancelled() else "served"


def say(text: str) -> None:
    """Writes to stdout, in a way that the tests can read."""
    print(json.dumps({"jsonrpc": "2.0", "method": "guest", "params": {"said": text}}), flush=True)


def main() -> None:
    while line := sys.stdin.readline():
        say(line.rstrip())
        say(asyncio.run(serve()))


if __name__ == "__main__":
    main()
