"""Blocking clients of servers that are processes: what else there is to see of them than the calls."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcplumb.errors import ConnectError, ServerExited
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.sync.blocking_client import connect
from tests.kit.loop import PATIENCE
from tests.sync.loop_thread.test_shared_loop import interrupt
from tests.sync.world import ROOT, command, in_threads, is_gone, own_threads, text, wait_until


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    wait_until(lambda: not own_threads())
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.req("LIF-1", "LIF-3")
def test_a_server_lives_as_long_as_its_client(tmp_path: Path) -> None:
    farewell = tmp_path / "farewell"
    with connect(command(farewell), cwd=ROOT) as client:
        process = client.process
        assert process is not None
        pid = process.pid
        assert pid is not None
        assert not is_gone(pid)
        assert process.uptime is not None
        assert process.uptime >= 0
        assert text(client.call_tool("echo", {"text": "hi"})) == "hi"
    assert is_gone(pid)
    assert farewell.exists()
    assert (process.pid, process.uptime, process.restarts, process.exits) == (None, None, 0, ())


@pytest.mark.req("LIF-5")
def test_a_server_that_is_killed_is_started_again() -> None:
    with connect(command(), cwd=ROOT) as client:
        process = client.process
        assert process is not None
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: process.exits)
        client.ping(timeout=PATIENCE)
        assert (process.restarts, process.exits[0].signal) == (1, "SIGKILL")


@pytest.mark.req("LIF-9")
def test_a_server_that_does_not_start_is_explained() -> None:
    program = "import sys; sys.exit('I cannot work like this.')"
    with pytest.raises(ServerExited, match="I cannot work like this") as caught:
        connect([sys.executable, "-c", program], stderr="capture").open()
    assert caught.value.exit_code == 1
    with pytest.raises(ConnectError, match="no-such-program"):
        connect("no-such-program --at-all").open()


def test_many_servers_in_many_threads() -> None:
    meeting = threading.Barrier(4, timeout=PATIENCE)

    def use() -> None:
        with connect(command(), cwd=ROOT) as client:
            meeting.wait()
            for number in range(20):
                assert text(client.call_tool("echo", {"text": f"{number}"})) == f"{number}"

    in_threads(*[use] * 4)


@pytest.mark.req("LIF-4")
def test_ctrl_c_while_connecting_leaves_no_server(tmp_path: Path) -> None:
    program = f"""
import pathlib, signal, time, os
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path({str(tmp_path / "part")!r}).write_text(str(os.getpid()))
pathlib.Path({str(tmp_path / "part")!r}).rename({str(tmp_path / "pid")!r})
time.sleep({PATIENCE})
"""
    begun = threading.Event()

    def watch() -> None:
        wait_until((tmp_path / "pid").exists)
        begun.set()
        interrupt(begun)

    thread = threading.Thread(target=watch)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        connect([sys.executable, "-c", program], stop=StopLadder(close_wait=PATIENCE)).open()
    thread.join()
    assert is_gone(int((tmp_path / "pid").read_text()))
