"""Who belongs to a server, and that all of them end; and the watchdog, which ends them when nobody else can."""

from __future__ import annotations

import os
import resource
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

import pytest

from mcplumb.transports.process import tree
from mcplumb.transports.process.exit_watch import Exit, has_exited, peek, reap
from mcplumb.transports.process.tree import Tree, file_name, start_time
from tests.kit.loop import PATIENCE
from tests.transports.families import Family, is_gone, members, signal_tree, wait_until

KINDS = ("plain", "own-group", "own-session", "own-session-of-two", "orphan", "headless")
LONG = 10_000.0
#: Other workers run these tests at the same time.
MARK = f"m{os.getpid()}"


@pytest.fixture
def no_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on systems without /proc."""
    monkeypatch.setattr(tree._Looks, "next", lambda *_: None)


# --- Who belongs to a server ---


@pytest.mark.req("LIF-3")
def test_all_that_live_are_members_wherever_they_went() -> None:
    with Family("stubborn", *KINDS, "zombie") as family:
        living = {pid for kind, pid in family.pids.items() if kind != "zombie"}
        wait_until(lambda: set(members(family.pid)) == living)  # and without those who only gave birth to an orphan
        assert not is_gone(family.pid)
        groups = Tree(family.pid).members()
        assert groups[family.pids["plain"]] == groups[family.pids["orphan"]] == family.pid
        assert groups[family.pids["own-group"]] == family.pids["own-group"]


def test_a_server_that_nobody_has_reaped_does_not_live() -> None:
    with Family("obeys") as family:
        os.kill(family.pid, signal.SIGKILL)
        family.wait_gone()
        wait_until(lambda: is_gone(family.pid))
        assert peek(family.pid) == Exit(signal="SIGKILL")
        assert members(family.pid) == []
        signal_tree(family.pid, signal.SIGKILL)


def test_a_descendant_that_left_is_remembered_when_its_parent_has_ended() -> None:
    with Family("leaves", "own-session") as family:
        tree, forgetful = Tree(family.pid), Tree(family.pid)
        assert set(tree.members()) == set(family.pids.values())
        family.close_input()
        wait_until(lambda: has_exited(family.pid))
        assert list(tree.members()) == [family.pids["own-session"]]
        assert list(forgetful.members()) == []
        tree.signal(signal.SIGTERM)
        family.wait_gone()
        wait_until(lambda: not tree.members())


@pytest.mark.req("LIF-3")
@pytest.mark.parametrize("habit", ["leaves", "crashes"])
def test_a_descendant_that_left_is_known_by_its_mark_if_nobody_has_seen_it_before(habit: str) -> None:
    with (
        Family("leaves", "own-session", "orphan-daemon", mark=MARK) as family,
        Family("stubborn", mark=f"{MARK}x") as other,
    ):
        if habit == "crashes":
            os.kill(family.pid, signal.SIGKILL)
        family.close_input()
        wait_until(lambda: has_exited(family.pid))
        tree = Tree(family.pid, mark=MARK)
        left = {family.pids["own-session"], family.pids["orphan-daemon"]}
        assert set(tree.members()) == left
        assert set(tree.members()) == left, "also at the second look"
        assert other.pid in tree._unmarked
        tree.signal(signal.SIGKILL)
        family.wait_gone()
        wait_until(lambda: not tree.members())
        assert other.is_alive


def test_an_environment_that_is_not_for_us_has_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, flags: int) -> int:
        raise PermissionError(path)

    with Family("obeys") as family:
        looks = tree._Looks()
        looks.next()
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            assert looks.environment(family.pid) == b""


def test_who_comes_to_the_session_of_one_that_is_remembered_belongs_to_it() -> None:
    with Family("leaves", "own-session-of-two") as family:
        leader, newcomer = family.pids["own-session-of-two"], family.pids["orphan-in-other-session"]
        tree = Tree(family.pid)
        wait_until(lambda: set(tree.members()) == set(family.pids.values()))
        del tree._seen[newcomer]  # as if it had come after that look
        family.close_input()
        wait_until(lambda: has_exited(family.pid))
        assert set(tree.members()) == {leader, newcomer}


def test_a_number_that_was_given_away_is_not_the_session_any_more() -> None:
    """The process of that number started at another time than the server did."""
    with Family("obeys", "plain", "own-session") as family:
        start = start_time(family.pid)
        assert set(Tree(family.pid, start).members()) == set(family.pids.values())
        stranger = Tree(family.pid, start + 1)
        assert stranger.members() == {}
        stranger.signal(signal.SIGKILL)
        assert family.is_alive
        assert set(members(family.pid)) == set(family.pids.values())


def test_a_session_without_its_leader_is_still_the_session() -> None:
    with Family("leaves", "plain") as family:
        start = start_time(family.pid)
        family.close_input()
        family.process.wait(PATIENCE)
        assert start_time(family.pid) == 0
        tree = Tree(family.pid, start)
        assert list(tree.members()) == [family.pids["plain"]]
        tree.signal(signal.SIGTERM)
        family.wait_gone()


def test_our_own_session_and_special_numbers_are_no_trees() -> None:
    for number in (-1, 0, 1, os.getpid(), os.getpgrp(), os.getsid(0)):
        with pytest.raises(ValueError, match=f"{number} is not the session of a server"):
            signal_tree(number, signal.SIGTERM)


def test_a_name_with_brackets_does_not_confuse(tmp_path: Path) -> None:
    program = tmp_path / "a) Z 1 (b"
    program.symlink_to(sys.executable)
    code = "import sys; print(open('/proc/self/stat').read(), flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [program, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    with process:
        assert process.stdout is not None
        assert b"(a) Z 1 (b) " in process.stdout.readline()
        assert members(process.pid) == [process.pid]


# --- Signals ---


@pytest.mark.req("LIF-3")
def test_a_kill_reaches_all_members() -> None:
    with Family("stubborn", *KINDS) as family:
        signal_tree(family.pid, signal.SIGTERM)
        wait_until(lambda: set(members(family.pid)) == set(family.pids.values()))
        signal_tree(family.pid, signal.SIGKILL)
        family.wait_gone()
        wait_until(lambda: is_gone(family.pid))
        assert reap(family.pid) == Exit(signal="SIGKILL")


def test_a_term_reaches_all_members() -> None:
    with Family("obeys", *KINDS) as family:
        signal_tree(family.pid, signal.SIGTERM)
        family.wait_gone()
        wait_until(lambda: is_gone(family.pid))


BREEDING = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.write(1, b"x")
while True:
    if not os.fork():
        os.setsid()
        time.sleep(1000)
    time.sleep(0.0005)
"""


