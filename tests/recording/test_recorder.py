from __future__ import annotations

import os
import pwd
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcplumb.recording import recorder
from mcplumb.recording.recorder import Recorder, RecordingWriter, StreamRecords, new_header
from mcplumb.recording.recording_format import Http, Record, Target, encode, line_record, read_recording
from tests.kit.loop import PATIENCE

HEADER = new_header("tap", "stdio", name="x")
SECRET = Record(t=1.0, sender="client", text='{"api_key":"abc"}')


def said(path: Path | None) -> list[Record]:
    assert path is not None
    return [record for _, record in read_recording(path)[1]]


def test_the_header_says_when_and_by_whom() -> None:
    header = new_header("client", "http", target=Target(url="http://x"), now=1_800_000_000.25)
    assert header.started == "2027-01-15T08:00:00.250000Z"
    assert header.id.startswith("20270115T080000Z-")
    assert header.mcplumb


@pytest.mark.req("TAP-3")
def test_a_recording_is_for_its_owner_and_masked(tmp_path: Path) -> None:
    path = tmp_path / "a.mcp.jsonl"
    writer = RecordingWriter(HEADER, path)
    headers = [("authorization", "Bearer abc"), ("x", "y")]
    writer.write(
        [
            SECRET,
            Record(t=2.0, stderr="API_KEY=abcdef"),
            Record(t=3.0, sender="client", http=Http(exchange=1, method="GET", path="/?token=abcd", headers=headers)),
        ]
    )
    writer.close()
    assert path.stat().st_mode & 0o777 == 0o600
    text, line, http = said(path)
    assert text == Record(t=1.0, sender="client", text='{"api_key":"***"}', masked=True, size=17)
    assert line == Record(t=2.0, stderr="API_KEY=***", masked=True)
    assert http.http is not None
    assert http.http.path == "/?token=***"
    assert http.http.headers is not None
    assert http.http.headers[0][1].startswith("***")
    assert http.http.headers[1] == ("x", "y")


@pytest.mark.req("TAP-3")
def test_secrets_in_lines_that_are_not_utf8_are_masked(tmp_path: Path) -> None:
    writer = RecordingWriter(HEADER, tmp_path / "a")
    writer.write([line_record(1.0, "client", b'{"password":"hunter2","x":"\xff\xc3"}')])
    writer.close()
    (record,) = said(writer.path)
    assert record.line == b'{"password":"***","x":"\xff\xc3"}'
    assert (record.text, record.masked, record.sent_size) == (None, True, 31)


@pytest.mark.req("TAP-3")
def test_the_session_of_http_sse_is_masked_in_both_places(tmp_path: Path) -> None:
    writer = RecordingWriter(HEADER, tmp_path / "a")
    path = "/messages?sessionId=0a1b2c"
    writer.write(
        [
            Record(t=1.0, sender="server", text=path, http=Http(exchange=1, event="endpoint")),
            Record(t=1.0, sender="client", text="{}", http=Http(exchange=2, method="POST", path=path)),
        ]
    )
    writer.close()
    endpoint, post = said(writer.path)
    assert post.http is not None
    assert endpoint.text == post.http.path
    assert "0a1b2c" not in (endpoint.text or "")


MANY_KINDS = [
    SECRET,
    Record(t=2.0, sender="server", text='{"jsonrpc":"2.0","id":1,"result":{}}'),
    Record(t=3.0, sender="server", text="<token>"),
    line_record(4.0, "server", b'{"password":"hunter2","x":"\xff"}'),
    Record(t=5.0, stderr="-----BEGIN PRIVATE KEY-----"),
    Record(t=6.0, stderr="MIIB"),
    Record(t=7.0, event="signal", signal="SIGINT"),
    Record(t=8.0, sender="server", text="/m?sessionId=0a1b2c", http=Http(exchange=1, event="endpoint")),
    Record(t=9.0, sender="client", text="{}", http=Http(exchange=2, method="GET", path="/?token=abcd", headers=[])),
]


@pytest.mark.req("TAP-3")
@given(st.lists(st.sampled_from(MANY_KINDS), max_size=12))
def test_records_are_masked_together_as_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, given: list[Record]
) -> None:
    folder = tmp_path_factory.mktemp("masked")
    together, alone = RecordingWriter(HEADER, folder / "a"), RecordingWriter(HEADER, folder / "b")
    together.write(given)
    for record in given:
        alone.write([record])
    together.close()
    alone.close()
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes()


