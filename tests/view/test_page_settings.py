"""The settings of the page: they are kept across starts, for their owner only."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from mcplumb.view.page_settings import PageSettings
from tests.kit.leaks import leaves_nothing
from tests.view.visitor import visiting

pytestmark = leaves_nothing


async def test_settings_are_kept_across_starts(tmp_path: Path) -> None:
    file = tmp_path / "state" / "view-settings.json"
    for change, expected in (
        ({"theme": "dark"}, {"theme": "dark"}),
        ({"split.detail": 41.5}, {"theme": "dark", "split.detail": 41.5}),
        ({"theme": "light"}, {"theme": "light", "split.detail": 41.5}),
    ):
        async with visiting(lambda _: [PageSettings(str(file))]) as visitor:
            assert (await visitor.ask("api/settings", "POST", json=change)).status == 200
        async with visiting(lambda _: [PageSettings(str(file))]) as visitor:
            assert (await visitor.ask("api/settings")).json == {"settings": expected}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "{", "[]", '"theme"', "\x00"])
async def test_a_broken_file_is_no_obstacle(tmp_path: Path, text: str) -> None:
    file = tmp_path / "view-settings.json"
    file.write_text(text)
    settings = PageSettings(str(file))
    assert settings.all() == {}
    settings.keep({"theme": "dark"})
    assert json.loads(file.read_text()) == {"theme": "dark"}


async def test_there_is_a_limit(tmp_path: Path) -> None:
    async with visiting(lambda _: [PageSettings(str(tmp_path / "s.json"))]) as visitor:
        got = await visitor.ask("api/settings", "POST", json={"x": "y" * 100_000})
        assert got.status == 413
        assert (await visitor.ask("api/settings")).json == {"settings": {}}


@pytest.mark.req("VIW-1")
async def test_a_form_of_another_page_changes_nothing(tmp_path: Path) -> None:
    async with visiting(lambda _: [PageSettings(str(tmp_path / "s.json"))]) as visitor:
        got = await visitor.ask(
            "api/settings", "POST", data=b'{"theme":"dark"}', headers={"content-type": "text/plain"}
        )
        assert got.status == 415
        assert (await visitor.ask("api/settings")).json == {"settings": {}}
