"""A client of a server over pipes, whose work is counted. The server acts while the client rests."""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tests.costs.counting import RestingPoll, take_over
from tests.costs.measuring import Case, Counted, measured, raw_server, tell
from tests.costs.messages import LEGACY

if TYPE_CHECKING:
    from mcplumb import Client


def main() -> None:
    case = msgspec.json.decode(sys.argv[1], type=Case)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/rests")
        listener.listen()
        tell(asyncio.run(visit(case, listener, take_over())))


async def visit(case: Case, listener: socket.socket, rest: RestingPoll) -> Counted:
    from mcplumb import connect

    counted = Counted()
    command = [*raw_server(case.tools), listener.getsockname()]
    revisions = [LEGACY] if case.era == "legacy" else None
    # A timeout that no machine is slow enough for, or its timer would be counted.
    async with connect(command, revisions=revisions, timeout=3600.0, max_timeout=3600.0) as client:
        if case.tools:
            assert len(await client.list_tools()) == case.tools
        others = [asyncio.create_task(client.call_tool("wait")) for _ in range(case.waiting)]
        end: list[None] = []
        with listener.accept()[0] as rests:
            rounds = measured(case, rest, counted)

            def at_rest() -> None:
                if next(rounds, rounds) is rounds:
                    end.append(None)
                rests.send(b".")
                assert rests.recv(1)

            rest.at_rest = at_rest
            await asyncio.gather(*[call_on(client, end) for _ in range(case.at_once)])
            rest.at_rest = lambda: None
        for other in others:
            other.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    return counted


async def call_on(client: Client, end: Sequence[None]) -> None:
    while not end:
        result = await client.call_tool("echo", {"text": "hello"})
        assert not result.is_error


main()
