"""Check the Host and the Origin of requests, against web pages that attack local servers, and answer CORS preflights.

A web page can make a browser send requests to servers that only the browser can reach. It cannot forge the Origin
header, but by DNS rebinding (a name of its own that points to the server's address) it can choose the Host.
"""

from __future__ import annotations

import logging
from ipaddress import ip_address

from mcplumb.transports.address import HttpAddress
from mcplumb.transports.http_server.asgi_request import HttpRequest, Refusal
from mcplumb.transports.http_server.http_options import HttpOptions
from mcplumb.wire.messages import INVALID_REQUEST, ErrorDetail

__all__ = ["OriginCheck", "is_loopback", "names_address", "warn_if_open"]

_logger = logging.getLogger("mcplumb.http")

_DEFAULT_PORTS = {"http": "80", "https": "443"}
#: Response headers that a page of another origin may read.
_EXPOSED = b"mcp-session-id, www-authenticate"
#: Seconds for which a browser may cache the response to a preflight.
_MAX_AGE = b"600"
#: The longest request header that is echoed in a response, in bytes.
_LONGEST_ECHO = 1000

_UNKNOWN = ("",)
#: Addresses that stand for all interfaces.
_ANY_ADDRESS = frozenset(str(ip_address(number)) for number in (bytes(4), bytes(16)))
_LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


class OriginCheck:
    """Checks the Host and the Origin of requests for one application."""

    def __init__(self, options: HttpOptions) -> None:
        self._hosts = None if options.hosts is None else frozenset(host.lower() for host in options.hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in options.origins)

    def check_host(self, request: HttpRequest) -> None:
        """Raise `Refusal` if the Host header names another server."""
        host = request.header("host") or ""
        name = _name_of(host)
        if _is_local(request):
            if is_loopback(name):
                return
        elif self._hosts is None:
            return
        if not (self._is_named(host.lower()) or "*" in (self._hosts or ())):
            raise _forbidden(
                f"This server does not answer to the name {host[:100]!r}. If it should, add it to HttpOptions(hosts=…)."
            )

    def check_origin(self, request: HttpRequest) -> None:
        """Raise `Refusal` if the request comes from a web page that may not use the server.

        Otherwise allow the page to read the response. Pages of the server itself are allowed only at an IP address or
        at a configured name: by any other name, DNS rebinding could have led a foreign page here.
        """
        origin = request.header("origin")
        if origin is None:
            return
        if not self._is_allowed(origin.lower(), request):
            raise _forbidden(
                f"Web pages of {origin[:100]!r} may not use this server. If they should, add it to "
                "HttpOptions(origins=…), or, if that is the server itself, its name to HttpOptions(hosts=…)."
            )
        request.common_headers = (
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"origin"),
        )

    async def answer_preflight(self, request: HttpRequest, methods: bytes) -> None:
        """Answer a CORS preflight, after ``check_origin``."""
        wanted = (request.header("access-control-request-headers") or "").encode("latin-1")[:_LONGEST_ECHO]
        await request.respond(
            204,
            headers=(
                (b"allow", methods),
                (b"access-control-allow-methods", methods),
                (b"access-control-allow-headers", wanted),
                (b"access-control-max-age", _MAX_AGE),
            ),
        )

    def _is_allowed(self, origin: str, request: HttpRequest) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        scheme, _, authority = origin.partition("://")
        default_port = _DEFAULT_PORTS.get(scheme)
        if default_port is None or not authority:
            return False
        name, port = _split_host_port(authority)
        # Not the scheme: behind a proxy that terminates TLS, the server sees another one than its clients.
        own_host = (request.header("host") or "").lower()
        own_name, own_port = _split_host_port(own_host)
        if (port or default_port) != (own_port or default_port):
            return False
        if name == own_name and (_is_address(name) or self._is_named(own_host)):
            return True
        return _is_local(request) and is_loopback(name) and is_loopback(own_name)

    def _is_named(self, host: str) -> bool:
        """Return whether this is one of the configured names; ``*`` matches none here."""
        return self._hosts is not None and not self._hosts.isdisjoint((host, _name_of(host)))


def is_loopback(host: str) -> bool:
    """Return whether a name or an address belongs to the loopback interface."""
    if host in _LOOPBACK_NAMES:
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def names_address(request: HttpRequest) -> bool:
    """Return whether the Host is an IP address, which DNS rebinding cannot redirect."""
    return _is_address(_name_of(request.header("host") or ""))


def warn_if_open(address: HttpAddress, *, needs_tokens: bool) -> None:
    """Log a warning if everyone who can reach this machine may use a server at this address."""
    if not (is_loopback(address.host) or needs_tokens):
        _logger.warning(
            "%s can be used by everyone who can reach this machine. To change that, listen at 127.0.0.1, or "
            "require tokens: HttpOptions(tokens=…).",
            address,
        )


def _is_address(host: str) -> bool:
    """Return whether the host is an IP address, which DNS rebinding cannot redirect."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_local(request: HttpRequest) -> bool:
    """Return whether the request came over the loopback interface."""
    address = (request.scope.get("server") or _UNKNOWN)[0]
    if not address or address in _ANY_ADDRESS:
        # Some ASGI servers give the address that they listen at, not that of the connection.
        address = (request.scope.get("client") or _UNKNOWN)[0]
    return is_loopback(address)


def _split_host_port(authority: str) -> tuple[str, str]:
    """Split ``host:port``; the port may be missing, an IPv6 address loses its brackets. Invalid text is all host."""
    if authority.startswith("["):
        name, bracket, rest = authority[1:].partition("]")
        colon, port = rest[:1], rest[1:]
        is_valid = bracket and colon in ("", ":")
    else:
        name, _, port = authority.partition(":")
        is_valid = True
    return (name, port) if is_valid and (not port or port.isdecimal()) else (authority, "")


def _name_of(host: str) -> str:
    return _split_host_port(host.lower())[0].removesuffix(".")


def _forbidden(sentence: str) -> Refusal:
    return Refusal(403, ErrorDetail(INVALID_REQUEST, sentence))
