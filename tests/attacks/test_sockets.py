"""Attacks on servers at TCP ports and Unix sockets."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attacks.harness import ROOT, Target, Wire, post
from tests.kit.loop import PATIENCE, blocking_until
from tests.kit.results import text_of
from tests.process.harness import encoded, modern_call

TCP = "tcp://127.0.0.1:0"
SCHEMES = ["tcp", "unix"]
#: What all the buffers between a server and one client that does not read may hold, and some more.
BUFFERS = 40_000_000


@pytest.fixture(scope="module")
def short_path() -> Iterator[Path]:
    """A folder with a name that is short enough for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="at-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def target(short_path: Path) -> Iterator[Target]:
    address = f"unix:{short_path / 'target'}"
    with Target(TCP, address, limits={"max_line": 1_000_000, "max_connections": 100}) as target:
        yield target


@pytest.mark.req("STR-2")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "garbage",
    [b"\0" * 100_000, b"\xff\n" * 10_000, b"{" * 999_999 + b"\n", b"[" * 999_999 + b"\n", b"\n" * 100_000, b"x"],
    ids=lambda garbage: repr(garbage[:4]),
)
def test_garbage(target: Target, scheme: str, garbage: bytes) -> None:
    with target.wire(scheme) as wire:
        wire.offer(garbage)
        wire.socket.shutdown(socket.SHUT_WR)
        for line in wire.rest().splitlines():
            assert "error" in json.loads(line)


@pytest.mark.req("STR-2")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_line_without_end_is_not_collected(target: Target, scheme: str) -> None:
    before = target.memory()
    with target.wire(scheme) as wire:
        for _ in range(500):
            if not wire.offer(b"x" * 100_000):
                break
        assert target.memory() - before < BUFFERS


def test_a_browser_cannot_speak_with_a_tcp_port(target: Target) -> None:
    """Among the lines of what it sends, one can be a message: the body of a form is a page's own choice."""
    hidden = encoded(modern_call(1, "wait", name="by a browser"))
    form = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(hidden)
    for data in (form + hidden, post(modern_call(1, "wait", name="by a browser")), b"\x16\x03\x01" + hidden):
        with target.wire("tcp") as wire:
            wire.offer(data)
            assert wire.rest() == b""
    with target.wire("tcp") as wire:
        wire.send(encoded(modern_call(1, "count", event="by a browser began")))
        assert text_of(wire.line()["result"]) == "0"


@pytest.mark.req("STR-2")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_half_open_connections(target: Target, scheme: str) -> None:
    """Who sends no more still gets its answers; who is gone harms nobody."""
    call = encoded(modern_call(1, "echo", text="half"))
    with target.wire(scheme) as wire:
        wire.send(call)
        wire.socket.shutdown(socket.SHUT_WR)
        (line,) = wire.rest().splitlines()
        assert text_of(json.loads(line)["result"]) == "half"
    for data in (b"", call, call[:-10], call * 100):
        wire = target.wire(scheme)
        wire.send(data)
        wire.reset()
        wire = target.wire(scheme)
        wire.send(data)
        wire.close()


@pytest.mark.req("STR-2")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_who_never_reads_is_not_worked_for_without_end(target: Target, scheme: str) -> None:
    before = target.memory()
    with target.wire(scheme) as wire:
        wire.socket.settimeout(2.0)
        calls = b"".join(encoded(modern_call(number, "echo", text="x" * 10_000)) for number in range(100))
        with pytest.raises(TimeoutError):
            _send_on(wire, calls)
        target.serves()
        assert target.memory() - before < BUFFERS * 2


def _send_on(wire: Wire, data: bytes) -> None:
    for _ in range(1000):
        wire.send(data)


