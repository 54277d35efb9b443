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
#: How often one search reads /proc. Two looks agree, unless processes start and exit all the time.
_MOST_LOOKS = 20
#: Seconds after which a process without an environment is no longer taken for one in the middle of an exec.
_EXEC_TIMEOUT = 0.5
#: The kernel's flag for its own threads, which have no environment.
_KERNEL_THREAD = 0x00200000


def marked(mark: str) -> list[int]:
    """Return the processes that have this value of `MARK` in their environment; none where there is no /proc."""
    wanted, looks = _env_entry(mark), _Looks()
    found: set[int] = set()
    while looks.is_wanted and (table := looks.next()) is not None:
        for pid in table:
            environment = looks.environment(pid)
            if environment is None:
                looks.repeat(pid)
            elif wanted in environment:
                found.add(pid)
    return sorted(found)


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

    __slots__ = ("_bare", "_mark", "_seen", "_signalled", "_start", "_unmarked", "session")

    def __init__(self, session: int, start: int = 0, mark: str = "") -> None:
        if session <= 1 or session in (os.getpid(), os.getpgrp(), os.getsid(0)):
            raise ValueError(f"{session} is not the session of a server.")
        self.session = session
        self._start = start
        self._mark = _env_entry(mark) if mark else b""
        self._seen: dict[int, int] = {}
        #: The members, each with its start time, that got the last signal.
        self._signalled: set[tuple[int, int]] = set()
        #: Processes known to lack the mark. The mark is set at a process's start, so they never get it.
        self._unmarked: dict[int, int] = {}
        #: Processes, with their start times, that seem to have no environment, and since when.
        self._bare: dict[tuple[int, int], float] = {}

    def members(self) -> dict[int, int]:
        """Return the pids of the living members, with their process groups. Zombies are not included.

        Without /proc the members cannot be listed: the session's number stands for the whole process group.
        """
        return self._search()[0]

    def is_gone(self) -> bool:
        """Return whether no member is left. False while processes come and go too fast to be sure.

        As long as a member lives that was seen before, this is much faster than a search.
        """
        if any(_is_alive(pid, start) for pid, start in self._seen.items()):
            return False
        found, is_sure = self._search()
        return is_sure and not found

    def signal(self, number: int) -> None:
        """Send a signal to all members. Before SIGKILL, all are stopped: a stopped process cannot fork unseen."""
        found, _ = self._search(stops=number == signal.SIGKILL)
        self._signalled = set()
        self._send_to(found, number)

    def signal_again(self, number: int) -> None:
        """Send a signal to the members that `is_gone` has just found and that `signal` did not reach."""
        new = self._seen.items() - self._signalled
        if new and number == signal.SIGKILL:
            self.signal(number)
        else:
            self._send_to(dict.fromkeys((pid for pid, _ in new), 0), number)

    def _search(self, *, stops: bool = False) -> tuple[dict[int, int], bool]:
        """Return the living members, and whether these are certainly all.

        /proc is read one process at a time, so a member that forks and exits meanwhile hides its child. A search
        therefore goes on until a look has missed nothing, and the second look is the first that counts. If members are
        found, one look is enough, since they will be looked for again; but a search that stops them goes on until no
        other one appears.
        """
        looks = _Looks()
        alive: dict[int, _Process] = {}
        #: Members seen in this search, also those that have exited, and their sessions.
        found: set[int] = set()
        sessions: set[int] = set()
        stopped: set[int] = set()
        while (table := looks.next(found)) is not None:
            self._find(looks, table, found, sessions)
            alive = {pid: table[pid] for pid in found if pid in table and table[pid].is_alive}
            self._seen = {pid: process.start for pid, process in alive.items()}
            if stops and not stopped.issuperset(alive):
                self._send_to({pid: table[pid].group for pid in alive if pid not in stopped}, signal.SIGSTOP)
                stopped.update(alive)
                looks.is_wanted = True
            if not looks.is_wanted or (alive and not stops):
                break
        if table is None and not looks.count:
            return ({self.session: self.session} if _send(-self.session, 0) else {}), True
        return {pid: process.group for pid, process in alive.items()}, not looks.is_wanted

    def _find(self, looks: _Looks, table: dict[int, _Process], found: set[int], sessions: set[int]) -> None:
        """Add the members in the table to those that were found before."""
        found.update(pid for pid, start in self._seen.items() if pid in table and table[pid].start == start)
        found |= self._marked(looks, table)
        sessions.update(table[pid].session for pid in found if pid in table)
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

    def _send_to(self, found: dict[int, int], number: int) -> None:
        self._signalled.update((pid, self._seen.get(pid, 0)) for pid in found)
        if self.session in found.values():
            _send(-self.session, number)
        for pid, group in found.items():
            if group != self.session:
                _send(pid, number)

    def _marked(self, looks: _Looks, table: dict[int, _Process]) -> set[int]:
        if not self._mark:
            return set()
        unmarked, self._unmarked = self._unmarked, {}
        bare, self._bare = self._bare, {}
        found = set()
        for pid, process in table.items():
            if process.start < self._start:
                continue  # it is older than the server
            environment = b"" if unmarked.get(pid) == process.start else looks.environment(pid)
            if environment is None:
                since = bare.get((pid, process.start), time.monotonic())
                if time.monotonic() - since < _EXEC_TIMEOUT:
                    self._bare[pid, process.start] = since
                    looks.repeat(pid)
                    continue
            elif self._mark in environment:
                found.add(pid)
                continue
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

    __slots__ = ("group", "is_alive", "is_bare", "parent", "session", "start")

    def __init__(self, stat: bytes) -> None:
        # The program's name comes first, in parentheses, and may itself contain parentheses and spaces.
        fields = stat[stat.rindex(b")") + 1 :].split()
        self.parent, self.group, self.session = (int(field) for field in fields[1:4])
        # A process whose first thread has exited is shown as a zombie, although its other threads run.
        self.is_alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
        self.start = int(fields[19])
        #: Whether it has no environment at all; during an exec, the addresses of the environment are 0.
        self.is_bare = bool(int(fields[6]) & _KERNEL_THREAD) or fields[47:48] == fields[48:49] != [b"0"]


