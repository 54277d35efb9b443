"""A server on pipes, whose work is counted. Its client, in the same thread, acts while the server rests."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import msgspec

from tests.costs.counting import RestingPoll
from tests.costs.measuring import Case, Counted, measured, tell, written
from tests.costs.messages import call, listen, opening
from tests.costs.visiting import Visitor, visited

#: Lets the other calls come to their end.
release = asyncio.Event()


def main() -> None:
    case = msgspec.json.decode(sys.argv[1], type=Case)
    counted = Counted()
    with visited(lambda rest, visitor: visit(case, counted, rest, visitor)):
        serve(case)
    tell(counted)


def visit(case: Case, counted: Counted, rest: RestingPoll, visitor: Visitor) -> Iterator[None]:
    yield from visitor.ask(opening(case.era))
    for _ in range(case.subscriptions):
        yield from visitor.ask(listen(visitor.new_id()))
    for _ in range(case.waiting):
        yield from visitor.ask(call(case.era, visitor.new_id(), b"wait", b"{}"), answers=0)
    for _ in measured(case, rest, counted):
        calls = [call(case.era, visitor.new_id()) for _ in range(case.at_once)]
        yield from visitor.ask(b"".join(calls), answers=case.at_once)
    release.set()


def serve(case: Case) -> None:
    from mcplumb import Server

    server = Server("counted")

    @server.tool
    async def wait() -> None:
        await release.wait()

    echo = written(case.body)
    server.tool(echo)
    for number in range(case.tools):
        server.tool(name=f"tool-{number}")(echo)
    server.run()


main()
