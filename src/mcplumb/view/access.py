"""Access to the page: the secret in its address, the checks of Host and Origin, and the headers of each response.

The secret is the first part of the path, so that no request works without it, and none needs a cookie: browsers send
the cookies of a host to all its ports, and any program of the machine may listen at one of them. The threats are listed
in docs/topics/security.md.
"""

from __future__ import annotations

import hmac
import secrets
import time

from mcplumb.transports.http_server.asgi_request import HttpRequest, Refusal
from mcplumb.transports.http_server.origin import is_loopback

__all__ = ["HEADERS", "Access"]

#: Bytes of the secret, which cannot be guessed: as many as in a key of AES-256.
_SECRET_BYTES = 32
#: Seconds in which the browser must have used the address with which it is opened.
_TICKET_SECONDS = 60.0

_CONTENT_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data: blob:",
    "media-src": "data: blob:",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
    # No text can become markup or code: the functions that would do that throw.
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}

#: The headers of every response, refusals included.
HEADERS = (
    (b"content-security-policy", "; ".join(map(" ".join, _CONTENT_POLICY.items())).encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-embedder-policy", b"require-corp"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=(), usb=(), serial=(), payment=()"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
)

#: The names that the page has, and the port that needs not be named with them.
_NAMES = ("127.0.0.1", "localhost")
_HTTP_PORT = 80
#: What browsers say about where a request comes from, if it may use the API.
_OWN_SITE = ("same-origin", "none")


class Access:
    """Checks the requests for one page."""

    def __init__(self, secret: str | None = None) -> None:
        #: The secret that every user of the page needs.
        self.secret = secret or secrets.token_urlsafe(_SECRET_BYTES)
        self._ticket: str | None = None
        self._ticket_ends = 0.0

    def new_ticket(self) -> str:
        """Return a ticket that opens the page once, within a minute.

        The address with which a browser is started shows in the list of processes, to all users of the machine.
        """
        self._ticket = secrets.token_urlsafe(_SECRET_BYTES)
        self._ticket_ends = time.monotonic() + _TICKET_SECONDS
        return self._ticket

    def use_ticket(self, ticket: str) -> None:
        """Raise `Refusal` unless this is the ticket and it is unused."""
        is_right = self._ticket is not None and hmac.compare_digest(self._ticket.encode(), ticket.encode())
        if not is_right or time.monotonic() > self._ticket_ends:
            raise Refusal(
                403,
                "This link works once, within a minute. Open the address that mcplumb view has printed. If the link "
                "was new, another user of this machine has opened the page: press Ctrl-C there.",
            )
        self._ticket = None

    def admit(self, request: HttpRequest) -> str:
        """Return the path of a request below the secret; raise `Refusal` if the request may not pass.

        The reply is the same for a wrong secret and for none.
        """
        self.check_source(request)
        secret, _, rest = request.path.removeprefix("/").partition("/")
        if not hmac.compare_digest(secret.encode(), self.secret.encode()):
            raise Refusal(
                403, "The address of this page has a secret in it. Open the one that mcplumb view has printed."
            )
        return rest

    def check_source(self, request: HttpRequest) -> None:
        """Raise `Refusal` for a request not over loopback, with another host name, or from another page."""
        client = (request.scope.get("client") or ("",))[0]
        if not is_loopback(client):
            raise Refusal(403, "This page is for this machine only.")
        host = request.header("host") or ""
        server = request.scope.get("server") or ("", None)
        own = {f"{name}:{server[1]}" for name in _NAMES}
        if server[1] == _HTTP_PORT:
            own.update(_NAMES)  # browsers leave it out
        if host.lower() not in own:
            # By DNS rebinding, the name of another site can lead here.
            raise Refusal(403, "This page has another name: open the address that mcplumb view has printed.")
        origin = request.header("origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            raise Refusal(403, "Pages of other origins may not use this one.")

    def check_api(self, request: HttpRequest) -> None:
        """Raise `Refusal` if the browser reports that another site caused the request."""
        site = request.header("sec-fetch-site")
        if site is not None and site not in _OWN_SITE:
            raise Refusal(403, "Pages of other origins may not use this one.")
