"""A session that is watched: rows that change, what is found in it, and single records."""

from __future__ import annotations

import gzip
import shutil
import time
from pathlib import Path

import pytest

from mcplumb.errors import UsageError
from mcplumb.recording.recorder import RecordingWriter
from mcplumb.recording.recording_format import Http, Record
from mcplumb.view.watch.line_index import LineIndex
from mcplumb.view.watch.session_rows import Row
from mcplumb.view.watch.watched_session import WatchedSession
from tests.browser.recordings import Story, header, hostile, long_session, weather
from tests.kit.leaks import leaves_nothing

pytestmark = leaves_nothing


def all_rows(session: WatchedSession) -> list[Row]:
    """The rows as a page has them when it has asked for everything."""
    rows: dict[int, Row] = {}
    start, more = 0, True
    while more:
        page = session.rows(start, 7)
        rows |= {row.index: row for row in page.rows}
        start, more = page.next, page.more
    assert sorted(rows) == list(range(len(rows)))
    return [rows[index] for index in range(len(rows))]


def written(story: Story, folder: Path, name: str = "weather") -> Path:
    return story.write(header(name, now=time.time() - 3600), folder)


def test_requests_and_answers_are_one_row(tmp_path: Path) -> None:
    session = WatchedSession(written(weather(), tmp_path))
    rows = all_rows(session)
    calls = {(row.name, row.args): row for row in rows if row.kind == "call"}
    oslo = calls["forecast", '{"city":"Oslo","days":2}']
    assert (oslo.state, oslo.answer, oslo.end, oslo.sender) == ("answered", oslo.n + 1, 1.2123, "client")
    assert calls["forecast", '{"city":"Oslo","days":"two"}'].is_tool_error
    assert calls["foercast", '{"city":"Oslo"}'].code == -32602
    assert calls["forecast", '{"city":"Tromsø"}'].state == "cancelled"
    assert calls["forecast", '{"city":"Tromsø"}'].end == 24.1
    lost = calls["forecast", '{"city":"Atlantis"}']
    assert (lost.state, lost.end) == ("lost", 91.2)  # when the server ended
    assert calls["forecast", '{"city":"Bergen"}'].notes == 5
    progress = [row for row in rows if row.method == "notifications/progress"]
    assert [row.call for row in progress] == [calls["forecast", '{"city":"Bergen"}'].n] * 5
    assert progress[0].text == "1 of 5: Station 1 of 5"
    kinds = {row.kind for row in rows}
    assert kinds == {"call", "notification", "bad", "stderr", "event"}
    rules = {finding.rule for finding in session.findings()}
    assert {"stray-output", "hanging-call"} <= rules
    session.close()


def test_a_row_that_changes_is_given_again(tmp_path: Path) -> None:
    writer = RecordingWriter(header("live", now=time.time()), tmp_path)
    assert writer.path is not None
    session = WatchedSession(writer.path)
    assert session.is_live
    assert not session.read_more()
    story = Story()
    first, second = (story.request(0.1 * n, "ping") for n in (1, 2))
    writer.write(story.records)
    assert session.read_more()
    page = session.rows(0, 100)
    assert [(row.index, row.state) for row in page.rows] == [(0, "open"), (1, "open")]
    assert page.live
    assert page.now >= 0.2
    story.records.clear()
    story.result(0.3, first)
    writer.write(story.records)
    assert session.read_more()
    page = session.rows(page.next, 100)
    assert [(row.index, row.state, row.end) for row in page.rows] == [(0, "answered", 0.3)]
    assert session.rows(page.next, 100).rows == []
    story.records.clear()
    story.result(0.4, second)
    writer.write(story.records)
    writer.close()
    session.read_more()
    session.read_more()
    assert not session.is_live
    assert session.now == 0.4
    assert [row.state for row in all_rows(session)] == ["answered", "answered"]
    session.close()


def test_a_long_session_is_read_in_parts(tmp_path: Path) -> None:
    writer = RecordingWriter(header("long", now=time.time() - 60), tmp_path)
    for records in long_session(12_000):
        writer.write(records)
    writer.close()
    assert writer.path is not None
    session = WatchedSession(writer.path)
    first = session.rows(0, 10_000)
    assert first.more
    assert len(first.rows) < 6000
    assert len(all_rows(session)) == 6000
    record = session.record(11_001)
    assert record is not None
    assert '"id":5500' in (record.text or "")
    found = session.search("ANSWER 321")
    assert len(found) == 11  # 321, and 3210 to 3219
    session.close()


def test_text_is_found_and_shown_however_its_json_is_written(tmp_path: Path) -> None:
    """Many programs write all but ASCII as escapes."""
    story = Story()
    for number, city in enumerate((r"\u00C5lesund", "Ålesund", r"\ud83c\udf27 rain", r"C:\\u00e5", r"\u0022")):
        params = f'{{"name":"f","arguments":{{"city":"{city}"}}}}'
        story.line(number, "client", f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{params}}}')
    story.line(6, "server", r'{"jsonrpc":"2.0","id":1,"result":{"text":"It says \"hello\"."}}')
    story.records.append(Record(t=7, event="end_of_input", sender="client"))
    session = WatchedSession(written(story, tmp_path))
    rows = all_rows(session)
    assert [row.args for row in rows[:5]] == [
        '{"city":"Ålesund"}', '{"city":"Ålesund"}', '{"city":"🌧 rain"}', r'{"city":"C:\\u00e5"}',
        r'{"city":"\u0022"}',
    ]  # fmt: skip
    assert session.search("åLESUND") == [2, 3]
    assert session.search("🌧 rain") == [4]
    assert session.search('says "hello"') == [7]
    assert session.search("end of input") == session.search("end_of_input") == [8]
    assert session.search("\\u00c5") == [2]  # as it was written, too
    session.close()