def test_who_starts_others_all_the_time_is_ended_with_all_of_them() -> None:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", BREEDING], stdout=subprocess.PIPE, start_new_session=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"
        wait_until(lambda: len(members(process.pid)) > 10)
        signal_tree(process.pid, signal.SIGKILL)
        assert process.stdout.read() == b""  # they all had it


def test_who_cannot_be_caught_up_with_does_not_hold_us_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with members of another user, who cannot be stopped: at each look there is somebody new."""
    numbers = iter(range(10_000, 20_000))
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(tree, "_send", lambda target, number: sent.append((target, number)))
    monkeypatch.setattr(tree, "_pids", lambda: [next(numbers)])
    read = tree._read
    stat = b"1 (x) S 1 5 4000000 0 -1 0 " + b"0 " * 12 + b"7 " + b"0 " * 25
    monkeypatch.setattr(tree, "_read", lambda path: read(path) if "self" in path else stat)
    newcomers = Tree(4_000_000)
    newcomers.signal(signal.SIGKILL)
    assert [number for _, number in sent] == [signal.SIGSTOP] * tree._MOST_LOOKS + [signal.SIGKILL]
    assert not newcomers.is_gone()


# --- Without /proc ---


@pytest.mark.usefixtures("no_proc")
def test_without_proc_the_group_stands_for_the_tree() -> None:
    with Family("stubborn", "plain", "orphan") as family:
        assert members(family.pid) == [family.pid]
        assert not is_gone(family.pid)
        signal_tree(family.pid, signal.SIGKILL)
        family.wait_gone()
    with Family("leaves") as family:
        family.close_input()
        family.process.wait(PATIENCE)
        assert is_gone(family.pid)
        signal_tree(family.pid, signal.SIGKILL)


def test_what_may_not_be_signalled_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the groups of other users are, and on macOS those of zombies."""

    def deny(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", deny)
    monkeypatch.setattr(tree._Looks, "next", lambda *_: None)
    assert is_gone(4_000_000)


def test_a_proc_that_cannot_be_read_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        assert tree._Looks().next() is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    monkeypatch.setattr(os, "getpid", lambda: 4_000_000)
    assert tree._Looks().next() is None


# --- /proc is not read in one moment ---


class Unsteady:
    """A /proc in which some files cannot be read as often as is said, and are then what they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.faults: dict[str, list[bytes | OSError]] = {}
        self._read = tree._read
        monkeypatch.setattr(tree, "_read", self.read)

    def read(self, path: str) -> bytes:
        faults = self.faults.get(path)
        if not faults:
            return self._read(path)
        fault = faults.pop(0)
        if isinstance(fault, bytes):
            return fault
        raise fault


@pytest.fixture
def unsteady(monkeypatch: pytest.MonkeyPatch) -> Unsteady:
    return Unsteady(monkeypatch)


@pytest.mark.req("LIF-3")
def test_who_ends_during_a_look_makes_us_look_again(unsteady: Unsteady, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was listed has exited before it is read, and its child was not there when they were listed."""
    with Family("leaves", "orphan-daemon", mark=MARK) as family:
        family.close_input()
        wait_until(lambda: has_exited(family.pid))
        child, parent = family.pids["orphan-daemon"], 4_000_000
        lists = [[parent]]
        pids = tree._pids
        monkeypatch.setattr(tree, "_pids", lambda: lists.pop() if lists else pids())
        unsteady.faults[f"/proc/{parent}/stat"] = [ProcessLookupError()]
        assert list(Tree(family.pid, mark=MARK).members()) == [child]
        assert lists == []
        lists.append([])
        assert not Tree(family.pid, mark=MARK).is_gone(), "one look at nothing is not enough"


@pytest.mark.req("LIF-3")
@pytest.mark.parametrize("times", [1, 5])
def test_who_is_in_the_middle_of_an_exec_has_no_environment_yet(unsteady: Unsteady, times: int) -> None:
    with Family("leaves", "orphan-daemon", mark=MARK) as family:
        family.close_input()
        wait_until(lambda: has_exited(family.pid))
        child = family.pids["orphan-daemon"]
        unsteady.faults[f"/proc/{child}/environ"] = [b""] * times
        family_tree = Tree(family.pid, mark=MARK)
        assert list(family_tree.members()) == [child]
        family_tree._seen.clear()
        unsteady.faults[f"/proc/{child}/environ"] = [ProcessLookupError()] * times
        assert list(family_tree.members()) == [child]
        family_tree._seen.clear()
        unsteady.faults[f"/proc/{child}/environ"] = [b""] * 100
        assert not family_tree.is_gone()


def test_a_server_that_has_exited_is_gone_at_once() -> None:
    """Also before it is reaped: neither its environment nor that of the kernel's threads is waited for."""
    with Family("leaves", mark=MARK) as family:
        start = start_time(family.pid)
        family.close_input()
        wait_until(lambda: has_exited(family.pid))
        family_tree = Tree(family.pid, start, MARK)
        wait_until(family_tree.is_gone)
        assert family.pid not in {pid for pid, _ in family_tree._bare}


def test_an_exec_that_takes_too_long_is_none(unsteady: Unsteady, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the kernel does not tell whether a process has no environment or none yet."""
    monkeypatch.setattr(tree, "_EXEC_TIMEOUT", 0.0)
    with Family("leaves", "orphan-daemon", mark=MARK) as family:
        family.close_input()
        wait_until(lambda: has_exited(family.pid))
        unsteady.faults[f"/proc/{family.pids['orphan-daemon']}/environ"] = [b""]
        wait_until(Tree(family.pid, mark=MARK).is_gone)


def test_a_process_that_was_given_no_environment_is_no_riddle() -> None:
    with subprocess.Popen(["/bin/sleep", "1000"], env={}, start_new_session=True) as bare:
        looks = tree._Looks()
        wait_until(lambda: bare.pid in (looks.next() or {}) and looks.environment(bare.pid) == b"")
        bare.kill()


def test_who_comes_after_a_signal_gets_it_too() -> None:
    """Each gets it once."""
    code = (
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
        "os.write(1, b'x')\n"
        "while True:\n"
        "    signal.sigwait({signal.SIGTERM})\n"
        "    os.write(1, b't')\n"
        "    if not os.fork():\n"
        "        os.setsid()\n"
        "        os.write(1, b'n')\n"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        fd = process.stdout.fileno()
        assert os.read(fd, 10) == b"x"
        family_tree = Tree(process.pid)
        family_tree.signal(signal.SIGTERM)
        said = ""
        while sorted(said) != ["n", "t"]:
            said += os.read(fd, 10).decode()
        assert len(family_tree.members()) == 2
        family_tree.signal_again(signal.SIGTERM)
        said = ""
        while sorted(said) != ["n", "t"]:
            said += os.read(fd, 10).decode()
        assert len(family_tree.members()) == 3
        family_tree.signal_again(signal.SIGKILL)
        assert os.read(fd, 10) == b""
        wait_until(family_tree.is_gone)


# --- The watchdog ---


class WatchdogProcess:
    """The program, at the other end of a pipe."""

    def __init__(self, *orders: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", tree.__file__, *orders], stdin=subprocess.PIPE, start_new_session=True
        )
        assert self.process.stdin is not None
        self.stdin = self.process.stdin

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        with self.process:
            pass

    def end(self, last_words: str = "") -> None:
        """Let its input end, and wait until it has done its work."""
        self.stdin.write(last_words.encode())
        self.stdin.close()
        assert self.process.wait(PATIENCE) == 0

    @property
    def ignored(self) -> int:
        """The signals that it ignores, as a mask."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1], 16) for line in lines if line.startswith("SigIgn"))


def order(
    family: Family, close_wait: float = 0, term_wait: float = 0, *, start: int | None = None, mark: str = "-"
) -> str:
    start = start_time(family.pid) if start is None else start
    return f"+ {family.pid} {start} {mark} {close_wait} {term_wait} {PATIENCE}"


@pytest.mark.req("LIF-4")
def test_who_ignores_everything_is_killed() -> None:
    with Family("stubborn", *KINDS) as family, WatchdogProcess(order(family)) as watchdog:
        watchdog.end()
        family.wait_gone()
        assert reap(family.pid) == Exit(signal="SIGKILL")


def test_who_leaves_by_itself_is_not_signalled() -> None:
    with Family("leaves") as family, WatchdogProcess(order(family, LONG, LONG)) as watchdog:
        watchdog.stdin.close()
        assert family.is_alive
        family.close_input()
        assert watchdog.process.wait(PATIENCE) == 0
        assert reap(family.pid) == Exit(code=0)


def test_who_obeys_is_not_killed() -> None:
    with Family("obeys") as family, WatchdogProcess(order(family, 0, LONG)) as watchdog:
        watchdog.end()
        assert reap(family.pid) == Exit(signal="SIGTERM")


@pytest.mark.req("LIF-3", "LIF-4")
def test_what_has_become_independent_is_ended_too() -> None:
    with Family("leaves", "orphan-daemon", mark="m") as family:
        with WatchdogProcess(order(family, LONG, LONG, mark="m")) as watchdog:
            watchdog.stdin.close()
            family.close_input()
            assert watchdog.process.wait(PATIENCE) == 0
        family.wait_gone()


@pytest.mark.req("LIF-3", "LIF-4")
def test_what_a_server_leaves_behind_is_ended_at_once() -> None:
    with (
        Family("leaves", "plain", "own-group", "orphan") as family,
        WatchdogProcess(order(family, LONG, LONG)) as watchdog,
    ):
        watchdog.stdin.close()
        family.close_input()
        assert watchdog.process.wait(PATIENCE) == 0
        family.wait_gone()
        assert reap(family.pid) == Exit(code=0)


def test_orders_can_be_given_and_taken_back_at_any_time() -> None:
    with (
        Family("obeys") as first,
        Family("obeys") as second,
        Family("obeys") as third,
        WatchdogProcess(order(first), order(second)) as watchdog,
    ):
        watchdog.stdin.write(f"- {first.pid}\n{order(third)}\n".encode())
        watchdog.stdin.flush()
        watchdog.end(f"- {first.pid}\n")
        second.wait_gone()
        third.wait_gone()
        assert first.is_alive


@pytest.mark.req("LIF-4")
def test_a_server_that_is_being_started_is_known_by_its_stdin() -> None:
    read_end, write_end = os.pipe()
    with Family("stubborn", "plain", stdin=read_end) as family:
        name = file_name(write_end)
        assert file_name(0, family.pid) == name != ""
        with WatchdogProcess(f"+ {name} 0 - 0 0 {PATIENCE}", f"- {name}") as watchdog:
            watchdog.end()
            assert family.is_alive
        with WatchdogProcess(f"+ {name} 0 - 0 0 {PATIENCE}") as watchdog:
            watchdog.end()
            family.wait_gone()
    os.close(read_end)
    os.close(write_end)


def test_who_shares_the_pipe_without_a_session_of_its_own_is_no_server() -> None:
    """As a server before it has left the session of its host, which is none of the watchdog's business."""
    read_end, write_end = os.pipe()
    name = file_name(read_end)
    command = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=read_end) as process:
        with WatchdogProcess(f"+ {name} 0 - 0 0 {PATIENCE}") as watchdog:
            watchdog.end()
        assert process.poll() is None
        os.close(write_end)
        os.close(read_end)
        assert process.wait(PATIENCE) == 0


def test_orders_may_come_in_pieces() -> None:
    with Family("obeys") as family, WatchdogProcess() as watchdog:
        for letter in f"{order(family)}\n":
            watchdog.stdin.write(letter.encode())
            watchdog.stdin.flush()
        watchdog.end()
        family.wait_gone()


def test_what_is_no_order_is_skipped() -> None:
    with Family("obeys") as spared, Family("obeys") as ended:
        nonsense = f"\n+\n-\n+ {spared.pid}\n* {spared.pid} 0 0 0 0\n+ {spared.pid} x 0 0 0\n- x\n+ 1 0 0 0 0\n"
        with WatchdogProcess("", "nonsense") as watchdog:
            watchdog.end(f"{nonsense}{order(ended)}\n{order(spared)}")
            ended.wait_gone()
            assert spared.is_alive


def test_a_stranger_with_the_same_number_is_spared() -> None:
    with Family("obeys") as family, WatchdogProcess(order(family, start=start_time(family.pid) + 1)) as watchdog:
        watchdog.end()
        assert family.is_alive


@pytest.mark.req("LIF-4")
def test_what_ends_a_host_does_not_end_its_watchdog() -> None:
    deadly = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    mask = sum(1 << (number - 1) for number in deadly)
    with Family("stubborn") as family, WatchdogProcess(order(family)) as watchdog:
        wait_until(lambda: watchdog.ignored & mask == mask)
        for number in deadly:
            watchdog.process.send_signal(number)
        watchdog.end()
        family.wait_gone()


def test_the_watchdog_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the watchdog's program in this process, where the coverage of its lines is measured."""
    deadly = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in deadly]
    stdin = os.dup(0)
    try:
        with (
            Family("leaves", "plain") as leaving,
            Family("obeys") as obeying,
            Family("stubborn") as stubborn,
            Family("obeys") as newborn,
        ):
            leaving.close_input()
            monkeypatch.setattr(sys, "argv", ["trees.py", order(obeying, 0.1, LONG), "nonsense", "+ 1 x - 0 0 0"])
            pipe = file_name(0, newborn.pid)
            feed(
                f"{order(leaving, LONG, LONG)}\n{order(stubborn, 0, 0.1)}\n- 1\n"
                f"+ {pipe} 0 - 0 {LONG} 0\n+ pipe:[0] 0 - 0 0 0\n"
            )
            runpy.run_path(tree.__file__, run_name="__main__")
            leaving.wait_gone()
            assert reap(obeying.pid) == Exit(signal="SIGTERM")
            assert reap(stubborn.pid) == Exit(signal="SIGKILL")
            assert reap(newborn.pid) == Exit(signal="SIGTERM")
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
        for number, handler in zip(deadly, before, strict=True):
            signal.signal(number, handler)


def feed(text: str) -> None:
    """Let stdin be some text."""
    read_end, write_end = os.pipe()
    os.write(write_end, text.encode())
    os.close(write_end)
    os.dup2(read_end, 0)
    os.close(read_end)
