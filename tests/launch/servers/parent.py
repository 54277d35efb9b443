"""Has children, which it does not look after.

* ``children``: one object for each. ``session``: it opens a session of its own. ``orphan``: its parent leaves at once,
  so that it is a grandchild whose parent is gone. ``holds``: the descriptors of the server's that it keeps open, of
  0, 1 and 2. ``ignores``: signals that it ignores.
* ``daemon``: the program goes on in the background, and the process that was started leaves with code 0.
* ``ignores_eof``: the server does not leave at the end of its input.
"""

from __future__ import annotations

import os
import signal

from tests.launch.servers.hand import Object, Server, main


class Parent(Server):
    """Starts children before it serves."""

    def run(self) -> None:
        if self.options.get("daemon"):
            ready, tell = os.pipe()
            if os.fork():
                os.read(ready, 1)
                os._exit(0)
            os.setsid()
            self.note(event="daemon")
            os.write(tell, b".")
        for child in self.options.get("children", ()):
            self._bear(child)
        super().run()
        while self.options.get("ignores_eof"):
            signal.pause()

    def _bear(self, child: Object) -> None:
        # The server goes on when the child is ready to be ended, so that a test may rely on that.
        ready, tell = os.pipe()
        between = os.fork()
        if between == 0:
            if child.get("orphan") and os.fork():
                os._exit(0)
            self._live(child, tell)
        os.close(tell)
        os.read(ready, 1)
        os.close(ready)
        if child.get("orphan"):
            os.waitpid(between, 0)

    def _live(self, child: Object, tell: int) -> None:
        if child.get("session"):
            os.setsid()
        for name in child.get("ignores", ()):
            signal.signal(signal.Signals["SIG" + name], signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in {0, 1, 2} - set(child.get("holds", ())):
            os.dup2(nothing, descriptor)
        self.note(event="child")
        os.write(tell, b".")
        os.close(tell)
        while True:
            signal.pause()


if __name__ == "__main__":
    main(Parent)
