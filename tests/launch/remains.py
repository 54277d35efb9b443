"""What is left of a test: processes, descriptors, threads. It is seen in ``/proc``."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any


def living(mark: str) -> list[int]:
    """The processes with this in their commands that live: those that only wait to be reaped do not."""
    found = []
    for pid in _pids():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue  # gone meanwhile
        if mark.encode() in words and pid != os.getpid() and is_alive(pid):
            found.append(pid)
    return found


def is_alive(pid: int) -> bool:
    """Whether this process lives."""
    return _stat(pid)[0] not in ("X", "Z", "")


def children_of(parent: int) -> list[int]:
    """The children of a process, with those that only wait to be reaped."""
    return [pid for pid in _pids() if _stat(pid)[1] == str(parent)]


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _stat(pid: int) -> list[str]:
    """The state and the parent of a process, both empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
    except OSError:
        return ["", ""]


class Belongings:
    """What this process has at one time: descriptors, threads and children."""

    def __init__(self) -> None:
        gc.collect()
        self.descriptors = {entry.name: _target(entry) for entry in Path("/proc/self/fd").iterdir()}
        self.threads = set(threading.enumerate())
        self.children = set(children_of(os.getpid()))

    def more_than(self, before: Belongings) -> dict[str, Any]:
        """What there is that was not there before."""
        new = {
            "descriptors": {
                number: target
                for number, target in self.descriptors.items()
                if before.descriptors.get(number) != target and target is not None
            },
            "threads": self.threads - before.threads,
            "children": self.children - before.children,
        }
        return {kind: things for kind, things in new.items() if things}


def _target(descriptor: Path) -> str | None:
    try:
        return str(descriptor.readlink())
    except OSError:
        return None  # the one that the folder was read with


def memory() -> int:
    """The bytes of memory that this process has, after a look for what could go."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
