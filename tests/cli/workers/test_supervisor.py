"""Workers under load: killed, reloaded and stopped. All of it with real processes."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from mcplumb import connect
from mcplumb.revisions import LATEST_LEGACY
from tests.cli.workers.workshop import APP, Load, fleet, is_alive, until
from tests.kit.redis_server import running_redis

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="It looks for processes in /proc.")


@pytest.fixture
def app(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path / "app.py"


@pytest.mark.req("SCL-5")
def test_all_workers_serve_one_address(app: Path) -> None:
    with fleet(app) as running, Load(running.url) as load:
        load.go_on()
        until(lambda: len(load.pids) == 2, "both workers")
        assert load.pids == {str(pid) for pid in running.pids()}
        running_pids = running.pids()
    assert running.process.returncode == 0
    assert "Without --shared, 2 workers serve modern clients" in running.log
    assert running.log.count("Serving at") == 1
    assert not any(map(is_alive, running_pids))


def test_a_killed_worker_is_replaced_under_load(app: Path) -> None:
    with fleet(app, "--metrics") as running, Load(running.url) as load:
        before = running.pids()
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        until(lambda: victim not in running.pids() and len(running.pids()) == 2, "another worker")
        new = running.pids() - before
        until(lambda: {str(pid) for pid in new} <= load.pids, "an answer of the new worker")
        load.go_on()
        assert load.refused == []
        assert load.statuses == []
        assert running.count("mcplumb_worker_restarts_total") == 1
        assert running.count("mcplumb_workers") == 2
    # Only what the killed one was working on is lost.
    assert len(load.broken) <= 8, load.broken
    assert "was ended by SIGKILL. Another one is started in 0." in running.log


#: The app with another version. Its size differs, too: files of the same second and size are one to Python.
CHANGED = APP.replace("VERSION = 1", "VERSION =  2")


def test_a_reload_turns_nobody_away(app: Path) -> None:
    with fleet(app) as running, Load(running.url) as load:
        assert running.call("version") == "1"
        before = running.pids()
        app.write_text(CHANGED)
        running.signal(signal.SIGHUP)
        until(lambda: "All workers are replaced." in running.log, "the reload")
        load.go_on()
        assert running.pids().isdisjoint(before)
        assert len(running.pids()) == 2
        assert {running.call("version") for _ in range(4)} == {"2"}
        assert (load.refused, load.broken, load.statuses) == ([], [], [])
    assert not any(map(is_alive, before))


def test_a_reload_lets_calls_finish(app: Path) -> None:
    with fleet(app, workers=1) as running:
        old = int(running.call("pid"))
        with running.calling() as answers, running.connect() as idle:
            running.signal(signal.SIGHUP)
            assert idle.recv(1) == b""  # the old worker stops
        assert answers == [str(old)]
        until(lambda: not is_alive(old), "the end of the old worker")
        assert int(running.call("pid")) != old


def test_a_reload_that_cannot_start_a_process_changes_nothing(app: Path) -> None:
    with fleet(app) as running:
        running.call("pid")
        before, supervisor = running.pids(), running.process.pid
        limits = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (0, limits[1]))
        running.signal(signal.SIGHUP)
        until(lambda: "The reload ends here" in running.log, "the end of the reload")
        assert "Worker 1 cannot be started: [Errno 24] Too many open files." in running.log
        assert running.pids() == before
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, limits)
        running.signal(signal.SIGHUP)
        until(lambda: "All workers are replaced." in running.log, "the reload")
        assert running.pids().isdisjoint(before)


def test_a_reload_of_what_does_not_load_changes_nothing(app: Path) -> None:
    with fleet(app) as running:
        running.call("pid")
        before = running.pids()
        app.write_text("1 / 0")
        running.signal(signal.SIGHUP)
        until(lambda: "The reload ends here" in running.log, "the end of the reload")
        assert "Line 1: ZeroDivisionError: division by zero" in running.log
        until(lambda: running.pids() == before, "the same workers")
        assert int(running.call("pid")) in before
        app.write_text(APP)  # and it can be mended
        running.signal(signal.SIGHUP)
        until(lambda: "All workers are replaced." in running.log, "the reload")
        assert running.pids().isdisjoint(before)


def test_a_signal_lets_calls_finish(app: Path) -> None:
    with fleet(app) as running:
        running.call("pid")
        pids = running.pids()
        with running.calling() as answers:
            running.signal(signal.SIGTERM)
            until(lambda: "the workers stop" in running.log, "the signal")
        assert running.join() == 0
    assert int(answers[0]) in pids
    assert not any(map(is_alive, pids))


def test_a_second_signal_ends_everything_at_once(app: Path) -> None:
    with fleet(app) as running:
        running.call("pid")
        pids = running.pids()
        with running.calling() as answers:
            running.signal(signal.SIGINT)
            until(lambda: "the workers stop" in running.log, "the first signal")
            running.signal(signal.SIGINT)
            assert running.join() == 0
    assert answers in (["RequestLost"], ["Closed"]), answers
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("blocks", [False, True], ids=["idle", "blocked"])
def test_nothing_is_left_if_the_supervisor_is_killed(app: Path, blocks: bool) -> None:
    if blocks:
        # An async function that blocks its event loop, so that the worker notices nothing.
        app.write_text(APP.replace("await asyncio.sleep(0.02)", "__import__('time').sleep(0.02)"))
    with fleet(app) as running, ExitStack() as stack:
        child = int(running.call("child"))
        pids = running.pids()
        if blocks:
            stack.enter_context(running.calling())
        running.signal(signal.SIGKILL)
        until(lambda: not any(map(is_alive, {*pids, child})), "the end of the workers")


def test_crashes_in_a_row_are_slowed_down(app: Path, tmp_path: Path) -> None:
    mark = tmp_path / "crash"
    app.write_text(f"import os\nif os.path.exists({str(mark)!r}): os._exit(7)\n{APP}")
    with fleet(app, workers=1) as running:
        (worker,) = until(running.pids, "a worker")
        running.call("pid")
        mark.touch()
        os.kill(worker, signal.SIGKILL)
        until(lambda: "times in a row" in running.log, "the breaker")
        assert "exited with code 7. It has ended early 6 times in a row: its log says why." in running.log
        mark.unlink()
        running.signal(signal.SIGHUP)  # at once, not in half a minute
        until(running.pids, "a worker")
        assert running.call("version") == "1"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 / 0", "cannot be imported. Line 1: ZeroDivisionError"),
        ("x = 1", "has no server"),
        ("import os; os._exit(3)", "exited with code 3 before it was ready"),
    ],
)
def test_a_file_that_cannot_be_served_is_reported_once(app: Path, text: str, sentence: str) -> None:
    app.write_text(text)
    with fleet(app, workers=3) as running:
        assert running.join() != 0
    assert running.log.count(sentence) == 1, running.log
    assert "Another one is started" not in running.log


def test_a_port_that_is_taken_is_reported_once(app: Path) -> None:
    with fleet(app) as running:
        place = running.url.removeprefix("http://").removesuffix("/mcp")
        with fleet(app, "--http", place) as other:
            assert other.join() != 0
        assert other.log.count("Error: The server cannot listen at") == 1
        assert len(other.lines) == 2


def test_workers_answer_each_others_questions(app: Path) -> None:
    """A modern client's question is sealed by one worker, and its answer may meet another."""
    with fleet(app, workers=3) as running:
        one, *others = running.workers()
        with running.only(one):
            asked = running.post("ask")
        (number,) = asked["inputRequests"]
        answer = {
            "requestState": asked["requestState"],
            "inputResponses": {number: {"action": "accept", "content": {}}},
        }
        for each in others:
            with running.only(each):
                assert running.post("ask", **answer)["content"][0]["text"] == f"accept {each}"


