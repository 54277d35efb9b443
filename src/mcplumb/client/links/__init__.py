"""Links: the ways in which a client reaches its server."""
