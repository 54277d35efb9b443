"""Crashes while it starts, or when a message comes.

* ``on``: ``start``, a method, or ``*`` for any message; ``nth``: the how manieth of them.
* ``code``, ``signal``, ``raises``, ``says``: how it ends; see ``hand.crash``.
* ``times``: only in so many starts (with ``state``), and in none after them.
* ``answers``: the message is answered first. ``torn``: the process ends in the middle of an answer, after
  this text of it, if it is one.
"""

from __future__ import annotations

from tests.launch.servers.hand import Object, Server, crash, main


class Crashing(Server):
    """Ends when it should not."""

    seen = 0

    def run(self) -> None:
        if self.options["on"] == "start":
            self._maybe_crash()
        super().run()

    def requested(self, request: Object) -> None:
        is_due = self._is_due(request["method"])
        if is_due and self.options.get("torn"):
            head = b'{"jsonrpc": "2.0", "id": %d, "resu' % request["id"]
            self.write(head + (self.options["torn"].encode() if isinstance(self.options["torn"], str) else b""))
        if not is_due or self.options.get("answers"):
            super().requested(request)
        if is_due:
            self._maybe_crash()

    def notified(self, method: str, params: Object) -> None:
        super().notified(method, params)
        if self._is_due(method):
            self._maybe_crash()

    def _is_due(self, method: str) -> bool:
        is_healed = self.start_number > self.options.get("times", self.start_number)
        self.seen += self.options["on"] in (method, "*")
        return self.options["on"] in (method, "*") and self.seen >= self.options.get("nth", 1) and not is_healed

    def _maybe_crash(self) -> None:
        if self.start_number <= self.options.get("times", self.start_number):
            self.note(event="crash")
            crash(self.options)


if __name__ == "__main__":
    main(Crashing)
