"""The process tree of a server: the session that it leads, and all its descendants.

A server is started in a session of its own, so its pid is also the id of its session and of its process group.

This file is also the watchdog's program, which stops the servers of a host process that was killed. It is run by its
path, so it imports nothing of the package, and little else.
"""

from __future__ import annotations

# Not ``signal``, whose enumerations take as long to import as the rest of the watchdog.
import _signal as signal  # type: ignore[import-not-found]
import os
import sys
import time
from collections.abc import Iterable, Iterator

__all__ = ["MARK", "Tree", "file_name", "main", "marked", "start_time"]

#: The environment variable that marks a server and its descendants, with a different value for each server.
MARK = "MCPLUMB_TREE"
_PAGE = 4096
#: How often a tree is searched for new members before it is killed. Once is enough, unless a member forks meanwhile.
_MOST_SEARCHES = 10


def marked(mark: str) -> list[int]:
    """Return the processes that have this value of `MARK` in their environment; none where there is no /proc."""
    wanted = _env_entry(mark)
    return [pid for pid in _process_table() or () if wanted in _environment(pid)]


def start_time(pid: int) -> int:
    """Return the start time of a process in kernel ticks, which with the pid identifies it for good; 0 if unknown."""
    try:
        return _Process(_read(f"/proc/{pid}/stat")).start
    except OSError:
        return 0


def file_name(fd: int, pid: int | str = "self") -> str:
    """Return the kernel's name for an open file of a process, the same for both ends of a pipe; empty if unknown."""
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}")  # noqa: PTH115 - pathlib is slow to import
    except OSError:
        return ""


class Tree:
    """A session and its descendants, which are remembered once they were seen.

    A descendant that left the session is found by its parent. After the parent has exited, it is found by the value of
    `MARK` in its environment, or because it was seen before.

    Raises `ValueError` for a number that cannot be a server's session (this process's own, or a special one).
    """

    __slots__ = ("_mark", "_seen", "_start", "_unmarked", "session")

    def __init__(self, session: int, start: int = 0, mark: str = "") -> None:
        if session <= 1 or session in (os.getpid(), os.getpgrp(), os.getsid(0)):
            raise ValueError(f"{session} is not the session of a server.")
        self.session = session
        self._start = start
        self._mark = _env_entry(mark) if mark else b""
        self._seen: dict[int, int] = {}
        #: Processes known to lack the mark. The mark is set at a process's start, so they never get it.
        self._unmarked: dict[int, int] = {}

    def members(self) -> dict[int, int]:
        """Return the pids of the living members, with their process groups. Zombies are not included.

        Without /proc the members cannot be listed: the session's number stands for the whole process group.
        """
        table = _process_table()
        if table is None:
            return {self.session: self.session} if _send(-self.session, 0) else {}
        found = {pid for pid, start in self._seen.items() if pid in table and table[pid].start == start}
        found |= self._marked(table)
        sessions = {table[pid].session for pid in found}
        if self._is_ours(table):
            found.add(self.session)
            sessions.add(self.session)
        # A process inherits its session or creates a new one. So if one process of a session is a member, all are.
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
        """Send a signal to all members. Before SIGKILL, all are stopped: a stopped process cannot fork unseen."""
        found = self.members()
        if number == signal.SIGKILL:
            stopped: set[int] = set()
            for _ in range(_MOST_SEARCHES):
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
        unmarked, self._unmarked = self._unmarked, {}
        found = set()
        for pid, process in table.items():
            if process.start < self._start:
                continue  # it is older than the server
            if unmarked.get(pid) != process.start and self._mark in _environment(pid):
                found.add(pid)
            else:
                self._unmarked[pid] = process.start
        return found

    def _is_ours(self, table: dict[int, _Process]) -> bool:
        """Return whether the session's number still means the server's session.

        The kernel does not reuse a number while a process has it as its pid, group or session. While the host process
        lives, it has not reaped the server, so the number is taken. After the host's death, init reaps the server. If a
        process has the number as its pid but another start time, the number was reused: the session has ended. If no
        process has it as its pid, the processes of that session belong to the server: another session with this number
        would have had to start and lose its leader within the milliseconds since the last search.
        """
        leader = table.get(self.session)
        return leader is None or not self._start or leader.start == self._start


class _Process:
    """A process as /proc describes it."""

    __slots__ = ("group", "is_alive", "parent", "session", "start")

    def __init__(self, stat: bytes) -> None:
        # The program's name comes first, in parentheses, and may itself contain parentheses and spaces.
        fields = stat[stat.rindex(b")") + 1 :].split(None, 20)
        self.parent, self.group, self.session = (int(field) for field in fields[1:4])
        # A process whose first thread has exited is shown as a zombie, although its other threads run.
        self.is_alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
        self.start = int(fields[19])


