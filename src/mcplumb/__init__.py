"""The Model Context Protocol over pipes, sockets and HTTP: every revision, both ends."""

from typing import TYPE_CHECKING, Any

from mcplumb.errors import (
    Closed,
    ConnectError,
    ConnectTimeout,
    DecodeError,
    EncodeError,
    HttpError,
    McplumbError,
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
from mcplumb.version import __version__

if TYPE_CHECKING:
    from mcplumb.client.client import Client
    from mcplumb.client.connector import connect
    from mcplumb.config.load_config import load_config
    from mcplumb.server.context import Context
    from mcplumb.server.media import Audio, File, Image
    from mcplumb.server.schema.signature import Header
    from mcplumb.server.server import Server
    from mcplumb.transports.http_server.http_options import HttpOptions
    from mcplumb.transports.tls import client_tls, server_tls

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
    "McplumbError",
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
    "Audio": "mcplumb.server.media",
    "Client": "mcplumb.client.client",
    "Context": "mcplumb.server.context",
    "File": "mcplumb.server.media",
    "Header": "mcplumb.server.schema.signature",
    "client_tls": "mcplumb.transports.tls",
    "server_tls": "mcplumb.transports.tls",
    "HttpOptions": "mcplumb.transports.http_server.http_options",
    "Image": "mcplumb.server.media",
    "Server": "mcplumb.server.server",
    "connect": "mcplumb.client.connector",
    "load_config": "mcplumb.config.load_config",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return __all__
