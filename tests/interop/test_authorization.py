"""Sign-ins at a real authorization server, oidc-provider: by our client and others, for a server of ours and others.

The user's browser is played by plain HTTP requests, which fill in and send the forms of the pages.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urljoin, urlsplit

import aiohttp
import joserfc.jwk
import pytest

from mcplumb import (
    AuthorizationError,
    ClientCredentials,
    Context,
    HttpOptions,
    Introspection,
    JwtVerifier,
    OAuth,
    Server,
)
from mcplumb.client.auth.authorizer import revoke_entry
from mcplumb.stores import FileTokens
from tests.client.auth.site import age, kept
from tests.interop.environments import (
    OIDC_PROVIDER,
    PYTHON_V1,
    PYTHON_V2,
    TYPESCRIPT_V1,
    TYPESCRIPT_V2,
    Environment,
)
from tests.interop.serving import HttpServer, calling, free_port, serving
from tests.interop.visiting import LEGACY, MODERN, VISIT_SECONDS, said
from tests.kit.servers import serving as serving_here

HERE = Path(__file__).parent
SCOPE = "notes:read"

eras = pytest.mark.parametrize("revision", [LEGACY, MODERN])


@contextmanager
def authorization_server(folder: Path, *clients: dict[str, Any], path: str = "") -> Iterator[str]:
    """Start oidc-provider with clients that it knows, and return its issuer, which has this path."""
    scratch = folder / "provider"
    scratch.mkdir()
    command = OIDC_PROVIDER.command(HERE / "servers" / "oidc_provider.mjs", scratch)
    # The braces of JSON are doubled because the command is a format.
    known = json.dumps(clients).replace("{", "{{").replace("}", "}}")
    with serving([*command, "{port}", path, known], folder / "provider-log") as server:
        yield server.url(path)


class Page(HTMLParser):
    """The form and the link of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        match tag:
            case "form":
                self.action = given.get("action") or ""
            case "input":
                self.fields[given.get("name") or ""] = given.get("value") or "anything"
            case "a":
                self.links.append(given.get("href") or "")


class User:
    """A user with a browser, who signs in and agrees to everything, or cancels."""

    def __init__(self, issuer: str, *, cancels: bool = False) -> None:
        self.issuer = issuer
        self.cancels = cancels
        self.visits = 0
        #: What the pages asked for.
        self.prompts: list[str] = []

    async def visit(self, url: str) -> str:
        """Open an address, go through all pages, and return where the browser is sent in the end."""
        self.visits += 1
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
            method = "GET"
            fields: dict[str, str] = {}
            while url.startswith(f"{self.issuer}/"):
                async with browser.request(method, url, data=fields or None, allow_redirects=False) as response:
                    text = await response.text()
                    if 300 <= response.status < 400:
                        method, fields, url = "GET", {}, urljoin(url, response.headers["Location"])
                        continue
                    assert response.status == 200, text
                page = Page(text)
                if self.cancels:
                    [link] = [link for link in page.links if link.endswith("/abort")]
                    method, fields, url = "GET", {}, link
                    continue
                self.prompts.append(page.fields["prompt"])
                method, fields, url = "POST", page.fields, page.action
            return url


def protected(issuer: str, resource: str) -> HttpOptions:
    """Return the options of a server that accepts this issuer's tokens for this resource."""
    return HttpOptions(auth=JwtVerifier(issuer=issuer, audience=resource, scopes=[SCOPE]), resource=resource)


def make_server() -> Server:
    server = Server("protected")

    @server.tool
    def whoami(ctx: Context) -> str:
        return str(ctx.principal and ctx.principal.subject)

    @server.tool(scopes=["notes:write"])
    def write() -> str:
        return "written"

    return server


@asynccontextmanager
async def our_server(issuer: str) -> AsyncIterator[str]:
    """Serve a protected server of ours, and return its address."""
    # The resource has its port in its name, so the port has to be known before the server has it.
    url = f"http://127.0.0.1:{free_port()}/mcp"
    async with serving_here(make_server(), url, http=protected(issuer, url)) as [address]:
        assert address == url
        yield url


