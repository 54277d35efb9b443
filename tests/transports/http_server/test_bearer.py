"""Bearer tokens, and what clients without a good one are told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb import HttpOptions, Principal
from mcplumb.transports.connection import Connection, Peer
from mcplumb.transports.http_server.bearer import BearerAuth
from tests.transports.http_server.asgi import asking
from tests.transports.http_server.callers import Caller, error_of
from tests.transports.http_server.visits import serving
from tests.transports.http_server.workshop import Workshop

RESOURCE_METADATA = "/.well-known/oauth-protected-resource"


async def test_everybody_is_let_in_if_there_are_no_tokens() -> None:
    tokens = BearerAuth(HttpOptions())
    assert not tokens.are_needed
    assert await tokens.principal(asking(Authorization="Bearer x").request) is None


async def test_only_those_with_a_token_are_let_in() -> None:
    async with serving(Workshop().server, tokens=("one", "two")) as site:
        for token in ("one", "two"):
            for scheme in ("Bearer", "bearer"):
                assert (await Caller(site, Authorization=f"{scheme} {token}").call("double", n=1)).status == 200
        for field in (None, "one", "Basic one", "Bearer", "Bearer ", "Bearer x", "Bearer one two", "Bearer onE"):
            answer = await Caller(site, Authorization=field).call("double", n=1)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            assert await error_of(answer) == (401, -32600, None)
        for method, path in (("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/sse"), ("POST", "/messages")):
            assert (await site.ask(method, path, {})).status == 401


async def test_a_bad_token_is_called_so_and_a_missing_one_is_not() -> None:
    async with serving(Workshop().server, tokens=("one",), scopes=("a", "b")) as site:
        answer = await Caller(site, Authorization="Bearer x").call("double", n=1)
        assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token", scope="a b"'
        answer = await Caller(site).call("double", n=1)
        assert answer.headers["www-authenticate"] == 'Bearer scope="a b"'
    async with serving(Workshop().server, tokens=("one",)) as site:
        assert (await Caller(site).call("double", n=1)).headers["www-authenticate"] == "Bearer"


def test_a_verifier_says_who_it_is() -> None:
    async def is_known(token: str) -> Principal | None:
        await asyncio.sleep(0)
        return verify(token)

    def verify(token: str) -> Principal | None:
        return {"a": Principal("Ann"), "b": Principal("Bob")}.get(token)

    async def main(verifier: Any) -> None:
        shop = Workshop()
        peers: list[Peer] = []

        async def serve(connection: Connection, peer: Peer) -> None:
            peers.append(peer)
            await shop.server.serve_connection(connection, peer)

        async with serving(shop.server, serve=serve, tokens=("static",), auth=verifier) as site:
            for token, status in (("a", 200), ("b", 200), ("c", 401), ("static", 200)):
                assert (await Caller(site, Authorization=f"Bearer {token}").call("double", n=1)).status == status
        assert [peer.principal for peer in peers[:2]] == [Principal("Ann"), Principal("Bob")]
        assert peers[2].principal is not None
        assert "static" not in peers[2].principal.subject
        assert {peer.era for peer in peers} == {"modern"}

    for verifier in (verify, is_known):
        asyncio.run(main(verifier))


def test_a_verifier_that_fails_lets_nobody_in(caplog: pytest.LogCaptureFixture) -> None:
    def fail(token: str) -> Principal | None:
        raise ZeroDivisionError

    async def fail_late(token: str) -> Principal | None:
        raise ZeroDivisionError

    def agree(token: str) -> Any:
        return True

    async def main() -> None:
        for verify in (fail, fail_late, agree):
            async with serving(Workshop().server, auth=verify) as site:
                answer = await Caller(site, Authorization="Bearer x").call("double", n=1)
                assert await error_of(answer) == (500, -32603, None)

    asyncio.run(main())
    errors = [record.exc_info[0] for record in caplog.records if record.exc_info is not None]
    assert errors == [ZeroDivisionError, ZeroDivisionError, TypeError]


async def test_the_metadata_of_the_resource_is_published() -> None:
    servers = ("https://auth.example.com",)
    options: dict[str, Any] = {"tokens": ("one",), "authorization_servers": servers, "scopes": ("a",)}
    async with serving(Workshop().server, **options) as site:
        origin = str(site.address).removesuffix("/mcp")
        challenge = (await Caller(site).call("double", n=1)).headers["www-authenticate"]
        assert f'resource_metadata="{origin}{RESOURCE_METADATA}/mcp"' in challenge
        for path in (RESOURCE_METADATA, f"{RESOURCE_METADATA}/mcp"):
            answer = await site.ask("GET", path, {"Origin": "https://elsewhere.example.com"})
            assert answer.status == 200
            assert answer.headers["access-control-allow-origin"] == "*"
            assert await answer.json() == {
                "resource": f"{origin}/mcp",
                "authorization_servers": list(servers),
                "bearer_methods_supported": ["header"],
                "scopes_supported": ["a"],
            }
        assert (await site.ask("POST", RESOURCE_METADATA, {})).status == 405
        assert (await site.ask("GET", f"{RESOURCE_METADATA}/other", {})).status == 404
        assert (await site.ask("GET", RESOURCE_METADATA, {"Host": "evil.example.com"})).status == 403
    async with serving(Workshop().server, tokens=("one",)) as site:
        assert (await site.ask("GET", RESOURCE_METADATA, {})).status == 404


@pytest.mark.parametrize(
    ("resource", "path", "metadata"),
    [
        ("https://a.example.com/mcp", "/mcp", "https://a.example.com/.well-known/oauth-protected-resource/mcp"),
        ("https://a.example.com/x/mcp", "/mcp", "https://a.example.com/x/.well-known/oauth-protected-resource/mcp"),
        ("https://a.example.com/", "/", "https://a.example.com/.well-known/oauth-protected-resource"),
        ("https://a.example.com/y", "/mcp", "https://a.example.com/.well-known/oauth-protected-resource/y"),
        ("https://a.example.com", "/mcp", "https://a.example.com/.well-known/oauth-protected-resource"),
    ],
)
async def test_a_resource_may_be_known_by_another_address(resource: str, path: str, metadata: str) -> None:
    options: dict[str, Any] = {"resource": resource, "path": path, "authorization_servers": ("https://auth",)}
    async with serving(Workshop().server, tokens=("one",), **options) as site:
        answer = await Caller(site, path).call("double", n=1)
        assert f'resource_metadata="{metadata}"' in answer.headers["www-authenticate"]
        answer = await site.ask("GET", RESOURCE_METADATA, {})
        document = await answer.json()
        assert document["resource"] == resource
        assert "scopes_supported" not in document
