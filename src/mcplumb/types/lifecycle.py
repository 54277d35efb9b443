"""How a connection begins: the handshake of the legacy revisions, the discovery of the modern ones.

``ping`` and ``notifications/initialized`` carry nothing of their own: their params are ``Params``.
"""

from __future__ import annotations

from mcplumb.types.base import CacheableResult, Implementation, Params, Result
from mcplumb.types.capabilities import ClientCapabilities, ServerCapabilities

__all__ = ["DiscoverResult", "InitializeParams", "InitializeResult"]


class InitializeParams(Params, frozen=True, kw_only=True):
    """The client's opening: the newest revision it can speak, what it can do, and who it is."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, frozen=True, kw_only=True):
    """The server's answer: the revision to speak, what it has, and who it is."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult, frozen=True, kw_only=True):
    """The revisions a server can speak, and what it has. Who it is may be in ``meta``."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
