"""One guardian for all servers, from the first to the last; and what it does when its host dies."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.transports.process import watchdog
from mcplumb.transports.process.exit_watch import has_exited
from mcplumb.transports.process.watchdog import let_go, let_go_nowait, prepare, watch_over
from tests.kit.loop import PATIENCE
from tests.transports import families
from tests.transports.families import Family, is_running, patient_guardians, read_pids, read_with_patience, wait_until

LADDER = StopLadder(close_wait=0, term_wait=0, kill_wait=PATIENCE)


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(watchdog, "_guards", watchdog._Guards())
    patient_guardians(monkeypatch)
    descriptors = count_descriptors()
    yield
    assert watchdog._guards._guardian is None
    assert watchdog._guards._orders == {}
    assert watchdog._guards.unreaped == set()
    assert count_descriptors() == descriptors


def count_descriptors() -> int:
    gc.collect()
    return len(list(Path("/dev/fd").iterdir()))


def guardian() -> watchdog._Guardian:
    assert watchdog._guards._guardian is not None
    return watchdog._guards._guardian


def is_reaped(pid: int) -> bool:
    """Whether it is no child of ours any more, not even a dead one."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return True
    return False


def kill(pid: int) -> None:
    """Kill a child, and wait until it is dead."""
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def settle(former: int) -> None:
    """Let go, and see that a guardian which was replaced is reaped when the next one is needed."""
    wait_until(lambda: has_exited(former))
    for _ in range(2):
        prepare()
        let_go_nowait()
    assert is_reaped(former)


# --- One guardian ---


def test_a_guardian_lives_from_the_first_server_to_the_last() -> None:
    with Family("obeys") as first, Family("obeys") as second:
        prepare()
        pid = guardian().pid
        watch_over(first.pid, LADDER)
        watch_over(second.pid, LADDER)
        prepare()
        assert guardian().pid == pid
        asyncio.run(let_go(first.pid))
        asyncio.run(let_go(first.pid))
        assert guardian().pid == pid
        assert not has_exited(pid)
        asyncio.run(let_go(second.pid))
        assert is_reaped(pid)
        assert first.is_alive
        assert second.is_alive
        asyncio.run(let_go(second.pid))


def test_a_server_that_is_not_started_needs_no_guardian() -> None:
    prepare()
    pid = guardian().pid
    let_go_nowait()
    assert is_reaped(pid)
    let_go_nowait()


def test_a_server_is_prepared_for_by_its_stdin() -> None:
    read_end, write_end = os.pipe()
    with Family("obeys") as family:
        prepared = prepare(read_end, LADDER)
        assert prepared == prepare(write_end, LADDER) == Path(f"/proc/self/fd/{read_end}").readlink().name
        assert list(watchdog._guards._orders) == [prepared]
        watch_over(family.pid, LADDER, prepared)
        assert list(watchdog._guards._orders) == [str(family.pid)]
        prepared = prepare(read_end, LADDER)
        let_go_nowait(prepared)
        let_go_nowait(family.pid)
    os.close(read_end)
    os.close(write_end)


def test_a_server_can_be_let_go_without_a_loop() -> None:
    with Family("obeys") as first, Family("obeys") as second:
        watch_over(first.pid, LADDER)
        watch_over(second.pid, LADDER)
        pid = guardian().pid
        let_go_nowait(first.pid)
        let_go_nowait()
        assert not has_exited(pid)
        let_go_nowait(second.pid)
        assert is_reaped(pid)


