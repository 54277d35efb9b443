"""The pool of HTTP connections to one server: headers, proxy, TLS, redirects and error translation.

Headers that the user sets, such as a token, are sent to the server's own origin only. So redirects are followed here,
not by aiohttp.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from errno import ECONNREFUSED
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from mcplumb.errors import ConnectError, ConnectTimeout, HttpError, ProtocolError, RequestLost, UsageError
from mcplumb.transports.http_client.masking import masked
from mcplumb.transports.http_client.post_queue import Body
from mcplumb.version import __version__

if TYPE_CHECKING:
    import ssl

    from aiohappyeyeballs import AddrInfoType

__all__ = ["Authorizer", "ConnectionPool", "fault"]

#: Seconds to establish a connection, name lookup and TLS included. An absent server is usually noticed sooner.
_CONNECT_TIMEOUT = 30.0
#: Seconds after which an idle connection is not reused. Servers close theirs after five (uvicorn, Node), and a request
#: that crosses with that is lost.
_KEEP_ALIVE = 4.0
#: Seconds for an orderly close of the connections.
_CLOSE_TIMEOUT = 1.0
#: Consecutive redirects that are followed. A missing slash takes one.
_MOST_REDIRECTS = 5
_LONGEST_QUOTE = 200

_logger = logging.getLogger("mcplumb.client")


class Authorizer(Protocol):
    """Puts tokens on requests."""

    async def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers that authorize one request."""

    async def renew(self, sent: str | None, www_authenticate: str | None, nonce: str | None) -> bool:
        """Get another token after a 401, without a user. Return whether to send the request again."""

    def accepted(self, nonce: str | None) -> None:
        """Record that a request was accepted, and the nonce of the response for the next DPoP proof."""

    @property
    def is_unproven(self) -> bool:
        """Whether it has to know of the next request that succeeds."""

    async def prove(self, sent: str | None) -> None:
        """Store the token of a request that has succeeded."""


