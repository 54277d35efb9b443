"""Tokens: the grants of an authorization server, and the requests to its token endpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import msgspec

from mcplumb.errors import AuthorizationError
from mcplumb.protocol.oauth.client_identity import (
    ClientIdentity,
    SignAssertion,
    as_number,
    authenticate,
    is_expired,
    named_scopes,
    told_by,
    without_secrets,
)
from mcplumb.protocol.oauth.discovery import ServerMetadata, read_document
from mcplumb.protocol.oauth.steps import Answer, Flow, RandomBytes, form_post, hidden

__all__ = [
    "DPOP_ALGORITHM",
    "MAX_LIFETIME",
    "REFRESH_AHEAD",
    "DpopProver",
    "Grant",
    "GrantRefused",
    "MakeProver",
    "exchange_token",
    "request_token",
]

#: Longest lifetime that is believed; a token that is said to live longer is refreshed after this, in seconds.
MAX_LIFETIME = 10 * 365 * 86400.0
#: A token is refreshed this long before it expires, or at three quarters of a shorter life, in seconds.
REFRESH_AHEAD = 60.0
#: The algorithm of the DPoP proofs that clients make.
DPOP_ALGORITHM = "ES256"


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A grant of one authorization server for one resource. It is stored, and used for this resource only."""

    issuer: str
    resource: str
    client: ClientIdentity
    access_token: str
    token_endpoint: str
    revocation_endpoint: str | None = None
    #: "Bearer" or "DPoP".
    token_type: str = "Bearer"  # noqa: S105
    refresh_token: str | None = None
    #: The scopes that were requested: a later request adds to them.
    scopes: tuple[str, ...] = ()
    #: The scopes that were granted; None if the server did not say, which means all that were requested.
    granted_scopes: tuple[str, ...] | None = None
    #: When it was granted and when it expires, in seconds since the epoch; None if the server did not say.
    granted_at: float = 0.0
    expires_at: float | None = None
    #: Where a challenge of the server said that its metadata is: later challenges may leave it out.
    resource_metadata: str | None = None

    def __repr__(self) -> str:
        return (
            f"Grant(issuer={self.issuer!r}, resource={self.resource!r}, client={self.client!r}, "
            f"access_token={hidden(self.access_token)}, refresh_token={hidden(self.refresh_token)}, "
            f"scopes={self.scopes!r}, expires_at={self.expires_at!r})"
        )

    @property
    def allows(self) -> tuple[str, ...]:
        """The scopes that its tokens have, as far as the server has said."""
        return self.scopes if self.granted_scopes is None else self.granted_scopes

    @property
    def ends_at(self) -> float | None:
        """When it is of no use any more; None if it can be refreshed, or the server did not say."""
        return self.expires_at if self.refresh_token is None else None

    def is_over(self, now: float) -> bool:
        """Return whether the access token has expired, and nothing can renew it."""
        return self.ends_at is not None and now >= self.ends_at

    def is_fresh(self, now: float) -> bool:
        """Return whether the access token can be used; False from shortly before it expires."""
        if self.expires_at is None:
            return True
        ahead = min(REFRESH_AHEAD, max(0.0, self.expires_at - self.granted_at) / 4)
        return now < self.expires_at - ahead


class DpopProver(Protocol):
    """Makes the proofs that a request comes from the holder of a key (DPoP, RFC 9449)."""

    def proof(self, method: str, url: str, *, now: float, nonce: str | None, access_token: str | None) -> str:
        """Return a fresh proof for one request."""


#: Makes a prover with a new key, for a resource that requires one.
MakeProver: TypeAlias = Callable[[], DpopProver]


#: The error for a refresh token that has ended; GitHub and Slack have their own.
_DEAD = frozenset(("invalid_grant", "bad_refresh_token", "invalid_refresh_token"))
#: The errors of a server that may grant the same request later.
_PASSING = frozenset(("server_error", "temporarily_unavailable"))


class GrantRefused(AuthorizationError):
    """The token endpoint refused: ``error`` is its OAuth error code, for example ``invalid_grant``."""

    def __init__(self, error: str, sentence: str, *, issuer: str) -> None:
        self.error = error
        super().__init__("refused", sentence, issuer=issuer)

    @property
    def is_of_grant(self) -> bool:
        """Whether the refused code or refresh token is of no use any more, which only another sign-in changes."""
        return self.error in _DEAD


class _TokenAnswer(msgspec.Struct, frozen=True):
    """A successful answer of a token endpoint."""

    access_token: str
    token_type: str = "Bearer"  # noqa: S105
    expires_in: object = None
    refresh_token: str | None = None
    scope: object = None
    issued_token_type: str | None = None


#: The fields of a token request that are secret.
_SECRET_FIELDS = frozenset(
    {"assertion", "client_assertion", "client_secret", "code", "code_verifier", "refresh_token", "subject_token"}
)


class _TokenError(msgspec.Struct, frozen=True):
    error: str = ""
    access_token: object = None


