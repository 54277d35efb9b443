"""Layer 4: the JSON-RPC endpoint that both ends of a connection are built on."""
