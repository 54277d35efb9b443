"""TLS over sockets, with the standard library: whom to trust and who to be, the handshake, and the bytes.

TLS is done in memory, between a socket and a connection that reads and writes it as any other. So a peer can close its
side and still get its answers, and nothing is held but what fits in one read or one write.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn

from mcplumb.errors import UsageError
from mcplumb.limits import Limits
from mcplumb.transports.line_connection import Trace
from mcplumb.transports.socket_connection import SocketConnection, SocketEnd, SocketSource
from mcplumb.wire.message_decoder import Expected

__all__ = ["Tls", "TlsEnd", "TlsSource", "client_tls", "secure", "server_tls", "why_not_secure"]

_File = str | os.PathLike[str]

#: Bytes to read at once in a handshake.
_CHUNK = 16 * 1024
#: Bytes to encrypt at once. As many are held in both forms.
_BLOCK = 256 * 1024


# --- Whom to trust, and who to be ---


def server_tls(cert: _File, key: _File | None = None, *, client_ca: _File | None = None) -> ssl.SSLContext:
    """What a server needs: its certificate, with those in between, and its key, if that is in another file.

    With ``client_ca``, only clients whose certificate was signed by one of these are served. All files are PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_identity(context, cert, key)
    if client_ca is not None:
        _load_trust(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_tls(ca: _File | None = None, cert: _File | None = None, key: _File | None = None) -> ssl.SSLContext:
    """What a client needs: whom to trust, if that is not whom the system trusts.

    And its own certificate and key, where servers ask for that. All files are PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if ca is None:
        context.load_default_certs()
    else:
        _load_trust(context, ca)
    if cert is not None:
        _load_identity(context, cert, key)
    elif key is not None:
        raise UsageError("A key is of no use without its certificate: give cert, too.")
    return context


def _load_identity(context: ssl.SSLContext, cert: _File, key: _File | None) -> None:
    files = str(cert) if key is None else f"{cert} and {key}"
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError as error:
        raise UsageError(
            f"{files} cannot be used for TLS: give a certificate and the key that belongs to it, both in PEM form. "
            f"({error.reason or error})"
        ) from error
    except OSError as error:
        raise UsageError(f"The certificate or the key, {files}, cannot be read: {error.strerror}.") from error


def _load_trust(context: ssl.SSLContext, ca: _File) -> None:
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        raise UsageError(f"{ca} has no certificate in PEM form to trust. ({error.reason or error})") from error
    except OSError as error:
        raise UsageError(f"The certificates to trust, {ca}, cannot be read: {error.strerror}.") from error


def _no_password() -> NoReturn:
    # Otherwise the terminal is asked, and everything waits for it.
    raise UsageError("The key is encrypted: decrypt it, or make an ssl.SSLContext yourself and give it the password.")


# --- The handshake ---


class Tls:
    """One end of TLS, in memory: what comes goes in, and what is to be sent comes out."""

    __slots__ = ("incoming", "outgoing", "session")

    def __init__(self, context: ssl.SSLContext, *, host: str | None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(self.incoming, self.outgoing, server_side=host is None, server_hostname=host)

    async def shake_hands(self, connected: socket.socket) -> None:
        """Agree with the peer; `ssl.SSLError` or another `OSError` if that fails. Takes as long as the peer likes."""
        loop = asyncio.get_running_loop()
        while True:
            is_done = False
            try:
                self.session.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                with suppress(OSError):  # whether the peer learns why or not
                    connected.send(self.outgoing.read())
                raise
            await loop.sock_sendall(connected, self.outgoing.read())
            if is_done:
                return
            if chunk := await loop.sock_recv(connected, _CHUNK):
                self.incoming.write(chunk)
            else:
                self.incoming.write_eof()


async def secure(
    connected: socket.socket,
    context: ssl.SSLContext,
    *,
    host: str | None,
    limits: Limits,
    expect: Expected,
    trace: Trace | None,
    linger: float = 0.0,
    refused: Callable[[], None] | None = None,
) -> SocketConnection:
    """A connection with TLS, for the client of this host, or for a server. Takes the socket over, unless it raises."""
    tls = Tls(context, host=host)
    await tls.shake_hands(connected)
    fd = connected.fileno()
    source, end = TlsSource(fd, tls, refused), TlsEnd(fd, tls, linger)
    connected.detach()
    return SocketConnection(source, end, limits=limits, expect=expect, trace=trace)


def why_not_secure(error: ssl.SSLError) -> str:
    """What it means, for a client, that a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {error.verify_message}. "
            "If it is the right server, trust its authority with client_tls(ca=…)."
        )
    return f"TLS failed ({error.reason or error}). Perhaps the server does not use it, or wants a certificate."


# --- The bytes ---


class TlsSource(SocketSource):
    """Reads a socket, and decrypts what comes."""

    __slots__ = ("_decrypted", "_tls")

    _decrypted: Callable[[bytes], int]

    def __init__(self, fd: int, tls: Tls, refused: Callable[[], None] | None = None) -> None:
        super().__init__(fd, refused)
        self._tls = tls

    def start(
        self,
        arrived: Callable[[bytes], int],
        ran_out: Callable[[OSError | None], None],
        hung_up: Callable[[], None],
    ) -> None:
        """Begin."""
        super().start(arrived, ran_out, hung_up)
        self._decrypted, self._arrived = self._arrived, self._decrypt

    def resume(self) -> None:
        """Read again, first what came with the end of the handshake."""
        super().resume()
        if self._tls.incoming.pending:
            self._loop.call_soon(self._catch_up)

    def _catch_up(self) -> None:
        if self._is_watching:
            self._decrypt(b"")
            self._end_if_due()

    def _decrypt(self, chunk: bytes) -> int:
        self._tls.incoming.write(chunk)
        text, failure = [], None
        try:
            while piece := self._tls.session.read(_BLOCK):
                text.append(piece)
            self._left = 0  # the peer has said that this is the end
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._left, failure = 0, error
        lines = self._decrypted(b"".join(text)) if text else 0
        if failure is not None and self._is_watching:
            self._end(failure)
        return lines


class TlsEnd(SocketEnd):
    """Encrypts, and writes to a socket."""

    __slots__ = ("_sealed", "_tls", "_unsent")

    def __init__(self, fd: int, tls: Tls, linger: float) -> None:
        super().__init__(fd, linger)
        self._tls = tls
        #: What is encrypted and has to be written, and how many bytes of the pieces are in there.
        self._unsent = memoryview(b"")
        self._sealed = 0

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write what the socket has room for. A piece counts as written when the last byte of its block is."""
        if not self._unsent:
            self._sealed = self._tls.session.write(_beginning(pieces))
            self._unsent = memoryview(self._tls.outgoing.read())
        self._unsent = self._unsent[super().write((self._unsent,)) :]
        return 0 if self._unsent else self._sealed

    def _say_end(self) -> None:
        with suppress(ssl.SSLError):  # it wants to wait for the peer to say the same
            self._tls.session.unwrap()
        super().write((self._tls.outgoing.read(),))
        super()._say_end()


def _beginning(pieces: Sequence[bytes | memoryview]) -> bytes | bytearray | memoryview:
    """As much of the pieces as is encrypted at once."""
    if len(pieces) == 1 or len(pieces[0]) >= _BLOCK:
        return pieces[0][:_BLOCK]
    block = bytearray()
    for piece in pieces:
        block += piece[: _BLOCK - len(block)]
        if len(block) == _BLOCK:
            break
    return block
