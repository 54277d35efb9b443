"""Test support: checks for any transport and any shared store, and a pair of in-memory connections.

Nothing else in mcplumb imports this package.
"""

from mcplumb.testing.check_runner import Check, MakePair, Pair, Trait
from mcplumb.testing.recording_receiver import End
from mcplumb.testing.store_checks import MakeStores, StoreCheck, check_store, store_checks
from mcplumb.testing.transport_checks import check_transport, checks
from mcplumb.transports.memory import memory_pair

__all__ = [
    "Check",
    "End",
    "MakePair",
    "MakeStores",
    "Pair",
    "StoreCheck",
    "Trait",
    "check_store",
    "check_transport",
    "checks",
    "memory_pair",
    "store_checks",
]
