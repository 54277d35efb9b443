"""The files of Unix sockets: whose they are, and who may replace or remove them."""

# Looking at a file takes no time worth a thread:
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcplumb.errors import ConnectError
from mcplumb.transports.socket_listener import SocketFile, peer_process, peer_user
from tests.client.peers import skip
from tests.kit.leaks import leaves_nothing
from tests.kit.loop import turns
from tests.transports.socket_ends import short_folder

pytestmark = leaves_nothing


# Claims the path that it is given, says what came of it, and holds it until its input ends.
CLAIM = """
import asyncio, sys
from mcplumb.transports.socket_listener import SocketFile
from mcplumb.errors import ConnectError

async def main():
    try:
        file = await SocketFile.claim(sys.argv[1])
    except ConnectError:
        print("refused", flush=True)
        sys.stdin.read()
    else:
        print("claimed", flush=True)
        sys.stdin.read()
        await file.remove()
        file.socket.close()

sys.stdin.readline()
asyncio.run(main())
"""


@pytest.fixture
def path() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder / "s"


def left_behind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()


async def close(file: SocketFile) -> None:
    await file.remove()
    file.socket.close()


@pytest.mark.req("STR-4")
@pytest.mark.parametrize("umask", [0, 0o22, 0o777])
async def test_it_is_for_its_owner_only(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        file = await SocketFile.claim(str(path))
    finally:
        os.umask(before)
    status = path.stat()
    assert stat.S_IMODE(status.st_mode) == 0o600
    assert status.st_uid == os.geteuid()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        assert peer_user(client) == os.geteuid()
        assert peer_process(client) == os.getpid()
    await close(file)
    assert not path.exists()


@pytest.mark.req("STR-4")
async def test_where_a_socket_has_no_mode_the_file_gets_it_before_anybody_can_connect(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, mode: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fchmod", refuse)  # as on macOS
    file = await SocketFile.claim(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    await close(file)


def test_where_nothing_is_told_of_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_PEERCRED")
    near, far = socket.socketpair()
    with near, far:
        assert (peer_user(near), peer_process(near)) == (None, None)


@pytest.mark.req("STR-4")
async def test_a_file_that_was_left_behind_is_replaced(path: Path) -> None:
    left_behind(path)
    old = path.stat().st_ino, path.stat().st_mtime_ns
    file = await SocketFile.claim(str(path))
    assert (path.stat().st_ino, path.stat().st_mtime_ns) != old
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    await close(file)


@pytest.mark.req("STR-4")
@pytest.mark.parametrize("has_queue", [False, True])
async def test_nothing_is_taken_from_somebody_who_listens(path: Path, has_queue: bool) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as caller:
        server.bind(str(path))
        server.listen(0)
        if has_queue:
            caller.connect(str(path))
        who = "Somebody" if has_queue else f"Process {os.getpid()}"
        with pytest.raises(ConnectError) as caught:
            await SocketFile.claim(str(path))
        assert str(caught.value) == (
            f"The server cannot listen at unix:{path}: {who} listens there already. Stop it, or choose another path."
        )
        assert path.is_socket()


async def test_it_is_not_known_who_listens(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_PEERCRED")
    file = await SocketFile.claim(str(path))
    with pytest.raises(ConnectError, match="Somebody listens there already"):
        await SocketFile.claim(str(path))
    await close(file)


def link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.req("STR-4")
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.touch, "there is a file that is no socket. It was left alone: remove it, or choose another path."),
        (Path.mkdir, "there is a directory that is no socket. It was left alone"),
        (link, "there is a symbolic link that is no socket. It was left alone"),
        (os.mkfifo, "there is a file that is no socket"),
    ],
)
async def test_what_is_no_socket_is_left_alone(path: Path, make: Callable[[Path], None], said: str) -> None:
    make(path)
    before = path.lstat()
    with pytest.raises(ConnectError) as caught:
        await SocketFile.claim(str(path))
    assert said in str(caught.value)
    assert path.lstat() == before


async def test_a_socket_of_another_kind_is_left_alone(path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        with pytest.raises(ConnectError, match="there is a socket of another kind"):
            await SocketFile.claim(str(path))
        assert path.exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing/s", r"there is no folder .*/missing\. Create it, or choose another path\."),
        ("file/s", r"there is no folder .*/file\. Create it"),
        ("x" * 200, r"cannot listen at .*: AF_UNIX path too long\."),
    ],
)
async def test_a_path_where_there_can_be_none(path: Path, name: str, said: str) -> None:
    (path.parent / "file").touch()
    with pytest.raises(ConnectError, match=said):
        await SocketFile.claim(str(path.parent / name))


async def test_a_folder_that_is_not_ours(path: Path) -> None:
    path.parent.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(ConnectError, match="the system does not allow this user"):
            await SocketFile.claim(str(path))
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        path.parent.chmod(0o700)


async def test_if_it_cannot_listen_no_file_is_left(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, mode: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "chmod", refuse)
    before = os.umask(0o777)
    try:
        with pytest.raises(ConnectError, match=r"Input/output error\."):
            await SocketFile.claim(str(path))
    finally:
        os.umask(before)
    assert not path.exists()


@pytest.mark.req("STR-4")
async def test_what_is_not_ours_any_more_is_not_removed(path: Path) -> None:
    file = await SocketFile.claim(str(path))
    path.unlink()
    await file.remove()  # there is nothing
    another = await SocketFile.claim(str(path))
    await close(file)
    assert path.is_socket()
    await close(another)
    assert not path.exists()


async def test_a_relative_path_means_the_same_file_to_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    file = await SocketFile.claim(path.name)
    assert path.is_socket()
    monkeypatch.chdir("/")
    await close(file)
    assert not path.exists()


def held(folder: Path) -> int:
    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


@pytest.mark.req("STR-4")
async def test_whoever_is_about_to_listen_is_waited_for(path: Path) -> None:
    left_behind(path)
    fd = held(path.parent)
    before = path.stat()
    claiming = asyncio.ensure_future(SocketFile.claim(str(path)))
    await asyncio.sleep(0.05)
    assert not claiming.done()
    assert path.stat() == before
    os.close(fd)
    await close(await claiming)


async def test_somebody_who_holds_the_folder_for_long_is_not(path: Path) -> None:
    fd = held(path.parent)
    claiming = asyncio.ensure_future(SocketFile.claim(str(path)))
    await turns()
    skip(5)
    file = await claiming
    removing = asyncio.ensure_future(file.remove())
    await turns()
    removing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await removing
    assert not path.exists(), "nobody would do it later"
    os.close(fd)
    await close(file)


async def test_a_folder_that_cannot_be_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    await close(await SocketFile.claim(str(path)))


@pytest.mark.req("STR-4")
@pytest.mark.parametrize("is_stale", [False, True])
def test_of_many_that_start_at_once_one_wins_and_keeps_it(path: Path, is_stale: bool) -> None:
    if is_stale:
        left_behind(path)
    servers = [
        subprocess.Popen([sys.executable, "-c", CLAIM, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    try:
        for server in servers:
            assert server.stdin is not None
            server.stdin.write("go\n")
            server.stdin.flush()
        said = [server.stdout.readline().strip() for server in servers if server.stdout is not None]
        assert sorted(said) == ["claimed", "refused", "refused", "refused"]
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            assert peer_process(client) == servers[said.index("claimed")].pid
    finally:
        for server in servers:
            server.communicate(timeout=60)
    assert not path.exists()
