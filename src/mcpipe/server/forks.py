"""A function that forks, and comes back in the child as well: the child is no server, and ends there."""

from __future__ import annotations

import os

__all__ = ["end_fork", "generation"]

_generation = 0


def _note_fork() -> None:
    global _generation  # noqa: PLW0603 - a process has one
    _generation += 1


os.register_at_fork(after_in_child=_note_fork)


def generation() -> int:
    """A number that is another one in a fork."""
    return _generation


def end_fork(expected: int) -> None:
    """End the process if it has been forked since ``generation`` gave this number."""
    if _generation != expected:
        os._exit(1)
