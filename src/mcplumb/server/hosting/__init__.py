"""Run a server: its process and signals, its addresses, its open sessions, and its logs on stderr."""
