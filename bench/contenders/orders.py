"""What a measured client is told to do: a line on standard input, answered with a line of seconds on standard output.

``alone 1000``: so many calls, one after the other; a time for each. ``in_flight 5000 64``: so many, and as many of them
open at a time as the second number says. ``large 5000000``: one text of so many bytes, there and back.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

__all__ = ["META", "asked", "orders", "tell", "text_of"]

#: What every modern request carries, and what gives it its size.
META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":'
    b'{"name":"example","version":"1.0.0"},"io.modelcontextprotocol/clientCapabilities":{}}'
)


def asked() -> tuple[str, list[str]]:
    """The era to speak, and the command of the server to launch."""
    return sys.argv[1], sys.argv[2:]


def orders() -> Iterator[tuple[str, list[int]]]:
    """One after the other, until there are no more."""
    for line in iter(sys.stdin.readline, ""):
        what, *numbers = line.split()
        yield what, [int(number) for number in numbers]


def tell(seconds: Sequence[float]) -> None:
    """Answer. The first answer, unasked, is what it took to launch the server and to get the result of one call."""
    print(*seconds, flush=True)


def text_of(number: int) -> str:
    """What a call has echoed."""
    return f"hello from call {number}"
