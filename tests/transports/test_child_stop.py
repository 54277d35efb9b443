"""How servers are ended: with all that they started, whatever they do, and whoever gives up waiting for it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.transports.process.child import Child
from mcplumb.transports.process.exit_watch import Exit, has_exited
from mcplumb.transports.process.tree import Tree
from mcplumb.wire.messages import Request
from tests.kit.loop import PATIENCE, run, turns
from tests.transports.children import NEVER, PATIENT, Running, is_alive, no_process_left, own_children, running, server


@pytest.fixture(autouse=True)
def _no_leak() -> Iterator[None]:
    with no_process_left():
        yield


SHORT = 0.02
# Each with one rung that does not last.
PAST_CLOSING = StopLadder(close_wait=SHORT, term_wait=NEVER, kill_wait=NEVER)
PAST_TERMINATING = StopLadder(close_wait=NEVER, term_wait=SHORT, kill_wait=NEVER)
PAST_BOTH = StopLadder(close_wait=SHORT, term_wait=SHORT, kill_wait=NEVER)
AT_ONCE = StopLadder(close_wait=0, term_wait=0, kill_wait=0)

IGNORE_TERM = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
# A grandchild that ignores everything, and says when it does.
STUBBORN = IGNORE_TERM + "signal.signal(signal.SIGHUP, signal.SIG_IGN); os.write(1, b'x'); time.sleep(1000)"


def with_grandchild(code: str, then: str, **options: Any) -> str:
    """A server that starts another process, tells its pid as soon as that is ready, and then does something."""
    return f"""
ready, there = os.pipe()
pid = start({code!r}, stdout=there, **{options!r})
os.read(ready, 1)
tell(pid=pid)
{then}
"""


# --- The ladder ---


@pytest.mark.req("LIF-2")
@pytest.mark.parametrize(
    ("code", "ladder", "end"),
    [
        ("tell(); until_end()", PATIENT, Exit(code=0)),
        ("tell(); until_end(); sys.exit(3)", PATIENT, Exit(code=3)),
        ("tell(); forever()", PAST_CLOSING, Exit(signal="SIGTERM")),
        ("signal.signal(15, lambda *_: sys.exit(4)); tell(); forever()", PAST_CLOSING, Exit(code=4)),
        (IGNORE_TERM + "tell(); forever()", PAST_BOTH, Exit(signal="SIGKILL")),
        (IGNORE_TERM + "tell(); until_end()", PATIENT, Exit(code=0)),
        (IGNORE_TERM + "tell(); forever()", AT_ONCE, Exit(signal="SIGKILL")),
        ("tell(); os.kill(os.getpid(), signal.SIGSTOP)", PAST_BOTH, Exit(signal="SIGKILL")),
    ],
)
async def test_the_ladder(code: str, ladder: StopLadder, end: Exit) -> None:
    async with running(code, stop=ladder) as there:
        await there.told()
        assert await there.child.stop() == end
        assert there.child.exited.result() == end
        assert there.child.pid not in own_children()


@pytest.mark.req("LIF-2", "LIF-11")
async def test_a_server_that_has_not_begun() -> None:
    # Nothing was read, nothing was written, and the connection was never started.
    child = Child.start(server("until_end()"), stop=PATIENT)
    assert await child.stop() == Exit(code=0)
    child.connection.send(Request(1, "x"))
    child = Child.start(server("until_end()"), stderr="discard", stop=AT_ONCE)
    await child.stop()


@pytest.mark.req("LIF-11")
async def test_stop_again_and_at_once() -> None:
    async with running("until_end(); sys.exit(3)") as there:
        ends = await asyncio.gather(*(there.child.stop() for _ in range(5)))
        assert ends == [Exit(code=3)] * 5
        assert await there.child.stop() == Exit(code=3)
        there.child.kill()
        assert await there.child.stop() == Exit(code=3)


@pytest.mark.req("LIF-5", "LIF-11")
async def test_stop_after_an_exit() -> None:
    async with running("sys.exit(3)") as there:
        await there.child.exited
        assert await there.child.stop() == Exit(code=3)
    async with running("sys.exit(3)") as there:
        # Nobody has noticed yet.
        while not has_exited(there.child.pid):
            pass
        assert await there.child.stop() == Exit(code=3)


@pytest.mark.req("LIF-10")
async def test_a_server_that_writes_while_it_stops() -> None:
    code = """
tell()
until_end()
for _ in range(20):
    sys.stdout.write("x" * 1_000_000)
    sys.stderr.write("y" * 100_000)
