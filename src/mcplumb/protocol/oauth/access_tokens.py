"""Access tokens at the receiving server: which JWTs are valid, and where the issuer's keys are.

A token is checked in three steps: its header says which key to use, without saying where the key comes from; the
signature is verified with a key of the issuer, elsewhere; then the claims are compared with the `TokenRules`. Each step
raises `AuthorizationError`, whose reason is ``invalid_token`` and whose sentence repeats nothing of the token.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mcplumb.errors import AuthorizationError
from mcplumb.protocol.oauth.discovery import (
    check_address,
    fetch_document,
    is_loopback,
    read_document,
    server_metadata_addresses,
    shown,
)
from mcplumb.protocol.oauth.steps import Flow
from mcplumb.protocol.principal import Principal, is_scope

__all__ = [
    "ALGORITHMS",
    "MAX_KEYS",
    "TokenHeader",
    "TokenRules",
    "check_claims",
    "choose_key",
    "find_keys",
    "read_claims",
    "read_header",
    "refused",
    "usable_keys",
]

#: The signature algorithms that can be accepted, and the kind of key that each needs. None of them is symmetric: a
#: server would have to keep a secret with which it could make tokens itself.
ALGORITHMS: dict[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "PS256": ("RSA", None),
    "PS384": ("RSA", None),
    "PS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "Ed25519": ("OKP", "Ed25519"),
    "EdDSA": ("OKP", "Ed25519"),
}

#: Keys of one issuer that are considered. The largest providers publish about ten.
MAX_KEYS = 100
#: Characters of a key id that are compared.
_MAX_KEY_ID = 256
#: Scopes of one token that are read.
_MAX_SCOPES = 1000

_JWT = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)")
_FROM_URL_SAFE = str.maketrans("-_", "+/")

#: Headers that bring a key along, or say where to get one. Only the issuer's published keys count.
_KEY_SOURCES = ("jwk", "jku", "x5u", "x5c")


#: Claims, and members of answers to introspection, that mark tokens which are no access tokens, in lower case: those of
#: Keycloak (``typ``), Amazon Cognito and Ory Hydra (``token_use``), and others. (Any issuer's ID tokens may have
#: ``at_hash``.) Introspection calls refresh tokens active, too, and Hydra gives them the audience of access tokens.
_OTHER_KINDS = {
    "typ": ("id", "refresh", "offline", "logout"),
    "token_use": ("id", "id_token", "refresh", "refresh_token"),
    "token_type": ("id_token", "refresh", "refresh_token"),
}


class TokenRules(msgspec.Struct, frozen=True, kw_only=True):
    """The claims that a token must have to be accepted."""

    issuer: str
    #: One of these must be in ``aud``; None accepts any, where the issuer itself has compared it.
    audiences: frozenset[str] | None
    algorithms: frozenset[str] = frozenset(ALGORITHMS)
    #: The accepted types of the header, in lower case; ``jwt`` also stands for none.
    types: frozenset[str] = frozenset(("at+jwt", "jwt"))
    #: The claims that have scopes.
    scope_claims: tuple[str, ...] = ("scope", "scp")
    #: Seconds by which clocks may differ.
    leeway: float = 30.0
    #: Whether a token without an end is refused.
    must_end: bool = True


class TokenHeader(msgspec.Struct, frozen=True):
    """The part of a token's header that selects its key."""

    algorithm: str
    key_id: str | None


def refused(sentence: str) -> AuthorizationError:
    """Return the error for a token that is not accepted."""
    return AuthorizationError("invalid_token", sentence)


def read_header(token: str, rules: TokenRules) -> TokenHeader:
    """Return the header of a signed JWT; raise `AuthorizationError` if a token with it cannot be accepted."""
    match = _JWT.fullmatch(token)
    if match is None:
        raise refused("The access token is not a signed JWT.")
    header = _read_object(match.group(1), "header")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in rules.algorithms:
        raise refused("The access token has a signature algorithm that this server does not accept.")
    kind = header.get("typ", "jwt")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in rules.types:
        raise refused("The token has another type: it is not an access token.")
    if "crit" in header or "b64" in header:
        raise refused("The access token needs extensions that this server does not have.")
    if any(name in header for name in _KEY_SOURCES):
        raise refused("The access token brings its own key, or names an address for it.")
    key_id = header.get("kid")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > _MAX_KEY_ID):
        raise refused("The access token has an invalid key id.")
    return TokenHeader(algorithm, key_id)


def _read_object(part: str, what: str) -> dict[str, Any]:
    try:
        return _decode_object(a2b_base64(part.translate(_FROM_URL_SAFE) + "=" * (-len(part) % 4)), what)
    except ValueError:  # the padding cannot be right
        raise refused(f"The {what} of the access token cannot be read.") from None


def _decode_object(data: bytes, what: str) -> dict[str, Any]:
    try:
        read: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise refused(f"The {what} of the access token cannot be read.") from None
    return read


# Claims


def read_claims(payload: bytes) -> dict[str, Any]:
    """Return the claims in a payload whose signature is verified."""
    return _decode_object(payload, "payload")


