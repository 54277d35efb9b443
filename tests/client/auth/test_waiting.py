"""Programs that want the tokens of a sign-in while another one has their lock."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mcplumb import AuthorizationError, connect
from mcplumb.client.auth import authorizer
from mcplumb.client.auth.authorizer import entry_name
from tests.client.auth.site import site
from tests.kit.loop import until


async def test_a_program_says_that_it_waits_for_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(authorizer, "_NOTICE_AFTER", 0.0)

    async def use(url: str) -> None:
        async with connect(url, auth=place.oauth()) as client:
            await client.call_tool("whoami")

    async with site(tmp_path) as place:
        async with place.store.locked(entry_name(place.url, "default")):
            using = asyncio.create_task(use(place.url))
            await until(lambda: "waiting until it is done" in caplog.text)
            assert f"Another program signs in to {place.url}, or refreshes its tokens" in caplog.text
            assert place.visits == 0
        await using
        assert place.visits == 1


@pytest.mark.parametrize("is_signed_in", [False, True], ids=["sign-in", "refresh"])
async def test_a_program_that_is_never_done_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_signed_in: bool
) -> None:
    async with site(tmp_path) as place:
        if is_signed_in:
            async with connect(place.url, auth=place.oauth()):
                pass
            place.age(3600)
        visits = place.visits
        monkeypatch.setattr(authorizer, "_MOST_WAITED", 0.01)
        async with place.store.locked(entry_name(place.url, "default")):
            with pytest.raises(AuthorizationError, match="Another program has been signing in") as caught:
                async with connect(place.url, auth=place.oauth()):
                    pass
        assert (caught.value.reason, place.visits) == ("timeout", visits)
        monkeypatch.undo()
        async with connect(place.url, auth=place.oauth()):
            pass
