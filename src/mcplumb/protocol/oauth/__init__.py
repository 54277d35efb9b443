"""Authorization (OAuth 2.1) without I/O: the flows of a client, and the tokens that a server accepts."""