@eras
@pytest.mark.req("AUT-4", "AUT-7")
async def test_our_client_signs_in_and_refreshes(tmp_path: Path, revision: str) -> None:
    store = FileTokens(tmp_path / "tokens")
    with authorization_server(tmp_path) as issuer:
        async with our_server(issuer) as url:
            user = User(issuer)
            auth = OAuth(store=store, on_visit=user.visit)
            async with calling(url, auth=auth, revisions=[revision]) as client:
                assert said(await client.call_tool("whoami")) == "anything"
            assert user.prompts == ["login", "consent"]
            first = kept(store).grant
            assert first.scopes[0] == SCOPE
            assert first.refresh_token is not None

            age(store, 3600)
            async with calling(url, auth=auth, revisions=[revision]) as client:
                assert said(await client.call_tool("whoami")) == "anything"
            second = kept(store).grant
            assert user.visits == 1
            assert second.access_token != first.access_token
            assert second.refresh_token not in (None, first.refresh_token), "Refresh tokens are rotated."

            assert await revoke_entry(kept(store))
            age(store, 3600)
            async with calling(url, auth=auth, revisions=[revision]) as client:
                assert said(await client.call_tool("whoami")) == "anything"
            assert user.visits == 2, "A session that has ended leads to a new sign-in."
            assert kept(store).grant.client.client_id == first.client.client_id


@eras
@pytest.mark.req("AUT-6")
async def test_a_call_that_needs_more_scopes_leads_to_one_consent_and_goes_on(tmp_path: Path, revision: str) -> None:
    """The provider grants a client no other scopes than those that it has registered."""
    store = FileTokens(tmp_path / "tokens")
    with authorization_server(tmp_path) as issuer:
        async with our_server(issuer) as url:
            user = User(issuer)
            auth = OAuth(store=store, on_visit=user.visit)
            async with calling(url, auth=auth, revisions=[revision]) as client:
                assert said(await client.call_tool("whoami")) == "anything"
                assert "notes:write" not in kept(store).grant.scopes
                results = await asyncio.gather(*(client.call_tool("write") for _ in range(5)))
                assert {said(result) for result in results} == {"written"}
            assert user.visits == 2
            assert {SCOPE, "notes:write"} <= set(kept(store).grant.scopes)
            age(store, 3600)
            async with calling(url, auth=auth, revisions=[revision]) as client:
                assert said(await client.call_tool("write")) == "written"
            assert user.visits == 2, "A refresh keeps all scopes."


async def test_processes_that_share_a_session_use_no_refresh_token_twice(tmp_path: Path) -> None:
    store = FileTokens(tmp_path / "tokens")
    with authorization_server(tmp_path) as issuer:
        async with our_server(issuer) as url:
            user = User(issuer)

            async def use() -> str:
                async with calling(url, auth=OAuth(store=store, on_visit=user.visit)) as client:
                    return said(await client.call_tool("whoami"))

            await use()
            for _ in range(3):
                before = kept(store).grant.refresh_token
                age(store, 3600)
                assert await asyncio.gather(*(use() for _ in range(5))) == ["anything"] * 5
                assert kept(store).grant.refresh_token != before
            # The provider ends a session in which a refresh token is used twice.
            assert user.visits == 1


async def test_a_user_who_cancels(tmp_path: Path) -> None:
    store = FileTokens(tmp_path / "tokens")
    with authorization_server(tmp_path) as issuer:
        async with our_server(issuer) as url:
            user = User(issuer, cancels=True)
            with pytest.raises(AuthorizationError, match=r"did not grant access: .*aborted") as caught:
                async with calling(url, auth=OAuth(store=store, on_visit=user.visit)):
                    pass
            assert caught.value.reason == "denied"
            assert store.names() == []


@pytest.mark.req("AUT-9")
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post", "private_key_jwt"])
async def test_a_program_without_a_user(
    tmp_path: Path, method: Literal["client_secret_basic", "client_secret_post", "private_key_jwt"]
) -> None:
    key = joserfc.jwk.ECKey.generate_key("P-256")
    known: dict[str, Any] = {
        "client_id": "nightly",
        "token_endpoint_auth_method": method,
        "grant_types": ["client_credentials"],
        "redirect_uris": [],
        "response_types": [],
    }
    if method == "private_key_jwt":
        known |= {"jwks": {"keys": [key.as_dict(private=False)]}, "token_endpoint_auth_signing_alg": "ES256"}
        auth = ClientCredentials(client_id="nightly", private_key=key.as_pem(private=True))
    else:
        secret = "a secret: with + and %, which a form has to escape"
        known |= {"client_secret": secret}
        auth = ClientCredentials(client_id="nightly", client_secret=secret)
    with authorization_server(tmp_path, known) as issuer:
        async with our_server(issuer) as url, calling(url, auth=auth) as client:
            assert said(await client.call_tool("whoami")) == "nightly"


