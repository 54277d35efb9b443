"""The client: what users program against to talk to a server."""

from mcplumb.client.client import Client
from mcplumb.client.client_settings import ClientStats
from mcplumb.client.connector import Connecting, connect
from mcplumb.client.input_handlers import Elicitation
from mcplumb.client.subscriptions import Changes
from mcplumb.protocol.era import EraWaits
from mcplumb.protocol.restart import RestartPolicy
from mcplumb.protocol.stop_ladder import StopLadder
from mcplumb.protocol.subscription_state import Change, Missed

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
