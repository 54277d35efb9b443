"""The package without ``await``, for scripts, threads, notebooks and plain functions.

``with connect(["python", "weather.py"]) as client`` gives a client with the methods of ``mcplumb.Client``, without
``await``, and ``connect_all`` gives a group of them. ``Context`` is ``mcplumb.Context`` with the types for tools that
are plain functions.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcplumb.client import (
        Change,
        ClientStats,
        Elicitation,
        EraWaits,
        GroupUpdate,
        Missed,
        Origin,
        RestartPolicy,
        ServerChange,
        StopLadder,
        UnknownName,
    )
    from mcplumb.server.context import BlockingContext as Context
    from mcplumb.sync.blocking_client import Changes, Client, Connecting, connect
    from mcplumb.sync.blocking_group import ConnectingAll, Group, GroupChanges, connect_all

__all__ = [
    "Change",
    "Changes",
    "Client",
    "ClientStats",
    "Connecting",
    "ConnectingAll",
    "Context",
    "Elicitation",
    "EraWaits",
    "Group",
    "GroupChanges",
    "GroupUpdate",
    "Missed",
    "Origin",
    "RestartPolicy",
    "ServerChange",
    "StopLadder",
    "UnknownName",
    "connect",
    "connect_all",
]

_HOMES = {
    **dict.fromkeys(("Changes", "Client", "Connecting", "connect"), "mcplumb.sync.blocking_client"),
    **dict.fromkeys(("ConnectingAll", "Group", "GroupChanges", "connect_all"), "mcplumb.sync.blocking_group"),
}


if not TYPE_CHECKING:  # otherwise type checkers would take every name for one of the package

    def __getattr__(name: str) -> Any:
        # Loaded when it is asked for: a server with a `Context` never loads the client.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        if name == "Context":
            value = import_module("mcplumb.server.context").BlockingContext
        else:
            value = getattr(import_module(_HOMES.get(name, "mcplumb.client")), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
