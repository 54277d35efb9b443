"""A bridge in front of the command that the command line names: over stdio, or at the address before it."""

import sys

from mcplumb import Bridge

addresses = [word for word in sys.argv[1:2] if ":" in word]
Bridge(sys.argv[1 + len(addresses) :]).run(*addresses)
