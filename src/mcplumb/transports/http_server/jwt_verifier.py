"""`JwtVerifier`: accepts the access tokens of an authorization server that signs them (RFC 9068).

All cryptography is joserfc's, which rests on the ``cryptography`` package; the rules are those of
`protocol.oauth.access_tokens`. The issuer's keys are fetched with the first token and kept.
"""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mcplumb.errors import AuthorizationError, UsageError
from mcplumb.protocol.oauth.access_tokens import (
    ALGORITHMS,
    TokenHeader,
    TokenRules,
    check_claims,
    choose_key,
    find_keys,
    read_claims,
    read_header,
    refused,
)
from mcplumb.protocol.principal import Principal
from mcplumb.transports.http_client.oauth_requests import run_flow
from mcplumb.transports.http_server.shared_task import SharedTask
from mcplumb.transports.http_server.token_verifier import TokenVerifier, audience_set

if TYPE_CHECKING:
    import ssl

__all__ = ["JwtVerifier"]

_logger = logging.getLogger("mcplumb.http")

#: Seconds for fetching the keys. Requests wait meanwhile.
_FETCH_WITHIN = 10.0
#: Seconds after which a failed fetch is tried again.
_RETRY_AFTER = 5.0
#: Bits of an RSA key, at least. Shorter ones can be factored.
_LEAST_BITS = 2048
#: Seconds by which clocks may differ, at most: a token lives that much longer.
_MOST_LEEWAY = 600.0


