"""The Model Context Protocol over pipes, sockets and HTTP: every revision, both ends."""

from typing import TYPE_CHECKING, Any

from mcpipe.errors import (
    Closed,
    ConnectError,
    ConnectTimeout,
    DecodeError,
    EncodeError,
    HttpError,
    McpipeError,
    NoCommonRevision,
    NotInRevision,
    ProtocolError,
    RemoteError,
    RequestCancelled,
    RequestError,
    RequestLost,
    RequestTimeout,
    ServerDown,
    ServerExited,
    StateRefused,
    ToolError,
    UsageError,
)
from mcpipe.version import __version__

if TYPE_CHECKING:
    from mcpipe.client.client import Client
    from mcpipe.client.connecting import connect
    from mcpipe.config.config import load_config
    from mcpipe.server.context import Context
    from mcpipe.server.headers import Header
    from mcpipe.server.media import Audio, File, Image
    from mcpipe.server.server import Server
    from mcpipe.transports.http_server.options import HttpOptions
    from mcpipe.transports.tls import client_tls, server_tls

__all__ = [
    "Audio",
    "Client",
    "Closed",
    "ConnectError",
    "ConnectTimeout",
    "Context",
    "DecodeError",
    "EncodeError",
    "File",
    "Header",
    "HttpError",
    "HttpOptions",
    "Image",
    "McpipeError",
    "NoCommonRevision",
    "NotInRevision",
    "ProtocolError",
    "RemoteError",
    "RequestCancelled",
    "RequestError",
    "RequestLost",
    "RequestTimeout",
    "Server",
    "ServerDown",
    "ServerExited",
    "StateRefused",
    "ToolError",
    "UsageError",
    "__version__",
    "client_tls",
    "connect",
    "load_config",
    "server_tls",
]

# What takes more than errors is loaded when it is asked for: a program that is only a server never loads the client.
_HOMES = {
    "Audio": "mcpipe.server.media",
    "Client": "mcpipe.client.client",
    "Context": "mcpipe.server.context",
    "File": "mcpipe.server.media",
    "Header": "mcpipe.server.headers",
    "client_tls": "mcpipe.transports.tls",
    "server_tls": "mcpipe.transports.tls",
    "HttpOptions": "mcpipe.transports.http_server.options",
    "Image": "mcpipe.server.media",
    "Server": "mcpipe.server.server",
    "connect": "mcpipe.client.connecting",
    "load_config": "mcpipe.config.config",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import gc
    from importlib import import_module

    from mcpipe.transports.deferring import load_asyncio

    load_asyncio()
    # What an import makes stays, so that looking for what could go, again and again, only takes time.
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        value = globals()[name] = getattr(import_module(home), name)
    finally:
        if was_collecting:
            gc.enable()
    return value


def __dir__() -> list[str]:
    return __all__
