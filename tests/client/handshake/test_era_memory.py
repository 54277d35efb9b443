from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from mcplumb.client import handshake
from mcplumb.client.handshake import EraMemory
from mcplumb.errors import UsageError

DAY = 24 * 3600.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "er" / "eras.json"


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    now = time.time() + seconds
    monkeypatch.setattr(time, "time", lambda: now)


@pytest.mark.req("ERA-7")
def test_what_was_learned_is_recalled() -> None:
    memory = EraMemory()
    assert memory.recall("x") is None
    memory.learn("x", "legacy")
    memory.learn("y", "modern")
    assert (memory.recall("x"), memory.recall("y")) == ("legacy", "modern")
    memory.learn("x", "modern")
    assert memory.recall("x") == "modern"


def test_it_does_not_grow_without_an_end(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setattr(handshake, "_MAX_SERVERS", 2)
    for memory in (EraMemory(), EraMemory(file)):
        for key in "abc":
            memory.learn(key, "legacy")
        assert [memory.recall(key) for key in "abc"] == [None, "legacy", "legacy"]
    assert len(json.loads(file.read_text())["servers"]) == 2


@pytest.mark.req("ERA-7")
def test_a_file_remembers_for_the_next_program(file: Path) -> None:
    EraMemory(file).learn("the command and its secrets", "legacy")
    assert EraMemory(file).recall("the command and its secrets") == "legacy"
    assert EraMemory(file).recall("another") is None
    assert "secret" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    EraMemory(file).learn("the command and its secrets", "modern")
    assert EraMemory(file).recall("the command and its secrets") == "modern"
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_it_is_written_only_when_there_is_something_new(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    EraMemory(file).learn("x", "legacy")
    file.chmod(0o640)
    EraMemory(file).learn("x", "legacy")
    assert file.stat().st_mode & 0o777 == 0o640, "it was not replaced"
    later(monkeypatch, 2 * DAY)
    EraMemory(file).learn("x", "legacy")
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_is_old_is_forgotten(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may speak the modern era by now, too, and nobody would ever find out."""
    EraMemory(file).learn("x", "legacy")
    later(monkeypatch, 8 * DAY)
    assert EraMemory(file).recall("x") is None
    EraMemory(file).learn("y", "legacy")
    assert len(json.loads(file.read_text())["servers"]) == 1


ENTRIES: list[Any] = [7, {}, {"era": "stone", "seen": 1}, {"era": "legacy"}, {"era": "legacy", "seen": "now"}, None]


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_that_makes_no_sense_is_none(file: Path, entry: Any) -> None:
    EraMemory(file).learn("x", "legacy")
    (name,) = json.loads(file.read_text())["servers"]
    file.write_text(json.dumps({"servers": {name: entry}}))
    memory = EraMemory(file)
    assert memory.recall("x") is None
    memory.learn("x", "modern")
    assert EraMemory(file).recall("x") == "modern"


@pytest.mark.parametrize("content", ["", "{", "7", "[]", "{}", '{"servers": 7}', "[" * 100_000, "\udcff"])
def test_a_file_that_makes_no_sense_is_an_empty_one(file: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    file.parent.mkdir(parents=True)
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    memory = EraMemory(file)
    assert memory.recall("x") is None
    assert memory.recall("x") is None
    memory.learn("x", "legacy")
    assert EraMemory(file).recall("x") == "legacy"
    said = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) <= 1


def test_a_file_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    memory = EraMemory(tmp_path / "file" / "eras.json")
    memory.learn("x", "legacy")
    assert memory.recall("x") == "legacy"
    assert "cannot be" in caplog.text


def test_a_path_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    EraMemory("~/eras.json").learn("x", "legacy")
    assert (tmp_path / "eras.json").exists()


def test_an_empty_path_is_refused() -> None:
    with pytest.raises(UsageError, match="is empty"):
        EraMemory("")
