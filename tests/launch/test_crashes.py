"""A server that is gone is noticed at once, whoever holds its pipes; and the error says all that is known."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from typing import Any

import pytest

from mcplumb import Closed, McplumbError, RequestLost, ServerExited, connect
from tests.kit.loop import run, until
from tests.launch.harness import EAGER, ERAS, HASTY_STOP, HASTY_WAITS, MODERN, Message, Stage, say

BOTH = pytest.mark.parametrize("revision", ERAS)
#: So long that no test waits for it: what happens all the same was not waiting for this.
FOREVER = 10_000.0


def connection(stage: Stage, program: str, revision: str = MODERN, options: Message | None = None, **more: Any) -> Any:
    defaults: dict[str, Any] = {"waits": HASTY_WAITS, "stop": HASTY_STOP, "restart": False, "timeout": FOREVER}
    return connect(stage.command(program, revisions=[revision], **(options or {})), **{**defaults, **more})


def exit_behind(error: BaseException | None) -> ServerExited:
    """The exit that is the reason of an error."""
    while error is not None and not isinstance(error, ServerExited):
        error = error.__cause__
    assert error is not None
    return error


@BOTH
@pytest.mark.req("LIF-5", "LIF-6", "LIF-9")
async def test_every_waiting_call_fails_at_once_and_says_why(stage: Stage, revision: str) -> None:
    async with connection(stage, "good", revision, stderr="capture") as client:
        calls = [asyncio.create_task(client.call_tool("hold")) for _ in range(20)]
        await stage.log.wait_for_calls("hold", 20)
        with pytest.raises(RequestLost) as caught:
            await client.call_tool("crash", {"code": 42, "says": "first\nno more disk\n"})
        for call in calls:
            with pytest.raises(RequestLost):
                await call
        lost = caught.value
        for part in ("tools/call", "'crash'", "unknown", "exited with code 42", "no more disk", "good", "call"):
            assert part in str(lost), part
        exited = exit_behind(lost)
        assert (exited.phase, exited.exit_code, exited.signal) == ("call", 42, None)
        assert exited.stderr_tail.splitlines() == ["first", "no more disk"]
        assert "good" in exited.command
        (seen,) = client.process.exits
        assert (seen.exit_code, seen.signal, seen.pid) == (42, None, stage.log.pids[0])
        assert "no more disk" in seen.stderr_tail
        assert client.process.pid is None
        assert client.process.restarts == 0
        assert str(pickle.loads(pickle.dumps(lost))) == str(lost)  # noqa: S301 - our own


@pytest.mark.req("LIF-9")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGTERM", "SIGABRT", "SIGHUP"])
async def test_signals_are_named(stage: Stage, name: str) -> None:
    async with connection(stage, "good") as client:
        call = asyncio.create_task(client.call_tool("hold"))
        await stage.log.wait_for_calls("hold")
        os.kill(client.process.pid, signal.Signals[name])
        with pytest.raises(RequestLost, match=name) as caught:
            await call
        exited = exit_behind(caught.value)
        assert (exited.exit_code, exited.signal) == (None, name)


@BOTH
@pytest.mark.req("LIF-5", "LIF-3")
@pytest.mark.parametrize("child", [{"holds": [1]}, {"holds": [0, 1, 2]}, {"holds": [1, 2], "session": True}])
async def test_an_exit_is_noticed_while_a_grandchild_holds_the_pipes(
    stage: Stage, child: Message, revision: str
) -> None:
    async with connection(stage, "parent", revision, {"children": [child]}) as client:
        call = asyncio.create_task(client.call_tool("hold"))
        await stage.log.wait_for_calls("hold")
        os.kill(client.process.pid, signal.SIGKILL)
        with pytest.raises(RequestLost, match="SIGKILL"):
            await call


@pytest.mark.req("LIF-5")
async def test_what_was_answered_before_the_exit_arrives(stage: Stage) -> None:
    options = {"on": "tools/call", "nth": 50, "answers": True, "code": 3}
    async with connection(stage, "crashing", options=options) as client:
        answers = await asyncio.gather(*(say(client, "echo", text=str(number)) for number in range(50)))
        assert answers == [str(number) for number in range(50)]
        await until(lambda: client.process.exits, "the exit")


@pytest.mark.req("LIF-9", "LIF-5")
def test_calls_after_the_exit_say_why_there_is_no_server(stage: Stage) -> None:
    async def main() -> None:
        async with connection(stage, "crashing", options={"on": "tools/list", "code": 3, "says": "gone\n"}) as client:
            with pytest.raises(RequestLost):
                await client.list_tools()
            for _ in range(3):
                with pytest.raises((ServerExited, Closed)) as caught:
                    await client.call_tool("echo")
                assert "exited with code 3" in str(caught.value)
                assert "gone" in str(caught.value)
                assert exit_behind(caught.value).exit_code == 3

    run(main())
    assert len(stage.log.pids) == 1


@pytest.mark.req("LIF-5")
async def test_an_exit_between_calls_is_noticed(stage: Stage) -> None:
    async with connection(stage, "good") as client:
        assert await say(client, "echo", text="x") == "x"
        os.kill(client.process.pid, signal.SIGKILL)
        await until(lambda: client.process.exits, "the exit")
        with pytest.raises((ServerExited, Closed), match="SIGKILL"):
            await client.call_tool("echo")


#: How much of an answer is there when the server dies: too little to show that it is one, and more.
TORN = pytest.mark.parametrize("torn", [True, 'lt": {"content": [{"type": "te'])


@BOTH
@TORN
@pytest.mark.req("FRM-6", "LIF-5", "LIF-9")
async def test_an_end_in_the_middle_of_an_answer(stage: Stage, revision: str, torn: bool | str) -> None:
    options = {"on": "tools/call", "torn": torn, "code": 3, "says": "out of paper\n"}
    async with connection(stage, "crashing", revision, options, stderr="capture") as client:
        with pytest.raises(RequestLost, match="exited with code 3") as caught:
            await client.call_tool("act")
        assert "out of paper" in str(caught.value)
        assert exit_behind(caught.value).exit_code == 3


@BOTH
@TORN
@pytest.mark.req("FRM-6", "LIF-6")
async def test_what_only_reads_is_sent_again_after_an_end_in_the_middle_of_its_answer(
    stage: Stage, revision: str, torn: bool | str
) -> None:
    options = {"on": "tools/call", "torn": torn, "times": 1}
    async with connection(stage, "crashing", revision, options, restart=EAGER) as client:
        assert await say(client, "echo", text="once more") == "once more"
        assert len(stage.log.calls("echo")) == 2


@TORN
@pytest.mark.req("FRM-6", "ERA-5")
async def test_an_end_in_the_middle_of_the_first_answer_does_not_make_a_server_legacy(
    stage: Stage, torn: bool | str
) -> None:
    options = {"on": "server/discover", "torn": torn, "times": 1}
    command = stage.command("crashing", **options)
    async with connect(command, waits=HASTY_WAITS, stop=HASTY_STOP) as client:
        assert client.revision.name == MODERN


@BOTH
@pytest.mark.req("LIF-5", "LIF-9", "FRM-6")
@pytest.mark.parametrize(("torn", "how"), [(False, "closed the connection"), (True, "in the middle of a message")])
async def test_one_that_closes_its_stdout_is_lost(stage: Stage, revision: str, torn: bool, how: str) -> None:
    options = {"mute_after": 2 if revision == MODERN else 3, "silent_on": ["tools/call"], "torn": torn}

    async with connection(stage, "hanging", revision, options, revisions=[revision]) as client:
        with pytest.raises(RequestLost, match=how) as caught:
            await client.call_tool("hold")
        assert "hanging" in str(caught.value)


@BOTH
@pytest.mark.req("LIF-5", "LIF-9")
async def test_one_that_closes_its_stdin_is_lost(stage: Stage, revision: str) -> None:
    options = {"shut_after": 1 if revision == MODERN else 2}

    async with connection(stage, "hanging", revision, options, revisions=[revision]) as client:
        await stage.log.wait_for_event("shut")
        with pytest.raises((RequestLost, Closed)) as caught:
            await client.call_tool("echo")
        assert "hanging" in str(caught.value)


@pytest.mark.req("LIF-5")
async def test_an_exit_while_a_large_message_is_written(stage: Stage) -> None:
    async with connection(stage, "hanging", options={"deaf_after": 1}, revisions=[MODERN]) as client:
        await stage.log.wait_for_event("deaf")
        calls = [asyncio.create_task(client.call_tool("echo", {"text": "x" * (8 << 20)})) for _ in range(3)]
        await asyncio.sleep(0)
        os.kill(client.process.pid, signal.SIGKILL)
        for call in calls:
            with pytest.raises(McplumbError, match="SIGKILL"):
                await call


@pytest.mark.req("LIF-5")
async def test_a_handler_that_works_when_the_server_goes_is_stopped(stage: Stage) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    async def on_elicit(_: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with connection(stage, "asking", ERAS[1], on_elicit=on_elicit) as client:
        params = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
        arguments = {"method": "elicitation/create", "params": params}
        call = asyncio.create_task(client.call_tool("ask", arguments))
        await started.wait()
        os.kill(client.process.pid, signal.SIGKILL)
        with pytest.raises(RequestLost):
            await call
        await stopped.wait()
