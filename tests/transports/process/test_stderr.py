"""The standard error of servers: read whatever happens, kept in part, and passed on line by line."""

from __future__ import annotations

import asyncio
import functools
import io
import logging
import os
import resource
import stat
from pathlib import Path
from typing import Any

import pytest

from mcplumb.errors import ConnectError, UsageError
from mcplumb.transports.process.stderr import StderrDrain, StderrMode, check_stderr_mode, open_output, stderr_mode
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import run, turns, until
from tests.transports.drains import Server, served

pytestmark = leaves_nothing


KILOBYTE = 1024
MEGABYTE = 1024 * KILOBYTE


# --- Modes ---


class AsyncCallable:
    async def __call__(self, line: str) -> None: ...


class Callback:
    def method(self, line: str) -> None: ...

    def __call__(self, line: str) -> None: ...


async def coroutine(line: str) -> None: ...


@pytest.mark.parametrize("mode", ["inherit", "capture", "discard", print, Callback(), Callback().method, [].append])
def test_modes(mode: StderrMode) -> None:
    check_stderr_mode(mode)


@pytest.mark.parametrize("mode", ["", "pipe", None, 2, b"inherit", []])
def test_what_is_no_mode(mode: Any) -> None:
    said = (
        f"stderr is {mode!r}: choose 'inherit', 'capture', 'discard', or give a function that takes a line, an open "
        "file, or a path with a slash or a dot in it."
    )
    with pytest.raises(UsageError) as refused:
        check_stderr_mode(mode)
    assert str(refused.value) == said


