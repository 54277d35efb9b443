"""Saved calls: in a file for their owner only, whole after any mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcplumb.config import ConfigError
from mcplumb.view.api_routes import ApiError
from mcplumb.view.workbench.saved_calls import SavedCall, SavedCalls
from tests.view.workbench.bench import working


def call(**more: Any) -> SavedCall:
    return SavedCall(**{"title": "tea", "server": "bench", "method": "tools/call", "params": {"name": "brew"}, **more})


def test_a_call_is_kept_for_its_owner_only(home: Path) -> None:
    saved = SavedCalls()
    assert saved.all() == []
    first, second = saved.save(call()), saved.save(call(title="more"))
    assert Path(saved.file) == home / ".local/state/mcplumb/saved-calls.json"
    assert Path(saved.file).stat().st_mode & 0o777 == 0o600
    assert Path(saved.file).parent.stat().st_mode & 0o777 == 0o700
    assert SavedCalls().all() == [second, first]
    changed = saved.save(call(id=first.id, title="other"))
    assert [each.title for each in saved.all()] == ["other", "more"]
    saved.delete(changed.id)
    assert saved.all() == [second]
    with pytest.raises(ApiError, match="not saved any more"):
        saved.delete(changed.id)


def test_there_are_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = SavedCalls()
    with pytest.raises(ApiError, match="too large"):
        saved.save(call(params={"text": "x" * (1 << 20)}))
    monkeypatch.setattr("mcplumb.view.workbench.saved_calls.MAX_SAVED_CALLS", 1)
    first = saved.save(call())
    with pytest.raises(ApiError, match="1 calls are saved already"):
        saved.save(call())
    saved.save(call(id=first.id, title="again"))


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", '{"calls": 1}', '{"calls": [{"title": 1}]}'])
def test_a_broken_file_is_not_overwritten(text: str) -> None:
    saved = SavedCalls()
    saved.save(call())
    Path(saved.file).write_text(text)
    for act in (saved.all, lambda: saved.save(call()), lambda: saved.delete("x")):
        with pytest.raises(ConfigError):
            act()
    assert Path(saved.file).read_text() == text


async def test_the_page_saves_and_deletes() -> None:
    async with working() as bench:
        body = {"title": "tea", "server": "bench", "method": "tools/call", "params": {"name": "brew"}}
        saved = await bench.ask("/saved", "POST", body)
        assert (await bench.ask("/saved"))["calls"] == [saved]
        await bench.ask(f"/saved/{saved['id']}", "DELETE")
        assert (await bench.ask("/saved"))["calls"] == []
        assert (await bench.got("/saved", "POST", {"title": 1})).status == 400
