"""Descriptors: what they are, that nobody else notices what we do to ours, and that nobody else gets them."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import pty
import resource
import select
import socket
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest

from mcplumb.transports import descriptors
from mcplumb.transports.descriptors import (
    BlockingSink,
    PipeSink,
    SocketSink,
    close_private,
    enlarge_pipe,
    hang_up_bell,
    is_open,
    keep_private,
    kind_of,
    open_sink,
    private_copy,
    put_copy,
    put_null,
    wait_for_input,
)
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import PATIENCE

pytestmark = leaves_nothing


MEGABYTE = 1024 * 1024


def is_same(one: int, other: int) -> bool:
    return os.path.sameopenfile(one, other)


def close_all(*fds: int) -> None:
    for fd in fds:
        os.close(fd)


def test_kinds(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    named = os.open(fifo, os.O_RDWR)
    left, right = (end.detach() for end in socket.socketpair())
    file = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    null = os.open(os.devnull, os.O_RDWR)
    folder = os.open(tmp_path, os.O_RDONLY)
    master, slave = pty.openpty()
    assert [kind_of(fd) for fd in (read_end, write_end, named, left)] == ["pipe", "pipe", "pipe", "socket"]
    assert [kind_of(fd) for fd in (file, null, folder, master, slave)] == ["other"] * 5
    assert is_open(read_end)
    close_all(read_end, write_end, named, left, right, file, null, folder, master, slave)
    assert not is_open(read_end)
    with pytest.raises(OSError, match="Bad file descriptor"):
        kind_of(read_end)


def test_a_pipe_is_enlarged_where_that_can_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()
    before = fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ)
    enlarge_pipe(read_end)
    assert fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ) >= before
    close_all(read_end, write_end)
    enlarge_pipe(read_end)
    left, right = socket.socketpair()
    with left, right:
        enlarge_pipe(left.fileno())
    monkeypatch.delattr(fcntl, "F_SETPIPE_SZ")
    enlarge_pipe(read_end)


# --- Privacy ---


def test_a_private_copy_is_not_one_of_the_first_three() -> None:
    read_end, write_end = os.pipe()
    saved = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(0)
    copy = private_copy(read_end)
    os.dup2(saved, 0)
    os.close(saved)
    assert copy > 2
    assert not os.get_inheritable(copy)
    assert is_same(copy, read_end)
    close_private(copy)
    close_all(read_end, write_end)


@pytest.mark.req("LIF-15")
def test_a_program_does_not_get_what_is_private() -> None:
    ends = os.pipe()
    for fd in ends:
        os.set_inheritable(fd, True)
    keep_private(ends[0])
    code = "import os, sys; print(*(os.path.exists(f'/proc/self/fd/{fd}') for fd in sys.argv[1:]))"
    command = [sys.executable, "-c", code, *map(str, ends)]
    done = subprocess.run(command, close_fds=False, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
    close_private(ends[0])
    os.close(ends[1])


FORKING = """
import os
from mcplumb.transports.descriptors import keep_private
read_end, write_end = map(keep_private, os.pipe())
others = os.pipe()
os.write(write_end, b"for the parent")
if os.fork() == 0:
    assert os.read(read_end, 100) == b""
    assert os.write(write_end, b"from the fork") == 13
    assert os.path.sameopenfile(read_end, write_end)
    assert not os.get_inheritable(read_end)
    assert os.write(others[1], b"to the parent") == 13
    os._exit(0)