@pytest.mark.req("STR-2")
@pytest.mark.parametrize("scheme", SCHEMES)
def test_connections_beyond_the_bound(target: Target, scheme: str) -> None:
    bound = 100
    with ExitStack() as stack:
        wires = [stack.enter_context(target.wire(scheme)) for _ in range(1000)]
        for wire in wires:
            wire.offer(encoded(modern_call(1, "echo", text="one of many")))
        assert sum(bool(wire.first_line()) for wire in wires) == bound
    blocking_until(lambda: _is_served(target, scheme), "room for a good client")


def _is_served(target: Target, scheme: str) -> bool:
    with target.wire(scheme) as wire:
        return wire.offer(encoded(modern_call(1, "echo", text="after"))) and bool(wire.first_line())


# Socket files


def refused(path: Path) -> str:
    """What a server says that is not to be had at this path."""
    options = json.dumps({"addresses": [f"unix:{path}"]})
    command = [sys.executable, "-m", "tests.attacks.target", options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT, check=False)
    assert done.returncode != 0
    assert done.stdout == ""
    return done.stderr


@pytest.mark.req("STR-4")
def test_what_is_no_socket_is_left_alone(short_path: Path) -> None:
    file = short_path / "file"
    file.write_text("precious")
    assert "not a socket" in refused(file)
    assert file.read_text() == "precious"

    link = short_path / "link"
    link.symlink_to(file)
    assert "symbolic link" in refused(link)
    assert file.read_text() == "precious"
    assert link.is_symlink()

    dangling = short_path / "dangling"
    dangling.symlink_to(short_path / "elsewhere")
    assert refused(dangling)
    assert not (short_path / "elsewhere").exists()

    folder = short_path / "folder"
    folder.mkdir()
    assert refused(folder)
    assert folder.is_dir()

    pipe = short_path / "pipe"
    os.mkfifo(pipe)
    assert refused(pipe)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)

    assert refused(short_path / ("x" * 200))


@pytest.mark.req("STR-4")
def test_a_socket_of_others_is_not_stolen(target: Target, short_path: Path) -> None:
    path = target.place("unix")
    assert isinstance(path, str)
    assert "listens there already" in refused(Path(path))
    target.serves()

    # Nor by way of a link to it.
    link = short_path / "to others"
    link.symlink_to(path)
    assert refused(link)
    assert Path(path).exists()

    # Nor is one that does not answer because it is busy.
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        place = str(short_path / "busy")
        busy.bind(place)
        busy.listen(0)
        waiting.connect(place)
        assert "listens there already" in refused(Path(place))
        assert Path(place).exists()


@pytest.mark.req("STR-4")
def test_a_socket_is_for_its_owner_only_whatever_the_mask(short_path: Path) -> None:
    path = short_path / "mine"
    mask = os.umask(0)
    try:
        with Target(f"unix:{path}"):
            assert stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0
    finally:
        os.umask(mask)
    assert not path.exists()


@pytest.mark.req("STR-4")
def test_what_came_in_its_place_is_not_removed(short_path: Path) -> None:
    path = short_path / "replaced"
    with Target(f"unix:{path}") as target:
        path.unlink()
        path.write_text("somebody else's")
        target.addresses.clear()  # it cannot be reached any more
    assert path.read_text() == "somebody else's"


@pytest.mark.req("STR-4")
def test_a_socket_that_was_left_over_is_replaced(short_path: Path) -> None:
    path = short_path / "left over"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    assert path.exists()
    with Target(f"unix:{path}"):
        pass
    assert not path.exists()


@pytest.mark.req("STR-4")
def test_tcp_is_for_this_machine_only(target: Target) -> None:
    """Nothing listens at the addresses that others can reach."""
    place = target.place("tcp")
    assert not isinstance(place, str)
    with pytest.raises(OSError, match=r"refused|unreachable|assign|timed out"):
        _others_reach(place[1])


def _others_reach(port: int) -> None:
    """Connect to the port at an address of this machine that is not a loopback one; OSError if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: the system only says where it would be sent from.
        probe.connect(("192.0.2.1", 9))
        own = probe.getsockname()[0]
    assert not own.startswith("127.")
    socket.create_connection((own, port), timeout=5.0).close()
