"""Bearer tokens: authenticate requests, check their scopes, and publish the metadata of the protected resource."""

from __future__ import annotations

import hmac
import inspect
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from mcplumb.errors import AuthorizationError
from mcplumb.protocol.oauth.challenge import format_challenge
from mcplumb.protocol.principal import Principal
from mcplumb.transports.http_server.asgi_request import HttpRequest, Refusal
from mcplumb.transports.http_server.auth.token_verifier import TokenVerifier
from mcplumb.transports.http_server.http_options import Authenticate, HttpOptions
from mcplumb.wire.message_decoder import BadMessage, Batch
from mcplumb.wire.messages import INTERNAL_ERROR, INVALID_REQUEST, ErrorDetail, Message, Request

if TYPE_CHECKING:
    from mcplumb.stores.shared_store import RecordStore

__all__ = ["MAX_TOKEN", "WELL_KNOWN", "BearerAuth", "NeededScopes"]

#: The path of the metadata of a protected resource (RFC 9728), followed by the path of the resource.
WELL_KNOWN = "/.well-known/oauth-protected-resource"

#: Bytes of a token; longer ones are refused before anything reads them. Those of large providers, with a user's groups,
#: have up to ten thousand.
MAX_TOKEN = 16 * 1024

#: Returns the scopes that a request needs besides those that every request needs.
NeededScopes: TypeAlias = Callable[[Request], Iterable[str]]

_logger = logging.getLogger("mcplumb.http")

#: The characters of a token that is not one of the configured ones (RFC 6750, section 2.1).
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
#: The issuer of the configured tokens: no principal of another one has the same identity.
_STATIC = "mcplumb:tokens"
#: Seconds after which a client may try again while tokens cannot be checked.
_RETRY_AFTER = b"5"