def check_claims(claims: Mapping[str, Any], rules: TokenRules, *, now: float) -> Principal:
    """Return the principal of a token; raise `AuthorizationError` unless all rules hold."""
    if claims.get("iss") != rules.issuer:
        raise refused("The access token is of another issuer.")
    audiences = claims.get("aud")
    named = {audiences} if isinstance(audiences, str) else _texts(audiences)
    if rules.audiences is not None and not named & rules.audiences:
        raise refused("The access token is for another audience.")
    if any(_word(claims, name) in kinds for name, kinds in _OTHER_KINDS.items()) or "at_hash" in claims:
        raise refused("The token is of another kind, such as an ID token: it is not an access token.")
    expires_at = _time(claims, "exp")
    if expires_at is None and rules.must_end:
        raise refused("The access token has no end.")
    if expires_at is not None and now >= expires_at + rules.leeway:
        raise refused("The access token has expired.")
    for name in ("nbf", "iat"):
        at = _time(claims, name)
        if at is not None and at > now + rules.leeway:
            raise refused("The access token is not valid yet.")
    if claims.get("cnf") is not None or _word(claims, "token_type") == "dpop":
        raise refused(
            "The access token is bound to a key (DPoP, or a certificate), and this server takes bearer tokens."
        )
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise refused("The access token names no subject.")
    client = claims.get("client_id", claims.get("azp"))
    return Principal(
        subject,
        scopes=_scopes(claims, rules.scope_claims),
        claims=claims,
        expires_at=None if expires_at is None else expires_at + rules.leeway,
        issuer=rules.issuer,
        client_id=client if isinstance(client, str) else None,
    )


def _word(claims: Mapping[str, Any], name: str) -> str | None:
    value = claims.get(name)
    return value.lower() if isinstance(value, str) else None


def _texts(value: object) -> set[str]:
    return {text for text in value if isinstance(text, str)} if isinstance(value, list) else set()


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not -1e12 < value < 1e12:
        raise refused(f"The claim {name} of the access token is not a time.")
    return float(value)


def _scopes(claims: Mapping[str, Any], names: Sequence[str]) -> frozenset[str]:
    """Return all scopes in these claims: words in a text, or in a list of texts."""
    found: set[str] = set()
    for name in names:
        value = claims.get(name)
        found |= set(value.split()) if isinstance(value, str) else _texts(value)
    if len(found) > _MAX_SCOPES:
        raise refused("The access token has too many scopes.")
    # A word that no challenge could name is no scope of this server.
    return frozenset(filter(is_scope, found))


# Keys


def find_keys(issuer: str, jwks_url: str | None) -> Flow[list[dict[str, Any]]]:
    """Fetch the keys of an issuer: from this address, or from the one in the issuer's metadata."""
    # Who sets up this server may name its own machine; the documents of an issuer on the network may not.
    given = check_address(jwks_url or issuer, "The issuer, or the address of its keys,", loopback=True)
    loopback = is_loopback(given.hostname or "")
    if jwks_url is None:
        jwks_url = yield from _find_address(issuer, loopback=loopback)
    check_address(jwks_url, f"The address of the keys of {issuer}", loopback=loopback)
    answer = yield from fetch_document(jwks_url, "its keys", loopback=loopback)
    if answer.status != 200:
        raise AuthorizationError("unreachable", f"{shown(jwks_url)} answered with status {answer.status}, and no keys.")
    return usable_keys(read_document(answer, "the keys"))


def _find_address(issuer: str, *, loopback: bool) -> Flow[str]:
    purpose = "the metadata of the authorization server"
    statuses = []
    for url in server_metadata_addresses(issuer):
        answer = yield from fetch_document(url, purpose, loopback=loopback)
        statuses.append(str(answer.status))
        if answer.status != 200:
            continue
        try:
            document = read_document(answer, purpose)
        except AuthorizationError:
            continue  # many web servers answer every path with a page
        named, address = document.get("issuer"), document.get("jwks_uri")
        if named != issuer:
            raise AuthorizationError(
                "issuer", f"The metadata of {issuer} is for the issuer {str(named)[:200]!r}: they must be identical."
            )
        if not isinstance(address, str):
            raise AuthorizationError("document", f"The metadata of {issuer} has no jwks_uri: set jwks_url.")
        return address
    raise AuthorizationError(
        "discovery", f"{issuer} has no metadata (it answered with status {', '.join(statuses)}): set jwks_url."
    )


def usable_keys(document: Mapping[str, object]) -> list[dict[str, Any]]:
    """Return the public keys of a key set (RFC 7517) that may verify signatures."""
    keys = document.get("keys")
    if not isinstance(keys, list):
        raise AuthorizationError("document", "The document with the keys has no list of keys.")
    return [key for key in keys[:MAX_KEYS] if isinstance(key, dict) and _may_verify(key)]


def _may_verify(key: dict[str, Any]) -> bool:
    # A published private key is no secret.
    if key.get("kty") not in ("RSA", "EC", "OKP") or "d" in key or key.get("use", "sig") != "sig":
        return False
    operations = key.get("key_ops")
    return operations is None or (isinstance(operations, list) and "verify" in operations)


def choose_key(keys: Sequence[dict[str, Any]], header: TokenHeader) -> dict[str, Any] | None:
    """Return the key for a token; None if the issuer has none with its id, as far as is known.

    Raises `AuthorizationError` if the key with this id is of another kind than the algorithm needs, or if the token
    names no key and several would do.
    """
    fitting = [key for key in keys if _fits(key, header.algorithm)]
    if header.key_id is None:
        if len(fitting) > 1:
            raise refused("The access token names no key, and its issuer has several.")
        return fitting[0] if fitting else None
    # Keys of different kinds may share an id (RFC 7517, section 4.5).
    for key in fitting:
        if key.get("kid") == header.key_id:
            return key
    if any(key.get("kid") == header.key_id for key in keys):
        raise refused("The access token has an algorithm that its key is not made for.")
    return None


def _fits(key: dict[str, Any], algorithm: str) -> bool:
    kind, curve = ALGORITHMS[algorithm]
    return (
        key.get("kty") == kind and (curve is None or key.get("crv") == curve) and key.get("alg", algorithm) == algorithm
    )