def test_files_need_a_descriptor(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        check_stderr_mode(file)
    for unusable in (file, io.StringIO()):
        with pytest.raises(UsageError, match="give an open file with a descriptor, or a function"):
            check_stderr_mode(unusable)


def test_files_have_to_be_writable(tmp_path: Path) -> None:
    (tmp_path / "log").touch()
    with (
        (tmp_path / "log").open() as file,
        pytest.raises(UsageError, match="The file for stderr is open for reading only"),
    ):
        check_stderr_mode(file)


def test_paths_are_absolute_and_a_folder_gets_a_file_per_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert stderr_mode("server.log", "weather") == str(tmp_path / "server.log")
    assert stderr_mode(Path("log"), "weather") == str(tmp_path / "log")
    assert stderr_mode("./", "weather") == str(tmp_path / "weather.log")
    assert stderr_mode(tmp_path, "../the weather") == str(tmp_path / "_the_weather.log")
    assert stderr_mode(tmp_path, "..") == str(tmp_path / "server.log")
    assert stderr_mode("capture", "weather") == "capture"


@pytest.mark.req("LIF-8")
async def test_a_log_is_appended_to_and_private(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    for words in (b"one\n", b"two"):
        with served(str(log)) as server:
            server.say(words)
            server.drain.finish()
    assert log.read_text() == "one\ntwo"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


async def test_a_log_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ConnectError) as refused:
        open_output(str(tmp_path / "nowhere" / "server.log"))
    where = tmp_path / "nowhere" / "server.log"
    said = f"The log for the server's stderr, {str(where)!r}, cannot be opened: No such file or directory."
    assert str(refused.value) == said


async def test_a_log_without_a_free_descriptor(tmp_path: Path) -> None:
    free = os.dup(0)
    os.close(free)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))  # enough for the file, not for a copy
    try:
        with pytest.raises(ConnectError, match="cannot be opened: Too many open files"):
            open_output(str(tmp_path / "server.log"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_an_open_file_stays_open(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        file.write("before\n")
        with served(file) as server:
            server.say(b"words\n")
            server.drain.finish()
        file.write("after\n")
    assert (tmp_path / "log").read_text() == "before\nwords\nafter\n"
    with pytest.raises(ConnectError, match="The file for the server's stderr cannot be used"):
        open_output(file)


@pytest.mark.parametrize("mode", [coroutine, functools.partial(coroutine), AsyncCallable(), AsyncCallable().__call__])
async def test_no_async_functions(mode: Any) -> None:
    with pytest.raises(UsageError, match=r"^The function for lines of stderr is async: give a plain one"):
        check_stderr_mode(mode)

    with pytest.raises(UsageError, match="is async"):
        check_stderr_mode(mode)


@pytest.mark.req("LIF-8")
async def test_nothing_to_read() -> None:
    drain = StderrDrain(None, open_output("discard"))
    drain.finish()
    assert (drain.tail(), drain.dropped) == ("", 0)
    drain.close()
    drain.close()


# --- The tail ---


@pytest.mark.req("LIF-8")
async def test_the_end_is_kept() -> None:
    with served("capture") as server:
        assert server.drain.tail() == ""
        server.say(b"one\ntwo")
        await until(server.drain.tail)
        assert server.drain.tail() == "one\ntwo"
        server.say(b" and more\n\n")
        server.drain.finish()
        assert server.drain.tail() == "one\ntwo and more"
        await server.flood(b"".join(b"line %d\n" % number for number in range(10_000)), 1)
        server.drain.finish()
        assert server.drain.tail().split("\n") == [f"line {number}" for number in range(9980, 10_000)]
        assert server.drain.tail(max_lines=2) == "line 9998\nline 9999"
    assert server.drain.tail(max_lines=1) == "line 9999"


@pytest.mark.req("LIF-8")
async def test_the_tail_is_short() -> None:
    with served("capture") as server:
        server.say("é".encode() * 3000)
        server.drain.finish()
        assert server.drain.tail() == "…" + "é" * 2048
        server.say(b"x")
        server.drain.finish()
        # A half character at its beginning is not shown.
        assert server.drain.tail() == "…" + "é" * 2047 + "x"
        assert len(server.drain.tail(max_lines=1)) == 2049


@pytest.mark.req("LIF-8")
@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (b"\x1b[1;31mError\x1b[0m: \x1b[38;2;1;2;3mno", "Error: no"),
        (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1bPq#0\x1b\\c\x1b(Bd\x1b7e\x1bcf", "abcdef"),
        (b"\x1b]never ended\nmore", "\nmore"),
        (b"a\x1b[", "a"),
        (b"a\x1b", "a\\x1b"),
        (b"a\x00b\x07c\x08d\x7fe", "a\\x00b\\x07c\\x08d\\x7fe"),
        (b"a\tb\r\nc\rd", "a\tb\nc\nd"),
        (b"\xff\xfeok", "\ufffd\ufffdok"),
        ("\x9b31m\u202eabc\u2028\U000e0041".encode(), "\\x9b31m\\u202eabc\\u2028\\U000e0041"),
        ("grüße 世界 🎉".encode(), "grüße 世界 🎉"),
        (b"  indented\n  as it was", "  indented\n  as it was"),
    ],
)
async def test_the_tail_is_harmless(said: bytes, shown: str) -> None:
    with served("capture") as server:
        server.say(said)
        server.drain.finish()
        assert server.drain.tail() == shown


async def test_finish_waits_for_nobody() -> None:
    with served("capture") as server:
        server.drain.finish()
        server.say(b"the last words")
        # The pipe stays open, as when a child of the server holds it.
        server.drain.finish()
        assert server.drain.tail() == "the last words"
        server.say(b", or not")
        await until(lambda: server.drain.tail().endswith("not"))


async def test_finish_is_bounded() -> None:
    lines = 0

    def endless(_: str) -> None:
        nonlocal lines
        lines += 1
        server.say(b"more\n")  # the pipe is never empty

    with served(endless) as server:
        server.say(b"more\n" * 1000)
        server.drain.finish()
    assert lines == 64 * 1000


async def test_the_end_of_the_pipe() -> None:
    lines: list[str] = []
    read_end, write_end = os.pipe()
    drain = StderrDrain(read_end, open_output(lines.append))
    os.write(write_end, b"a\nb")
    os.close(write_end)
    await until(lambda: len(lines) == 2)
    drain.finish()
    drain.close()
    assert lines == ["a", "b"]
    assert drain.tail() == "a\nb"


def test_it_can_be_closed_without_a_loop(capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> list[Server]:
        servers = [Server("capture"), Server("inherit"), Server(print)]
        for server in servers:
            server.say(b"not\nread")
        return servers

    for server in asyncio.run(main()):
        server.drain.finish()
        assert server.drain.tail() == "not\nread"
        server.close()
        server.drain.close()
    assert capfd.readouterr() == ("not\nread\n", "not\nread")


# --- A function for lines ---


@pytest.mark.req("LIF-8")
async def test_lines_for_a_function() -> None:
    lines: list[str] = []
    with served(lines.append) as server:
        server.say(b"one\ntw")
        await until(lambda: lines)
        await turns()
        assert lines == ["one"]
        server.say(b"o\r\n\n\xff\nand")
        await until(lambda: len(lines) == 4)
        assert lines[1:] == ["two", "", "\ufffd"]
        server.drain.finish()
        assert lines[4:] == ["and"]
        server.say(b" more")
        await until(lambda: server.drain.tail().endswith("more"))
    assert lines[5:] == [" more"]


async def test_long_lines_come_in_pieces() -> None:
    lines: list[str] = []
    with served(lines.append) as server:
        await server.flood(b"x" * MEGABYTE, 1)
        server.drain.finish()
    assert "".join(lines) == "x" * MEGABYTE
    assert max(map(len, lines)) <= 80 * KILOBYTE
    assert len(lines) <= 20


def test_a_function_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    def fails(line: str) -> None:
        lines.append(line)
        raise RuntimeError(line)

    async def main() -> None:
        with served(fails) as server:
            server.say(b"a\nb\n")
            await until(lambda: len(lines) == 2)
            server.say(b"c\n")
            await until(lambda: len(lines) == 3)

    run(main())
    assert lines == ["a", "b", "c"]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "Further failures are not logged" in record.message


async def test_a_function_that_closes() -> None:
    lines: list[str] = []

    def close(line: str) -> None:
        lines.append(line)
        server.drain.close()

    server = Server(close)
    server.say(b"a\nb\nrest")
    await until(lambda: len(lines) == 3)
    os.close(server.fd)
    assert lines == ["a", "rest", "b"]
