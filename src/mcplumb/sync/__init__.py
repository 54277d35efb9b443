"""The package without ``await``, for scripts, threads, notebooks and plain functions.

``with connect(["python", "weather.py"]) as client`` gives a client with the methods of ``mcplumb.Client``, without
``await``. ``Context`` is ``mcplumb.Context`` with the types for tools that are plain functions.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcplumb.client import Change, ClientStats, Elicitation, EraWaits, Missed, RestartPolicy, StopLadder
    from mcplumb.server.context import BlockingContext as Context
    from mcplumb.sync.blocking_client import Changes, Client, Connecting, connect

__all__ = [
    "Change",
    "Changes",
    "Client",
    "ClientStats",
    "Connecting",
    "Context",
    "Elicitation",
    "EraWaits",
    "Missed",
    "RestartPolicy",
    "StopLadder",
    "connect",
]

_BLOCKING = frozenset({"Changes", "Client", "Connecting", "connect"})


if not TYPE_CHECKING:  # otherwise type checkers would take every name for one of the package

    def __getattr__(name: str) -> Any:
        # Loaded when it is asked for: a server with a `Context` never loads the client.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        if name == "Context":
            value = import_module("mcplumb.server.context").BlockingContext
        else:
            value = getattr(
                import_module("mcplumb.sync.blocking_client" if name in _BLOCKING else "mcplumb.client"), name
            )
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
