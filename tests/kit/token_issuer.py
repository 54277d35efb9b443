"""An authorization server whose access tokens are JWTs, with its keys over real HTTP."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from joserfc import jws, jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from mcplumb import AuthorizationError, JwtVerifier
from tests.client.auth.authorization_server import AuthorizationServer

#: The audience of the tokens.
AUDIENCE = "https://notes.example/mcp"

_KINDS: dict[str, Any] = {
    "EC": (ECKey, "P-256", "ES256"),
    "RSA": (RSAKey, 2048, "RS256"),
    "OKP": (OKPKey, "Ed25519", "Ed25519"),
}


class Key:
    """A private key, and the id under which its public half is published."""

    def __init__(self, key_id: str | None = "one", kind: str = "EC", size: Any = None) -> None:
        made, usual, self.algorithm = _KINDS[kind]
        self.key = made.generate_key(size or usual)
        self.id = key_id

    @property
    def public(self) -> dict[str, Any]:
        named = {} if self.id is None else {"kid": self.id}
        return {**self.key.as_dict(private=False), **named, "use": "sig"}

    def sign(self, header: dict[str, Any], claims: dict[str, Any] | bytes) -> str:
        """Return a token with any header and payload, for keys of the kind EC. (joserfc refuses to make some.)"""
        text = f"{encoded(header)}.{encoded(claims)}"
        r, s = decode_dss_signature(self.key.private_key.sign(text.encode(), ECDSA(SHA256())))
        return f"{text}.{encoded(r.to_bytes(32) + s.to_bytes(32))}"


def encoded(value: Any) -> str:
    """Return a part of a JWT."""
    data = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class TokenIssuer(AuthorizationServer):
    """Issues tokens to everybody, with whatever is asked for, and counts how often its keys are fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = [Key()]
        self.audience = AUDIENCE
        self.subject = "ann"
        #: The scopes that were granted so far.
        self.granted: list[str] = []
        self.fetches = 0
        self.visits: list[str] = []
        #: Members of the documents, in place of the usual ones; and their status.
        self.keys_document: dict[str, Any] = {}
        self.status = 200
        #: Called before the keys are sent.
        self.before_keys: Callable[[], Awaitable[object]] | None = None
        #: Whether its metadata is at the OpenID address, and not at that of RFC 8414.
        self.is_openid = False

    def claims(self, **claims: Any) -> dict[str, Any]:
        now = int(time.time())
        usual = {
            "iss": self.issuer, "aud": self.audience, "sub": self.subject, "iat": now, "exp": now + 3600,
            "client_id": "tests",
        }  # fmt: skip
        return {name: value for name, value in {**usual, **claims}.items() if value is not None}

    def token(self, *, key: Key | None = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a signed token. What is None is left out."""
        key = key or self.keys[0]
        fields = {"alg": key.algorithm, "typ": "at+jwt", "kid": key.id, **(header or {})}
        fields = {name: value for name, value in fields.items() if value is not None}
        registry = jws.JWSRegistry(algorithms=[fields["alg"]], strict_check_header=False)
        return jwt.encode(fields, self.claims(**claims), key.key, algorithms=[fields["alg"]], registry=registry)

    async def _jwks(self, request: web.Request) -> web.Response:
        self.fetches += 1
        if self.before_keys is not None:
            await self.before_keys()
        return web.json_response({"keys": [key.public for key in self.keys], **self.keys_document}, status=self.status)

    async def _metadata(self, request: web.Request) -> web.Response:
        self.visits.append(request.path)
        self.metadata.setdefault("jwks_uri", f"{self.issuer}/jwks")
        if ("openid" in request.path) != self.is_openid:
            return web.Response(status=404)
        return await super()._metadata(request)

    def _grant(self, session: str | None, scope: str, key: str | None) -> web.Response:
        self.granted.append(scope)
        return web.json_response({
            "access_token": self.token(scope=scope), "token_type": "Bearer", "expires_in": 3600, "scope": scope,
        })  # fmt: skip

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[TokenIssuer]:
        """Serve on loopback."""
        pages: dict[str, Any] = {"jwks": self._jwks, ".well-known/openid-configuration": self._metadata}
        async with self.running(**pages):
            yield self


def verifier_of(issuer: TokenIssuer, **options: Any) -> JwtVerifier:
    """Return a verifier of its tokens."""
    return JwtVerifier(**{"issuer": issuer.issuer, "audience": AUDIENCE, **options})


async def refusal(verifier: JwtVerifier, token: str) -> AuthorizationError:
    """Return why a token does not pass."""
    with pytest.raises(AuthorizationError) as caught:
        await verifier(token)
    return caught.value
