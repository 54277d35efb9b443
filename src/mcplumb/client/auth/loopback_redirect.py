"""The listener for the redirect of a sign-in: a web server for one request, on loopback only.

The browser is sent to ``http://127.0.0.1:PORT/callback``. Both 127.0.0.1 and ::1 listen on the port where they can, so
that no other program answers at the same address. A request is answered only if it names this host, which a page that
rebinds its name to 127.0.0.1 does not.

The page that the user sees says how the sign-in has ended: the response waits while the code is exchanged for a token.
"""

from __future__ import annotations

import asyncio
import html
import os
import socket
import time
from typing import Self
from urllib.parse import parse_qsl

from mcplumb.errors import AuthorizationError, McplumbError
from mcplumb.protocol.oauth.steps import Redirect

__all__ = ["LoopbackRedirect", "is_own_port"]

_PATH = "/callback"
#: The longest request that is read, in bytes. A redirect has a code and a state in its first line.
_MAX_REQUEST = 64 * 1024
#: Seconds for a client to send its request.
_REQUEST_TIMEOUT = 10.0
#: Seconds for the sign-in to end after the redirect, before the page says that it goes on.
_MOST_HELD = 5.0
#: Seconds to write the pages when it has ended.
_LAST_SECONDS = 1.0
_LONGEST_QUOTE = 2000
#: Requests that are answered at once.
_MAX_CONNECTIONS = 20
#: Attempts to get the same port on both addresses.
_TRIES = 20
#: The ports that sign-ins of this process listen on, each with the process: a fork has none of them.
_own_ports: set[tuple[int, int]] = set()

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1.1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 15vh auto; padding: 0 1.5rem }}
h1 {{ font-size: 1.5rem }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{text}</p>
</body>
</html>
"""
_HEADERS = (
    "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\nConnection: close\r\n"
)


class LoopbackRedirect:
    """Listens for one redirect. ``port`` 0 takes any free port.

    The sign-in ends with the block: without an error, or with one that the page shows.
    """

    def __init__(self, port: int = 0) -> None:
        self._sockets = _bind(port)
        self.port: int = self._sockets[0].getsockname()[1]
        _own_ports.add((os.getpid(), self.port))
        #: The address to register, and to send the browser to.
        self.address = f"http://127.0.0.1:{self.port}{_PATH}"
        self._servers: list[asyncio.Server] = []
        self._open: set[asyncio.StreamWriter] = set()
        self._state = ""
        self._redirect: asyncio.Future[Redirect] | None = None
        #: The page for the user, when the sign-in has ended.
        self._page: asyncio.Future[bytes] | None = None
        #: What serves those that wait for the page.
        self._holding: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._redirect = asyncio.get_running_loop().create_future()
        self._page = asyncio.get_running_loop().create_future()
        try:
            for bound in self._sockets:
                self._servers.append(await asyncio.start_server(self._serve, sock=bound, limit=_MAX_REQUEST))
        except BaseException:
            for server in self._servers:
                server.close()
            self.close()  # the next sign-in must not wait for the port
            raise
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        for server in self._servers:
            server.close()
        try:
            if self._page is not None:
                self._page.set_result(_outcome(error))
            if self._holding:
                await asyncio.wait(self._holding, timeout=_LAST_SECONDS)
        finally:
            for writer in self._open:
                writer.close()  # a browser that connected ahead of time
            self.close()

    def close(self) -> None:
        """Stop listening."""
        for bound in self._sockets:
            bound.close()
        _own_ports.discard((os.getpid(), self.port))

    def expect(self, state: str) -> None:
        """Set the state that the redirect must have. Other redirects get an error and do not end the wait."""
        self._state = state

    async def wait(self, seconds: float) -> Redirect:
        """Return the redirect; raise `AuthorizationError` if none arrives in time."""
        if self._redirect is None:
            raise RuntimeError("It does not listen.")
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._redirect)
        except TimeoutError:
            raise AuthorizationError(
                "timeout",
                f"Nobody finished the sign-in in the browser within {seconds:g} s. If the browser shows an error, that "
                "says why; otherwise start again.",
            ) from None

    def give(self, url: str) -> None:
        """Accept a redirect that arrived in another way, for example pasted by the user."""
        if self._redirect is not None and not self._redirect.done():
            self._redirect.set_result(Redirect(url, time.time()))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if len(self._open) <= _MAX_CONNECTIONS:
                async with asyncio.timeout(_REQUEST_TIMEOUT):
                    head = await reader.readuntil(b"\r\n\r\n")
                page = self._answer(head) or await self._page_at_the_end()
                async with asyncio.timeout(_REQUEST_TIMEOUT):
                    writer.write(page)
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a port scanner, or a browser that connected ahead of time
        finally:
            self._open.discard(writer)
            writer.close()

    async def _page_at_the_end(self) -> bytes:
        """Return the response to the redirect, when the sign-in has ended; without an outcome if that takes long."""
        if self._page is None or (task := asyncio.current_task()) is None:
            raise RuntimeError("It does not listen.")
        self._holding.add(task)
        task.add_done_callback(self._holding.discard)
        try:
            async with asyncio.timeout(_MOST_HELD):
                return await asyncio.shield(self._page)
        except TimeoutError:
            return _response(
                "200 OK",
                "Almost signed in",
                "You can close this page. The program that opened it finishes the sign-in, and says how it ends.",
            )

    def _answer(self, head: bytes) -> bytes | None:
        """Return the response to one request. None if it is the redirect, which is kept: its response has to wait."""
        lines = head.decode("latin-1").split("\r\n")
        method, _, rest = lines[0].partition(" ")
        target = rest.partition(" ")[0]
        hosts = [
            value.strip() for name, _, value in (line.partition(":") for line in lines[1:]) if name.lower() == "host"
        ]
        if hosts not in ([f"127.0.0.1:{self.port}"], [f"localhost:{self.port}"], [f"[::1]:{self.port}"]):
            return _response("421 Misdirected Request", "Wrong host", "This address is for a sign-in on this machine.")
        path, _, given = target.partition("?")
        if path != _PATH:
            return _response("404 Not Found", "Nothing here", "This address is for a sign-in only.")
        if method != "GET":
            return _response("405 Method Not Allowed", "Not allowed", "A redirect is a GET request.")
        query = dict(parse_qsl(given.partition("#")[0]))
        if self._redirect is None or query.get("state") != self._state or not self._state:
            return _response(
                "400 Bad Request",
                "This is not the sign-in that was started",
                "It may be an old page. Close it, and use the page that was opened last.",
            )
        self.give(f"http://127.0.0.1:{self.port}{target}")
        return None


def is_own_port(port: int) -> bool:
    """Return whether another sign-in of this process listens on a port."""
    return (os.getpid(), port) in _own_ports


def _outcome(error: BaseException | None) -> bytes:
    """Return the page for a sign-in that has ended."""
    if error is None:
        text = "You can close this page and go back to the program that opened it."
        return _response("200 OK", "Signed in", text)
    why = "The program that opened this page says why."
    if isinstance(error, McplumbError):
        why = str(error)[:_LONGEST_QUOTE]
    elif isinstance(error, asyncio.CancelledError):
        why = "The program that opened this page has given up the sign-in."
    return _response("200 OK", "Not signed in", why)


def _bind(port: int) -> list[socket.socket]:
    """Return sockets that listen on one port of 127.0.0.1 and, where it exists, of ::1."""
    for _ in range(_TRIES):
        first = _listen(socket.AF_INET, "127.0.0.1", port)
        try:
            second = _listen(socket.AF_INET6, "::1", first.getsockname()[1])
        except OSError as error:
            if not _is_taken(error):
                return [first]  # this machine has no IPv6
            first.close()
            if port:
                break
            continue
        return [first, second]
    raise _taken(port)


def _listen(family: int, host: str, port: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if os.name == "posix":
            # The connections of an earlier sign-in do not keep the port taken. A program that listens does: only
            # SO_REUSEPORT, which is not set, would let another one listen on the same address.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(16)
        made.setblocking(False)
    except OSError as error:
        made.close()
        if port and _is_taken(error) and family == socket.AF_INET:
            raise _taken(port) from None
        raise
    return made


def _taken(port: int) -> AuthorizationError:
    which = f"The port {port}" if port else "Every port that was tried"
    return AuthorizationError(
        "port",
        f"{which} for the redirect is used by another program. End that one, or name another port, which must be "
        "registered if the client is.",
    )


def _is_taken(error: OSError) -> bool:
    import errno

    return error.errno == errno.EADDRINUSE


def _response(status: str, title: str, text: str) -> bytes:
    body = _PAGE.format(title=html.escape(title), text=html.escape(text)).encode()
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{_HEADERS}\r\n".encode() + body
