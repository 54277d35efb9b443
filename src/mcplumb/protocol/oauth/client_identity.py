"""The identity of a client at an authorization server: its registration, and its authentication at the token endpoint.

A registration belongs to the issuer that made it. It is never shown to another one.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias
from urllib.parse import quote, quote_plus, urlsplit

import msgspec

from mcplumb.errors import AuthorizationError, UsageError
from mcplumb.protocol.oauth.discovery import PASSING_STATUSES, ServerMetadata, read_document
from mcplumb.protocol.oauth.steps import Answer, Fetch, Flow, RandomBytes, hidden
from mcplumb.protocol.principal import is_scope

__all__ = [
    "ASSERTION_LIFETIME",
    "AuthMethod",
    "ClientIdentity",
    "SignAssertion",
    "as_number",
    "auth_method",
    "authenticate",
    "check_metadata_url",
    "in_words",
    "is_expired",
    "named_scopes",
    "register",
    "told_by",
    "without_secrets",
]

AuthMethod: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]

#: Signs the claims of a JWT with the client's private key, and returns the JWT.
SignAssertion: TypeAlias = Callable[[Mapping[str, object]], str]

#: Seconds that a signed client assertion is valid for.
ASSERTION_LIFETIME = 300.0

_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class ClientIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """A client's registration at one authorization server."""

    client_id: str
    client_secret: str | None = None
    #: The issuer that the registration belongs to; None if the user gave it without one.
    issuer: str | None = None
    #: How the client authenticates; None chooses what the server supports.
    auth_method: AuthMethod | None = None
    #: Whether the client was registered by hand, or has a metadata document; otherwise it registered itself.
    is_given: bool = False
    #: The redirect address that was registered; None if any address on loopback will do.
    redirect_uri: str | None = None
    #: The scopes that were registered, which are all that the client may request; None if they are not known.
    scopes: tuple[str, ...] | None = None
    #: When the secret expires, in seconds since the epoch; None or 0 if it does not.
    secret_expires_at: float | None = None

    def __repr__(self) -> str:
        return (
            f"ClientIdentity(client_id={self.client_id!r}, client_secret={hidden(self.client_secret)}, "
            f"issuer={self.issuer!r}, auth_method={self.auth_method!r})"
        )


class _Registered(msgspec.Struct, frozen=True):
    """The answer to a registration (RFC 7591)."""

    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: object = None
    token_endpoint_auth_method: str | None = None
    scope: object = None


def is_expired(client: ClientIdentity, now: float) -> bool:
    """Return whether the client's secret has expired."""
    return bool(client.client_secret and client.secret_expires_at and client.secret_expires_at <= now)


