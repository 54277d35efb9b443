"""The OAuth flows of a client: sign in with a browser, refresh, and the grants without a user.

Each flow starts from a challenge, discovers the authorization server, and returns a `Grant`. ``REFUSALS`` lists why a
flow ends without one. Codes, verifiers, secrets and tokens go only to the token endpoint of the issuer that the
validated metadata names, and a grant is valid for one resource only.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from mcplumb.errors import AuthorizationError
from mcplumb.protocol.oauth.challenge import Challenge
from mcplumb.protocol.oauth.client_identity import (
    ClientIdentity,
    SignAssertion,
    auth_method,
    authenticate,
    in_words,
    is_expired,
    register,
    told_by,
    without_secrets,
)
from mcplumb.protocol.oauth.discovery import (
    MAX_ISSUERS,
    ServerMetadata,
    canonical_resource,
    check_address,
    find_resource_metadata,
    find_server_metadata,
    is_loopback,
    shown,
)
from mcplumb.protocol.oauth.steps import Answer, Flow, RandomBytes, Redirect, Visit, form_post
from mcplumb.protocol.oauth.tokens import DPOP_ALGORITHM, DpopProver, Grant, MakeProver, exchange_token, request_token

__all__ = [
    "ISSUER_RULES",
    "MAX_SCOPES",
    "REFUSALS",
    "Authority",
    "SignIn",
    "check_redirect_uri",
    "choose_scopes",
    "client_credentials",
    "enterprise_grant",
    "find_authority",
    "jwt_bearer",
    "read_redirect",
    "refresh",
    "revoke",
    "sign_in",
]

#: The reasons of `AuthorizationError`: why a flow ends without a grant.
REFUSALS: Mapping[str, str] = {
    "address": "an address in a document is not a plain http or https address",
    "https": "an address that secrets are sent to is neither https nor on loopback",
    "loopback": "a server on the network refers to an address on this machine",
    "document": "a metadata document, a registration or a token answer cannot be used",
    "resource": "the metadata is for another resource than the server that was called",
    "issuer": "the issuer in the authorization server's metadata is not the one that was asked for",
    "discovery": "no authorization server was found",
    "pkce": "the authorization server does not offer PKCE with S256",
    "client": "there is no client registration for this issuer, or it belongs to another one",
    "assertion": "the program's own source of tokens failed",
    "registration": "the authorization server refused to register the client",
    "redirect": "the redirect does not have the issuer, or the code, that it must have",
    "state": "the redirect does not belong to this sign-in",
    "denied": "the user, or the authorization server, denied access",
    "refused": "the token endpoint refused",
    "unreachable": "the server of an address did not answer, or failed",
    "timeout": "nobody finished the sign-in in time, here or in another program",
    "port": "the port for the redirect is used by another program",
    "store": "the tokens cannot be read or kept",
}

#: RFC 9207, section 2.4, as the specification applies it: (the server advertises ``iss``, the redirect has it).
ISSUER_RULES: Mapping[tuple[bool, bool], Literal["compare", "refuse", "proceed"]] = {
    (True, True): "compare",
    (True, False): "refuse",
    (False, True): "compare",
    (False, False): "proceed",
}

_OFFLINE = "offline_access"
#: The longest list of scopes, in characters. Web servers accept addresses of 8 kilobytes.
MAX_SCOPES = 6000


class Authority(msgspec.Struct, frozen=True, kw_only=True):
    """The authorization server of a resource: the outcome of discovery."""

    resource: str
    metadata: ServerMetadata
    #: The scopes of the resource's metadata.
    scopes_supported: tuple[str, ...] = ()
    #: Where the challenge said that the resource's metadata is.
    named_at: str | None = None
    #: Whether the resource takes only tokens that are bound to a key (DPoP).
    needs_bound_tokens: bool = False
    #: Whether there is no metadata at all, and the endpoints are those that revision 2025-03-26 assumes.
    is_assumed: bool = False


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a client for a sign-in."""

    redirect_uri: str
    client_name: str = "mcplumb"
    #: A registration made by hand; it takes precedence.
    client: ClientIdentity | None = None
    #: Registrations that were used earlier, by issuer.
    registered: Mapping[str, ClientIdentity] = {}
    #: The address of the client's metadata document, which is its client_id where the server supports that.
    client_metadata_url: str | None = None
    #: The scopes to request; None requests those that the server names.
    scopes: tuple[str, ...] | None = None
    sign: SignAssertion | None = None
    prover: DpopProver | None = None
    make_prover: MakeProver | None = None


