"""One watchdog for all servers, from the first to the last; and what it does when its host dies."""

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
from mcplumb.transports.process.watchdog import prepare, register, unregister, unregister_nowait
from tests.kit.loop import PATIENCE
from tests.transports import families
from tests.transports.families import Family, is_running, patient_watchdogs, read_pids, read_with_patience, wait_until

LADDER = StopLadder(close_wait=0, term_wait=0, kill_wait=PATIENCE)


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(watchdog, "_registry", watchdog._Registry())
    patient_watchdogs(monkeypatch)
    descriptors = count_descriptors()
    yield
    assert watchdog._registry._process is None
    assert watchdog._registry._instructions == {}
    assert watchdog._registry.unreaped == set()
    assert count_descriptors() == descriptors


def count_descriptors() -> int:
    gc.collect()
    return len(list(Path("/dev/fd").iterdir()))


def watchdog_process() -> watchdog._WatchdogProcess:
    assert watchdog._registry._process is not None
    return watchdog._registry._process


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
    """Let go, and see that a watchdog which was replaced is reaped when the next one is needed."""
    wait_until(lambda: has_exited(former))
    for _ in range(2):
        prepare()
        unregister_nowait()
    assert is_reaped(former)


# --- One watchdog ---


def test_a_watchdog_lives_from_the_first_server_to_the_last() -> None:
    with Family("obeys") as first, Family("obeys") as second:
        prepare()
        pid = watchdog_process().pid
        register(first.pid, LADDER)
        register(second.pid, LADDER)
        prepare()
        assert watchdog_process().pid == pid
        asyncio.run(unregister(first.pid))
        asyncio.run(unregister(first.pid))
        assert watchdog_process().pid == pid
        assert not has_exited(pid)
        asyncio.run(unregister(second.pid))
        assert is_reaped(pid)
        assert first.is_alive
        assert second.is_alive
        asyncio.run(unregister(second.pid))


def test_a_server_that_is_not_started_needs_no_watchdog_process() -> None:
    prepare()
    pid = watchdog_process().pid
    unregister_nowait()
    assert is_reaped(pid)
    unregister_nowait()


def test_a_server_is_prepared_for_by_its_stdin() -> None:
    read_end, write_end = os.pipe()
    with Family("obeys") as family:
        prepared = prepare(read_end, LADDER)
        assert prepared == prepare(write_end, LADDER) == Path(f"/proc/self/fd/{read_end}").readlink().name
        assert list(watchdog._registry._instructions) == [prepared]
        register(family.pid, LADDER, prepared)
        assert list(watchdog._registry._instructions) == [str(family.pid)]
        prepared = prepare(read_end, LADDER)
        unregister_nowait(prepared)
        unregister_nowait(family.pid)
    os.close(read_end)
    os.close(write_end)


def test_a_server_can_be_let_go_without_a_loop() -> None:
    with Family("obeys") as first, Family("obeys") as second:
        register(first.pid, LADDER)
        register(second.pid, LADDER)
        pid = watchdog_process().pid
        unregister_nowait(first.pid)
        unregister_nowait()
        assert not has_exited(pid)
        unregister_nowait(second.pid)
        assert is_reaped(pid)


