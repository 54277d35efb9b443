"""What the tests of child processes share: small servers in Python, and a look at which processes are left."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.transports.process.child import Child
from mcplumb.transports.process.command import Command, read_command
from mcplumb.wire.messages import Notification
from tests.kit.leaks import nothing_left
from tests.transports.ends import Recorder
from tests.transports.families import patient_watchdogs

# Waits that no test has the time for: what needs one of them fails.
NEVER = 3600.0
PATIENT = StopLadder(close_wait=NEVER, term_wait=NEVER, kill_wait=NEVER)

# `tell` sends a notification, `start` another process, and `forever` does not leave before the world ends.
PRELUDE = """
import os, signal, subprocess, sys, time
def tell(method="ready", **params):
    import json
    print(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}), flush=True)
def start(code, **options):
    program = [sys.executable, "-I", "-S", "-c", "import os, signal, sys, time\\n" + code]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, **options)
    process.returncode = 0  # nobody waits for it
    return process.pid
def forever():
    # Not a sleep, which a signal that arrives just before it does not interrupt.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    while True:
        os.read(reader, 100)
def until_end():
    while sys.stdin.readline(): pass
"""


def server(code: str, **options: Any) -> Command:
    return read_command([sys.executable, "-I", "-S", "-c", PRELUDE + code], **options)


class Running:
    """A child whose messages are being recorded."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.seen = Recorder()
        child.connection.start(self.seen)

    async def told(self, method: str = "ready") -> dict[str, Any]:
        """What the server told under this name, as soon as it has."""
        await self.seen.until(lambda: method in self.seen.names)
        for item in self.seen.items:
            if isinstance(item, Notification) and item.method == method:
                assert isinstance(item.params, msgspec.Raw)
                params: dict[str, Any] = msgspec.json.decode(item.params)
                return params
        raise AssertionError


@asynccontextmanager
async def running(code: str, *, stop: StopLadder = PATIENT, **options: Any) -> AsyncIterator[Running]:
    """A server that is killed at the end, if it was not stopped before."""
    child = Child.start(server(code), stop=stop, **{"stderr": "capture"} | options)
    try:
        yield Running(child)
    finally:
        child.kill()


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def own_children() -> set[int]:
    """The children of this process, zombies too."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if stat.rpartition(")")[2].split()[1] == str(os.getpid()):
                found.add(int(entry.name))
    return found


@contextmanager
def no_process_left() -> Iterator[None]:
    """Fails if what runs inside leaves a child, a zombie, a descriptor or a thread behind."""
    before = own_children()
    with pytest.MonkeyPatch.context() as patch, nothing_left():
        patient_watchdogs(patch)
        yield
    assert own_children() == before
