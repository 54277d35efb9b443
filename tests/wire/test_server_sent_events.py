"""Server-sent events: every rule by example, and any chunking by property."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcplumb.errors import EncodeError, UsageError
from mcplumb.wire.lines import HEAD_BYTES
from mcplumb.wire.server_sent_events import Event, EventDecoder, EventTooLong, encode_comment, encode_event
from tests.wire.strategies import chunked

BOM = b"\xef\xbb\xbf"
#: The events, the last event id, the waiting time, and whether the end was between events.
Output = tuple[list[Event | EventTooLong], str, int | None, bool]


def read(chunks: Iterable[bytes], max_event: int = 1000) -> Output:
    decoder = EventDecoder(max_event)
    events = [event for chunk in chunks for event in decoder.feed(chunk)]
    return events, decoder.last_event_id, decoder.retry, decoder.end()


def each_way(data: bytes, max_event: int = 1000) -> Output:
    """The output for ``data``, which has to be the same in one chunk, byte by byte, and cut anywhere in two."""
    whole = read([data], max_event)
    assert read([data[at : at + 1] for at in range(len(data))], max_event) == whole
    for at in range(len(data) + 1):
        assert read([data[:at], b"", data[at:]], max_event) == whole
    return whole


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"", []),
        (b"data: a\n\n", [Event(b"a")]),
        (b"data:a\n\n", [Event(b"a")]),
        (b"data:  a \n\n", [Event(b" a ")]),
        (b"data: a\ndata: b\n\n", [Event(b"a\nb")]),
        (b"data\n\n", [Event(b"")]),
        (b"data:\n\n", [Event(b"")]),
        (b"data\ndata\n\n", [Event(b"\n")]),
        (b"data:\ndata: a\ndata\n\n", [Event(b"\na\n")]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [Event(b"a"), Event(b"b"), Event(b"c")]),
        (b"data: a\r\ndata: b\rdata: c\n\r\n", [Event(b"a\nb\nc")]),
        (b"data: a\r\n\ndata: b\n\r", [Event(b"a"), Event(b"b")]),
        (b"event: hi\ndata: a\n\ndata: b\n\n", [Event(b"a", "hi"), Event(b"b")]),
        (b"event: one\nevent: two\ndata: a\n\n", [Event(b"a", "two")]),
        (b"event:\ndata: a\n\n", [Event(b"a")]),
        (b"event: hi\n\ndata: a\n\n", [Event(b"a")]),
        (b"id: 1\ndata: a\n\ndata: b\n\n", [Event(b"a", id="1"), Event(b"b")]),
        (b"id\ndata: a\n\n", [Event(b"a", id="")]),
        (b"id: a\0b\ndata: a\n\n", [Event(b"a")]),
        (b"retry: 50\ndata: a\n\n", [Event(b"a", retry=50)]),
        (b"retry: 5x\ndata: a\n\nretry:\ndata: b\n\nretry: -1\ndata: c\n\n", [Event(b"a"), Event(b"b"), Event(b"c")]),
        (b"retry: " + b"9" * 5000 + b"\ndata: a\n\n", [Event(b"a")]),
        (": comment\n:\n:data: x\ndata: a\n: é\n\n".encode(), [Event(b"a")]),
        (b"Data: x\n data: y\ndatax: z\nfoo\nfoo: bar\ndata: a\n\n", [Event(b"a")]),
        (BOM + b"data: a\n\n", [Event(b"a")]),
        (BOM + b"\ndata: a\n\n", [Event(b"a")]),
        (BOM + b": x\ndata: a\n\n", [Event(b"a")]),
        (BOM + BOM + b"data: a\n\ndata: b\n\n", [Event(b"b")]),
        (b"\n" + BOM + b"data: a\n\ndata: b\n\n", [Event(b"b")]),
        (b"\n\n\n\ndata: a\n\n\n\n", [Event(b"a")]),
        (b"data: \xff\n\n", [Event(b"\xff")]),
        (b"event: \xff\nid: \xff\ndata: a\n\n", [Event(b"a", "\ufffd", "\ufffd")]),
        (b"data: a", []),
        (b"data: a\n", []),
    ],
)
def test_events_are_read_by_the_rules_of_browsers(data: bytes, events: list[Event]) -> None:
    assert each_way(data, max_event=10_000)[0] == events


@pytest.mark.parametrize(
    ("data", "last"),
    [
        (b"data: a\n\n", ""),
        (b"id: 1\ndata: a\n\n", "1"),
        (b"id: 1\ndata: a\n\ndata: b\n\n", "1"),
        (b"id: 1\n\n", "1"),
        (b"id: 1\n\nid\n\n", ""),
        (b"id: 1\n\nid: 2\n", "1"),
        (b"id: 1\n\nid: 2\0\n\n", "1"),
    ],
)
def test_the_last_event_id_is_that_of_the_last_event_that_ended(data: bytes, last: str) -> None:
    assert each_way(data)[1] == last


@pytest.mark.parametrize(
    ("data", "retry"), [(b"", None), (b"retry: 1\n", 1), (b"retry: 1\n\nretry: 20\n\n", 20), (b"retry: 1.5\n\n", None)]
)
def test_the_waiting_time_is_the_last_one_asked_for(data: bytes, retry: int | None) -> None:
    assert each_way(data)[2] == retry


@pytest.mark.req("FRM-6")
@pytest.mark.parametrize(
    ("data", "clean"),
    [
        (b"", True),
        (b"data: a\n\n", True),
        (b"data: a\r\r", True),
        (b": comment", True),
        (b": comment\n", True),
        (BOM, True),
        (BOM + b": comment", True),
        (BOM + b": comment\n", True),
        (BOM + b": " + b"x" * 100, True),
        (BOM + b"data: a", False),
        (BOM[:2], False),
        (b"\n" + BOM + b": comment\n", False),
        (b"data: a\n\n: comment", True),
        (b"data: a", False),
        (b"data: a\n", False),
        (b"id: a\n", False),
        (b"data: a\n: comment", False),
        (b"data: " + b"x" * 100 + b"\n", False),
        (b"data: " + b"x" * 100 + b"\n\n", True),
        (b"data: " + b"x" * 100, False),
    ],
)
def test_the_end_is_clean_between_events(data: bytes, clean: bool) -> None:
    assert each_way(data, max_event=50)[3] is clean


@pytest.mark.req("FRM-4", "FRM-5")
@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data:12345\n\n", [Event(b"12345")]),
        (b"data:123456\n\n", [EventTooLong(10, b"12345")]),
        (b"data:123456\n\ndata:1\n\n", [EventTooLong(10, b"12345"), Event(b"1")]),
        (b"data:123456", [EventTooLong(10, b"12345")]),
        (b"data:1234\ndata:1\n\n", [Event(b"1234\n1")]),
        (b"data:1234\ndata:12\n\n", [EventTooLong(10, b"1234\n1")]),
        (b"data:1234\ndata:1\ndata:4\ndata:5\n\ndata\n\n", [EventTooLong(10, b"1234\n1"), Event(b"")]),
        (b"data:\n" * 9 + b"\n", [EventTooLong(10, b"\n\n\n\n\n\n")]),
        (b"x" * 50 + b"\n\ndata:1\n\n", [EventTooLong(10, b""), Event(b"1")]),
        (b":" + b"x" * 50 + b"\ndata:1\n\n", [Event(b"1")]),
        (b":x\n" * 50 + b"data:1\n\n", [Event(b"1")]),
        (b"x: y\n" * 50 + b"data:1\n\n", [Event(b"1")]),
        (b"data: 123456\ndata: 123456\n\n", [EventTooLong(10, b"1234")]),
        (b"data: 123456\n" + b"x" * 50 + b"\n\ndata:1\n\n", [EventTooLong(10, b"1234"), Event(b"1")]),
        (b"data:" + b"1234567890" * 5, [EventTooLong(10, b"12345")]),
        (b"data:12\ndata:" + b"1234567890" * 5, [EventTooLong(10, b"12\n123")]),
        (BOM + b"data:12345\n\n", [Event(b"12345")]),
        (BOM + b"data:123456\n\n", [EventTooLong(10, b"12345")]),
        (BOM + b":" + b"x" * 50 + b"\ndata:1\n\n", [Event(b"1")]),
        (BOM + b":" + b"x" * 50, []),
        (BOM + b"dat\n\ndata:1\n\n", [Event(b"1")]),
        (b"data:123456\n\ndata:123456\n\n", [EventTooLong(10, b"12345"), EventTooLong(10, b"12345")]),
    ],
)
def test_an_event_over_the_cap_is_reported_once_and_the_stream_goes_on(
    data: bytes, events: list[Event | EventTooLong]
) -> None:
    assert each_way(data, max_event=10)[0] == events


def test_the_id_of_an_event_over_the_cap_counts() -> None:
    assert each_way(b"id: 7\ndata: 1234567\n\n", max_event=10)[1:] == ("7", None, True)
    assert each_way(b"data: 1234567\nid: 7\nretry: 3\n\n", max_event=10)[1:] == ("7", 3, True)


@pytest.mark.req("FRM-5")
def test_the_head_of_a_long_event_is_short() -> None:
    value = b"0123456789" * 1000
    for end in (b"\n\n", b"\n", b""):
        data = BOM + b"data: " + value + end
        for size in (1, 7, 1024, 1030, 5000, 20000):
            chunks = [data[at : at + size] for at in range(0, len(data), size)]
            assert read(chunks, max_event=5000)[0] == [EventTooLong(5000, value[:HEAD_BYTES])]


@pytest.mark.req("FRM-5")
@pytest.mark.parametrize(
    "unit", [b"data: xy\n", b"data: " + b"x" * 999 + b"\n", b"x", b"data\n", b": comment\n", b"\r", b"id: 1\n"]
)
def test_memory_is_bounded_by_the_cap(unit: bytes) -> None:
    cap = 20_000
    tracemalloc.start()
    try:
        decoder = EventDecoder(cap)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(3 * cap // len(unit)):
            decoder.feed(unit)
        assert tracemalloc.get_traced_memory()[1] - before < 2.5 * cap + 5000
    finally:
        tracemalloc.stop()


@pytest.mark.req("FRM-5")
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_chunk_larger_than_the_cap_is_not_held(end: bytes) -> None:
    # The decoder cuts a chunk into lines, which copies it once if it has a newline.
    chunk = b"data:" + b"x" * 1_000_000 + end
    tracemalloc.start()
    try:
        decoder = EventDecoder(20_000)
        before = tracemalloc.get_traced_memory()[0]
        assert decoder.feed(chunk) == [EventTooLong(20_000, b"x" * HEAD_BYTES)]
        held, peak = tracemalloc.get_traced_memory()
        assert held - before < 5000
        assert peak - before < len(end) * len(chunk) + 50_000
    finally:
        tracemalloc.stop()


def test_a_long_id_is_ignored() -> None:
    longest, longer = "é" * 512, "é" * 512 + "x"
    data = f"id: {longest}\ndata: a\n\nid: {longer}\ndata: b\n\n".encode()
    assert read([data], max_event=5000)[:2] == ([Event(b"a", id=longest), Event(b"b")], longest)
    assert read([data[at : at + 7] for at in range(0, len(data), 7)], max_event=5000) == read([data], max_event=5000)


def test_a_long_name_is_ignored() -> None:
    longest, longer = "é" * 512, "é" * 512 + "x"
    data = f"event: {longest}\nevent: {longer}\ndata: a\n\nevent: {longer}\ndata: b\n\n".encode()
    assert read([data], max_event=5000)[0] == [Event(b"a", longest), Event(b"b")]


def test_a_field_is_as_long_as_it_would_be_sent_back() -> None:
    # Each of these bytes is read as a character of three.
    for count, id_ in ((341, "\ufffd" * 341), (342, None)):
        (event,), *_ = read([b"id: " + b"\xff" * count + b"\ndata: a\n\n"], max_event=5000)
        assert event == Event(b"a", id=id_)


def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        EventDecoder(0)


@pytest.mark.parametrize(
    ("encoded", "expected"),
    [
        (encode_event(b"a"), b"data: a\n\n"),
        (encode_event(b""), b"data: \n\n"),
        (encode_event(b"a\nb\r\nc\rd"), b"data: a\ndata: b\ndata: c\ndata: d\n\n"),
        (
            encode_event(b"a", event="message", event_id="é-1", retry=0),
            "event: message\nid: é-1\nretry: 0\ndata: a\n\n".encode(),
        ),
        (encode_comment(), b": \n\n"),
        (encode_comment("still\nhere"), b": still\n: here\n\n"),
    ],
)
def test_events_are_written_in_one_way(encoded: bytes, expected: bytes) -> None:
    assert encoded == expected


@pytest.mark.parametrize("text", ["a\nb", "a\rb", "\n"])
def test_a_line_break_in_a_field_is_refused(text: str) -> None:
    with pytest.raises(EncodeError, match="The event of an event has a character"):
        encode_event(b"", event=text)
    with pytest.raises(EncodeError, match="The id of an event has a character"):
        encode_event(b"", event_id=text)


def test_other_fields_that_no_reader_would_accept_are_refused() -> None:
    with pytest.raises(EncodeError, match="would end the field"):
        encode_event(b"", event_id="a\0b")
    for retry in (-1, 10**18):
        with pytest.raises(EncodeError, match="milliseconds"):
            encode_event(b"", retry=retry)
    longest = "é" * 512
    assert encode_event(b"", event=longest, event_id=longest).count("é".encode()) == 1024
    with pytest.raises(EncodeError, match="The event of an event has 1025 bytes: use one of at most 1024"):
        encode_event(b"", event=longest + "x")
    with pytest.raises(EncodeError, match="The id of an event has 1025 bytes: use one of at most 1024"):
        encode_event(b"", event_id=longest + "x")
    with pytest.raises(EncodeError, match="lone surrogate"):
        encode_event(b"", event="\ud800")
    with pytest.raises(EncodeError, match="lone surrogate"):
        encode_comment("\ud800")


names = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=10)


@settings(max_examples=200)
@given(
    data=st.binary(max_size=60),
    event=st.none() | names,
    event_id=st.none() | names,
    retry=st.none() | st.integers(0, 10**18 - 1),
    comment=names,
)
def test_decoding_is_the_inverse_of_encoding(
    data: bytes, event: str | None, event_id: str | None, retry: int | None, comment: str
) -> None:
    stream = encode_comment(comment) + encode_event(data, event=event, event_id=event_id, retry=retry)
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    expected = Event(lines, event or "message", event_id, retry)
    assert read([stream]) == ([expected], event_id or "", retry, True)


pieces = st.one_of(
    st.sampled_from(
        [b"\n", b"\r\n", b"\r", b"\n\n", b"data:", b"data: a", b"data", b"id: 1", b"id", b"event: e", b"retry: 5"]
    ),
    st.sampled_from([b":", b": c", b"x: y", BOM, BOM[:1], BOM[1:], b"\0", b" ", b"z" * 25]),
    st.binary(max_size=8),
)


@pytest.mark.req("FRM-5")
@settings(max_examples=400)
@given(chunks=chunked(st.lists(pieces, max_size=20).map(b"".join)), max_event=st.integers(1, 60))
def test_any_chunking_gives_the_same(chunks: list[bytes], max_event: int) -> None:
    data = b"".join(chunks)
    whole = read([data], max_event)
    assert read(chunks, max_event) == whole
    assert read([data[at : at + 1] for at in range(len(data))], max_event) == whole
