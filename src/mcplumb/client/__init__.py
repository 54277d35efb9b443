"""The client: what users program against to talk to a server, or to a group of servers."""

from typing import TYPE_CHECKING, Any

from mcplumb.client.client import Client
from mcplumb.client.client_settings import ClientStats
from mcplumb.client.connector import Connecting, connect
from mcplumb.client.input_handlers import Elicitation
from mcplumb.client.subscriptions import Changes
from mcplumb.protocol.era import EraWaits
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.protocol.subscription_state import Change, Missed

if TYPE_CHECKING:
    from mcplumb.client.group import ConnectingAll, Group, GroupUpdate, UnknownName, connect_all
    from mcplumb.client.group_changes import GroupChanges, ServerChange
    from mcplumb.protocol.group_routing import Origin

__all__ = [
    "Change",
    "Changes",
    "Client",
    "ClientStats",
    "Connecting",
    "ConnectingAll",
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


if not TYPE_CHECKING:  # otherwise type checkers would take every name for one of the package

    def __getattr__(name: str) -> Any:
        # What groups need is loaded when it is asked for: a client of one server never uses it.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        for home in ("mcplumb.client.group", "mcplumb.client.group_changes", "mcplumb.protocol.group_routing"):
            module = import_module(home)
            if name in module.__all__:
                globals()[name] = getattr(module, name)
        return globals()[name]


def __dir__() -> list[str]:
    return __all__
