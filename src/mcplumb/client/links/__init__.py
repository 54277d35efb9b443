"""How a client reaches its server: a child process, a socket, an HTTP URL, memory or a custom transport."""
