"""Nothing outlives the program that launched it, however that ends; and a program that ends well says nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest

from tests.kit.loop import PATIENCE, blocking_until
from tests.kit.products import EXTRA, sampled
from tests.launch.harness import ROOT, Stage
from tests.launch.remains import children_of, is_alive

#: What nobody wants to read when a program ends.
ALARMS = (
    "was destroyed",
    "never awaited",
    "never retrieved",
    "loop is closed",
    "Exception ignored",
    "cancel scope",
    "unclosed",
    "Fatal Python",
)

STUBBORN: dict[str, Any] = {"ignores": ["EOF", "TERM", "HUP", "INT"]}
FAMILY = [{}, {"ignores": ["TERM", "HUP"], "holds": [1, 2]}, {"orphan": True}, {"session": True}]


class Host:
    """A program with a server, in a process and a session of its own."""

    def __init__(self, scene: str, command: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-X", "dev", "-m", "tests.launch.host", scene, json.dumps(command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONASYNCIODEBUG": "1"},
            start_new_session=True,
        )
        self.descendants: list[int] = []

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == b"ready\n":
                break
        else:
            pytest.fail(f"the host ended: {self.end()}")
        self.descendants = descendants_of(self.process.pid)

    def end(self) -> tuple[int, str]:
        """Wait for its end, which is not the end of those that hold its stderr."""
        code = self.process.wait(PATIENCE)
        assert self.process.stderr is not None
        assert self.process.stdout is not None
        self.process.stdout.close()
        with self.process.stderr:
            return code, self.process.stderr.read().decode()


def descendants_of(parent: int) -> list[int]:
    children = children_of(parent)
    return children + [pid for child in children for pid in descendants_of(child)]


def nothing_is_left(stage: Stage, host: Host) -> None:
    blocking_until(
        lambda: not [*stage.living(), *filter(is_alive, host.descendants)],
        "nothing to be left",
        lambda: (stage.living(), host.descendants),
    )


SERVERS = {
    "a good one": ("good", {}),
    "a stubborn one": ("stubborn", STUBBORN),
    "one with a family": ("parent", {"children": FAMILY}),
    "a stubborn one with a family": ("parent", {"children": FAMILY, "ignores_eof": True}),
    "one that floods": ("flooding", {"what": "notifications", "after": 1}),
}
#: The one that takes most to end: it ignores the end of its input, and so does who descends from it.
WORST = "a stubborn one with a family"
PLAIN = "a good one"


def is_usual(is_hardest: bool, kind: str) -> bool:
    return kind == WORST or (is_hardest and kind == PLAIN)


def crossed(ends: Iterable[Any], hardest: Any) -> list[Any]:
    """Every end with every server. By default, each end meets the worst server, and the hardest end a plain one too."""
    return [
        pytest.param(end, kind, marks=() if is_usual(end == hardest, kind) else EXTRA)
        for end in ends
        for kind in SERVERS
    ]


@pytest.mark.req("LIF-4")
@pytest.mark.parametrize(
    ("number", "kind"), crossed([signal.SIGKILL, signal.SIGTERM, signal.SIGINT], hardest=signal.SIGKILL)
)
def test_a_host_that_is_ended_by_a_signal(stage: Stage, number: int, kind: str) -> None:
    program, options = SERVERS[kind]
    host = Host("stays", stage.command(program, **options))
    host.wait_until_ready()
    assert len(host.descendants) >= 2  # the server, and who looks after it
    host.process.send_signal(number)
    code, errors = host.end()
    assert code in (-number, 130)
    nothing_is_left(stage, host)
    assert not [alarm for alarm in ALARMS if alarm in errors], errors


@pytest.mark.req("LIF-4")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGINT])
def test_a_host_that_is_ended_with_its_whole_group(stage: Stage, number: int) -> None:
    host = Host("stays", stage.command("stubborn", **STUBBORN))
    host.wait_until_ready()
    os.killpg(host.process.pid, number)
    host.end()
    nothing_is_left(stage, host)


@pytest.mark.req("LIF-4")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_host_that_is_ended_while_it_connects(stage: Stage, number: int) -> None:
    host = Host("stays", stage.command("hanging", silent_on=["*"]))
    blocking_until(lambda: "server/discover" in stage.log.methods(), "the probe")
    host.descendants = descendants_of(host.process.pid)
    host.process.send_signal(number)
    _, errors = host.end()
    nothing_is_left(stage, host)
    assert not [alarm for alarm in ALARMS if alarm in errors], errors


@pytest.mark.req("LIF-4")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_host_that_is_ended_while_it_closes(stage: Stage, number: int) -> None:
    host = Host("stays", stage.command("stubborn", **STUBBORN))
    host.wait_until_ready()
    host.process.send_signal(signal.SIGINT)
    blocking_until(lambda: "end of input" in stage.log.events(), "the closing")
    host.process.send_signal(number)
    _, errors = host.end()
    nothing_is_left(stage, host)
    # A second Ctrl-C may hit any line of any task, which asyncio then speaks of as never retrieved.
    alarms = [alarm for alarm in ALARMS if alarm in errors and alarm != "never retrieved"]
    assert not alarms, errors


#: Ways to end, and the codes with which a program then exits.
CODES = {
    "raises": 1,
    "exits": 3,
    "leaves_at_once": 4,
    "forgets": 0,
    "abandons_the_loop": 0,
    "fails_in_a_group": 1,
}


@pytest.mark.req("LIF-4")
@pytest.mark.parametrize(("scene", "kind"), crossed(CODES, hardest="leaves_at_once"))
def test_a_host_that_ends_by_itself(stage: Stage, scene: str, kind: str) -> None:
    program, options = SERVERS[kind]
    host = Host(scene, stage.command(program, **options))
    found, errors = host.end()
    assert found == CODES[scene], errors
    nothing_is_left(stage, host)
    if scene == "abandons_the_loop":
        return  # asyncio complains of every task in a loop that was closed without an end
    assert not [alarm for alarm in ALARMS if alarm in errors], errors


@pytest.mark.req("LIF-4")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_host_whose_loop_runs_in_a_thread(stage: Stage, number: int) -> None:
    host = Host("in_a_thread", stage.command("stubborn", **STUBBORN))
    host.wait_until_ready()
    host.process.send_signal(number)
    host.end()
    nothing_is_left(stage, host)


@pytest.mark.req("LIF-4")
def test_a_host_that_is_killed_while_a_fork_of_it_lives_on(stage: Stage) -> None:
    host = Host("forks", stage.command("stubborn", **STUBBORN))
    assert host.process.stdout is not None
    fork = int(host.process.stdout.readline().split()[1])
    try:
        host.wait_until_ready()
        host.descendants.remove(fork)
        host.process.kill()
        host.process.wait(PATIENCE)
        blocking_until(lambda: stage.living() == [fork], "the server to be gone", stage.living)
        assert is_alive(fork)
    finally:
        os.kill(fork, signal.SIGKILL)
    host.end()
    nothing_is_left(stage, host)


@pytest.mark.req("LIF-4", "LIF-3")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_host_whose_server_is_itself_a_client(stage: Stage, number: int) -> None:
    inner = stage.command("stubborn", **STUBBORN)
    host = Host("stays", stage.command("gateway", command=inner, ignores=["EOF", "TERM"]))
    host.wait_until_ready()
    host.process.send_signal(number)
    host.end()
    nothing_is_left(stage, host)
    assert len(stage.log.pids) == 2


@pytest.mark.req("LIF-4", "LIF-5")
@pytest.mark.parametrize(
    "scene",
    [
        "without_sigchld",
        "with_a_reaper",
        "without_descriptors",
        "crashes",
        "leaves_in_a_fork",
        "calls_in_a_fork",
        "opens_in_a_fork",
    ],
)
def test_a_host_in_odd_surroundings(stage: Stage, scene: str) -> None:
    host = Host(scene, stage.command("good"))
    host.wait_until_ready()
    code, errors = host.end()
    if scene == "without_descriptors":
        # When there are enough for a server and too few for who looks after it, that is said, once.
        errors = re.sub(r"^The watchdog process cannot run .*\n", "", errors)
    assert (code, errors) == (0, "")
    nothing_is_left(stage, host)


@pytest.mark.req("LIF-4")
def test_a_host_without_standard_streams(stage: Stage) -> None:
    host = Host("without_streams", stage.command("good"))
    assert host.end() == (0, "")
    nothing_is_left(stage, host)
    assert stage.log.calls("echo")


@pytest.mark.req("LIF-11", "LIF-4")
@pytest.mark.parametrize(
    "scene",
    ["in_many_threads", "closes", "closes_twice", "closes_elsewhere", "closes_in_a_thread", "cancels_everything"],
)
@pytest.mark.parametrize("kind", sampled(["a good one", "one that floods"], ("one that floods",)))
def test_a_host_that_ends_well_says_nothing(stage: Stage, scene: str, kind: str) -> None:
    program, options = SERVERS[kind]
    host = Host(scene, stage.command(program, **options))
    code, errors = host.end()
    assert (code, errors) == (0, "")
    nothing_is_left(stage, host)
