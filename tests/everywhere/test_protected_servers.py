"""A client and a server with a JwtVerifier, and an authorization server between them, over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from mcplumb import (
    AuthorizationError,
    ClientCredentials,
    Context,
    HttpError,
    HttpOptions,
    JwtVerifier,
    McplumbError,
    OAuth,
    Server,
    connect,
)
from mcplumb.revisions import LATEST, LATEST_LEGACY
from mcplumb.stores.token_store import FileTokens
from tests.kit.results import text_of
from tests.kit.servers import serving
from tests.kit.token_issuer import AUDIENCE, TokenIssuer

both_eras = pytest.mark.parametrize("revision", [LATEST.name, LATEST_LEGACY.name])


def make_server() -> Server:
    server = Server("notes")

    @server.tool(scopes=["notes:read"])
    async def read(ctx: Context) -> str:
        assert ctx.principal is not None
        return f"{ctx.principal.subject} of {ctx.principal.client_id} reads"

    @server.tool(scopes=["notes:write"])
    async def write(ctx: Context) -> str:
        assert ctx.principal is not None
        return f"{ctx.principal.subject} may {' '.join(sorted(ctx.principal.scopes))}"

    return server


class Place:
    def __init__(self, issuer: TokenIssuer, url: str, folder: Path) -> None:
        self.issuer = issuer
        self.url = url
        self.visits = 0
        self._store = FileTokens(folder / "tokens")

    async def _visit(self, url: str) -> str:
        """Be the browser of a user who agrees."""
        self.visits += 1
        async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as response:
            return response.headers["Location"]

    def oauth(self) -> OAuth:
        return OAuth(store=self._store, on_visit=self._visit)


@asynccontextmanager
async def place(folder: Path, **options: Any) -> AsyncIterator[Place]:
    async with TokenIssuer().publishing() as issuer:
        verifier = JwtVerifier(issuer=issuer.issuer, audience=AUDIENCE, **options)
        async with serving(make_server(), "http://127.0.0.1:0/mcp", http=HttpOptions(auth=verifier)) as [url]:
            yield Place(issuer, url, folder)


@both_eras
@pytest.mark.req("AUT-11")
@pytest.mark.req("AUT-13")
async def test_a_client_signs_in_and_steps_up(tmp_path: Path, revision: str) -> None:
    async with (
        place(tmp_path, scopes=["notes:read"]) as protected,
        connect(protected.url, auth=protected.oauth(), revisions=[revision]) as client,
    ):
        assert text_of(await client.call_tool("read")) == "ann of tests reads"
        assert (protected.visits, protected.issuer.granted) == (1, ["notes:read"])
        assert text_of(await client.call_tool("write")) == "ann may notes:read notes:write"
        assert protected.visits == 2
        assert set(protected.issuer.granted[1].split()) == {"notes:read", "notes:write"}
        assert text_of(await client.call_tool("read")) == "ann of tests reads"
        assert protected.visits == 2
        assert protected.issuer.fetches == 1


@both_eras
@pytest.mark.req("AUT-13")
async def test_concurrent_calls_share_one_step_up(tmp_path: Path, revision: str) -> None:
    async with (
        place(tmp_path, scopes=["notes:read"]) as protected,
        connect(protected.url, auth=protected.oauth(), revisions=[revision]) as client,
    ):
        results = await asyncio.gather(*(client.call_tool("write") for _ in range(10)))
        assert {text_of(result) for result in results} == {"ann may notes:read notes:write"}
        assert protected.visits == 2


@both_eras
@pytest.mark.req("AUT-13")
async def test_a_program_gets_the_scopes_that_it_needs(tmp_path: Path, revision: str) -> None:
    async with place(tmp_path) as protected:
        auth = ClientCredentials(client_id="nightly", client_secret="hush", scopes=["notes:write"])
        async with connect(protected.url, auth=auth, revisions=[revision]) as client:
            assert text_of(await client.call_tool("write")) == "ann may notes:write"


@both_eras
@pytest.mark.req("AUT-13")
async def test_a_fixed_token_without_the_scope_is_told_which_one(tmp_path: Path, revision: str) -> None:
    async with place(tmp_path) as protected:
        token = protected.issuer.token(scope="notes:read")
        async with connect(protected.url, token=token, revisions=[revision]) as client:
            assert text_of(await client.call_tool("read")) == "ann of tests reads"
            with pytest.raises((HttpError, AuthorizationError), match="403") as caught:
                await client.call_tool("write")
            assert token not in str(caught.value)
            assert text_of(await client.call_tool("read")) == "ann of tests reads"


@both_eras
@pytest.mark.req("AUT-12")
async def test_an_issuer_that_is_away_is_no_reason_to_sign_in_again(tmp_path: Path, revision: str) -> None:
    async with place(tmp_path) as protected:
        protected.issuer.status = 500
        with pytest.raises(McplumbError, match="503"):
            async with connect(protected.url, auth=protected.oauth(), revisions=[revision]):
                pass
        assert protected.visits == 1