def find_authority(
    endpoint: str,
    challenge: Challenge | None,
    *,
    issuer: str | None = None,
    preferred: Collection[str] = (),
    before: Grant | None = None,
) -> Flow[Authority]:
    """Find the authorization server of a resource.

    ``issuer`` is the one that the client's credentials belong to, ``preferred`` are those that know the client, and
    ``before`` is an earlier grant for the same endpoint.
    """
    loopback = is_loopback(check_address(endpoint, "The server's address", loopback=True).hostname or "")
    named_at = challenge.resource_metadata if challenge is not None else None
    if named_at is None and before is not None and before.resource_metadata is not None:
        named_at = before.resource_metadata
        challenge = Challenge("bearer", {"resource_metadata": named_at})
    resource = yield from find_resource_metadata(endpoint, challenge)
    if resource is None:
        return (yield from _assumed_authority(endpoint, issuer, loopback=loopback))
    named = list(dict.fromkeys(resource.authorization_servers))[:MAX_ISSUERS]
    if issuer is not None and issuer not in named:
        raise AuthorizationError(
            "client",
            f"The client's credentials belong to {issuer}, but {shown(endpoint)} accepts tokens of "
            f"{', '.join(repr(shown(each)) for each in named)[:500]}. Nothing was sent there. If they are for another "
            "issuer now, name it with them.",
            resource=resource.resource,
        )
    for candidate in sorted(named, key=lambda each: each not in preferred) if issuer is None else [issuer]:
        metadata = yield from find_server_metadata(candidate, loopback=loopback)
        if metadata is not None:
            scopes = tuple(dict.fromkeys(resource.scopes_supported or ()))
            return Authority(
                resource=resource.resource,
                metadata=metadata,
                scopes_supported=scopes,
                named_at=named_at,
                needs_bound_tokens=resource.dpop_bound_access_tokens_required,
            )
    raise AuthorizationError(
        "discovery",
        f"The authorization server of {shown(endpoint)}, {', '.join(map(shown, named))[:500]}, publishes no metadata.",
        resource=resource.resource,
    )


def _assumed_authority(endpoint: str, issuer: str | None, *, loopback: bool) -> Flow[Authority]:
    """Find the authorization server as revision 2025-03-26 says: it is the server itself, at the root of its host."""
    parts = urlsplit(endpoint)
    root = f"{parts.scheme}://{parts.netloc}"
    if issuer is not None and issuer not in (root, root + "/"):
        raise AuthorizationError(
            "client",
            f"The client's credentials belong to {issuer}, but {shown(endpoint)} names no authorization server.",
        )
    metadata = yield from find_server_metadata(root, loopback=loopback, alias=root + "/")
    resource = canonical_resource(endpoint)
    if metadata is not None:
        return Authority(resource=resource, metadata=metadata)
    assumed = ServerMetadata(
        issuer=root,
        authorization_endpoint=root + "/authorize",
        token_endpoint=root + "/token",
        registration_endpoint=root + "/register",
        token_endpoint_auth_methods_supported=["none", "client_secret_basic", "client_secret_post"],
    )
    return Authority(resource=resource, metadata=assumed, is_assumed=True)


