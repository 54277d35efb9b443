"""Lines: every rule by example, and the one rule that matters most by property: chunks do not show."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from typing import TYPE_CHECKING, SupportsIndex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcplumb.errors import UsageError
from mcplumb.wire.lines import HEAD_BYTES, End, LineSplitter, LineTooLong
from tests.wire.strategies import chunked

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

BOM = b"\xef\xbb\xbf"
Output = tuple[list[bytes | LineTooLong], End]


def split(chunks: Iterable[bytes], max_line: int = 1000) -> Output:
    splitter = LineSplitter(max_line)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return lines, splitter.end()


def each_way(data: bytes, max_line: int = 1000) -> Output:
    """The output for ``data``, which has to be the same in one chunk, byte by byte, and cut anywhere in two.

    And also behind another line, because the first line of a stream is special: only there a mark is removed.
    """
    whole = split([data], max_line)
    for before in ([], [b"first\n"]) if BOM[:1] not in data else ([],):
        lines, end = split([*before, *(data[at : at + 1] for at in range(len(data)))], max_line)
        assert (lines[len(before) :], end) == whole
        for at in range(len(data) + 1):
            lines, end = split([*before, data[:at], data[at:]], max_line)
            assert (lines[len(before) :], end) == whole
    return whole


CLEAN = End(clean=True, rest=b"")


@pytest.mark.req("FRM-1", "FRM-9")
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\n", [b"a"]),
        (b"a\nbc\nd\n", [b"a", b"bc", b"d"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\r\r\n", [b"a\r"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"\n\n\na\n\n", [b"a"]),
        (b"\r\n\r\na\n", [b"a"]),
        (b" \n\t \na\n  \r\n", [b"a"]),
        (b" a \n", [b" a "]),
        (BOM + b"a\n", [b"a"]),
        (BOM + b"\na\n", [b"a"]),
        (BOM + b"\r\na\n", [b"a"]),
        (BOM + BOM + b"a\n", [BOM + b"a"]),
        (b"\n" + BOM + b"a\n", [BOM + b"a"]),
        (b"a\n" + BOM + b"b\n", [b"a", BOM + b"b"]),
        ("é\u2028ø\x85\n".encode(), ["é\u2028ø\x85".encode()]),
    ],
)
def test_lines_are_what_stands_before_a_newline(data: bytes, lines: list[bytes]) -> None:
    assert each_way(data) == (lines, CLEAN)


@pytest.mark.req("FRM-6")
@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"", CLEAN),
        (b"a\n", CLEAN),
        (b"a\n  ", CLEAN),
        (b"a\n\r", CLEAN),
        (BOM, CLEAN),
        (b"a", End(clean=False, rest=b"a")),
        (b"a\nb", End(clean=False, rest=b"b")),
        (b"a\nb\r", End(clean=False, rest=b"b")),
        (BOM + b"a", End(clean=False, rest=b"a")),
        (BOM[:2], End(clean=False, rest=BOM[:2])),
        (b"a\n" + BOM, End(clean=False, rest=BOM)),
        (b"a\n" + b"x" * 11, End(clean=False, rest=b"")),
        (b"a\n" + b"x" * 11 + b"\n", CLEAN),
    ],
)
def test_the_end_is_clean_on_a_line_boundary_and_torn_within_a_line(data: bytes, end: End) -> None:
    assert each_way(data, max_line=10)[1] == end


@pytest.mark.req("FRM-4", "FRM-5")
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"1234\n", [b"1234"]),
        (b"12345\n", [LineTooLong(4, b"1234")]),
        (b"123\r\n", [b"123"]),
        (b"1234\r\n", [LineTooLong(4, b"1234")]),
        (b"a\n12345678\nb\n", [b"a", LineTooLong(4, b"1234"), b"b"]),
        (b"12345\n12345\n", [LineTooLong(4, b"1234"), LineTooLong(4, b"1234")]),
        (b"a\n12345", [b"a", LineTooLong(4, b"1234")]),
        (b"     \n", [LineTooLong(4, b"    ")]),
        (BOM + b"1\n", [b"1"]),
        (BOM + b"12\n", [LineTooLong(4, b"1")]),
        (BOM + b"123456\nab\n", [LineTooLong(4, b"1"), b"ab"]),
        (b"12345\n" + BOM + b"1\n", [LineTooLong(4, b"1234"), BOM + b"1"]),
    ],
)
def test_a_line_over_the_cap_is_reported_and_the_stream_goes_on(data: bytes, lines: list[bytes | LineTooLong]) -> None:
    assert each_way(data, max_line=4)[0] == lines


@pytest.mark.req("FRM-5")
def test_a_line_without_end_is_reported_once_when_it_passes_the_cap() -> None:
    splitter = LineSplitter(10)
    assert splitter.feed(b"x" * 10) == []
    assert splitter.feed(b"y") == [LineTooLong(10, b"x" * 10)]
    for _ in range(100):
        assert splitter.feed(b"z" * 10) == []
    assert splitter.feed(b"\nnext\n") == [b"next"]
    assert splitter.end() == CLEAN


@pytest.mark.req("FRM-5")
def test_the_head_of_a_long_line_is_short() -> None:
    data = b"0123456789" * 1000
    for size in (1, 7, 1024, 5000, 20000):
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        assert split(chunks, max_line=5000)[0] == [LineTooLong(5000, data[:HEAD_BYTES])]


@pytest.mark.req("FRM-5")
@pytest.mark.parametrize("size", [1, 1000, 20_000])
def test_memory_is_bounded_by_the_cap_for_any_chunking(size: int) -> None:
    cap = 50_000
    chunk = b"x" * size
    tracemalloc.start()
    try:
        splitter = LineSplitter(cap)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(cap // size):
            splitter.feed(chunk)
        held, peak = tracemalloc.get_traced_memory()
        assert held - before < 1.2 * cap + size + 2000
        assert peak - before < 1.4 * cap + 2 * size + 2000
        for _ in range(cap // size + 2):
            splitter.feed(chunk)
        assert tracemalloc.get_traced_memory()[0] - before < HEAD_BYTES + 2000
    finally:
        tracemalloc.stop()


@pytest.mark.req("FRM-5")
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_chunk_larger_than_the_cap_is_not_held(end: bytes) -> None:
    # The splitter cuts a chunk into lines, which copies it once if it has a newline.
    chunk = b"x" * 1_000_000 + end
    tracemalloc.start()
    try:
        splitter = LineSplitter(20_000)
        before = tracemalloc.get_traced_memory()[0]
        assert splitter.feed(chunk) == [LineTooLong(20_000, b"x" * HEAD_BYTES)]
        held, peak = tracemalloc.get_traced_memory()
        assert held - before < 5000
        assert peak - before < len(end) * len(chunk) + 50_000
    finally:
        tracemalloc.stop()


class CountingBytes(bytes):
    """Bytes that count how many of them were searched or copied."""

    touched = 0

    def split(self, sep: ReadableBuffer | None = None, maxsplit: SupportsIndex = -1) -> list[bytes]:
        CountingBytes.touched += len(self)
        return super().split(sep, maxsplit)

    def find(
        self, sub: ReadableBuffer | SupportsIndex, start: SupportsIndex | None = 0, end: SupportsIndex | None = None
    ) -> int:
        found = super().find(sub, start, end)
        CountingBytes.touched += len(self) if found < 0 else found + 1
        return found


@pytest.mark.req("FRM-5")
@pytest.mark.parametrize("size", [1, 64, 4096])
def test_each_byte_is_searched_at_most_twice(size: int) -> None:
    data = b"x" * 100_000 + b"\n"
    CountingBytes.touched = 0
    lines, _ = split([CountingBytes(data[at : at + size]) for at in range(0, len(data), size)], max_line=len(data))
    assert lines == [data[:-1]]
    assert len(data) <= CountingBytes.touched <= 2 * len(data)


@pytest.mark.req("FRM-5")
@pytest.mark.parametrize("line", [b"x" * 1000 + b"\n", b"x" * 1000, b"x" * 1000 + b"\r\n", b" " * 1000 + b"\n"])
def test_each_byte_of_a_chunk_on_its_own_is_searched_at_most_twice(line: bytes) -> None:
    splitter = LineSplitter(2000)
    splitter.feed(b"first\n")
    CountingBytes.touched = 0
    splitter.feed(CountingBytes(line))
    assert len(line) <= CountingBytes.touched <= 2 * len(line)


@pytest.mark.req("FRM-1", "FRM-5", "FRM-9")
@pytest.mark.parametrize(
    "line",
    [b"", b"\n", b"x\n", b"x", b"x\r\n", b"\r\n", b" \n", b" x\n", b"x \n", b"x\x1f\n", b"x\x0b\n", b"x\ny\n", b"\n\n"],
)
@pytest.mark.parametrize("before", [b"", b"a\n", b"a\nb", b"a\n ", b"a\n12345", b"a\n12345\n", BOM, BOM[:2]])
def test_a_chunk_that_is_a_whole_line_is_a_line_like_any_other(before: bytes, line: bytes) -> None:
    chunked = split([before, line, b"end\n"], max_line=4)
    assert chunked == split([before + line + b"end\n"], max_line=4)


@pytest.mark.req("FRM-5")
def test_a_whole_line_may_be_as_long_as_the_cap_and_no_longer() -> None:
    splitter = LineSplitter(4)
    assert splitter.feed(b"a\n") == [b"a"]
    assert splitter.feed(b"1234\n") == [b"1234"]
    assert splitter.feed(b"12345\n") == [LineTooLong(4, b"1234")]
    assert splitter.feed(b"5678\n") == [b"5678"]


@pytest.mark.req("FRM-5")
def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        LineSplitter(0)


pieces = st.one_of(
    st.sampled_from([b"\n", b"\r\n", b"\r", b" ", BOM, BOM[:1], BOM[1:], b'{"a":1}', b"x" * 30]),
    st.binary(max_size=12),
)
streams = st.lists(pieces, max_size=20).map(b"".join)


@pytest.mark.req("FRM-1", "FRM-5", "FRM-6", "FRM-9")
@settings(max_examples=300)
@given(chunks=chunked(streams), max_line=st.integers(1, 40))
def test_any_chunking_gives_the_same(chunks: list[bytes], max_line: int) -> None:
    data = b"".join(chunks)
    whole = split([data], max_line)
    assert split(chunks, max_line) == whole
    assert split([b"\n", *chunks], max_line) == split([b"\n" + data], max_line)
    assert split([data[at : at + 1] for at in range(len(data))], max_line) == whole
    # As reads bring it when each message is waited for: each chunk a line.
    assert split(data.splitlines(keepends=True), max_line) == whole
    assert split([b"\n", *(line + b"\n" for line in data.split(b"\n"))], max_line) == split(
        [b"\n" + data + b"\n"], max_line
    )


@pytest.mark.req("FRM-1")
@given(data=streams)
def test_it_agrees_with_the_plain_rule(data: bytes) -> None:
    lines, end = split([data], max_line=len(data) + 1)
    *plain, rest = data.removeprefix(BOM).split(b"\n")
    assert lines == [line for line in (line.removesuffix(b"\r") for line in plain) if line.strip()]
    assert end.rest == (rest.removesuffix(b"\r") if rest.strip() else b"")
    assert end.clean == (not rest.strip())
