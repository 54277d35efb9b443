"""A bridge between pipes, whose work is counted. Its client and its server act while the bridge rests."""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Iterator

import msgspec

from tests.costs.counting import RestingPoll
from tests.costs.measuring import Case, Counted, in_step, measured, raw_server, tell
from tests.costs.messages import call, opening
from tests.costs.visiting import Visitor, visited


def main() -> None:
    case = msgspec.json.decode(sys.argv[1], type=Case)
    counted = Counted()
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/rests")
        listener.listen()
        with visited(lambda rest, visitor: visit(case, counted, listener, rest, visitor)):
            from mcplumb import Bridge

            Bridge([*raw_server(), listener.getsockname()]).run()
    tell(counted)


def visit(case: Case, counted: Counted, listener: socket.socket, rest: RestingPoll, visitor: Visitor) -> Iterator[None]:
    yield from visitor.ask(opening(case.era))
    yield from visitor.ask(call(case.era, visitor.new_id()))
    with in_step(rest, listener):
        for _ in measured(case, rest, counted):
            calls = [call(case.era, visitor.new_id()) for _ in range(case.at_once)]
            yield from visitor.ask(b"".join(calls), answers=case.at_once)


main()
