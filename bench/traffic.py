"""What the driver says to a server, as bytes made in advance, and what the server should answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, Self

import msgspec

from bench.contenders.orders import META

__all__ = ["ERAS", "LEGACY", "MODERN", "Calls", "Era", "Failed"]


class Failed(Exception):
    """A server did not do what it is measured at."""


class Era(NamedTuple):
    """One way to speak to a server."""

    name: str
    #: The request that comes first, with the id 0.
    opening: bytes
    #: What the server is told once it has answered that, if anything.
    opened: bytes
    #: What every request carries.
    meta: bytes


MODERN = Era(
    "modern",
    opening=b'{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{' + META + b"}}\n",
    opened=b"",
    meta=META + b",",
)
LEGACY = Era(
    "legacy",
    opening=(
        b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
        b'"clientInfo":{"name":"example","version":"1.0.0"}}}\n'
    ),
    opened=b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n',
    meta=b"",
)
ERAS = {era.name: era for era in (MODERN, LEGACY)}


class Text(msgspec.Struct):
    """A block of content."""

    text: str


class Content(msgspec.Struct):
    """The result of a call."""

    content: list[Text]


class Answer(msgspec.Struct):
    """The answer to a call. A missing result or an error is no such thing."""

    id: int
    result: Content


class Calls:
    """Numbered calls of a tool, one after the other in one buffer."""

    def __init__(self, requests: Sequence[bytes], expected: dict[int, str]) -> None:
        self.data = memoryview(b"".join(requests))
        #: Where each call begins in the buffer, and where the last one ends.
        self.bounds = [0, *accumulate(map(len, requests))]
        self._expected = expected

    @classmethod
    def echo(cls, era: Era, ids: range, size: int = 0) -> Self:
        """Calls of ``echo``, each with a text of its own, which is at least so long."""
        texts = {number: f"hello from call {number}".ljust(size, "x") for number in ids}
        return cls._made(era, b"echo", texts, b'{"text":"%b"}')

    @classmethod
    def add(cls, era: Era, ids: range) -> Self:
        """Calls of ``add``, each with a sum of its own."""
        return cls._made(era, b"add", {number: str(number) for number in ids}, b'{"a":%b,"b":0}')

    @classmethod
    def _made(cls, era: Era, tool: bytes, expected: dict[int, str], arguments: bytes) -> Self:
        head = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{' + era.meta
        call = head + b'"name":"' + tool + b'","arguments":' + arguments + b"}}\n"
        return cls([call % (number, text.encode()) for number, text in expected.items()], expected)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def check(self, answers: bytes) -> None:
        """`Failed` unless each call was answered exactly once, and rightly."""
        open_calls = self._expected.copy()
        for line in answers.splitlines():
            try:
                answer = DECODER.decode(line)
            except msgspec.MsgspecError:
                raise Failed(f"this is no answer to a call: {line[:200]!r}") from None
            expected = open_calls.pop(answer.id, None)
            if expected is None:
                raise Failed(f"the answer {answer.id} came twice, or belongs to no call")
            if [block.text for block in answer.result.content] != [expected]:
                raise Failed(f"the call {answer.id} should have been answered with {expected!r}: {line[:200]!r}")
        if open_calls:
            raise Failed(f"{len(open_calls)} of {len(self)} calls were not answered")


DECODER = msgspec.json.Decoder(Answer)