async def test_a_cancelled_let_go_has_let_go() -> None:
    prepare()
    pid = watchdog_process().pid
    task = asyncio.ensure_future(unregister(0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_reaped(pid)


def test_a_watchdog_that_takes_its_time_is_reaped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_EXIT_TIMEOUT", 0.0)
    prepare()
    pid = watchdog_process().pid
    asyncio.run(unregister(0))
    assert is_reaped(pid)


def test_a_watchdog_that_would_not_end_is_reaped_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with Family("obeys") as family:
        with monkeypatch.context() as patch:
            patch.setattr(watchdog, "_BLOCKING_TIMEOUT", 0.0)
            watchdog._reap_killed(family.pid)
        assert watchdog._registry.unreaped == {family.pid}
        kill(family.pid)
        prepare()
        assert is_reaped(family.pid)
        unregister_nowait()


def test_several_threads_and_loops_share_the_watchdog_process() -> None:
    failures: list[BaseException] = []

    async def use(number: int) -> None:
        for _ in range(20):
            prepare()
            register(number, LADDER)
            await unregister(number)

    def work(number: int) -> None:
        try:
            asyncio.run(use(number))
        except BaseException as error:
            failures.append(error)
            raise

    # No watchdog acts in this test, so numbers of no process serve as well.
    threads = [threading.Thread(target=work, args=(5_000_000 + number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []


def test_the_watchdog_holds_nothing() -> None:
    prepare()
    about = Path(f"/proc/{watchdog_process().pid}")
    wait_until(lambda: {path.name for path in (about / "fd").iterdir()} == {"0", "1", "2"})
    assert (about / "cwd").readlink() == Path("/")
    assert [(about / "fd" / number).readlink() for number in "12"] == [Path(os.devnull)] * 2
    assert os.getsid(watchdog_process().pid) == watchdog_process().pid
    unregister_nowait()


# --- When something is wrong with it ---


def test_a_watchdog_that_was_killed_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    prepare()
    register(5_000_000, LADDER)
    killed = watchdog_process().pid
    kill(killed)
    register(5_000_001, LADDER)
    assert is_reaped(killed)
    assert "The watchdog process was ended by SIGKILL." in caplog.text
    command = Path(f"/proc/{watchdog_process().pid}/cmdline")
    wait_until(lambda: command.read_bytes() != b"")
    orders = [argument.split() for argument in command.read_text().split("\0") if argument.startswith("+")]
    assert [order[1] for order in orders] == ["5000000", "5000001"]
    kill(watchdog_process().pid)
    unregister_nowait(5_000_000)
    assert not has_exited(watchdog_process().pid)
    kill(watchdog_process().pid)
    unregister_nowait(5_000_001)


def test_a_watchdog_that_has_closed_its_ears_is_replaced() -> None:
    """It is about to end: nothing can be written to it any more, but it has not ended yet."""
    prepare()
    deaf = watchdog_process()
    kept = os.dup(deaf._pipe)  # or it sees the end of its input, and may have ended when it is told something
    read_end, write_end = os.pipe()
    os.close(read_end)
    os.dup2(write_end, deaf._pipe)
    os.close(write_end)
    prepare()
    assert watchdog_process() is not deaf
    settle(deaf.pid)
    os.close(kept)


def test_a_watchdog_that_does_not_listen_is_replaced_and_nobody_waits_for_it(caplog: pytest.LogCaptureFixture) -> None:
    prepare()
    stopped = watchdog_process()
    os.kill(stopped.pid, signal.SIGSTOP)
    fcntl.fcntl(stopped._pipe, fcntl.F_SETPIPE_SZ, 4096)
    while watchdog_process() is stopped:
        prepare()
    assert len(caplog.records) == 1
    assert "Another one is started." in caplog.text
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
def test_without_a_watchdog_there_is_one_warning(
    executable: str | None, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    prepare()
    if watchdog._registry._process is not None:
        wait_until(lambda: has_exited(watchdog_process().pid))
    for number in (5_000_000, 5_000_001):
        register(number, LADDER)
        assert watchdog._registry._process is None
    asyncio.run(unregister(5_000_000))
    unregister_nowait(5_000_001)
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING
    assert said in caplog.text
    assert "If this process is killed, its servers may keep running." in caplog.text


def test_a_frozen_program_is_not_started_as_its_own_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    prepare()
    assert watchdog._registry._process is None


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
    watchdog.register(server.pid, LADDER)
    server.returncode = 0
    return server

def watchdog_pid():
    return watchdog._registry._process.pid

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
    with Host("serve('plain', 'own-session'); serve(); say('watchdog', watchdog_pid()); stay()") as host:
        pids = host.read_pids(5)
        host.process.kill()
        host.wait_gone()
        wait_until(lambda: not is_running(pids["watchdog"]))


@pytest.mark.req("LIF-4")
def test_a_host_that_is_killed_right_after_the_start_leaves_nothing_behind() -> None:
    """Neither the watchdog nor the server had the time to start."""
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
asyncio.run(watchdog.unregister(first.pid))
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
def test_a_watchdog_that_took_over_guards_all() -> None:
    code = """
serve()
os.kill(watchdog_pid(), signal.SIGKILL)
os.waitid(os.P_PID, watchdog_pid(), os.WEXITED | os.WNOWAIT)
serve()
say("watchdog", watchdog_pid())
stay()
"""
    with Host(code) as host:
        host.read_pids(3)
        host.process.kill()
        host.wait_gone()


@pytest.mark.req("LIF-4")
def test_a_fork_does_not_keep_the_watchdog_from_its_work() -> None:
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
def test_a_fork_has_a_watchdog_of_its_own() -> None:
    code = """
server = serve()
say("first", server.pid)
say("watchdog", watchdog_pid())
if not os.fork():
    assert watchdog._registry._process is None
    asyncio.run(watchdog.unregister(server.pid))
    server = serve()
    say("second", server.pid)
    say("watchdog-of-fork", watchdog_pid())
    say("fork")
stay()
"""
    with Host(code) as host:
        pids = host.read_pids(7)
        assert pids["watchdog"] != pids["watchdog-of-fork"]
        os.kill(pids["fork"], signal.SIGKILL)
        wait_until(lambda: not is_running(pids["second"]))
        assert is_running(pids["first"])
        assert is_running(pids["watchdog"])
        host.process.kill()
        host.wait_gone()


def test_what_a_fork_does_first() -> None:
    prepare()
    parents = watchdog._registry
    watchdog._lock.acquire()
    watchdog._reset_after_fork()
    assert watchdog._registry is not parents
    watchdog._registry = parents
    unregister_nowait()
