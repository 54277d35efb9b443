"""A server over HTTP, whose work is counted. Its client, in the same thread, acts while the server rests."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import msgspec

from tests.costs.counting import RestingPoll
from tests.costs.measuring import Case, Counted, measured, tell, written
from tests.costs.messages import READY, call, opening
from tests.costs.visiting import HttpVisitor, visited_at


def main() -> None:
    case = msgspec.json.decode(sys.argv[1], type=Case)
    counted = Counted()
    with visited_at(case.at_once, lambda rest, visitor: visit(case, counted, rest, visitor)) as port:
        from mcplumb import Server

        server = Server("counted")
        server.tool(written(case.body))
        server.run(f"http://127.0.0.1:{port}/mcp")
    tell(counted)


def visit(case: Case, counted: Counted, rest: RestingPoll, visitor: HttpVisitor) -> Iterator[None]:
    if case.era == "legacy":
        yield from visitor.open(opening("legacy").removesuffix(READY), READY)
    yield from visitor.post([call(case.era, visitor.new_id())])
    for _ in measured(case, rest, counted):
        yield from visitor.post([call(case.era, visitor.new_id()) for _ in range(case.at_once)])


main()
