"""The client: what users program against to talk to a server."""

from mcpipe.client.changes import Changes
from mcpipe.client.client import Client
from mcpipe.client.connecting import Connecting, connect
from mcpipe.client.inputs import Elicitation
from mcpipe.client.settings import ClientStats
from mcpipe.protocol.era import EraWaits
from mcpipe.protocol.listening import Change, Missed
from mcpipe.protocol.restart import RestartPolicy
from mcpipe.protocol.stopping import StopLadder

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
