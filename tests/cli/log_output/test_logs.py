"""Where the log goes: to stderr as far as it is wanted, and all of it to a file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mcplumb.cli.command_runner import GlobalOptions
from mcplumb.cli.log_output import logs
from mcplumb.errors import UsageError
from tests.cli.kit import LEGACY, here

NOISY = ["--", "sh", "-c", f"echo noise; exec {LEGACY[1]} {LEGACY[2]}"]


def logged(options: GlobalOptions, capsys: pytest.CaptureFixture[str]) -> str:
    logger = logging.getLogger("mcplumb.client")
    with logs(options):
        logger.warning("a warning\x1b")
        logger.info("what happens")
        logger.debug("everything")
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


@pytest.mark.parametrize(
    ("verbose", "shown"),
    [
        (0, "a warning\\x1b\n"),
        (1, "a warning\\x1b\nwhat happens\n"),
        (2, "a warning\\x1b\nwhat happens\neverything\n"),
        (9, "a warning\\x1b\nwhat happens\neverything\n"),
    ],
)
def test_more_is_shown_to_those_who_ask(verbose: int, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert logged(GlobalOptions(verbose=verbose), capsys) == shown


def test_a_file_gets_everything_with_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log"
    file.write_text("before\n")
    assert logged(GlobalOptions(log_file=str(file)), capsys) == "a warning\\x1b\n"
    lines = file.read_text().splitlines()
    assert lines[0] == "before"
    assert [line.split(maxsplit=2)[2] for line in lines if " DEBUG " in line or " WARNING " in line] == [
        "WARNING a warning\\x1b",
        "DEBUG   everything",
    ]


def test_a_file_that_cannot_be_written_is_wrong_usage(tmp_path: Path) -> None:
    done = here("--log-file", str(tmp_path), "ping", *LEGACY)
    assert done.code == 2
    assert done.err.startswith(f"Error: The log file {tmp_path} cannot be written: ")


def test_a_trace_goes_to_the_file_if_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "log"
    done = here("ping", "--trace", "--log-file", str(file), *LEGACY)
    assert (done.code, done.err) == (0, "")
    assert '--> {"jsonrpc":"2.0"' in file.read_text()


def test_a_warning_is_shown_by_default() -> None:
    done = here("ping", *NOISY)
    assert done.code == 0
    assert done.err.startswith("A line from the server was ignored: '")


def test_a_log_that_cannot_be_written_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str, style: str | None = None) -> None:
        raise OSError(text)

    monkeypatch.setattr("mcplumb.cli.log_output.say", fail)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with logs(GlobalOptions()):
        logging.getLogger("mcplumb").warning("lost")


def test_logging_is_as_before_when_it_ends() -> None:
    logger = logging.getLogger("mcplumb")
    before = list(logger.handlers), logger.level, logger.propagate
    options = GlobalOptions(trace=True)
    with logs(options):
        assert options.tracer is not None
        assert (list(logger.handlers), logger.level, logger.propagate) != before
    assert (list(logger.handlers), logger.level, logger.propagate) == before
    assert options.tracer is None
    with pytest.raises(UsageError), logs(GlobalOptions(log_file="/nothing/of/this/name")):
        pass
    assert (list(logger.handlers), logger.level, logger.propagate) == before
