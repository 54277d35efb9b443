"""Handshake, discovery and capabilities: how a connection begins.

``ping`` and ``notifications/initialized`` carry nothing of their own: their params are ``Params``.
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


# What clients and servers say they can do.


class RootsCapability(Payload, frozen=True, kw_only=True):
    """The client has roots, and may announce that they changed."""

    list_changed: bool | None = None


class SamplingCapability(Payload, frozen=True, kw_only=True):
    """The client can ask a model: with context of servers, with tools."""

    context: dict[str, Any] | None = None
    tools: dict[str, Any] | None = None


class ElicitationCapability(Payload, frozen=True, kw_only=True):
    """The client can ask its user: with a form, with a web page."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None

    @property
    def has_form(self) -> bool:
        """Whether forms can be shown; that is also what the empty capability means."""
        return self.form is not None or self.url is None

    @property
    def has_url(self) -> bool:
        """Whether the user can be sent to a web page."""
        return self.url is not None


class ClientCapabilities(Payload, frozen=True, kw_only=True):
    """What a client can do for a server."""

    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    extensions: dict[str, Any] | None = None
    experimental: dict[str, Any] | None = None
    #: Experimental in one revision, kept as it came.
    tasks: dict[str, Any] | None = None


class ListCapability(Payload, frozen=True, kw_only=True):
    """The server has a list of something, and may announce that it changed."""

    list_changed: bool | None = None


class ResourcesCapability(Payload, frozen=True, kw_only=True):
    """The server has resources, and may announce that their list, or that one of them, changed."""

    list_changed: bool | None = None
    subscribe: bool | None = None


class ServerCapabilities(Payload, frozen=True, kw_only=True):
    """What a server has for a client."""

    tools: ListCapability | None = None
    resources: ResourcesCapability | None = None
    prompts: ListCapability | None = None
    completions: dict[str, Any] | None = None
    logging: dict[str, Any] | None = None
    extensions: dict[str, Any] | None = None
    experimental: dict[str, Any] | None = None
    #: Experimental in one revision, kept as it came.
    tasks: dict[str, Any] | None = None


# How a connection begins: the handshake of the legacy revisions, the discovery of the modern ones.


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
