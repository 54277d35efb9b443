"""How much memory the processes of a server take."""

from __future__ import annotations

import os
import subprocess

__all__ = ["memory_of"]

#: Seconds for ``ps`` to answer.
_PATIENCE = 5.0


def memory_of(pid: int) -> tuple[int, int] | None:
    """The resident bytes of a server's processes, and how many these are; None where that cannot be told.

    What they share is counted for each of them.
    """
    from mcplumb.transports.trees import Tree

    try:
        members = list(Tree(pid).members())
    except ValueError:  # it leads no session
        return None
    sizes = [size for size in map(_resident, members) if size is not None] or _asked(members)
    return (sum(sizes), len(sizes)) if sizes else None


def _resident(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # it has ended, or there is no /proc
        return None


def _asked(group: list[int]) -> list[int]:
    """The same where there is no /proc, for a process group. In the command every word is ours or a number."""
    if not group:
        return []
    command = ["ps", "-A", "-o", "pgid=,rss="]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PATIENCE, check=True, stdin=subprocess.DEVNULL)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [line.split() for line in done.stdout.splitlines()]
    return [int(row[1]) * 1024 for row in rows if len(row) == 2 and row[0].isdigit() and int(row[0]) in group]