def choose_scopes(
    challenge: Challenge | None,
    authority: Authority,
    *,
    wanted: tuple[str, ...] | None = None,
    before: Grant | None = None,
    offline: bool = True,
) -> tuple[str, ...]:
    """Return the scopes to request: the challenge's, else the resource's, else none, with those requested before."""
    demanded = challenge.scopes if challenge is not None else ()
    scopes = (demanded or authority.scopes_supported) if wanted is None else (*wanted, *demanded)
    if before is not None:
        scopes = (*before.scopes, *scopes)
    offered = authority.metadata.scopes_supported or ()
    if _OFFLINE not in offered:
        scopes = tuple(scope for scope in scopes if scope != _OFFLINE)
    elif offline and scopes:
        scopes = (*scopes, _OFFLINE)
    chosen = tuple(dict.fromkeys(scopes))
    if (length := len(" ".join(chosen))) > MAX_SCOPES:
        raise AuthorizationError(
            "document",
            f"{shown(authority.resource)} asks for scopes of {length} characters, which no address can carry. "
            "Name those that you need.",
            issuer=authority.metadata.issuer,
            resource=authority.resource,
        )
    return chosen


def sign_in(
    endpoint: str,
    challenge: Challenge | None,
    settings: SignIn,
    *,
    now: float,
    random: RandomBytes,
    before: Grant | None = None,
) -> Flow[Grant]:
    """Sign in with a browser: the authorization code flow with PKCE.

    ``before`` is the grant that did not suffice: its scopes are requested again, with those of the challenge.
    """
    given = settings.client.issuer if settings.client is not None else None
    authority = yield from find_authority(
        endpoint, challenge, issuer=given, preferred=settings.registered.keys(), before=before
    )
    metadata = authority.metadata
    check_redirect_uri(settings.redirect_uri)
    if metadata.authorization_endpoint is None:
        raise AuthorizationError(
            "document",
            f"The authorization server {metadata.issuer} has no authorization endpoint.",
            issuer=metadata.issuer,
        )
    if not authority.is_assumed and "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise AuthorizationError(
            "pkce",
            f"The authorization server {metadata.issuer} does not offer PKCE with S256, without which a stolen code "
            "could be used by others. Ask its operator to turn it on.",
            issuer=metadata.issuer,
        )
    if before is not None and before.resource != authority.resource:
        before = None
    scopes = choose_scopes(challenge, authority, wanted=settings.scopes, before=before)
    client = yield from _identify(authority, settings, scopes=scopes, now=now)
    prover = _prover(authority, settings.prover, settings.make_prover)
    verifier, state = _text(random(32)), _text(random(32))
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": settings.redirect_uri,
        "state": state,
        "code_challenge": _text(sha256(verifier.encode()).digest()),
        "code_challenge_method": "S256",
        "resource": authority.resource,
    }
    if scopes:
        query["scope"] = " ".join(scopes)
    if _OFFLINE in scopes:
        query["prompt"] = "consent"  # OpenID Connect gives no offline access without it
    url = metadata.authorization_endpoint
    redirect: Redirect = yield Visit(url + ("&" if "?" in url else "?") + urlencode(query), settings.redirect_uri)
    code = read_redirect(redirect.url, state=state, metadata=metadata)
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": settings.redirect_uri,
        "code_verifier": verifier,
    }
    grant = yield from request_token(
        metadata,
        client,
        fields,
        resource=authority.resource,
        scopes=scopes,
        now=redirect.at,
        random=random,
        sign=settings.sign,
        prover=prover,
        what="to exchange the authorization code",
    )
    return msgspec.structs.replace(grant, resource_metadata=authority.named_at)


def check_redirect_uri(url: str) -> None:
    """Raise `AuthorizationError` unless a redirect address is https or on loopback."""
    check_address(url, "The redirect address", loopback=True)


