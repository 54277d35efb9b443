"""The standard error of servers on its way to our own, which may be anything, and may not be read by anybody."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import pty
import resource
import select
import socket
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mcplumb.transports.process.stderr import StderrDrain, StderrMode, open_output
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import PATIENCE, run, turns, until
from tests.transports.drains import Server, served

pytestmark = leaves_nothing


KILOBYTE = 1024
MEGABYTE = 1024 * KILOBYTE


@contextmanager
def stderr_as(fd: int) -> Iterator[None]:
    """For a time, the descriptor is our own standard error."""
    saved = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 10)
    os.dup2(fd, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


@pytest.mark.req("LIF-8")
async def test_whole_lines_are_forwarded(capfd: pytest.CaptureFixture[str]) -> None:
    with served("inherit") as server:
        server.say(b"one\n\x1b[1mtwo\ntor")
        await until(server.drain.tail)
        assert capfd.readouterr().err == "one\n\x1b[1mtwo\n"
        server.drain.finish()
        assert capfd.readouterr().err == "tor"
        server.say(b"n")
        await until(lambda: server.drain.tail().endswith("n"))
        assert capfd.readouterr().err == ""
    assert capfd.readouterr().err == "n"
    assert server.drain.dropped == 0


@pytest.mark.req("LIF-8")
@pytest.mark.parametrize("mode", ["capture", "discard"])
def test_other_modes_forward_nothing(mode: StderrMode, capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        with served(mode) as server:
            server.say(b"one\n")
            server.drain.finish()

    run(main())
    assert capfd.readouterr() == ("", "")


def pipe_ends() -> tuple[int, int]:
    return os.pipe()


def socket_ends() -> tuple[int, int]:
    left, right = socket.socketpair()
    return left.detach(), right.detach()


def terminal_ends() -> tuple[int, int]:
    master, slave = pty.openpty()
    tty.setraw(slave)
    return master, slave


def read_all(fd: int) -> bytes:
    data = b""
    while select.select([fd], [], [], 0)[0] and (chunk := os.read(fd, MEGABYTE)):
        data += chunk
    return data


@cache
def flood() -> bytes:
    """Fifty megabytes of lines that are all different."""
    return b"".join(b"%063d\n" % number for number in range(50 * MEGABYTE // 64))


@pytest.mark.req("LIF-8")
@pytest.mark.parametrize("ends", [pipe_ends, socket_ends, terminal_ends])
def test_a_flood_that_nobody_reads(ends: Callable[[], tuple[int, int]]) -> None:
    far, near = ends()
    flags = fcntl.fcntl(near, fcntl.F_GETFL)

    async def main() -> None:
        with stderr_as(near), served("inherit") as server:
            await server.flood(flood(), 1)
            server.drain.finish()
            assert server.drain.tail(max_lines=1).encode() == flood()[-64:-1]
            assert len(flood()) - 5 * MEGABYTE < server.drain.dropped < len(flood())
            assert fcntl.fcntl(2, fcntl.F_GETFL) == flags
            before = server.drain.dropped
            # As soon as somebody reads, what waited comes, and then what is new.
            came = read_all(far)
            while len(came) < len(flood()) - before:
                await turns(1)
                came += read_all(far)
            server.say(b"news\n")
            while not came.endswith(b"news\n"):
                await turns(1)
                came += read_all(far)
            assert server.drain.dropped == before
            lines = came.split(b"\n")[:-2]
            assert {len(line) for line in lines} == {63}
            assert lines == sorted(lines)
            assert fcntl.fcntl(2, fcntl.F_GETFL) == flags

    run(main())
    assert fcntl.fcntl(near, fcntl.F_GETFL) == flags
    os.close(far)
    os.close(near)


# More than a socket holds, and less than may wait.
MUCH = 900 * KILOBYTE


@pytest.mark.req("LIF-8")
def test_what_waits_when_it_is_closed_is_dropped() -> None:
    far, near = socket_ends()

    async def main() -> None:
        with stderr_as(near), served("inherit") as server:
            await server.flood(b"x" * (KILOBYTE - 1) + b"\n", 900)
            server.drain.finish()
            assert server.drain.dropped == 0
            came = len(read_all(far))
        # What there was room for in the last moment has been written.
        more = len(read_all(far))
        assert more
        assert came + more + server.drain.dropped == MUCH

    run(main())
    os.close(far)
    os.close(near)


@pytest.mark.req("LIF-8")
def test_a_file(tmp_path: Path) -> None:
    file = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY)

    async def main() -> None:
        with stderr_as(file), served("inherit") as server:
            await server.flood(flood(), 1)
            server.drain.finish()
            assert server.drain.dropped == 0

    run(main())
    os.close(file)
    assert (tmp_path / "log").read_bytes() == flood()


def test_a_reader_that_leaves() -> None:
    far, near = socket_ends()

    async def main() -> None:
        with stderr_as(near), served("inherit") as server:
            await server.flood(b"x" * (KILOBYTE - 1) + b"\n", 900)
            server.drain.finish()
            assert server.drain.dropped == 0
            os.close(far)
            await until(lambda: server.drain.dropped)
            before = server.drain.dropped
            server.say(b"more\n")
            server.drain.finish()
            assert server.drain.dropped == before + 5
            assert server.drain.tail(max_lines=1) == "more"

    run(main())
    os.close(near)


def test_a_reader_that_has_left() -> None:
    far, near = os.pipe()
    os.close(far)

    async def main() -> None:
        with stderr_as(near), served("inherit") as server:
            server.say(b"lost\n")
            server.drain.finish()
            assert server.drain.dropped == 5

    run(main())
    os.close(near)


def test_no_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        with served("inherit") as server:
            server.say(b"lost\n")
            server.drain.finish()
            assert (server.drain.tail(), server.drain.dropped) == ("lost", 5)

    saved = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(2)
    try:
        read_end, write_end = os.pipe()
        assert read_end == 2
        monkeypatch.setattr(sys, "__stderr__", None)
        run(main())  # the number belongs to somebody else
        os.close(read_end)
        os.close(write_end)
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def test_standard_error_that_was_closed() -> None:
    async def main() -> None:
        server = Server("capture")
        os.close(2)
        try:
            with served("inherit") as other:
                assert other.fd != 2
        finally:
            os.dup2(saved, 2)
        server.close()

    saved = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, 10)
    run(main())
    os.close(saved)


async def test_no_descriptor_is_free() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    keeper = Server("capture")
    read_end, write_end = os.pipe()
    resource.setrlimit(resource.RLIMIT_NOFILE, (write_end + 1, hard))
    try:
        drain = StderrDrain(read_end, open_output("inherit"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    os.write(write_end, b"lost\n")
    drain.finish()
    assert (drain.tail(), drain.dropped) == ("lost", 5)
    drain.close()
    os.close(write_end)
    keeper.close()


async def test_an_odd_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "odd")

    monkeypatch.setattr("mcplumb.transports.process.stderr.open_sink", refuse)
    with served("inherit") as server:
        server.say(b"lost\n")
        server.drain.finish()
        assert server.drain.dropped == 5


def test_a_terminal_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = terminal_ends()
    real = os.open

    def refuse(path: Any, *args: Any) -> int:
        if path == name:
            raise PermissionError
        return real(path, *args)

    async def main() -> None:
        with stderr_as(slave), served("inherit") as server:
            server.say(b"hello\n")
            server.drain.finish()
            assert os.read(master, 100) == b"hello\n"

    name = os.ttyname(slave)
    monkeypatch.setattr(os, "open", refuse)
    run(main())
    os.close(master)
    os.close(slave)


@pytest.mark.req("LIF-8")
def test_a_terminal_that_was_stopped() -> None:
    master, slave = terminal_ends()

    async def main() -> None:
        with stderr_as(slave), served("inherit") as server:
            termios.tcflow(slave, termios.TCOOFF)
            await asyncio.wait_for(server.flood(b"x" * 1000 + b"\n", 10), PATIENCE)
            server.drain.finish()
            assert read_all(master) == b""
            termios.tcflow(slave, termios.TCOON)
            came = b""
            while len(came) < 10_010:
                await turns(1)
                came += read_all(master)

    run(main())
    os.close(master)
    os.close(slave)
