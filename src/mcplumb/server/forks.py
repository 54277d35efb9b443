"""A function that forks, and comes back in the child as well: the child is no server, and ends there."""

from __future__ import annotations

import os

__all__ = ["end_fork", "generation"]

#: A number that is another one in a fork.
generation = 0


def _note_fork() -> None:
    global generation  # noqa: PLW0603 - a process has one
    generation += 1


os.register_at_fork(after_in_child=_note_fork)


def end_fork() -> None:
    """End this process, which is a fork of the one that serves."""
    os._exit(1)
