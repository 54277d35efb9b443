"""Real processes to watch and to end: a server with children of many kinds.

All of them have the write end of one pipe, so its end tells that all of them are gone, whoever reaps them.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from mcplumb.transports.process import watchdog
from mcplumb.transports.process.tree import MARK, Tree
from tests.kit.loop import PATIENCE

PROGRAM = """
import ctypes, os, signal, sys, threading, time

def say(kind):
    os.write(1, f"{kind} {os.getpid()}\\n".encode())

def stay():
    while True:
        time.sleep(1000)

def start(kind):
    if os.fork():
        return
    if kind.startswith("own-group"):
        os.setpgid(0, 0)
    if kind.startswith("own-session"):
        os.setsid()
    if kind == "own-session-of-two":
        start("orphan-in-other-session")
    if kind.startswith("orphan") and os.fork():
        os._exit(0)
    if kind == "orphan-daemon":
        os.setsid()
    if kind == "headless":
        threading.Thread(target=stay).start()
        say(kind)
        ctypes.CDLL(None).pthread_exit(None)
    if kind == "zombie":
        say(kind)
        os._exit(0)
    say(kind)
    stay()

_, habit, *kinds = sys.argv
if habit == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for kind in kinds:
    start(kind)
say("server")
if habit == "leaves":
    sys.stdin.buffer.read()
    os._exit(0)
stay()
"""


class Family:
    """A server in a session of its own, and its children. Leaving the context ends and reaps all of them."""

    def __init__(self, habit: str, *kinds: str, stdin: int = subprocess.PIPE, mark: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PROGRAM, habit, *kinds],
            stdin=stdin,
            stdout=subprocess.PIPE,
            env={**os.environ, MARK: mark},
            start_new_session=True,
        )
        self.pid = self.process.pid
        assert self.process.stdout is not None
        self._pipe = self.process.stdout.fileno()
        self.pids = read_pids(self._pipe, 1 + len(kinds) + kinds.count("own-session-of-two"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_alive:
            for pid in self.pids.values():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.wait_gone()
        self.close_input()
        with self.process:  # closes the other pipe, and reaps
            pass

    def close_input(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()

    def wait_gone(self) -> None:
        """Wait until nobody is left."""
        assert read_with_patience(self._pipe) == b""

    @property
    def is_alive(self) -> bool:
        """Whether anybody is left."""
        return not select.select([self._pipe], [], [], 0)[0]


def members(session: int) -> list[int]:
    """Who lives, seen for the first time."""
    return list(Tree(session).members())


def is_gone(session: int) -> bool:
    return not members(session)


def signal_tree(session: int, number: int) -> None:
    Tree(session).signal(number)


def read_with_patience(fd: int) -> bytes:
    readable, _, _ = select.select([fd], [], [], PATIENCE)
    assert readable, "nothing came"
    return os.read(fd, 65536)


def read_pids(fd: int, count: int) -> dict[str, int]:
    """Read what so many processes say about themselves, each in a line: what it is, and its pid."""
    text = b""
    while text.count(b"\n") < count:
        chunk = read_with_patience(fd)
        assert chunk, f"only {text!r} came"
        text += chunk
    return {kind: int(pid) for kind, pid in map(str.split, text.decode().splitlines())}


def is_running(pid: int) -> bool:
    """Whether there is such a process, and more than a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


def patient_watchdogs(patch: pytest.MonkeyPatch) -> None:
    """Wait for watchdogs until they have ended: where there is much to do, that takes longer than a host would wait."""
    patch.setattr(watchdog, "_EXIT_TIMEOUT", PATIENCE)
    patch.setattr(watchdog, "_BLOCKING_TIMEOUT", PATIENCE)
