"""An authorization server for tests, over real HTTP: registration, codes with PKCE, rotated refresh tokens.

It is strict: a code or a refresh token that is used twice ends the session that it belongs to, and is counted.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from tests.client.auth.proofs import proven_key


class AuthorizationServer:
    """Grants everything to everybody, and remembers whom."""

    def __init__(self) -> None:
        self.issuer = ""
        self.lifetime = 3600
        self.gives_refresh_tokens = True
        #: What is granted, whatever is asked for, and whether the answer says so.
        self.grants: str | None = None
        self.names_scopes = False
        self.metadata: dict[str, Any] = {}
        #: The redirect's error, instead of a code.
        self.denial: str | None = None
        #: The status of every answer to a refresh or to a client that authorizes itself, instead of a token.
        self.refuses: int | None = None
        #: The status and the error of the refusal of a code or a refresh token.
        self.refusal = (400, "invalid_grant")
        #: Further fields of the answer to a registration.
        self.registers: dict[str, Any] = {}
        #: The assertions that it takes, and the tokens that it exchanges for one.
        self.assertions: set[str] = set()
        self.subject_tokens: set[str] = set()
        #: Whether it binds tokens to the key of a proof (DPoP), and those of access tokens, by their thumbprints.
        self.binds = False
        self.bound: dict[str, str] = {}
        #: Clients that are not known any more.
        self.forgotten: set[str] = set()
        #: Whether refusals quote the whole request, secrets included.
        self.quotes = False
        #: Called before the metadata is sent.
        self.before_metadata: Callable[[], Awaitable[object]] | None = None
        #: Called before a refresh is answered.
        self.before_refresh: Callable[[], Awaitable[None]] | None = None
        self.clients: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        #: By access token: the scope.
        self.tokens: dict[str, str] = {}
        #: By refresh token: the session that it belongs to. Used ones stay.
        self.refresh_tokens: dict[str, str] = {}
        self.used: set[str] = set()
        self.ended: set[str] = set()
        self.requests: list[tuple[str, dict[str, str]]] = []

    @property
    def refreshes(self) -> int:
        return sum(fields.get("grant_type") == "refresh_token" for path, fields in self.requests if path == "/token")

    async def _metadata(self, request: web.Request) -> web.Response:
        if self.before_metadata is not None:
            await self.before_metadata()
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "registration_endpoint": f"{self.issuer}/register",
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
                "authorization_response_iss_parameter_supported": True,
                **({"dpop_signing_alg_values_supported": ["RS256", "ES256"]} if self.binds else {}),
                **self.metadata,
            }
        )

    async def _register(self, request: web.Request) -> web.Response:
        client_id = f"client-{len(self.clients)}"
        self.clients[client_id] = await request.json()
        return web.json_response({"client_id": client_id, **self.registers}, status=201)

    async def _authorize(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        self.requests.append(("/authorize", query))
        if query["client_id"] in self.forgotten:
            return web.Response(status=400, text="There is no such client.")
        answer = {"state": query["state"], "iss": self.issuer}
        if self.denial is not None:
            answer["error"] = self.denial
        else:
            code = answer["code"] = f"code-{secrets.token_hex(8)}"
            self.codes[code] = query
        raise web.HTTPFound(f"{query['redirect_uri']}?{urlencode(answer)}")

    async def _token(self, request: web.Request) -> web.Response:
        fields = {name: str(value) for name, value in (await request.post()).items()}
        self.requests.append(("/token", fields))
        if _client_of(request, fields) in self.forgotten:
            return web.json_response({"error": "invalid_client"}, status=401)
        key = proven_key(request.headers.get("DPoP"), "POST", f"{self.issuer}/token") if self.binds else None
        match fields["grant_type"]:
            case "authorization_code":
                asked = self.codes.pop(fields["code"], {})
                digest = sha256(fields["code_verifier"].encode()).digest()
                if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked.get("code_challenge"):
                    return self._refusal(request, fields)
                return self._grant(secrets.token_hex(8), asked.get("scope", ""), key)
            case "refresh_token" | "client_credentials" if self.refuses is not None:
                return web.Response(status=self.refuses)
            case "refresh_token":
                if self.before_refresh is not None:
                    await self.before_refresh()
                token = fields["refresh_token"]
                session = self.refresh_tokens.get(token)
                if session is None or token in self.used or session in self.ended:
                    self.ended.add(session or "")
                    return self._refusal(request, fields)
                self.used.add(token)
                return self._grant(session, "", key)
            case "client_credentials":
                return self._grant(None, fields.get("scope", ""), key)
            case "urn:ietf:params:oauth:grant-type:jwt-bearer" if fields["assertion"] in self.assertions:
                return self._grant(None, fields.get("scope", ""), key)
            case "urn:ietf:params:oauth:grant-type:token-exchange" if fields["subject_token"] in self.subject_tokens:
                issued = f"assertion-{secrets.token_hex(8)}"
                self.assertions.add(issued)
                kind = fields["requested_token_type"]
                return web.json_response({"access_token": issued, "token_type": "N_A", "issued_token_type": kind})
        return web.json_response({"error": "unsupported_grant_type"}, status=400)

    def _refusal(self, request: web.Request, fields: dict[str, str]) -> web.Response:
        status, error = self.refusal
        answer = {"error": error}
        if self.quotes:
            sent = [request.headers.get("Authorization", ""), *fields.values()]
            answer["error_description"] = f"You sent {' and '.join(sent)}"
        return web.json_response(answer, status=status)

    def _grant(self, session: str | None, scope: str, key: str | None) -> web.Response:
        access, answer = f"access-{secrets.token_hex(8)}", {"token_type": "Bearer"}
        if key is not None:
            answer["token_type"] = "DPoP"
            self.bound[access] = key
        self.tokens[access] = scope if self.grants is None else self.grants
        if session is not None and self.gives_refresh_tokens:
            answer["refresh_token"] = f"refresh-{secrets.token_hex(8)}"
            self.refresh_tokens[answer["refresh_token"]] = session
        if self.names_scopes:
            answer["scope"] = self.tokens[access]
        return web.json_response({"access_token": access, "expires_in": self.lifetime, **answer})

    async def _revoke(self, request: web.Request) -> web.Response:
        fields = {name: str(value) for name, value in (await request.post()).items()}
        self.requests.append(("/revoke", fields))
        return web.Response()

    @asynccontextmanager
    async def running(
        self, **pages: Callable[[web.Request], Awaitable[web.Response]]
    ) -> AsyncIterator[AuthorizationServer]:
        """Serve on loopback, with further pages."""
        app = web.Application()
        for name, page in pages.items():
            app.router.add_get(f"/{name}", page)
        app.router.add_get("/.well-known/oauth-authorization-server", self._metadata)
        app.router.add_post("/register", self._register)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        app.router.add_post("/revoke", self._revoke)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()


def _client_of(request: web.Request, fields: dict[str, str]) -> str:
    """Return the client that a token request names, in a field or with Basic authentication."""
    pair = request.headers.get("Authorization", "").removeprefix("Basic ")
    return fields.get("client_id") or base64.b64decode(pair).decode().partition(":")[0]
