"""Whole programs with blocking clients, and how they end: quietly, in time, and with nothing left behind.

Each runs in an interpreter of its own, with every warning an error and asyncio in debug mode.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.kit.loop import PATIENCE
from tests.kit.products import sampled
from tests.sync.world import ROOT, command, is_gone, wait_until

#: What the programs begin with. ``target`` is a server, and ``use`` asks it for the same thing in several ways.
PREAMBLE = """
import atexit, faulthandler, logging, os, signal, sys, threading

# Who hangs says where.
faulthandler.dump_traceback_later(PATIENCE, exit=True)
# That something was slow is no fault of ours.
logging.getLogger("asyncio").setLevel(logging.ERROR)

def connect(**options):
    from mcplumb.sync import connect
    if sys.argv[1] == "process":
        return connect(sys.argv[2:], **options)
    from tests.sync.world import World
    return connect(World().server, **options)

def report(client):
    if client.process is not None:
        print("pid", client.process.pid)

def echo(client, text):
    print(client.call_tool("echo", {"text": text}).content[0].text, flush=True)

def use(client):
    report(client)
    echo(client, "echo")
    print(client.call_tool("introduce").content[0].text)
    client.call_tool("count", {"n": 1}, on_progress=print)

def talkative():
    clients = []
    def on_elicit(question):
        echo(clients[0], "nested")
        return {"name": "me"}
    clients.append(connect(on_elicit=on_elicit).open())
    return clients[0]
"""
START = PREAMBLE.replace("PATIENCE", str(PATIENCE))
USED = ["echo", "nested", "{'name': 'me'}", "1 1 step 1"]


class Target:
    """Where the server of a program is: in it, or in a process of its own."""

    def __init__(self, where: str, farewell: Path) -> None:
        self.where = where
        self.farewell = farewell

    def start(self, program: str, *flags: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "error", *flags, "-c", START + program, self.where, *command(self.farewell)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONASYNCIODEBUG": "1"},
        )

    def finish(self, process: subprocess.Popen[str], *, code: int = 0, stderr: str = "") -> list[str]:
        """What the program prints, without the pids of its servers, which must be gone and must have left in order."""
        out, err = process.communicate(timeout=2 * PATIENCE)
        assert (process.returncode, err) == (code, stderr)
        lines = out.splitlines()
        pids = [int(line.split()[1]) for line in lines if line.startswith("pid ")]
        assert bool(pids) == (self.where == "process")
        for pid in pids:
            wait_until(partial(is_gone, pid))
        return [line for line in lines if not line.startswith("pid ")]

    def run(self, program: str, *flags: str) -> list[str]:
        return self.finish(self.start(program, *flags))

    def check_farewell(self) -> None:
        assert self.farewell.exists() == (self.where == "process")


@pytest.fixture(params=sampled(["memory", "process"], ("process",)))
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return Target(request.param, tmp_path / "farewell")


@pytest.mark.req("LIF-4")
def test_what_is_left_open_is_closed_at_exit(target: Target) -> None:
    assert target.run("client = talkative(); use(client)") == USED
    target.check_farewell()


@pytest.mark.req("LIF-4")
def test_what_is_lost_is_closed_at_exit(target: Target) -> None:
    assert target.run("use(talkative()); other = talkative(); report(other)") == USED
    target.check_farewell()


def test_what_was_left_open_can_be_used_at_exit(target: Target) -> None:
    program = "import mcplumb.sync; client = talkative(); atexit.register(use, client)"
    assert target.run(program) == USED
    target.check_farewell()


def test_what_was_left_open_is_closed_before_earlier_handlers(target: Target) -> None:
    program = """
def late():
    try:
        client.ping()
    except Exception as error:
        print(repr(error))

atexit.register(late)
client = talkative()
report(client)
"""
    assert target.run(program) == ["Closed('The client was closed.')"]
    target.check_farewell()


@pytest.mark.parametrize("end", ["client.close()", ""])
@pytest.mark.parametrize("known", ["import mcplumb.sync", ""])
def test_a_client_can_connect_at_exit(target: Target, end: str, known: str) -> None:
    program = f"""
@atexit.register
def late():
    client = talkative()
    use(client)
    {end}
    sys.stdout.flush()

{known}
"""
    assert target.run(program) == USED
    if end:
        target.check_farewell()


def test_a_client_can_connect_again_and_again_at_exit(target: Target) -> None:
    program = """