assert os.wait()[1] == 0
assert os.read(read_end, 100) == b"for the parent"
assert os.read(others[0], 100) == b"to the parent"
"""


@pytest.mark.req("LIF-15")
def test_in_a_fork_what_is_private_is_the_null_device() -> None:
    # In a process of its own, because the one of the tests may have threads, which a fork does not go with.
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=PATIENCE)


def test_what_a_fork_does_first() -> None:
    read_end, write_end = os.pipe()
    descriptors._leave_to_the_parent()
    keep_private(read_end)
    descriptors._leave_to_the_parent()
    assert os.read(read_end, 1) == b""
    with pytest.raises(BrokenPipeError):
        os.write(write_end, b"x")
    close_private(read_end)
    os.close(write_end)


def test_a_number_can_be_given_to_another_file() -> None:
    read_end, write_end = os.pipe()
    target = os.open(os.devnull, os.O_RDONLY)
    put_copy(read_end, target)
    assert is_same(target, read_end)
    assert os.get_inheritable(target)
    put_copy(read_end, target, inheritable=False)
    assert not os.get_inheritable(target)
    put_null(target)
    assert os.get_inheritable(target)
    assert os.read(target, 1) == b""
    assert os.write(target, b"x") == 1
    close_all(read_end, write_end, target)


def test_a_free_number_can_become_the_null_device() -> None:
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    put_null(free)
    assert os.get_inheritable(free)
    assert os.write(free, b"x") == 1
    os.close(free)


# --- Reading ---


def test_without_a_free_descriptor_nobody_hears_a_hang_up() -> None:
    """And nothing fails for that: it is told by the end, when that is read."""
    read_end, write_end = os.pipe()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (read_end, hard))
        assert hang_up_bell(read_end) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    os.close(write_end)
    bell = hang_up_bell(read_end)
    assert bell is not None
    assert bell.poll(0) != []
    bell.close()
    os.close(read_end)


def test_a_fork_loses_what_is_private_although_no_descriptor_is_free() -> None:
    read_end, write_end = os.pipe()
    keep_private(write_end)
    child = os.fork()
    if child == 0:
        os.write(write_end, b"stray")
        os._exit(0)
    os.waitpid(child, 0)
    close_private(write_end)
    assert os.read(read_end, 5) == b""
    os.close(read_end)


def test_a_system_that_cannot_tell_a_hang_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll")
    assert hang_up_bell(0) is None


def test_a_wait_for_input_ends_with_input_or_when_it_is_told_to() -> None:
    read_end, write_end = os.pipe()
    wake, end_of_wake = os.pipe()
    os.write(write_end, b"x")
    assert wait_for_input(read_end, wake)
    os.close(end_of_wake)
    assert not wait_for_input(read_end, wake)
    os.read(read_end, 1)
    assert not wait_for_input(read_end, wake)
    close_all(read_end, write_end, wake)


# --- Writing ---


def fill(sink: PipeSink | SocketSink) -> int:
    total = 0
    while written := sink.write([b"x" * 100_000, b"y" * 100_000]):
        total += written
    return total


def drain(fd: int, count: int) -> bytes:
    found = b""
    while len(found) < count:
        found += os.read(fd, count - len(found))
    return found


async def test_a_pipe_is_written_to_without_waiting_and_nobody_else_sees_a_change() -> None:
    read_end, write_end = os.pipe()
    other = os.dup(write_end)
    sink = open_sink(write_end)
    assert isinstance(sink, PipeSink)
    assert sink.write([b"ab", memoryview(b"cd")]) == 4
    assert os.read(read_end, 10) == b"abcd"
    for piece in (b"ef", memoryview(b"ef")):
        assert sink.write([piece]) == 2
        assert os.read(read_end, 10) == b"ef"
    total = fill(sink)
    assert sink.write([b"x"]) == sink.write([b"x", b"y"]) == 0
    assert os.get_blocking(other)
    room = asyncio.Event()
    sink.watch(room.set)
    drain(read_end, total)
    await room.wait()
    sink.unwatch()
    assert fill(sink) >= total
    sink.watch(room.set)
    sink.unwatch()
    os.close(read_end)
    with pytest.raises(BrokenPipeError):
        sink.write([b"x"])
    sink.close()
    assert os.get_blocking(other)
    os.close(other)


async def test_a_pipe_that_cannot_be_opened_again_is_as_it_was_when_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As where there is no /proc.
    monkeypatch.setattr(descriptors, "_reopened", lambda fd: None)

    for was_blocking in (True, False):
        read_end, write_end = os.pipe()
        other = os.dup(write_end)
        os.set_blocking(other, was_blocking)
        sink = PipeSink(write_end)
        total = fill(sink)
        assert not os.get_blocking(other)
        assert drain(read_end, total).startswith(b"x")
        sink.close()
        assert os.get_blocking(other) == was_blocking
        close_all(read_end, other)


async def test_a_pipe_that_nobody_reads_is_broken_and_not_a_crash(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    read_end, write_end = os.pipe()
    named_read_end = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    named_write_end = os.open(fifo, os.O_WRONLY)
    close_all(read_end, named_read_end)
    for fd in (write_end, named_write_end):
        sink = PipeSink(fd)
        with pytest.raises(BrokenPipeError):
            sink.write([b"x"])
        sink.close()


async def test_the_way_to_a_pipe_is_not_one_of_the_first_three() -> None:
    read_end, write_end = os.pipe()
    saved = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(0)
    sink = PipeSink(write_end)
    assert not is_open(0)
    os.dup2(saved, 0)
    os.close(saved)
    assert sink.write([b"x"]) == 1
    assert os.read(read_end, 10) == b"x"
    sink.close()
    os.close(read_end)


@pytest.mark.parametrize("timeout", [None, 30.0])
async def test_a_socket_is_written_to_without_waiting_and_nobody_else_sees_a_change(timeout: float | None) -> None:  # noqa: ASYNC109
    left, right = (end.detach() for end in socket.socketpair())
    other = os.dup(left)
    socket.setdefaulttimeout(timeout)
    try:
        sink = open_sink(left)
    finally:
        socket.setdefaulttimeout(None)
    assert isinstance(sink, SocketSink)
    assert sink.write([b"ab", memoryview(b"cd")]) == 4
    assert os.read(right, 10) == b"abcd"
    total = fill(sink)
    assert os.get_blocking(other)
    room = asyncio.Event()
    sink.watch(room.set)
    drain(right, total)
    await room.wait()
    sink.unwatch()
    os.close(right)
    with pytest.raises(BrokenPipeError):
        sink.write([b"x"])
    sink.close()
    os.close(other)


async def test_more_pieces_than_one_call_takes() -> None:
    read_end, write_end = os.pipe()
    left, right = (end.detach() for end in socket.socketpair())
    for sink, fd in ((open_sink(write_end), read_end), (open_sink(left), right)):
        pieces: list[bytes | memoryview] = [b"%04d" % number for number in range(3000)]
        written = sink.write(pieces)
        assert 0 < written < 12_000
        assert os.read(fd, 20_000) == b"".join(pieces)[:written]
        sink.close()
        os.close(fd)


async def test_a_file_takes_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    sink = open_sink(os.open(path, os.O_CREAT | os.O_WRONLY))
    assert isinstance(sink, BlockingSink)
    pieces: list[bytes | memoryview] = [b"a" * MEGABYTE, memoryview(b"b")] * 2
    assert sink.write(pieces) == 2 * MEGABYTE + 2
    sink.close()
    assert path.read_bytes() == b"".join(pieces)
    full = BlockingSink(os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        full.write([b"x"])
    full.close()


async def test_a_terminal_that_others_made_non_blocking_takes_all() -> None:
    master, slave = pty.openpty()
    mode = termios.tcgetattr(slave)
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, mode)
    os.set_blocking(slave, False)
    sink = open_sink(slave)
    assert isinstance(sink, BlockingSink)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(drain(master, MEGABYTE)))
    reader.start()
    assert sink.write([b"x" * MEGABYTE]) == MEGABYTE
    reader.join()
    assert found == [b"x" * MEGABYTE]
    sink.close()
    os.close(master)
