"""Layer 1: bytes to messages and back. No I/O, no time, no MCP methods."""
