"""The client without ``await``: for scripts, threads and notebooks.

``with connect(["python", "weather.py"]) as client``, and then the same calls as those of ``mcpipe.connect``, blocking.
"""

from mcpipe.client import Change, ClientStats, Elicitation, EraWaits, Missed, RestartPolicy, StopLadder
from mcpipe.sync.changes import Changes
from mcpipe.sync.client import Client
from mcpipe.sync.connecting import Connecting, connect

__all__ = [
    "Change",
    "Changes",
    "Client",
    "ClientStats",
    "Connecting",
    "Elicitation",
    "EraWaits",
    "Missed",
    "RestartPolicy",
    "StopLadder",
    "connect",
]
