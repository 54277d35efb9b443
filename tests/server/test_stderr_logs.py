"""Logs on stderr: for people, in two formats, and never in the way."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mcplumb.errors import UsageError
from mcplumb.server.stderr_logs import LOG_FORMATS, LogFormat, StderrHandler, set_up_logs, trace_line


class Pipe:
    """What is written to stderr, as the one who started the process sees it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self) -> str:
        """Everything that is there."""
        data = b""
        while True:
            try:
                data += os.read(self._fd, 65536)
            except BlockingIOError:
                return data.decode()


@contextmanager
def stderr_pipe() -> Iterator[Pipe]:
    saved = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 10)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield Pipe(reading)
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(reading)


@contextmanager
def fresh_program(**environment: str) -> Iterator[Pipe]:
    """A program that has set up nothing. (No fixture: pytest puts its own handlers there for each phase of a test.)"""
    root, ours, tracer = (logging.getLogger(name) for name in (None, "mcplumb", "mcplumb.trace"))
    levels = [(logger, logger.level) for logger in (ours, tracer)]
    with stderr_pipe() as pipe, pytest.MonkeyPatch.context() as patch:
        patch.setattr(root, "handlers", [])
        for name in ("MCPLUMB_LOG", "MCPLUMB_TRACE"):
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            yield pipe
        finally:
            for logger, level in levels:
                logger.setLevel(level)


def record(text: str, level: int = logging.INFO, name: str = "some.logger") -> logging.LogRecord:
    return logging.LogRecord(name, level, __file__, 1, text, (), None)


def written(handler: StderrHandler, *records: logging.LogRecord) -> str:
    with stderr_pipe() as pipe:
        for each in records:
            handler.handle(each)
        return pipe.read()


# Formats


@pytest.mark.req("LIF-16")
def test_people_see_the_time_the_level_and_the_text() -> None:
    lines = written(StderrHandler("human"), record("Hello."), record("Bad.", logging.ERROR)).splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO    Hello\.", lines[0])
    assert re.fullmatch(r"\d\d:\d\d:\d\d ERROR   Bad\.", lines[1])


@pytest.mark.req("LIF-16")
@pytest.mark.parametrize(
    ("level", "name", "line"),
    [
        (logging.DEBUG, "mcplumb.server", "Hello.\n"),
        (logging.INFO, "mcplumb.server", "Hello.\n"),
        (logging.WARNING, "mcplumb.server", "Hello.\n"),
        (logging.ERROR, "mcplumb.server", "Error: Hello.\n"),
        (logging.CRITICAL, "some.other", "Error: Hello.\n"),
        (logging.DEBUG, "mcplumb.trace", "[TRACE] Hello.\n"),
    ],
)
def test_the_plain_format_marks_errors_and_traces(level: int, name: str, line: str) -> None:
    assert written(StderrHandler("plain"), record("Hello.", level, name)) == line


def test_a_traceback_is_shown() -> None:
    with pytest.raises(ValueError, match="the reason") as caught:
        int("the reason")
    error = (caught.type, caught.value, caught.tb)
    failed = logging.LogRecord("x", logging.ERROR, __file__, 1, "It failed.", (), error)
    text = written(StderrHandler("plain"), failed)
    assert text.startswith("Error: It failed.\nTraceback")
    assert text.endswith("'the reason'\n")


@pytest.mark.req("LIF-16")
def test_it_is_utf8_whatever_the_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    assert written(StderrHandler("plain"), record("Grüße, 你好 🎈")) == "Grüße, 你好 🎈\n"
    assert written(StderrHandler("plain"), record("half a \ud83d pair")) == "half a \\ud83d pair\n"


def test_what_would_drive_a_terminal_is_shown_by_its_number() -> None:
    text = written(StderrHandler("plain"), record("a\x1b[31mred\x07\r\x9b2J\x7f\tb\nc"))
    assert text == "a\\x1b[31mred\\x07\\x0d\\x9b2J\\x7f\tb\nc\n"


def test_it_does_not_depend_on_what_sys_stderr_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert written(StderrHandler("plain"), record("Hello.")) == "Hello.\n"


def test_a_record_that_cannot_be_formatted_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    bad = logging.LogRecord("x", logging.INFO, __file__, 1, "%d", ("no number",), None)
    assert written(StderrHandler("plain"), bad, record("next")) == "next\n"


# A stderr that nobody reads


def test_what_nobody_reads_is_dropped_and_counted() -> None:
    handler = StderrHandler("plain")
    with stderr_pipe() as pipe:
        for number in range(5000):
            handler.handle(record(f"{number} {'x' * 100}"))
        first = pipe.read()
        kept = sum(1 for line in first.splitlines() if line.endswith("x" * 100))
        handler.handle(record("again"))
        handler.handle(record("and again"))
        rest = pipe.read()
    assert 0 < kept < 5000
    assert [int(line.partition(" ")[0]) for line in first.splitlines()[:kept]] == list(range(kept))
    dropped = 5000 - kept
    assert rest == f"({dropped} log messages were dropped, because stderr was not read.)\nagain\nand again\n"


