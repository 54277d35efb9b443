from __future__ import annotations

import base64
import string
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import Raw

from mcplumb.errors import UsageError
from mcplumb.server.catalog import BadCursor, WrittenPages, page_of

BAD = "^The cursor is not one that this list of tools gave. Start again without a cursor.$"


def numbered(count: int) -> list[tuple[int, str]]:
    return [(number, f"tool {number}") for number in range(count)]


def pages(items: list[tuple[int, str]], size: int | None) -> Iterator[list[str]]:
    cursor: str | None = None
    while True:
        page, cursor = page_of(items, cursor=cursor, size=size, name="tools")
        yield page
        if cursor is None:
            return


@pytest.mark.parametrize(
    ("count", "size", "sizes"),
    [
        (0, 3, [0]),
        (2, 3, [2]),
        (3, 3, [3]),
        (4, 3, [3, 1]),
        (7, 3, [3, 3, 1]),
        (5, 1, [1, 1, 1, 1, 1]),
        (7, None, [7]),
        (0, None, [0]),
    ],
)
def test_pages_follow_each_other_in_the_order_of_the_items(count: int, size: int | None, sizes: list[int]) -> None:
    items = numbered(count)
    found = list(pages(items, size))
    assert [len(page) for page in found] == sizes
    assert [item for page in found for item in page] == [item for _, item in items]


@given(number=st.integers(0, 2**64 - 1), size=st.integers(1, 9))
def test_cursors_are_short_and_safe_to_put_anywhere(number: int, size: int) -> None:
    items = [(number + place, place) for place in range(size + 1)]
    first, cursor = page_of(items, cursor=None, size=size, name="tools")
    assert cursor is not None
    assert len(cursor) <= 20
    assert set(cursor) <= set(string.ascii_letters + string.digits + "-_")
    rest, end = page_of(items, cursor=cursor, size=size, name="tools")
    assert (first + rest, end) == (list(range(size + 1)), None)


def test_a_page_after_the_end_is_empty() -> None:
    _, cursor = page_of(numbered(4), cursor=None, size=3, name="tools")
    assert page_of(numbered(2), cursor=cursor, size=3, name="tools") == ([], None)


class Listing(RuleBasedStateMachine):
    """A client reads page after page, while tools come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[tuple[int, int]] = []
        self.last = 0
        self.begin()

    def begin(self) -> None:
        self.lasting = {number for number, _ in self.items}
        self.given: list[int] = []
        self.cursor: str | None = None
        self.is_done = False

    @rule(count=st.integers(1, 5))
    def add(self, count: int) -> None:
        for _ in range(count):
            self.last += 1
            self.items.append((self.last, self.last))

    @precondition(lambda self: self.items)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        number, _ = self.items.pop(data.draw(st.integers(0, len(self.items) - 1)))
        self.lasting.discard(number)

    @precondition(lambda self: not self.is_done)
    @rule(size=st.integers(1, 4))
    def turn(self, size: int) -> None:
        page, self.cursor = page_of(self.items, cursor=self.cursor, size=size, name="tools")
        assert len(page) <= size
        assert set(page) <= {number for number, _ in self.items}
        self.given += page
        self.is_done = self.cursor is None

    @precondition(lambda self: self.is_done)
    @rule()
    def begin_again(self) -> None:
        self.begin()

    @invariant()
    def nothing_twice_and_nothing_left_out(self) -> None:
        assert self.given == sorted(set(self.given))
        if self.is_done:
            assert self.lasting <= set(self.given)


TestListing = Listing.TestCase


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "1",
        "x",
        "====",
        "é",
        "\ud800",
        "\0",
        "AQOHtR97yQ==",
        "A" * 25,
        "A" * 1_000_000,
        base64.urlsafe_b64encode(b"\x01\x05").decode(),
        base64.urlsafe_b64encode(b"\x02\x05\0\0\0\0").decode().rstrip("="),
    ],
)
def test_garbage_is_refused(cursor: str) -> None:
    with pytest.raises(BadCursor, match=BAD):
        page_of(numbered(9), cursor=cursor, size=3, name="tools")


@given(st.text(max_size=30))
def test_any_text_is_refused_or_a_cursor(text: str) -> None:
    _, good = page_of(numbered(9), cursor=None, size=3, name="tools")
    if text != good:
        with pytest.raises(BadCursor, match=BAD):
            page_of(numbered(9), cursor=text, size=3, name="tools")


@given(data=st.data())
def test_a_changed_cursor_is_refused(data: st.DataObject) -> None:
    _, cursor = page_of(numbered(9), cursor=None, size=3, name="tools")
    assert cursor is not None
    place = data.draw(st.integers(0, len(cursor) - 1))
    other = data.draw(
        st.sampled_from(string.ascii_letters + string.digits + "-_=+/ \n").filter(lambda c: c != cursor[place])
    )
    with pytest.raises(BadCursor, match=BAD):
        page_of(numbered(9), cursor=cursor[:place] + other + cursor[place + 1 :], size=3, name="tools")


def test_a_cursor_of_another_list_is_refused() -> None:
    _, cursor = page_of(numbered(9), cursor=None, size=3, name="prompts")
    with pytest.raises(BadCursor, match=BAD):
        page_of(numbered(9), cursor=cursor, size=3, name="tools")


@pytest.mark.parametrize("size", [0, -1])
def test_a_page_has_room_for_something(size: int) -> None:
    with pytest.raises(UsageError, match=f"^The page size is {size}: it must be at least 1, or None"):
        page_of(numbered(1), cursor=None, size=size, name="tools")


def test_pages_are_kept_if_the_one_before_is() -> None:
    kept = WrittenPages(1)
    for cursor in (None, "a", "b"):
        assert kept.get(cursor) is None
    kept.keep("a", Raw(b"2"), "b")
    kept.keep("b", Raw(b"3"), None)
    assert kept.get("a") is kept.get("b") is None
    kept.keep(None, Raw(b"1"), "a")
    kept.keep("b", Raw(b"3"), None)
    assert kept.get("b") is None
    kept.keep("a", Raw(b"2"), "b")
    kept.keep(None, Raw(b"1"), "a")
    kept.keep("b", Raw(b"3"), None)
    assert [kept.get(cursor) for cursor in (None, "a", "b")] == [Raw(b"1"), Raw(b"2"), Raw(b"3")]
