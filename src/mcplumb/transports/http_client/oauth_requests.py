"""Makes the HTTP requests of an OAuth flow: to any host, without cookies, redirects or credentials of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from mcplumb.errors import AuthorizationError, UsageError
from mcplumb.protocol.oauth.discovery import shown
from mcplumb.protocol.oauth.steps import Answer, Fetch, Flow
from mcplumb.version import __version__

try:
    import aiohttp
    from yarl import URL

    from mcplumb.transports.http_client.connection_pool import fault
except ModuleNotFoundError as error:
    raise UsageError("Asking an authorization server needs aiohttp: pip install 'mcplumb[auth]'.") from error

if TYPE_CHECKING:
    import ssl

__all__ = ["Fetcher", "open_fetcher", "run_flow"]

_T = TypeVar("_T")

#: Seconds for one request, connecting included.
_TIMEOUT = 30.0
#: Seconds for all requests of one flow, without the time that a user takes: there may be a hundred, if every server of
#: a long list redirects.
_FLOW_TIMEOUT = 120.0
#: The largest body that is read; the flow refuses documents of more than a megabyte.
_MAX_BODY = (1 << 20) + 1


class Fetcher:
    """Makes requests one after the other."""

    def __init__(self, session: aiohttp.ClientSession, proxy: str | None, tls: ssl.SSLContext | None) -> None:
        self._session = session
        self._proxy = proxy
        self._tls = tls
        #: Seconds that the requests so far took.
        self._spent = 0.0

    async def fetch(self, fetch: Fetch) -> Answer:
        """Make one request; raise `AuthorizationError` if there is no answer."""
        try:
            # The address as it was checked: yarl would decode and encode it again.
            url = URL(fetch.url, encoded=True)
        except ValueError:
            raise AuthorizationError(
                "address", f"The address for {fetch.purpose} is not valid: {shown(fetch.url)!r}."
            ) from None
        where = f"{url.scheme}://{url.raw_authority}"
        loop = asyncio.get_running_loop()
        start, within = loop.time(), min(_TIMEOUT, _FLOW_TIMEOUT - self._spent)
        try:
            async with (
                asyncio.timeout(within),
                self._session.request(
                    fetch.method,
                    url,
                    headers=dict(fetch.headers),
                    data=fetch.body or None,
                    allow_redirects=False,
                    proxy=self._proxy,
                    ssl=True if self._tls is None else self._tls,
                ) as response,
            ):
                body = await _read(response)
                headers = {name.lower(): value for name, value in response.headers.items()}
                return Answer(response.status, body, time.time(), headers)
        except TimeoutError:
            raise AuthorizationError(
                "unreachable", f"{where} did not answer within {within:.3g} s, when asked for {fetch.purpose}."
            ) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise AuthorizationError(
                "unreachable", f"{where} could not be asked for {fetch.purpose}: {fault(error)}."
            ) from None
        finally:
            self._spent += loop.time() - start


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_chunked(65536):
        body += piece
        if len(body) >= _MAX_BODY:
            break
    return bytes(body)


@asynccontextmanager
async def open_fetcher(*, proxy: str | None = None, tls: ssl.SSLContext | None = None) -> AsyncIterator[Fetcher]:
    """Yield a `Fetcher`; its connections are closed at the end."""
    headers = {"User-Agent": f"mcplumb/{__version__}", "Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(
        headers=headers, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False
    ) as session:
        yield Fetcher(session, proxy, tls)


async def run_flow(flow: Flow[_T], *, tls: ssl.SSLContext | None = None) -> _T:
    """Make the requests of a flow that opens no browser, and return its result."""
    given: Any = None
    async with open_fetcher(tls=tls) as fetcher:
        while True:
            try:
                step = flow.send(given)
            except StopIteration as end:
                result: _T = end.value
                return result
            assert isinstance(step, Fetch)  # noqa: S101 - no such flow asks for a visit
            given = await fetcher.fetch(step)
