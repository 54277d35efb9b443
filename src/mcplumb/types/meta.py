"""Reserved keys of ``_meta``, a typed view of a request's ``_meta``, and the ``data`` of protocol errors.

``_meta`` itself is always a plain dict, as received or as it will be sent: other keys in it belong to extensions and
applications, and stay unchanged. ``for_revision`` does not change its values.
"""

from __future__ import annotations

from typing import Any, TypeVar, overload

import msgspec

from mcplumb.errors import DecodeError
from mcplumb.types.base import Implementation, Payload, RequestId
from mcplumb.types.lifecycle import ClientCapabilities
from mcplumb.types.notification_params import LoggingLevel

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
    "read_server_info",
    "read_subscription_id",
]


# The keys that the protocol reserves.

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
    """A typed view of a request's ``_meta``. Each value is decoded on access.

    Each attribute is None if its key is absent, and raises a DecodeError that names the key if its value is invalid.
    """

    #: The dict itself, with all its keys.
    raw: dict[str, Any]

    @classmethod
    def of(cls, meta: dict[str, Any] | None) -> RequestMeta:
        """Return a view of a payload's ``meta``."""
        return cls(meta if meta is not None else {})

    @property
    def protocol_version(self) -> str | None:
        """The protocol revision of the request."""
        return _read(self.raw, PROTOCOL_VERSION, str)

    @property
    def client_info(self) -> Implementation | None:
        """The name and version of the client."""
        return _read(self.raw, CLIENT_INFO, Implementation)

    @property
    def client_capabilities(self) -> ClientCapabilities | None:
        """The client's capabilities for this request."""
        return _read(self.raw, CLIENT_CAPABILITIES, ClientCapabilities)

    @property
    def log_level(self) -> LoggingLevel | None:
        """The minimum level of the log messages to send for this request; None to send none."""
        level: LoggingLevel | None = _read(self.raw, LOG_LEVEL, LoggingLevel)
        return level

    @property
    def progress_token(self) -> RequestId | None:
        """The token for progress notifications; None to send none."""
        token: RequestId | None = _read(self.raw, PROGRESS_TOKEN, RequestId)
        return token

    @property
    def traceparent(self) -> str | None:
        """The caller's span, as in W3C Trace Context."""
        return _read(self.raw, TRACEPARENT, str)

    @property
    def tracestate(self) -> str | None:
        """Vendor-specific data about the trace, as in W3C Trace Context."""
        return _read(self.raw, TRACESTATE, str)

    @property
    def baggage(self) -> str | None:
        """The caller's own data about the trace, as in W3C Baggage."""
        return _read(self.raw, BAGGAGE, str)


def read_server_info(meta: dict[str, Any] | None) -> Implementation | None:
    """Return the name and version of the server from a result's ``meta``, or None."""
    return _read(meta or {}, SERVER_INFO, Implementation)


def read_subscription_id(meta: dict[str, Any] | None) -> RequestId | None:
    """Return the id of the subscription that a notification or result belongs to, or None."""
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


# The ``data`` of protocol errors.


class UnsupportedVersionData(Payload, frozen=True):
    """The data of error -32022: the versions that the server accepts, and the requested one."""

    supported: list[str]
    requested: str | None = None


class MissingCapabilityData(Payload, frozen=True):
    """The data of error -32021: the client capabilities that the request needs."""

    required_capabilities: ClientCapabilities
