"""The processes of a server: the session that it leads, and everything that came from it.

A server is started in a session of its own, so its pid is also the number of its session and of its process group.
This file is also a program, run by its path: the guardian, which ends the servers of a host that was killed. It
therefore knows nothing of the package, and imports little.
"""

from __future__ import annotations

# Not ``signal``, which makes enumerations of all that and takes as long to load as the rest of the guardian.
import _signal as signal  # type: ignore[import-not-found]
import os
import sys
import time
from collections.abc import Iterable, Iterator

__all__ = ["MARK", "Tree", "file_name", "main", "marked", "start_time"]

#: The variable that a server, and with it all that comes from it, has in its environment, with a value of its own.
MARK = "MCPLUMB_TREE"
#: How often the guardian looks whether a tree is gone, in seconds.
_POLL = 0.02
#: How often a tree is looked through for newcomers before it is killed. One look is enough, unless somebody forks.
_LOOKS = 10
#: How long a server that the host has begun to start may take to be seen, in seconds.
_BIRTH = 1.0
_CHUNK = 65536
_PAGE = 4096


def marked(mark: str) -> list[int]:
    """The processes that have this value of `MARK` in their environment, where /proc can tell."""
    wanted = _written(mark)
    return [pid for pid in _look() or () if wanted in _environment(pid)]


def start_time(pid: int) -> int:
    """When a process started, in the kernel's ticks: together with the pid it names a process for good. 0: unknown."""
    try:
        return _Process(_read(f"/proc/{pid}/stat")).start
    except OSError:
        return 0


def file_name(fd: int, pid: int | str = "self") -> str:
    """What the kernel calls an open file of a process; for a pipe, both ends are called the same. Empty: unknown."""
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}")  # noqa: PTH115 - a path object is no help here, and slow to import
    except OSError:
        return ""


class Tree:
    """A session and its descendants, which are remembered once they were seen.

    A descendant that left the session is found by its parent. When that has ended, it is found by the value of `MARK`
    in its environment, or because it was seen before.
    A number that cannot be a server's session (our own, or a special one) is a `ValueError`.
    """

    __slots__ = ("_mark", "_seen", "_start", "_strangers", "session")

    def __init__(self, session: int, start: int = 0, mark: str = "") -> None:
        if session <= 1 or session in (os.getpid(), os.getpgrp(), os.getsid(0)):
            raise ValueError(f"{session} is not the session of a server.")
        self.session = session
        self._start = start
        self._mark = _written(mark) if mark else b""
        self._seen: dict[int, int] = {}
        #: Processes without the mark. It comes with a start, so that they will never have it.
        self._strangers: dict[int, int] = {}

    def members(self) -> dict[int, int]:
        """The living members, each with its process group. Zombies do not live.

        Without /proc nobody can tell who they are: the session's number stands for the whole process group.
        """
        table = _look()
        if table is None:
            return {self.session: self.session} if _send(-self.session, 0) else {}
        found = {pid for pid, start in self._seen.items() if pid in table and table[pid].start == start}
        found |= self._marked(table)
        sessions = {table[pid].session for pid in found}
        if self._is_ours(table):
            found.add(self.session)
            sessions.add(self.session)
        # A process gets its session from its parent, or opens a new one. So a session in which one member is belongs
        # to the tree as a whole.
        while more := {
            pid
            for pid, process in table.items()
            if pid not in found and (process.parent in found or process.session in sessions)
        }:
            found |= more
            sessions.update(table[pid].session for pid in more)
        alive = {pid: table[pid] for pid in found if pid in table and table[pid].is_alive}
        self._seen = {pid: process.start for pid, process in alive.items()}
        return {pid: process.group for pid, process in alive.items()}

    def signal(self, number: int) -> None:
        """Send a signal to all members. SIGKILL stops all of them first: who is stopped starts nobody unseen."""
        found = self.members()
        if number == signal.SIGKILL:
            stopped: set[int] = set()
            for _ in range(_LOOKS):
                if stopped.issuperset(found):
                    break
                self._send_to(found, signal.SIGSTOP)
                stopped.update(found)
                found = self.members()
        self._send_to(found, number)

    def _send_to(self, found: dict[int, int], number: int) -> None:
        if self.session in found.values():
            _send(-self.session, number)
        for pid, group in found.items():
            if group != self.session:
                _send(pid, number)

    def _marked(self, table: dict[int, _Process]) -> set[int]:
        if not self._mark:
            return set()
        strangers, self._strangers = self._strangers, {}
        found = set()
        for pid, process in table.items():
            if process.start < self._start:
                continue  # it is older than the server
            if strangers.get(pid) != process.start and self._mark in _environment(pid):
                found.add(pid)
            else:
                self._strangers[pid] = process.start
        return found

    def _is_ours(self, table: dict[int, _Process]) -> bool:
        """Whether the number still means the session that it meant in the beginning.

        A number is not given away while any process has it as its pid, its group or its session. While the host lives,
        it has not reaped the server, and the number is taken. After its death init reaps. If a process of that number
        is there but started at another time, then the number was free in between: the session had ended, and this is
        another one. If there is none, those who have the number as their session have had it all the time, for another
        session would have had to begin and lose its leader since the host's death or the last look: milliseconds.
        """
        leader = table.get(self.session)
        return leader is None or not self._start or leader.start == self._start


