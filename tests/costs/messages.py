"""What is said to a server, as bytes."""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["LEGACY", "READY", "Era", "call", "listen", "opening"]

Era: TypeAlias = Literal["modern", "legacy"]

LEGACY = "2025-11-25"
#: Short, so that 50 calls fit into what is read at once, and into the smallest pipe: 16 KiB.
_ME = b'{"name":"me","version":"1"}'
_META = (
    b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":%b,'
    b'"io.modelcontextprotocol/clientCapabilities":{}}'
) % _ME
_HANDSHAKE = b'"protocolVersion":"%b","capabilities":{},"clientInfo":%b' % (LEGACY.encode(), _ME)
#: What a legacy client says when its session is open.
READY = b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'


def opening(era: Era) -> bytes:
    """What comes first. It is answered with one line."""
    if era == "modern":
        return _request(0, b"server/discover", _META)
    return _request(0, b"initialize", _HANDSHAKE) + READY


def call(era: Era, number: int, tool: bytes = b"echo", arguments: bytes = b'{"text":"hello"}') -> bytes:
    """A call of a tool."""
    params = b'"name":"%b","arguments":%b' % (tool, arguments)
    return _request(number, b"tools/call", params + b"," + _META if era == "modern" else params)


def listen(number: int) -> bytes:
    """A modern subscription, which is acknowledged with one line."""
    return _request(number, b"subscriptions/listen", b'"notifications":{"toolsListChanged":true},' + _META)


def _request(number: int, method: bytes, params: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":{%b}}\n' % (number, method, params)