@pytest.mark.req("AUT-12")
@pytest.mark.parametrize("is_named", [True, False], ids=["issuer", "no issuer"])
async def test_our_server_asks_about_opaque_tokens(tmp_path: Path, is_named: bool) -> None:
    asking: dict[str, Any] = {"client_id": "resource-server", "client_secret": "a secret of the server"}
    program: dict[str, Any] = {"client_id": "nightly", "client_secret": "a secret of the client"}
    no_user: dict[str, Any] = {"grant_types": ["client_credentials"], "redirect_uris": [], "response_types": []}
    with authorization_server(tmp_path, {**asking, **no_user}, {**program, **no_user}) as issuer:
        url = f"http://127.0.0.1:{free_port()}/opaque"
        verifier = Introspection(
            url=f"{issuer}/token/introspection",
            audience=url,
            issuer=issuer if is_named else None,
            scopes=[SCOPE],
            cache=0,
            **asking,
        )
        http = HttpOptions(auth=verifier, resource=url, authorization_servers=(issuer,))
        async with serving_here(make_server(), url, http=http):
            store = FileTokens(tmp_path / "tokens")
            async with calling(url, auth=OAuth(store=store, on_visit=User(issuer).visit)) as client:
                assert said(await client.call_tool("whoami")) == "anything"
                assert await revoke_entry(kept(store))
                # The provider ends the whole grant, and the server asks about each token.
                store.delete(*store.names())
                assert said(await client.call_tool("whoami")) == "anything"
            async with calling(url, auth=ClientCredentials(**program)) as client:
                assert said(await client.call_tool("whoami")) == "client nightly"


@pytest.mark.parametrize("environment", [PYTHON_V1, PYTHON_V2], ids=lambda each: each.name)
async def test_a_protected_server_of_the_official_sdk(tmp_path: Path, environment: Environment) -> None:
    store = FileTokens(tmp_path / "tokens")
    # Version 1 puts a slash behind an issuer without a path, which is another issuer then.
    with authorization_server(tmp_path, path="/oidc") as issuer:
        user = User(issuer)
        command = environment.command(HERE / "servers" / "python_protected.py", tmp_path)
        with serving([*command, issuer, "{port}"], tmp_path / "sdk-log") as server:
            await _use_sdk_server(server, user, store)


async def _use_sdk_server(server: HttpServer, user: User, store: FileTokens) -> None:
    auth = OAuth(store=store, on_visit=user.visit)
    url = server.url("/mcp")
    async with calling(url, auth=auth) as client:
        assert SCOPE in said(await client.call_tool("whoami")).split()
    age(store, 3600)
    async with calling(url, auth=auth) as client:
        assert SCOPE in said(await client.call_tool("whoami")).split()
    assert user.visits == 1
    assert "refused" not in server.said


@pytest.mark.parametrize(("environment", "version"), [(TYPESCRIPT_V1, "v1"), (TYPESCRIPT_V2, "v2")])
async def test_the_official_client_signs_in_to_our_server(
    tmp_path: Path, environment: Environment, version: str
) -> None:
    scratch = tmp_path / "client"
    scratch.mkdir()
    with authorization_server(tmp_path) as issuer:
        async with our_server(issuer) as url:
            command = environment.command(HERE / "clients" / "typescript_sign_in.mjs", scratch)
            process = await asyncio.create_subprocess_exec(
                *command, version, url, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
            )
            try:
                async with asyncio.timeout(VISIT_SECONDS):
                    assert process.stdout is not None
                    address = (await process.stdout.readline()).decode().strip()
                    query = parse_qs(urlsplit(address).query)
                    assert (query["resource"], query["scope"][0].split()[0]) == ([url], SCOPE)
                    redirect = await User(issuer).visit(address)
                    out, _ = await process.communicate(f"{redirect}\n".encode())
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            assert json.loads(out)["said"] == "anything"
