"""A bridge from HTTP to pipes, whose work is counted. Its client and its server act while the bridge rests."""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Iterator

import msgspec

from tests.costs.counting import RestingPoll
from tests.costs.measuring import Case, Counted, in_step, measured, raw_server, tell
from tests.costs.messages import READY, call, opening
from tests.costs.visiting import HttpVisitor, visited_at


def main() -> None:
    case = msgspec.json.decode(sys.argv[1], type=Case)
    counted = Counted()
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/rests")
        listener.listen()
        with visited_at(case.at_once, lambda rest, visitor: visit(case, counted, listener, rest, visitor)) as port:
            from mcplumb import Bridge

            Bridge([*raw_server(), listener.getsockname()]).run(f"http://127.0.0.1:{port}/mcp")
    tell(counted)


def visit(
    case: Case, counted: Counted, listener: socket.socket, rest: RestingPoll, visitor: HttpVisitor
) -> Iterator[None]:
    if case.era == "legacy":
        yield from visitor.open(opening("legacy").removesuffix(READY), READY)
    yield from visitor.post([call(case.era, visitor.new_id())])
    with in_step(rest, listener):
        for _ in measured(case, rest, counted):
            yield from visitor.post([call(case.era, visitor.new_id()) for _ in range(case.at_once)])


main()
