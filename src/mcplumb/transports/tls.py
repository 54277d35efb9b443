"""TLS over sockets, with the standard library's `ssl`: contexts, the handshake, encrypted reading and writing.

TLS runs on memory buffers (``ssl.MemoryBIO``) between the socket and the connection. So a peer can close its sending
side and still receive its responses, and at most one read or one write is buffered.
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
from mcplumb.transports.socket_connection import LingeringSink, SocketConnection, SocketSource
from mcplumb.wire.message_decoder import Expected

__all__ = ["TlsSession", "TlsSink", "TlsSource", "client_tls", "explain_tls_error", "server_tls", "start_tls"]

_File = str | os.PathLike[str]

#: Bytes per read during the handshake.
_HANDSHAKE_CHUNK = 16 * 1024
#: Plain bytes that are encrypted at once; the plain and the encrypted form are both in memory meanwhile.
_BLOCK = 256 * 1024


# Contexts: certificates and trust


def server_tls(cert: _File, key: _File | None = None, *, client_ca: _File | None = None) -> ssl.SSLContext:
    """Return a TLS context for a server, from its certificate chain and its key, if that is in another file.

    With ``client_ca``, only clients with a certificate that one of these authorities signed are served. All files are
    PEM.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _load_identity(context, cert, key)
    if client_ca is not None:
        _load_trust(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_tls(ca: _File | None = None, cert: _File | None = None, key: _File | None = None) -> ssl.SSLContext:
    """Return a TLS context for a client that trusts the authorities in ``ca``, or else those of the system.

    ``cert`` and ``key`` are the client's own certificate, for servers that ask for one. All files are PEM.
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
        raise UsageError("A key needs its certificate: give cert as well.")
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
        raise UsageError(f"{ca} contains no PEM certificate to trust. ({error.reason or error})") from error
    except OSError as error:
        raise UsageError(f"The certificates to trust, {ca}, cannot be read: {error.strerror}.") from error


def _no_password() -> NoReturn:
    # Otherwise OpenSSL prompts on the terminal, which blocks the event loop.
    raise UsageError("The key is encrypted: decrypt it, or make an ssl.SSLContext yourself and give it the password.")


# The handshake


class TlsSession:
    """One side of a TLS session, with memory buffers for the encrypted bytes in both directions."""

    __slots__ = ("incoming", "outgoing", "session")

    def __init__(self, context: ssl.SSLContext, *, host: str | None) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = context.wrap_bio(self.incoming, self.outgoing, server_side=host is None, server_hostname=host)

    async def do_handshake(self, connected: socket.socket) -> None:
        """Perform the handshake, without a timeout; raise `ssl.SSLError` or another `OSError` if it fails."""
        loop = asyncio.get_running_loop()
        while True:
            is_done = False
            try:
                self.session.do_handshake()
                is_done = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                with suppress(OSError):  # the alert is best effort
                    connected.send(self.outgoing.read())
                raise
            await loop.sock_sendall(connected, self.outgoing.read())
            if is_done:
                return
            if chunk := await loop.sock_recv(connected, _HANDSHAKE_CHUNK):
                self.incoming.write(chunk)
            else:
                self.incoming.write_eof()


async def start_tls(
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
    """Perform the handshake and return a connection that has taken over the socket.

    ``host`` is the server's name for a client, and None for a server. If this raises, the socket still belongs to the
    caller.
    """
    tls = TlsSession(context, host=host)
    await tls.do_handshake(connected)
    fd = connected.fileno()
    source, sink = TlsSource(fd, tls, refused), TlsSink(fd, tls, linger)
    connected.detach()
    return SocketConnection(source, sink, limits=limits, expect=expect, trace=trace)


def explain_tls_error(error: ssl.SSLError) -> str:
    """Explain to the user of a client why the handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {error.verify_message}. "
            "If it is the right server, trust its authority with client_tls(ca=…)."
        )
    return (
        f"TLS failed ({error.reason or error}). Perhaps the server does not use TLS, or requires a client certificate."
    )


# Reading and writing


class TlsSource(SocketSource):
    """Reads a socket and decrypts its bytes."""

    __slots__ = ("_decrypted", "_tls")

    _decrypted: Callable[[bytes], int]

    def __init__(self, fd: int, tls: TlsSession, refused: Callable[[], None] | None = None) -> None:
        super().__init__(fd, refused)
        self._tls = tls

    def _begin(self) -> None:
        super()._begin()
        self._decrypted, self._arrived = self._arrived, self._decrypt

    def resume(self) -> None:
        """Read again, starting with bytes that arrived along with the end of the handshake."""
        super().resume()
        if self._tls.incoming.pending:
            self._loop.call_soon(self._decrypt_pending)

    def _decrypt_pending(self) -> None:
        if self._is_watching:
            self._decrypt(b"")
            self._end_if_due()

    def _decrypt(self, chunk: bytes) -> int:
        self._tls.incoming.write(chunk)
        plain, failure = [], None
        try:
            while piece := self._tls.session.read(_BLOCK):
                plain.append(piece)
            self._left = 0  # the peer sent close_notify
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._left, failure = 0, error
        lines = self._decrypted(b"".join(plain)) if plain else 0
        if failure is not None and self._is_watching:
            self._end(failure)
        return lines


class TlsSink(LingeringSink):
    """Encrypts bytes and writes them to a socket."""

    __slots__ = ("_encrypted", "_tls", "_unsent")

    def __init__(self, fd: int, tls: TlsSession, linger: float) -> None:
        super().__init__(fd, linger)
        self._tls = tls
        #: Encrypted bytes still to be written, and how many plain bytes they stand for.
        self._unsent = memoryview(b"")
        self._encrypted = 0

    def write(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Write as much as the socket has room for. A block counts as written when its last byte is."""
        if not self._unsent:
            self._encrypted = self._tls.session.write(_first_block(pieces))
            self._unsent = memoryview(self._tls.outgoing.read())
        self._unsent = self._unsent[super().write((self._unsent,)) :]
        return 0 if self._unsent else self._encrypted

    def _shut_down_sending(self) -> None:
        with suppress(ssl.SSLError):  # unwrap would wait for the peer's close_notify; ours is in the buffer
            self._tls.session.unwrap()
        super().write((self._tls.outgoing.read(),))
        super()._shut_down_sending()


def _first_block(pieces: Sequence[bytes | memoryview]) -> bytes | bytearray | memoryview:
    """Return the first bytes of the pieces, at most one block."""
    if len(pieces) == 1 or len(pieces[0]) >= _BLOCK:
        return pieces[0][:_BLOCK]
    block = bytearray()
    for piece in pieces:
        block += piece[: _BLOCK - len(block)]
        if len(block) == _BLOCK:
            break
    return block