def check_metadata_url(url: str) -> str:
    """Return the address of a client-id metadata document; raise `UsageError` if it cannot be one."""
    parts = urlsplit(url)
    if (
        parts.scheme != "https"
        or not parts.hostname
        or parts.path in ("", "/")
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise UsageError(
            f"client_metadata_url is {url!r}: it must be an https address with a path, where the document is published."
        )
    return url


def _supported(metadata: ServerMetadata) -> list[str]:
    # RFC 8414: a server that does not say which methods it supports has this one.
    methods = metadata.token_endpoint_auth_methods_supported
    return ["client_secret_basic"] if methods is None else methods


def register(
    metadata: ServerMetadata,
    *,
    client_name: str,
    redirect_uri: str,
    scopes: tuple[str, ...] = (),
) -> Flow[ClientIdentity]:
    """Register a new client at the authorization server (RFC 7591), and return its identity."""
    url = metadata.registration_endpoint or ""
    methods = _supported(metadata)
    preferred: tuple[AuthMethod, ...] = ("none", "client_secret_basic", "client_secret_post")
    # A program on a user's machine cannot keep a secret from that user, so "none" is best where it is supported.
    method: AuthMethod = next((method for method in preferred if method in methods), "none")
    document: dict[str, object] = {
        "client_name": client_name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": "native",
    }
    if scopes:
        document["scope"] = " ".join(scopes)
    headers = {"content-type": "application/json", "accept": "application/json"}
    purpose = "the registration of this client"
    answer: Answer = yield Fetch("POST", url, purpose, headers, msgspec.json.encode(document))
    if answer.status in PASSING_STATUSES:
        raise AuthorizationError(
            "unreachable",
            f"The authorization server {metadata.issuer} failed to register this client: {told_by(answer)}. "
            "Try again later.",
            issuer=metadata.issuer,
        )
    if answer.status not in (200, 201):
        raise AuthorizationError(
            "registration",
            f"The authorization server {metadata.issuer} refused to register this client: {told_by(answer)}. "
            "Register one there by hand, and give its client_id.",
            issuer=metadata.issuer,
        )
    given = {name: value for name, value in read_document(answer, purpose).items() if value is not None}
    try:
        registered = msgspec.convert(given, _Registered)
    except msgspec.ValidationError as error:
        raise AuthorizationError("document", f"The answer to the registration cannot be used: {error}.") from None
    if not registered.client_id:
        raise AuthorizationError("document", "The answer to the registration has an empty client_id.")
    chosen = registered.token_endpoint_auth_method
    if registered.client_secret is None:
        method = "none"
    elif chosen in ("client_secret_basic", "client_secret_post"):
        method = "client_secret_basic" if chosen == "client_secret_basic" else "client_secret_post"
    return ClientIdentity(
        client_id=registered.client_id,
        client_secret=registered.client_secret,
        issuer=metadata.issuer,
        auth_method=method,
        redirect_uri=redirect_uri,
        scopes=(*scopes, *named_scopes(registered.scope)),
        secret_expires_at=as_number(registered.client_secret_expires_at),
    )


def named_scopes(scope: object) -> tuple[str, ...]:
    """Return the scopes that an answer names: words in a string, or what some servers send, a list."""
    words = scope.split() if isinstance(scope, str) else scope
    return tuple(dict.fromkeys(filter(is_scope, words))) if isinstance(words, list) else ()


def as_number(value: object) -> float | None:
    """Return a number of an answer, which some servers write as a string; None if it is none.

    An unreadable lifetime does not invalidate a grant.
    """
    try:
        number = msgspec.convert(value, float, strict=not isinstance(value, str))
    except msgspec.ValidationError:
        return None
    return None if math.isnan(number) else number


def authenticate(
    client: ClientIdentity,
    metadata: ServerMetadata,
    *,
    now: float,
    random: RandomBytes,
    sign: SignAssertion | None = None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the form fields and the headers with which a client authenticates at its token endpoint."""
    if client.issuer is not None and client.issuer != metadata.issuer:
        raise AuthorizationError(
            "client",
            f"The client {client.client_id!r} is registered at {client.issuer}, and is not shown to {metadata.issuer}.",
            issuer=metadata.issuer,
        )
    method = auth_method(client, metadata, sign)
    if method == "private_key_jwt":
        if sign is None:
            raise UsageError("The client authenticates with private_key_jwt: give its private key.")
        claims = {
            "iss": client.client_id,
            "sub": client.client_id,
            "aud": metadata.issuer,
            "jti": random(16).hex(),
            "iat": int(now),
            "exp": int(now + ASSERTION_LIFETIME),
        }
        return {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": sign(claims)}, {}
    if method == "none":
        return {"client_id": client.client_id}, {}
    secret = client.client_secret
    if secret is None:
        raise UsageError(f"The client authenticates with {method}: give its client_secret.")
    if method == "client_secret_post":
        return {"client_id": client.client_id, "client_secret": secret}, {}
    pair = f"{quote_plus(client.client_id)}:{quote_plus(secret)}"
    return {}, {"authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def auth_method(client: ClientIdentity, metadata: ServerMetadata, sign: SignAssertion | None) -> AuthMethod:
    """Return how a client authenticates: by its own choice, or else by a method that the server supports."""
    if client.auth_method is not None:
        return client.auth_method
    if sign is not None:
        return "private_key_jwt"
    if client.client_secret is None:
        return "none"
    supported = _supported(metadata)
    if "client_secret_basic" in supported or "client_secret_post" not in supported:
        return "client_secret_basic"
    return "client_secret_post"


class _Refusal(msgspec.Struct, frozen=True):
    """An OAuth error: a code, and words for people."""

    error: str = ""
    error_description: str = ""


def told_by(answer: Answer, secrets: Iterable[str] = ()) -> str:
    """Describe why an authorization server refused: its error code and description, or the status.

    ``secrets`` are values of the request: a server that quotes them in its answer does not get them into our errors.
    """
    try:
        refusal = msgspec.json.decode(answer.body[:65536], type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        refusal = _Refusal()
    texts = [without_secrets(text, secrets) for text in (refusal.error, refusal.error_description)]
    return in_words(*texts) or f"it answered with status {answer.status}"


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets, in their plain form and as encoded in forms and addresses."""
    spellings = {each for secret in secrets for each in (secret, quote_plus(secret), quote(secret, safe=""))}
    for spelling in sorted(spellings - {""}, key=len, reverse=True):
        text = text.replace(spelling, "…")
    return text


def in_words(error: str, description: str) -> str:
    """Return an error code and its description as one text that is safe to print; empty if there is no code."""
    texts = [
        " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300] for text in (error, description)
    ]
    return " ".join([texts[0], f"({texts[1].rstrip('.')})"] if texts[0] and texts[1] else texts[:1])