def test_masking_can_be_switched_off(tmp_path: Path) -> None:
    writer = RecordingWriter(HEADER, tmp_path / "a", masks=False)
    writer.write([SECRET])
    writer.close()
    assert said(writer.path) == [SECRET]


def test_the_default_folder_is_for_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    writer = RecordingWriter(HEADER)
    writer.close()
    folder = tmp_path / "mcplumb" / "recordings"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == [f"{HEADER.id}-x.mcp.jsonl"]


@pytest.mark.req("TAP-2")
def test_a_full_disk_costs_records_which_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = RecordingWriter(HEADER, tmp_path / "a")
    writer.write([SECRET])
    real = os.write
    room = 30

    def full(fd: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(28, "No space left on device")
        done = real(fd, bytes(data)[:room])
        room -= done
        return done

    monkeypatch.setattr(os, "write", full)
    writer.write([SECRET, SECRET])
    writer.write([SECRET])
    assert writer.lost == 3
    monkeypatch.undo()
    writer.write([Record(t=5.0, event="connected")])
    writer.close()
    first, lost, last = said(writer.path)
    assert first.masked
    assert lost == Record(t=5.0, event="lost", records=3, reason="No space left on device.")
    assert last.event == "connected"


@pytest.mark.req("TAP-2")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_dev_full_takes_nothing_and_harms_nobody() -> None:
    writer = RecordingWriter(HEADER, "/dev/full")
    writer.write([SECRET, SECRET])
    assert writer.lost == 3  # the header, too
    writer.close()


@pytest.mark.req("TAP-2")
def test_a_file_that_cannot_be_opened_harms_nobody(tmp_path: Path) -> None:
    writer = RecordingWriter(HEADER, tmp_path / "no" / "such" / "folder" / "x")
    writer.write([SECRET])
    assert writer.lost == 1
    assert "No such file" in writer.failure
    writer.close()


@pytest.mark.req("TAP-2")
def test_a_user_without_a_home_folder_gets_no_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs with any user id."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for place, lost in ((None, 1), (tmp_path / "a", 0)):
        writer = RecordingWriter(HEADER, place)
        writer.write([SECRET])
        assert writer.lost == lost
        writer.close()
        assert ("no home folder" in writer.failure) == (place is None)


@pytest.mark.req("TAP-2")
def test_a_recording_has_a_largest_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_RECORDING", 500)
    writer = RecordingWriter(HEADER, tmp_path / "a")
    for n in range(20):
        writer.write([Record(t=float(n), sender="client", text="x" * 50)])
    writer.close()
    *_, last = said(writer.path)
    assert last.event == "lost"
    assert last.reason is not None
    assert "limit" in last.reason
    assert (tmp_path / "a").stat().st_size < 1000


@pytest.mark.req("TAP-3")
def test_an_empty_file_becomes_its_owner_s(tmp_path: Path) -> None:
    path = tmp_path / "a.mcp.jsonl"
    path.touch()
    path.chmod(0o644)
    RecordingWriter(HEADER, path).close()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.req("TAP-2")
@pytest.mark.parametrize("written", ["nothing", "a part of the header", "the header", "a part of a record", "another"])
def test_a_writer_goes_on_wherever_another_died(tmp_path: Path, written: str) -> None:
    path = tmp_path / "a.mcp.jsonl"
    header = new_header("tap", "stdio", name="it")
    whole = encode(header)
    path.write_bytes(
        {
            "nothing": b"",
            "a part of the header": whole[:20],
            "the header": whole,
            "a part of a record": whole + b'{"t":',
            # The writer before died before it had kept the recording that was there.
            "another": encode(HEADER) + encode(SECRET),
        }[written]
    )
    writer = RecordingWriter(header, path, goes_on=True)
    writer.write([Record(t=1.0, event="restart")])
    writer.write([Record(t=2.0, sender="client", text="hi")])
    writer.close()
    found, records = read_recording(path)
    assert found == header
    assert [record.t for _, record in records] == [1.0, 2.0]
    assert (tmp_path / "a.1.mcp.jsonl").exists() == (written == "another")


def test_an_earlier_recording_is_kept(tmp_path: Path) -> None:
    for _ in range(3):
        writer = RecordingWriter(HEADER, tmp_path / "a.mcp.jsonl")
        writer.write([SECRET])
        writer.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.1.mcp.jsonl", "a.2.mcp.jsonl", "a.mcp.jsonl"]


# Streams


@pytest.mark.req("TAP-1")
@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 200), max_size=6))
def test_all_bytes_of_a_stream_are_in_its_records_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    stream = StreamRecords("server")
    ends = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    found = [record for a, b in pairwise(ends) for record in stream.feed(1.0, data[a:b])]
    found += stream.end(2.0)
    again = b"".join(
        (record.line or b"") + (b"\r" if record.crlf else b"") + (b"" if record.torn else b"\n") for record in found
    )
    assert again == data


