"""Says the right things, and more.

* ``first``: what it writes before anything else; ``before``: what it writes before each message; both as latin-1, so
  that any byte can be meant.
* ``ending``: what ends its lines.
* ``pieces``: it writes so many bytes at a time, each with a write of its own.
"""

from __future__ import annotations

from tests.launch.servers.hand import Object, Server, main


class Garbling(Server):
    """Has noise between its messages."""

    def run(self) -> None:
        self.write(self.options.get("first", "").encode("latin-1"))
        super().run()

    def send(self, message: Object) -> None:
        self.write(self.options.get("before", "").encode("latin-1"))
        super().send(message)

    def write(self, data: bytes) -> None:
        if "ending" in self.options and data.endswith(b"}\n"):
            data = data[:-1] + self.options["ending"].encode("latin-1")
        size = self.options.get("pieces", len(data) or 1)
        for start in range(0, len(data), size):
            super().write(data[start : start + size])


if __name__ == "__main__":
    main(Garbling)