class _Looks:
    """Successive looks at all processes except init, this process and those of its session.

    The first look reads all of them. A later one reads only the processes that are new, belong to the tree, or were not
    understood, so it is fast enough to catch processes that live for a millisecond.
    """

    __slots__ = ("_again", "_ignored", "_own_session", "_table", "count", "is_wanted")

    def __init__(self) -> None:
        self._own_session = os.getsid(0)
        self._ignored = {1, os.getpid()}
        self._table: dict[int, _Process] = {}
        #: Processes that the next look reads again.
        self._again: set[int] = set()
        self.count = 0
        #: Whether another look is needed: there was none or only one yet, or the last one has missed something.
        self.is_wanted = True

    def next(self, members: Iterable[int] = ()) -> dict[int, _Process] | None:
        """Look again, and return the processes; None if the limit is reached, or /proc cannot be used."""
        if self.count >= _MOST_LOOKS:
            return None
        before, again = self._table, self._again.union(members)
        self._table, self._again, self.is_wanted = {}, set(), not self.count
        try:
            if not self.count and int(_read("/proc/self/stat").split()[0]) != os.getpid():
                return None  # /proc is that of another pid namespace
            # The newest first: they are the likeliest to exit before they are read.
            for pid in reversed(_pids()):
                process = before.get(pid)
                if process is None or (process.is_alive and pid in again):
                    process = self._read(pid)
                if process is not None:
                    self._table[pid] = process
        except OSError:  # there is no /proc, or no descriptor is free
            self.is_wanted = True
            return None
        self.count += 1
        return self._table

    def repeat(self, pid: int) -> None:
        """Read this process again in the next look, because its environment is not known yet."""
        self._again.add(pid)
        self.is_wanted = True

    def environment(self, pid: int) -> bytes | None:
        """Return the variables that a process was started with, each between two NUL bytes; None if not known yet."""
        if not self._table[pid].is_alive:
            return b""
        try:
            if environment := _read(f"/proc/{pid}/environ"):
                return b"\0" + environment
        except PermissionError:
            return b""
        except OSError:  # it has exited, no descriptor is free, or it is a thread of the kernel
            pass
        try:
            # The environment is empty during an exec and during the exit, too.
            return b"" if _Process(_read(f"/proc/{pid}/stat")).is_bare else None
        except OSError:
            return None

    def _read(self, pid: int) -> _Process | None:
        if pid in self._ignored:
            return None
        try:
            process = _Process(_read(f"/proc/{pid}/stat"))
        except PermissionError:
            return None  # it belongs to another user
        except (FileNotFoundError, ProcessLookupError):
            self.is_wanted = True  # it has exited since it was listed, and may have forked before
            return None
        if process.session == self._own_session:
            self._ignored.add(pid)
            return None
        if not process.is_alive:
            self.is_wanted = True  # the same
        return process


def _is_alive(pid: int, start: int) -> bool:
    """Return whether this process, with this start time, is alive."""
    try:
        process = _Process(_read(f"/proc/{pid}/stat"))
    except OSError:
        return False
    return process.is_alive and process.start == start


def _pids() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdecimal()]


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
        while not tree.is_gone() and time.monotonic() < deadline:
            tree.signal_again(number)
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
    leaders = [(pid, process.start) for pid, process in (_Looks().next() or {}).items() if process.session == pid]
    return [Tree(pid, start, mark) for pid, start in leaders if file_name(0, pid) == pipe]


if __name__ == "__main__":
    main()
