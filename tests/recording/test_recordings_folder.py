from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from mcplumb.errors import McplumbError
from mcplumb.recording import recordings_folder as folders
from mcplumb.recording.recorder import RecordingWriter, new_header
from mcplumb.recording.recording_format import Record, read_recording
from mcplumb.recording.recordings_folder import find_recordings, is_live, recordings_folder, tidy_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return recordings_folder()


def record(now: float) -> Path:
    writer = RecordingWriter(new_header("tap", "stdio", now=now))
    writer.write([Record(t=0.0, sender="client", text="hi")])
    writer.close()
    assert writer.path is not None
    return writer.path


def test_a_relative_state_folder_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "here")
    assert recordings_folder() == Path.home() / ".local/state/mcplumb/recordings"


def test_a_folder_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    """It may be that of another user, after a command with sudo; here, as root may read that, it is none."""
    assert find_recordings(tmp_path / "missing") == []
    (tmp_path / "file").touch()
    for place, why in {tmp_path / "file": "Not a directory", tmp_path / ("x" * 300): "File name too long"}.items():
        with pytest.raises(McplumbError, match=f"The folder {place} cannot be read: {why}."):
            find_recordings(place)
    tidy_folder(tmp_path / "file" / "a")


def test_the_newest_are_kept(folder: Path) -> None:
    paths = [record(1_000_000.0 + n) for n in range(5)]
    tidy_folder(paths[0], keep=2)
    assert find_recordings() == [paths[4], paths[3]]


def test_all_together_have_a_largest_size(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [record(1_000_000.0 + n) for n in range(5)]
    monkeypatch.setattr(folders, "MAX_RECORDINGS_SIZE", 2 * paths[0].stat().st_size)
    tidy_folder(paths[0])
    assert find_recordings() == [paths[4], paths[3]]


@pytest.mark.req("TAP-3")
def test_old_recordings_are_compressed(folder: Path) -> None:
    old, new = record(1.0), record(2.0)
    before = time.time() - 48 * 3600
    os.utime(old, (before, before))
    tidy_folder(new)
    packed = old.with_name(f"{old.name}.gz")
    assert find_recordings() == [new, packed]
    assert len(read_recording(packed)[1]) == 1
    assert packed.stat().st_mode & 0o777 == 0o600
    assert packed.stat().st_mtime == pytest.approx(before)


def test_a_recording_that_is_being_written_stays(folder: Path) -> None:
    writer = RecordingWriter(new_header("tap", "stdio", now=1.0))
    assert writer.path is not None
    other = record(2.0)
    os.utime(writer.path, (1.0, 1.0))
    assert is_live(writer.path)
    tidy_folder(other, keep=1)
    assert find_recordings() == [other, writer.path]
    writer.close()
    assert not is_live(writer.path)


def test_one_process_tidies_at_a_time(folder: Path) -> None:
    paths = [record(1_000_000.0 + n) for n in range(3)]
    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    tidy_folder(paths[0], keep=1)
    assert len(find_recordings()) == 3
    os.close(fd)


def test_other_folders_are_left_alone(folder: Path, tmp_path: Path) -> None:
    for n in range(3):
        RecordingWriter(new_header("tap", "stdio", now=float(n)), tmp_path, keep=1).close()
    assert len(find_recordings(tmp_path)) == 3
    assert not is_live(tmp_path / "none")


def test_what_is_no_file_is_no_recording_and_stays(folder: Path) -> None:
    old, new = record(1.0), record(2.0)
    os.mkfifo(folder / "pipe.mcp.jsonl")
    (folder / "folder.mcp.jsonl").mkdir()
    (folder / "gone.mcp.jsonl").symlink_to(folder / "nothing")
    assert find_recordings() == [new, old]
    tidy_folder(new, keep=1)
    assert find_recordings() == [new]
    assert len(list(folder.iterdir())) == 4
