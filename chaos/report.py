"""What a run has counted, and what it has left behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

__all__ = ["Belongings", "Report", "living"]


class Report:
    """The counts of one run."""

    def __init__(self, folder: str) -> None:
        #: A folder of this run; its name is in the command of every process.
        self.folder = folder
        self.outcomes: Counter[str] = Counter()
        self.lost: list[str] = []
        self.wrong: list[str] = []
        self.late: list[str] = []
        self.left: list[str] = []

    def options(self, **options: object) -> str:
        """Return the argument of a server."""
        return json.dumps({"folder": self.folder, **options})

    @property
    def failures(self) -> dict[str, list[str]]:
        """What must be empty."""
        return {"lost": self.lost, "wrong": self.wrong, "late": self.late, "left behind": self.left}


async def living(folder: str) -> list[str]:
    """Return the living processes that have this in their command, and kill them.

    The search is repeated: a process that forks and exits is easily missed.
    """
    found: dict[int, str] = {}
    for _ in range(5):
        for pid, words in _commands(folder.encode()).items():
            found[pid] = words
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.01)
    return [f"process {pid}: {words[:200]}" for pid, words in found.items()]


def _commands(mark: bytes) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if mark in words:
                    found[int(entry.name)] = words.replace(b"\0", b" ").decode("utf-8", "replace")
    return found


class Belongings:
    """The descriptors, threads and children of this process."""

    def __init__(self) -> None:
        self.descriptors = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a Path would open another one
        self.threads = {thread.name for thread in threading.enumerate()}
        self.children = set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())

    def more_than(self, before: Belongings) -> list[str]:
        """Return what there is that was not there before."""
        return [
            *(f"descriptor {name}" for name in self.descriptors - before.descriptors),
            *(f"thread {name}" for name in self.threads - before.threads),
            *(f"child {pid}" for pid in self.children - before.children),
        ]
