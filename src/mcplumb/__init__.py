"""The Model Context Protocol over pipes, sockets and HTTP: every revision, both ends."""

from typing import TYPE_CHECKING, Any

from mcplumb.errors import (
    AuthorizationError,
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
    StoreUnavailable,
    ToolError,
    ToolFailed,
    UsageError,
)
from mcplumb.version import __version__

if TYPE_CHECKING:
    from mcplumb import sync
    from mcplumb.bridge.bridge import Bridge
    from mcplumb.client.auth.oauth import ClientCredentials, EnterpriseManaged, OAuth, WorkloadIdentity
    from mcplumb.client.client import Client
    from mcplumb.client.connector import connect
    from mcplumb.client.group import Group, connect_all
    from mcplumb.client.llm_tools import (
        result_for_anthropic,
        result_for_openai,
        tools_for_anthropic,
        tools_for_openai,
    )
    from mcplumb.config.load_config import load_config
    from mcplumb.protocol.principal import Principal
    from mcplumb.server.context import Context
    from mcplumb.server.media import Audio, File, Image
    from mcplumb.server.schema.signature import Header
    from mcplumb.server.server import Server
    from mcplumb.transports.http_server.auth.introspection import Introspection
    from mcplumb.transports.http_server.auth.jwt_verifier import JwtVerifier
    from mcplumb.transports.http_server.http_options import HttpOptions
    from mcplumb.transports.tls import client_tls, server_tls

__all__ = [
    "Audio",
    "AuthorizationError",
    "Bridge",
    "Client",
    "ClientCredentials",
    "Closed",
    "ConnectError",
    "ConnectTimeout",
    "Context",
    "DecodeError",
    "EncodeError",
    "EnterpriseManaged",
    "File",
    "Group",
    "Header",
    "HttpError",
    "HttpOptions",
    "Image",
    "Introspection",
    "JwtVerifier",
    "McplumbError",
    "NoCommonRevision",
    "NotInRevision",
    "OAuth",
    "Principal",
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
    "StoreUnavailable",
    "ToolError",
    "ToolFailed",
    "UsageError",
    "WorkloadIdentity",
    "__version__",
    "client_tls",
    "connect",
    "connect_all",
    "load_config",
    "result_for_anthropic",
    "result_for_openai",
    "server_tls",
    "sync",
    "tools_for_anthropic",
    "tools_for_openai",
]

# What takes more than errors is loaded when it is asked for: a program that is only a server never loads the client.
_HOMES = {
    "Audio": "mcplumb.server.media",
    "Bridge": "mcplumb.bridge.bridge",
    "Client": "mcplumb.client.client",
    "ClientCredentials": "mcplumb.client.auth.oauth",
    "Context": "mcplumb.server.context",
    "EnterpriseManaged": "mcplumb.client.auth.oauth",
    "File": "mcplumb.server.media",
    "Group": "mcplumb.client.group",
    "Header": "mcplumb.server.schema.signature",
    "client_tls": "mcplumb.transports.tls",
    "server_tls": "mcplumb.transports.tls",
    "HttpOptions": "mcplumb.transports.http_server.http_options",
    "Image": "mcplumb.server.media",
    "Introspection": "mcplumb.transports.http_server.auth.introspection",
    "JwtVerifier": "mcplumb.transports.http_server.auth.jwt_verifier",
    "OAuth": "mcplumb.client.auth.oauth",
    "Principal": "mcplumb.protocol.principal",
    "Server": "mcplumb.server.server",
    "WorkloadIdentity": "mcplumb.client.auth.oauth",
    "connect": "mcplumb.client.connector",
    "connect_all": "mcplumb.client.group",
    "load_config": "mcplumb.config.load_config",
    "result_for_anthropic": "mcplumb.client.llm_tools",
    "result_for_openai": "mcplumb.client.llm_tools",
    "sync": "mcplumb.sync",
    "tools_for_anthropic": "mcplumb.client.llm_tools",
    "tools_for_openai": "mcplumb.client.llm_tools",
}


if not TYPE_CHECKING:  # otherwise type checkers would take every name for one of the package

    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        module = import_module(home)
        value = globals()[name] = module if home == f"{__name__}.{name}" else getattr(module, name)
        return value


def __dir__() -> list[str]:
    return __all__
