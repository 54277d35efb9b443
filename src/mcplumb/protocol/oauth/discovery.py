"""Discovery: from the address of a protected server to the metadata of its authorization server.

A server names its authorization servers in its protected resource metadata (RFC 9728), and an authorization server
publishes its endpoints in a metadata document (RFC 8414, or OpenID Connect Discovery). Both documents are written by
strangers: metadata for another resource, or with another issuer than the one that was asked, is refused, and nothing
is sent to the addresses in it.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TypeVar
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec

from mcplumb.errors import AuthorizationError
from mcplumb.protocol.oauth.challenge import Challenge
from mcplumb.protocol.oauth.steps import Answer, Flow, get_json

__all__ = [
    "MAX_ADDRESS",
    "MAX_DOCUMENT",
    "MAX_ISSUERS",
    "MAX_REDIRECTS",
    "PASSING_STATUSES",
    "ResourceMetadata",
    "ServerMetadata",
    "canonical_resource",
    "check_address",
    "check_server_metadata",
    "fetch_document",
    "find_resource_metadata",
    "find_server_metadata",
    "is_loopback",
    "may_get_tokens",
    "read_document",
    "resource_metadata_addresses",
    "same_origin",
    "server_metadata_addresses",
    "shown",
]

_S = TypeVar("_S", bound=msgspec.Struct)

#: Metadata documents are a few kilobytes; the largest seen (with a long list of scopes) has 60.
MAX_DOCUMENT = 1 << 20
#: Characters of an address in a document. Web servers accept addresses of 8 kilobytes.
MAX_ADDRESS = 8000
#: Redirects that are followed for a metadata document. Requests that carry a secret are never redirected.
MAX_REDIRECTS = 3
#: Statuses of a server, or of a proxy before it, that may answer otherwise later: they do not say what there is.
PASSING_STATUSES = frozenset((429, 502, 503, 504))
#: Authorization servers of one resource that are considered.
MAX_ISSUERS = 8
#: Where clouds give out credentials, besides at link-local addresses: Alibaba Cloud, Azure, and AWS over IPv6.
_CLOUD_METADATA = frozenset({"100.100.100.200", "168.63.129.16", "fd00:ec2::254"})
#: IPv6 addresses with an IPv4 address at their end (RFC 6052).
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class ResourceMetadata(msgspec.Struct, frozen=True):
    """The metadata of a protected resource (RFC 9728)."""

    resource: str
    authorization_servers: list[str] = []
    scopes_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool = False


class ServerMetadata(msgspec.Struct, frozen=True):
    """The metadata of an authorization server (RFC 8414, OpenID Connect Discovery)."""

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    grant_types_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    token_endpoint_auth_signing_alg_values_supported: list[str] | None = None
    dpop_signing_alg_values_supported: list[str] | None = None
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


def shown(address: str) -> str:
    """Return an address for an error message: cut, and without user, password, query and fragment (maybe secret)."""
    return re.sub(r"//[^/]*@", "//…@", re.split(r"[?#]", address, maxsplit=1)[0])[:200]


def check_address(url: str, what: str, *, loopback: bool) -> SplitResult:
    """Return the parts of an absolute address; raise `AuthorizationError` if it may not be used.

    It must be https, or http on loopback. ``loopback`` says whether loopback is allowed at all: a server on the
    network must not make the client send requests to programs on its own machine.
    """
    if len(url) > MAX_ADDRESS or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise AuthorizationError("address", f"{what} is not a valid address: {shown(url)!r}.")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  (raises ValueError if it is not a number)
    except ValueError:
        raise AuthorizationError("address", f"{what} is not a valid address: {shown(url)!r}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise AuthorizationError("address", f"{what} is not an http(s) address: {shown(url)!r}.")
    local = is_loopback(parts.hostname)
    if parts.scheme == "http" and not local:
        raise AuthorizationError(
            "https", f"{what} is {shown(url)!r}: it must be https, because secrets are sent there."
        )
    if not loopback and (local or _is_this_machine(parts.hostname)):
        raise AuthorizationError(
            "loopback", f"{what} is {shown(url)!r}: a server on the network must not refer to this machine."
        )
    return parts


def is_loopback(host: str) -> bool:
    """Return whether a host name or IP address is this machine's loopback."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def may_get_tokens(address: str) -> bool:
    """Return whether tokens may be sent to an address: over TLS, or to this machine."""
    parts = urlsplit(address)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