def _identify(authority: Authority, settings: SignIn, *, scopes: tuple[str, ...], now: float) -> Flow[ClientIdentity]:
    """Return the client's identity at an issuer: given, by metadata document, registered before, or registered now."""
    metadata, issuer = authority.metadata, authority.metadata.issuer
    if settings.client is not None:
        return _bind(settings.client, metadata, settings.sign)
    if settings.client_metadata_url is not None and metadata.client_id_metadata_document_supported:
        method: Literal["private_key_jwt", "none"] = "none" if settings.sign is None else "private_key_jwt"
        return ClientIdentity(client_id=settings.client_metadata_url, issuer=issuer, auth_method=method, is_given=True)
    kept = settings.registered.get(issuer)
    if kept is not None and kept.issuer == issuer and _fits(kept, settings, scopes=scopes, now=now):
        return kept
    if metadata.registration_endpoint is None:
        document = (
            " or publish a client metadata document (client_metadata_url)"
            if metadata.client_id_metadata_document_supported
            else ""
        )
        raise AuthorizationError(
            "client",
            f"The authorization server {issuer} does not register clients by itself. Register one there by hand, with "
            f"the redirect address {settings.redirect_uri}, and give its client_id and port{document}.",
            issuer=issuer,
        )
    try:
        return (
            yield from register(
                metadata, client_name=settings.client_name, redirect_uri=settings.redirect_uri, scopes=scopes
            )
        )
    except AuthorizationError as error:
        if not authority.is_assumed or error.reason != "registration":
            raise
        # Most likely, nobody signs in at this server: its users have tokens.
        raise AuthorizationError(
            "discovery",
            f"{shown(authority.resource)} asks for a token, but names no authorization server, and registers no "
            "clients itself. Perhaps its operator gives out tokens: connect(…, token=…).",
            resource=authority.resource,
        ) from None


def _fits(client: ClientIdentity, settings: SignIn, *, scopes: tuple[str, ...], now: float) -> bool:
    """Return whether a client that was used earlier can sign in now."""
    if client.is_given:
        return client.auth_method != "private_key_jwt" or settings.sign is not None
    may_ask = client.scopes is None or set(scopes) <= set(client.scopes)
    return client.redirect_uri == settings.redirect_uri and may_ask and not is_expired(client, now)


def read_redirect(url: str, *, state: str, metadata: ServerMetadata) -> str:
    """Return the authorization code of a redirect; raise `AuthorizationError` if it answers another sign-in."""
    try:
        url.encode()  # bytes that are no text reach us from a terminal as surrogates, which cannot be sent on
        pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True, max_num_fields=64)
    except ValueError:
        raise AuthorizationError("redirect", "The redirect cannot be read.", issuer=metadata.issuer) from None
    names = [name for name, _ in pairs]
    if any(names.count(name) > 1 for name in ("code", "state", "iss", "error")):
        raise AuthorizationError("redirect", "The redirect has a parameter twice.", issuer=metadata.issuer)
    query = dict(pairs)
    if not hmac.compare_digest(query.get("state", "").encode(), state.encode()):
        raise AuthorizationError(
            "state",
            "The redirect does not belong to this sign-in: its state is another. Nothing of it was used; start again.",
            issuer=metadata.issuer,
        )
    named = query.get("iss")
    rule = ISSUER_RULES[metadata.authorization_response_iss_parameter_supported, named is not None]
    if rule == "refuse" or (rule == "compare" and named != metadata.issuer):
        why = "does not say which issuer sent it" if named is None else "comes from another issuer"
        raise AuthorizationError(
            "redirect",
            f"The redirect {why}; it must come from {metadata.issuer}. Nothing of it was used.",
            issuer=metadata.issuer,
        )
    if "error" in query:
        reason = "denied" if query["error"] == "access_denied" else "refused"
        secrets = [state, query.get("code", "")]
        texts = [without_secrets(query.get(name, ""), secrets) for name in ("error", "error_description")]
        words = in_words(*texts) or "it gave no reason"
        raise AuthorizationError(
            reason, f"The authorization server {metadata.issuer} did not grant access: {words}.", issuer=metadata.issuer
        )
    code = query.get("code")
    if not code:
        raise AuthorizationError("redirect", "The redirect has no authorization code.", issuer=metadata.issuer)
    return code


