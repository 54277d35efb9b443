"""Running a server as what its process is for. The tests of processes see the same from outside."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import pty
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcplumb.server import run
from mcplumb.server.run import run_on_stdio
from mcplumb.server.server import Server
from mcplumb.transports.stdio import Stdio
from tests.kit.loop import PATIENCE
from tests.kit.results import text_of
from tests.server.harness import Plain, lines, make_server, standard_streams

SIGNALS = [signal.SIGINT, signal.SIGTERM]


class Ends:
    """What would have ended this process."""

    def __init__(self) -> None:
        #: When, with which code, and with which last words.
        self.later: list[tuple[float, int, str]] = []
        #: With which code at once.
        self.now: list[int] = []


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    ends = Ends()
    monkeypatch.setattr(run, "_end_process_after", lambda *how: ends.later.append(how))
    monkeypatch.setattr(os, "_exit", ends.now.append)
    monkeypatch.setattr(run, "_GRACE", 0.2)
    monkeypatch.setattr(run, "_LAST_STEPS", 0.2)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    yield ends
    assert {number: signal.getsignal(number) for number in SIGNALS} == handlers


def serve(server: Server, *requests: Plain, hangs_up: bool = True, **options: Any) -> list[Plain]:
    """What a server answers to these requests, in the order of their ids."""
    with standard_streams() as streams:
        streams.feed(lines(*requests))
        if hangs_up:
            streams.end()
        _run(server, **options)
        return sorted(streams.messages(), key=lambda each: int(each["id"]))


def _run(server: Server, **options: Any) -> None:
    stdio = Stdio()
    try:
        run_on_stdio(server, stdio, **{"log_format": None, "trace": None, **options})
    finally:
        stdio.restore()


def call(tool: str) -> Plain:
    return {"method": "tools/call", "params": {"name": tool, "arguments": {}}}


def in_a_thread(body: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(body()))
    thread.start()
    thread.join(PATIENCE)
    return results[0]


@pytest.mark.req("LIF-13")
def test_it_runs_until_the_input_ends(ends: Ends) -> None:
    server = make_server(finish_within=PATIENCE)

    @server.tool
    async def slow() -> str:
        await asyncio.sleep(0.01)
        return "done"

    listed, called = serve(server, {"method": "tools/list"}, call("slow"))
    assert len(listed["result"]["tools"]) == 1
    assert text_of(called["result"]) == "done"
    assert ends.later == []


def test_at_a_terminal_it_says_what_it_waits_for(tmp_path: Path) -> None:
    (tmp_path / "town.py").write_text("from mcplumb import Server\nServer('town').run()\n")
    typed, terminal = pty.openpty()
    command = [sys.executable, "town.py", "a b"]
    os.write(typed, b"\x04")
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        out, err = process.communicate(timeout=PATIENCE)
    os.close(terminal)
    os.close(typed)
    assert (process.returncode, out) == (0, "")
    said = f"from a client that starts it: mcplumb tools -- {shlex.join(command)}. To accept connections"
    assert said in err
    assert err.count("\n") == 1
    done = subprocess.run(command, cwd=tmp_path, input="", capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_it_may_run_in_any_thread(ends: Ends) -> None:
    (answer,) = in_a_thread(lambda: serve(make_server(), {"method": "tools/list"}))
    assert "result" in answer


def test_every_message_may_be_traced(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mcplumb.trace")
    serve(make_server(), {"method": "tools/list"}, trace=True)
    directions = [record.getMessage()[:3] for record in caplog.records if record.name == "mcplumb.trace"]
    assert directions == ["<--", "-->"]
    caplog.clear()
    serve(make_server(), {"method": "tools/list"})
    assert caplog.records == []


# Signals


@pytest.mark.req("LIF-14")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_stops_the_server(ends: Ends, number: signal.Signals, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mcplumb")
    server = make_server(stop_within=PATIENCE)

    @server.tool
    async def stop_me() -> str:
        os.kill(os.getpid(), number)
        await asyncio.sleep(0)
        return "finished"

    (answer,) = serve(server, call("stop_me"), hangs_up=False)
    assert text_of(answer["result"]) == "finished"
    assert f"Received {number.name}: the server stops." in caplog.text
    # If anything had not stopped, the process would have ended all the same.
    assert [(seconds, code) for seconds, code, _ in ends.later] == [(PATIENCE + 0.2, 128 + number)]


@pytest.mark.req("LIF-14")
def test_a_second_signal_ends_the_process_at_once(ends: Ends) -> None:
    server = make_server()

    @server.tool
    async def stop_me() -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        return "finished"

    serve(server, call("stop_me"), hangs_up=False)
    assert ends.now == [128 + signal.SIGINT]


def test_a_signal_that_finds_the_loop_blocked_is_not_lost(ends: Ends) -> None:
    server = make_server(stop_within=PATIENCE)

    @server.tool
    async def block() -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        assert len(ends.later) == 1  # it has come, although the loop does not turn
        return "finished"

    (answer,) = serve(server, call("block"), hangs_up=False)
    assert text_of(answer["result"]) == "finished"


@pytest.mark.parametrize("place", ["begins", "ends"])
def test_a_signal_ends_a_lifespan_that_does_not(ends: Ends, place: str) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async def hang() -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            try:
                await asyncio.Event().wait()
            finally:
                events.append("cancelled")

        if place == "begins":
            await hang()
        yield
        await hang()

    serve(make_server(lifespan=lifespan, finish_within=PATIENCE), hangs_up=place == "ends")
    assert events == ["cancelled"]


def test_a_signal_before_anything_has_begun(ends: Ends) -> None:
    """The handler is there before the first step of the server is."""
    server = make_server()
    with standard_streams():
        stdio = Stdio()
        connection = stdio.connection

        def interrupted(**options: Any) -> Any:
            os.kill(os.getpid(), signal.SIGTERM)
            return connection(**options)

        class Interrupting:
            def __getattr__(self, name: str) -> Any:
                return interrupted

        given: Any = Interrupting()
        try:
            run_on_stdio(server, given, log_format=None, trace=None)
        finally:
            stdio.restore()
    assert len(ends.later) == 1


def test_a_fork_is_ended_by_its_own_signal(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has this handler, too, but not the server."""
    server = make_server()
    raised: list[tuple[int, Any]] = []

    @server.tool
    async def be_a_fork() -> str:
        number = os.getpid()
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: number + 1)
            patch.setattr(signal, "raise_signal", lambda each: raised.append((each, signal.getsignal(each))))
            handler = signal.getsignal(signal.SIGTERM)
            os.kill(number, signal.SIGTERM)
            signal.signal(signal.SIGTERM, handler)
        return "done"

    serve(server, call("be_a_fork"))
    assert raised == [(signal.SIGTERM, signal.SIG_DFL)]
    assert ends.later == []


