from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.errors import McplumbError, UsageError
from mcplumb.recording.recording_format import (
    Header,
    Http,
    Record,
    RecordingReader,
    encode,
    line_record,
    read_recording,
)

HEADER = Header(
    format="mcplumb-recording",
    version=1,
    id="20261118T120000Z-4f2a9c",
    started="2026-11-18T12:00:00.123456Z",
    by="tap",
    transport="stdio",
)
FIRST = encode(HEADER)
HI = b'{"t":0.5,"from":"client","text":"hi"}\n'


def write(path: Path, *lines: bytes) -> Path:
    path.write_bytes(b"".join([FIRST, *lines]))
    return path


def test_a_record_is_short_json() -> None:
    assert (
        encode(Record(t=0.001234, sender="client", text='{"a"}'))
        == b'{"t":0.001234,"from":"client","text":"{\\"a\\"}"}\n'
    )
    assert (
        encode(Record(t=1.0, event="lost", records=3, byte_count=7))
        == b'{"t":1.0,"event":"lost","records":3,"bytes":7}\n'
    )
    said = json.loads(FIRST)
    assert said["format"] == "mcplumb-recording"
    assert said["version"] == 1


@pytest.mark.req("TAP-3")
@given(line=st.binary(max_size=200), sender=st.sampled_from(["client", "server"]))
def test_any_line_comes_back(line: bytes, sender: Any) -> None:
    record = line_record(1.5, sender, line)
    from msgspec.json import decode

    assert decode(encode(record), type=Record).line == line
    assert record.sent_size == len(line)


@pytest.mark.req("TAP-3")
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_recording_is_read(tmp_path: Path, suffix: str) -> None:
    http = b'{"t":1,"from":"server","http":{"exchange":3,"status":200,"headers":[["a","b"]]}}\n'
    path = tmp_path / f"a.mcp.jsonl{suffix}"
    data = FIRST + HI + b'{"t":1,"what":"unknown","event":"party","x":[]}\n' + http
    path.write_bytes(gzip.compress(data) if suffix else data)
    header, found = read_recording(path)
    assert header == HEADER
    assert found == [
        (2, Record(t=0.5, sender="client", text="hi")),
        (3, Record(t=1.0, event="party")),
        (4, Record(t=1.0, sender="server", http=Http(exchange=3, status=200, headers=[("a", "b")]))),
    ]
    assert found[2][1].http is not None
    assert found[2][1].http.header("a") == "b"
    assert found[2][1].http.header("c") is None


@pytest.mark.req("TAP-3")
def test_a_torn_last_line_waits_for_its_rest(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mcp.jsonl", HI, HI[:10])
    with RecordingReader(path) as reader:
        assert [number for number, _ in reader.records()] == [2]
        assert reader.last() is None
        assert list(reader.records()) == []
        with path.open("ab") as file:
            file.write(HI[10:] + HI[:-1])
        assert [number for number, _ in reader.records()] == [3]
        assert reader.last() == (4, Record(t=0.5, sender="client", text="hi"))
        assert reader.skipped == 0
    assert len(read_recording(path)[1]) == 3


@pytest.mark.req("TAP-3")
def test_damaged_lines_are_read_as_lost_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mcp.jsonl", HI[:12] + b"\n", b"\xff\xfe\n", HI, b"[]\n")
    with RecordingReader(path) as reader:
        found = list(reader.records())
        assert [(number, record.event, record.t) for number, record in found] == [
            (2, "lost", 0.0), (3, "lost", 0.0), (4, None, 0.5), (5, "lost", 0.5),
        ]  # fmt: skip
        assert found[0][1].records == 1
    # The recorder may say so itself: after a full disk, or after the death of the recorder before it.
    lost = Record(t=1.0, event="lost", records=2, reason="No space left on device.")
    for reported in (lost, Record(t=1.0, event="restart")):
        path = write(tmp_path / "b.mcp.jsonl", HI, HI[:12] + b"\n", encode(reported), HI)
        assert [record.event for _, record in read_recording(path)[1]] == [None, reported.event, None]
        assert reader.skipped == 3


@pytest.mark.req("TAP-3")
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_line_without_end_is_lost_and_takes_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    monkeypatch.setattr("mcplumb.recording.recording_format.MAX_READ_LINE", 1000)
    path = write(tmp_path / "a.mcp.jsonl", HI)
    with RecordingReader(path) as reader:
        found = [number for number, _ in reader.records()]
        for piece in [b"x" * 5000] * pieces + [b"x\n", HI]:
            with path.open("ab") as file:
                file.write(piece)
            found += [number for number, record in reader.records() if record.event is None]
        assert found == [2, 4]
        assert reader.skipped == 1


@pytest.mark.req("TAP-3")
def test_lists_in_lists_without_end_are_lost(tmp_path: Path) -> None:
    deep = HI.replace(b"{", b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b",", 1)
    path = write(tmp_path / "a.mcp.jsonl", deep, HI)
    assert [record.event for _, record in read_recording(path)[1]] == ["lost", None]


@pytest.mark.req("TAP-3")
def test_a_compressed_recording_that_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    path = tmp_path / "a.mcp.jsonl.gz"
    path.write_bytes(gzip.compress(FIRST + HI * 1000)[:-20])
    *found, (_, last) = read_recording(path)[1]
    assert 1 <= len(found) <= 1000
    assert (last.event, last.reason) == ("lost", "The file is cut off or damaged.")
    # A wrong checksum, and something else after the end.
    packed = gzip.compress(FIRST + HI * 1000)
    for data in (packed[:-8] + bytes(8), packed + b"more"):
        path.write_bytes(data)
        *found, (_, last) = read_recording(path)[1]
        assert len(found) == 1000
        assert (last.event, last.reason) == ("lost", "The file is cut off or damaged.")
    path.write_bytes(gzip.compress(FIRST)[:20])
    with pytest.raises(UsageError, match="is damaged: its beginning"):
        RecordingReader(path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not a recording: it is empty"),
        (b"hello\n", "its first line is not the header"),
        (b"hello", "its first line is not the header"),
        (b"x" * 3_000_000, "its first line is not the header"),
        (FIRST.replace(b"mcplumb-recording", b"other"), "its format is 'other'"),
        (FIRST.replace(b'"version":1', b'"version":2'), "Install a newer mcplumb"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "a.mcp.jsonl"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=said):
        RecordingReader(path)


def test_a_file_that_is_not_there_or_no_archive(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        RecordingReader(tmp_path / "none")
    path = tmp_path / "a.mcp.jsonl.gz"
    path.write_bytes(b"no archive\n")
    with pytest.raises(McplumbError, match="cannot be read"):
        RecordingReader(path)


def test_base64_that_is_broken_is_an_empty_line() -> None:
    assert Record(t=0.0, base64="a").line == b""
    assert Record(t=0.0).line is None
    assert Record(t=0.0, text="abc", size=7).sent_size == 7
    assert Record(t=0.0, text="abc", size=7, cut=9).sent_size == 9
