"""Programs that use only the tokens of an earlier sign-in: ``OAuth(sign_in=False)``."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcplumb import ConnectError, HttpError, OAuth, connect
from mcplumb.client.auth.authorizer import Authorizer
from tests.client.auth.site import site

OFF = r"Signing in is switched off here, with OAuth\(sign_in=False\)"


async def test_the_error_says_that_signing_in_is_switched_off(tmp_path: Path) -> None:
    async with site(tmp_path) as place:
        with pytest.raises(ConnectError, match=rf"401 .*{OFF}.* with OAuth\(sign_in=True\)\. .* at {place.url}") as one:
            async with connect(place.url, auth=place.oauth(sign_in=False)):
                pass
        assert isinstance(one.value.__cause__, HttpError)
        async with connect(place.url, auth=place.oauth()):
            pass
        async with connect(place.url, auth=place.oauth(sign_in=False)) as client:
            place.auth.tokens.clear()
            place.auth.refresh_tokens.clear()
            with pytest.raises(HttpError, match=rf"tools/call 'whoami' was refused\. .* HTTP 401 .*{OFF}") as two:
                await client.call_tool("whoami")
        assert two.value.status == 401
        for error in (one.value, two.value):
            assert "auth=OAuth()" not in str(error)
            assert "token=" not in str(error)
        assert place.visits == 1


@pytest.mark.parametrize(
    ("options", "command"),
    [
        ({}, ", or 'mcplumb login -s {url} --scope b'."),
        ({"user": "ann"}, None),
        ({"store": True}, None),
    ],
)
async def test_the_error_names_the_command_if_that_keeps_its_tokens_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], command: str | None
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    async with site(tmp_path) as place:
        given: dict[str, object] = {**options, **({"store": place.store} if "store" in options else {})}
        used = Authorizer(OAuth(sign_in=False, **given), place.url)  # type: ignore[arg-type]
        asked = HttpError(403, "No.", www_authenticate='Bearer error="insufficient_scope", scope="b"')
        with pytest.raises(HttpError, match=f"^No. {OFF}") as caught:
            await used.authorize(asked)
        said = str(caught.value)
        assert said.endswith("sign_in=True)." if command is None else command.format(url=place.url)), said