class BearerAuth:
    """Checks bearer tokens and their scopes for one application."""

    def __init__(self, options: HttpOptions, needed_scopes: NeededScopes = lambda _: ()) -> None:
        self._options = options
        self._auth = options.auth
        self._needed_scopes = needed_scopes
        # Digests have the same length, so comparing them reveals nothing through timing.
        self._digests = [sha256(token.encode()).digest() for token in options.tokens]
        verifier = self._verifier = options.auth if isinstance(options.auth, TokenVerifier) else None
        self._included = _closure(options.included_scopes)
        #: Whether requests need a token.
        self.are_needed = options.needs_tokens
        #: The authorization servers that the metadata names.
        self.issuers: tuple[str, ...] = options.authorization_servers or (() if verifier is None else verifier.issuers)
        #: The scopes that every request needs, and those that clients should request.
        self._required: tuple[str, ...] = () if verifier is None else verifier.scopes
        self._advised = tuple(dict.fromkeys((*self._required, *options.scopes)))

    def share(self, store: RecordStore | None) -> None:
        """Let the verifier share what it may with other replicas; None ends that."""
        if self._verifier is not None:
            self._verifier.share(store)

    async def close(self) -> None:
        """End what the verifier has begun for requests that are gone."""
        if self._verifier is not None:
            await self._verifier.close()

    async def principal(self, request: HttpRequest) -> Principal | None:
        """Return who sent the request; None if no token is needed. Raises `Refusal` without a valid token."""
        if not self.are_needed:
            return None
        scheme, _, token = (request.header("authorization") or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise self._unauthorized(request, "This server needs a bearer token: send it as 'Authorization: Bearer …'.")
        principal = self._known(token)
        if principal is not None:
            return principal
        if len(token) > MAX_TOKEN or not _TOKEN.fullmatch(token):
            raise self._unauthorized(request, "The bearer token is invalid.", error="invalid_token")
        if self._auth is not None:
            principal = await self._authenticated(request, self._auth, token)
        if principal is None or _has_ended(principal):
            sentence = "The bearer token is invalid, or has expired."
            raise self._unauthorized(request, sentence, error="invalid_token")
        if self._included:
            principal = msgspec.structs.replace(principal, scopes=self._with_included(principal.scopes))
        if not principal.scopes.issuperset(self._required):
            raise self._forbidden(request, self._required)
        return principal

    def check_scopes(self, request: HttpRequest, item: Message | BadMessage | Batch) -> None:
        """Raise `Refusal` if a posted message needs scopes that the token of its request does not have."""
        principal = request.principal
        for message in item.items if isinstance(item, Batch) else (item,):
            if isinstance(message, Request) and (needed := tuple(self._needed_scopes(message))):
                if not self.are_needed:
                    sentence = "This needs an access token, and the server is not set up to check any: set auth."
                    raise Refusal(403, ErrorDetail(INVALID_REQUEST, sentence), request_id=message.id)
                if principal is None or not principal.scopes.issuperset(needed):
                    refusal = self._forbidden(request, tuple(dict.fromkeys((*self._required, *needed))))
                    refusal.request_id = message.id
                    raise refusal

    def metadata(self, request: HttpRequest) -> bytes:
        """Return the metadata of the protected resource (RFC 9728) as JSON."""
        document: dict[str, Any] = {
            "resource": self._resource(request),
            "authorization_servers": self.issuers,
            "bearer_methods_supported": ["header"],
        }
        if self._advised:
            document["scopes_supported"] = self._advised
        return msgspec.json.encode(document)

    def _known(self, token: str) -> Principal | None:
        """Return the principal of one of the configured tokens. All are compared, in constant time."""
        digest = sha256(token.encode()).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if not any(matches):
            return None
        scopes = self._with_included(frozenset(self._advised))
        return Principal(f"token {digest.hex()[:16]}", scopes=scopes, issuer=_STATIC)

    async def _authenticated(self, request: HttpRequest, auth: Authenticate, token: str) -> Principal | None:
        try:
            answer = auth(token)
            return _checked(await answer if inspect.isawaitable(answer) else answer)
        except AuthorizationError as error:
            if error.reason == "invalid_token":
                _logger.info("A token was refused. %s", error)
                raise self._unauthorized(request, str(error), error="invalid_token") from None
            _logger.warning("A token could not be checked, and the request was refused. %s", error)
            # No JSON-RPC error: clients would take that for an answer of the server.
            sentence = "The access token cannot be checked at present. Try again later."
            raise Refusal(503, sentence, headers=[(b"retry-after", _RETRY_AFTER)]) from None
        except Exception as error:
            _logger.exception("The token could not be checked, and the request was refused.")
            raise Refusal(500, ErrorDetail(INTERNAL_ERROR, "The token could not be checked.")) from error

    def _with_included(self, scopes: frozenset[str]) -> frozenset[str]:
        return scopes.union(*(self._included[scope] for scope in scopes if scope in self._included))

    # Challenges

    def _unauthorized(self, request: HttpRequest, sentence: str, *, error: str | None = None) -> Refusal:
        return self._refusal(request, 401, sentence, error, self._advised)

    def _forbidden(self, request: HttpRequest, needed: tuple[str, ...]) -> Refusal:
        sentence = f"The access token does not allow this: it needs the scopes {' '.join(needed)}."
        return self._refusal(request, 403, sentence, "insufficient_scope", needed)

    def _refusal(
        self, request: HttpRequest, status: int, sentence: str, error: str | None, scopes: tuple[str, ...]
    ) -> Refusal:
        fields = {} if error is None else {"error": error}
        if self.issuers:
            fields["resource_metadata"] = self._metadata_address(request)
        if scopes:
            fields["scope"] = " ".join(scopes)
        challenge = format_challenge("Bearer", fields)
        return Refusal(
            status,
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


def _has_ended(principal: Principal) -> bool:
    return principal.expires_at is not None and principal.expires_at <= time.time()


def _checked(principal: object) -> Principal | None:
    if principal is None or isinstance(principal, Principal):
        return principal
    raise TypeError(f"The function for auth must return a Principal, or None, not {type(principal)!r}.")


def _closure(included: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """Return, for each scope, all that it includes, also through others."""
    found = {}
    for scope in included:
        reached: set[str] = set()
        queue = [scope]
        while queue:
            for each in included.get(queue.pop(), ()):
                if each not in reached:
                    reached.add(each)
                    queue.append(each)
        found[scope] = frozenset(reached)
    return found
