"""Does not want to leave.

* ``ignores``: what it ignores, of ``EOF``, ``TERM``, ``INT`` and ``HUP``.
* ``last_words``: bytes that it writes to stdout, and as many to stderr, before it leaves at the end of its input.
* ``hurries``: at SIGTERM it says so in its log, and leaves with this code.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

from tests.launch.servers.hand import Object, Server, main, say


class Stubborn(Server):
    """Stays as long as it can."""

    def __init__(self, options: Object) -> None:
        self._signals, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        for name in {"TERM", "INT", "HUP"} & set(options.get("ignores", ())):
            signal.signal(signal.Signals["SIG" + name], self._noted)
        if "hurries" in options:
            signal.signal(signal.SIGTERM, self._leave)
        super().__init__(options)

    def run(self) -> None:
        super().run()
        if "last_words" in self.options:
            words = self.options["last_words"]
            self.write(b'{"jsonrpc": "2.0", "method": "notifications/bye"}\n' * (words // 50))
            say("bye\n" * (words // 4))
            self.note(event="spoken")
        # Not `signal.pause`, which a signal that arrives just before it does not interrupt.
        while "EOF" in self.options.get("ignores", ()):
            os.read(self._signals, 100)

    def _noted(self, number: int, _: FrameType | None) -> None:
        self.note(event=signal.Signals(number).name)

    def _leave(self, number: int, _: FrameType | None) -> None:
        self.note(event=signal.Signals(number).name)
        os._exit(self.options["hurries"])


if __name__ == "__main__":
    main(Stubborn)
