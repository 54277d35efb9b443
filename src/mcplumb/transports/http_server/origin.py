"""Who may talk to a server at all: by the name it was asked for, and by the web page that asks.

A web page can make a browser send requests to servers that only the browser can reach. It cannot choose the Origin that
the browser names, nor, unless a name of its own points to the server's address (DNS rebinding), the Host.
"""

from __future__ import annotations

from ipaddress import ip_address

from mcplumb.transports.http_server.options import HttpOptions
from mcplumb.transports.http_server.request import HttpRequest, Refusal
from mcplumb.wire.messages import INVALID_REQUEST, ErrorDetail

__all__ = ["Guards", "is_loopback"]

_DEFAULT_PORTS = {"http": "80", "https": "443"}
#: What a page of another origin may read of a response.
_EXPOSED = b"mcp-session-id, www-authenticate"
#: Seconds that a browser may remember the answer to a preflight.
_REMEMBERED = b"600"
#: Bytes of a header that are repeated in an answer.
_LONGEST_ECHO = 1000


class Guards:
    """Checks the Host and the Origin of requests for one application."""

    def __init__(self, options: HttpOptions) -> None:
        self._hosts = None if options.hosts is None else frozenset(host.lower() for host in options.hosts)
        self._origins = frozenset(origin.lower().rstrip("/") for origin in options.origins)

    def check_host(self, request: HttpRequest) -> None:
        """`Refusal` if the server was asked for by a name that is not its own."""
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
        """`Refusal` if a web page that may not use the server sent the request; one that may can read the answer.

        A page of the server's own may, if the server can know that it is one: by a name that somebody else owns, a page
        of theirs would come to the same place.
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
        """Tell a browser what a web page that may use the server can send, after ``check_origin``."""
        wanted = (request.header("access-control-request-headers") or "").encode("latin-1")[:_LONGEST_ECHO]
        await request.respond(
            204,
            headers=(
                (b"allow", methods),
                (b"access-control-allow-methods", methods),
                (b"access-control-allow-headers", wanted),
                (b"access-control-max-age", _REMEMBERED),
            ),
        )

    def _is_allowed(self, origin: str, request: HttpRequest) -> bool:
        if "*" in self._origins or origin in self._origins:
            return True
        scheme, _, place = origin.partition("://")
        default_port = _DEFAULT_PORTS.get(scheme)
        if default_port is None or not place:
            return False
        name, port = _split(place)
        # Behind a proxy that ends TLS, the server sees another scheme than its clients: only the places are compared.
        own_place = (request.header("host") or "").lower()
        own_name, own_port = _split(own_place)
        if (port or default_port) != (own_port or default_port):
            return False
        if name == own_name and (_is_address(name) or self._is_named(own_place)):
            return True
        return _is_local(request) and is_loopback(name) and is_loopback(own_name)

    def _is_named(self, host: str) -> bool:
        """Whether this is one of the names that the server was given. That all are allowed gives it none."""
        return self._hosts is not None and not self._hosts.isdisjoint((host, _name_of(host)))


_NOWHERE = ("",)
_EVERYWHERE = frozenset(str(ip_address(number)) for number in (bytes(4), bytes(16)))
_LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


def is_loopback(host: str) -> bool:
    """Whether an address, or a name, is one of those that every machine has for itself alone."""
    if host in _LOOPBACK_NAMES:
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _is_address(host: str) -> bool:
    """Whether this is an IP address, which nobody can make point to another place."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_local(request: HttpRequest) -> bool:
    """Whether the request came over the loopback interface."""
    place = (request.scope.get("server") or _NOWHERE)[0]
    if not place or place in _EVERYWHERE:
        # Some servers tell where they listen, and not where the connection is.
        place = (request.scope.get("client") or _NOWHERE)[0]
    return is_loopback(place)


def _split(place: str) -> tuple[str, str]:
    """The name and the port, which may be missing; an IPv6 address without its brackets. Anything else is a name."""
    if place.startswith("["):
        name, bracket, rest = place[1:].partition("]")
        colon, port = rest[:1], rest[1:]
        is_right = bracket and colon in ("", ":")
    else:
        name, _, port = place.partition(":")
        is_right = True
    return (name, port) if is_right and (not port or port.isdecimal()) else (place, "")


def _name_of(host: str) -> str:
    return _split(host.lower())[0].removesuffix(".")


def _forbidden(sentence: str) -> Refusal:
    return Refusal(403, ErrorDetail(INVALID_REQUEST, sentence))