def refresh(
    grant: Grant,
    *,
    now: float,
    random: RandomBytes,
    sign: SignAssertion | None = None,
    prover: DpopProver | None = None,
) -> Flow[Grant]:
    """Use a grant's refresh token; return the new grant.

    `GrantRefused` with ``invalid_grant``: sign in again; with ``invalid_client``: register first.
    """
    if grant.refresh_token is None:
        raise AuthorizationError("refused", "There is no refresh token: sign in again.", issuer=grant.issuer)
    metadata = _metadata_of(grant)
    fields = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}
    fresh = yield from request_token(
        metadata,
        grant.client,
        fields,
        resource=grant.resource,
        scopes=grant.scopes,
        now=now,
        random=random,
        sign=sign,
        prover=prover,
        what="to refresh the token",
    )
    # A server that does not rotate refresh tokens leaves it out.
    kept = fresh.refresh_token or grant.refresh_token
    return msgspec.structs.replace(
        fresh,
        refresh_token=kept,
        # An omitted scope has not changed.
        granted_scopes=fresh.granted_scopes or grant.granted_scopes,
        resource_metadata=grant.resource_metadata,
    )


def revoke(grant: Grant, *, now: float, random: RandomBytes, sign: SignAssertion | None = None) -> Flow[bool]:
    """Tell the authorization server that a grant is not needed any more (RFC 7009).

    Return False if it has no place to be told at. `AuthorizationError`: it could not be told, or refused.
    """
    if grant.revocation_endpoint is None:
        return False
    if grant.client.auth_method == "private_key_jwt" and sign is None:
        raise AuthorizationError(
            "client", "Only the program that has the client's private key can tell it.", issuer=grant.issuer
        )
    token, kind = grant.refresh_token or grant.access_token, "refresh_token" if grant.refresh_token else "access_token"
    credentials, headers = authenticate(grant.client, _metadata_of(grant), now=now, random=random, sign=sign)
    fields = {"token": token, "token_type_hint": kind, **credentials}
    answer: Answer = yield form_post(grant.revocation_endpoint, "the end of a grant", fields, headers)
    if answer.status != 200:
        secrets = [token, grant.client.client_secret or "", *(value.rpartition(" ")[2] for value in headers.values())]
        raise AuthorizationError("refused", f"It refused: {told_by(answer, secrets)}.", issuer=grant.issuer)
    return True


def _metadata_of(grant: Grant) -> ServerMetadata:
    return ServerMetadata(
        issuer=grant.issuer, token_endpoint=grant.token_endpoint, revocation_endpoint=grant.revocation_endpoint
    )


def client_credentials(
    endpoint: str,
    challenge: Challenge | None,
    client: ClientIdentity,
    *,
    now: float,
    random: RandomBytes,
    scopes: tuple[str, ...] | None = None,
    before: Grant | None = None,
    sign: SignAssertion | None = None,
    prover: DpopProver | None = None,
    make_prover: MakeProver | None = None,
) -> Flow[Grant]:
    """Request a token for the client itself, without a user."""
    authority = yield from find_authority(endpoint, challenge, issuer=client.issuer, before=before)
    chosen = choose_scopes(challenge, authority, wanted=scopes, before=before, offline=False)
    fields = {"grant_type": "client_credentials"}
    bound_with = _prover(authority, prover, make_prover)
    return (
        yield from _grant_without_user(
            authority, client, fields, chosen, now=now, random=random, sign=sign, prover=bound_with
        )
    )


