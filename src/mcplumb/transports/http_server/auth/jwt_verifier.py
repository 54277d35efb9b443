"""`JwtVerifier`: accepts the access tokens of an authorization server that signs them (RFC 9068).

All cryptography is joserfc's, which rests on the ``cryptography`` package; the rules are those of
`protocol.oauth.access_tokens`, and the keys come from `issuer_keys`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mcplumb.errors import UsageError
from mcplumb.protocol.oauth.access_tokens import (
    ALGORITHMS,
    TokenHeader,
    TokenRules,
    check_claims,
    read_claims,
    read_header,
    refused,
)
from mcplumb.protocol.principal import Principal
from mcplumb.transports.http_server.auth.issuer_keys import IssuerKeys
from mcplumb.transports.http_server.auth.token_verifier import TokenVerifier, audience_set

if TYPE_CHECKING:
    import ssl

    from mcplumb.stores.shared_store import RecordStore

__all__ = ["JwtVerifier"]

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
        self._keys = IssuerKeys(issuer, jwks_url, keys_for=keys_for, new_keys_every=new_keys_every, tls=tls)

    def __repr__(self) -> str:
        return f"JwtVerifier(issuer={self._rules.issuer!r}, audience={sorted(self._rules.audiences or ())!r})"

    def share(self, store: RecordStore | None) -> None:
        """Share the issuer's keys, which are public, with other replicas: one fetch is enough for all."""
        self._keys.share(store)

    async def close(self) -> None:
        """End a fetch of the issuer's keys that no request waits for."""
        await self._keys.close()

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
