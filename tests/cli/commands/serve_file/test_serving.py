"""``mcplumb serve``: on standard input and output, its options, and what it says when there is nothing to serve."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest

from mcplumb.cli.command_group import cli
from mcplumb.cli.command_runner import GlobalOptions
from mcplumb.cli.commands.serve_file import ServeSettings, serve
from mcplumb.cli.serve_options import HttpAccess
from mcplumb.errors import UsageError
from tests.cli.kit import PYTHON, here, mcplumb, on_terminal
from tests.cli.reading import Watched
from tests.kit.loop import PATIENCE
from tests.kit.results import text_of
from tests.server.harness import lines, standard_streams

FILE = """
import os
print("while it is imported")
from mcplumb import Server

server = Server("weather")

@server.tool
def forecast(city: str) -> str:
    print("while it runs")
    os.write(1, b"even so\\n")
    return f"sun in {city}"

other = Server("other")
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = tmp_path / "weather_to_serve.py"
    path.write_text(FILE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "weather_to_serve", None)
    return str(path)


CALL: dict[str, Any] = {"method": "tools/call", "params": {"name": "forecast", "arguments": {"city": "Oslo"}}}


def invoke(*arguments: str) -> list[dict[str, Any]]:
    """What ``serve`` answers to one call and the end of the input."""
    with standard_streams() as streams:
        streams.feed(lines(CALL))
        streams.end()
        serve.main(list(arguments), prog_name="mcplumb serve", standalone_mode=False)
        return streams.messages()


def test_a_store_in_the_environment_is_for_http_only(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPLUMB_SHARED", "redis://:S3cret@redis.example")
    (answer,) = invoke(f"{file}:server")
    assert text_of(answer["result"]) == "sun in Oslo"
    done = here("serve", f"{file}:server", "--tcp", ":0", "--metrics")
    assert (done.code, done.err) == (2, "Error: --metrics is for clients over HTTP: give --http as well.\n")
    done = here("serve", f"{file}:server", "--shared", "redis://:S3cret@other.example")
    assert (done.code, done.err) == (2, "Error: --shared is for clients over HTTP: give --http as well.\n")


@contextmanager
def logging_kept() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("", "mcplumb", "mcplumb.trace")]
    before = [(list(logger.handlers), logger.level) for logger in loggers]
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        for handler in set(logger.handlers) - set(handlers):
            handler.close()
        logger.handlers[:] = handlers
        logger.setLevel(level)


@pytest.mark.req("FRM-2")
def test_serve_runs_the_server_of_a_file_and_keeps_its_output_clean(file: str) -> None:
    (answer,) = invoke(f"{file}:server")
    assert text_of(answer["result"]) == "sun in Oslo"


def test_at_a_terminal_it_says_what_it_waits_for(tmp_path: Path) -> None:
    (tmp_path / "town.py").write_text(FILE, encoding="utf-8")
    typed = [("Ctrl-C ends it.", "hello\n"), ("-32700", "\x03")]
    done = on_terminal("serve", "town.py:server", typed=typed, cwd=tmp_path)
    assert done.code == 0
    assert "a client that starts it: mcplumb tools -- mcplumb serve town.py:server." in done.out


def test_it_says_so_to_nobody_else(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    invoke(f"{file}:server")
    assert "waits for messages" not in capsys.readouterr().err
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 0)
    invoke(f"{file}:server")
    assert "waits for messages" in capsys.readouterr().err