def jwt_bearer(
    endpoint: str,
    challenge: Challenge | None,
    client: ClientIdentity,
    assertion: str,
    *,
    now: float,
    random: RandomBytes,
    scopes: tuple[str, ...] | None = None,
    before: Grant | None = None,
    sign: SignAssertion | None = None,
    prover: DpopProver | None = None,
    make_prover: MakeProver | None = None,
) -> Flow[Grant]:
    """Request a token with a JWT that another issuer signed (RFC 7523), for example a workload's identity."""
    authority = yield from find_authority(endpoint, challenge, issuer=client.issuer, before=before)
    chosen = choose_scopes(challenge, authority, wanted=scopes, before=before, offline=False)
    fields = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion}
    bound_with = _prover(authority, prover, make_prover)
    return (
        yield from _grant_without_user(
            authority, client, fields, chosen, now=now, random=random, sign=sign, prover=bound_with
        )
    )


def enterprise_grant(
    endpoint: str,
    challenge: Challenge | None,
    client: ClientIdentity,
    *,
    identity_provider: ServerMetadata,
    identity_client: ClientIdentity,
    id_token: str,
    now: float,
    random: RandomBytes,
    scopes: tuple[str, ...] | None = None,
    before: Grant | None = None,
    sign: SignAssertion | None = None,
    prover: DpopProver | None = None,
    make_prover: MakeProver | None = None,
) -> Flow[Grant]:
    """Request a token with the identity that an enterprise's identity provider asserts (ID-JAG)."""
    check_address(identity_provider.token_endpoint, "The token endpoint of the identity provider", loopback=True)
    authority = yield from find_authority(endpoint, challenge, issuer=client.issuer, before=before)
    chosen = choose_scopes(challenge, authority, wanted=scopes, before=before, offline=False)
    id_jag = "urn:ietf:params:oauth:token-type:id-jag"
    exchange = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": id_jag,
        "audience": authority.metadata.issuer,
        "resource": authority.resource,
        "subject_token": id_token,
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
    }
    if chosen:
        exchange["scope"] = " ".join(chosen)
    assertion = yield from exchange_token(
        identity_provider, identity_client, exchange, issued_token_type=id_jag, now=now, random=random
    )
    fields = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion}
    bound_with = _prover(authority, prover, make_prover)
    return (
        yield from _grant_without_user(
            authority, client, fields, chosen, now=now, random=random, sign=sign, prover=bound_with
        )
    )


def _grant_without_user(
    authority: Authority,
    client: ClientIdentity,
    fields: Mapping[str, str],
    scopes: tuple[str, ...],
    *,
    now: float,
    random: RandomBytes,
    sign: SignAssertion | None,
    prover: DpopProver | None,
) -> Flow[Grant]:
    bound = _bind(client, authority.metadata, sign)
    asked = {**fields, "scope": " ".join(scopes)} if scopes else fields
    grant = yield from request_token(
        authority.metadata,
        bound,
        asked,
        resource=authority.resource,
        scopes=scopes,
        now=now,
        random=random,
        sign=sign,
        prover=prover,
    )
    return msgspec.structs.replace(grant, resource_metadata=authority.named_at)


def _prover(authority: Authority, given: DpopProver | None, make: MakeProver | None) -> DpopProver | None:
    """Return what makes proofs for a token request: if the client wants a bound token, or the resource takes no other.

    An authorization server that does not say that it can bind tokens is asked for an ordinary one.
    """
    if given is not None or make is None or not authority.needs_bound_tokens:
        return given
    return make() if DPOP_ALGORITHM in (authority.metadata.dpop_signing_alg_values_supported or ()) else None


def _bind(client: ClientIdentity, metadata: ServerMetadata, sign: SignAssertion | None) -> ClientIdentity:
    """Return a client's credentials, bound to the issuer that they are used at, and to the way that it supports."""
    method = auth_method(client, metadata, sign)
    return msgspec.structs.replace(client, issuer=metadata.issuer, auth_method=method)


def _text(random: bytes) -> str:
    """Return bytes as text that needs no escaping in an address."""
    return base64.urlsafe_b64encode(random).rstrip(b"=").decode()
