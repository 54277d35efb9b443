"""``mcplumb serve --reload``: the process starts again, in its own place, when the server's files change.

The files are looked at, a few times a second, by a thread: a handler that blocks the event loop does not keep its
author from repairing it. A new program then takes the place of the old one in the same process, so that its number,
its terminal and its signals stay what they were, and no thread of the old one is left.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mcplumb.cli.loading import CannotLoad, find_file, is_own
from mcplumb.cli.output import complain, say
from mcplumb.cli.serving import ServerFailed

if TYPE_CHECKING:
    from mcplumb.cli.serving import Serving
    from mcplumb.server.server import Server

__all__ = ["Files", "Program", "Reloader", "run_reloading"]

#: Seconds between two looks at the files.
_INTERVAL = 0.3
#: A file that has changed may still be written: seconds between looks at it, and how many of them there are at most.
_SETTLE = 0.1
_MOST_LOOKS = 50
#: Seconds that the end of a server may take beyond the time that its requests have.
_GRACE = 3.0

_logger = logging.getLogger("mcplumb.server")


def run_reloading(serving: Serving) -> None:
    """Load the server and run it. Returns when a signal has stopped it; when its files change, all starts again.

    A server that cannot be loaded, or fails, gets its chance with the next change.
    """
    files = Files(find_file(serving.target)[0])
    program = Program()
    ready: list[str] = []

    def start_again() -> None:
        # With the ports that the system chose.
        program.start([*serving.words(ready or serving.addresses), "--reload"])

    try:
        server = serving.load()
        with Reloader(server, files, start_again) as reloader:
            serving.run(server, ready.append)
        if not reloader.has_changed:
            return
    except (CannotLoad, ServerFailed) as error:
        files.add_neighbours()
        complain(str(error))
        say("Waiting for a change of its files; Ctrl-C ends it.", style="dim")
        while files.changed() is None:
            time.sleep(_INTERVAL)
    start_again()


class Reloader:
    """Within its block, stops the server when one of the files changes; ``has_changed`` tells.

    It is one of the hosts of the server: when that is stopped for another reason, the files do not matter any more.
    Should the server not stop, ``start_again`` is called where it is, in another thread.
    """

    def __init__(self, server: Server, files: Files, start_again: Callable[[], None]) -> None:
        self._server = server
        self._files = files
        self._start_again = start_again
        self.has_changed = False
        self._is_over = threading.Event()
        self._has_ended = threading.Event()

    def __enter__(self) -> Self:
        self._files.changed()  # what has been imported by now
        self._server.presence.join(self)
        threading.Thread(target=self._watch, name="mcplumb-reload", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._has_ended.set()
        self._server.presence.leave(self)

    def stop(self) -> None:
        """The server is stopped."""
        self._is_over.set()

    def _watch(self) -> None:
        while not self._is_over.wait(_INTERVAL):
            if (file := self._files.changed()) is not None:
                self.has_changed = True
                _logger.info("%s has changed: the server starts again.", file)
                self._server.stop()
                if not self._has_ended.wait(self._server.stop_within + _GRACE):
                    _logger.warning("Something in the server does not stop, and is left behind.")
                    self._start_again()


class Program:
    """The program that runs in this process, as it was started: whatever the server changes in that."""

    def __init__(self) -> None:
        self._command = [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]]
        self._folder = Path.cwd()
        self._environment = dict(os.environ)

    def start(self, words: list[str]) -> None:
        """Begin anew in this process, with these arguments. Nothing of what runs now is left."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.chdir(self._folder)
        os.execve(sys.executable, [*self._command, *words], self._environment)  # noqa: S606 - they are the user's own


class Files:
    """A server's file and the modules that were imported from its folder, also those that are imported later."""

    def __init__(self, file: Path) -> None:
        self._folder = file.resolve().parent
        self._more = {str(file.resolve())}
        # Of those that are likely to be imported, what they were before that.
        before = {name: _stamp(name) for name in self._neighbours()}
        self._seen = {name: stamp for name, stamp in before.items() if stamp is not None}
        self._own: dict[str, bool] = {}

    def add_neighbours(self) -> None:
        """From now on all modules in the folder count: one that could not be imported is not known otherwise."""
        self._more |= self._neighbours()

    def _neighbours(self) -> set[str]:
        return {str(path) for path in self._folder.glob("*.py")} | self._more

    def changed(self) -> str | None:
        """The first file that is not as it was when it was first looked at, once it has been written; None if none."""
        for name in self._names():
            if (stamp := _stamp(name)) is not None and self._seen.setdefault(name, stamp) != stamp:
                _settle(name)
                return name
        return None

    def _names(self) -> set[str]:
        loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        return self._more | {name for name in loaded if name and name.endswith(".py") and self._is_own(name)}

    def _is_own(self, name: str) -> bool:
        # Found out once, when the file has just been imported: later it may lead nowhere.
        if name not in self._own:
            self._own[name] = is_own(name, self._folder)
        return self._own[name]


def _stamp(name: str) -> tuple[int, int] | None:
    """What changes with a file; None for what is not there or no file, perhaps because it is just being replaced."""
    try:
        status = os.stat(name)  # noqa: PTH116 - of hundreds of files, several times a second
    except OSError:
        return None
    return (status.st_mtime_ns, status.st_size) if stat.S_ISREG(status.st_mode) else None


def _settle(name: str) -> None:
    """Wait until a file is not written to any more, within reason."""
    before = None
    for _ in range(_MOST_LOOKS):
        stamp = _stamp(name)
        if stamp is not None and stamp == before:
            return
        before = stamp
        time.sleep(_SETTLE)