def test_a_compressed_recording_reads_the_same(tmp_path: Path) -> None:
    plain = written(weather(), tmp_path)
    packed = tmp_path / f"{plain.name}.gz"
    with plain.open("rb") as source, gzip.open(packed, "wb") as target:
        shutil.copyfileobj(source, target)
    one, two = WatchedSession(plain), WatchedSession(packed)
    assert all_rows(one) == all_rows(two)
    assert one.record(7) == two.record(7)
    assert one.search("Bergen") == two.search("Bergen") != []
    one.close()
    two.close()
    packed.write_bytes(packed.read_bytes()[:-200])  # the disk was full
    torn = WatchedSession(packed)
    assert len(all_rows(torn)) > 5
    torn.search("Bergen")
    assert torn.record(10_000) is None
    torn.close()


def test_damage_is_survived_and_counted(tmp_path: Path) -> None:
    path = written(weather(), tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = b'{"t": "now"}\n'
    lines[5] = b"\xff\xfe\n"
    path.write_bytes(b"".join(lines[:20]) + lines[20][:30])
    session = WatchedSession(path)
    all_rows(session)
    page = session.rows(10**9, 1)
    assert (page.rows, page.info["skipped"]) == ([], 2)
    for number in (5, 6):  # which have a row that says so, and that a page may open
        damaged = session.record(number)
        assert damaged is not None
        assert (damaged.event, damaged.line) == ("lost", None)
        assert "damaged" in (damaged.reason or "")
    assert session.record(0) is None
    assert session.record(21) is None  # torn
    session.close()


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.mcp.jsonl"
    for content in (b"", b"hello\n", b'{"format":"other","version":1}\n'):
        file.write_bytes(content)
        with pytest.raises(UsageError, match="not a recording"):
            WatchedSession(file)


def test_attacks_are_data(tmp_path: Path) -> None:
    session = WatchedSession(written(hostile(), tmp_path))
    rows = all_rows(session)
    assert max(len(row.text) for row in rows) <= 200
    assert max(len(row.args) for row in rows) <= 120
    session.close()


def test_lines_are_found_by_their_number(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    lines = [b"%d " % number + b"x" * (number % 50) for number in range(1, 2001)]
    file.write_bytes(b"\n".join(lines) + b"\n")
    index = LineIndex(file)
    for number in (2000, 1, 257, 256, 255, 1024, 2, 1999):
        assert index.line(number) == lines[number - 1]
    assert index.line(2001) is None
    with file.open("ab") as more:
        more.write(b"later\n")
    assert index.line(2001) == b"later"
    assert [number for number, _ in index.lines()] == list(range(1, 2002))


@pytest.mark.parametrize("compress", [False, True])
def test_a_line_without_end_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, compress: bool) -> None:
    for module in ("mcplumb.recording.recording_format", "mcplumb.view.watch.line_index"):
        monkeypatch.setattr(f"{module}.MAX_READ_LINE", 1000)
    first, second, *_ = weather().write(header("weather", now=0.0), tmp_path).read_bytes().splitlines(keepends=True)
    data = first + b"x" * 10_000 + b"\n" + second + b"y" * 5000
    path = tmp_path / f"hostile.mcp.jsonl{'.gz' if compress else ''}"
    path.write_bytes(gzip.compress(data) if compress else data)
    session = WatchedSession(path)
    assert [row.n for row in session.rows(0, 100).rows] == [2, 3]
    damaged = session.record(2)
    assert damaged is not None
    assert (damaged.event, damaged.text) == ("lost", None)
    assert session.record(1) is None
    assert session.record(3) is not None
    assert session.record(4) is None
    assert session.search("weather 1.3.0") == [3]
    session.close()


def test_records_of_http_keep_their_exchange(tmp_path: Path) -> None:
    story = Story()
    story.request(0.1, "ping")
    text = story.records.pop().text
    head = Http(exchange=3, method="POST", path="/mcp", headers=[("content-type", "application/json")])
    story.records.append(Record(t=0.1, sender="client", text=text, http=head))
    session = WatchedSession(written(story, tmp_path))
    assert all_rows(session)[0].exchange == 3
    session.close()


def test_a_session_without_end_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcplumb.view.watch.watched_session.MAX_WATCHED_RECORDS", 10)
    story = Story()
    for number in range(30):
        story.stderr(number / 10, f"line {number}")
    session = WatchedSession(written(story, tmp_path))
    assert [row.text for row in all_rows(session)] == [f"line {number}" for number in range(10)]
    assert session.rows(0, 100).info["cut"] == 10
    assert not session.read_more()
    session.close()
    story.records = story.records[:10]
    session = WatchedSession(written(story, tmp_path, "short"))
    assert len(all_rows(session)) == 10
    assert session.rows(0, 100).info["cut"] is None
    session.close()
