"""An Introspection, and an endpoint over real HTTP that it asks."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from mcplumb import AuthorizationError, Introspection, UsageError
from mcplumb.transports.http_server.auth import introspection
from tests.kit.loop import until

ISSUER = "https://login.example"


class Endpoint:
    """Knows tokens, and counts the questions."""

    def __init__(self) -> None:
        self.url = ""
        self.tokens: dict[str, Any] = {}
        self.asked: list[str] = []
        self.credentials: set[str] = set()
        self.status = 200
        self.before_answer: Callable[[], Awaitable[object]] | None = None

    async def _answer(self, request: web.Request) -> web.Response:
        fields = await request.post()
        self.asked.append(str(fields["token"]))
        self.credentials.add(request.headers["Authorization"])
        assert fields["token_type_hint"] == "access_token"
        if self.before_answer is not None:
            await self.before_answer()
        document = self.tokens.get(str(fields["token"]), {"active": False})
        if isinstance(document, bytes):
            return web.Response(body=document, status=self.status)
        return web.json_response(document, status=self.status)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Endpoint]:
        app = web.Application()
        app.router.add_post("/introspect", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/introspect"
            yield self
        finally:
            await runner.cleanup()

    def verifier(self, **options: Any) -> Introspection:
        usual = {"url": self.url, "client_id": "me", "client_secret": "p/w d", "audience": "notes", "issuer": ISSUER}
        return Introspection(**{**usual, **options})


def active(**members: Any) -> dict[str, Any]:
    return {"active": True, "sub": "ann", "aud": "notes", "scope": "a b", "exp": time.time() + 60, **members}


@pytest.mark.req("AUT-12")
async def test_the_authorization_server_says_who_it_is() -> None:
    async with Endpoint().running() as endpoint:
        endpoint.tokens["one"] = active(iss=ISSUER, client_id="app")
        principal = await endpoint.verifier()("one")
        assert principal is not None
        assert (principal.subject, principal.issuer, principal.client_id) == ("ann", ISSUER, "app")
        assert principal.scopes == {"a", "b"}
        assert principal.claims["aud"] == "notes"
        # Each part is encoded as a form field (RFC 6749, section 2.3.1).
        assert endpoint.credentials == {f"Basic {base64.b64encode(b'me:p%2Fw+d').decode()}"}


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize(
    "document",
    [
        {"active": False},
        {},
        {"active": "true", "sub": "ann", "aud": "notes"},
        {"active": 1, "sub": "ann", "aud": "notes"},
        active(aud="others"),
        active(aud=None),
        active(iss="https://evil.example"),
        active(exp=1),
        active(nbf=time.time() + 3600),
        active(sub=None),
        active(cnf={"jkt": "x"}),
        active(token_type="DPoP"),
        active(token_type="refresh_token"),
        active(token_use="refresh_token"),
        active(exp="soon"),
    ],
)
async def test_tokens_that_do_not_pass(document: dict[str, Any]) -> None:
    async with Endpoint().running() as endpoint:
        endpoint.tokens["one"] = document
        assert await endpoint.verifier()("one") is None
        assert await endpoint.verifier()("unknown") is None


@pytest.mark.parametrize("left_out", [{}, {"iss": None, "aud": None, "exp": None, "scope": None, "client_id": None}])
async def test_what_an_answer_may_leave_out(left_out: dict[str, Any]) -> None:
    async with Endpoint().running() as endpoint:
        endpoint.tokens["one"] = {"active": True, "sub": "ann", **left_out}
        principal = await endpoint.verifier(audience=None, issuer=None)("one")
        assert principal is not None
        assert (principal.issuer, principal.expires_at, principal.scopes) == (endpoint.url, None, frozenset())


async def test_an_issuer_that_is_not_configured_is_not_compared() -> None:
    async with Endpoint().running() as endpoint:
        endpoint.tokens["one"] = active(iss=ISSUER)
        endpoint.tokens["odd"] = active(iss=["https://evil.example"])
        principal = await endpoint.verifier(issuer=None)("one")
        assert principal is not None
        assert principal.issuer == ISSUER
        assert await endpoint.verifier(issuer=None)("odd") is None


@pytest.mark.req("AUT-14")
async def test_the_token_of_a_client_is_no_users() -> None:
    """Authorization servers name no subject for a client that authorizes itself (RFC 7662, section 2.2)."""
    async with Endpoint().running() as endpoint:
        endpoint.tokens["client"] = active(sub=None, client_id="ann")
        endpoint.tokens["user"] = active(client_id="ann")
        endpoint.tokens["nobody"] = active(sub=None, client_id="")
        client, user = await endpoint.verifier()("client"), await endpoint.verifier()("user")
        assert client is not None
        assert user is not None
        assert (client.subject, client.client_id, user.subject) == ("client ann", "ann", "ann")
        assert client.identity != user.identity
        assert await endpoint.verifier()("nobody") is None


@pytest.mark.req("AUT-8")
@pytest.mark.parametrize("status", [200, 500])
async def test_a_key_in_the_address_is_in_no_log(status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with Endpoint().running() as endpoint:
        endpoint.tokens["one"] = active(aud="others")
        endpoint.status = status
        endpoint.url += "?key=hush"
        verifier = endpoint.verifier()
        if status == 200:
            assert await verifier("one") is None
            assert "calls active" in caplog.text
        else:
            with pytest.raises(AuthorizationError) as caught:
                await verifier("one")
            assert "/introspect answered" in str(caught.value)
            assert "hush" not in str(caught.value)
        assert "hush" not in caplog.text + repr(verifier)


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize(("status", "document"), [(401, {}), (500, {}), (302, {}), (200, b"<html>"), (200, b"[]")])
async def test_without_an_answer_nobody_is_let_in(status: int, document: Any) -> None:
    async with Endpoint().running() as endpoint:
        endpoint.status, endpoint.tokens["one"] = status, document
        verifier = endpoint.verifier()
        with pytest.raises(AuthorizationError) as caught:
            await verifier("one")
        assert caught.value.reason in ("unreachable", "document")
        endpoint.status, endpoint.tokens["one"] = 200, active()
        assert await verifier("one") is not None


@pytest.mark.req("AUT-12")
async def test_an_endpoint_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Endpoint().running() as endpoint:
        monkeypatch.setattr(introspection, "_ASK_WITHIN", 1e-6)
        with pytest.raises(AuthorizationError, match="did not say within"):
            await endpoint.verifier()("one")
    monkeypatch.undo()
    with pytest.raises(AuthorizationError, match="could not be asked"):
        await endpoint.verifier()("one")


async def test_an_answer_is_used_again() -> None:
    async with Endpoint().running() as endpoint:
        endpoint.tokens["one"] = active()
        verifier = endpoint.verifier(cache=3600)
        for token in ("one", "none"):
            for _ in range(5):
                await verifier(token)
        assert endpoint.asked == ["one", "none"]
        fresh = endpoint.verifier(cache=0)
        for _ in range(3):
            await fresh("one")
        assert len(endpoint.asked) == 5


@pytest.mark.req("AUT-14")
async def test_an_answer_is_used_for_its_token_only() -> None:
    async with Endpoint().running() as endpoint:
        endpoint.tokens.update(one=active(sub="ann"), two=active(sub="bob"))
        verifier = endpoint.verifier()
        for _ in range(2):
            found = await asyncio.gather(verifier("one"), verifier("two"), verifier("One"))
            assert [None if each is None else each.subject for each in found] == ["ann", "bob", None]


async def test_answers_are_kept_for_so_many_tokens() -> None:
    async with Endpoint().running() as endpoint:
        verifier = endpoint.verifier(max_cached=2)
        for token in ("a", "b", "c", "a", "c"):
            await verifier(token)
        assert endpoint.asked == ["a", "b", "c", "a"]


async def test_concurrent_requests_with_one_token_ask_once() -> None:
    async with Endpoint().running() as endpoint:
        endpoint.tokens["one"] = active()
        verifier = endpoint.verifier(cache=0)
        found = await asyncio.gather(*(verifier("one") for _ in range(20)))
        assert endpoint.asked == ["one"]
        assert {principal.subject for principal in found if principal} == {"ann"}


@pytest.mark.req("AUT-12")
async def test_a_flood_of_tokens_is_no_flood_of_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introspection, "_MOST_ASKED", 3)
    async with Endpoint().running() as endpoint:
        gate = asyncio.Event()
        endpoint.before_answer = gate.wait
        verifier = endpoint.verifier()
        waiting = [asyncio.ensure_future(verifier(str(number))) for number in range(3)]
        await until(lambda: len(endpoint.asked) == 3)
        with pytest.raises(AuthorizationError, match="Too many tokens"):
            await verifier("another")
        gate.set()
        assert await asyncio.gather(*waiting) == [None] * 3
        assert await verifier("another") is None


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"url": "http://login.example/introspect"}, "https"),
        ({"issuer": "login"}, "issuer"),
        ({"client_id": ""}, "client_id"),
        ({"client_secret": ""}, "client_secret"),
        ({"audience": ""}, "audience"),
        ({"audience": []}, "audience"),
        ({"leeway": -1}, "leeway"),
        ({"cache": float("inf")}, "cache"),
        ({"max_cached": 0}, "max_cached"),
        ({"scopes": ["a b"]}, "scope"),
    ],
)
def test_what_cannot_be_asked_is_said_at_once(options: dict[str, Any], what: str) -> None:
    usual = {"url": "https://x.example/i", "client_id": "a", "client_secret": "hush-hush", "audience": "c"}
    with pytest.raises(UsageError, match=what) as caught:
        Introspection(**{**usual, **options})
    assert "hush-hush" not in str(caught.value)


def test_it_shows_no_secret() -> None:
    verifier = Introspection(url="https://x.example/i", client_id="a", client_secret="hush", audience="c")
    assert repr(verifier) == "Introspection(url='https://x.example/i')"
