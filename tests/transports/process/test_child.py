"""Servers as child processes: what they are given, what comes from them, and how their exit is noticed."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mcplumb.errors import ConnectError, UsageError
from mcplumb.limits import Limits
from mcplumb.transports.descriptors import is_open, kind_of
from mcplumb.transports.process import watchdog
from mcplumb.transports.process.child import Child
from mcplumb.transports.process.command import read_command
from mcplumb.transports.process.exit_watch import Exit, has_exited, reap
from mcplumb.transports.process.tree import MARK
from mcplumb.wire.decode import BadMessage
from mcplumb.wire.messages import Request, Result
from tests.kit.loop import run, turns
from tests.transports.children import PATIENT, Running, is_alive, no_process_left, running, server
from tests.transports.ends import Recorder


@pytest.fixture(autouse=True)
def _no_leak() -> Iterator[None]:
    with no_process_left():
        yield


ECHO = """
import json
for line in sys.stdin:
    print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {}}), flush=True)
"""


# --- What it is given ---


@pytest.mark.req("LIF-1", "FRM-3")
async def test_requests_and_answers() -> None:
    lines: list[tuple[str, bytes]] = []
    async with running(ECHO, trace=lambda way, line: lines.append((way, line))) as there:
        for number in range(100):
            there.child.connection.send(Request(number, "x"))
        await there.seen.until_count(100)
        assert [item.id for item in there.seen.items if isinstance(item, Result)] == list(range(100))
        assert await there.child.stop() == Exit(code=0)
    assert [way for way, _ in lines] == ["out"] * 100 + ["in"] * 100


async def test_limits() -> None:
    async with running("print('x' * 2000, flush=True); tell(); until_end()", limits=Limits(max_line=1000)) as there:
        await there.told()
        assert isinstance(there.seen.items[0], BadMessage)


@pytest.mark.req("LIF-12")
@pytest.mark.parametrize("inherit_env", [False, True])
async def test_the_environment(inherit_env: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")

    command = server(
        "tell(environ=open('/proc/self/environ').read().split('\\0')[:-1])",
        env={"TOKEN": "t", "HOME": "/h"},
        inherit_env=inherit_env,
    )
    there = Running(Child.start(command, stop=PATIENT))
    environ = dict(line.split("=", 1) for line in (await there.told())["environ"])
    await there.child.stop()
    assert len(environ.pop(MARK)) == 16
    assert environ == command.env
    assert (environ["TOKEN"], environ["HOME"], environ["PATH"]) == ("t", "/h", os.environ["PATH"])
    assert ("AWS_SECRET_ACCESS_KEY" in environ) == inherit_env


async def test_where_it_runs_and_what_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/server").symlink_to("/bin/sh")
    script = (
        'name=$(tr "\\0" " " < /proc/$$/cmdline | cut -d" " -f1);'
        'printf \'{"jsonrpc":"2.0","id":"%s","result":"%s"}\\n\' "$PWD" "$name"'
    )

    for name in ("server", "./bin/server", f"{tmp_path}/bin/server"):
        command = read_command([name, "-c", script], cwd=tmp_path, env={"PATH": f"bin:{os.environ['PATH']}"})
        child = Child.start(command, stop=PATIENT)
        seen = Recorder()
        child.connection.start(seen)
        await seen.until_end()
        (answer,) = seen.items
        assert isinstance(answer, Result)
        assert (answer.id, bytes(answer.result)) == (str(tmp_path), f'"{name}"'.encode())
        await child.stop()


@pytest.mark.req("LIF-3")
async def test_a_session_of_its_own() -> None:
    async with running("tell(pid=os.getpid(), group=os.getpgrp(), session=os.getsid(0))") as there:
        pid = there.child.pid
        assert await there.told() == {"pid": pid, "group": pid, "session": pid}


async def test_it_gets_three_descriptors() -> None:
    async with running("forever()"), running("tell(fds=os.listdir('/proc/self/fd'))") as there:
        # The fourth one lists them.
        assert sorted((await there.told())["fds"]) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("missing", [(0,), (0, 1), (0, 1, 2)])
def test_a_host_without_standard_streams(missing: tuple[int, ...]) -> None:
    def has_wire() -> bool:
        return any(is_open(fd) and kind_of(fd) != "other" for fd in missing)

    async def main() -> None:
        async with running(ECHO) as there:
            assert not has_wire()
            there.child.connection.send(Request(1, "x"))
            await there.seen.until_count(1)
            assert not has_wire()
            await there.child.stop()

    with asyncio.Runner() as runner:
        runner.get_loop()  # it has sockets of its own, which must not get these numbers
        saved = {fd: fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in missing}
        for fd in missing:
            os.close(fd)
        try:
            runner.run(main())
        finally:
            for fd, copy in saved.items():
                os.dup2(copy, fd)
                os.close(copy)


# --- What does not start ---


@pytest.mark.req("LIF-9")
@pytest.mark.parametrize("stderr", ["inherit", "discard"])
async def test_what_does_not_start_leaves_nothing(tmp_path: Path, stderr: Any) -> None:
    text, script = tmp_path / "text", tmp_path / "script"
    text.write_text("hello")
    script.write_text("#!/no/such/interpreter\n")
    text.chmod(0o755)
    script.chmod(0o755)

    for command, said in [
        (read_command(["no-such-server"]), "there is no 'no-such-server' in the PATH that it gets: "),
        (read_command(["./no"], cwd=tmp_path), "/no does not exist."),
        (read_command([tmp_path]), "is a directory"),
        (read_command(["sh"], cwd=tmp_path / "no"), "its directory"),
        (read_command([text]), "is neither a program for this machine nor a script"),
        (read_command([script]), "Its first line is '#!/no/such/interpreter'."),
        (read_command(["sh", "x" * 10_000_000]), "its arguments and its environment are larger"),
    ]:
        with pytest.raises(ConnectError) as failed:
            Child.start(command, stderr=stderr, stop=PATIENT)
        assert str(failed.value).startswith(f"The server {str(command)!r} could not be started: ")
        assert said in str(failed.value)


async def test_too_many_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    command = server("forever()")
    failures: list[str] = []

    # Each time it fails at another place.
    for free in range(20):
        spare = os.dup(0)
        os.close(spare)
        resource.setrlimit(resource.RLIMIT_NOFILE, (spare + free, hard))
        try:
            Child.start(command, stop=PATIENT).kill()
            break
        except ConnectError as error:
            failures.append(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert 5 < len(failures) < 20
    assert all(said.endswith("this process has as many files open as the system allows it.") for said in failures)


def test_no_server_without_a_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        Child.start(read_command(["sh"]), stop=PATIENT)


async def test_no_server_for_a_wrong_option() -> None:
    wrong: Any = "pipe"

    with pytest.raises(UsageError, match=r"^stderr is 'pipe'"):
        Child.start(read_command(["sh"]), stderr=wrong, stop=PATIENT)


# --- How it exits ---


EXITS = {
    "pass": Exit(code=0),
    "sys.exit(3)": Exit(code=3),
    "os._exit(255)": Exit(code=255),
    "1 / 0": Exit(code=1),
    "os.kill(os.getpid(), signal.SIGKILL)": Exit(signal="SIGKILL"),
    "signal.signal(signal.SIGTERM, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGTERM)": Exit(signal="SIGTERM"),
    "os.abort()": Exit(signal="SIGABRT"),
}


@pytest.mark.req("LIF-5", "LIF-9")
@pytest.mark.parametrize("code", EXITS)
async def test_an_exit_is_noticed(code: str) -> None:
    async with running(f"print('said before', file=sys.stderr, flush=True); tell()\n{code}") as there:
        assert await there.child.exited == EXITS[code]
        assert there.child.stderr_tail().startswith("said before")
        # It is not reaped, so its number is still ours.
        assert has_exited(there.child.pid)
        os.kill(there.child.pid, 0)
        await there.seen.until_end()
        assert there.seen.names == ["ready"]
        assert await there.child.stop() == EXITS[code]
        with pytest.raises(ProcessLookupError):
            os.kill(there.child.pid, 0)


@pytest.mark.req("LIF-5", "LIF-9")
async def test_an_exit_is_noticed_while_others_hold_the_pipes() -> None:
    code = """