class ConnectionPool:
    """The HTTP connections to one server. The pool opens with the first request, also after ``close``.

    ``url`` is the server's URL; ``headers`` are sent with every request, and those of the ``authorizer``. ``proxy`` is
    the URL of an HTTP proxy.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        proxy: str | None = None,
        tls: ssl.SSLContext | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self.url = URL(url)
        self._authorizer = authorizer
        # Without compression there are no decompression bombs.
        self._headers = CIMultiDict({"User-Agent": f"mcplumb/{__version__}", "Accept-Encoding": "identity"})
        self._headers.update(headers or {})
        self._proxy = None if proxy is None else _read_proxy(proxy)
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sockets: WeakSet[socket.socket] = WeakSet()

    @asynccontextmanager
    async def request(
        self, method: str, url: URL, headers: Mapping[str, str], body: Body | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and yield its response, whose head has been received. The response is closed on exit.

        * `ConnectError`: no connection could be established, so nothing was sent.
        * `RequestLost`: the connection ended before the response started.
        * `ProtocolError`: the response is not HTTP. `HttpError`: a redirect that is not followed.
        """
        response: aiohttp.ClientResponse | None = None
        try:
            response = await self._send(method, url, headers, body)
            for _ in range(_MOST_REDIRECTS):
                if response.status in (307, 308):
                    url = self._follow(url, response)
                elif not await self._renew(response):
                    break
                response.release()
                response = await self._send(method, url, headers, body)
            yield response
        finally:
            is_complete = response is not None and response.content.at_eof()
            if response is not None:
                response.close()
            if body is not None and not is_complete:
                body.drop()

    async def close(self) -> None:
        """Close all connections. Bounded in time. If cancelled, they are closed all the same."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await session.close()
        except TimeoutError:
            _logger.debug("Some HTTP connections did not close in time.")
        finally:
            self._shut_sockets()

    def kill(self) -> None:
        """Close all connections at once, without an event loop."""
        session, self._session = self._session, None
        if session is None:
            return
        closing = session.close()
        with suppress(StopIteration):
            closing.send(None)  # The first step closes everything; the others only wait.
        closing.close()
        self._shut_sockets()

    def is_own(self, url: URL) -> bool:
        """Return whether a URL has the server's own origin, and no user name or password."""
        if url.raw_user is not None or url.raw_password is not None:
            return False
        return url.scheme in ("http", "https") and bool(url.raw_host) and url.origin() == self.url.origin()

    async def _renew(self, response: aiohttp.ClientResponse) -> bool:
        """Return whether to send a request again, with another token than the one that was refused."""
        if self._authorizer is None:
            return False
        nonce = response.headers.get("DPoP-Nonce")
        if response.status != 401:
            if response.ok and self._authorizer.is_unproven:
                await self._authorizer.prove(response.request_info.headers.get("Authorization"))
            if response.status != 403:
                self._authorizer.accepted(nonce)
            return False
        asked = ", ".join(response.headers.getall("WWW-Authenticate", ()))
        return await self._authorizer.renew(response.request_info.headers.get("Authorization"), asked or None, nonce)

    async def _send(
        self, method: str, url: URL, headers: Mapping[str, str], body: Body | None
    ) -> aiohttp.ClientResponse:
        if self._authorizer is not None:
            headers = {**headers, **await self._authorizer.headers(method, str(url))}
        if self._session is None:
            self._session = self._open()
        try:
            return await self._session.request(
                method,
                url,
                headers=CIMultiDict(self._headers, **headers),
                data=body,
                allow_redirects=False,
                proxy=self._proxy,
                ssl=True if self._tls is None else self._tls,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as error:
            kind = ConnectTimeout if isinstance(error, TimeoutError) else ConnectError
            raise kind(self._why_not(error)) from error
        except aiohttp.ClientResponseError as error:
            raise ProtocolError(f"The server's response is not HTTP: {fault(error)}.") from None
        except (aiohttp.ClientError, OSError) as error:
            raise RequestLost(f"The HTTP connection ended before the response: {error}.") from error

    def _open(self) -> aiohttp.ClientSession:
        self._loop = asyncio.get_running_loop()
        return aiohttp.ClientSession(
            # No limit here: the queue of posts limits the number of concurrent requests, per lane.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE, socket_factory=self._make_socket),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_TIMEOUT),
            auto_decompress=False,
        )

    def _make_socket(self, info: AddrInfoType) -> socket.socket:
        made = socket.socket(*info[:3])
        self._sockets.add(made)
        return made

    def _shut_sockets(self) -> None:
        """Shut down sockets that are still open: a transport with unsent bytes waits for a peer that may never read."""
        for each in list(self._sockets):
            if self._loop is not None and self._loop.is_closed():
                each.close()  # The closed loop will not.
                continue
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # It is closed already.
        self._sockets.clear()

    def _follow(self, url: URL, response: aiohttp.ClientResponse) -> URL:
        location = response.headers.get("Location", "")
        try:
            target = url.join(URL(location))
        except ValueError:
            target = URL()
        if not location or not self.is_own(target):
            quoted = ascii(masked(response.request_info, location.partition("?")[0])[:_LONGEST_QUOTE])
            raise HttpError(
                response.status,
                f"The server redirects to {quoted}, which is not at {self.url.origin()} or contains a user name. "
                "Nothing was sent there. If that is the right server, connect to that address.",
            )
        return target

    def _why_not(self, error: Exception) -> str:
        where, why = str(self.url.origin()), fault(error)
        if isinstance(error, aiohttp.ClientHttpProxyError):
            return f"The proxy refused to connect to {where}: it answered with HTTP {error.status} {error.message}."
        if isinstance(error, aiohttp.ClientProxyConnectionError) and self._proxy is not None:
            return f"The proxy {self._proxy.origin()} cannot be reached: {why}. Check proxy=…"
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            return (
                f"The certificate of {where} cannot be trusted: {error.certificate_error}. If your own authority "
                "signed it, pass tls=ssl.create_default_context(cafile=…)."
            )
        if isinstance(error, aiohttp.ClientSSLError):
            return f"TLS failed at {where}: {why}. The server may speak http only, or other versions of TLS."
        if isinstance(error, aiohttp.ClientConnectorDNSError):
            return f"{where} cannot be reached: its name could not be resolved ({why}). Check the address."
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return (
                f"{where} cannot be reached: there was no connection within {_CONNECT_TIMEOUT:g} s. Check the address."
            )
        if getattr(error, "errno", None) == ECONNREFUSED:
            return f"{where} cannot be reached: nothing listens there. Start the server, or check the address."
        return f"{where} cannot be reached: {why}. Check that the server runs and that the address is right."


def _read_proxy(text: str) -> URL:
    try:
        proxy = URL(text)
    except (TypeError, ValueError):
        proxy = URL()
    if proxy.scheme not in ("http", "https") or not proxy.raw_host:
        # The message does not quote the address, which may contain a password.
        raise UsageError("proxy must be the URL of an HTTP proxy: proxy='http://host:port'.")
    return proxy


def fault(error: Exception) -> str:
    """Return what went wrong with a request, in words.

    The parser quotes what it cannot read. A server that echoes the request would get its secrets into our errors.
    """
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.ClientPayloadError):
        return re.split(r"[:\n]", getattr(error, "message", "") or str(error), maxsplit=1)[0]
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__).rstrip(".")
