"""What the user has agreed to."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest

from mcplumb.config import trust
from mcplumb.config.files import ConfigError
from mcplumb.config.locations import trust_file
from mcplumb.config.trust import is_trusted, remember


def test_an_agreement_is_remembered(home: Path) -> None:
    assert not is_trusted("d1")
    remember("d1", name="it", source="/p/.mcp.json")
    remember("d2", name="it", source="/p/.mcp.json")
    assert is_trusted("d1")
    assert is_trusted("d2")
    assert not is_trusted("d3")
    file = home / ".local" / "state" / "mcplumb" / "trusted.json"
    assert trust_file() == str(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert msgspec.json.decode(file.read_bytes())["trusted"]["d1"] == {"name": "it", "file": "/p/.mcp.json"}


def test_the_oldest_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trust, "MAX_REMEMBERED", 2)
    for digest in ("a", "b", "a", "c"):
        remember(digest, name="it", source="f")
    assert [digest for digest in "abc" if is_trusted(digest)] == ["a", "c"]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_counts_for_nothing(mode: int) -> None:
    remember("a", name="it", source="f")
    Path(trust_file()).chmod(mode)
    with pytest.raises(ConfigError, match="other users can write"):
        is_trusted("a")


@pytest.mark.parametrize("text", ["[]", "{}", '{"trusted": []}', "x"])
def test_a_file_that_is_something_else(text: str) -> None:
    file = Path(trust_file())
    file.parent.mkdir(parents=True)
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ConfigError):
        is_trusted("a")
    with pytest.raises(ConfigError):
        remember("a", name="it", source="f")
    assert file.read_text() == text
