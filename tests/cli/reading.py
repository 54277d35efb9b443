"""A process of which a test reads, line by line, what it tells; and one that finds ``mcplumb`` and ``python``."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Self

from tests.cli.kit import PYTHON
from tests.kit.loop import PATIENCE

__all__ = ["Watched", "path_with_mcplumb"]


def path_with_mcplumb(folder: Path) -> str:
    """A PATH on which both are those that are tested, wherever they are installed. The folder gets a file for it."""
    for name, command in (("mcplumb", f'"{PYTHON}" -m mcplumb'), ("python", f'"{PYTHON}"')):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {command} "$@"\n', encoding="utf-8")
        program.chmod(0o700)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


class Watched(subprocess.Popen[str]):
    """A process that is ended with the block. Its stdout goes to its stderr."""

    def __init__(self, command: Sequence[str], cwd: Path | None = None) -> None:
        super().__init__(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self._lines: Queue[str] = Queue()
        #: All that was read, for those who want to know why they wait in vain.
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.stdout is not None
        for line in self.stdout:
            self._lines.put(line.rstrip("\n"))

    def wait_for(self, words: str) -> str:
        """The rest of the next line that has these words, which comes soon."""
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE)
            except Empty:
                raise AssertionError(f"{words!r} was not said, but {self.said}") from None
            self.said.append(line)
            if words in line:
                return line.partition(words)[2]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        self.wait(PATIENCE)
        self._reader.join(PATIENCE)
        assert self.stdout is not None
        self.stdout.close()