def _is_this_machine(host: str) -> bool:
    """Return whether a host is this machine, its link, or its cloud's metadata, in any spelling that resolvers accept.

    Clouds give out credentials at link-local addresses. Private addresses are allowed: companies have their
    authorization servers there. A name that resolves to one of these addresses gets no request either, because nothing
    there has a certificate for that name.
    """
    name = host.lower().rstrip(".")
    if name.endswith(".localhost"):
        return True
    try:
        if ":" in name:
            long = ipaddress.IPv6Address(name)
            inner = long.packed[-4:] if long in _NAT64 else b""
            address: ipaddress.IPv4Address | ipaddress.IPv6Address
            address = long.ipv4_mapped or long.sixtofour or (ipaddress.IPv4Address(inner) if inner else long)
        else:
            # 127.1, 0x7f000001 and 2130706433 are 127.0.0.1: the last number fills the rest.
            *lead, last = [int(part, 8 if part.isdigit() and part[0] == "0" else 0) for part in name.split(".")]
            address = ipaddress.IPv4Address(last + sum(number << (24 - 8 * at) for at, number in enumerate(lead)))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified or address.is_link_local or str(address) in _CLOUD_METADATA


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    default = 443 if parts.scheme == "https" else 80
    return parts.scheme, (parts.hostname or "").lower(), parts.port or default


def same_origin(one: SplitResult, other: SplitResult) -> bool:
    """Return whether two addresses have the same scheme, host and port."""
    return _origin(one) == _origin(other)


def _root(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc.lower()}"


def canonical_resource(endpoint: str) -> str:
    """Return the canonical URI of a server: without query and fragment, and without a slash at the end."""
    parts = urlsplit(endpoint)
    return _root(parts) + parts.path.rstrip("/")


def resource_metadata_addresses(endpoint: str, challenge: Challenge | None) -> list[str]:
    """Return where to look for the resource's metadata, in order: the challenge's address, else the well-known ones."""
    named = challenge.resource_metadata if challenge is not None else None
    if named is not None:
        return [named]
    parts = urlsplit(endpoint)
    well_known = _root(parts) + "/.well-known/oauth-protected-resource"
    path = parts.path.rstrip("/")
    return [well_known + path, well_known] if path else [well_known]


def server_metadata_addresses(issuer: str) -> list[str]:
    """Return where to look for an authorization server's metadata, in order."""
    parts = urlsplit(issuer)
    root = f"{parts.scheme}://{parts.netloc}"
    path = parts.path.rstrip("/")
    if not path:
        return [f"{root}/.well-known/{name}" for name in ("oauth-authorization-server", "openid-configuration")]
    return [
        f"{root}/.well-known/oauth-authorization-server{path}",
        f"{root}/.well-known/openid-configuration{path}",
        f"{root}{path}/.well-known/openid-configuration",
    ]


def _covers(resource: SplitResult, endpoint: SplitResult) -> bool:
    """Return whether a resource is the endpoint, or a folder above it on the same origin."""
    path = resource.path.rstrip("/")
    inside = endpoint.path.rstrip("/") == path or endpoint.path.startswith(path + "/")
    return same_origin(resource, endpoint) and inside and not resource.query and not resource.fragment


def fetch_document(url: str, purpose: str, *, loopback: bool) -> Flow[Answer]:
    """Get a public document, following a few redirects. Nothing secret is sent."""
    answer: Answer = yield get_json(url, purpose)
    for _ in range(MAX_REDIRECTS):
        if answer.status not in (301, 302, 303, 307, 308) or "location" not in answer.headers:
            break
        try:
            url = urljoin(url, answer.headers["location"])
        except ValueError:
            raise AuthorizationError("address", f"The redirect for {purpose} is not a valid address.") from None
        check_address(url, f"The redirect for {purpose}", loopback=loopback)
        answer = yield get_json(url, purpose)
    return answer