@pytest.mark.req("SCL-5")
def test_metrics_are_those_of_all_workers(app: Path) -> None:
    name = 'mcplumb_requests_total{method="tools/call",tool="pid",outcome="ok"}'
    with fleet(app, "--metrics") as running:
        one, other = running.workers()
        for pid, calls in ((one, 1), (other, 2)):
            with running.only(pid):
                assert [running.call("pid") for _ in range(calls)] == [str(pid)] * calls
        assert running.count(name) == 3
        # Nothing that was shown once is lost with its process.
        os.kill(one, signal.SIGKILL)
        until(lambda: one not in running.pids() and len(running.pids()) == 2, "another worker")
        assert running.count(name) == 3
        running.signal(signal.SIGHUP)
        until(lambda: "All workers are replaced." in running.log, "the reload")
        assert running.count(name) == 3
        assert running.count("mcplumb_worker_restarts_total") == 1
        assert running.count('mcplumb_info{version="0.1.0"}') == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--unix", "never.sock"), "--workers is for clients over HTTP"),
        (("--stdio",), "--workers is for clients over HTTP"),
        (("--reload",), "--workers and --reload do not go together"),
        (("--token-file", "/dev/null"), "Every worker reads the token file"),
    ],
)
def test_what_workers_cannot_do_is_said(app: Path, words: tuple[str, ...], sentence: str) -> None:
    with fleet(app, *words) as running:
        assert running.join() == 2
    assert sentence in running.log


def test_tokens_are_read_again_by_a_reload(app: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("first\n")

    async def is_allowed(url: str, token: str) -> bool:
        from mcplumb.errors import McplumbError

        try:
            async with connect(url, token=token):
                return True
        except McplumbError:
            return False

    with fleet(app, "--token-file", str(tokens)) as running:
        assert asyncio.run(is_allowed(running.url, "first"))
        tokens.write_text("second\n")
        running.signal(signal.SIGHUP)
        until(lambda: "All workers are replaced." in running.log, "the reload")
        assert asyncio.run(is_allowed(running.url, "second"))
        assert not asyncio.run(is_allowed(running.url, "first"))


@pytest.mark.req("SCL-1")
def test_workers_that_share_a_store_serve_legacy_clients(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def visit(url: str) -> set[str]:
        """The processes that answer one session: a client may use several connections, and each meets any worker."""
        async with connect(url, revisions=[LATEST_LEGACY.name]) as client:
            calls = [client.call_tool("slow", {"seconds": 0.2}) for _ in range(12)]
            return {result.text for result in await asyncio.gather(*calls)}

    with running_redis() as redis:
        monkeypatch.setenv("MCPLUMB_SHARED", redis.url)
        with fleet(app, workers=3) as running:
            answers = [asyncio.run(visit(running.url)) for _ in range(4)]
            pids = running.pids()
            assert all(redis.url.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids)
            assert running.ready()
    assert set().union(*answers) <= {str(pid) for pid in pids}
    assert "Without --shared" not in running.log
