"""A protected server and its authorization server, over real HTTP, and what a client keeps of a sign-in there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from mcplumb import HttpOptions, OAuth, Principal, Server
from mcplumb.client.auth.authorizer import Entry, read_entry, save_entry
from mcplumb.stores.token_store import FileTokens
from tests.client.auth.authorization_server import AuthorizationServer
from tests.kit.servers import serving


def make_server() -> Server:
    server = Server("protected")

    @server.tool
    def whoami() -> str:
        return "somebody"

    return server


def kept(store: FileTokens) -> Entry:
    """Return the one entry of a store."""
    [name] = store.names()
    entry = read_entry(store.load(name))
    assert entry is not None
    return entry


def age(store: FileTokens, seconds: float) -> None:
    """Let the stored tokens get older."""
    [name] = store.names()
    entry = kept(store)
    grant = entry.grant
    older = msgspec.structs.replace(
        grant, granted_at=grant.granted_at - seconds, expires_at=(grant.expires_at or 0) - seconds
    )
    save_entry(store, name, msgspec.structs.replace(entry, grant=older))


class Site:
    """A protected server, its authorization server, and a store of tokens."""

    def __init__(self, auth: AuthorizationServer, url: str, store: FileTokens) -> None:
        self.auth = auth
        self.url = url
        self.store = store
        self.visits = 0

    async def visit(self, url: str) -> str:
        """Be the browser of a user who agrees."""
        self.visits += 1
        async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as response:
            return response.headers["Location"]

    def oauth(self, **options: Any) -> OAuth:
        return OAuth(**{"store": self.store, "on_visit": self.visit, **options})

    def entry(self) -> Entry:
        return kept(self.store)

    def age(self, seconds: float) -> None:
        age(self.store, seconds)


@asynccontextmanager
async def site(folder: Path, **options: Any) -> AsyncIterator[Site]:
    auth = AuthorizationServer()
    async with auth.running():
        check = lambda token: Principal("user") if token in auth.tokens else None  # noqa: E731
        http = HttpOptions(auth=check, authorization_servers=(auth.issuer,), **options)
        async with serving(make_server(), "http://127.0.0.1:0", http=http) as [url]:
            yield Site(auth, url, FileTokens(folder / "tokens"))
