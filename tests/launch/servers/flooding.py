"""Writes much more than anyone wants to read.

* ``what``: ``notifications``, ``unknown`` (answers to nobody's requests), ``garbage``, ``requests`` or ``blank``: lines
  of that kind. ``line``: one long line. ``stderr``: text there, in lines; ``stderr line``: the same without any end.
* ``bytes``: how many, before it serves. Left out: without an end, between all that it does; answers still come.
* ``piece``: how many at a time, if there is no end.
* ``after``: how many messages it reads before it begins.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

from tests.launch.servers.hand import Server, main

_PIECE = 1 << 16
_LINES = {
    "notifications": b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}\n',
    "unknown": b'{"jsonrpc": "2.0", "id": 123456789, "result": {"resultType": "complete"}}\n',
    "garbage": b"\x00\xff{[ this is no message \xc3\x28" + b"x" * 100 + b"\n",
    "requests": b'{"jsonrpc": "2.0", "id": "q", "method": "ping"}\n',
    "blank": b" " * 100 + b"\r\n",
    "line": b"x" * _PIECE,
    "stderr": b"something that nobody wants to know\n",
    "stderr line": b"y" * _PIECE,
}


class Flooding(Server):
    """Floods one of its outputs."""

    read = 0

    def run(self) -> None:
        if "bytes" in self.options and not self.options.get("after"):
            self._flood_once()
        super().run()

    def lines(self) -> Iterator[bytes]:
        if "bytes" in self.options:
            yield from super().lines()
            return
        torn = b""
        while True:
            while self.read >= self.options.get("after", 0):
                self._flood(self.options.get("piece", _PIECE))
                if select.select([0], [], [], 0)[0]:
                    break
            data = os.read(0, _PIECE)
            if not data:
                return
            *whole, torn = (torn + data).split(b"\n")
            yield from whole

    def take(self, line: bytes) -> None:
        super().take(line)
        self.read += 1
        if "bytes" in self.options and self.options.get("after") == self.read:
            self._flood_once()

    def _flood_once(self) -> None:
        self._flood(self.options["bytes"])
        if self.options["what"] == "line":
            self.write(b"\n")
        self.note(event="flooded")

    def _flood(self, size: int) -> None:
        what = self.options["what"]
        unit = _LINES[what]
        piece = unit * max(1, min(_PIECE, size) // len(unit))
        while size > 0:
            if what.startswith("stderr"):
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(2, rest) :]
            else:
                self.write(piece)
            size -= len(piece)


if __name__ == "__main__":
    main(Flooding)