def test_a_long_line_is_cut_within_no_character() -> None:
    stream = StreamRecords("client", max_line=10)
    assert stream.feed(1.0, b"x" * 25) == []
    (record,) = stream.feed(2.0, b"y\n")
    assert record == Record(t=2.0, sender="client", text="x" * 10, cut=26)
    (record,) = stream.feed(2.0, "12345678é, and more\n".encode()[:9] + "é, and more\n".encode()[1:])
    assert record.cut is not None
    (record,) = stream.feed(2.0, "123456789é…\n".encode())
    assert record == Record(t=2.0, sender="client", text="123456789", cut=14)


def test_a_gap_loses_only_the_lines_that_it_tears() -> None:
    stream = StreamRecords("client")
    assert stream.feed(1.0, b"one\ntw") == [Record(t=1.0, sender="client", text="one")]
    assert stream.gap(2.0) == [Record(t=2.0, sender="client", text="tw", torn=True)]
    assert stream.gap(2.0) == []
    assert stream.feed(3.0, b"ree") == []
    assert stream.feed(3.0, b"\nfour\n") == [Record(t=3.0, sender="client", text="four")]
    assert stream.end(4.0) == []


def test_stderr_is_text_whatever_it_is() -> None:
    stream = StreamRecords(None)
    assert stream.feed(1.0, b"a\xff\r\nb") == [Record(t=1.0, stderr="a\\xff")]
    assert stream.end(1.0) == [Record(t=1.0, stderr="b", torn=True)]


# Recorders of this process


def test_a_client_and_a_server_record_who_speaks(tmp_path: Path) -> None:
    client = Recorder("client", "stdio", place=tmp_path / "c")
    server = Recorder("server", "stdio", place=tmp_path / "s")
    for each in (client, server):
        each.trace("out", b"a")
        each.trace("in", b"\xff")
        each.stderr("words")
        each.event("exit", code=1)
        each.close()
        each.trace("in", b"too late")
    assert [record.sender for record in said(client.path)] == ["client", "server", None, None]
    assert [record.sender for record in said(server.path)] == ["server", "client", None, None]
    assert said(client.path)[3].code == 1


def test_a_file_that_cannot_be_made_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Recorder("client", "stdio", place=tmp_path / "gone" / "a.mcp.jsonl")
    made.event("start")
    made.event("end")
    made.close()
    (said,) = [record.getMessage() for record in caplog.records if record.name == "mcplumb.recording"]
    assert said == f"Nothing is recorded. No such file or directory: {tmp_path}/gone/a.mcp.jsonl."


def test_a_recorder_that_records_nothing_makes_no_file(tmp_path: Path) -> None:
    made = Recorder("client", "stdio", place=tmp_path / "c")
    made.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("TAP-2")
def test_a_recorder_that_is_stuck_blocks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    real = RecordingWriter.write

    def stuck(self: RecordingWriter, records: tuple[Record, ...]) -> None:
        go.wait()
        real(self, records)

    monkeypatch.setattr(RecordingWriter, "write", stuck)
    made = Recorder("client", "stdio", place=tmp_path / "c", max_unrecorded=5000)
    made.trace("out", b"first")
    while made.path is None:
        time.sleep(0.001)
    for n in range(100):
        made.trace("out", b"%d" % n)
    go.set()
    made.close(PATIENCE)
    found = said(made.path)
    lost = [record for record in found if record.event == "lost"]
    kept = [record for record in found if record.text is not None]
    assert len(lost) == 1
    assert len(kept) + (lost[0].records or 0) == 101