def test_a_message_larger_than_the_pipe_does_not_block() -> None:
    handler = StderrHandler("plain")
    with stderr_pipe() as pipe:
        handler.handle(record("x" * 1_000_000))
        assert set(pipe.read()) == {"x"}
        handler.handle(record("next"))
        assert pipe.read().endswith("(1 log messages were dropped, because stderr was not read.)\nnext\n")


def test_a_closed_stderr_is_no_reason_to_fail() -> None:
    handler = StderrHandler("plain")
    saved = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 10)
    try:
        os.close(2)
        handler.handle(record("lost"))
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    assert "1 log messages were dropped" in written(handler, record("next"))


def test_a_stderr_without_a_reader_is_no_reason_to_fail() -> None:
    handler = StderrHandler("plain")
    saved = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 10)
    reading, writing = os.pipe()
    os.dup2(writing, 2)
    os.close(writing)
    os.close(reading)
    try:
        handler.handle(record("lost"))
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    assert "1 log messages were dropped" in written(handler, record("next"))


# Setting up

log = logging.getLogger("mcplumb.server")


@pytest.mark.parametrize("log_format", [None, *LOG_FORMATS])
def test_logs_become_visible(log_format: LogFormat | None) -> None:
    with fresh_program() as pipe:
        assert set_up_logs(log_format, trace=None) is False
        log.info("Hello.")
        log.debug("Too much.")
        logging.getLogger("some.library").warning("Careful.")
        logging.getLogger("some.library").info("Too much.")
        trace_line("in", b"{}")
        text = pipe.read()
    assert [line.rpartition(" ")[2] for line in text.splitlines()] == ["Hello.", "Careful."]
    assert text.startswith("Hello.") == (log_format == "plain")


def test_the_environment_says_what_is_not_given() -> None:
    with fresh_program(MCPLUMB_LOG="plain", MCPLUMB_TRACE="1") as pipe:
        assert set_up_logs(None, trace=None) is True
        log.error("Oh.")
        trace_line("in", b'{"a":1}')
        assert pipe.read() == 'Error: Oh.\n[TRACE] <-- {"a":1}\n'


def test_what_is_given_counts_more_than_the_environment() -> None:
    with fresh_program(MCPLUMB_LOG="human", MCPLUMB_TRACE="1") as pipe:
        assert set_up_logs("plain", trace=False) is False
        log.info("Hello.")
        assert pipe.read() == "Hello.\n"


@pytest.mark.parametrize(("value", "expected"), [("", False), ("0", False), ("1", True), ("yes", True)])
def test_values_that_switch_the_trace_on(value: str, expected: bool) -> None:
    with fresh_program(MCPLUMB_TRACE=value):
        assert set_up_logs(None, trace=None) is expected


@pytest.mark.parametrize("where", ["argument", "environment"])
def test_an_unknown_format_is_refused(where: str) -> None:
    given: Any = "fancy" if where == "argument" else None
    with fresh_program(MCPLUMB_LOG="fancy" if where == "environment" else ""):
        with pytest.raises(UsageError, match=r"There is no log format 'fancy'\. The formats are human and plain\."):
            set_up_logs(given, trace=None)
        assert logging.getLogger().handlers == []


def test_a_program_that_has_set_up_logging_keeps_it() -> None:
    seen: list[str] = []

    class Own(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    own = Own()
    with fresh_program() as pipe:
        logging.getLogger().addHandler(own)
        assert set_up_logs("plain", trace=True) is True
        log.warning("Hello.")
        trace_line("out", b"{}")
        assert pipe.read() == ""
        assert logging.getLogger().handlers == [own]
    assert seen == ["Hello.", "--> {}"]


# Traces


def test_a_trace_shows_both_directions() -> None:
    with fresh_program() as pipe:
        set_up_logs("plain", trace=True)
        trace_line("in", '{"name":"Zoë"}'.encode())
        trace_line("out", b"\xff\xfe not text")
        assert pipe.read() == '[TRACE] <-- {"name":"Zoë"}\n[TRACE] --> \\xff\\xfe not text\n'


def test_a_trace_of_a_long_line_is_cut() -> None:
    with fresh_program() as pipe:
        set_up_logs("plain", trace=True)
        trace_line("in", b"x" * 4000)
        trace_line("in", b"x" * 50_000)
        exact, cut = pipe.read().splitlines()
    assert exact == f"[TRACE] <-- {'x' * 4000}"
    assert cut == f"[TRACE] <-- {'x' * 4000} … (50000 bytes)"
