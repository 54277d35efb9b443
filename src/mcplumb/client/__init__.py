"""The client: what users program against to talk to a server."""

from mcplumb.client.changes import Changes
from mcplumb.client.client import Client
from mcplumb.client.connecting import Connecting, connect
from mcplumb.client.inputs import Elicitation
from mcplumb.client.settings import ClientStats
from mcplumb.protocol.era import EraWaits
from mcplumb.protocol.listening import Change, Missed
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.protocol.stopping import StopLadder

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