def _fetch_token(
    metadata: ServerMetadata,
    client: ClientIdentity,
    fields: Mapping[str, str],
    *,
    now: float,
    random: RandomBytes,
    sign: SignAssertion | None,
    prover: DpopProver | None,
    what: str,
) -> Flow[tuple[_TokenAnswer, float]]:
    """Send one request to the token endpoint; return the answer, and when it arrived."""
    if is_expired(client, now):
        raise GrantRefused(
            "invalid_client", f"The secret of the client {client.client_id!r} has expired.", issuer=metadata.issuer
        )
    purpose = "a token request"
    url = metadata.token_endpoint
    nonce: str | None = None
    while True:
        credentials, headers = authenticate(client, metadata, now=now, random=random, sign=sign)
        if prover is not None:
            headers["dpop"] = prover.proof("POST", url, now=now, nonce=nonce, access_token=None)
        answer: Answer = yield form_post(url, purpose, {**fields, **credentials}, headers)
        now = answer.at
        if answer.status == 200 and not _is_refusal(answer):
            break
        secrets = [value for name, value in {**fields, **credentials}.items() if name in _SECRET_FIELDS]
        secrets += [client.client_secret or "", *(value.rpartition(" ")[2] for value in headers.values())]
        code = without_secrets(_token_error(answer).error, secrets)
        # A server may answer the first proof with a nonce that the next one must have (RFC 9449, section 8).
        was, nonce = nonce, answer.headers.get("dpop-nonce")
        if prover is None or code != "use_dpop_nonce" or nonce is None or was is not None:
            who, why = f"The authorization server {metadata.issuer}", told_by(answer, secrets)
            if code in _PASSING or (not code and (answer.status >= 500 or answer.status == 429)):
                raise AuthorizationError("unreachable", f"{who} failed {what}: {why}.", issuer=metadata.issuer)
            raise GrantRefused(code, f"{who} refused {what}: {why}.", issuer=metadata.issuer)
    document = read_document(answer, f"the token of {metadata.issuer}")
    given = {name: value for name, value in document.items() if value is not None}
    try:
        token = msgspec.convert(given, _TokenAnswer)
    except msgspec.ValidationError as error:
        raise AuthorizationError(
            "document", f"The token that {metadata.issuer} sent cannot be used: {error}.", issuer=metadata.issuer
        ) from None
    return token, now


def _is_refusal(answer: Answer) -> bool:
    """Return whether an answer with the status of a success is a refusal, as from GitHub."""
    error = _token_error(answer)
    return bool(error.error) and error.access_token is None


def _token_error(answer: Answer) -> _TokenError:
    try:
        return msgspec.json.decode(answer.body[:65536], type=_TokenError)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _TokenError()


def request_token(
    metadata: ServerMetadata,
    client: ClientIdentity,
    fields: Mapping[str, str],
    *,
    resource: str,
    scopes: tuple[str, ...],
    now: float,
    random: RandomBytes,
    sign: SignAssertion | None = None,
    prover: DpopProver | None = None,
    what: str = "to grant a token",
) -> Flow[Grant]:
    """Request an access token for one resource, and return what was granted."""
    asked = {**fields, "resource": resource}
    token, at = yield from _fetch_token(
        metadata, client, asked, now=now, random=random, sign=sign, prover=prover, what=what
    )
    kind = token.token_type.lower()
    # Who asked for a token that is bound to a key does not take one that anybody can use.
    if kind != ("bearer" if prover is None else "dpop"):
        # Other types are not quoted, because a broken server may put a secret there.
        named = f"the type {kind!r}" if kind in ("bearer", "dpop") else "an unknown type"
        wanted = "" if prover is None else ": one that is bound to a key (DPoP) was requested"
        raise AuthorizationError(
            "document",
            f"{metadata.issuer} granted a token of {named}, which cannot be used here{wanted}.",
            issuer=metadata.issuer,
        )
    if not _is_header_text(token.access_token):
        raise AuthorizationError(
            "document", f"{metadata.issuer} granted a token that cannot be sent in a header.", issuer=metadata.issuer
        )
    return Grant(
        issuer=metadata.issuer,
        resource=resource,
        client=client,
        access_token=token.access_token,
        token_endpoint=metadata.token_endpoint,
        revocation_endpoint=metadata.revocation_endpoint,
        token_type="DPoP" if kind == "dpop" else "Bearer",
        refresh_token=token.refresh_token,
        scopes=scopes,
        granted_scopes=named_scopes(token.scope) or None,
        granted_at=at,
        expires_at=_expiry(token.expires_in, at),
    )


def exchange_token(
    metadata: ServerMetadata,
    client: ClientIdentity,
    fields: Mapping[str, str],
    *,
    issued_token_type: str,
    now: float,
    random: RandomBytes,
    sign: SignAssertion | None = None,
) -> Flow[str]:
    """Exchange one token for another of the given type (RFC 8693), and return it."""
    what = "to exchange the token"
    token, _ = yield from _fetch_token(
        metadata, client, fields, now=now, random=random, sign=sign, prover=None, what=what
    )
    if token.issued_token_type != issued_token_type:
        raise AuthorizationError(
            "document",
            f"{metadata.issuer} issued a token of another type than {issued_token_type!r}.",
            issuer=metadata.issuer,
        )
    return token.access_token


def _is_header_text(token: str) -> bool:
    return bool(token) and token.isascii() and token.isprintable() and " " not in token


def _expiry(expires_in: object, at: float) -> float | None:
    seconds = as_number(expires_in)
    return None if seconds is None else at + min(max(seconds, 0.0), MAX_LIFETIME)
