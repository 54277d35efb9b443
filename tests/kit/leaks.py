"""A look at what a test leaves behind: open descriptors and threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.loop import PATIENCE

#: Fails a test that leaves a descriptor or a reader's thread behind. Use it on a test, or as ``pytestmark`` on a file.
leaves_nothing = pytest.mark.usefixtures("_nothing_left")


def open_descriptors() -> dict[str, str]:
    """Return the open descriptors of the process, and what they refer to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (a Path would open another one on the way)
        try:
            found[name] = str(Path(f"/proc/self/fd/{name}").readlink())
        except OSError:
            continue  # the one that was open to list the others
    return found


def readers() -> list[threading.Thread]:
    """Return the threads that read for a connection."""
    return [thread for thread in threading.enumerate() if thread.name == "mcplumb-reader"]


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fail if the body leaves a descriptor or a reader's thread behind."""
    before = open_descriptors()

    def left() -> dict[str, str]:
        # What was open before may be closed meanwhile: the test before may have left that to another thread.
        return {number: what for number, what in open_descriptors().items() if before.get(number) != what}

    yield
    deadline = time.monotonic() + PATIENCE
    # Nobody waits for a reader to be gone, or for what other threads have open for a moment, except here.
    while (readers() or left()) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert readers() == [], f"readers are left behind: {readers()}"
    assert left() == {}, f"descriptors are left behind: {left()}"


@pytest.fixture
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield
