"""For tests: a kit that checks any transport, and a pair of connections in memory.

A program that only uses mcplumb never loads this.
"""

from mcplumb.testing.check import Check, MakePair, Pair, Trait
from mcplumb.testing.kit import check_transport, checks
from mcplumb.testing.recording_end import End
from mcplumb.transports.memory import memory_pair

__all__ = ["Check", "End", "MakePair", "Pair", "Trait", "check_transport", "checks", "memory_pair"]
