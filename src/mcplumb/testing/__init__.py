"""Test support: checks for any transport, and a pair of in-memory connections.

Nothing else in mcplumb imports this package.
"""

from mcplumb.testing.check_runner import Check, MakePair, Pair, Trait
from mcplumb.testing.recording_receiver import End
from mcplumb.testing.transport_checks import check_transport, checks
from mcplumb.transports.memory import memory_pair

__all__ = ["Check", "End", "MakePair", "Pair", "Trait", "check_transport", "checks", "memory_pair"]
