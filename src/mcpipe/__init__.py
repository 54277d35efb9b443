"""The Model Context Protocol over pipes, sockets and HTTP: every revision, both ends."""

from mcpipe.errors import (
    Closed,
    ConnectError,
    DecodeError,
    EncodeError,
    McpipeError,
    NoCommonRevision,
    NotInRevision,
    ProtocolError,
    RemoteError,
    RequestCancelled,
    RequestLost,
    RequestTimeout,
    ServerExited,
    StateRefused,
    ToolError,
    UsageError,
)

__version__ = "0.1.0"

__all__ = [
    "Closed",
    "ConnectError",
    "DecodeError",
    "EncodeError",
    "McpipeError",
    "NoCommonRevision",
    "NotInRevision",
    "ProtocolError",
    "RemoteError",
    "RequestCancelled",
    "RequestLost",
    "RequestTimeout",
    "ServerExited",
    "StateRefused",
    "ToolError",
    "UsageError",
    "__version__",
]
