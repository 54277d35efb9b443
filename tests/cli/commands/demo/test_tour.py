"""The steps of the tour: each shows what it says, with a real server, and fails with one that is not right."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path

import pytest

from mcplumb.cli.commands import demo as module
from mcplumb.cli.commands.demo import STEPS, Step, StepFailed, Tour, check, has_http, ms, next_change, text_of
from mcplumb.client.connector import connect
from mcplumb.errors import ConnectError, McplumbError
from mcplumb.revisions import LEGACY
from mcplumb.server.server import Server
from mcplumb.types.content import TextContent
from mcplumb.types.tools import CallToolResult
from tests.cli.kit import PYTHON, SERVERS, mcplumb
from tests.cli.reading import Watched, path_with_mcplumb
from tests.kit.loop import PATIENCE

SHOWN = {
    "probe": ['"method":"server/discover"', "era       modern: it answered server/discover", "teahouse 1.0, process "],
    "tools": ["TOOL", "brew(tea, cups=4)", "Take an order: this asks the user."],
    "call": ["━━━━ 4/4\n", "4 cups of assam, steeped for 4 minutes."],
    "elicit": ["? What would you like? (tea, sugar)", '> tea="sencha", sugar=false', "One sencha, without sugar."],
    "crash": ["with SIGKILL, after the first cup", "4 cups of rooibos", "Missed()", "Change(topic='updates', uri='tea"],
    "legacy": ["REVISION", *map(str, LEGACY)],
    "sockets": ["stdio", "Unix socket  a file that only you can open", "HTTP         http://127.0.0.1:"],
    "broken": ["exit code 1, while starting", "stderr  The tea is out."],
}


def named(step: Step) -> str:
    return step.take.__name__


@pytest.mark.parametrize("step", STEPS, ids=named)
def test_each_step_shows_what_it_is_about(step: Step, capsys: pytest.CaptureFixture[str]) -> None:
    learnt = asyncio.run(step.take(Tour()))
    assert learnt.endswith(".")
    shown = capsys.readouterr().out
    for words in SHOWN[named(step)]:
        assert words in shown


def test_without_its_packages_there_is_no_http(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert has_http()
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.setattr(module, "has_http", lambda: False)
    tour = Tour()
    asyncio.run(module.sockets(tour))
    shown = capsys.readouterr().out
    assert "not installed: pip install 'mcplumb[http]'" in shown
    assert "http://" not in shown
    assert set(tour.round_trips) == {"stdio", "a Unix socket"}


def test_what_is_installed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "httptools" else name)
    assert not has_http()


@pytest.mark.parametrize("step", [step for step in STEPS if named(step) != "broken"], ids=named)
def test_no_step_succeeds_with_a_server_that_does_not_start(step: Step) -> None:
    with pytest.raises(ConnectError):
        asyncio.run(step.take(Tour([PYTHON, "-c", "exit(3)"])))


@pytest.mark.parametrize("name", ["probe", "tools", "call", "elicit", "crash"])
def test_no_step_succeeds_with_another_server(name: str) -> None:
    (step,) = (step for step in STEPS if named(step) == name)
    with pytest.raises(McplumbError):
        asyncio.run(step.take(Tour([PYTHON, str(SERVERS / "legacy.py")])))


def test_a_server_that_should_not_have_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/sh")
    monkeypatch.setattr(module, "_NO_SERVER", f"exec {PYTHON} -m mcplumb.cli.commands.demo_server")
    with pytest.raises(StepFailed, match="could be used"):
        asyncio.run(module.broken(Tour()))


def test_what_is_measured_is_told() -> None:
    tour = Tour()
    assert tour.measured() == []
    tour.starts = [0.2, 0.1, 0.3]
    tour.round_trips = {"stdio": 0.00012}
    tour.calls_per_second = 12345.6
    tour.restarts = [0.4]
    tour.memory = (20 * 1024 * 1024, 1)
    assert tour.measured() == [
        ("start-up", "200 ms (median of 3 servers, each a new process)"),
        ("a call over stdio", "0.12 ms"),
        ("calls at once", "12,346 a second, 500 in flight, over stdio"),
        ("restarts", "1, 400 ms from the kill to the next progress"),
        ("memory", "20 MiB for the server"),
    ]
    assert (ms(1.5), ms(0.0101), ms(0.0099)) == ("1500 ms", "10 ms", "9.90 ms")


def test_messages_go_to_everyone_who_wants_them() -> None:
    seen: list[str] = []
    tour = Tour(trace=lambda direction, _: seen.append(direction))

    async def main() -> None:
        async with tour.connect(trace=lambda direction, _: seen.append(f"also {direction}")):
            pass

    asyncio.run(main())
    assert seen[:4] == ["out", "also out", "in", "also in"]


def test_checks() -> None:
    check(True, "one is one")
    with pytest.raises(StepFailed, match="Expected that one is two"):
        check(False, "one is two")
    with pytest.raises(StepFailed, match=r"the tool does not fail \(no tea\)"):
        text_of(CallToolResult(content=[TextContent(text="no tea")], is_error=True))


def test_a_subscription_that_ends_fails_the_step() -> None:
    server = Server("short", stop_within=0)
    server.add_resource("a://b", lambda: "c", name="b")

    async def main() -> None:
        async with connect(server, restart=False) as client, client.listen(resources=["a://b"]) as changes:
            server.stop()
            await next_change(changes)

    with pytest.raises(McplumbError):
        asyncio.run(main())


@pytest.mark.parametrize("step", STEPS, ids=named)
def test_the_command_of_each_step_works_as_it_is_printed(step: Step, tmp_path: Path) -> None:
    programs = path_with_mcplumb(tmp_path)
    words = [word.replace(":8000", ":0") for word in shlex.split(step.command)]
    assert words[0] == "mcplumb"
    if words[1] in ("listen", "serve"):  # they do not end by themselves
        (tmp_path / "teahouse.py").write_text(mcplumb("demo", "--source").out, encoding="utf-8")
        command = [PYTHON, "-m", *words]
        if words[1] == "listen":
            command = [PYTHON, "-m", *words[: words.index("--") + 1], PYTHON, "-m", *words[words.index("--") + 1 :]]
        with Watched(command, cwd=tmp_path) as process:
            process.wait_for("Serving at http" if words[1] == "serve" else "Listening for changes of tea://menu")
            process.terminate()
            process.wait(PATIENCE)
        return
    done = mcplumb(*words[1:], env={"PATH": programs})
    assert done.code == (3 if named(step) == "broken" else 0), done
    assert "The tea is out." in done.err if named(step) == "broken" else done.out
