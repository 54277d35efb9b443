"""The section Watch: its API, and the events that say that something is new."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mcplumb.errors import UsageError
from mcplumb.recording.recorder import RecordingWriter
from mcplumb.view.api_routes import Section
from mcplumb.view.event_hub import EventHub
from mcplumb.view.watch.watch_section import WatchSection
from tests.browser.recordings import Story, header, weather
from tests.kit.leaks import leaves_nothing
from tests.view.test_event_hub import listening
from tests.view.visitor import Visitor, visiting

pytestmark = leaves_nothing


@asynccontextmanager
async def watching(folder: Path, file: Path | None = None) -> AsyncIterator[Visitor]:
    def sections(hub: EventHub) -> Sequence[Section]:
        return [WatchSection(hub, file=file, folder=folder)]

    async with visiting(sections) as visitor:
        yield visitor


async def test_sessions_are_listed_the_newest_first(tmp_path: Path) -> None:
    for age, name in ((300, "old"), (100, "new")):
        weather().write(header(name, now=time.time() - age), tmp_path)
    (tmp_path / "broken.mcp.jsonl").write_text("nonsense\n")
    live = RecordingWriter(header("live", now=time.time()), tmp_path)
    async with watching(tmp_path) as visitor:
        answer = (await visitor.ask("api/sessions")).json
        assert [(each["header"]["name"], each["live"]) for each in answer["sessions"]] == [
            ("live", True), ("new", False), ("old", False),
        ]  # fmt: skip
        assert answer["first"] is None
        assert answer["folder"] == str(tmp_path)
    live.close()


async def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """Whoever opens a pipe waits for its writer."""
    os.mkfifo(tmp_path / "pipe.mcp.jsonl")
    (tmp_path / "folder.mcp.jsonl").mkdir()
    (tmp_path / "link.mcp.jsonl").symlink_to("/dev/zero")
    weather().write(header("weather", now=time.time()), tmp_path)
    async with watching(tmp_path) as visitor:
        answer = (await visitor.ask("api/sessions")).json
        assert [each["header"]["name"] for each in answer["sessions"]] == ["weather"]


async def test_without_a_folder_the_list_is_empty(tmp_path: Path) -> None:
    async with watching(tmp_path / "nothing") as visitor:
        assert (await visitor.ask("api/sessions")).json["sessions"] == []


async def test_a_named_file_comes_first(tmp_path: Path) -> None:
    path = weather().write(header("elsewhere", now=time.time() - 900), tmp_path / "elsewhere")
    weather().write(header("folder", now=time.time()), tmp_path / "folder")
    async with watching(tmp_path / "folder", path) as visitor:
        answer = (await visitor.ask("api/sessions")).json
        assert [each["header"]["name"] for each in answer["sessions"]] == ["elsewhere", "folder"]
        assert answer["first"] == answer["sessions"][0]["key"]


async def test_a_named_file_that_is_no_recording_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("hello\n")
    with pytest.raises(UsageError, match="is not a recording"):
        async with watching(tmp_path, file):
            pass


async def test_rows_findings_search_and_records(tmp_path: Path) -> None:
    weather().write(header("weather", now=time.time() - 300), tmp_path)
    async with watching(tmp_path) as visitor:
        key = (await visitor.ask("api/sessions")).json["sessions"][0]["key"]
        page = (await visitor.ask(f"api/sessions/{key}/rows")).json
        assert len(page["rows"]) == 27
        assert not page["more"]
        assert page["info"]["client"] == {"name": "desk-assistant", "version": "4.2.0"}
        assert page["info"]["server"]["name"] == "weather"
        findings = (await visitor.ask(f"api/sessions/{key}/findings")).json
        assert sum(finding["count"] for finding in findings) == page["findings"]
        (number,) = (await visitor.ask(f"api/sessions/{key}/search?text=which%20SPRINGfield")).json["numbers"]
        record = (await visitor.ask(f"api/sessions/{key}/records/{number}")).json
        assert "Which Springfield?" in record["record"]["text"]
        assert record["checks"]
        for path, status in (
            (f"{key}/records/9999", 404),
            (f"{key}/records/x", 400),
            (f"{key}/search", 400),
            (f"{key}/search?text={'x' * 1001}", 400),
            (f"{key}/rows?from=x", 400),
            ("0000000000000000/rows", 404),
            ("..%2F..%2Fetc/rows", 404),
        ):
            assert (await visitor.ask(f"api/sessions/{path}")).status == status, path


async def test_pages_are_told_what_is_new(tmp_path: Path) -> None:
    async with watching(tmp_path) as visitor, listening(visitor) as stream:
        writer = RecordingWriter(header("live", now=time.time()), tmp_path)
        assert await stream.next() == ("sessions", {})
        key = (await visitor.ask("api/sessions")).json["sessions"][0]["key"]
        assert (await visitor.ask(f"api/sessions/{key}/rows")).json["rows"] == []
        story = Story()
        story.request(0.1, "ping")
        writer.write(story.records)
        topic, data = await stream.next()
        while topic != "rows":  # the size of the file has changed, too
            topic, data = await stream.next()
        assert data == {"session": key, "changes": 1}
        assert len((await visitor.ask(f"api/sessions/{key}/rows")).json["rows"]) == 1
        writer.close()


async def test_pages_are_told_of_a_session_that_another_page_has_seen(tmp_path: Path) -> None:
    """Whoever asks for the list does not take the news away from the others."""
    async with watching(tmp_path) as visitor, listening(visitor) as stream:
        writer = RecordingWriter(header("live", now=time.time()), tmp_path)
        assert len((await visitor.ask("api/sessions")).json["sessions"]) == 1
        assert await stream.next() == ("sessions", {})
        writer.close()


async def test_only_so_many_sessions_are_kept_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcplumb.view.watch.watch_section.MAX_WATCHED_SESSIONS", 2)
    for number in range(4):
        weather().write(header(f"s{number}", now=time.time() - number), tmp_path)
    async with watching(tmp_path) as visitor:
        sessions = (await visitor.ask("api/sessions")).json["sessions"]
        for each in [*sessions, *sessions]:
            assert len((await visitor.ask(f"api/sessions/{each['key']}/rows")).json["rows"]) == 27


@pytest.mark.parametrize("how", ["renamed", "cut"])
async def test_a_recording_that_begins_anew_is_another_session(tmp_path: Path, how: str) -> None:
    """As with ``mcplumb tap --record FILE``, when the host starts the server again."""
    file, other = tmp_path / "fixed.mcp.jsonl", tmp_path / "other"
    weather().write(header("weather", now=time.time() - 300), other)
    (first,) = other.iterdir()
    first.rename(file)
    async with watching(tmp_path, file=file) as visitor, listening(visitor) as stream:
        before = (await visitor.ask("api/sessions")).json
        key = before["first"]
        assert len((await visitor.ask(f"api/sessions/{key}/rows")).json["rows"]) == 27
        story = Story()
        story.request(0.1, "ping")
        if how == "cut":
            file.write_bytes(b"")  # else the writer renames it
        writer = RecordingWriter(header("anew", now=time.time()), file)
        writer.write(story.records)
        got = await visitor.ask(f"api/sessions/{key}/records/2")
        assert got.status == 404 or "begun anew" in got.json["failed"]
        told = set()
        while "rows" not in told:
            told.add((await stream.next())[0])
        # Even before the list is looked at again.
        assert (await visitor.ask(f"api/sessions/{key}/rows")).status == 404
        while "sessions" not in told:
            told.add((await stream.next())[0])
        after = (await visitor.ask("api/sessions")).json
        assert after["first"] != key
        assert after["first"] in [each["key"] for each in after["sessions"]]
        names = [each["header"]["name"] for each in after["sessions"]]
        assert names == (["anew", "weather"] if how == "renamed" else ["anew"])
        assert len((await visitor.ask(f"api/sessions/{after['first']}/rows")).json["rows"]) == 1
        assert (await visitor.ask(f"api/sessions/{key}/rows")).status == 404
        writer.close()


async def test_a_recording_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    path = weather().write(header("weather", now=time.time() - 300), tmp_path)
    async with watching(tmp_path) as visitor:
        key = (await visitor.ask("api/sessions")).json["sessions"][0]["key"]
        path.unlink()
        got = await visitor.ask(f"api/sessions/{key}/rows")
        assert got.status == 404 or "cannot be read" in got.json["failed"]
        assert (await visitor.ask("api/sessions")).json["sessions"] == []
