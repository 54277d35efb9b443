"""The blocking client, for scripts, threads and notebooks.

``with connect(["python", "weather.py"]) as client`` gives a client with the methods of ``mcplumb.Client``, without
``await``.
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