def test_serve_traces_if_it_is_asked_to(file: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mcplumb.trace")
    invoke(f"{file}:server", "--trace", "--log-format", "plain")
    assert [record.getMessage()[:3] for record in caplog.records if record.name == "mcplumb.trace"] == ["<--", "-->"]


@pytest.mark.parametrize(("target", "words"), [("", "several servers"), (":nothing", "has no server 'nothing'")])
def test_serve_says_which_server_it_wants(file: str, target: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        invoke(f"{file}{target}")


def test_serve_refuses_what_it_does_not_know(file: str) -> None:
    with pytest.raises(click.UsageError, match="'fancy' is not one of 'human', 'plain'"):
        invoke(file, "--log-format", "fancy")
    with pytest.raises(click.UsageError, match="Missing"):
        invoke()


def test_help_says_what_it_does() -> None:
    result = here("serve", "--help")
    assert result.code == 0
    assert "Usage: mcplumb serve [OPTIONS] FILE[:NAME]" in result.out
    for word in ("--trace", "--log-format", "--reload", "mcplumb serve weather.py:server --trace"):
        assert word in result.out


def test_secrets_are_not_traced(file: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "mcplumb.trace")
    call = {"method": "tools/call", "params": {"name": "forecast", "arguments": {"city": "Oslo", "password": "s3cr3t"}}}
    with standard_streams() as streams:
        streams.feed(lines(call))
        streams.end()
        cli.main(["--trace", "serve", f"{file}:server"], prog_name="mcplumb", standalone_mode=False)
    assert '"password": "***"' in caplog.text
    assert "s3cr3t" not in caplog.text


def test_logs_also_go_to_a_file(file: str, tmp_path: Path) -> None:
    logs = tmp_path / "log"
    with logging_kept():
        invoke(f"{file}:server", "-v", "--trace", "--log-file", str(logs))
    traced = [line.split()[2:4] for line in logs.read_text(encoding="utf-8").splitlines() if "jsonrpc" in line]
    assert traced == [["DEBUG", "<--"], ["DEBUG", "-->"]]


def test_a_log_file_that_cannot_be_written(file: str, tmp_path: Path) -> None:
    done = here("serve", f"{file}:server", "--tcp", ":0", "--log-file", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert done.err == f"Error: The log file {tmp_path} cannot be written: Is a directory.\n"


def test_a_file_that_fails_says_so_in_one_line_and_with_v_in_full(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def helps():\n    return nothing\n", encoding="utf-8")
    (tmp_path / "weather.py").write_text("import helper\n\nhelper.helps()\n", encoding="utf-8")
    done = mcplumb("serve", "weather.py", cwd=tmp_path)
    said = f"Error: weather.py cannot be imported. Line 2 of {tmp_path / 'helper.py'}: NameError: name 'nothing' is not"
    assert (done.code, done.out) == (2, "")
    assert done.err == f"{said} defined\n"
    shown = mcplumb("-v", "serve", "weather.py", cwd=tmp_path)
    assert shown.code == 2
    assert "Traceback (most recent call last):\n" in shown.err
    assert "in helps\n" in shown.err
    assert shown.err.endswith(done.err)


LIFESPAN = """
from contextlib import asynccontextmanager
from mcplumb import Server

@asynccontextmanager
async def life():
    raise RuntimeError("there is no database")
    yield

server = Server("weather", lifespan=life)
"""


@pytest.mark.parametrize("options", [[], ["--tcp", "127.0.0.1:0"]])
def test_a_lifespan_that_fails_is_not_our_fault(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "weather.py").write_text(LIFESPAN, encoding="utf-8")
    done = mcplumb("serve", "weather.py", *options, cwd=tmp_path)
    assert done.code == 3
    assert done.err == ("Error: The server of weather.py does not run. Line 7: RuntimeError: there is no database\n")


def test_what_a_lifespan_raised_is_shown_in_full_with_v(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "weather_with_life", None)
    (tmp_path / "weather_with_life.py").write_text(LIFESPAN, encoding="utf-8")
    done = here("serve", "weather_with_life.py", "-v", "--tcp", "127.0.0.1:0", cwd=tmp_path)
    assert done.code == 3
    assert "Traceback (most recent call last):\n" in done.err


@pytest.mark.parametrize("options", [[], ["--stdio", "--http", ":0"]])
def test_reload_is_for_addresses(file: str, options: list[str]) -> None:
    done = here("serve", file, "--reload", *options)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Error: --reload is for addresses, for instance --http :8000: a client on standard")


def test_it_can_be_said_again() -> None:
    addresses = ["unix:/run/w.sock", "tcp://[::1]:7000", "http://127.0.0.1:8000/mcp"]
    place = ["--unix", "/run/w.sock", "--tcp", "[::1]:7000", "--http", "127.0.0.1:8000/mcp"]
    assert ServeSettings(target="weather.py:server", addresses=[]).words(addresses) == [
        "serve",
        "weather.py:server",
        *place,
    ]
    options = GlobalOptions(verbose=2, trace=True, log_file="log")
    access = HttpAccess(
        token_file=Path("tokens"), issuer="https://a", audience=("b", "c"), scope=("d",), resource="https://e"
    )
    full = ServeSettings(target="weather.py", addresses=[], access=access, log_format="plain", options=options).words(
        []
    )
    more = ["--token-file", "tokens", "--issuer", "https://a", "--audience", "b", "--audience", "c", "--scope", "d"]
    more += ["--resource", "https://e"]
    more += ["--log-format", "plain", "--log-file", "log", "-v", "-v", "--trace"]
    assert full == ["serve", "weather.py", *more]


def test_without_its_own_standard_input_it_takes_that_of_the_process(file: str) -> None:
    with standard_streams() as streams:
        streams.feed(lines(CALL))
        streams.end()
        serving = ServeSettings(target=f"{file}:server", addresses=[])
        serving.run(serving.load())
        (answer,) = streams.messages()
    assert text_of(answer["result"]) == "sun in Oslo"


def test_tokens_and_addresses_are_read_before_anything_is_served(tmp_path: Path, file: str) -> None:
    (tmp_path / "tokens").write_text("# none\n", encoding="utf-8")
    done = here("serve", f"{file}:server", "--http", ":0", "--token-file", str(tmp_path / "tokens"))
    assert (done.code, done.err) == (2, f"Error: There is no token in {tmp_path / 'tokens'}: write one on each line.\n")
    done = here("serve", f"{file}:server", "--tcp", ":0", "--token-file", str(tmp_path / "tokens"))
    assert (done.code, done.err) == (2, "Error: --token-file is for clients over HTTP: give --http as well.\n")
    (tmp_path / "tokens").write_text("of-alice\n", encoding="utf-8")
    done = here("serve", f"{file}:server", "--http", ":0", "--tcp", "x", "--token-file", str(tmp_path / "tokens"))
    assert (done.code, "needs a port" in done.err) == (2, True)


def test_a_token_file_that_is_not_text(tmp_path: Path, file: str) -> None:
    (tmp_path / "tokens").write_bytes(b"\xff\xfet\x00")
    done = here("serve", f"{file}:server", "--http", ":0", "--token-file", str(tmp_path / "tokens"))
    said = f"Error: The token file {tmp_path / 'tokens'} cannot be read: it is not UTF-8 text.\n"
    assert (done.code, done.err) == (2, said)


def test_an_address_that_cannot_be_had(tmp_path: Path, file: str) -> None:
    done = here("serve", f"{file}:server", "--unix", str(tmp_path / "nowhere" / "x.sock"))
    assert done.code == 3
    assert "x.sock" in done.err
    assert "Traceback" not in done.err


def test_a_change_of_the_file_is_for_reloading(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[ServeSettings] = []
    monkeypatch.setattr("mcplumb.cli.commands.serve_file.run_reloading", told.append)
    assert here("serve", file, "--reload", "--tcp", ":0").code == 0
    assert [serving.addresses for serving in told] == [["tcp://:0"]]


def test_the_examples_work_as_they_are_printed(tmp_path: Path) -> None:
    """Of those at addresses, with addresses that are free."""
    (tmp_path / "weather.py").write_text(FILE.partition("other =")[0], encoding="utf-8")
    examples = [line.split()[1:] for line in here("serve", "--help").out.splitlines() if line.startswith("  mcplumb")]
    assert len(examples) == 6
    for words in examples:
        free = {"/run/weather.sock": "w.sock", "127.0.0.1:8000": "127.0.0.1:0", ":8000": ":0"}
        words = [free.get(word, word) for word in words]
        if "--http" not in words:
            done = mcplumb(*words, cwd=tmp_path, stdin=lines(CALL).decode())
            assert (done.code, len(done.out.splitlines())) == (0, 1), words
            continue
        with Watched([PYTHON, "-m", "mcplumb", *words], cwd=tmp_path) as process:
            for _ in range(sum(word in ("--unix", "--http") for word in words)):
                process.wait_for("Serving at ")
            process.terminate()
            assert process.wait(PATIENCE) == 0