def read_document(answer: Answer, purpose: str) -> dict[str, object]:
    """Return the JSON object in a body; raise `AuthorizationError` if it is none."""
    if len(answer.body) > MAX_DOCUMENT:
        raise AuthorizationError("document", f"The document with {purpose} has more than {MAX_DOCUMENT} bytes.")
    try:
        document: dict[str, object] = msgspec.json.decode(answer.body, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise AuthorizationError("document", f"The document with {purpose} is not a JSON object.") from None
    return document


def _check_found(statuses: list[int], whose: str, purpose: str) -> None:
    """Raise `AuthorizationError` if one of these statuses does not say whether there is a document."""
    for status in statuses:
        if status in PASSING_STATUSES:
            raise AuthorizationError(
                "unreachable",
                f"{shown(whose)} answered with status {status} when asked for {purpose}. Try again later.",
            )


def _convert(document: dict[str, object], kind: type[_S], purpose: str) -> _S:
    # null stands for "not given" in documents of several providers.
    given = {name: value for name, value in document.items() if value is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise AuthorizationError("document", f"The document with {purpose} cannot be used: {error}.") from None


def find_resource_metadata(endpoint: str, challenge: Challenge | None) -> Flow[ResourceMetadata | None]:
    """Return the metadata of the resource at ``endpoint``; None if the server has none, as in revision 2025-03-26."""
    here = check_address(endpoint, "The server's address", loopback=True)
    loopback = is_loopback(here.hostname or "")
    purpose = "the metadata of the protected resource"
    named = challenge is not None and challenge.resource_metadata is not None
    addresses = resource_metadata_addresses(endpoint, challenge)
    if named:
        # A server that was moved may name an address where nothing is; the well-known ones are tried then.
        addresses = list(dict.fromkeys([*addresses, *resource_metadata_addresses(endpoint, None)]))
    statuses = []
    for url in addresses:
        check_address(url, f"The address of {purpose}", loopback=loopback)
        answer = yield from fetch_document(url, purpose, loopback=loopback)
        statuses.append(answer.status)
        if answer.status != 200:
            continue
        try:
            document = read_document(answer, purpose)
        except AuthorizationError:
            if named and url == addresses[0]:
                raise
            continue  # many web servers answer every path with a page
        metadata = _convert(document, ResourceMetadata, purpose)
        resource = check_address(metadata.resource, "The resource in the server's metadata", loopback=loopback)
        if not _covers(resource, here):
            raise AuthorizationError(
                "resource",
                f"The server at {shown(endpoint)} has metadata of another resource, {shown(metadata.resource)!r}. "
                "Nothing was sent to the authorization servers that it names.",
            )
        if not metadata.authorization_servers:
            raise AuthorizationError("document", f"The metadata of {shown(endpoint)} names no authorization server.")
        return metadata
    _check_found(statuses, endpoint, purpose)
    return None


def find_server_metadata(issuer: str, *, loopback: bool, alias: str | None = None) -> Flow[ServerMetadata | None]:
    """Return the validated metadata of an authorization server; None if it has none.

    ``alias`` is another spelling that the document may have, where nobody has named the issuer.
    """
    parts = check_address(issuer, "The authorization server", loopback=loopback)
    if parts.query or parts.fragment:
        raise AuthorizationError("address", f"The authorization server {shown(issuer)!r} has a query or a fragment.")
    purpose = "the metadata of the authorization server"
    statuses = []
    for url in server_metadata_addresses(issuer):
        answer = yield from fetch_document(url, purpose, loopback=loopback)
        statuses.append(answer.status)
        if answer.status != 200:
            continue
        try:
            document = read_document(answer, purpose)
        except AuthorizationError:
            continue
        named = document.get("issuer")
        return check_server_metadata(document, alias if named == alias and alias else issuer, loopback=loopback)
    _check_found(statuses, issuer, purpose)
    return None


def check_server_metadata(document: dict[str, object], issuer: str, *, loopback: bool) -> ServerMetadata:
    """Return the metadata of ``issuer``; raise `AuthorizationError` if it is another's, or has unsafe addresses."""
    named = document.get("issuer")
    if named != issuer:
        raise AuthorizationError(
            "issuer",
            f"The metadata of the authorization server {shown(issuer)!r} is for the issuer {str(named)[:200]!r}. "
            "They must be identical; none of its endpoints was used.",
        )
    metadata = _convert(document, ServerMetadata, "the metadata of the authorization server")
    for name in ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"):
        url = getattr(metadata, name)
        if url is not None and check_address(url, f"The {name} of {issuer}", loopback=loopback).fragment:
            raise AuthorizationError("address", f"The {name} of {issuer} has a fragment: {shown(url)!r}.")
    return metadata
