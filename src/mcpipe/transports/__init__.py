"""The only I/O: own stdio, memory, and what the byte streams share."""
