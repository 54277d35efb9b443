"""Connections over descriptors: what each kind of them does to the bytes, and to those who share it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import socket
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from mcplumb.transports.fd_connection import StreamConnection, ThreadSource
from mcplumb.wire.decode import BadMessage
from mcplumb.wire.messages import Notification, Request, Result
from tests.kit.leaks import leaves_nothing, readers
from tests.kit.loop import PATIENCE, run, turns
from tests.transports.ends import Item, Recorder

pytestmark = leaves_nothing


NULL = os.devnull
KIBIBYTE = 1024


def line(name: str) -> bytes:
    return b'{"jsonrpc":"2.0","method":"%b"}\n' % name.encode()


def null() -> int:
    return os.open(NULL, os.O_RDWR)


def file(folder: Path, content: bytes) -> int:
    path = folder / "in"
    path.write_bytes(content)
    return os.open(path, os.O_RDONLY)


def started(read_fd: int, write_fd: int | None = None) -> tuple[StreamConnection, Recorder]:
    connection, side = StreamConnection(read_fd, null() if write_fd is None else write_fd), Recorder()
    connection.start(side)
    return connection, side


async def write_in(fd: int, data: bytes) -> None:
    """Write without keeping the loop from reading."""
    await asyncio.get_running_loop().run_in_executor(None, write_all, fd, data)


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


# --- Pipes and sockets ---


def ways_in() -> dict[str, Callable[[], tuple[int, int]]]:
    def terminal() -> tuple[int, int]:
        master, slave = pty.openpty()
        mode = termios.tcgetattr(slave)
        mode[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, mode)
        return slave, master

    def sockets() -> tuple[int, int]:
        left, right = (end.detach() for end in socket.socketpair())
        return left, right

    return {"pipe": os.pipe, "socket": sockets, "terminal": terminal}


WAYS_IN = ways_in()


@pytest.mark.req("FRM-1", "FRM-9")
@pytest.mark.parametrize("way", WAYS_IN)
async def test_bytes_that_come_one_at_a_time(way: str) -> None:
    read_fd, write_fd = WAYS_IN[way]()
    connection, side = started(read_fd)
    data = line("a") + b"\n" + line("b")[:-1] + b"\r\n" + b"garbage\n" + line("é")
    for at in range(len(data)):
        os.write(write_fd, data[at : at + 1])
        await turns(2)
    await side.until_count(4)
    assert side.names == ["a", "b", "é"]
    assert isinstance(side.items[2], BadMessage)
    await connection.close()
    os.close(write_fd)


@pytest.mark.req("FRM-6")
@pytest.mark.parametrize("way", ["pipe", "socket"])
@pytest.mark.parametrize(
    ("rest", "names", "is_clean"),
    [
        (b"", ["a"], True),
        (b" \r\n", ["a"], True),
        (line("b")[:-1], ["a", "b"], False),
        (b'{"jsonrpc"', ["a"], False),
    ],
)
async def test_the_end_of_the_stream(way: str, rest: bytes, names: list[str], is_clean: bool) -> None:
    read_fd, write_fd = WAYS_IN[way]()
    connection, side = started(read_fd)
    os.write(write_fd, line("a") + rest)
    os.close(write_fd)
    await side.until_end()
    assert side.names == names
    assert side.ends == [is_clean]
    assert connection.stats.bad_lines == (rest == b'{"jsonrpc"')
    await turns()
    assert side.ends == [is_clean]
    connection.abort()


async def test_one_socket_for_both_ways() -> None:
    near, far = socket.socketpair()
    fd = near.detach()
    connection, side = started(fd, fd)
    far.sendall(line("question"))
    await side.until_count(1)
    connection.send(Notification("answer"))
    far.shutdown(socket.SHUT_WR)
    await side.until_end()
    connection.send(Notification("more"))
    await connection.close()
    assert far.makefile("rb").read() == line("answer") + line("more")
    far.close()


async def test_a_reset_is_an_end_that_is_not_clean() -> None:
    near, far = socket.socketpair()
    fd = near.detach()
    connection, side = started(fd, fd)
    connection.send(Notification("unread"))
    far.sendall(line("a"))
    await side.until_count(1)
    await turns()
    # With something unread: that is what makes it a reset.
    far.close()
    await side.until_end()
    assert side.names == ["a"]
    assert side.ends == [False]
    connection.abort()


async def test_somebody_else_may_read_from_the_same_pipe() -> None:
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    both = [started(fd) for fd in (os.dup(read_fd), read_fd)]
    # The loop sees both of them ready at once, and one is too late.
    for number in range(10):
        os.write(write_fd, line(f"n{number}"))
        await turns(5)
    found = [name for _, side in both for name in side.names]
    assert sorted(found) == [f"n{number}" for number in range(10)]
    os.close(write_fd)
    for connection, side in both:
        await side.until_end()
        assert side.ends == [True]
        connection.abort()


async def test_a_read_is_as_large_as_it_needs_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    read = os.read

    def watched(fd: int, size: int) -> bytes:
        sizes.append(size)
        return read(fd, size)

    def asked() -> list[int]:
        found = [size // KIBIBYTE for size in sizes]
        sizes.clear()
        return found

    read_fd, write_fd = os.pipe()
    fcntl.fcntl(read_fd, fcntl.F_SETPIPE_SZ, 1024 * KIBIBYTE)
    monkeypatch.setattr(os, "read", watched)
    connection, side = started(read_fd)

    # Many small lines come in many small reads.
    os.write(write_fd, line("n") * 3000)
    await side.until_count(3000)
    assert set(asked()) == {16}

    # What is large comes in large ones.
    os.write(write_fd, line("n" * 900 * KIBIBYTE))
    await side.until_count(3001)
    assert asked() == [16, 64, 256, 1024]

    # One that follows is small, and so the next are.
    for _ in range(5):
        os.write(write_fd, line("n"))
        await side.until_count(len(side.items) + 1)
    assert asked() == [1024, 256, 64, 16, 16]

    # A pause within a large one changes nothing.
    side.on_item = lambda item: connection.pause()
    os.write(write_fd, line("n") + b'{"' + b" " * 100 * KIBIBYTE)
    await side.until_count(len(side.items) + 1)
    assert asked() == [16]
    connection.abort()
    os.close(write_fd)


async def test_a_pipe_that_is_full_is_enlarged_and_a_quiet_one_is_not() -> None:
    read_fd, write_fd = os.pipe()
    usual = fcntl.fcntl(write_fd, fcntl.F_GETPIPE_SZ)
    connection, side = started(read_fd)
    os.write(write_fd, line("n"))
    await side.until_count(1)
    assert fcntl.fcntl(write_fd, fcntl.F_GETPIPE_SZ) == usual
    await write_in(write_fd, line("n" * 5_000_000))
    await side.until_count(2)
    assert fcntl.fcntl(write_fd, fcntl.F_GETPIPE_SZ) >= usual
    connection.abort()
    os.close(write_fd)


async def test_any_message_is_decoded_whatever_is_expected() -> None:
    read_fd, write_fd = os.pipe()
    connection, side = StreamConnection(read_fd, null(), expect=Result), Recorder()
    connection.start(side)
    os.write(write_fd, line("a") + b'{"jsonrpc":"2.0","id":1,"method":"b"}\n{"jsonrpc":"2.0","id":1,"result":{}}\n')
    await side.until_count(3)
    assert [type(item) for item in side.items] == [Notification, Request, Result]
    connection.abort()
    os.close(write_fd)


async def test_closed_descriptors_are_refused() -> None:
    read_fd, write_fd = os.pipe()
    os.close(write_fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        StreamConnection(read_fd, write_fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        StreamConnection(write_fd, write_fd)
    os.close(read_fd)


async def test_a_pipe_can_be_paused_and_resumed_at_any_time() -> None:
    read_fd, write_fd = os.pipe()
    connection, side = started(read_fd)

    def blink() -> None:
        connection.pause()
        connection.resume()
        connection.pause()
        connection.resume()

    side.on_item = lambda item: blink()
    for number in range(10):
        os.write(write_fd, line(f"n{number}") * 2)
        await side.until_count(2 * number + 1)
        blink()
    os.close(write_fd)
    await side.until_end()
    assert side.names == [f"n{number // 2}" for number in range(20)]
    blink()
    await turns()
    assert side.ends == [True]
    connection.abort()


# --- Files ---


@pytest.mark.parametrize("is_torn", [False, True])
async def test_a_file_is_read_to_its_end(tmp_path: Path, is_torn: bool) -> None:
    names = [f"n{number}" for number in range(20_000)]
    content = b"".join(map(line, names)) + line("x" * 5_000_000)
    connection, side = started(file(tmp_path, content[:-1] if is_torn else content))
    await side.until_end()
    assert side.names == [*names, "x" * 5_000_000]
    assert side.ends == [not is_torn]
    connection.pause()
    connection.resume()
    await turns()
    assert side.ends == [not is_torn]
    await connection.close()


@pytest.mark.parametrize("path", [NULL, "empty"])
async def test_nothing_is_a_clean_end(tmp_path: Path, path: str) -> None:
    connection, side = started(null() if path == NULL else file(tmp_path, b""))
    await side.until_end()
    assert side.items == []
    assert side.ends == [True]
    await connection.close()


async def test_what_cannot_be_read_at_all_is_an_end_that_is_not_clean(tmp_path: Path) -> None:
    connection, side = started(os.open(tmp_path, os.O_RDONLY))
    await side.until_end()
    assert side.ends == [False]
    await connection.close()


async def test_no_more_of_a_file_is_read_than_somebody_wants(tmp_path: Path) -> None:
    fd = file(tmp_path, line("n") * 500_000)
    position = os.dup(fd)
    connection, side = started(fd)
    side.on_item = lambda item: connection.pause()
    for count in range(1, 10):
        await side.until_count(count)
        await turns()
        assert len(side.items) == count
        assert os.lseek(position, 0, os.SEEK_CUR) <= 128 * KIBIBYTE
        connection.resume()
    side.on_item = None
    connection.resume()
    await side.until_end()
    assert len(side.items) == 500_000
    connection.abort()
    os.close(position)


async def test_a_block_that_comes_during_a_pause_waits_for_its_end(tmp_path: Path) -> None:
    source = ThreadSource(file(tmp_path, b"abc"))
    blocks: list[bytes] = []
    ended = asyncio.Event()

    def arrived(block: bytes) -> int:
        blocks.append(block)
        source.pause()
        source.resume()
        return 1

    source.start(arrived, lambda error: ended.set(), ended.set)
    source.pause()
    while source._held is None:  # noqa: ASYNC110 (the source tells nobody: that is the point)
        await asyncio.sleep(0)
    assert blocks == []
    source.resume()
    await ended.wait()
    assert blocks == [b"abc"]
    source.close()


async def test_a_file_that_was_never_read_can_be_closed(tmp_path: Path) -> None:
    StreamConnection(file(tmp_path, b"abc"), null()).abort()
    await StreamConnection(file(tmp_path, b"abc"), null()).close()


async def test_an_abort_within_a_message_of_a_file(tmp_path: Path) -> None:
    connection, side = started(file(tmp_path, line("n") * 10_000))

    def stop(item: Item) -> None:
        if len(side.items) == 5000:
            connection.abort()

    side.on_item = stop
    await side.until_count(5000)
    await turns()
    assert len(side.items) == 5000
    assert side.ends == []


async def test_a_file_is_written_to(tmp_path: Path) -> None:
    out = tmp_path / "out"
    connection, side = started(null(), os.open(out, os.O_CREAT | os.O_WRONLY))
    await side.until_end()
    large = "x" * 5_000_000
    connection.send(Notification("a"))
    connection.send(Notification(large))
    await connection.close()
    assert out.read_bytes() == line("a") + line(large)
    assert connection.stats.bytes_out == out.stat().st_size


async def test_a_full_disk_breaks_the_connection() -> None:
    connection, side = started(null(), os.open("/dev/full", os.O_WRONLY))
    connection.send(Notification("a"))
    await side.until(lambda: side.errors)
    assert "No space left" in str(side.errors[0])
    await connection.close()


# --- Terminals ---


async def test_a_terminal_is_read_and_written() -> None:
    master, slave = pty.openpty()
    connection, side = started(slave, slave)
    await write_in(master, line("typed"))
    await side.until_count(1)
    connection.send(Notification("shown"))
    await connection.close()
    shown = b""
    while not shown.endswith(line("shown").replace(b"\n", b"\r\n")):
        shown += os.read(master, 1000)
    os.close(master)


async def test_a_terminal_that_hangs_up_is_an_end() -> None:
    master, slave = pty.openpty()
    os.write(slave, line("a"))
    connection, side = started(master)
    await side.until_count(1)
    os.close(slave)
    await side.until_end()
    assert side.names == ["a"]
    assert side.ends == [False]
    await connection.close()


async def test_a_closed_connection_leaves_what_is_typed_to_others() -> None:
    master, slave = pty.openpty()
    other = os.dup(slave)
    connection, side = started(slave)
    await turns()
    (reader,) = readers()
    await connection.close()
    reader.join(PATIENCE)
    assert not reader.is_alive()
    os.write(master, line("typed"))
    assert os.read(other, 1000) == line("typed")
    assert side.items == []
    os.close(other)
    os.close(master)


async def test_somebody_else_may_read_from_the_same_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.read
    stolen = [True]

    def late(fd: int, size: int) -> bytes:
        if stolen.pop() if stolen else False:
            raise BlockingIOError
        return read(fd, size)

    master, slave = pty.openpty()
    monkeypatch.setattr(os, "read", late)
    connection, side = started(slave)
    os.write(master, line("typed"))
    await side.until_count(1)
    assert stolen == []
    await connection.close()
    os.close(master)


def test_a_loop_that_is_gone_takes_the_reader_with_it() -> None:
    master, slave = pty.openpty()
    left: list[StreamConnection] = []

    async def main() -> None:
        connection, _ = started(slave)
        left.append(connection)

    run(main())
    os.write(master, line("typed"))
    for reader in readers():
        reader.join(PATIENCE)
    assert readers() == []
    left[0].abort()
    os.close(master)
