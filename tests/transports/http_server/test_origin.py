"""Who may talk to a server: by the name it was asked for, and by the page that asks."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Any

import pytest

from mcplumb import HttpOptions
from mcplumb.transports.http_server.origin import Guards, is_loopback
from mcplumb.transports.http_server.request import Refusal
from tests.transports.http_server.asgi import Asgi
from tests.transports.http_server.callers import Caller, error_of
from tests.transports.http_server.visits import serving
from tests.transports.http_server.workshop import Workshop

LOCAL = ("127.0.0.1", 8000)
REMOTE = ("192.0.2.1", 8000)


def _asgi(server: Any, host: str | None, origin: str | None = None) -> Asgi:
    headers = [(b"host", host), (b"origin", origin)]
    return Asgi(server=server, headers=[(name, value.encode()) for name, value in headers if value is not None])


def _passes(check: str, options: HttpOptions, server: Any, host: str | None, origin: str | None = None) -> bool:
    async def main() -> bool:
        try:
            getattr(Guards(options), check)(_asgi(server, host, origin).request)
        except Refusal as refusal:
            return refusal.status != 403
        return True

    return asyncio.run(main())


@pytest.mark.req("HTP-4")
@pytest.mark.parametrize(
    ("hosts", "server", "host", "passes"),
    [
        # Over the loopback interface, only its own names.
        (None, LOCAL, "localhost", True),
        (None, LOCAL, "LocalHost:8000", True),
        (None, LOCAL, "localhost.:8000", True),
        (None, LOCAL, "127.0.0.1:8000", True),
        (None, LOCAL, "127.8.9.1", True),
        (None, LOCAL, "[::1]:8000", True),
        (None, ("::1", 8000), "[::1]", True),
        (None, ("::ffff:127.0.0.1", 8000), "evil.example.com", False),
        (None, LOCAL, "evil.example.com", False),
        (None, LOCAL, "localhost.evil.example.com", False),
        (None, LOCAL, "127.0.0.1.evil.example.com", False),
        (None, LOCAL, "192.168.0.1", False),
        (None, LOCAL, "localhost:80@evil.example.com", False),
        (None, LOCAL, "localhost:", True),
        (None, LOCAL, "[::1].evil.example.com", False),
        (None, LOCAL, "[::1", False),
        (None, LOCAL, "localhost, evil.example.com", False),
        (None, LOCAL, "", False),
        (None, LOCAL, None, False),
        (("my.example.com",), LOCAL, "My.Example.com:80", True),
        (("my.example.com:80",), LOCAL, "my.example.com:80", True),
        (("my.example.com",), LOCAL, "localhost", True),
        (("my.example.com",), LOCAL, "other.example.com", False),
        (("*",), LOCAL, "anything", True),
        # Elsewhere, any name, or those that were given.
        (None, REMOTE, "anything", True),
        (None, None, "anything", True),
        (("my.example.com",), REMOTE, "my.example.com", True),
        (("my.example.com",), REMOTE, "localhost", False),
        ((), REMOTE, "anything", False),
        # A socket file has no name.
        (None, ("/run/x.sock", None), "anything", True),
        (("*",), REMOTE, "anything", True),
    ],
)
def test_a_server_answers_to_its_own_names(hosts: Any, server: Any, host: str | None, passes: bool) -> None:
    assert _passes("check_host", HttpOptions(hosts=hosts), server, host) is passes


@pytest.mark.req("HTP-4")
@pytest.mark.parametrize(
    ("origins", "server", "host", "origin", "passes"),
    [
        ((), LOCAL, "localhost:8000", None, True),
        # The server's own pages
        ((), LOCAL, "localhost:8000", "http://localhost:8000", True),
        ((), REMOTE, "192.0.2.1:8000", "http://192.0.2.1:8000", True),
        ((), REMOTE, "192.0.2.1:443", "https://192.0.2.1", True),
        ((), REMOTE, "192.0.2.1:8000", "https://192.0.2.1", False),
        ((), REMOTE, "[2001:db8::1]", "http://[2001:db8::1]", True),
        # By a name that is not known to be the server's, anybody's page may come.
        ((), REMOTE, "evil.example.com:8000", "http://evil.example.com:8000", False),
        ((), REMOTE, "localhost:8000", "http://localhost:8000", False),
        (("http://my.example.com",), REMOTE, "my.example.com", "http://my.example.com", True),
        ((), REMOTE, "my.example.com", "https://other.example.com", False),
        # Pages from this machine, from the same port
        ((), LOCAL, "127.0.0.1:8000", "http://localhost:8000", True),
        ((), LOCAL, "localhost:8000", "http://[::1]:8000", True),
        ((), LOCAL, "localhost:8000", "http://localhost:9000", False),
        ((), REMOTE, "my.example.com:8000", "http://localhost:8000", False),
        ((), LOCAL, "my.example.com:8000", "http://localhost:8000", False),
        # Others
        ((), LOCAL, "localhost:8000", "http://evil.example.com", False),
        ((), LOCAL, "localhost:8000", "http://evil.example.com:8000", False),
        ((), LOCAL, "localhost:8000", "null", False),
        ((), LOCAL, "localhost:8000", "", False),
        ((), LOCAL, "localhost:8000", "http://", False),
        ((), LOCAL, "localhost:8000", "file://localhost:8000", False),
        ((), LOCAL, "localhost:8000", "http://localhost:8000, http://evil.example.com", False),
        (("https://app.example.com/",), LOCAL, "localhost:8000", "https://App.example.com", True),
        (("https://app.example.com",), LOCAL, "localhost:8000", "http://app.example.com", False),
        (("*",), LOCAL, "localhost:8000", "null", True),
    ],
)
def test_pages_of_others_may_not_use_it(origins: Any, server: Any, host: str, origin: str | None, passes: bool) -> None:
    assert _passes("check_origin", HttpOptions(origins=origins), server, host, origin) is passes


@pytest.mark.req("HTP-4")
@pytest.mark.parametrize(
    ("hosts", "host", "origin", "passes"),
    [
        (("my.example.com",), "my.example.com", "https://my.example.com", True),
        (("my.example.com",), "my.example.com:443", "https://My.example.com", True),
        (("my.example.com",), "my.example.com:8000", "https://my.example.com", False),
        (("my.example.com:8000",), "My.example.com:8000", "http://my.example.com:8000", True),
        (("my.example.com",), "evil.example.com", "https://evil.example.com", False),
        # Where all names are allowed, none is known.
        (("*",), "evil.example.com", "https://evil.example.com", False),
    ],
)
def test_pages_at_a_name_of_the_server_are_its_own(hosts: Any, host: str, origin: str, passes: bool) -> None:
    assert _passes("check_origin", HttpOptions(hosts=hosts), REMOTE, host, origin) is passes


def test_whoever_is_refused_for_a_name_learns_what_to_set() -> None:
    async def main() -> str:
        with pytest.raises(Refusal) as refused:
            Guards(HttpOptions()).check_origin(_asgi(REMOTE, "my.example.com", "http://my.example.com").request)
        return str(refused.value)

    sentence = asyncio.run(main())
    assert "HttpOptions(hosts=…)" in sentence
    assert "HttpOptions(origins=…)" in sentence


@pytest.mark.req("HTP-4")
@pytest.mark.parametrize(("client", "passes"), [(("127.0.0.1", 5), False), (("192.0.2.7", 5), True), (None, True)])
@pytest.mark.parametrize("everywhere", [bytes(4), bytes(16)])
def test_a_server_that_only_knows_where_it_listens(everywhere: bytes, client: Any, passes: bool) -> None:
    async def main() -> bool:
        asgi = _asgi((str(ip_address(everywhere)), 80), "evil.example.com")
        asgi.request.scope["client"] = client
        try:
            Guards(HttpOptions()).check_host(asgi.request)
        except Refusal:
            return False
        return True

    assert asyncio.run(main()) is passes


@pytest.mark.req("HTP-4")
async def test_a_forbidden_request_gets_an_error_without_an_id() -> None:
    shop = Workshop()
    async with serving(shop.server) as site:
        for headers in ({"Origin": "http://evil.example.com"}, {"Host": "evil.example.com"}):
            assert await error_of(await Caller(site, **headers).call("double", n=1)) == (403, -32600, None)
        for method in ("GET", "DELETE", "OPTIONS"):
            answer = await site.ask(method, "/mcp", {"Origin": "http://evil.example.com"})
            assert answer.status == 403
            assert "access-control-allow-origin" not in answer.headers
        for path in ("/sse", "/messages"):
            assert (await site.ask("GET", path, {"Host": "evil.example.com"})).status == 403
        assert (await Caller(site, Origin=str(site.address).removesuffix("/mcp")).call("double", n=1)).status == 200


async def test_a_page_that_may_use_it_can_read_the_answers() -> None:
    origin = "https://app.example.com"
    async with serving(Workshop().server, origins=(origin,)) as site:
        for answer in (
            await Caller(site, Origin=origin).call("double", n=1),
            await Caller(site, Origin=origin).call("chat", meta={"progressToken": 1}),
            await Caller(site, Origin=origin).call("double", n=1, headers={"Mcp-Method": "x"}),
        ):
            assert answer.headers["access-control-allow-origin"] == origin
            assert "mcp-session-id" in answer.headers["access-control-expose-headers"]
            assert answer.headers["vary"] == "origin"
        answer = await Caller(site).call("double", n=1)
        assert "access-control-allow-origin" not in answer.headers


async def test_a_browser_that_asks_first_is_told_what_may_be_sent() -> None:
    origin = "https://app.example.com"
    async with serving(Workshop().server, origins=(origin,), tokens=("t",)) as site:
        asked = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization, mcp-method, mcp-param-x",
        }
        answer = await site.ask("OPTIONS", "/mcp", asked)
        assert answer.status == 204
        assert answer.headers["access-control-allow-origin"] == origin
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert answer.headers["access-control-allow-headers"] == asked["Access-Control-Request-Headers"]
        answer = await site.ask("OPTIONS", "/sse", {})
        assert answer.status == 204
        assert answer.headers["allow"] == "GET, OPTIONS"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("::1", True),
        ("192.0.2.1", False),
        ("example.com", False),
        ("", False),
    ],
)
def test_loopback_is_this_machine_alone(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