def _process_table() -> dict[int, _Process] | None:
    """Return all processes except init, this process and those of its session; None where /proc cannot be used."""
    own_pid, own_session = os.getpid(), os.getsid(0)
    table = {}
    try:
        if int(_read("/proc/self/stat").split()[0]) != own_pid:
            return None  # /proc is that of another pid namespace
        with os.scandir("/proc") as entries:
            names = [entry.name for entry in entries if entry.name.isdecimal()]
        for pid in map(int, names):
            try:
                process = _Process(_read(f"/proc/{pid}/stat"))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has exited, or belongs to another user
            if pid not in (1, own_pid) and process.session != own_session:
                table[pid] = process
    except OSError:  # there is no /proc, or no descriptor is free
        return None
    return table


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)
    try:
        text = chunk = os.read(fd, _PAGE)
        while len(chunk) == _PAGE:  # only environments are that long
            chunk = os.read(fd, _PAGE)
            text += chunk
        return text
    finally:
        os.close(fd)


def _env_entry(mark: str) -> bytes:
    return f"\0{MARK}={mark}\0".encode()


def _environment(pid: int) -> bytes:
    """Return the variables that a process was started with, each between two NUL bytes; empty if not permitted."""
    try:
        return b"\0" + _read(f"/proc/{pid}/environ")
    except OSError:
        return b""


def _send(target: int, number: int) -> bool:
    """Signal a process, or a process group by its negated number. Return False if there is no process to signal."""
    try:
        os.kill(target, number)
    except (ProcessLookupError, PermissionError):  # macOS denies permission for a group of zombies
        return False
    return True


# The watchdog's program


#: Seconds between two checks whether a tree is gone.
_POLL = 0.02
#: Seconds to wait for a server whose start the host process has announced to appear in /proc.
_START_TIMEOUT = 1.0
_CHUNK = 65536


def main() -> None:
    """Read instructions from the arguments and from stdin; when stdin ends, stop every tree that is registered.

    ``+ server start_time mark close_wait term_wait kill_wait`` registers a server, ``- server`` removes it. ``server``
    is its pid or, for a server that is about to be started, the name of the pipe that becomes its stdin. Invalid
    instructions are ignored, and so is a last line without a newline.
    """
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # a signal that stops the host may reach its watchdog
        signal.signal(number, signal.SIG_IGN)
    registered: dict[str, Iterator[bool]] = {}
    for instruction in sys.argv[1:]:
        _apply(instruction, registered)
    rest = b""
    while chunk := os.read(0, _CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            _apply(line.decode(errors="replace"), registered)
    _run_all(registered.values())


def _apply(instruction: str, registered: dict[str, Iterator[bool]]) -> None:
    try:
        match instruction.split():
            case ["+", server, start, mark, *waits]:
                close_wait, term_wait, kill_wait = map(float, waits)
                if server.isdecimal():
                    registered[server] = _stop(Tree(int(server), int(start), mark), close_wait, term_wait, kill_wait)
                else:
                    registered[server] = _stop_starting(server, mark, close_wait, term_wait, kill_wait)
            case ["-", server]:
                registered.pop(server, None)
    except ValueError:
        return


def _run_all(ladders: Iterable[Iterator[bool]]) -> None:
    while ladders := [ladder for ladder in ladders if next(ladder, False)]:
        time.sleep(_POLL)


def _stop(tree: Tree, close_wait: float, term_wait: float, kill_wait: float) -> Iterator[bool]:
    """Stop a tree by the stop ladder; yield while it has to wait. The server's stdin is closed already."""
    deadline = time.monotonic() + close_wait
    while tree.session in tree.members() and time.monotonic() < deadline:
        yield True
    for number, wait in ((signal.SIGTERM, term_wait), (signal.SIGKILL, kill_wait)):
        tree.signal(number)
        deadline = time.monotonic() + wait
        while tree.members() and time.monotonic() < deadline:
            yield True


def _stop_starting(pipe: str, mark: str, close_wait: float, term_wait: float, kill_wait: float) -> Iterator[bool]:
    """Find a server by its stdin and stop its tree. The host process may have died before it started the server."""
    deadline = time.monotonic() + _START_TIMEOUT
    while not (found := _trees_reading(pipe, mark)) and time.monotonic() < deadline:
        yield True
    for tree in found:
        yield from _stop(tree, close_wait, term_wait, kill_wait)


def _trees_reading(pipe: str, mark: str) -> list[Tree]:
    # Only session leaders: a server that does not lead one yet is still in the session of the host process.
    leaders = [(pid, process.start) for pid, process in (_process_table() or {}).items() if process.session == pid]
    return [Tree(pid, start, mark) for pid, start in leaders if file_name(0, pid) == pipe]


if __name__ == "__main__":
    main()
