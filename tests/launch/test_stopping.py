"""How a server is stopped: asked, told, killed, with everything it has started; and nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mcplumb import Closed, McplumbError, RequestLost, RequestTimeout, ServerExited, connect, sync
from mcplumb.protocol.stop_ladder import StopLadder
from tests.kit.loop import other_tasks_end, run, until
from tests.kit.products import sampled
from tests.launch.harness import EAGER, ERAS, HASTY_STOP, HASTY_WAITS, MODERN, PATIENT_STOP, Message, Stage, say
from tests.launch.remains import is_alive

IMPATIENT: dict[str, Any] = {"stop": HASTY_STOP, "waits": HASTY_WAITS}

#: Children of all kinds: in the server's session or in their own, of the server or of nobody, holding what they can.
CHILDREN: dict[str, Message] = {
    "a child": {},
    "one that holds stdout": {"holds": [1]},
    "one that holds everything": {"holds": [0, 1, 2]},
    "one that ignores SIGTERM": {"ignores": ["TERM", "HUP", "INT"]},
    "an orphan": {"orphan": True, "holds": [1, 2]},
    "one with a session of its own": {"session": True},
    "one with a session of its own that ignores SIGTERM": {"session": True, "ignores": ["TERM", "HUP"], "holds": [1]},
    "a daemon": {"session": True, "orphan": True},
    "a stubborn daemon": {"session": True, "orphan": True, "ignores": ["TERM", "HUP", "INT"]},
}


#: The children of every run.
USUAL = ("a child", "an orphan", "a stubborn daemon")


async def visit(command: list[str], **options: Any) -> None:
    """Connect, call, leave."""
    async with connect(command, **options) as client:
        assert await say(client, "echo", text="hello") == "hello"


# The ladder


@pytest.mark.req("LIF-2")
@pytest.mark.parametrize("revision", ERAS)
def test_a_good_server_leaves_at_the_end_of_its_input(stage: Stage, revision: str) -> None:
    run(visit(stage.command("stubborn", revisions=[revision], hurries=1), stop=PATIENT_STOP))
    assert stage.log.events() == ["started", "end of input"]


@pytest.mark.req("LIF-2")
def test_one_that_ignores_the_end_of_its_input_is_told_to_end(stage: Stage) -> None:
    run(visit(stage.command("stubborn", ignores=["EOF"], hurries=0), **IMPATIENT))
    assert stage.log.events() == ["started", "end of input", "SIGTERM"]


@pytest.mark.req("LIF-2")
def test_one_that_ignores_that_too_is_killed(stage: Stage) -> None:
    run(visit(stage.command("stubborn", ignores=["EOF", "TERM", "INT", "HUP"]), **IMPATIENT))
    assert stage.log.events()[:3] == ["started", "end of input", "SIGTERM"]
    assert not is_alive(stage.log.pids[0])


@pytest.mark.req("LIF-2", "LIF-10")
async def test_one_that_does_not_read_is_stopped(stage: Stage) -> None:
    async with connect(stage.command("hanging", deaf_after=1), stop=HASTY_STOP) as client:
        await stage.log.wait_for_event("deaf")
        assert client.process is not None


@pytest.mark.req("LIF-2")
async def test_one_that_closed_its_stdout_is_stopped(stage: Stage) -> None:
    async with connect(stage.command("hanging", mute_after=2), restart=False, stop=HASTY_STOP) as client:
        await say(client, "echo", text="hello")
        await stage.log.wait_for_event("mute")


@pytest.mark.req("LIF-2", "LIF-5")
async def test_one_that_closed_its_stdout_is_not_waited_for_like_others(stage: Stage) -> None:
    """It can answer nothing, and here it ignores the end of its input, too."""
    command = stage.command("hanging", mute_after=3, deaf_after=3, revisions=[MODERN])
    async with connect(command, restart=EAGER, stop=PATIENT_STOP) as client:
        await client.call_tool("act")
        await client.call_tool("act")
        process = client.process
        assert process is not None
        await until(lambda: process.restarts == 1, "the next start")


@pytest.mark.req("LIF-2", "LIF-11")
@pytest.mark.parametrize("how", ["async", "sync"])
def test_several_that_ignore_the_end_of_their_input_are_closed_at_once(stage: Stage, how: str) -> None:
    """All of them have been asked to leave before the first of them is told to."""
    count, stop = 5, StopLadder(close_wait=3.0)
    commands = [stage.command("stubborn", ignores=["EOF"], hurries=0, number=number) for number in range(count)]

    async def main() -> None:
        clients = [await connect(command, stop=stop) for command in commands]
        await asyncio.gather(*(client.close() for client in clients))

    if how == "async":
        run(main())
    else:
        clients = [sync.connect(command, stop=stop).open() for command in commands]
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda client: client.close(), clients))
    assert stage.log.events()[-2 * count :] == ["end of input"] * count + ["SIGTERM"] * count


@pytest.mark.req("LIF-2", "LIF-8")
@pytest.mark.parametrize("stderr", ["inherit", "capture", "discard"])
def test_last_words_never_block_a_server_that_leaves(
    stage: Stage, stderr: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run(visit(stage.command("stubborn", last_words=8 << 20), stop=PATIENT_STOP, stderr=stderr))
    assert stage.log.events() == ["started", "end of input", "spoken"]
    capfd.readouterr()


@pytest.mark.req("LIF-2", "LIF-3")
def test_one_that_floods_while_it_is_stopped(stage: Stage) -> None:
    run(visit(stage.command("flooding", what="notifications", after=1), stop=PATIENT_STOP))


# The whole tree


@pytest.mark.req("LIF-3")
@pytest.mark.parametrize("kind", sampled(CHILDREN, USUAL))
def test_children_of_a_server_that_leaves_cleanly_are_ended(stage: Stage, kind: str) -> None:
    run(visit(stage.command("parent", children=[CHILDREN[kind]] * 2), **IMPATIENT))
    assert len(stage.log.children()) == 2
    assert "end of input" in stage.log.events()


@pytest.mark.req("LIF-3")
@pytest.mark.parametrize("kind", sampled(CHILDREN, USUAL))
def test_children_of_a_server_that_stays_are_ended(stage: Stage, kind: str) -> None:
    run(visit(stage.command("parent", children=[CHILDREN[kind]] * 2, ignores_eof=True), **IMPATIENT))
    assert len(stage.log.children()) == 2


@pytest.mark.req("LIF-3")
@pytest.mark.parametrize("kind", sampled(CHILDREN, USUAL))
def test_children_of_a_server_that_crashed_are_ended(stage: Stage, kind: str) -> None:
    async def main() -> None:
        async with connect(stage.command("parent", children=[CHILDREN[kind]]), restart=False, **IMPATIENT) as client:
            with pytest.raises(Exception, match="SIGKILL"):
                await client.call_tool("crash", {"signal": "SIGKILL"})

    run(main())
    assert len(stage.log.children()) == 1


@pytest.mark.req("LIF-3", "LIF-5")
async def test_children_of_a_server_that_is_started_again_are_ended(stage: Stage) -> None:
    async with connect(stage.command("parent", children=list(CHILDREN.values())), **IMPATIENT) as client:
        with pytest.raises(Exception, match="SIGKILL"):
            await client.call_tool("crash", {"signal": "SIGKILL"})
        assert await say(client, "echo", text="again") == "again"
        first = stage.log.children()[: len(CHILDREN)]
        await until(lambda: not any(map(is_alive, first)), "the children of the first process to be gone")
        assert client.process is not None
        assert client.process.restarts == 1


@pytest.mark.req("LIF-3", "LIF-9")
def test_one_that_goes_into_the_background_is_not_left_there(stage: Stage) -> None:
    async def main() -> None:
        try:
            client = await connect(stage.command("parent", daemon=True), restart=False, **IMPATIENT)
        except ServerExited as error:
            seen: McplumbError = error
        else:  # the daemon was faster with its answer than its parent with its exit
            with pytest.raises((RequestLost, Closed)) as caught:
                await client.call_tool("hold")
            await client.close()
            seen = caught.value
        assert "exited with code 0" in str(seen)
        assert stage.living() == []

    run(main())
    assert stage.log.children() != []


@pytest.mark.req("LIF-2")
async def test_one_that_is_stopped_as_by_a_debugger(stage: Stage) -> None:
    async with connect(stage.command("good"), **IMPATIENT) as client:
        assert client.process is not None
        assert client.process.pid is not None
        os.kill(client.process.pid, signal.SIGSTOP)
        with pytest.raises(RequestTimeout):
            await client.call_tool("echo", timeout=0.2)


@pytest.mark.req("LIF-3")
def test_a_server_that_is_itself_a_client(stage: Stage) -> None:
    inner = stage.command("stubborn", ignores=["EOF", "TERM", "HUP"])
    run(visit(stage.command("gateway", command=inner, ignores=["EOF", "TERM"]), **IMPATIENT))
    assert len(stage.log.pids) == 2


# Whatever happens


@pytest.mark.req("LIF-4")
async def test_an_exception_in_the_body(stage: Stage) -> None:
    with pytest.raises(KeyError):
        async with connect(stage.command("stubborn", ignores=["EOF", "TERM"]), **IMPATIENT):
            raise KeyError


@pytest.mark.req("LIF-4")
@pytest.mark.parametrize("program", ["hanging", "stubborn"])
async def test_a_connect_that_is_cancelled_while_it_waits(stage: Stage, program: str) -> None:
    options = {"hanging": {"silent_on": ["*"]}, "stubborn": {"ignores": ["EOF", "TERM"]}}[program]

    async def enter() -> None:
        async with connect(stage.command(program, **options), **IMPATIENT):
            await asyncio.Event().wait()

    task = asyncio.create_task(enter())
    await stage.log.wait_for("server/discover")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stage.living() == []


@pytest.mark.req("LIF-4")
async def test_a_connect_that_is_cancelled_at_any_moment(stage: Stage) -> None:
    for moment in range(12):
        task = asyncio.create_task(_await(connect(stage.command("stubborn", ignores=["EOF", "TERM"]), **IMPATIENT)))
        if moment < 6:
            for _ in range(moment):
                await asyncio.sleep(0)
        else:
            await asyncio.sleep(0.01 * (moment - 6))
        task.cancel()
        try:
            client = await task
        except asyncio.CancelledError:
            assert stage.living() == []
        else:  # it was faster
            await client.close()


@pytest.mark.req("LIF-4")
async def test_a_connect_that_runs_into_a_timeout_of_its_caller(stage: Stage) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3), connect(stage.command("hanging", silent_on=["*"]), **IMPATIENT):
            await asyncio.Event().wait()
    assert stage.living() == []


@pytest.mark.req("LIF-4")
async def test_a_close_that_is_cancelled(stage: Stage) -> None:
    client = await connect(stage.command("stubborn", ignores=["EOF", "TERM"]), **IMPATIENT)
    closing = asyncio.create_task(client.close())
    await stage.log.wait_for_event("end of input")
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await stage.nothing_lives()
    await other_tasks_end()


@pytest.mark.req("LIF-4")
async def test_a_block_that_is_cancelled_again_while_it_closes(stage: Stage) -> None:
    async def stay() -> None:
        async with connect(stage.command("stubborn", ignores=["EOF", "TERM"]), **IMPATIENT):
            await asyncio.Event().wait()

    task = asyncio.create_task(stay())
    await stage.log.wait_for("server/discover")
    task.cancel()
    await stage.log.wait_for_event("end of input")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stage.nothing_lives()
    await other_tasks_end()


@pytest.mark.req("LIF-4")
def test_many_at_once_leave_nothing(stage: Stage) -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(10):
                ignores = (["EOF"], ["EOF", "TERM"], [])[number % 3]
                group.create_task(visit(stage.command("stubborn", ignores=ignores), **IMPATIENT))

    run(main())
    assert len(stage.log.pids) == 10


async def _await(connecting: Any) -> Any:
    return await connecting