# What a program leaves behind


def test_tasks_that_are_left_behind_are_cancelled(ends: Ends) -> None:
    server = make_server(finish_within=PATIENCE)
    ended: list[str] = []
    kept: list[asyncio.Task[None]] = []

    @server.tool
    async def leave() -> str:
        async def linger(name: str, *, is_stubborn: bool) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(name)
                if is_stubborn:
                    await asyncio.sleep(1000)

        kept.append(asyncio.create_task(linger("one", is_stubborn=False)))
        kept.append(asyncio.create_task(linger("two", is_stubborn=True)))
        await asyncio.sleep(0)
        return "done"

    (answer,) = serve(server, call("leave"))
    assert text_of(answer["result"]) == "done"
    assert sorted(ended) == ["one", "two"]
    # Nobody will ever run it again; asyncio would complain about that when it is forgotten.
    kept[1]._log_destroy_pending = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_slow", [False, True])
def test_generators_that_are_left_behind_are_closed(ends: Ends, is_slow: bool) -> None:
    server = make_server(finish_within=PATIENCE)
    closed: list[str] = []
    kept: list[AsyncIterator[int]] = []

    async def count() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            closed.append("count")
            if is_slow:
                await asyncio.sleep(1000)

    @server.tool
    async def leave() -> int:
        kept.append(count())
        return await anext(kept[0])

    serve(server, call("leave"))
    assert closed == ["count"]


def test_threads_that_do_not_end_keep_the_process_only_for_a_while(ends: Ends) -> None:
    server = make_server(finish_within=PATIENCE)
    go = threading.Event()
    threads: list[threading.Thread] = []

    @server.tool
    def leave() -> str:
        for name, is_daemon in (("b", False), ("a", False), ("daemon", True)):
            threads.append(threading.Thread(target=go.wait, args=(PATIENCE,), name=name, daemon=is_daemon))
            threads[-1].start()
        return "done"

    serve(server, call("leave"))
    assert ends.later == [(0.2, 0, "The process ends without waiting for a, b any longer.")]
    go.set()
    for thread in threads:
        thread.join(PATIENCE)


def test_children_that_do_not_end_keep_the_process_only_for_a_while(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Child:
        def __init__(self, name: str, *, daemon: bool) -> None:
            self.name = name
            self.daemon = daemon

    children = [Child("worker", daemon=False), Child("helper", daemon=True)]
    monkeypatch.setattr(multiprocessing, "active_children", lambda: children)
    serve(make_server())
    assert ends.later == [(0.2, 0, "The process ends without waiting for worker any longer.")]
    # A program that has never loaded the module has no children of its kind.
    monkeypatch.delitem(sys.modules, "multiprocessing")
    serve(make_server())
    assert len(ends.later) == 1


def test_the_end_comes_with_a_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Any] = []
    ended = threading.Event()

    def end(code: int) -> None:
        events.append(code)
        ended.set()

    monkeypatch.setattr(time, "sleep", events.append)
    monkeypatch.setattr(run, "write_stderr", events.append)
    monkeypatch.setattr(os, "_exit", end)
    run._end_process_after(1.5, 3, "That is all.")
    assert ended.wait(PATIENCE)
    assert events == [1.5, b"That is all.\n", 3]


def test_an_error_of_the_lifespan_is_the_program_s(ends: Ends) -> None:
    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        raise ConnectionError("no database")
        yield

    with pytest.raises(ConnectionError, match="no database"):
        serve(make_server(lifespan=lifespan))
