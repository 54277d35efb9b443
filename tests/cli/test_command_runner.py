"""How commands end: their exit codes, Ctrl-C, a reader that has gone, and faults of our own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import pytest

from mcplumb import errors
from mcplumb.cli.command_runner import (
    EXIT_CODES,
    GlobalOptions,
    error_text,
    exit_code_of,
    global_options,
    run,
    run_cli,
    using_runner,
)
from mcplumb.cli.main import NEEDS_PACKAGES, OVERVIEW
from mcplumb.errors import McplumbError, RemoteError, ServerExited
from tests.cli.kit import LEGACY, PYTHON, WEATHER, here, mcplumb, on_terminal
from tests.kit.loop import PATIENCE

CODES = {
    "UsageError": 2, "EncodeError": 2, "NotInRevision": 2, "ToolError": 1, "ToolFailed": 1, "ConnectError": 3,
    "ConnectTimeout": 5,
    "NoCommonRevision": 3, "ServerExited": 3, "ServerDown": 3, "RequestLost": 3, "Closed": 3, "RequestCancelled": 3,
    "RemoteError": 4, "HttpError": 4, "ProtocolError": 4, "DecodeError": 4, "RequestTimeout": 5, "RequestError": 4,
    "StateRefused": 4, "McplumbError": 4, "AuthorizationError": 4, "StoreUnavailable": 3,
}  # fmt: skip


def test_every_error_has_its_code() -> None:
    assert CODES.keys() == set(errors.__all__)
    for name, code in CODES.items():
        kind = getattr(errors, name)
        assert exit_code_of(kind.__new__(kind)) == code, name
        assert code in EXIT_CODES


def test_the_overview_names_the_codes_that_users_meet() -> None:
    shown = OVERVIEW.partition("Exit codes:\n")[2]
    assert {int(word) for word in shown.split() if word.isdigit()} == set(EXIT_CODES) - {70, 74, 129, 141, 143}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["ping", *LEGACY], 0, ""),
        (["tools", "--schema", "nothing", *LEGACY], 2, "The server has no tool 'nothing'."),
        (["ping", "--", "false"], 3, "exited with code 1"),
        (["ping", "--", "no-program-of-this-name"], 3, "could not be started"),
        (["ping", "-s", "tcp://127.0.0.1:1"], 3, "nothing listens there"),
        (["ping", "--timeout", "0.2", "--", "sleep", "100"], 5, "allow more (--timeout)"),
    ],
)
def test_commands_end_with_the_code_that_is_promised(words: list[str], code: int, said: str) -> None:
    done = here(*words)
    assert done.code == code, done
    assert said in done.err
    assert "EraWaits" not in done.err


def test_an_error_of_the_server_is_4() -> None:
    server = (
        "import sys, json\nfor line in sys.stdin:\n    m = json.loads(line)\n    ok = m['method'] == 'initialize'\n"
    )
    server += "    r = {'result': {'protocolVersion': '2025-06-18', 'capabilities': {}}}\n"
    server += "    e = {'error': {'code': -32000, 'message': 'No.', 'data': {'left': 0}}}\n"
    server += "    'id' in m and print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], **(r if ok else e)}), flush=True)\n"
    done = here("tools", "--", PYTHON, "-c", server)
    assert done == (4, "", 'Error: The server answered tools/list with error -32000: No.\nIts data: {"left":0}\n')


def test_a_hint_leads_to_the_probe_of_the_same_server(tmp_path: Path) -> None:
    assert here("ping", "--", "false", "a b").err.endswith("\nTo find out more: mcplumb probe -- false 'a b'\n")
    options = ["-e", "A=secret", "-e", "B=", "--cwd", "/", "-q", "--timeout", "9", "--no-restart"]
    said = here("ping", *options, "--", "false").err
    assert said.endswith("mcplumb probe --env 'A=…' --env 'B=…' --cwd / --timeout 9 -- false\n")
    said = here("ping", "-s", "http://127.0.0.1:1/?key=secret").err
    assert said.endswith("mcplumb probe -s 'http://127.0.0.1:1/?key=***'\n")
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"x": {"url": "http://127.0.0.1:1/"}}}')
    said = here("ping", "--config", str(file), "-s", "x", "--header", "A: secret", "--sse").err
    assert said.endswith(f"mcplumb probe --config {file} --header 'A:…' --sse -s x\n")


def test_stderr_is_shown_once() -> None:
    server = ["--", "sh", "-c", "echo on stderr >&2; exit 3"]
    for options in ([], ["-q"]):
        said = here("ping", *options, *server).err
        assert said.count("on stderr\n") == 1
        assert "The end of its stderr:\non stderr\n" in said
    said = here("-v", "ping", *server).err
    assert said.count("on stderr\n") == 1
    assert said.startswith("on stderr\n")
    assert "Its stderr is above." in said


def test_a_sentence_is_in_the_words_of_the_command_line() -> None:
    assert error_text(McplumbError("Wait (EraWaits.patience).")) == "Wait (--timeout)."
    assert error_text(McplumbError("Give one: connect(…, token=…).")) == "Give one: --token-file FILE."
    said = error_text(ServerExited("x", phase="spawn", exit_code=1, stderr_tail="secret"))
    assert said == "The server `x` exited with code 1 while starting."


def test_a_command_may_choose_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> int | None:
        await asyncio.sleep(0)
        return 7

    @click.command()
    def choose() -> int:
        return run(main())

    assert _guarded(choose) == 7
    assert capsys.readouterr() == ("", "")


def test_nothing_returned_is_done() -> None:
    async def main() -> None:
        return None

    @click.command()
    def nothing() -> None:
        assert run(main()) == 0

    assert _guarded(nothing) == 0


def test_a_signal_becomes_a_code_and_what_it_ends_is_ended_in_order() -> None:
    ended: list[str] = []

    async def main() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.Event().wait()
        finally:
            ended.append("here")

    assert run(main()) == 143
    assert ended == ["here"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_what_is_cancelled_by_nobody_we_know_is_a_fault() -> None:
    async def main() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(main())


def test_what_an_abort_is() -> None:
    @click.command()
    def abort() -> None:
        raise click.Abort

    assert _guarded(abort) == 130


def test_a_fault_of_ours_is_admitted(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def fail() -> None:
        raise KeyError("\x1b")

    assert _guarded(fail) == 70
    err = capsys.readouterr().err
    assert "KeyError: '\\x1b'" in err
    assert err.endswith("This is a bug in mcplumb: please report it.\n")


@pytest.mark.parametrize(
    "words",
    [
        ["tools", "--record", "a.mcp.jsonl", *WEATHER],
        ["--config", "mcp.json", "servers"],
        ["add", "x", "--cwd", "sub", "--", "true"],
        ["servers"],
        ["wrap", "x"],
    ],
    ids=" ".join,
)
def test_a_current_folder_that_is_gone_is_no_fault_of_ours(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = here(*words)
    assert done == (2, "", "Error: The current directory does not exist any more: go to another one.\n")


def test_a_package_that_is_missing_is_no_fault_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'rich'", name="rich")

    assert _guarded(fail) == 2
    assert capsys.readouterr().err == NEEDS_PACKAGES


def test_wrong_usage_is_told_by_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def fail() -> None:
        raise click.UsageError("Not like this.")

    assert _guarded(fail) == 2
    assert "Error: Not like this." in capsys.readouterr().err


def test_an_error_that_cannot_be_told_is_a_fault_too(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def fail() -> None:
        raise RemoteError(1, "x")

    def broken(*_: object) -> None:
        raise OSError("stderr is gone")

    monkeypatch.setattr("mcplumb.cli.render.output.say_error", broken)
    assert _guarded(fail) == 70


def test_options_without_a_command_are_the_usual_ones() -> None:
    assert global_options() == GlobalOptions()


def _guarded(command: click.Command) -> int:
    with patch("sys.argv", ["mcplumb"]):
        return run_cli(command)


# --- As a process ---


def test_results_are_on_stdout_and_nothing_else_is() -> None:
    done = mcplumb("-vv", "--trace", "tools", "--json", *WEATHER)
    assert [tool["name"] for tool in done.json["tools"]] == ["forecast", "measure"]
    assert "-->" in done.err


def test_ctrl_c_ends_the_command_and_its_server(tmp_path: Path) -> None:
    server = f"echo $$ > {tmp_path}/pid; echo started >&2; exec sleep 100"
    done = on_terminal("-v", "ping", "--", "sh", "-c", server, typed=[("started", "\x03")])
    assert done.code == 130
    assert "Traceback" not in done.out
    assert "Error" not in done.out
    _wait_for_end(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("command", ["ping", "listen"])
def test_other_signals_end_the_server_too(tmp_path: Path, number: int, code: int, command: str) -> None:
    # A server that does not end by itself when its stdin does.
    server = f"echo $$ > {tmp_path}/pid; echo started >&2; exec sleep 100"
    with _started(["-v", command, "--", "sh", "-c", server]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == "started\n"
        process.send_signal(number)
        end = "The connection is closed, and the server is released.\n"
        assert (process.stdout.read(), process.stderr.read()) == ("", end)
    assert process.returncode == code
    _wait_for_end(int((tmp_path / "pid").read_text()))


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    server = f"trap '' TERM; echo $$ > {tmp_path}/pid; echo started >&2; while true; do sleep 1; done"
    with _started(["-v", "ping", "--", "sh", "-c", server]) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "started\n"
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None:
            assert time.monotonic() < deadline
            process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
    assert process.returncode == -signal.SIGTERM
    os.killpg(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    with _started(["ping", "-n", "2", *LEGACY], ignored=signal.SIGHUP) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("1: answered")
        process.send_signal(signal.SIGHUP)
        assert "2 answers" in process.stdout.read()
    assert process.returncode == 0


def _started(words: list[str], ignored: int | None = None) -> subprocess.Popen[str]:
    def prepare() -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN if number == ignored else signal.SIG_DFL)

    return subprocess.Popen(
        [PYTHON, "-m", "mcplumb", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,  # noqa: PLW1509 - there are no threads here
    )


def test_ctrl_c_at_the_second_ping_keeps_what_was_printed() -> None:
    done = on_terminal("ping", "-n", "100", "--interval", "100", *LEGACY, typed=[("1: answered", "\x03")])
    assert done.code == 130
    assert "Traceback" not in done.out


def _wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError(f"{pid} still runs")


def test_a_command_that_lasts_runs_the_others() -> None:
    ran: list[Any] = []

    async def work() -> int:
        return 7

    def runner(coroutine: Coroutine[Any, Any, int | None]) -> int | None:
        ran.append(coroutine)
        return asyncio.run(coroutine)

    with using_runner(runner):
        assert run(work()) == 7
    assert len(ran) == 1
    assert run(work()) == 7
    assert len(ran) == 1
