"""For tests: a kit that checks any transport, and a pair of connections in memory.

A program that only uses mcpipe never loads this.
"""

from mcpipe.testing.check import Check, MakePair, Pair, Trait
from mcpipe.testing.ends import End
from mcpipe.testing.kit import check_transport, checks
from mcpipe.transports.memory import memory_pair

__all__ = ["Check", "End", "MakePair", "Pair", "Trait", "check_transport", "checks", "memory_pair"]