async def test_a_cancelled_let_go_has_let_go() -> None:
    prepare()
    pid = guardian().pid
    task = asyncio.ensure_future(let_go(0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_reaped(pid)


def test_a_guardian_that_takes_its_time_is_reaped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_PATIENCE", 0.0)
    prepare()
    pid = guardian().pid
    asyncio.run(let_go(0))
    assert is_reaped(pid)


def test_a_guardian_that_would_not_end_is_reaped_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with Family("obeys") as family:
        with monkeypatch.context() as patch:
            patch.setattr(watchdog, "_SHORT_PATIENCE", 0.0)
            watchdog._bury(family.pid)
        assert watchdog._guards.unreaped == {family.pid}
        kill(family.pid)
        prepare()
        assert is_reaped(family.pid)
        let_go_nowait()


def test_several_threads_and_loops_share_the_guardian() -> None:
    failures: list[BaseException] = []

    async def use(number: int) -> None:
        for _ in range(20):
            prepare()
            watch_over(number, LADDER)
            await let_go(number)

    def work(number: int) -> None:
        try:
            asyncio.run(use(number))
        except BaseException as error:
            failures.append(error)
            raise

    # No guardian acts in this test, so numbers of no process serve as well.
    threads = [threading.Thread(target=work, args=(5_000_000 + number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []


def test_the_guardian_holds_nothing() -> None:
    prepare()
    about = Path(f"/proc/{guardian().pid}")
    wait_until(lambda: {path.name for path in (about / "fd").iterdir()} == {"0", "1", "2"})
    assert (about / "cwd").readlink() == Path("/")
    assert [(about / "fd" / number).readlink() for number in "12"] == [Path(os.devnull)] * 2
    assert os.getsid(guardian().pid) == guardian().pid
    let_go_nowait()


# --- When something is wrong with it ---


def test_a_guardian_that_was_killed_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    prepare()
    watch_over(5_000_000, LADDER)
    killed = guardian().pid
    kill(killed)
    watch_over(5_000_001, LADDER)
    assert is_reaped(killed)
    assert "The process that guards the servers was ended by SIGKILL." in caplog.text
    command = Path(f"/proc/{guardian().pid}/cmdline")
    wait_until(lambda: command.read_bytes() != b"")
    orders = [argument.split() for argument in command.read_text().split("\0") if argument.startswith("+")]
    assert [order[1] for order in orders] == ["5000000", "5000001"]
    kill(guardian().pid)
    let_go_nowait(5_000_000)
    assert not has_exited(guardian().pid)
    kill(guardian().pid)
    let_go_nowait(5_000_001)


def test_a_guardian_that_has_closed_its_ears_is_replaced() -> None:
    """It is about to end: nothing can be written to it any more, but it has not ended yet."""
    prepare()
    deaf = guardian()
    kept = os.dup(deaf._pipe)  # or it sees the end of its input, and may have ended when it is told something
    read_end, write_end = os.pipe()
    os.close(read_end)
    os.dup2(write_end, deaf._pipe)
    os.close(write_end)
    prepare()
    assert guardian() is not deaf
    settle(deaf.pid)
    os.close(kept)


def test_a_guardian_that_does_not_listen_is_replaced_and_nobody_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    prepare()
    stopped = guardian()
    os.kill(stopped.pid, signal.SIGSTOP)
    fcntl.fcntl(stopped._pipe, fcntl.F_SETPIPE_SZ, 4096)
    while guardian() is stopped:
        prepare()
    assert len(caplog.records) == 1
    assert "Another one takes its place." in caplog.text
    settle(stopped.pid)


@pytest.mark.parametrize(
    ("executable", "said"),
    [
        ("", "there is no Python interpreter to run it"),
        (None, "there is no Python interpreter to run it"),
        ("/no/such/python", "No such file or directory"),
        (shutil.which("false"), "it exited with code 1"),
    ],
)
def test_without_a_guardian_there_is_one_warning(
    executable: str | None, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    prepare()
    if watchdog._guards._guardian is not None:
        wait_until(lambda: has_exited(guardian().pid))
    for number in (5_000_000, 5_000_001):
        watch_over(number, LADDER)
        assert watchdog._guards._guardian is None
    asyncio.run(let_go(5_000_000))
    let_go_nowait(5_000_001)
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING
    assert said in caplog.text
    assert "If this process is killed, they may live on." in caplog.text


def test_a_frozen_program_is_not_started_as_its_own_guardian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    prepare()
    assert watchdog._guards._guardian is None


# --- When the host dies ---

HOST = f"""
import asyncio, os, signal, subprocess, sys, time
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.transports.process import watchdog

PROGRAM = {families.PROGRAM!r}
LADDER = StopLadder(close_wait=0, term_wait=0, kill_wait={PATIENCE})

def say(kind, pid=None):
    os.write(1, f"{{kind}} {{pid or os.getpid()}}\\n".encode())

def serve(*kinds):
    watchdog.prepare()
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, "stubborn", *kinds]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    watchdog.watch_over(server.pid, LADDER)
    server.returncode = 0
    return server

def guardian():
    return watchdog._guards._guardian.pid

def stay():
    time.sleep(1000)
"""


class Host:
    """A process with servers. It and all of its servers have the write end of one pipe."""

    def __init__(self, code: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOST + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout.fileno()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        with self.process:
            pass

    def read_pids(self, count: int) -> dict[str, int]:
        return read_pids(self.stdout, count)

    def wait_gone(self) -> None:
        """Wait until it and its servers are gone. What they said in the meantime is lost."""
        while read_with_patience(self.stdout):
            pass


@pytest.mark.req("LIF-4")
def test_a_host_that_is_killed_leaves_nothing_behind() -> None:
    with Host("serve('plain', 'own-session'); serve(); say('guardian', guardian()); stay()") as host:
        pids = host.read_pids(5)
        host.process.kill()
        host.wait_gone()
        wait_until(lambda: not is_running(pids["guardian"]))


@pytest.mark.req("LIF-4")
def test_a_host_that_is_killed_right_after_the_start_leaves_nothing_behind() -> None:
    """Neither the guardian nor the server had the time to start."""
    with Host("serve(); os.kill(os.getpid(), signal.SIGKILL)") as host:
        host.wait_gone()


@pytest.mark.req("LIF-4")
def test_a_host_that_is_killed_during_the_start_leaves_nothing_behind() -> None:
    """It does not live to say which process the server is."""
    code = """
stdin, _ = os.pipe()
watchdog.prepare(stdin, LADDER)
subprocess.Popen([sys.executable, "-I", "-S", "-c", PROGRAM, "stubborn", "plain"], stdin=stdin, start_new_session=True)
stay()
"""
    with Host(code) as host:
        host.read_pids(2)
        host.process.kill()
        host.wait_gone()


@pytest.mark.req("LIF-4")
@pytest.mark.parametrize(
    "end", ["sys.exit()", "os._exit(0)", "os.execv('/bin/sh', ['sh', '-c', 'exit'])", "os.kill(0, signal.SIGTERM)"]
)
def test_a_host_that_ends_without_letting_go_leaves_nothing_behind(end: str) -> None:
    with Host(f"serve('plain'); sys.stdin.read(); {end}") as host:
        host.read_pids(2)
        host.stdin.close()
        host.wait_gone()


def test_a_host_that_lets_go_keeps_what_it_let_go() -> None:
    code = """
first, second = serve(), serve()
asyncio.run(watchdog.let_go(first.pid))
say("first", first.pid)
say("second", second.pid)
stay()
"""
    with Host(code) as host:
        pids = host.read_pids(4)
        host.process.kill()
        wait_until(lambda: not is_running(pids["second"]))
        assert is_running(pids["first"])
        os.kill(pids["first"], signal.SIGKILL)
        host.wait_gone()


@pytest.mark.req("LIF-4")
def test_a_guardian_that_took_over_guards_all() -> None:
    code = """
serve()
os.kill(guardian(), signal.SIGKILL)
os.waitid(os.P_PID, guardian(), os.WEXITED | os.WNOWAIT)
serve()
say("guardian", guardian())
stay()
"""
    with Host(code) as host:
        host.read_pids(3)
        host.process.kill()
        host.wait_gone()


@pytest.mark.req("LIF-4")
def test_a_fork_does_not_keep_the_guardian_from_its_work() -> None:
    code = """
server = serve()
if not os.fork():
    say("fork")
    stay()
stay()
"""
    with Host(code) as host:
        pids = host.read_pids(2)
        host.process.kill()
        wait_until(lambda: not is_running(pids["server"]))
        assert is_running(pids["fork"])
        os.kill(pids["fork"], signal.SIGKILL)
        host.wait_gone()


@pytest.mark.req("LIF-4")
def test_a_fork_has_a_guardian_of_its_own() -> None:
    code = """
server = serve()
say("first", server.pid)
say("guardian", guardian())
if not os.fork():
    assert watchdog._guards._guardian is None
    asyncio.run(watchdog.let_go(server.pid))
    server = serve()
    say("second", server.pid)
    say("guardian-of-fork", guardian())
    say("fork")
stay()
"""
    with Host(code) as host:
        pids = host.read_pids(7)
        assert pids["guardian"] != pids["guardian-of-fork"]
        os.kill(pids["fork"], signal.SIGKILL)
        wait_until(lambda: not is_running(pids["second"]))
        assert is_running(pids["first"])
        assert is_running(pids["guardian"])
        host.process.kill()
        host.wait_gone()


def test_what_a_fork_does_first() -> None:
    prepare()
    parents = watchdog._guards
    watchdog._lock.acquire()
    watchdog._start_over()
    assert watchdog._guards is not parents
    watchdog._guards = parents
    let_go_nowait()
