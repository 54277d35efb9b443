"""Subscriptions at a protected server: they are asked for like calls, and go on when an access token ends."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from mcplumb import HttpError, HttpOptions, Principal, Server, connect
from mcplumb.protocol.subscription_state import Change, Missed
from mcplumb.stores import FileTokens
from tests.client.auth.authorization_server import AuthorizationServer
from tests.client.auth.site import Site, make_server
from tests.kit.loop import until
from tests.kit.servers import serving

LEGACY, MODERN = "2025-11-25", "2026-07-28"
NOTE = "notes://one"

#: Seconds from a request until the end of its token, and what is left of that when a stream begins: its clock is ahead.
LIFE, LEFT = 3600.0, 0.05

eras = pytest.mark.parametrize("revision", [LEGACY, MODERN])


class EndingSite(Site):
    """A protected server at which the streams of the first token end soon after they have begun."""

    def __init__(self, server: Server, auth: AuthorizationServer, url: str, store: FileTokens) -> None:
        super().__init__(auth, url, store)
        self.server = server
        self._spent: set[str] = set()
        self._checks = 0

    def check(self, token: str) -> Principal | None:
        self._checks += 1
        if token not in self.auth.tokens or token in self._spent:
            return None
        is_first = token == next(iter(self.auth.tokens))
        return Principal("user", expires_at=time.time() + (LIFE if is_first else 2 * LIFE))

    async def end_tokens(self, revision: str) -> None:
        """Accept none of the tokens that were granted so far, as soon as the client has opened its stream."""
        # A legacy client sends two messages before, and a modern one has been answered once.
        await until(lambda: self._checks >= (3 if revision == LEGACY else 2))
        self._spent.update(self.auth.tokens)

    def add_tool(self) -> None:
        self.server.add_tool(lambda: "", name="another")


def skip(monkeypatch: pytest.MonkeyPatch, module: str, seconds: float) -> None:
    """Set the clock of a module ahead."""
    monkeypatch.setattr(f"{module}.time", SimpleNamespace(time=lambda: time.time() + seconds))


@asynccontextmanager
async def ending_site(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EndingSite]:
    skip(monkeypatch, "mcplumb.transports.http_server.asgi_request", LIFE - LEFT)
    auth, server = AuthorizationServer(), make_server()
    place = EndingSite(server, auth, "", FileTokens(folder / "tokens"))
    async with auth.running():
        http = HttpOptions(auth=place.check, authorization_servers=(auth.issuer,))
        async with serving(server, "http://127.0.0.1:0", http=http) as [place.url]:
            yield place


@eras
@pytest.mark.req("AUT-7")
async def test_a_subscription_goes_on_with_the_next_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    skip(monkeypatch, "mcplumb.client.subscriptions", LIFE)
    async with (
        ending_site(tmp_path, monkeypatch) as place,
        connect(place.url, auth=place.oauth(), revisions=[revision]) as client,
        client.listen(tools=True) as changes,
    ):
        await place.end_tokens(revision)
        if revision == MODERN:
            assert await anext(changes) == Missed()
        await until(lambda: place.auth.refreshes)
        place.add_tool()
        assert await anext(changes) == Change("tools")
        assert (place.visits, place.auth.refreshes) == (1, 1)


@eras
async def test_a_subscription_goes_on_when_the_authorization_server_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, revision: str
) -> None:
    skip(monkeypatch, "mcplumb.client.subscriptions", LIFE)
    async with (
        ending_site(tmp_path, monkeypatch) as place,
        connect(place.url, auth=place.oauth(), revisions=[revision]) as client,
        client.listen(tools=True) as changes,
    ):
        await place.end_tokens(revision)
        place.auth.refuses = 503
        await until(lambda: place.auth.refreshes)
        place.auth.refuses = None
        if revision == MODERN:
            assert await anext(changes) == Missed()
        place.add_tool()
        assert await anext(changes) == Change("tools")
        assert place.visits == 1


async def test_a_subscription_that_the_server_ends_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        ending_site(tmp_path, monkeypatch) as place,
        connect(place.url, auth=place.oauth(), revisions=[MODERN]) as client,
        client.listen(tools=True) as changes,
    ):
        # For the client, its token is fresh.
        assert [change async for change in changes] == []


async def test_without_another_token_the_consumer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip(monkeypatch, "mcplumb.client.subscriptions", LIFE)
    async with ending_site(tmp_path, monkeypatch) as place:
        place.auth.gives_refresh_tokens = False
        auth = place.oauth(sign_in=lambda: not place.visits)
        async with (
            connect(place.url, auth=auth, revisions=[MODERN]) as client,
            client.listen(tools=True) as changes,
        ):
            await place.end_tokens(MODERN)
            with pytest.raises(HttpError, match="subscriptions/listen was refused") as caught:
                await anext(changes)
            assert caught.value.status == 401


@eras
@pytest.mark.req("AUT-6")
async def test_a_subscription_that_needs_more_scopes_leads_to_one_consent(tmp_path: Path, revision: str) -> None:
    auth, server = AuthorizationServer(), make_server()

    @server.resource(NOTE, scopes=["notes:read"])
    def note() -> str:
        return "a note"

    def check(token: str) -> Principal | None:
        return Principal("user", scopes=frozenset(auth.tokens[token].split())) if token in auth.tokens else None

    async with auth.running():
        http = HttpOptions(auth=check, authorization_servers=(auth.issuer,))
        async with serving(server, "http://127.0.0.1:0", http=http) as [url]:
            place = Site(auth, url, FileTokens(tmp_path / "tokens"))
            async with connect(url, auth=place.oauth(), revisions=[revision]) as client:
                assert place.visits == 1
                async with client.listen(resources=[NOTE]) as changes:
                    assert place.visits == 2
                    server.resource_changed(NOTE)
                    assert await anext(changes) == Change("updates", NOTE)
