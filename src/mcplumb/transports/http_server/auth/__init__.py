"""The authorization of requests: bearer tokens, what verifies them, and the challenges of a protected server."""
