"""Reading and replacing files of the user's."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from pathlib import Path

import pytest

from mcplumb.config import files
from mcplumb.config.files import ConfigError, locked, read_file, replace_file


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    assert read_file(str(tmp_path / "f")) == b"x"
    assert read_file(str(tmp_path / "gone")) is None
    assert read_file(str(tmp_path / "f" / "below")) is None


def test_what_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=f"In {tmp_path}: it cannot be read: Is a directory"):
        read_file(str(tmp_path))
    monkeypatch.setattr(files, "_MAX_SIZE", 1 << 20)
    (tmp_path / "f").write_bytes(bytes(1 << 20))
    assert read_file(str(tmp_path / "f")) == bytes(1 << 20)
    (tmp_path / "f").write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(ConfigError, match="it is larger than 1 MiB"):
        read_file(str(tmp_path / "f"))


def test_a_file_is_replaced_and_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"old")
    file.chmod(0o644)
    with file.open("rb") as reader:
        replace_file(str(file), b"new")
        assert reader.read() == b"old"
    assert file.read_bytes() == b"new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.glob("*f*")) == [file]


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "f"
    link.symlink_to("real/f")
    replace_file(str(link), b"new")
    assert link.is_symlink()
    assert (tmp_path / "real" / "f").read_bytes() == b"new"


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(ConfigError, match="it cannot be written: Is a directory"):
        replace_file(str(tmp_path / "f"), b"new")
    assert [path.name for path in tmp_path.iterdir() if "f" in path.name] == ["f"]
    with pytest.raises(ConfigError, match="it cannot be written: No such file"):
        replace_file(str(tmp_path / "gone" / "f"), b"new")


def test_the_lock_makes_the_folder_and_goes_with_the_block(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with locked(str(folder / "f")):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        other = os.open(folder, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    assert list(folder.iterdir()) == []


def test_one_waits_for_another(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"0")

    def count() -> None:
        for _ in range(20):
            with locked(str(file)):
                replace_file(str(file), str(int(file.read_bytes()) + 1).encode())

    threads = [threading.Thread(target=count) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert file.read_bytes() == b"60"


def test_nobody_waits_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_LOCK_TIMEOUT", 0.0)
    with locked(str(tmp_path / "f")), pytest.raises(ConfigError, match="changing it for too long"):
        locked(str(tmp_path / "f")).__enter__()


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(ConfigError, match="its folder cannot be locked: No locks"), locked(str(tmp_path / "f")):
        pass


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(ConfigError, match="its folder cannot be used"), locked(str(tmp_path / "f" / "g")):
        pass