@atexit.register
@atexit.register
def late():
    with connect() as client, connect() as other:
        report(client)
        echo(client, "one")
        echo(other, "two")
"""
    assert target.run(program) == ["one", "two"] * 2
    target.check_farewell()


@pytest.mark.req("LIF-4", "LIF-11")
def test_a_program_may_end_while_threads_wait(target: Target) -> None:
    program = """
client = connect().open()
report(client)

def wait():
    try:
        client.call_tool("hang")
    except Exception as error:
        print(type(error).__name__)

threading.Thread(target=wait, daemon=True).start()
client.ping()
"""
    assert set(target.run(program)) <= {"RequestCancelled", "Closed"}


@pytest.mark.req("LIF-4")
def test_a_program_may_end_while_a_function_of_its_own_never_does(target: Target) -> None:
    program = """
asked = threading.Event()

def on_elicit(question):
    asked.set()
    threading.Event().wait()

client = connect(on_elicit=on_elicit).open()
report(client)
threading.Thread(target=lambda: client.call_tool("introduce"), daemon=True).start()
threading.excepthook = lambda args: None
asked.wait()
"""
    assert target.run(program) == []


def test_a_loop_that_is_stuck_does_not_keep_the_program(tmp_path: Path) -> None:
    program = """
from mcplumb import Server
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.sync import connect

server = Server("x")
stuck = threading.Event()

@server.tool
async def block() -> str:
    stuck.set()
    threading.Event().wait()

client = connect(server, stop=StopLadder(close_wait=0, term_wait=0, kill_wait=0)).open()
threading.Thread(target=client.call_tool, args=("block",), daemon=True).start()
stuck.wait()
"""
    target = Target("memory", tmp_path)
    warning = "Something blocks the event loop of the blocking clients; it is abandoned.\n"
    assert target.finish(target.start(program), stderr=warning) == []


def test_a_notebook_has_a_running_loop(target: Target) -> None:
    program = """
import asyncio

async def cells():
    global client
    client = talkative()
    await asyncio.sleep(0)
    use(client)

asyncio.run(cells())
"""
    assert target.run(program) == USED
    target.check_farewell()


INTERRUPTED = """
with connect(on_log=lambda message: print(message.data, flush=True)) as client:
    report(client)
    try:
        client.call_tool("hang")
    except KeyboardInterrupt:
        print(client.call_tool("wait_for_cancellation").content[0].text)
        REACTION
"""


def interrupted(target: Target, reaction: str) -> subprocess.Popen[str]:
    """The program that is interrupted while it waits, and goes on with this."""
    process = target.start(INTERRUPTED.replace("REACTION", reaction))
    assert process.stdout is not None
    for line in iter(process.stdout.readline, "hanging\n"):
        assert line, process.stderr and process.stderr.read()
    process.send_signal(signal.SIGINT)
    return process


@pytest.mark.req("CAN-1", "LIF-4")
def test_ctrl_c_cancels_what_the_program_waits_for(target: Target) -> None:
    process = interrupted(target, "report(client)")
    assert target.finish(process) == ["cancelled"]
    target.check_farewell()


@pytest.mark.req("LIF-4")
def test_ctrl_c_ends_the_program(target: Target) -> None:
    process = interrupted(target, "report(client); sys.stdout.flush(); raise")
    out, err = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == -signal.SIGINT
    assert (err.count("Traceback"), err.splitlines()[-1]) == (1, "KeyboardInterrupt")
    assert "Exception ignored" not in err
    if target.where == "process":
        assert is_gone(int(out.split()[-1]))
    target.check_farewell()


FORK = """
faulthandler.cancel_dump_traceback_later()  # a fork could not
client = connect().open()
report(client)
changes = client.listen(tools=True).__enter__()
echo(client, "before")
child = os.fork()
if not child:
    for use_it in (client.ping, changes.__next__):
        try:
            use_it()
        except ValueError as error:
            print(type(error).__name__, str(error).replace(str(os.getppid()), "PARENT"))
    changes.close()
    client.close()
    with connect() as other:
        echo(other, "a new one")
    left = connect().open()
    report(left)
    echo(left, "left open")
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
echo(client, "after")
"""


def test_a_fork_has_clients_of_its_own(target: Target) -> None:
    said = "UsageError This client belongs to the process PARENT, from which this one was forked: connect again here."
    expected = ["before", said, said, "a new one", "left open", "after"]
    # Python warns of forks in programs with threads.
    assert target.run(FORK, "-W", "ignore::DeprecationWarning") == expected
    target.check_farewell()
