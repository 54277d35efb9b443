"""Handshake, discovery and capabilities: the payloads that open a connection.

``ping`` and ``notifications/initialized`` have no params of their own: their params are ``Params``.
"""

from __future__ import annotations

from typing import Any

from mcplumb.types.base import CacheableResult, Implementation, Params, Payload, Result

__all__ = [
    "ClientCapabilities",
    "DiscoverResult",
    "ElicitationCapability",
    "InitializeParams",
    "InitializeResult",
    "ListCapability",
    "ResourcesCapability",
    "RootsCapability",
    "SamplingCapability",
    "ServerCapabilities",
]


# Capabilities of clients and servers.


class RootsCapability(Payload, frozen=True, kw_only=True):
    """The client has roots, and may announce changes."""

    list_changed: bool | None = None


class SamplingCapability(Payload, frozen=True, kw_only=True):
    """The client supports sampling, optionally with context from servers and with tools."""

    context: dict[str, Any] | None = None
    tools: dict[str, Any] | None = None


class ElicitationCapability(Payload, frozen=True, kw_only=True):
    """The client supports elicitation: with forms, with web pages."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None

    @property
    def has_form(self) -> bool:
        """Whether the client can show forms; the empty capability means this, too."""
        return self.form is not None or self.url is None

    @property
    def has_url(self) -> bool:
        """Whether the client can send the user to a web page."""
        return self.url is not None


class ClientCapabilities(Payload, frozen=True, kw_only=True):
    """The capabilities of a client."""

    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    extensions: dict[str, Any] | None = None
    experimental: dict[str, Any] | None = None
    #: Experimental in one revision, kept unchanged.
    tasks: dict[str, Any] | None = None


class ListCapability(Payload, frozen=True, kw_only=True):
    """The server has a list of tools or prompts, and may announce changes."""

    list_changed: bool | None = None


class ResourcesCapability(Payload, frozen=True, kw_only=True):
    """The server has resources, and may announce changes of their list or of single resources."""

    list_changed: bool | None = None
    subscribe: bool | None = None


class ServerCapabilities(Payload, frozen=True, kw_only=True):
    """The capabilities of a server."""

    tools: ListCapability | None = None
    resources: ResourcesCapability | None = None
    prompts: ListCapability | None = None
    completions: dict[str, Any] | None = None
    logging: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None
    experimental: dict[str, Any] | None = None
    #: Experimental in one revision, kept unchanged.
    tasks: dict[str, Any] | None = None


# The handshake of the legacy revisions, and the discovery of the modern ones.


class InitializeParams(Params, frozen=True, kw_only=True):
    """The params of ``initialize``: the newest revision of the client, its capabilities, and its name."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, frozen=True, kw_only=True):
    """The result of ``initialize``: the revision to use, the server's capabilities, and its name."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult, frozen=True, kw_only=True):
    """The result of ``server/discover``: the server's revisions and capabilities. ``meta`` may have its name."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
