"""What some errors carry as their ``data``."""

from __future__ import annotations

from mcplumb.types.base import Payload
from mcplumb.types.capabilities import ClientCapabilities
from mcplumb.types.elicitation import ElicitParams

__all__ = ["MissingCapabilityData", "UnsupportedVersionData", "UrlElicitationRequiredData"]


class UnsupportedVersionData(Payload, frozen=True):
    """Of -32022: the versions that the server takes requests in, and the one that was asked for."""

    supported: list[str]
    requested: str | None = None


class MissingCapabilityData(Payload, frozen=True):
    """Of -32021: what the client would have to be able to do."""

    required_capabilities: ClientCapabilities


class UrlElicitationRequiredData(Payload, frozen=True):
    """Of -32042, in one revision: the web pages that the user has to see first."""

    elicitations: list[ElicitParams]
