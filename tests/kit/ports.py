"""Ports that stay free for a test. One that was bound and let go again may be taken by any other program meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeAlias

import pytest

__all__ = ["FreePort", "free_port", "held_port"]

FreePort: TypeAlias = Callable[[], int]


def held_port() -> socket.socket:
    """A socket that keeps a free port for one program, which may bind it as often as it starts; others cannot."""
    # A node of a cluster needs a second port, which is 10,000 higher.
    while True:
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        if held.getsockname()[1] <= 55535:
            return held
        held.close()


@pytest.fixture
def free_port() -> Iterator[FreePort]:
    """Gives a port where nobody listens. Until the end of the test, only who names it may get it."""
    with ExitStack() as stack:
        yield lambda: int(stack.enter_context(held_port()).getsockname()[1])
