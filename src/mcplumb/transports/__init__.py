"""Transports, which do all I/O: stdio, child processes, memory, sockets and HTTP, and the interface for custom ones."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcplumb.transports.connection import Connection, Peer, Receiver, Stats
    from mcplumb.transports.custom_transport import Carrier, CarrierConnection
    from mcplumb.transports.fd_connection import StreamConnection
    from mcplumb.transports.memory import memory_pair

__all__ = [
    "Carrier",
    "CarrierConnection",
    "Connection",
    "Peer",
    "Receiver",
    "Stats",
    "StreamConnection",
    "memory_pair",
]

# Imported on first use, so that a server on stdio does not load the other transports.
_HOMES = {
    "Carrier": "custom_transport",
    "CarrierConnection": "custom_transport",
    "Connection": "connection",
    "Peer": "connection",
    "Receiver": "connection",
    "Stats": "connection",
    "StreamConnection": "fd_connection",
    "memory_pair": "memory",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
