"""Bearer tokens: authenticate requests, and publish the metadata of the protected resource."""

from __future__ import annotations

import hmac
import inspect
import logging
from hashlib import sha256
from typing import Any

import msgspec

from mcplumb.transports.http_server.asgi_request import HttpRequest, Refusal
from mcplumb.transports.http_server.http_options import HttpOptions, Verify
from mcplumb.wire.messages import INTERNAL_ERROR, INVALID_REQUEST, ErrorDetail

__all__ = ["WELL_KNOWN", "BearerAuth"]

#: The path of the metadata of a protected resource (RFC 9728), followed by the path of the resource.
WELL_KNOWN = "/.well-known/oauth-protected-resource"

_logger = logging.getLogger("mcplumb.http")


class BearerAuth:
    """Checks bearer tokens for one application."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._verify = options.verify
        # Digests have the same length, so comparing them reveals nothing through timing.
        self._digests = [sha256(token.encode()).digest() for token in options.tokens]
        #: Whether requests need a token.
        self.are_needed = bool(options.tokens) or options.verify is not None

    async def principal(self, request: HttpRequest) -> str | None:
        """Return who sent the request; None if no token is needed. Raises `Refusal` without a valid token."""
        if not self.are_needed:
            return None
        scheme, _, token = (request.header("authorization") or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise self._refusal(request, "This server needs a bearer token: send it as 'Authorization: Bearer …'.")
        principal = self._known(token)
        if principal is None and self._verify is not None:
            principal = await _verified(self._verify, token)
        if principal is None:
            raise self._refusal(request, "The bearer token is invalid, or has expired.", error="invalid_token")
        return principal

    def metadata(self, request: HttpRequest) -> bytes:
        """Return the metadata of the protected resource (RFC 9728) as JSON."""
        options = self._options
        document: dict[str, Any] = {
            "resource": self._resource(request),
            "authorization_servers": options.authorization_servers,
            "bearer_methods_supported": ["header"],
        }
        if options.scopes:
            document["scopes_supported"] = options.scopes
        return msgspec.json.encode(document)

    def _known(self, token: str) -> str | None:
        """Return the principal of one of the configured tokens. All are compared, in constant time."""
        digest = sha256(token.encode()).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return f"token {digest.hex()[:16]}" if any(matches) else None

    def _refusal(self, request: HttpRequest, sentence: str, *, error: str | None = None) -> Refusal:
        fields = [] if error is None else [f'error="{error}"']
        if self._options.authorization_servers:
            fields.append(f'resource_metadata="{self._metadata_address(request)}"')
        if self._options.scopes:
            fields.append(f'scope="{" ".join(self._options.scopes)}"')
        challenge = f"Bearer {', '.join(fields)}" if fields else "Bearer"
        return Refusal(
            401,
            ErrorDetail(INVALID_REQUEST, sentence),
            headers=[(b"www-authenticate", challenge.encode("latin-1", "replace"))],
        )

    def _resource(self, request: HttpRequest) -> str:
        return self._options.resource or f"{_base(request)}{self._options.path}"

    def _metadata_address(self, request: HttpRequest) -> str:
        resource, path = self._resource(request), self._options.path
        if resource.endswith(path):
            base = resource.removesuffix(path)
        else:
            # A proxy serves the endpoint at another path, so it also has to route the metadata's path.
            scheme, _, rest = resource.partition("://")
            host, slash, rest = rest.partition("/")
            base, path = f"{scheme}://{host}", f"{slash}{rest}"
        return f"{base}{WELL_KNOWN}{path.rstrip('/')}"


def _base(request: HttpRequest) -> str:
    """Return the URL of the application as its client sees it."""
    host = request.header("host") or "localhost"
    return f"{request.scope.get('scheme', 'http')}://{host}{request.root_path}"


async def _verified(verify: Verify, token: str) -> str | None:
    try:
        answer = verify(token)
        return _checked(await answer if inspect.isawaitable(answer) else answer)
    except Exception as error:
        _logger.exception("The token verifier failed, and the request was refused.")
        raise Refusal(500, ErrorDetail(INTERNAL_ERROR, "The token could not be checked.")) from error


def _checked(principal: object) -> str | None:
    if principal is None or isinstance(principal, str):
        return principal
    raise TypeError(f"A verifier must return the owner of the token as a string, or None, not {type(principal)!r}.")
