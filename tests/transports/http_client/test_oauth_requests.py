from __future__ import annotations

import subprocess
import sys

import pytest
from aiohttp import web

from mcplumb import AuthorizationError
from mcplumb.protocol.oauth.steps import get_json
from mcplumb.transports.http_client import oauth_requests
from mcplumb.transports.http_client.oauth_requests import open_fetcher
from tests.client.auth.authorization_server import AuthorizationServer
from tests.client.peers import skip
from tests.kit.loop import PATIENCE


def test_without_aiohttp_one_is_told_what_to_install() -> None:
    program = """
import sys
sys.modules["aiohttp"] = None
import mcplumb
try:
    mcplumb.JwtVerifier(issuer="https://login.example", audience="notes")
except mcplumb.UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "Asking an authorization server needs aiohttp: pip install 'mcplumb[auth]'.\n"


async def test_the_requests_of_one_flow_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is always nearly too late must not hold up its client for an hour."""
    # So much longer that the time which really passes does not count.
    monkeypatch.setattr(oauth_requests, "_TIMEOUT", 200)
    monkeypatch.setattr(oauth_requests, "_FLOW_TIMEOUT", 800)

    async def page(request: web.Request) -> web.Response:
        skip(150)
        return web.json_response({})

    async with AuthorizationServer().running(slow=page) as server:
        async with open_fetcher() as fetcher:
            for _ in range(5):
                assert (await fetcher.fetch(get_json(f"{server.issuer}/slow", "a page"))).status == 200
            for _ in range(2):
                with pytest.raises(
                    AuthorizationError, match=r"did not answer within .* when asked for a page"
                ) as caught:
                    await fetcher.fetch(get_json(f"{server.issuer}/slow", "a page"))
                assert caught.value.reason == "unreachable"
        async with open_fetcher() as fetcher:
            await fetcher.fetch(get_json(f"{server.issuer}/slow", "a page"))


async def test_an_address_that_only_looks_like_one() -> None:
    """Libraries disagree on what an address is."""
    async with open_fetcher() as fetcher:
        with pytest.raises(
            AuthorizationError, match=r"The address for a page is not valid: 'https://a\[::1\]/x'"
        ) as one:
            await fetcher.fetch(get_json("https://a[::1]/x?key=secret", "a page"))
        assert one.value.reason == "address"
