"""Reserved ``_meta`` keys, and the ``data`` of protocol errors.

``_meta`` itself is always the plain dict that came or will be sent: other keys in it belong to someone else and stay
as they are. Its values are not touched by ``for_revision``.
"""

from __future__ import annotations

from typing import Any, TypeVar, overload

import msgspec

from mcplumb.errors import DecodeError
from mcplumb.types.base import Implementation, Payload, RequestId
from mcplumb.types.client_features import ElicitParams
from mcplumb.types.lifecycle import ClientCapabilities
from mcplumb.types.notifications import LoggingLevel

__all__ = [
    "BAGGAGE",
    "CLIENT_CAPABILITIES",
    "CLIENT_INFO",
    "LOG_LEVEL",
    "PROGRESS_TOKEN",
    "PROTOCOL_VERSION",
    "SERVER_INFO",
    "SUBSCRIPTION_ID",
    "TRACEPARENT",
    "TRACESTATE",
    "MissingCapabilityData",
    "RequestMeta",
    "UnsupportedVersionData",
    "UrlElicitationRequiredData",
    "read_server_info",
    "read_subscription_id",
]


# The keys of ``_meta`` that the protocol reserves, and a typed view of a request's ``_meta``.


PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
PROGRESS_TOKEN = "progressToken"  # noqa: S105 - a key's name, no secret
TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
BAGGAGE = "baggage"

T = TypeVar("T")


class RequestMeta(msgspec.Struct, frozen=True):
    """What a request's ``_meta`` says, read when it is asked for.

    Each attribute is None when its key is absent, and raises a DecodeError that names the key when its value is not
    what it has to be.
    """

    #: The dict itself, with all its keys.
    raw: dict[str, Any]

    @classmethod
    def of(cls, meta: dict[str, Any] | None) -> RequestMeta:
        """The view of a payload's ``meta``."""
        return cls(meta if meta is not None else {})

    @property
    def protocol_version(self) -> str | None:
        """The revision that the request is written in."""
        return _read(self.raw, PROTOCOL_VERSION, str)

    @property
    def client_info(self) -> Implementation | None:
        """Who asks."""
        return _read(self.raw, CLIENT_INFO, Implementation)

    @property
    def client_capabilities(self) -> ClientCapabilities | None:
        """What the client can do while this request runs."""
        return _read(self.raw, CLIENT_CAPABILITIES, ClientCapabilities)

    @property
    def log_level(self) -> LoggingLevel | None:
        """The least severe log messages that are wanted for this request; none at all if absent."""
        level: LoggingLevel | None = _read(self.raw, LOG_LEVEL, LoggingLevel)
        return level

    @property
    def progress_token(self) -> RequestId | None:
        """The token for progress notifications; none are wanted if absent."""
        token: RequestId | None = _read(self.raw, PROGRESS_TOKEN, RequestId)
        return token

    @property
    def traceparent(self) -> str | None:
        """The caller's span, as in W3C Trace Context."""
        return _read(self.raw, TRACEPARENT, str)

    @property
    def tracestate(self) -> str | None:
        """Vendors' data about the trace, as in W3C Trace Context."""
        return _read(self.raw, TRACESTATE, str)

    @property
    def baggage(self) -> str | None:
        """The caller's own data about the trace, as in W3C Baggage."""
        return _read(self.raw, BAGGAGE, str)


def read_server_info(meta: dict[str, Any] | None) -> Implementation | None:
    """Who answered, from a result's ``meta``."""
    return _read(meta or {}, SERVER_INFO, Implementation)


def read_subscription_id(meta: dict[str, Any] | None) -> RequestId | None:
    """The subscription that a notification or a result belongs to."""
    found: RequestId | None = _read(meta or {}, SUBSCRIPTION_ID, RequestId)
    return found


@overload
def _read(meta: dict[str, Any], key: str, kind: type[T]) -> T | None: ...
@overload
def _read(meta: dict[str, Any], key: str, kind: Any) -> Any: ...
def _read(meta: dict[str, Any], key: str, kind: Any) -> Any:
    value = meta.get(key)
    if value is None or (isinstance(kind, type) and isinstance(value, kind)):
        return value
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise DecodeError(f"The key {key!r} of _meta has a value that cannot be read: {error}.") from error


# What some errors carry as their ``data``.


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