class _Process:
    """What the kernel says about a process."""

    __slots__ = ("group", "is_alive", "parent", "session", "start")

    def __init__(self, stat: bytes) -> None:
        # The program's name comes before, in brackets, and may have brackets and spaces itself.
        fields = stat[stat.rindex(b")") + 1 :].split(None, 20)
        self.parent, self.group, self.session = (int(field) for field in fields[1:4])
        # One whose first thread has ended is called a zombie, although its other threads go on.
        self.is_alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
        self.start = int(fields[19])


def _look() -> dict[int, _Process] | None:
    """All processes but the first one, this one and those of its session; None where that cannot be told."""
    own_pid, own_session = os.getpid(), os.getsid(0)
    table = {}
    try:
        if int(_read("/proc/self/stat").split()[0]) != own_pid:
            return None  # it tells of another namespace
        with os.scandir("/proc") as entries:
            names = [entry.name for entry in entries if entry.name.isdecimal()]
        for pid in map(int, names):
            try:
                process = _Process(_read(f"/proc/{pid}/stat"))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has ended, or belongs to somebody else
            if pid not in (1, own_pid) and process.session != own_session:
                table[pid] = process
    except OSError:  # there is no /proc, or no descriptor is free
        return None
    return table


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        text = chunk = os.read(fd, _PAGE)
        while len(chunk) == _PAGE:  # which only an environment fills
            chunk = os.read(fd, _PAGE)
            text += chunk
        return text
    finally:
        os.close(fd)


def _written(mark: str) -> bytes:
    return f"\0{MARK}={mark}\0".encode()


def _environment(pid: int) -> bytes:
    """The variables that a process was started with, each between two null bytes; none if that is not for us."""
    try:
        return b"\0" + _read(f"/proc/{pid}/environ")
    except OSError:
        return b""


def _send(target: int, number: int) -> bool:
    """Signal a process, or a group by its number below zero. False if nobody is there whom a signal would reach."""
    try:
        os.kill(target, number)
    except (ProcessLookupError, PermissionError):  # macOS denies permission for a group of zombies
        return False
    return True


# --- The guardian ---


def main() -> None:
    """Take orders from the arguments and from stdin; when that ends, end every tree that is still guarded.

    An order is ``+ who start_time mark close_wait term_wait kill_wait``, or ``- who``, with a server's pid; or with
    the name of a pipe, for a server that is about to be started and will have it as its stdin. What is no order is
    skipped, and so is a last line without an end.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # what may end the host must not end its guardian
        signal.signal(number, signal.SIG_IGN)
    guarded: dict[str, Iterator[bool]] = {}
    for order in sys.argv[1:]:
        _obey(order, guarded)
    rest = b""
    while chunk := os.read(0, _CHUNK):
        *orders, rest = (rest + chunk).split(b"\n")
        for line in orders:
            _obey(line.decode(errors="replace"), guarded)
    _end_all(guarded.values())


def _obey(order: str, guarded: dict[str, Iterator[bool]]) -> None:
    try:
        match order.split():
            case ["+", who, start, mark, *waits]:
                close_wait, term_wait, kill_wait = map(float, waits)
                if who.isdecimal():
                    guarded[who] = _end(Tree(int(who), int(start), mark), close_wait, term_wait, kill_wait)
                else:
                    guarded[who] = _end_newborn(who, mark, close_wait, term_wait, kill_wait)
            case ["-", who]:
                guarded.pop(who, None)
    except ValueError:
        return


def _end_all(ladders: Iterable[Iterator[bool]]) -> None:
    while ladders := [ladder for ladder in ladders if next(ladder, False)]:
        time.sleep(_POLL)


def _end(tree: Tree, close_wait: float, term_wait: float, kill_wait: float) -> Iterator[bool]:
    """End a tree by the stop ladder, and yield while there is something to wait for. Its input has ended already."""
    deadline = time.monotonic() + close_wait
    while tree.session in tree.members() and time.monotonic() < deadline:
        yield True
    for number, wait in ((signal.SIGTERM, term_wait), (signal.SIGKILL, kill_wait)):
        tree.signal(number)
        deadline = time.monotonic() + wait
        while tree.members() and time.monotonic() < deadline:
            yield True


def _end_newborn(pipe: str, mark: str, close_wait: float, term_wait: float, kill_wait: float) -> Iterator[bool]:
    """The same for a server of which nothing is known but its stdin. Perhaps it was never born."""
    deadline = time.monotonic() + _BIRTH
    while not (found := _readers(pipe, mark)) and time.monotonic() < deadline:
        yield True
    for tree in found:
        yield from _end(tree, close_wait, term_wait, kill_wait)


def _readers(pipe: str, mark: str) -> list[Tree]:
    # Who does not lead a session yet is still in that of the host, which must come to no harm.
    leaders = [(pid, process.start) for pid, process in (_look() or {}).items() if process.session == pid]
    return [Tree(pid, start, mark) for pid, start in leaders if file_name(0, pid) == pipe]


if __name__ == "__main__":
    main()
