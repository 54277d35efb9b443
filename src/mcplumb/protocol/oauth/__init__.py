"""Authorization as a client does it (OAuth 2.1), without I/O: what to request, what to open, what to refuse."""