pid = start("time.sleep(1000)")
print("the last words", end="", file=sys.stderr, flush=True)
for _ in range(1000):
    tell("more")
tell(pid=pid)
os._exit(7)
"""

    async with running(code) as there:
        assert await there.child.exited == Exit(code=7)
        assert there.child.stderr_tail() == "the last words"
        # All that it has written is received, and then the end.
        await there.seen.until_end()
        assert len(there.seen.items) == 1001
        assert there.seen.ends == [True]
        left = (await there.told())["pid"]
        assert is_alive(left)
        await there.child.stop()
        assert not is_alive(left)


async def test_an_exit_before_anything_was_read() -> None:
    child = Child.start(server("tell(); os.write(2, b'words')"), stderr="capture", stop=PATIENT)
    await child.exited
    await turns()
    seen = Recorder()
    child.connection.start(seen)
    await seen.until_end()
    assert seen.names == ["ready"]
    assert child.stderr_tail() == "words"
    await child.stop()


async def test_a_waiter_that_is_cancelled_harms_nothing() -> None:
    async with running("until_end(); sys.exit(4)") as there:
        waiter = asyncio.ensure_future(there.child.exited)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert await there.child.stop() == Exit(code=4)


async def test_when_it_started() -> None:
    before = asyncio.get_running_loop().time()
    async with running("until_end()") as there:
        assert before <= there.child.started_at <= asyncio.get_running_loop().time()


async def test_nobody_else_reaps_it() -> None:
    async with running("sys.exit(5)") as there:
        await there.child.exited
        gc.collect()
        # Each start of a process looks for those that nobody has waited for.
        await asyncio.to_thread(subprocess.run, ["/bin/sh", "-c", ":"], check=True)
        assert await there.child.stop() == Exit(code=5)


async def test_somebody_else_reaps_it() -> None:
    def steal(pid: int) -> None:
        os.waitpid(pid, 0)

    async with running("sys.exit(5)") as there:
        steal(there.child.pid)
        assert await there.child.exited == Exit()
        assert await there.child.stop() == Exit()


# --- What it says ---


@pytest.mark.req("LIF-8")
def test_stderr_is_captured(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        async with running("print('hello\\nthere', file=sys.stderr); sys.stderr.flush(); until_end()") as there:
            while there.child.stderr_tail() != "hello\nthere":
                await turns(1)

    run(main())
    assert capfd.readouterr() == ("", "")


@pytest.mark.req("LIF-8")
async def test_stderr_is_inherited(capfd: pytest.CaptureFixture[str]) -> None:
    async with running("print('hello', file=sys.stderr); sys.stderr.write('torn')", stderr="inherit") as there:
        await there.child.exited
        assert there.child.stderr_tail() == "hello\ntorn"
        assert capfd.readouterr() == ("", "hello\ntorn")


@pytest.mark.req("LIF-8")
def test_stderr_is_discarded(capfd: pytest.CaptureFixture[str]) -> None:
    code = "print('hello', file=sys.stderr); tell(stderr=os.readlink('/proc/self/fd/2'))"

    async def main() -> None:
        async with running(code, stderr="discard") as there:
            assert await there.told() == {"stderr": os.devnull}
            await there.child.exited
            assert there.child.stderr_tail() == ""

    run(main())
    assert capfd.readouterr() == ("", "")


@pytest.mark.req("LIF-8")
async def test_stderr_goes_to_a_function() -> None:
    lines: list[str] = []
    async with running("print('a\\nb\\n\\nc', end='', file=sys.stderr)", stderr=lines.append) as there:
        await there.child.exited
        assert lines == ["a", "b", "", "c"]


@pytest.mark.req("LIF-8", "LIF-10")
@pytest.mark.parametrize("stderr", ["capture", "discard", lambda _: None])
async def test_a_flood_on_stderr_holds_up_nobody(stderr: Any) -> None:
    code = """
for _ in range(50):
    os.write(2, b"x" * 999_999 + b"\\n")
print("the last words", file=sys.stderr)
tell("flooded")
until_end()
"""

    async with running(code, stderr=stderr) as there:
        await there.told("flooded")
        assert await there.child.stop() == Exit(code=0)
        if stderr != "discard":
            assert there.child.stderr_tail().endswith("\nthe last words")


@pytest.mark.req("LIF-4")
async def test_a_signal_handler_that_raises_in_the_middle_of_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    popen = subprocess.Popen

    def spawn(*arguments: Any, **options: Any) -> Any:
        process = popen(*arguments, **options)
        if options.get("env"):
            started.append(process.pid)
        return process

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", spawn)
    monkeypatch.setattr(watchdog, "watch_over", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Child.start(server("signal.signal(signal.SIGTERM, signal.SIG_IGN); forever()"), stop=PATIENT)
    assert len(started) == 1
    assert reap(started[0]) == Exit(), "it was reaped already"
