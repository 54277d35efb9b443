"""A server that crashed is started again, and what may be sent again is; one that goes on crashing is left alone."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from mcplumb import Closed, McplumbError, RequestLost, RequestTimeout, ServerDown, connect
from mcplumb.protocol.restart import MAX_SENDS, RestartPolicy
from tests.client.peers import skip
from tests.kit.loop import PATIENCE, run, turns, until
from tests.kit.products import revision_names, spread
from tests.launch.harness import EAGER, ERAS, HASTY_STOP, HASTY_WAITS, LEGACY, MODERN, Message, Stage, say

BOTH = pytest.mark.parametrize("revision", ERAS)
#: Nobody waits that long: a start that comes all the same was not waiting for this.
FOREVER = 10_000.0
NEVER = RestartPolicy(first_wait=FOREVER, max_wait=FOREVER, jitter=0.0)


def breaker(after: int, wait: float) -> RestartPolicy:
    return RestartPolicy(
        first_wait=0.01, factor=1.0, max_wait=0.01, jitter=0.0, breaker_after=after, breaker_wait=wait,
        breaker_max_wait=max(wait, 600.0), healthy_after=FOREVER,
    )  # fmt: skip


def connection(stage: Stage, program: str, revision: str = MODERN, options: Message | None = None, **more: Any) -> Any:
    defaults: dict[str, Any] = {"waits": HASTY_WAITS, "stop": HASTY_STOP, "restart": EAGER}
    return connect(stage.command(program, revisions=[revision], **(options or {})), **{**defaults, **more})


async def kill(client: Any) -> None:
    """Kill the server, and wait until that is known."""
    exits = len(client.process.exits)
    os.kill(client.process.pid, signal.SIGKILL)
    await until(lambda: len(client.process.exits) > exits, "the exit")


# Starting again


@BOTH
@pytest.mark.req("LIF-5", "LIF-7")
def test_a_server_that_exits_is_started_again(stage: Stage, revision: str) -> None:
    async def main() -> None:
        async with connection(stage, "good", revision) as client:
            for number in range(1, 4):
                assert await say(client, "act") == str(number)
                await kill(client)
            assert await say(client, "act") == "4"
            process = client.process
            assert process.restarts == 3
            assert [(seen.pid, seen.signal) for seen in process.exits] == [
                (pid, "SIGKILL") for pid in stage.log.pids[:3]
            ]
            assert process.pid == stage.log.pids[3]
            assert client.stats.messages_out == len(stage.log.messages())

    run(main())
    if revision != MODERN:
        for pid in stage.log.pids:
            assert stage.log.methods(pid)[-3:] == ["initialize", "notifications/initialized", "tools/call"]


@pytest.mark.req("LIF-5", "FRM-8")
def test_ids_are_not_used_again_by_the_next_process(stage: Stage) -> None:
    async def main() -> None:
        async with connection(stage, "good") as client:
            for _ in range(3):
                await say(client, "act")
                await kill(client)
            await say(client, "act")

    run(main())
    ids = [message["id"] for message in stage.log.messages() if "id" in message]
    assert len(ids) == len(set(ids))


@pytest.mark.req("LIF-5")
async def test_calls_wait_while_the_server_is_started_again(stage: Stage) -> None:
    gate = stage.folder / "gate"
    each = [{}, {"waits_for": str(gate)}]
    async with connection(stage, "eras", options={"each": each}) as client:
        await kill(client)
        calls = [asyncio.create_task(say(client, "echo", text=str(number))) for number in range(10)]
        await until(lambda: len(stage.log.pids) == 2, "the second start")
        assert not any(call.done() for call in calls)
        gate.touch()
        assert await asyncio.gather(*calls) == [str(number) for number in range(10)]


@pytest.mark.req("LIF-5", "CAN-5")
def test_a_call_that_waits_for_the_server_times_out(stage: Stage) -> None:
    async def main() -> None:
        async with connection(stage, "good", restart=NEVER) as client:
            await kill(client)
            with pytest.raises(RequestTimeout, match="SIGKILL"):
                await client.call_tool("echo", timeout=0.1)
            call = asyncio.create_task(client.call_tool("echo"))
            await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    run(main())
    assert stage.log.calls("echo") == []


@pytest.mark.req("LIF-5", "LIF-11")
def test_closing_while_the_server_is_down(stage: Stage) -> None:
    async def main() -> None:
        async with connection(stage, "good", restart=NEVER) as client:
            await kill(client)
            calls = [asyncio.create_task(client.call_tool("echo")) for _ in range(3)]
            await asyncio.sleep(0)
        for call in calls:
            with pytest.raises(Closed):
                await call
        with pytest.raises(Closed):
            await client.call_tool("echo")

    run(main())
    assert len(stage.log.pids) == 1


@pytest.mark.req("LIF-5", "LIF-11")
async def test_closing_while_the_server_starts(stage: Stage) -> None:
    async with connection(stage, "eras", options={"each": [{}, {"waits_for": "/no/such/file"}]}) as client:
        await kill(client)
        await until(lambda: len(stage.log.pids) == 2, "the second start")


@pytest.mark.req("LIF-5")
async def test_a_server_that_fails_to_start_a_few_times(stage: Stage) -> None:
    each = [{}, *[{"on_probe": "exit", "on_initialize": "exit"}] * 6, {}]
    async with connection(stage, "eras", options={"each": each}) as client:
        await kill(client)
        assert await say(client, "echo", text="at last") == "at last"
        assert client.process.restarts == 7


@pytest.mark.req("LIF-5")
async def test_a_program_that_is_not_there_for_a_while(stage: Stage) -> None:
    program = stage.folder / "program"
    program.symlink_to(stage.command("good")[0])
    async with connect(
        [str(program), *stage.command("good")[1:]], restart=EAGER, stop=HASTY_STOP, waits=HASTY_WAITS
    ) as client:
        aside = program.rename(stage.folder / "aside")
        await kill(client)
        call = asyncio.create_task(say(client, "echo", text="back"))
        await asyncio.sleep(0.2)
        aside.rename(program)
        assert await call == "back"


# What is sent again


@pytest.mark.req("LIF-6")
@pytest.mark.parametrize(
    "method", spread(["list_tools", "list_resources", "list_prompts", "list_resource_templates", "ping"], 2)
)
@BOTH
async def test_reading_methods_are_sent_again(stage: Stage, revision: str, method: str) -> None:
    names = {
        "list_tools": "tools/list",
        "list_resources": "resources/list",
        "list_prompts": "prompts/list",
        "list_resource_templates": "resources/templates/list",
        "ping": "ping",
    }
    if method == "ping" and revision == MODERN:
        names["ping"] = "server/discover"

    nth = 2 if names[method] == "server/discover" else 1
    async with connection(stage, "crashing", revision, {"on": names[method], "nth": nth, "times": 1}) as client:
        await getattr(client, method)()
        assert client.process.restarts == 1


@BOTH
@pytest.mark.req("LIF-6")
@pytest.mark.parametrize("listed", [True, False])
def test_calls_of_tools_are_sent_again_where_that_is_safe(stage: Stage, revision: str, listed: bool) -> None:
    async def main() -> None:
        async with connection(stage, "good", revision) as client:
            if listed:
                await client.list_tools()
            calls = {name: asyncio.create_task(say(client, name, hold=1)) for name in ("read", "repeat", "act")}
            for name in calls:
                await stage.log.wait_for_calls(name)
            os.kill(client.process.pid, signal.SIGKILL)
            assert await calls["read"] == "2"
            assert await calls["repeat"] == "2"
            with pytest.raises(RequestLost, match="SIGKILL"):
                await calls["act"]

    run(main())
    assert [len(stage.log.calls(name)) for name in ("read", "repeat", "act")] == [2, 2, 1]
    assert "notifications/cancelled" not in stage.log.methods()


@pytest.mark.req("LIF-6", "CAN-5")
async def test_whether_it_is_safe_is_not_asked_for_longer_than_the_call_may_take(stage: Stage) -> None:
    async with connection(stage, "good", restart=NEVER, timeout=FOREVER) as client:
        call = asyncio.create_task(client.call_tool("read", {"hold": 1}, timeout=1000.0))
        await stage.log.wait_for_calls("read")
        await kill(client)
        skip(1000.0)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises((RequestLost, RequestTimeout), match="SIGKILL"):
                await call


@BOTH
@pytest.mark.req("LIF-6")
async def test_a_server_that_takes_long_to_start_is_still_asked_what_is_safe(stage: Stage, revision: str) -> None:
    slow = RestartPolicy(first_wait=100.0, max_wait=100.0, jitter=0.0)
    async with connection(stage, "good", revision, restart=slow, timeout=FOREVER) as client:
        read, act = (asyncio.create_task(say(client, name, hold=1)) for name in ("read", "act"))
        for name in ("read", "act"):
            await stage.log.wait_for_calls(name)
        await kill(client)
        skip(50.0)
        await turns()
        assert not read.done()
        skip(60.0)
        assert await read == "2"
        with pytest.raises(RequestLost, match="SIGKILL"):
            await act


@BOTH
@pytest.mark.req("LIF-6")
async def test_the_policy_always(stage: Stage, revision: str) -> None:
    async with connection(stage, "good", revision, retry="always") as client:
        call = asyncio.create_task(say(client, "act", hold=1))
        await stage.log.wait_for_calls("act")
        os.kill(client.process.pid, signal.SIGKILL)
        assert await call == "2"


@BOTH
@pytest.mark.req("LIF-6")
async def test_the_policy_never(stage: Stage, revision: str) -> None:
    async with connection(stage, "good", revision, retry="never") as client:
        await client.list_tools()
        call = asyncio.create_task(say(client, "read", hold=1))
        await stage.log.wait_for_calls("read")
        os.kill(client.process.pid, signal.SIGKILL)
        with pytest.raises(RequestLost, match="SIGKILL"):
            await call
        # What was never sent may be sent, whatever the policy.
        assert await say(client, "read") == "2"


@pytest.mark.req("LIF-6")
@pytest.mark.parametrize("retry", ["safe", "always"])
def test_a_request_that_kills_the_server_is_not_sent_for_ever(stage: Stage, retry: str) -> None:
    async def main() -> None:
        async with connection(stage, "crashing", options={"on": "tools/list", "code": 5}, retry=retry) as client:
            with pytest.raises(RequestLost, match="exited with code 5"):
                await client.list_tools()
            assert await say(client, "echo", text="on") == "on"

    run(main())
    assert len(stage.log.find("tools/list")) == MAX_SENDS


@pytest.mark.req("LIF-6")
def test_what_was_given_up_is_not_sent_again(stage: Stage) -> None:
    async def main() -> None:
        async with connection(stage, "good") as client:
            await client.list_tools()
            call = asyncio.create_task(client.call_tool("hold"))
            await stage.log.wait_for_calls("hold")
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            await kill(client)
            assert await say(client, "act") == "2"

    run(main())
    assert len(stage.log.calls("hold")) == 1


# The breaker


@BOTH
@pytest.mark.req("LIF-5", "LIF-9")
def test_the_breaker_opens_and_then_calls_fail_at_once_with_the_diagnosis(stage: Stage, revision: str) -> None:
    async def main() -> None:
        options = {"on": "tools/call", "code": 9, "says": "no licence\n"}
        async with connection(stage, "crashing", revision, options, restart=breaker(3, FOREVER)) as client:
            for _ in range(3):
                with pytest.raises(RequestLost, match="exited with code 9"):
                    await client.call_tool("act")
            for _ in range(3):
                with pytest.raises(ServerDown) as caught:
                    await client.call_tool("act")
                for part in ("3 times", "exited with code 9", "no licence", "crashing"):
                    assert part in str(caught.value), part
            assert client.process.pid is None

    run(main())
    assert len(stage.log.pids) == 3
    assert len(stage.log.calls("act")) == 3


@pytest.mark.req("LIF-5")
async def test_calls_that_wait_when_the_breaker_opens_fail(stage: Stage) -> None:
    each = [{}, {"on_probe": "exit", "on_initialize": "exit"}]
    async with connection(stage, "eras", options={"each": each}, restart=breaker(3, FOREVER)) as client:
        await kill(client)
        for call in [asyncio.create_task(client.call_tool("echo")) for _ in range(5)]:
            with pytest.raises(ServerDown, match="exited with code 7"):
                await call


@BOTH
@pytest.mark.req("LIF-5")
def test_a_trial_start_that_succeeds_closes_the_breaker(stage: Stage, revision: str) -> None:
    async def main() -> None:
        options = {"on": "tools/call", "code": 9, "times": 3}
        async with connection(stage, "crashing", revision, options, restart=breaker(3, 0.3)) as client:
            for _ in range(3):
                with pytest.raises(RequestLost):
                    await client.call_tool("act")
            await until(lambda: len(stage.log.pids) == 4, "the trial start")
            await until(lambda: client.process.pid == stage.log.pids[3], "the trial start to be known")

            # The process is there a moment before it has answered.
            while True:
                try:
                    assert await say(client, "act") == "4"
                    break
                except ServerDown:
                    await asyncio.sleep(0.01)

    run(main())
    assert len(stage.log.pids) == 4


@pytest.mark.req("LIF-5")
def test_a_trial_start_that_fails_leaves_it_open(stage: Stage) -> None:
    async def main() -> None:
        policy = RestartPolicy(
            first_wait=0.01, factor=1000.0, max_wait=0.01, jitter=0.0, breaker_after=1, breaker_wait=0.1,
            breaker_max_wait=FOREVER,
        )  # fmt: skip
        # A client that allows one era only finds out with one process.
        options = {"each": [{}, {"on_probe": "exit"}]}
        async with connection(stage, "eras", options=options, revisions=[MODERN], restart=policy) as client:
            await kill(client)
            await until(lambda: len(client.process.exits) == 2, "the end of the trial")
            for _ in range(3):
                with pytest.raises(ServerDown):
                    await client.call_tool("echo")

    run(main())
    assert len(stage.log.pids) == 2


@BOTH
@pytest.mark.req("LIF-5")
async def test_restarts_can_be_switched_off(stage: Stage, revision: str) -> None:
    for restart in (False, RestartPolicy(enabled=False)):
        async with connection(stage, "good", revision, restart=restart) as client:
            await client.list_tools()
            call = asyncio.create_task(client.call_tool("hold"))
            await stage.log.wait_for_calls("hold")
            os.kill(client.process.pid, signal.SIGKILL)
            with pytest.raises(McplumbError, match="SIGKILL"):
                await call
            with pytest.raises(Closed, match="SIGKILL"):
                await client.list_tools()
            assert client.process.restarts == 0
        stage.log.path.unlink()


@pytest.mark.req("LIF-7")
@pytest.mark.parametrize("revision", revision_names(LEGACY))
def test_a_legacy_session_is_opened_anew(stage: Stage, revision: str) -> None:
    async def main() -> None:
        async with connection(stage, "good", revision) as client:
            await client.set_log_level("error")
            await kill(client)
            assert await say(client, "act") == "2"
            await stage.log.wait_for("logging/setLevel", 2)

    run(main())
    second = stage.log.methods(stage.log.pids[1])
    assert second[:2] == ["initialize", "notifications/initialized"]
    assert "tools/call" in second
