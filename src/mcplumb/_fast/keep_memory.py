"""The memory of large messages, which some C libraries give back to the system after each of them.

A message of ten megabytes is there as bytes, as a text and as the answer. When all of that is free, glibc returns it,
unless the program has shown that it uses such blocks; and for the next message every page is made and cleared anew,
which takes longer than to decode it.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache

__all__ = ["keep_memory"]

#: A block of this size suits messages of ten megabytes: glibc then keeps twice as much. It learns from up to 32 MiB.
_LESSON = 20_000_000


@cache
def keep_memory() -> None:
    """Let the memory of large messages, up to 40 MB of it, stay with this process for the next ones.

    glibc learns how large the blocks of a program are by those that are let go. What it learns holds for the memory of
    each thread, and for all that the process does: this is for one that does nothing but to serve. Nothing happens
    with other libraries, or if the environment says how much is kept (``MALLOC_TRIM_THRESHOLD_``).
    """
    # It is never written to, so no memory is used for it.
    with suppress(MemoryError):
        bytes(_LESSON)
