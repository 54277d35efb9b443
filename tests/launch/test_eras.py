"""Finding the era of a real server: modern, legacy, slow, silent, or one that dies of the question."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from mcplumb import ConnectError, McplumbError, NoCommonRevision, ServerExited, connect
from mcplumb.protocol.era import EraWaits
from mcplumb.transports import descriptors
from tests.kit.loop import run, until
from tests.kit.products import revision_names, sampled
from tests.launch.harness import EAGER, HASTY_STOP, HASTY_WAITS, LEGACY, MODERN, Message, Stage, say

PROBE, INITIALIZE = "server/discover", "initialize"
VERSION = "io.modelcontextprotocol/protocolVersion"
#: A server that answers is never waited for so long, and one that does not is.
PATIENT_WAITS = EraWaits(quiet=1000.0, settle=1000.0, ask=1000.0, patience=1000.0)


async def meet(command: list[str], **options: Any) -> str:
    """Connect, call a tool, and say which revision was agreed on."""
    async with connect(command, **{"waits": HASTY_WAITS, **options}) as client:
        assert await say(client, "echo", text="hello") == "hello"
        return str(client.revision)


async def failure(command: list[str], **options: Any) -> McplumbError:
    with pytest.raises(McplumbError) as caught:
        await meet(command, **options)
    return caught.value


@pytest.mark.req("ERA-1", "ERA-2", "META-1")
def test_a_modern_server_is_asked_once(stage: Stage) -> None:
    assert run(meet(stage.command("good"), waits=PATIENT_WAITS)) == MODERN
    assert stage.log.methods() == [PROBE, "tools/call"]
    (probe,) = stage.log.find(PROBE)
    assert probe["params"]["_meta"][VERSION] == MODERN


@pytest.mark.req("ERA-2")
def test_a_common_version_is_chosen_among_many(stage: Stage) -> None:
    assert run(meet(stage.command("good", revisions=["2099-01-01", MODERN, *LEGACY]), waits=PATIENT_WAITS)) == MODERN
    assert INITIALIZE not in stage.log.methods()


@pytest.mark.req("ERA-4", "LEG-1")
@pytest.mark.parametrize("revision", LEGACY)
def test_each_legacy_revision(stage: Stage, revision: str) -> None:
    assert run(meet(stage.command("good", revisions=[revision]), waits=PATIENT_WAITS)) == revision
    assert stage.log.methods() == [PROBE, INITIALIZE, "notifications/initialized", "tools/call"]
    opening = stage.log.find(INITIALIZE)[0]["params"]
    assert opening["protocolVersion"] == LEGACY[-1]
    assert set(opening) >= {"protocolVersion", "capabilities", "clientInfo"}
    assert VERSION not in stage.log.find("tools/call")[0]["params"].get("_meta", {})


@pytest.mark.req("LEG-1")
@pytest.mark.parametrize("revision", revision_names(LEGACY))
def test_each_legacy_revision_pinned(stage: Stage, revision: str) -> None:
    command = stage.command("good", revisions=list(LEGACY))
    assert run(meet(command, revisions=[revision], waits=PATIENT_WAITS)) == revision
    assert stage.log.methods() == [INITIALIZE, "notifications/initialized", "tools/call"]
    assert stage.log.find(INITIALIZE)[0]["params"]["protocolVersion"] == revision


@pytest.mark.req("ERA-4")
@pytest.mark.parametrize(
    "code", sampled([-32601, -32602, -32600, -32603, -32700, -32000, -32022, 0, 1, 404], (-32601, -32000, 404))
)
def test_any_other_error_means_legacy(stage: Stage, code: int) -> None:
    command = stage.command("eras", revisions=[LEGACY[1]], on_probe={"code": code, "message": "What?"})
    assert run(meet(command, waits=PATIENT_WAITS)) == LEGACY[1]
    assert stage.log.methods()[:3] == [PROBE, INITIALIZE, "notifications/initialized"]


@pytest.mark.req("ERA-3")
def test_a_modern_error_never_means_legacy(stage: Stage) -> None:
    refusal = {"code": -32022, "message": "No.", "data": {"supported": ["2099-01-01"], "requested": MODERN}}
    error = run(failure(stage.command("eras", revisions=[MODERN, *LEGACY], on_probe=refusal), waits=PATIENT_WAITS))
    assert isinstance(error, NoCommonRevision)
    assert "2099-01-01" in str(error)
    assert MODERN in str(error)
    assert stage.log.methods() == [PROBE]


@pytest.mark.req("ERA-4", "ERA-6")
@pytest.mark.parametrize("revision", revision_names(LEGACY))
def test_a_silent_legacy_server_is_reached_beside_the_open_question(stage: Stage, revision: str) -> None:
    command = stage.command("eras", revisions=[revision], ignores_unknown=True)
    assert run(meet(command)) == revision
    assert stage.log.methods()[:3] == [PROBE, INITIALIZE, "notifications/initialized"]
    assert len(stage.log.pids) == 1


@pytest.mark.req("ERA-6")
def test_a_silent_legacy_server_with_the_usual_waits(stage: Stage) -> None:
    command = stage.command("eras", revisions=[LEGACY[-1]], ignores_unknown=True)

    async def main() -> float:
        start = asyncio.get_running_loop().time()
        assert await meet(command, waits=EraWaits()) == LEGACY[-1]
        return asyncio.get_running_loop().time() - start

    # Far less than what others wait, which is a minute or for ever.
    assert run(main()) < 30


@pytest.mark.req("ERA-5")
@pytest.mark.parametrize("revision", revision_names(LEGACY))
def test_one_that_exits_on_the_probe_is_started_again(stage: Stage, revision: str) -> None:
    command = stage.command("eras", revisions=[revision], on_probe="exit")
    assert run(meet(command, waits=PATIENT_WAITS)) == revision
    first, second = stage.log.pids
    assert stage.log.methods(first) == [PROBE]
    assert stage.log.methods(second) == [INITIALIZE, "notifications/initialized", "tools/call"]


@pytest.mark.req("ERA-5", "LIF-9")
@pytest.mark.parametrize("on", [PROBE, INITIALIZE])
async def test_one_that_answers_a_question_and_exits_at_once(stage: Stage, on: str) -> None:
    for number in range(20):  # the answer and the end may or may not come at the same time
        (stage.folder / "starts").unlink(missing_ok=True)
        command = stage.command("crashing", revisions=[LEGACY[2]], on=on, answers=True, times=1, number=number)
        meeting = asyncio.create_task(meet(command, restart=EAGER))
        await asyncio.wait((meeting,))
        match meeting.exception():
            case None:
                assert meeting.result() == LEGACY[2]
            case ServerExited(phase="handshake", exit_code=1):
                assert on == INITIALIZE  # after an answer that is as it should be, this is a crash as any other
            case error:
                raise error


@pytest.mark.req("ERA-5", "LIF-9")
def test_one_that_exits_on_both_questions(stage: Stage) -> None:
    error = run(failure(stage.command("eras", on_probe="exit", on_initialize="exit")))
    assert isinstance(error, ServerExited)
    assert (error.exit_code, error.phase) == (7, "handshake")
    assert "I do not know initialize." in str(error)
    assert len(stage.log.pids) == 2


@pytest.mark.req("ERA-5", "LIF-9")
def test_a_modern_only_client_does_not_start_it_again(stage: Stage) -> None:
    error = run(failure(stage.command("eras", on_probe="exit"), revisions=[MODERN]))
    assert isinstance(error, ServerExited)
    assert (error.exit_code, error.phase) == (7, "probe")
    assert len(stage.log.pids) == 1


async def start_late(stage: Stage, command: list[str], gate: Path, waits: EraWaits = HASTY_WAITS) -> str:
    """Meet a server that begins to read when the client has long lost its patience with a silent one."""
    task = asyncio.create_task(meet(command, waits=waits))
    await until(stage.living, "the start")
    await asyncio.sleep(waits.quiet * 10)
    gate.touch()  # noqa: ASYNC240 - it is quick
    return await task


@pytest.mark.req("ERA-6")
@pytest.mark.parametrize("served", [[MODERN], [MODERN, *LEGACY]])
async def test_a_modern_server_that_is_slow_to_read_gets_no_other_question(stage: Stage, served: list[str]) -> None:
    gate = stage.folder / "gate"
    command = stage.command("eras", revisions=served, waits_for=str(gate))
    assert await start_late(stage, command, gate) == MODERN
    assert stage.log.methods() == [PROBE, "tools/call"]
    assert len(stage.log.pids) == 1


@pytest.mark.req("ERA-6")
@pytest.mark.parametrize("extra", [{}, {"ignores_unknown": True}])
async def test_a_legacy_server_that_is_slow_to_read(stage: Stage, extra: Message) -> None:
    gate = stage.folder / "gate"
    command = stage.command("eras", revisions=[LEGACY[0]], waits_for=str(gate), **extra)
    assert await start_late(stage, command, gate) == LEGACY[0]
    assert stage.log.methods()[:3] == [PROBE, INITIALIZE, "notifications/initialized"]
    assert len(stage.log.pids) == 1


@pytest.mark.req("ERA-6")
async def test_a_launcher_that_holds_the_pipe_without_reading_it_is_not_the_server(stage: Stage) -> None:
    gate = stage.folder / "gate"
    script = f'while [ ! -e {gate} ]; do sleep 0.01; done; "$@"; exit $?'
    command = ["sh", "-c", script, "launcher", *stage.command("eras", revisions=[MODERN, *LEGACY])]
    assert await start_late(stage, command, gate) == MODERN
    assert stage.log.methods() == [PROBE, "tools/call"]
    assert len(stage.log.pids) == 1


@pytest.mark.req("ERA-6")
async def test_a_slow_server_is_not_taken_for_legacy_where_nothing_tells_what_it_has_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "_writers_see_unread", lambda: False)
    gate = stage.folder / "gate"
    command = stage.command("eras", revisions=[MODERN, *LEGACY], waits_for=str(gate))
    waits = EraWaits(quiet=0.05, quiet_unseen=0.05, settle=0.05, ask=0.5)
    assert await start_late(stage, command, gate, waits) == MODERN
    assert stage.log.methods()[:2] == [PROBE, INITIALIZE]
    assert "notifications/initialized" not in stage.log.methods()


@pytest.mark.req("ERA-6")
async def test_the_usual_wait_is_long_where_nothing_tells_what_it_has_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "_writers_see_unread", lambda: False)
    gate = stage.folder / "gate"
    command = stage.command("eras", revisions=[MODERN, *LEGACY], waits_for=str(gate))
    assert await start_late(stage, command, gate) == MODERN
    assert stage.log.methods() == [PROBE, "tools/call"]


@pytest.mark.req("ERA-6")
def test_one_that_takes_a_while_to_start(stage: Stage) -> None:
    assert run(meet(stage.command("eras", slow=0.5), waits=EraWaits(quiet=0.05))) == MODERN
    assert run(meet(stage.command("eras", slow=0.5, revisions=[LEGACY[2]]), waits=EraWaits(quiet=0.05))) == LEGACY[2]


@pytest.mark.req("ERA-5")
@pytest.mark.parametrize("how", ["refuses", "exits"])
def test_a_bridge_that_stumbles_over_the_probe_is_started_again_and_initialized(stage: Stage, how: str) -> None:
    assert run(meet(stage.command("eras", revisions=[LEGACY[2]], stumbles=how))) == LEGACY[2]
    first, second = stage.log.pids
    assert stage.log.methods(first) == [PROBE, INITIALIZE]
    assert stage.log.methods(second) == [INITIALIZE, "notifications/initialized", "tools/call"]


@pytest.mark.req("ERA-5", "LIF-9")
def test_one_that_refuses_both_questions_is_started_again_once(stage: Stage) -> None:
    refusal = {"code": -32000, "message": "Not today."}
    error = run(failure(stage.command("eras", on_probe=refusal, on_initialize=refusal)))
    assert "refused both" in str(error)
    assert "Not today." in str(error)
    assert len(stage.log.pids) == 2


# What cannot be agreed on


@pytest.mark.req("ERA-8")
@pytest.mark.parametrize("extra", [{}, {"ignores_unknown": True}, {"on_probe": {"code": 5, "message": "What?"}}])
def test_a_modern_only_client_and_a_legacy_server(stage: Stage, extra: Message) -> None:
    error = run(
        failure(stage.command("eras", revisions=[LEGACY[0]], **extra), revisions=[MODERN], waits=EraWaits(patience=3.0))
    )
    assert isinstance(error, ConnectError)
    assert MODERN in str(error)
    if not extra.get("ignores_unknown"):
        assert isinstance(error, NoCommonRevision)
        assert error.ours == (MODERN,)
        assert error.theirs == (LEGACY[0],)
        assert LEGACY[0] in str(error)


@pytest.mark.req("ERA-8")
def test_a_legacy_only_client_and_a_modern_server(stage: Stage) -> None:
    error = run(failure(stage.command("good"), revisions=list(LEGACY)))
    assert isinstance(error, NoCommonRevision)
    assert set(error.ours) == set(LEGACY)
    assert error.theirs == (MODERN,)
    for revision in (*LEGACY, MODERN):
        assert revision in str(error)


@pytest.mark.req("ERA-8")
def test_two_legacy_revisions_that_differ(stage: Stage) -> None:
    error = run(failure(stage.command("good", revisions=[LEGACY[0]]), revisions=[LEGACY[2]]))
    assert isinstance(error, NoCommonRevision)
    assert (error.ours, error.theirs) == ((LEGACY[2],), (LEGACY[0],))


@pytest.mark.req("CAN-7")
def test_the_opening_is_never_cancelled_on_the_wire(stage: Stage) -> None:
    async def main() -> None:
        command = stage.command("hanging", silent_on=["*"])
        task = asyncio.create_task(meet(command, stop=HASTY_STOP))
        await stage.log.wait_for(INITIALIZE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(ConnectError, match="did not answer"):
            await meet(command, stop=HASTY_STOP, waits=EraWaits(quiet=0.05, patience=0.5))

    run(main())
    for pid in stage.log.pids:
        (opening,) = stage.log.find(INITIALIZE, pid)
        given_up = [note["params"]["requestId"] for note in stage.log.find("notifications/cancelled", pid)]
        assert opening["id"] not in given_up


# What is remembered


@pytest.mark.req("ERA-7", "LIF-7", "LEG-1")
@pytest.mark.parametrize("revision", revision_names(LEGACY))
def test_after_a_restart_the_era_is_known(stage: Stage, revision: str) -> None:
    async def main() -> None:
        command = stage.command("eras", revisions=[revision], on_probe="exit")
        async with connect(command, waits=PATIENT_WAITS, restart=EAGER) as client:
            assert await say(client, "echo", text="first") == "first"
            assert client.process is not None
            assert client.process.pid is not None
            os.kill(client.process.pid, signal.SIGKILL)
            # The first exit was that on the probe.
            await until(lambda: client.process is not None and len(client.process.exits) == 2, "the exit")
            assert await say(client, "echo", text="again") == "again"
            assert str(client.revision) == revision

    run(main())
    opening = [INITIALIZE, "notifications/initialized", "tools/call"]
    assert [stage.log.methods(pid) for pid in stage.log.pids] == [[PROBE], opening, opening]


@pytest.mark.req("ERA-7", "LIF-5")
@pytest.mark.parametrize(("before", "after"), [(MODERN, LEGACY[-1]), (LEGACY[-1], MODERN), (LEGACY[0], LEGACY[2])])
async def test_a_server_that_comes_back_in_another_era(stage: Stage, before: str, after: str) -> None:
    command = stage.command("eras", each=[{"revisions": [before]}, {"revisions": [after]}])
    async with connect(command, waits=HASTY_WAITS, restart=EAGER) as client:
        assert str(client.revision) == before
        with pytest.raises(McplumbError):
            await client.call_tool("crash")
        assert await say(client, "echo", text="again") == "again"
        assert str(client.revision) == after
