"""Bearer tokens, and what clients without a good one are told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcplumb import AuthorizationError, Context, HttpOptions, Principal, UsageError
from mcplumb.transports.connection import Connection, Peer
from mcplumb.transports.http_server.auth.bearer import MAX_TOKEN, BearerAuth
from mcplumb.transports.http_server.auth.token_verifier import TokenVerifier
from tests.kit.results import text_of
from tests.transports.http_server.asgi import asking
from tests.transports.http_server.callers import CAPABILITIES, Caller, error_of
from tests.transports.http_server.visits import Visitor, serving
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


async def test_health_needs_no_token() -> None:
    async with serving(Workshop().server, tokens=("one",)) as site:
        answer = await site.ask("GET", "/health", {})
        assert (answer.status, await answer.json()) == (200, {"status": "ok"})
        assert (await site.ask("POST", "/health", {})).status == 405
        assert (await site.ask("GET", "/health", {"Host": "evil.example.com"})).status == 403
        assert (await site.ask("GET", "/health", {"Origin": "https://elsewhere.example.com"})).status == 403


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


# Principals and their scopes


def principals(**scopes: list[str]) -> Any:
    """A function for ``auth``: the tokens are the names of the owners."""
    known = {name: Principal(name, scopes=frozenset(each)) for name, each in scopes.items()}
    return known.get


class Verifier(TokenVerifier):
    """Accepts tokens that are the names of their owners."""

    def __init__(self, authenticate: Any, scopes: tuple[str, ...] = ()) -> None:
        super().__init__(issuer="https://login.example/realm", scopes=scopes)
        self._authenticate = authenticate

    async def __call__(self, token: str) -> Principal | None:
        found: Principal | None = self._authenticate(token)
        return found


@pytest.mark.req("AUT-11")
async def test_the_issuer_of_a_verifier_is_published() -> None:
    verifier = Verifier(principals(ann=["a"]), scopes=("a",))
    async with serving(Workshop().server, auth=verifier, scopes=("b", "a"), resource="https://x.example/mcp") as site:
        metadata = f"https://x.example{RESOURCE_METADATA}/mcp"
        challenge = (await Caller(site).call("double", n=1)).headers["www-authenticate"]
        assert challenge == f'Bearer resource_metadata="{metadata}", scope="a b"'
        for path in (RESOURCE_METADATA, f"{RESOURCE_METADATA}/mcp"):
            assert await (await site.ask("GET", path, {})).json() == {
                "resource": "https://x.example/mcp",
                "authorization_servers": ["https://login.example/realm"],
                "bearer_methods_supported": ["header"],
                "scopes_supported": ["a", "b"],
            }
    elsewhere = ("https://proxy.example",)
    async with serving(Workshop().server, auth=verifier, authorization_servers=elsewhere) as site:
        document = await (await site.ask("GET", RESOURCE_METADATA, {})).json()
        assert document["authorization_servers"] == list(elsewhere)


@pytest.mark.req("AUT-12")
@pytest.mark.req("AUT-13")
async def test_scopes_that_every_request_needs() -> None:
    verifier = Verifier(principals(ann=["a", "b", "c"], bob=["a"], eve=[]), scopes=("a", "b"))
    async with serving(Workshop().server, auth=verifier) as site:
        assert (await Caller(site, Authorization="Bearer ann").call("double", n=1)).status == 200
        for token in ("bob", "eve"):
            answer = await Caller(site, Authorization=f"Bearer {token}").call("double", n=1)
            assert answer.status == 403
            assert answer.headers["www-authenticate"].startswith(
                'Bearer error="insufficient_scope", resource_metadata="'
            )
            assert answer.headers["www-authenticate"].endswith('scope="a b"')


@pytest.mark.req("AUT-13")
async def test_a_scope_includes_others() -> None:
    shop = Workshop()

    async def read() -> str:
        return "read"

    shop.server.add_tool(read, scopes=["read"])
    included = {"admin": ("write",), "write": ("read", "write"), "loop": ("loop", "admin")}
    options: dict[str, Any] = {"auth": principals(ann=["admin"], bob=["loop"], eve=["x"]), "included_scopes": included}
    async with serving(shop.server, **options) as site:
        for token, status in (("ann", 200), ("bob", 200), ("eve", 403)):
            assert (await Caller(site, Authorization=f"Bearer {token}").call("read")).status == status


async def test_a_configured_token_has_the_configured_scopes() -> None:
    seen: list[Principal | None] = []
    shop = Workshop()

    async def look(ctx: Context) -> str:
        seen.append(ctx.principal)
        return ""

    shop.server.add_tool(look, scopes=["b"])
    async with serving(shop.server, tokens=("one", "two"), scopes=("a",), included_scopes={"a": ("b",)}) as site:
        for token in ("one", "two", "one"):
            assert (await Caller(site, Authorization=f"Bearer {token}").call("look")).status == 200
    one, two, again = seen
    assert one is not None
    assert two is not None
    assert one == again
    assert one.identity != two.identity
    assert one.scopes == {"a", "b"}
    assert one.identity != Principal(one.subject).identity, "A function cannot invent one of them by accident."


@pytest.mark.req("AUT-12")
async def test_why_a_token_was_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def refuse(_: str) -> Principal | None:
        raise AuthorizationError("invalid_token", "The token is of last year.")

    caplog.set_level("INFO", logger="mcplumb.http")
    async with serving(Workshop().server, auth=refuse) as site:
        answer = await Caller(site, Authorization="Bearer x").call("double", n=1)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
        assert (await answer.json())["error"]["message"] == "The token is of last year."
    assert "A token was refused. The token is of last year." in caplog.text


@pytest.mark.req("AUT-12")
async def test_tokens_that_cannot_be_checked_are_not_called_invalid(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(_: str) -> Principal | None:
        raise AuthorizationError("unreachable", "https://login.example did not answer.")

    async with serving(Workshop().server, auth=fail) as site:
        answer = await Caller(site, Authorization="Bearer x").call("double", n=1)
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert "www-authenticate" not in answer.headers
        assert await answer.body() == b"The access token cannot be checked at present. Try again later.\n"
    assert "did not answer" in caplog.text


@pytest.mark.req("AUT-12")
async def test_what_cannot_be_a_token_reaches_no_verifier() -> None:
    seen: list[str] = []

    def note(token: str) -> Principal | None:
        seen.append(token)
        return None

    async with serving(Workshop().server, auth=note, tokens=("a,b!",)) as site:
        for token in ("x" * (MAX_TOKEN + 1), "a b", 'a"b', "a,b", "=", "ä", "{}"):
            assert (await Caller(site, Authorization=f"Bearer {token}").call("double", n=1)).status == 401
        assert seen == []
        assert (await Caller(site, Authorization="Bearer a,b!").call("double", n=1)).status == 200
        await Caller(site, Authorization="Bearer abc.DEF-1_~+/==").call("double", n=1)
        assert seen == ["abc.DEF-1_~+/=="]


@pytest.mark.req("AUT-14")
async def test_two_headers_are_none() -> None:
    async with serving(Workshop().server, auth=principals(ann=[], bob=[])) as site:
        headers = {"Authorization": "Bearer ann", "authorization": "Bearer bob"}
        assert (await site.ask("GET", "/mcp", headers)).status == 401


# What belongs to one principal


def by_issuer(token: str) -> Principal | None:
    """The token is an issuer and a subject."""
    issuer, _, subject = token.partition("/")
    return Principal(subject, issuer=issuer) if subject else None


@pytest.mark.req("AUT-14")
async def test_sealed_state_opens_for_its_principal_only() -> None:
    shop = Workshop()
    meta: dict[str, Any] = {CAPABILITIES: {"elicitation": {"form": {}}}}
    async with serving(shop.server, auth=by_issuer) as site:

        async def ask(token: str, **more: Any) -> Any:
            params = {"name": "ask", "arguments": {}, **more}
            answer = await Caller(site, Authorization=f"Bearer {token}").request("tools/call", params, meta=meta)
            return await answer.json()

        asked = (await ask("one/ann"))["result"]
        [key] = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"name": "Ann"}}}
        retry = {"requestState": asked["requestState"], "inputResponses": answers}
        for token in ("one/bob", "two/ann", "/one/ann", "on/e/ann"):
            assert "does not verify" in (await ask(token, **retry))["error"]["message"]
        assert text_of(await ask("one/ann", **retry)) == "hello Ann"


@pytest.mark.req("AUT-14")
async def test_sessions_events_and_streams_belong_to_their_principal() -> None:
    async with serving(Workshop().server, auth=by_issuer) as site:
        ann = Visitor(site, Authorization="Bearer one/ann")
        await ann.open()
        answer = await ann.call("chat")
        first = await answer.event()
        assert first is not None
        for token in ("one/bob", "two/ann"):
            thief = Visitor(site, **{**ann.headers, "Authorization": f"Bearer {token}"})
            for stolen in (
                await thief.call("double", n=1),
                await thief.notify("notifications/cancelled", {"requestId": 1}),
                await thief.listen(),
                await thief.listen(first.id),
                await thief.delete(),
            ):
                assert await error_of(stolen) == (404, -32600, None)
        resumed = await ann.listen(first.id)
        assert [message for message in await resumed.messages() if "result" in message]


@pytest.mark.req("AUT-14")
async def test_subscriptions_belong_to_their_principal() -> None:
    shop = Workshop()

    async def thing() -> str:
        return ""

    shop.server.add_resource("x://private", thing, scopes=["x"])
    async with serving(shop.server, auth=principals(ann=["x"], bob=[])) as site:
        params = {"notifications": {"resourceSubscriptions": ["x://private"], "toolsListChanged": True}}
        ann = await Caller(site, Authorization="Bearer ann").request("subscriptions/listen", params)
        bob = Caller(site, Authorization="Bearer bob")
        assert (await bob.request("subscriptions/listen", params)).status == 403
        params = {"notifications": {"toolsListChanged": True}}
        theirs = await bob.request("subscriptions/listen", params)
        for stream in (ann, theirs):
            assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
        shop.server.resource_changed("x://private")
        assert (await ann.message())["method"] == "notifications/resources/updated"
        shop.server.remove_tool("double")
        for stream in (ann, theirs):
            assert (await stream.message())["method"] == "notifications/tools/list_changed"


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"auth": "x"}, "option auth"),
        ({"tokens": ("x",), "scopes": ("a b",)}, "scopes"),
        ({"tokens": ("x",), "included_scopes": {"a": ("b c",)}}, "included_scopes"),
        ({"tokens": ("x",), "included_scopes": {"a b": ()}}, "included_scopes"),
        ({"tokens": ("x",), "included_scopes": {"a": "bc"}}, "included_scopes for 'a' must have a list"),
        ({"scopes": ("a",)}, "set auth or tokens"),
    ],
)
def test_options_that_cannot_work(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        HttpOptions(**options)
