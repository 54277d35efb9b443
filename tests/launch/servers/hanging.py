"""Hangs.

* ``silent_on``: the methods that it never answers, while it goes on reading; ``["*"]`` for all.
* ``deaf_after``: it reads no more once it has read so many messages.
* ``mute_after``: it closes its stdout after so many messages, and lives on. ``torn``: in the middle of a line.
* ``shut_after``: it closes its stdin after so many messages, and lives on.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from tests.launch.servers.hand import Object, Server, Silence, main


class Hanging(Server):
    """Does not answer, does not read, or cannot be heard."""

    read = 0

    def run(self) -> None:
        self._maybe_hang()
        super().run()

    def take(self, line: bytes) -> None:
        super().take(line)
        self.read += 1
        self._maybe_hang()

    def result_of(self, request: Object, method: str, params: Object) -> Object:
        silent: list[Any] = self.options.get("silent_on", [])
        if method in silent or "*" in silent:
            raise Silence
        return super().result_of(request, method, params)

    def _maybe_hang(self) -> None:
        if self.options.get("mute_after") == self.read:
            if self.options.get("torn"):
                self.write(b'{"jsonrpc": "2.0", "met')
            os.close(1)
            self.note(event="mute")
        if self.options.get("shut_after") == self.read:
            os.close(0)
            self.note(event="shut")
        if self.read in (self.options.get("deaf_after"), self.options.get("shut_after")):
            self.note(event="deaf")
            while True:
                signal.pause()


if __name__ == "__main__":
    main(Hanging)