sys.stderr.write("done")
"""

    async with running(code) as there:
        await there.told()
        # It meets neither a full pipe nor a broken one.
        assert await there.child.stop() == Exit(code=0)
        assert there.child.stderr_tail().endswith("ydone")


@pytest.mark.req("LIF-10")
async def test_a_flood_that_never_ends() -> None:
    async with running("tell()\nwhile True: os.write(1, b'x' * 100_000)", stop=PAST_CLOSING) as there:
        await there.told()
        assert await there.child.stop() == Exit(signal="SIGTERM")
    # Nobody has read any of it.
    child = Child.start(server("while True: os.write(1, b'x' * 100_000)"), stop=PAST_CLOSING)
    assert await child.stop() == Exit(signal="SIGTERM")


@pytest.mark.req("LIF-10")
async def test_a_server_that_does_not_read() -> None:
    async with running("tell(); forever()", stop=PAST_CLOSING) as there:
        await there.told()
        there.child.connection.send(Request(1, "x" * 5_000_000))
        await turns()
        assert there.child.connection.is_clogged
        waiter = asyncio.create_task(there.child.connection.drained())
        assert await there.child.stop() == Exit(signal="SIGTERM")
        await waiter


@pytest.mark.req("LIF-2")
def test_what_outlives_everything(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        ladder = StopLadder(close_wait=SHORT, term_wait=SHORT, kill_wait=SHORT)
        async with running("tell(); forever()", stop=ladder) as there:
            await there.told()
            with monkeypatch.context() as patch:
                patch.setattr(Tree, "signal", lambda *_: None)
                assert await there.child.stop() == Exit()
            assert there.child.exited.done()
            (thread,) = [thread for thread in threading.enumerate() if thread.name == "mcplumb-reaper"]
            assert thread.daemon
            # In the end it does not become a zombie, either.
            os.kill(there.child.pid, signal.SIGKILL)
            await asyncio.to_thread(thread.join, PATIENCE)

    run(main())
    (record,) = caplog.records
    assert "has not exited, although it was killed" in record.message


# --- The whole tree ---


@pytest.mark.req("LIF-3")
@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize(
    "options",
    [{}, {"start_new_session": True}, {"process_group": 0}],
)
@pytest.mark.parametrize(
    ("code", "ladder"),
    [("os.write(1, b'x'); time.sleep(1000)", PATIENT), (STUBBORN, PAST_TERMINATING)],
)
async def test_what_a_clean_exit_leaves_behind(
    options: dict[str, Any], code: str, ladder: StopLadder, closes: bool
) -> None:
    async with running(with_grandchild(code, "until_end()", **options), stop=ladder) as there:
        pid = (await there.told())["pid"]
        assert is_alive(pid)
        if closes:  # then the server is gone before it is stopped
            await there.child.connection.close()
            await there.child.exited
        assert await there.child.stop() == Exit(code=0)
        assert not is_alive(pid)


@pytest.mark.req("LIF-3", "LIF-5")
@pytest.mark.parametrize("options", [{}, {"start_new_session": True}])
@pytest.mark.parametrize("then", ["os._exit(3)", "os.kill(os.getpid(), 9)"])
async def test_what_a_crash_leaves_behind(then: str, options: dict[str, Any]) -> None:
    async with running(with_grandchild(STUBBORN, then, **options), stop=PAST_TERMINATING) as there:
        end = await there.child.exited
        pid = (await there.told())["pid"]
        assert is_alive(pid)
        assert await there.child.stop() == end
        assert not is_alive(pid)


@pytest.mark.req("LIF-3")
async def test_a_tree_that_ignores_everything() -> None:
    code = with_grandchild(STUBBORN, IGNORE_TERM + "tell('ignores'); forever()")

    async with running(code, stop=PAST_BOTH) as there:
        pid = (await there.told())["pid"]
        await there.told("ignores")
        assert await there.child.stop() == Exit(signal="SIGKILL")
        assert not is_alive(pid)


@pytest.mark.req("LIF-3")
async def test_a_grandchild_that_takes_its_time() -> None:
    # It is told to end, and does so after a while, in which it is looked for again and again.
    slow = "signal.signal(15, lambda *_: (time.sleep(0.2), os._exit(0))); os.write(1, b'x'); time.sleep(1000)"

    async with running(with_grandchild(slow, "until_end()")) as there:
        pid = (await there.told())["pid"]
        await there.child.stop()
        assert not is_alive(pid)


# A daemon, in a session of its own, whose parents have exited. It is born as late as can be: when the input has ended.
DAEMON = """
until_end()
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    DOES
os._exit(0)
"""
DAEMONS = {
    "stays": "forever()",
    "execs": "os.execv(sys.executable, [sys.executable, '-I', '-S', '-c', 'import time; time.sleep(1000)', 'TAG'])",
    "moves": """while True:
        time.sleep(0.02)
        if os.fork():
            os._exit(0)
        os.setsid()""",
}


def living(tag: str) -> set[int]:
    """Who has this in its command. One that moves may be missed by one look."""
    found = set()
    for _ in range(5):
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                with suppress(OSError):
                    if tag.encode() in (entry / "cmdline").read_bytes():
                        found.add(int(entry.name))
    return found


@pytest.mark.req("LIF-3")
@pytest.mark.parametrize(("daemon", "times"), [("stays", 40), ("execs", 40), ("moves", 8)])
async def test_a_daemon_that_is_born_while_its_server_stops(daemon: str, times: int) -> None:
    tag = f"daemon-{os.getpid()}-{daemon}"
    code = DAEMON.replace("DOES", DAEMONS[daemon].replace("TAG", tag)) + f"# {tag}"
    for _ in range(times // 4):
        children = [Child.start(server(code), stderr="capture", stop=PATIENT) for _ in range(4)]
        await asyncio.gather(*(child.stop() for child in children))
        assert not living(tag)


# --- Cancelled, killed ---


@pytest.mark.req("LIF-4", "LIF-11")
@pytest.mark.parametrize("delay", [0, 1, 5])
async def test_a_cancelled_stop_kills(delay: int) -> None:
    code = with_grandchild(STUBBORN, IGNORE_TERM + "tell('ignores'); forever()")
    async with running(code) as there:
        pid = (await there.told())["pid"]
        await there.told("ignores")
        first, second = (asyncio.create_task(there.child.stop()) for _ in range(2))
        await turns(1 + delay)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not is_alive(pid)
        assert there.child.pid not in own_children()
        # Whoever else waited gets what they waited for.
        assert await second == Exit(signal="SIGKILL")
        assert there.child.exited.result() == Exit(signal="SIGKILL")


@pytest.mark.req("LIF-4", "LIF-11")
async def test_a_stop_that_is_cancelled_when_all_is_done() -> None:
    async with running("tell(); until_end()") as there:
        await there.told()
        stopping = asyncio.create_task(there.child.stop())
        there.child.exited.add_done_callback(lambda _: stopping.cancel())
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert there.child.exited.result() == Exit(code=0)


@pytest.mark.req("LIF-4")
def test_an_interrupt() -> None:
    async def main() -> None:
        there = Running(Child.start(server("tell(); until_end()"), stop=PATIENT))
        pids.append(there.child.pid)
        try:
            await there.told()
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(PATIENCE)
        finally:
            assert await there.child.stop() == Exit(code=0)

    pids: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert not is_alive(pids[0])


@pytest.mark.req("LIF-4", "LIF-11")
async def test_kill() -> None:
    async with running(with_grandchild(STUBBORN, "forever()"), stderr="capture") as there:
        pid = (await there.told())["pid"]
        there.child.kill()
        assert not is_alive(pid)
        assert there.child.pid not in own_children()
        assert there.child.exited.result() == Exit(signal="SIGKILL")
        there.child.kill()
        assert await there.child.stop() == Exit(signal="SIGKILL")


@pytest.mark.req("LIF-4")
async def test_kill_during_a_stop() -> None:
    async with running(with_grandchild(STUBBORN, "until_end()")) as there:
        await there.told()
        stopping = asyncio.create_task(there.child.stop())
        await there.child.exited
        await turns()
        there.child.kill()
        assert await stopping == Exit(code=0)


@pytest.mark.req("LIF-4")
@pytest.mark.parametrize("stderr", ["inherit", "capture", "discard"])
@pytest.mark.parametrize("is_stopping", [False, True])
def test_kill_without_a_loop(stderr: Any, is_stopping: bool) -> None:
    async def main() -> tuple[Child, int]:
        code = with_grandchild(STUBBORN, "os.write(2, b'words\\n'); tell('said'); forever()")
        there = Running(Child.start(server(code), stderr=stderr, stop=PATIENT))
        pid: int = (await there.told())["pid"]
        await there.told("said")
        if is_stopping:  # by somebody who is gone with the loop
            stop = there.child.stop()
            stop.send(None)
            stop.close()
        return there.child, pid

    child, pid = asyncio.run(main())
    child.kill()
    assert not is_alive(pid)
    assert child.pid not in own_children()
    assert child.exited.result() == Exit(signal="SIGKILL")
    assert child.stderr_tail() == ("" if stderr == "discard" else "words")
    child.kill()
    del child
    gc.collect()


def test_whoever_waits_on_a_closed_loop_is_not_told() -> None:
    async def main() -> Child:
        there = Running(Child.start(server("tell(); forever()"), stop=PATIENT))
        await there.told()
        there.child.exited.add_done_callback(lambda _: called.append(True))
        return there.child

    called: list[bool] = []
    child = asyncio.run(main())
    child.kill()
    assert child.exited.done()
    assert not called


async def test_a_fork_kills_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running("tell(); until_end()") as there:
        await there.told()
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            there.child.kill()
        assert is_alive(there.child.pid)
        assert await there.child.stop() == Exit(code=0)


@pytest.mark.req("LIF-11")
async def test_many_at_once() -> None:
    children = [Child.start(server("until_end()"), stop=PATIENT) for _ in range(20)]
    assert await asyncio.gather(*(child.stop() for child in children)) == [Exit(code=0)] * 20
