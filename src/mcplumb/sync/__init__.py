"""The client without ``await``: for scripts, threads and notebooks.

``with connect(["python", "weather.py"]) as client``, and then the same calls as those of ``mcplumb.connect``, blocking.
"""

from mcplumb.client import Change, ClientStats, Elicitation, EraWaits, Missed, RestartPolicy, StopLadder
from mcplumb.sync.blocking_client import Changes, Client, Connecting, connect

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