class JwtVerifier(TokenVerifier):
    """Accepts JWT access tokens of one issuer for this server: ``HttpOptions(auth=JwtVerifier(…))``.

    - ``issuer`` is the URL of the authorization server, exactly as its tokens have it in ``iss``.
    - ``audience`` is what its tokens for this server have in ``aud``: one text, or several of which one must match.
    - ``jwks_url`` is where the issuer publishes its keys; by default its metadata (RFC 8414, OpenID) says so.
    - ``algorithms`` are the accepted signature algorithms. None of them is symmetric.
    - ``scopes`` are needed for every request. Tools, resources and prompts may need more.
    - ``scope_claims`` are the claims that have the scopes, as text or as a list.
    - ``types`` are the accepted types of tokens (``typ``); ``jwt`` also accepts tokens without one.
    - ``leeway`` is how many seconds clocks may differ.
    - ``keys_for`` is how many seconds keys are kept before they are fetched again, and ``new_keys_every`` the minimum
      of seconds between two fetches: a token with an unknown key id causes one, but no flood of them does.
    - ``tls`` is for an issuer with certificates of its own: see ``client_tls``.

    Tokens that are bound to a key (``cnf``: DPoP, mutual TLS) are refused.
    """

    def __init__(
        self,
        *,
        issuer: str,
        audience: str | Sequence[str],
        jwks_url: str | None = None,
        algorithms: Sequence[str] = tuple(ALGORITHMS),
        scopes: Sequence[str] = (),
        scope_claims: Sequence[str] = ("scope", "scp"),
        types: Sequence[str] = ("at+jwt", "jwt"),
        leeway: float = 30.0,
        keys_for: float = 3600.0,
        new_keys_every: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        _check_joserfc()
        super().__init__(issuer=issuer, scopes=scopes, jwks_url=jwks_url)
        unknown = set(algorithms) - set(ALGORITHMS)
        if unknown or isinstance(algorithms, str) or not algorithms:
            raise UsageError(
                f"The algorithms {sorted(unknown or algorithms)} cannot be used: choose from {', '.join(ALGORITHMS)}."
            )
        if not 0 <= leeway <= _MOST_LEEWAY:
            raise UsageError(f"The leeway is {leeway!r}: it must be a number of seconds from 0 to {_MOST_LEEWAY:g}.")
        if not (0 < keys_for < float("inf") and 0 < new_keys_every < float("inf")):
            raise UsageError("keys_for and new_keys_every must be finite numbers of seconds, above 0.")
        self._rules = TokenRules(
            issuer=issuer,
            audiences=audience_set(audience),
            algorithms=frozenset(algorithms),
            types=frozenset(kind.lower() for kind in types),
            scope_claims=tuple(scope_claims),
            leeway=leeway,
        )
        self._keys = _IssuerKeys(issuer, jwks_url, keys_for=keys_for, new_keys_every=new_keys_every, tls=tls)

    def __repr__(self) -> str:
        return f"JwtVerifier(issuer={self._rules.issuer!r}, audience={sorted(self._rules.audiences or ())!r})"

    async def __call__(self, token: str) -> Principal:
        """Return who a token belongs to.

        Raises `AuthorizationError`, with the reason ``invalid_token`` or, if there are no keys, another one.
        """
        header = read_header(token, self._rules)
        claims = read_claims(_verified(token, header, await self._keys.find(header)))
        return check_claims(claims, self._rules, now=time.time())


def _check_joserfc() -> None:
    try:
        import joserfc  # noqa: F401
    except ModuleNotFoundError:
        raise UsageError("A JwtVerifier needs joserfc: pip install 'mcplumb[auth]'") from None


def _verified(token: str, header: TokenHeader, key: Any) -> bytes:
    """Return the payload of a token whose signature is right."""
    from joserfc import jws
    from joserfc.errors import JoseError, SecurityWarning

    # Only what a signature says counts, so headers that nothing here reads are ignored.
    registry = jws.JWSRegistry(algorithms=[header.algorithm], strict_check_header=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)  # the name EdDSA is deprecated, but not the algorithm
        try:
            signed = jws.deserialize_compact(token, key, algorithms=[header.algorithm], registry=registry)
        except (JoseError, ValueError):
            raise refused("The signature of the access token is not that of its issuer.") from None
    payload: bytes = signed.payload
    return payload


# The issuer's keys


class _IssuerKeys:
    """The keys of one issuer. Concurrent requests share one fetch, and there is at most one per interval."""

    def __init__(
        self,
        issuer: str,
        url: str | None,
        *,
        keys_for: float,
        new_keys_every: float,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._issuer = issuer
        self._url = url
        self._keys_for = keys_for
        self._interval = new_keys_every
        self._tls = tls
        #: The published keys, and the same as joserfc has them, by their position.
        self._published: list[dict[str, Any]] | None = None
        self._imported: dict[int, Any] = {}
        #: When keys were fetched the last time, and when that was tried, by the monotonic clock.
        self._fetched_at = self._tried_at = float("-inf")
        self._failure: AuthorizationError | None = None
        self._fetching: SharedTask[None] | None = None

    async def find(self, header: TokenHeader) -> Any:
        """Return the key that a token names; raise `AuthorizationError` if there is none, or none can be fetched."""
        if self._published is None:
            await self._refresh()
        elif time.monotonic() - self._fetched_at >= self._keys_for and self._may_try() and not self._is_fetching:
            try:
                await self._refresh()
            except AuthorizationError as error:
                _logger.warning("The keys of %s are kept, because new ones cannot be had. %s", self._issuer, error)
        key = self._choose(header)
        if key is None:
            await self._refresh()
            key = self._choose(header)
        if key is None:
            raise refused("The access token is signed with a key that its issuer does not publish.")
        return key

    @property
    def _is_fetching(self) -> bool:
        return self._fetching is not None and not self._fetching.is_over

    def _may_try(self) -> bool:
        interval = self._interval if self._failure is None else min(self._interval, _RETRY_AFTER)
        return time.monotonic() - self._tried_at >= interval

    async def _refresh(self) -> None:
        """Fetch the keys, or wait for the fetch that is under way. Raises what failed, now or in this interval."""
        fetching = self._fetching
        if fetching is None or fetching.is_over:
            if not self._may_try():
                if self._failure is not None:
                    raise AuthorizationError(self._failure.reason, str(self._failure), issuer=self._issuer)
                return
            fetching = self._fetching = SharedTask(self._fetch())
        await fetching.result()

    async def _fetch(self) -> None:
        # What a request finds in this interval if this one is cancelled.
        self._failure = AuthorizationError("unreachable", f"The keys of {self._issuer} could not be fetched.")
        try:
            async with asyncio.timeout(_FETCH_WITHIN):
                published = await run_flow(find_keys(self._issuer, self._url), tls=self._tls)
            self._published, self._imported = published, {}
            self._failure = None
            self._fetched_at = time.monotonic()
            _logger.info("Fetched %d keys of %s.", len(published), self._issuer)
        except TimeoutError:
            sentence = f"{self._issuer} did not send its keys within {_FETCH_WITHIN:g} s."
            self._failure = AuthorizationError("unreachable", sentence, issuer=self._issuer)
            raise self._failure from None
        except AuthorizationError as error:
            self._failure = error
            raise
        finally:
            self._tried_at = time.monotonic()

    def _choose(self, header: TokenHeader) -> Any:
        published = self._published or []
        chosen = choose_key(published, header)
        if chosen is None:
            return None
        at = published.index(chosen)
        key = self._imported.get(at)
        if key is None:
            key = self._imported[at] = _imported(chosen)
        return key


def _imported(published: dict[str, Any]) -> Any:
    """Return a published key as joserfc has it; raise `AuthorizationError` if it is unusable."""
    from joserfc.errors import JoseError, SecurityWarning
    from joserfc.jwk import import_key

    # Without what a provider adds, so that only the key itself has to be right.
    members: dict[str, Any] = {
        name: published[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in published
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)  # short keys are refused here
        try:
            key: Any = import_key(members)
            raw = key.public_key
        except (JoseError, ValueError, TypeError, KeyError):
            raise refused("The access token is signed with a key that cannot be read.") from None
    if members["kty"] == "RSA" and raw.key_size < _LEAST_BITS:
        raise refused(f"The access token is signed with an RSA key of less than {_LEAST_BITS} bits.")
    return key
