"""A client in the thread of its server, which acts while the server rests."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from tests.costs.counting import RestingPoll, take_over

__all__ = ["Visit", "Visitor", "visited"]


class Visitor:
    """Speaks to a server over pipes. At each ``yield`` the server works until it rests."""

    def __init__(self, requests: int, answers: int) -> None:
        os.set_blocking(answers, False)
        self._requests = requests
        self._answers = answers
        self._last_id = 0

    def new_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def ask(self, requests: bytes, *, answers: int = 1) -> Iterator[None]:
        """Send this at once, and take so many answers, of which none may be an error.

        A bridge rests once more before it answers, until its server has.
        """
        os.write(self._requests, requests)
        yield
        while answers > 0:
            while not select.select([self._answers], [], [], 0)[0]:
                yield
            came = os.read(self._answers, 65536)
            assert b'"error"' not in came, came
            answers -= came.count(b"\n")

    def leave(self) -> None:
        os.close(self._requests)


#: What the visitor does.
Visit: TypeAlias = Callable[[RestingPoll, Visitor], Iterator[None]]


@contextmanager
def visited(visit: Visit) -> Iterator[None]:
    """Standard input and output are pipes, and the server that runs on them is visited."""
    rest = take_over()
    (stdin, requests), (answers, stdout) = os.pipe(), os.pipe()
    before = [os.dup(standard) for standard in (0, 1)]
    for end, standard in ((stdin, 0), (stdout, 1)):
        os.dup2(end, standard)
        os.close(end)
    visitor = Visitor(requests, answers)

    def script() -> Iterator[None]:
        yield from visit(rest, visitor)
        visitor.leave()

    steps = script()
    rest.at_rest = lambda: next(steps, None)
    try:
        yield
    finally:
        for standard, copy in enumerate(before):
            os.dup2(copy, standard)
            os.close(copy)
