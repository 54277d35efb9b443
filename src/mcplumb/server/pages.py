"""Lists in pages: the cursor is the place after the last item given, so it stays good when the list changes.

Each item has a number that grows with every registration and is never given again. A cursor holds the number of the
last item of a page, and the next page starts with the first item that has a greater one. So an item that is there
all the time is given exactly once, whatever is added or removed between two pages, and the server remembers nothing.

A cursor is, in base64url without padding: one byte of version, the number, and four bytes of a checksum that also
covers the list's name. The checksum is no seal: it tells a mistake from a cursor, and a made-up cursor does no harm.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64, crc32
from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeVar

from msgspec import Raw

from mcplumb.errors import UsageError

__all__ = ["BadCursor", "WrittenPages", "page_of"]

T = TypeVar("T")

_VERSION = b"\x01"
_CHECKSUM = 4
#: Characters of a cursor; one whose number has 64 bits has 18.
_LONGEST = 24


class BadCursor(Exception):
    """A cursor that no page of this list gave."""


class WrittenPages:
    """The pages of one version of a list, as they are sent."""

    __slots__ = ("_pages", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        #: By cursor; None where the page has not been asked for yet.
        self._pages: dict[str | None, Raw | None] = {None: None}

    def get(self, cursor: str | None) -> Raw | None:
        """The page after this cursor, if it was kept."""
        return self._pages.get(cursor)

    def keep(self, cursor: str | None, page: Raw, next_cursor: str | None) -> None:
        """Keep a page, if it is the first or comes after one that is kept.

        So there are never more than the list has, whatever cursors are made up, or are left from another version.
        """
        if cursor in self._pages:
            self._pages[cursor] = page
            if next_cursor is not None:
                self._pages.setdefault(next_cursor, None)


def page_of(
    items: Sequence[tuple[int, T]], *, cursor: str | None, size: int | None, name: str
) -> tuple[list[T], str | None]:
    """The page after ``cursor`` (None: the first), and the cursor of the next page (None: there is none now).

    ``items`` are pairs of a number and an item, in the order of the numbers. ``size`` is the most items on a page,
    None for all. ``name`` is the list's own: a cursor of another list is refused, as is all else that is no cursor,
    with ``BadCursor``.
    """
    if size is not None and size < 1:
        raise UsageError(f"A page cannot have {size} items: give a size of at least 1, or None for all at once.")
    start = 0 if cursor is None else bisect_right(items, _number_in(cursor, name), key=_number_of)
    end = len(items) if size is None else min(start + size, len(items))
    page = [item for _, item in items[start:end]]
    return page, _cursor_after(items[end - 1][0], name) if end < len(items) else None


def _number_of(pair: tuple[int, object]) -> int:
    return pair[0]


def _cursor_after(number: int, name: str) -> str:
    body = _VERSION + number.to_bytes((number.bit_length() + 7) // 8)
    raw = body + _checksum(body, name)
    return b2a_base64(raw, newline=False).translate(_URL_SAFE).rstrip(b"=").decode("ascii")


def _number_in(cursor: str, name: str) -> int:
    number = _maybe_number_in(cursor)
    # Only the one right spelling counts: decoders pass over foreign characters and stray bits.
    if number is None or _cursor_after(number, name) != cursor:
        raise BadCursor(f"The cursor is not one that this list of {name} gave. Start again without a cursor.")
    return number


def _maybe_number_in(cursor: str) -> int | None:
    if len(cursor) > _LONGEST:
        return None
    try:
        raw = a2b_base64(cursor.translate(_FROM_URL_SAFE) + "=" * (-len(cursor) % 4))
    except ValueError:
        return None
    return int.from_bytes(raw[1:-_CHECKSUM])


def _checksum(body: bytes, name: str) -> bytes:
    return crc32(body, crc32(name.encode())).to_bytes(_CHECKSUM)


_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_FROM_URL_SAFE = str.maketrans("-_", "+/")
